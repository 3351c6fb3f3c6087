"""The description of a command: its usage, its arguments, and its action."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """One command.

    usage: the text behind `growc NAME`. arguments: adds the command's own arguments to a parser. run: returns
    the exit status, or raises GrowError. examples: command lines, without `growc`. models: returns the models
    among the options, if the command reads any.
    """

    name: str
    usage: str
    purpose: str
    arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    examples: tuple[str, ...] = ()
    models: Callable[[Namespace], Sequence[str | Path]] | None = None
