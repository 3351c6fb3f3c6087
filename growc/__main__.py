"""Run `growc` as `python -m growc`."""

from growc.cli.main import program

program()
