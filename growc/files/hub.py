"""Models of the Hugging Face Hub: a reference is accepted wherever the path of a model is."""

from __future__ import annotations

from pathlib import Path

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.progress import Progress, quiet
from growc.files.reference import NAME, SCHEME, Reference, is_reference
from growc.system.fetched_models import remember


def local(model: str | Path, progress: Progress = quiet) -> Path:
    """The path of a model on this machine; a model named by a reference is fetched.

    Raises GrowError: G200 for a malformed reference, G309 without huggingface_hub, G310 for a model that is
    not there or cannot be fetched.
    """
    if not is_reference(model):
        if not Path(model).exists():
            raise no_model(Path(model))
        return Path(model)
    reference = Reference.read(model)
    from growc.files.hub_download import fetched

    place, commit = fetched(reference, progress)
    remember(place, str(Reference(reference.repository, commit, reference.file)))
    return place


def no_model(path: Path) -> GrowError:
    """The error for a path without a model; it suggests a model of the Hub if the path may mean one."""
    owner, *rest = str(path).split("/")
    named = len(rest) < 2 and all(NAME.fullmatch(part) for part in (owner, *rest))
    remedy = ""
    if named and path.suffix not in (".onnx", ".pt2", ".json"):
        meant = f"`{SCHEME}{path}`" if rest else f"`{SCHEME}OWNER/{path}`, with its owner"
        remedy = f"did you mean {meant}, a model of the Hugging Face Hub?"
    return GrowError(Diagnostic("G310", f"there is no model at `{path}`", help=remedy))
