"""Temporary folders in which results are made, and recovery of folders that killed runs left.

A folder holds a file that names its process and its target. The process keeps it locked; the lock ends with
its process. Before the renames begin, the folder also holds a list of them. With it, whoever finds the folder
later undoes the renames, or finishes what was committed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.system.interrupts import uninterrupted

BESIDE = ".growc-"
"""Prefix of the names of folders beside a target."""
SCRATCH = "growc-run-"
"""Prefix of the names of folders in the system's folder for temporary files."""
OWNER, MOVES = ".owner", ".moves"
BORN = f"{OWNER}.new"
DRAFTS = "drafts"
"""Folder in which drafts have the names of the final files."""
KEY, NOTES = ".key", "notes"
"""Files for continuing a killed run: the key of the run, and the folder with its records."""
_OURS: set[Path] = set()
"""The folders of this process."""


@dataclass(frozen=True)
class Owner:
    """The owner of a folder: a process of a host, and its target; empty if the folder is for no result."""

    process: int
    host: str
    target: str


@dataclass(frozen=True)
class Renames:
    """Renames out of a folder.

    moves: for each, the name beside the folder, the inode, and the name of the previous file. model: the
    place of the model, whose rename is the commit, and its inode then. stale: names of data that only the
    replaced model used.
    """

    model: tuple[str, int]
    moves: Sequence[tuple[str, int, str]] = ()
    stale: Sequence[str] = ()


@dataclass
class Cleaned:
    """The outcome of a cleanup.

    removed: folders that were removed. busy: folders in use, which stay. unsure: folders that stay since the
    file system has no locks.
    """

    removed: list[Path] = field(default_factory=list)
    busy: dict[Path, Owner] = field(default_factory=dict)
    unsure: list[Path] = field(default_factory=list)


def refused(place: Path, error: OSError) -> GrowError:
    """The diagnostic for an error of the system."""
    reason = (error.strerror or str(error)).lower()
    return GrowError(Diagnostic("G502", f"`{place}` cannot be written: {reason}"))


@contextlib.contextmanager
def draft_folder(target: Path, key: str = "", stays: bool = False) -> Iterator[Path]:
    """In this context, there is a folder beside the target for drafts; it is removed afterwards in any case.

    First, folders of killed runs beside the target are recovered; one with the same key is continued. stays:
    keep the folder for a later run if this one fails. Raises GrowError: G501 if another run makes the same
    target, G502 if the system refuses.
    """
    try:
        with contextlib.ExitStack() as cleaning:
            with alone(target.parent), uninterrupted():
                real = os.path.realpath(target)
                existing = _taken_over(target.parent, real, key) if key else None
                cleaned = _settled(target.parent, BESIDE)
                _require_free(target, cleaned)
                folder, handle = existing or _made(BESIDE, target.parent, real)
                cleaning.callback(_remover(folder, handle))
                (folder / DRAFTS).mkdir(exist_ok=True)
                if key:
                    (folder / NOTES).mkdir(exist_ok=True)
                    (folder / KEY).write_text(key)
            try:
                yield folder / DRAFTS
            except BaseException:
                if stays:
                    cleaning.pop_all()
                    _OURS.discard(folder)
                    os.close(handle)
                raise
    except OSError as error:
        raise refused(target, error) from error


def notes(drafts: Path) -> Path:
    """A folder beside the drafts of a workshop with a key; it exists as long as they do."""
    return drafts.parent / NOTES


def scratch() -> tuple[Path, Callable[[], None]]:
    """A folder for temporary files, and a function that removes it. Folders of killed runs are removed
    first.
    """
    with contextlib.ExitStack() as undoing:
        folder, remove = _scratch(undoing)
        undoing.pop_all()
    return folder, remove


