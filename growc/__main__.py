"""Run `growc` as `python -m growc`."""

import sys

from growc.cli.main import program

sys.exit(program())
