"""Models that were fetched: which reference each stands for, and where files beside it are put."""

from __future__ import annotations

from pathlib import Path

_REFERENCES: dict[Path, str] = {}
"""What this process has fetched: the place on this machine, and the reference with its commit."""


def remember(place: Path, reference: str) -> None:
    """A model at this place was fetched: `hf://owner/name@commit`."""
    _REFERENCES[place] = reference


def reference_of(model: Path) -> str:
    """The reference that a model was fetched by, with its commit; nothing for any other model."""
    return _REFERENCES.get(model, "")


def put_beside(model: Path) -> Path:
    """A path beside which files of a model are put. A model that was fetched has it in the current folder:
    a cache of downloads is no place for them. The names of folders have no links in them.
    """
    if reference_of(model):
        return Path(model.name)
    return model.resolve() if model.is_dir() else model
