"""Fetches models of the Hugging Face Hub into its cache: no pickles, no code, and nothing that goes unused.

The library huggingface_hub does the work, and honours HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE.
"""

from __future__ import annotations

import atexit
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path

from growc.checkpoint.files.directory import CONFIG, INDEX, PICKLED, WEIGHTS, read_json
from growc.checkpoint.files.quiet import without_logs
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.progress import Progress
from growc.errors.regular_files import first_line
from growc.files.reference import NAME, Reference
from growc.system.workshop import scratch

BESIDE = (
    *("generation_config.json", "*processor_config.json", "README.md", "LICENSE*", "NOTICE*"),
    *("tokenizer*.json", "tokenizer*.model", "spiece.model", "sentencepiece*.model", "*.spm"),
    *("vocab*.json", "vocab*.txt", "merges.txt", "special_tokens_map.json", "added_tokens.json"),
    *("chat_template.json", "chat_template.jinja"),
)
"""Names of files that a checkpoint directory may have beside its config and its weights."""
COMMIT = re.compile("[0-9a-f]{40}")
VIEWS = "growc"
"""The folder beside `snapshots` with a folder for each commit, which has links to the files that growc takes:
a snapshot has what any program fetched.
"""


def fetched(reference: Reference, progress: Progress) -> tuple[Path, str]:
    """The place of a model on this machine, and its commit.

    Raises GrowError: G309 without huggingface_hub, G310 for what cannot be fetched, or has no safetensors.
    """
    if find_spec("huggingface_hub") is None:
        message = f"`{reference}` is fetched with huggingface_hub, which is not installed"
        raise GrowError(Diagnostic("G309", message, help="install `growc[torch]`"))
    progress(f"looking up {reference.repository}", 0, 0)
    with without_logs(), _in_plain_words(reference):
        source = _Repository.of(reference, progress)
        if not reference.file:
            return _viewed(source, source.checkpoint(), f"checkpoint/{source.name}"), source.commit
        found = source.file(reference.file)
        return _viewed(source, found, f"file/{reference.file}") / reference.file, source.commit


@dataclass(frozen=True)
class _Repository:
    """A repository at a commit. sizes: of its files, by name."""

    reference: Reference
    commit: str
    sizes: Mapping[str, int]
    progress: Progress

    @staticmethod
    def of(reference: Reference, progress: Progress) -> _Repository:
        """Asks for the commit and its files, or takes them from the cache when offline."""
        from huggingface_hub import HfApi, get_cached_repo_tree, is_offline_mode, snapshot_download

        asked = reference.revision or None
        commit = reference.revision
        if not COMMIT.fullmatch(commit):
            if not is_offline_mode():
                # raises where the call below would take what it knew of an earlier run
                HfApi().model_info(reference.repository, revision=asked)
            commit = str(HfApi().resolve_revision(reference.repository, revision=asked).resolved)
        if not COMMIT.fullmatch(commit):
            raise _unfetched(reference, f"the server calls the commit `{commit}`")
        # fetches no file: it keeps the list of them, by which a run that is offline knows what it lacks
        snapshot_download(reference.repository, revision=commit, allow_patterns=[], tqdm_class=_bar(_untold))
        files = get_cached_repo_tree(reference.repository, revision=commit)
        return _Repository(reference, commit, {file.path: file.size for file in files}, progress)

    @property
    def name(self) -> str:
        """Without its owner."""
        return self.reference.repository.partition("/")[2]

    def checkpoint(self) -> dict[str, Path]:
        """The files of a checkpoint directory by name, weights last."""
        if CONFIG not in self.sizes:
            raise _unfetched(self.reference, f"it has no `{CONFIG}`", self._remedy())
        names = [n for n in self.sizes if NAME.fullmatch(n) and any(fnmatchcase(n, p) for p in BESIDE)]
        single = WEIGHTS in self.sizes
        if not single and WEIGHTS + INDEX not in self.sizes:
            raise self._without_safetensors()
        found = self._taken([CONFIG, *sorted(names), *([] if single else [WEIGHTS + INDEX])])
        weights = [WEIGHTS] if single else self._shards(found[WEIGHTS + INDEX])
        return found | self._taken(weights)

    def file(self, name: str) -> dict[str, Path]:
        """A file of a model, and the data beside it that has its name."""
        if name not in self.sizes:
            raise _unfetched(self.reference, f"it has no file `{name}`")
        found = self._taken([name])
        stem = name.removesuffix(".onnx")
        data = [n for n in self.sizes if n.startswith(f"{stem}.onnx") or fnmatchcase(n, f"{stem}*.data")]
        beside = [n for n in sorted(data) if n != name and all(map(NAME.fullmatch, n.split("/")))]
        return found | self._taken(beside if stem != name else [])

    def _shards(self, index: Path) -> list[str]:
        """The files that an index names."""
        places = read_json(index).get("weight_map")
        named = sorted(set(map(str, places.values()))) if isinstance(places, dict) else []
        for name in named:
            if not NAME.fullmatch(name) or not name.endswith(".safetensors") or name not in self.sizes:
                reason = f"its index names the shard `{name}`, which is no file of safetensors that it has"
                raise _unfetched(self.reference, reason)
        return named

    def _taken(self, names: Iterable[str]) -> dict[str, Path]:
        """Files, each where it is in the cache by now."""
        from huggingface_hub import hf_hub_download

        names = list(names)
        total, before = sum(self.sizes[name] for name in names), 0
        found: dict[str, Path] = {}
        for name in names:
            told = self._telling(name, before, total)
            told(0)
            place = hf_hub_download(
                self.reference.repository, name, revision=self.commit, tqdm_class=_bar(told)
            )
            found[name] = Path(place)
            if not found[name].as_posix().endswith(f"/snapshots/{self.commit}/{name}"):
                raise _unfetched(self.reference, f"the server has another commit of `{name}`")
            before += self.sizes[name]
        return found

    def _telling(self, name: str, before: int, total: int) -> Callable[[int], None]:
        """What is told of a file of which so many bytes have come."""
        return lambda count: self.progress(f"fetching {name}", before + count, total)

    def _without_safetensors(self) -> GrowError:
        pickled = next((n for n in self.sizes if n.startswith(PICKLED.partition(".")[0])), "")
        if not pickled:
            return _unfetched(self.reference, "it has no weights as safetensors", self._remedy())
        remedy = (
            "https://huggingface.co/spaces/safetensors/convert makes a pull request with safetensors, "
            f"which is `hf://{self.reference.repository}@refs/pr/N`"
        )
        reason = f"it has weights as `{pickled}` alone, and growc fetches no pickles, which may run code"
        return _unfetched(self.reference, reason, remedy)

    def _remedy(self) -> str:
        """The name of a file of the repository that growc reads."""
        models = [n for n in self.sizes if n.endswith(".onnx") and all(map(NAME.fullmatch, n.split("/")))]
        return f"`hf://{self.reference.repository}/{min(models)}` names a model in it" if models else ""


