"""The interface of the forms of models on disk: the steps of `apply` and `verify` that differ between
forms.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from growc.checkpoint.files.pieces import is_distributed
from growc.errors.diagnostic import wrong
from growc.formats.required_libraries import require_torch
from growc.system.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from growc.errors.json_data import Json
    from growc.errors.progress import Progress
    from growc.passes.compilation import Result
    from growc.passes.finish.interface import Ports
    from growc.verification.verify import Verification


Word = TypeVar("Word", bound=str)


class Form(Protocol):
    """One form of models."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks for the user on the files of the result that was written."""

    def whole(self, c: Result) -> Iterator[tuple[str, int]]:
        """The parts of the result that cannot be made by blocks, with the bytes that each takes."""

    def write(self, c: Result, folder: Path, target: Path, progress: Progress) -> list[Path]:
        """Make the result in `folder`. Returns the files to be moved beside `target`; the model is the
        last.
        """

    def stamp(self, result: Path, record: str) -> None:
        """Write provenance into the result."""

    def describe(self, result: Path, body: str | None, base: str) -> None:
        """Write a model card with this body if the form has cards; with None, remove growc's card.

        base: the repository from which the source was fetched.
        """

    def history(self, model: Path) -> list[dict[str, Json]]:
        """The records of the growths that made a model, the first one first."""

    def retraced(self, source: Path, result: Path, progress: Progress) -> Ports:
        """The maps from the inputs and outputs of `source` to those of `result`, by the records in it."""

    def verify(
        self, ports: Ports, source: Path, result: Path, inputs: str | Path | None, progress: Progress
    ) -> Verification:
        """Run both models on the same inputs."""

    def in_wider(
        self, c: Result, folder: Path, inputs: str | Path | None, progress: Progress
    ) -> dict[str, Verification]:
        """Comparisons of a 16-bit model and its result in wider numbers, by their names."""


def form_of(
    path: Path,
    shard_size: str = "",
    optimizer: Path | None = None,
    optimizer_new: str | None = None,
    ranks: Ranks = ALONE,
    weights: str | None = None,
) -> Form:
    """The form of a model.

    Only checkpoint directories have shards, optimizers beside them, several ranks that write, and a choice of
    files. optimizer_new: the entries of new units in the optimizer's state (None: `mapped`). Raises
    GrowError: G200 for an option that the form lacks or a wrong value of one; G309 without torch.
    """
    if optimizer_new is not None and optimizer is None and not is_distributed(path):
        raise wrong("`--optimizer-new` is about the state that `--optimizer` names, and none is named")
    if path.is_dir():
        require_torch(path)
        from growc.checkpoint.files.shards import SHARD_SIZE, read_size
        from growc.formats.checkpoint_directory import KINDS, CheckpointDirectory
        from growc.training.optimizer_state import NEW

        size = read_size(shard_size) if shard_size else SHARD_SIZE
        kind = None if weights is None else _word("--weights", weights, KINDS)
        return CheckpointDirectory(
            kind, size, optimizer, _word("--optimizer-new", optimizer_new or "mapped", NEW), ranks
        )
    if path.suffix == ".json":
        raise wrong(
            f"`{path}` has no weights",
            "name the directory that holds them; `growc plan` needs the config alone",
        )
    for option, option_value in (
        ("--shard-size", shard_size),
        ("--optimizer", optimizer),
        ("--weights", weights),
    ):
        if option_value:
            raise wrong(f"`{option}` is for checkpoint directories, and `{path}` is none")
    if path.suffix == ".pt2":
        require_torch(path)
        from growc.formats.torch_program import ProgramFile

        return ProgramFile()
    from growc.formats.onnx_file import OnnxFile

    return OnnxFile()


def _word(option: str, word: str, known: tuple[Word, ...]) -> Word:
    """One of the words that an option accepts. Raises GrowError (G200) for any other word."""
    match = next((candidate for candidate in known if candidate == word), None)
    if match is None:
        raise wrong(f"`{option}` is {' or '.join(f'`{candidate}`' for candidate in known)}, and not `{word}`")
    return match
