"""Models that were fetched: the reference of each, and the place for files beside it."""

from __future__ import annotations

from pathlib import Path

_REFERENCES: dict[Path, str] = {}
"""The models that this process fetched: the place on this machine, and the reference with its commit."""


def remember(place: Path, reference: str) -> None:
    """Record that a model at this place was fetched from `hf://owner/name@commit`."""
    _REFERENCES[place] = reference


def reference_of(model: Path) -> str:
    """The reference, with its commit, from which a model was fetched; empty for any other model."""
    return _REFERENCES.get(model, "")


def put_beside(model: Path) -> Path:
    """A path beside which files of a model are put.

    For a fetched model it is in the current folder, since a cache of downloads is no place for them. Links in
    the paths of folders are resolved.
    """
    if reference_of(model):
        return Path(model.name)
    return model.resolve() if model.is_dir() else model
