"""The versions of torch and transformers with which growc's tests have passed.

Another version may compute other values. The result is still compared with the source, and the plan warns.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

TESTED = {"torch": ("2.13", "2.14"), "transformers": ("5.21", "5.24")}
"""For each package the first and last minor version that passed. pyproject.toml requires the first."""


def untested(*packages: str) -> Iterator[str]:
    """Yield a warning for each of these packages whose installed version is untested."""
    for package in packages:
        first, last = TESTED[package]
        installed = version(package)
        if not _minor(first) <= _minor(installed) <= _minor(last):
            tested = first if first == last else f"{first} to {last}"
            yield f"growc is tested with {package} {tested}, and {installed} is installed"


def _minor(written: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(number) for number in written.split(".")[:2])