def _scratch(cleaning: contextlib.ExitStack) -> tuple[Path, Callable[[], None]]:
    place = Path(tempfile.gettempdir())
    with alone(place), uninterrupted():
        _settled(place, SCRATCH)
        folder, handle = _made(SCRATCH, place, "")
        remove = _remover(folder, handle)
        cleaning.callback(remove)
    return folder, remove


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """In this context, there is a folder for temporary files."""
    with contextlib.ExitStack() as cleaning:
        folder, _ = _scratch(cleaning)
        yield folder


def remove_own_folders() -> None:
    """Remove the folders of this process, which is about to end without leaving their contexts."""
    for folder in _OURS:
        _removed(folder)


def clean(place: Path) -> Cleaned:
    """Recover what killed runs left in a folder, and in the system's folder for temporary files.

    If the file system has no locks, folders of a process that no longer runs on this host are removed, too.
    """
    with alone(place), uninterrupted():
        place_cleaned = _settled(place, BESIDE)
    with alone(common := Path(tempfile.gettempdir())), uninterrupted():
        temporary = _settled(common, SCRATCH)
    unsure = [*place_cleaned.unsure, *temporary.unsure]
    ended = [folder for folder in unsure if (owner := _owner(folder)) is not None and not _may_live(owner)]
    for folder in ended:
        _recovered(folder)
    removed = [*place_cleaned.removed, *temporary.removed, *ended]
    return Cleaned(removed, place_cleaned.busy, [folder for folder in unsure if folder not in ended])


def journal(moves: Sequence[tuple[Path, Path]], stale: Sequence[Path]) -> None:
    """Record the coming renames in each draft's workshop, the model's last."""
    draft, model = moves[-1]
    commit = str(model.parent.resolve() / model.name), draft.stat().st_ino
    for folder in dict.fromkeys(_shop(draft) for draft, _ in moves):
        mine = [(d, place, k) for k, (d, place) in enumerate(moves[:-1]) if _shop(d) == folder]
        rows = [(place.name, d.stat().st_ino, kept_aside(d, k).name) for d, place, k in mine]
        stale_names = [path.name for path in stale] if folder == _shop(draft) else []
        text = json.dumps(asdict(Renames(commit, rows, stale_names)))
        new = folder / f"{MOVES}.new"
        new.write_text(text)
        synced(new)
        new.replace(folder / MOVES)
        synced(folder)


def kept_aside(draft: Path, number: int) -> Path:
    """The path where a rename keeps the file that it replaces."""
    return _shop(draft) / f"{number}.before"


def _shop(draft: Path) -> Path:
    return draft.parent.parent