def _viewed(source: _Repository, files: Mapping[str, Path], name: str) -> Path:
    """A folder of this name with links to some files, for no other model: in the cache, or, where that cannot
    be written to, in the folder for temporary files for as long as the process lives.
    """
    first, place = next(iter(files.items()))
    snapshot = place.parents[first.count("/")]
    try:
        return _linked(snapshot.parent.parent / VIEWS / source.commit / name, files)
    except OSError:
        folder, remove = scratch()
        atexit.register(remove)
        return _linked(folder / name, files)


def _linked(folder: Path, files: Mapping[str, Path]) -> Path:
    """The folder, with a link to each of the files and nothing else that is a link."""
    folder.mkdir(parents=True, exist_ok=True)
    for link in [place for place in folder.rglob("*") if place.is_symlink()]:
        if link.readlink() != files.get(link.relative_to(folder).as_posix()):
            link.unlink()
    for name, place in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(place)
    return folder


def _untold(count: int) -> None:
    """Tells nobody of bytes that came."""


def _bar(told: Callable[[int], None]) -> type:
    """A class that the library takes for a bar of tqdm's: it shows nothing, and tells of bytes that came."""

    class Bar:
        """One file's bar."""

        def __init__(self, *given: object, total: float | None = None, initial: int = 0, **others: object):
            self.n, self.total, self.format_dict = initial, total, dict[str, float]()

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def update(self, count: float | None = 1) -> None:
            """So many bytes more."""
            self.n += int(count or 0)
            told(self.n)

        def __getattr__(self, name: str) -> Callable[..., None]:
            if name.startswith("__") or name in ("get_lock", "set_lock", "update_transfer"):
                raise AttributeError(name)
            return lambda *given, **options: None

    return Bar


# ------------------------------------------------------------------------------------------- what fails


def _unfetched(reference: Reference, reason: str, remedy: str = "") -> GrowError:
    return GrowError(Diagnostic("G310", f"`{reference}` cannot be fetched: {reason}", help=remedy))


@contextlib.contextmanager
def _in_plain_words(reference: Reference) -> Iterator[None]:
    """What the library raises, as a diagnostic. What the system refuses stays as it is."""
    try:
        yield
    except GrowError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
            raise
        raise _unfetched(reference, *_reason(error, reference)) from error


def _reason(error: Exception, reference: Reference) -> tuple[str, str]:
    """Why something cannot be fetched, and what mends that."""
    from huggingface_hub import constants, errors, is_offline_mode

    token = "`hf auth login`, or a token in HF_TOKEN,"
    page = f"{constants.ENDPOINT}/{reference.repository}"
    if isinstance(error, errors.GatedRepoError):
        return "it is gated", f"accept its terms at {page}; then {token} lets growc in"
    if isinstance(error, errors.RepositoryNotFoundError):
        reason = f"{constants.ENDPOINT} has no such model, or it is private"
        return reason, f"of private models, {token} lets growc in"
    if isinstance(error, errors.RevisionNotFoundError):
        return "it has no such revision", f"{page}/tree/main lists its branches and tags"
    if is_offline_mode():
        reason = "it is not in the cache as a whole, and HF_HUB_OFFLINE is set"
        return reason, "run it once with a network and without HF_HUB_OFFLINE"
    if isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        denied = f"{token} lets growc in where you may read it" if status in (401, 403) else ""
        return f"{constants.ENDPOINT} answers with status {status}", denied
    remedy = f"run it again with a network to {constants.ENDPOINT}; complete files that came are kept"
    cause = error.__cause__ or error  # the library says of both what it did not find, and the reason before
    reason = re.sub(r"^\[Errno -?\d+\] ", "", first_line(cause))
    return reason, f"{remedy}, and HF_HUB_OFFLINE=1 takes those of an earlier run"
