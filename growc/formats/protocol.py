"""The forms that models have on disk: what of `apply` and `verify` is done in a way of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from growc.checkpoint.files.pieces import is_distributed
from growc.errors.diagnostic import wrong
from growc.formats.installed import require_torch
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
        """What a reader should know of the files of the result that was written."""

    def whole(self, c: Result) -> Iterator[tuple[str, int]]:
        """The parts of the result that cannot be made by blocks, with the bytes that each takes."""

    def write(self, c: Result, folder: Path, target: Path, progress: Progress) -> list[Path]:
        """Make the result in `folder`. Gives what is to be moved beside `target`; the model is the last."""

    def stamp(self, result: Path, record: str) -> None:
        """Write provenance into the result."""

    def describe(self, result: Path, body: str | None, base: str) -> None:
        """Write a model card with this body where the form has one, None: none; `base`: the repository that
        the source was fetched from.
        """

    def history(self, model: Path) -> list[dict[str, Json]]:
        """The records of the growths that made a model, the first one first."""

    def retraced(self, source: Path, result: Path, progress: Progress) -> Ports:
        """How the inputs and outputs of `result` follow from those of `source`, by the records in it."""

    def verify(
        self, ports: Ports, source: Path, result: Path, inputs: str | Path | None, progress: Progress
    ) -> Verification:
        """Run both models on the same inputs."""

    def in_wider(
        self, c: Result, folder: Path, inputs: str | Path | None, progress: Progress
    ) -> dict[str, Verification]:
        """A model of 16 bits and its result once more in wider numbers, by what that is called."""


def form_of(
    path: Path,
    shard_size: str = "",
    optimizer: Path | None = None,
    optimizer_new: str | None = None,
    ranks: Ranks = ALONE,
    weights: str | None = None,
) -> Form:
    """The form of a model; only checkpoint directories have shards, optimizers beside them, several ranks
    that write, and a choice of files.

    `optimizer_new` is what entries of new units have in the optimizer's state (None: `mapped`). Raises
    GrowError: G200 for what the form has not, for what is no size and no such word; G309 without torch.
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
    for option, given in (("--shard-size", shard_size), ("--optimizer", optimizer), ("--weights", weights)):
        if given:
            raise wrong(f"`{option}` is for checkpoint directories, and `{path}` is none")
    if path.suffix == ".pt2":
        require_torch(path)
        from growc.formats.torch_program import ProgramFile

        return ProgramFile()
    from growc.formats.onnx_file import OnnxFile

    return OnnxFile()


def _word(option: str, word: str, known: tuple[Word, ...]) -> Word:
    """One of the words that an option has. Raises GrowError (G200) for another one."""
    found = next((one for one in known if one == word), None)
    if found is None:
        raise wrong(f"`{option}` is {' or '.join(f'`{one}`' for one in known)}, and not `{word}`")
    return found