def synced(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """In this context, no other process works in the folder, if its file system has locks."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, wait=True)
        yield
    finally:
        os.close(handle)


# ---------------------------------------------------------------------------------------- folders


def _made(prefix: str, place: Path, target: str) -> tuple[Path, int]:
    """A new folder that this process owns, and the handle that locks it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    return folder, _own(folder, target)


def _own(folder: Path, target: str) -> int:
    """Mark a folder as this process's; return the handle that locks it."""
    new = folder / BORN
    handle = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
    _lock(handle)
    os.write(handle, json.dumps(asdict(Owner(os.getpid(), socket.gethostname(), target))).encode())
    new.replace(folder / OWNER)  # it is locked before others can see it
    _OURS.add(folder)
    return handle


def _taken_over(place: Path, target: str, key: str) -> tuple[Path, int] | None:
    """The folder of an ended run with this target and key that did not begin to commit; None if there
    is none.
    """
    for folder in _own_folders(place, BESIDE):
        owner = _owner(folder)
        with contextlib.suppress(OSError):
            if owner is None or owner.target != target or (folder / KEY).read_text() != key:
                continue
            handle = os.open(folder / OWNER, os.O_RDWR)
            try:
                free = _lock(handle)
                if free is None:
                    free = not _may_live(owner)
                if free and not (folder / MOVES).exists():
                    empty(folder / DRAFTS, lambda path: path.name == Path(target).name)
                    return folder, _own(folder, target)
            finally:
                os.close(handle)
    return None


def empty(folder: Path, stays: Callable[[Path], bool]) -> None:
    """Remove the contents of a folder, except those that stay."""
    for path in [child for child in folder.iterdir() if not stays(child)]:
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()


def _remover(folder: Path, handle: int) -> Callable[[], None]:
    """A function that removes a folder of this process."""

    def remove() -> None:
        with uninterrupted():
            _OURS.discard(folder)
            _removed(folder)
            os.close(handle)

    return remove


def _removed(folder: Path) -> None:
    """Remove a folder, and the file that names its owner last.

    A run that is killed meanwhile, or may not remove all files, leaves a folder that the next run recognises.
    """
    with contextlib.suppress(OSError):
        for path in [child for child in folder.iterdir() if child.name != OWNER]:
            with contextlib.suppress(OSError):
                _remove(path)
        if {child.name for child in folder.iterdir()} <= {OWNER}:
            shutil.rmtree(folder, ignore_errors=True)


def _settled(place: Path, prefix: str) -> Cleaned:
    """Recover all abandoned folders of one kind, and return them and the others.

    A process that was killed while it made a folder left it without an owner's name.
    """
    cleaned = Cleaned()
    for folder in _own_folders(place, prefix):
        try:
            owner, names = _owner(folder), {path.name for path in folder.iterdir()}
            if OWNER not in names and not names <= {BORN}:  # nothing shows that growc made it
                continue
            handle = os.open(folder / (OWNER if OWNER in names else BORN), os.O_RDWR | os.O_CREAT)
        except OSError:  # another process has removed it
            continue
        try:
            locked = _lock(handle)
            if locked:
                _recovered(folder)
                cleaned.removed.append(folder)
            elif locked is None:
                cleaned.unsure.append(folder)
            elif owner is not None:
                cleaned.busy[folder] = owner
        finally:
            os.close(handle)
    return cleaned


def _own_folders(place: Path, prefix: str) -> list[Path]:
    """Folders of a kind that belong to this user."""
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        mine = [entry for entry in entries if entry.name.startswith(prefix)]
        plain = [entry for entry in mine if entry.is_dir(follow_symlinks=False)]
        return sorted(Path(e.path) for e in plain if e.stat(follow_symlinks=False).st_uid == user)
    return []


def _owner(folder: Path) -> Owner | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Owner(**json.loads((folder / OWNER).read_text()))
    return None


def _require_free(target: Path, folders: Cleaned) -> None:
    for owner in (*folders.busy.values(), *filter(None, map(_owner, folders.unsure))):
        if owner.target == os.path.realpath(target) and owner.process != os.getpid() and _may_live(owner):
            where = "" if owner.host == socket.gethostname() else f" on {owner.host}"
            message = f"`{target}` is being made by process {owner.process}{where}"
            remedy = "wait for it, or write elsewhere with `-o OUT`"
            raise GrowError(Diagnostic("G501", message, help=remedy))


def _may_live(owner: Owner) -> bool:
    """Whether a process may still run, as far as this host can tell."""
    if owner.host != socket.gethostname():
        return True
    try:
        os.kill(owner.process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _recovered(folder: Path) -> None:
    """Undo the renames that a run began and did not commit, or finish what it committed; then remove its
    folder.

    Only the run's own files beside the folder are touched: names with the recorded inodes.
    """
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        recorded = Renames(**json.loads((folder / MOVES).read_text()))
        model, inode = recorded.model
        committed = _inode(Path(model)) == inode
        for name, number, before in [] if committed else recorded.moves:
            place, aside = folder.parent / Path(name).name, folder / Path(before).name
            if _inode(place) != number:
                continue
            if aside.exists():
                aside.replace(place)
            else:
                place.unlink()
        for name in recorded.stale if committed else ():
            (folder.parent / Path(name).name).unlink(missing_ok=True)
    _removed(folder)


def _inode(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return path.lstat().st_ino
    return None


def _lock(handle: int, *, wait: bool = False) -> bool | None:
    """Whether this process now has the lock of an open file; None if there are no locks."""
    try:
        import fcntl
    except ImportError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
