"""Fetch models of the Hugging Face Hub into its cache: no pickles, no code, and no unused files.

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
"""Folder beside `snapshots` with a folder for each commit, with links to the files that growc takes.

A snapshot itself may hold more, since any program may have fetched files into it.
"""


def fetched(reference: Reference, progress: Progress) -> tuple[Path, str]:
    """The place of a model on this machine, and its commit.

    Raises GrowError: G309 without huggingface_hub, G310 if it cannot be fetched or has no safetensors.
    """
    if find_spec("huggingface_hub") is None:
        message = f"`{reference}` is fetched with huggingface_hub, which is not installed"
        raise GrowError(Diagnostic("G309", message, help="install `growc[torch]`"))
    progress(f"looking up {reference.repository}", 0, 0)
    with without_logs(), _in_plain_words(reference):
        source = _Repository.of(reference, progress)
        if not reference.file:
            return _viewed(source, source.checkpoint(), f"checkpoint/{source.name}"), source.commit
        model_files = source.file(reference.file)
        return _viewed(source, model_files, f"file/{reference.file}") / reference.file, source.commit


@dataclass(frozen=True)
class _Repository:
    """A repository at a commit. sizes: the sizes of its files by name."""

    reference: Reference
    commit: str
    sizes: Mapping[str, int]
    progress: Progress

    @staticmethod
    def of(reference: Reference, progress: Progress) -> _Repository:
        """Look up the commit and its files; when offline, take them from the cache."""
        from huggingface_hub import HfApi, get_cached_repo_tree, is_offline_mode, snapshot_download

        revision = reference.revision or None
        commit = reference.revision
        if not COMMIT.fullmatch(commit):
            if not is_offline_mode():
                # This raises where resolve_revision would fall back on what an earlier run knew.
                HfApi().model_info(reference.repository, revision=revision)
            commit = str(HfApi().resolve_revision(reference.repository, revision=revision).resolved)
        if not COMMIT.fullmatch(commit):
            raise _unfetched(reference, f"the server calls the commit `{commit}`")
        # Fetches no files: it stores the list of them, which tells an offline run what is missing.
        snapshot_download(reference.repository, revision=commit, allow_patterns=[], tqdm_class=_bar(_untold))
        files = get_cached_repo_tree(reference.repository, revision=commit)
        return _Repository(reference, commit, {file.path: file.size for file in files}, progress)

    @property
    def name(self) -> str:
        """The repository's name without its owner."""
        return self.reference.repository.partition("/")[2]

    def checkpoint(self) -> dict[str, Path]:
        """The files of a checkpoint directory by name, weights last."""
        if CONFIG not in self.sizes:
            raise _unfetched(self.reference, f"it has no `{CONFIG}`", self._remedy())
        names = [n for n in self.sizes if NAME.fullmatch(n) and any(fnmatchcase(n, p) for p in BESIDE)]
        single = WEIGHTS in self.sizes
        if not single and WEIGHTS + INDEX not in self.sizes:
            raise self._without_safetensors()
        fetched_files = self._taken([CONFIG, *sorted(names), *([] if single else [WEIGHTS + INDEX])])
        weights = [WEIGHTS] if single else self._shards(fetched_files[WEIGHTS + INDEX])
        return fetched_files | self._taken(weights)

    def file(self, name: str) -> dict[str, Path]:
        """A file of a model, and the data files beside it that carry its name."""
        if name not in self.sizes:
            raise _unfetched(self.reference, f"it has no file `{name}`")
        fetched_files = self._taken([name])
        stem = name.removesuffix(".onnx")
        data = [n for n in self.sizes if n.startswith(f"{stem}.onnx") or fnmatchcase(n, f"{stem}*.data")]
        data_files = [n for n in sorted(data) if n != name and all(map(NAME.fullmatch, n.split("/")))]
        return fetched_files | self._taken(data_files if stem != name else [])

    def _shards(self, index: Path) -> list[str]:
        """The files that an index names. Raises GrowError (G310) for a name that is no safetensors file of
        the repository.
        """
        places = read_json(index).get("weight_map")
        named = sorted(set(map(str, places.values()))) if isinstance(places, dict) else []
        for name in named:
            if not NAME.fullmatch(name) or not name.endswith(".safetensors") or name not in self.sizes:
                reason = f"its index names the shard `{name}`, which is no file of safetensors that it has"
                raise _unfetched(self.reference, reason)
        return named

    def _taken(self, names: Iterable[str]) -> dict[str, Path]:
        """The files by name, fetched into the cache."""
        from huggingface_hub import hf_hub_download

        names = list(names)
        total, before = sum(self.sizes[name] for name in names), 0
        places: dict[str, Path] = {}
        for name in names:
            report = self._telling(name, before, total)
            report(0)
            place = hf_hub_download(
                self.reference.repository, name, revision=self.commit, tqdm_class=_bar(report)
            )
            places[name] = Path(place)
            if not places[name].as_posix().endswith(f"/snapshots/{self.commit}/{name}"):
                raise _unfetched(self.reference, f"the server has another commit of `{name}`")
            before += self.sizes[name]
        return places

    def _telling(self, name: str, before: int, total: int) -> Callable[[int], None]:
        """A callback that reports the bytes of a file that have arrived."""
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
        """A hint that names a file of the repository that growc reads; empty if there is none."""
        models = [n for n in self.sizes if n.endswith(".onnx") and all(map(NAME.fullmatch, n.split("/")))]
        return f"`hf://{self.reference.repository}/{min(models)}` names a model in it" if models else ""


def _viewed(source: _Repository, files: Mapping[str, Path], name: str) -> Path:
    """A folder of this name with links to the files of one model only.

    It is in the cache; if the cache cannot be written to, it is in the folder for temporary files and is
    removed when the process ends.
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
    """The folder with a link to each of the files and no other links."""
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
    """Report nothing about bytes that arrive."""


def _bar(told: Callable[[int], None]) -> type:
    """A class that the library uses as a tqdm bar: it shows nothing, and reports bytes that arrive."""

    class Bar:
        """The bar of one file."""

        def __init__(
            self, *positional: object, total: float | None = None, initial: int = 0, **others: object
        ):
            self.n, self.total, self.format_dict = initial, total, dict[str, float]()

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def update(self, count: float | None = 1) -> None:
            """Count further bytes."""
            self.n += int(count or 0)
            told(self.n)

        def __getattr__(self, name: str) -> Callable[..., None]:
            if name.startswith("__") or name in ("get_lock", "set_lock", "update_transfer"):
                raise AttributeError(name)
            return lambda *positional, **options: None

    return Bar


# ------------------------------------------------------------------------------------------- what fails


def _unfetched(reference: Reference, reason: str, remedy: str = "") -> GrowError:
    return GrowError(Diagnostic("G310", f"`{reference}` cannot be fetched: {reason}", help=remedy))


@contextlib.contextmanager
def _in_plain_words(reference: Reference) -> Iterator[None]:
    """In this context, errors of the library become diagnostics. Errors of the operating system stay."""
    try:
        yield
    except GrowError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
            raise
        raise _unfetched(reference, *_reason(error, reference)) from error


def _reason(error: Exception, reference: Reference) -> tuple[str, str]:
    """The reason why a model cannot be fetched, and a remedy."""
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
    cause = error.__cause__ or error  # the cause is more precise than the error
    reason = re.sub(r"^\[Errno -?\d+\] ", "", first_line(cause))
    return reason, f"{remedy}, and HF_HUB_OFFLINE=1 takes those of an earlier run"
