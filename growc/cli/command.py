"""A command: how it is called, what it takes, and what it does."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """usage: what stands behind `growc NAME`. arguments: adds its own to a parser. run: gives the exit
    status, or raises GrowError. examples: command lines, without `growc`. models: the models that it was
    given, where it reads any.
    """

    name: str
    usage: str
    purpose: str
    arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    examples: tuple[str, ...] = ()
    models: Callable[[Namespace], Sequence[str | Path]] | None = None
