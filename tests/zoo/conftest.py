"""The zoo is judged as `make coverage` judges it."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[2] / folder) for folder in ("benchmarks", "examples")]
