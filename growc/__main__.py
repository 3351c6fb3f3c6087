"""`python -m growc` is `growc`."""

import sys

from growc.cli.main import program

sys.exit(program())
