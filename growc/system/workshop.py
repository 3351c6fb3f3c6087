"""Folders in which results are made, and how those that a killed run left are put in order.

A folder holds a file that names its process and its target, which the process keeps locked: a lock dies with
its process. Before the renames begin it holds a list of them, too, so that whoever finds the folder undoes
them, or ends what was committed.
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
"""How the names of folders beside a target begin."""
SCRATCH = "growc-run-"
"""How those in the system's folder for temporary files do."""
OWNER, MOVES = ".owner", ".moves"
BORN = f"{OWNER}.new"
DRAFTS = "drafts"
"""Where drafts have the names of what they become."""
KEY, NOTES = ".key", "notes"
"""Of what can be gone on with: of which run it is, and where it is written down what is done."""
_OURS: set[Path] = set()
"""The folders of this process."""


@dataclass(frozen=True)
class Owner:
    """Who makes what: a process of a host, and the target; empty for what is no result."""

    process: int
    host: str
    target: str


@dataclass(frozen=True)
class Moves:
    """Renames out of a folder, each by the name beside it, its inode and where what stood there is kept.

    model: the place of the model, whose rename is the commit, and the inode that it has then. stale: names of
    data that only the replaced model used.
    """

    model: tuple[str, int]
    moves: Sequence[tuple[str, int, str]] = ()
    stale: Sequence[str] = ()


@dataclass
class Cleaned:
    """What was removed, and what stays because somebody works there or because nobody can tell."""

    removed: list[Path] = field(default_factory=list)
    busy: dict[Path, Owner] = field(default_factory=dict)
    unsure: list[Path] = field(default_factory=list)


def refused(place: Path, error: OSError) -> GrowError:
    """What the system refused, as a diagnostic."""
    reason = (error.strerror or str(error)).lower()
    return GrowError(Diagnostic("G502", f"`{place}` cannot be written: {reason}"))


@contextlib.contextmanager
def workshop(target: Path, key: str = "", stays: bool = False) -> Iterator[Path]:
    """A folder beside the target for what is being made; it is gone afterwards, whatever happens.

    What killed runs left beside the target is put in order first; what one left that had the same key is gone
    on with. stays: whether the folder is left for such a run if this one fails. Raises GrowError (G501) where
    another run makes the same target.
    """
    try:
        with contextlib.ExitStack() as cleaning:
            with alone(target.parent), uninterrupted():
                real = os.path.realpath(target)
                made = _taken_over(target.parent, real, key) if key else None
                there = _settled(target.parent, BESIDE)
                _require_free(target, there)
                folder, handle = made or _made(BESIDE, target.parent, real)
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
    """Beside the drafts of a workshop with a key, a folder that lasts as long as they do."""
    return drafts.parent / NOTES


def scratch() -> tuple[Path, Callable[[], None]]:
    """A folder for temporary files, and what removes it. What killed runs left there is removed first."""
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
    """A folder for temporary files, for a while."""
    with contextlib.ExitStack() as cleaning:
        folder, _ = _scratch(cleaning)
        yield folder


def forsaken() -> None:
    """Remove the folders of this process, which is about to end without leaving what made them."""
    for folder in _OURS:
        _removed(folder)


def clean(place: Path) -> Cleaned:
    """Put in order what killed runs left in a folder, and in the system's for temporary files.

    Where the file system has no locks, a process that lives no more on this host has left its folders, too.
    """
    with alone(place), uninterrupted():
        found = _settled(place, BESIDE)
    with alone(common := Path(tempfile.gettempdir())), uninterrupted():
        temporary = _settled(common, SCRATCH)
    unsure = [*found.unsure, *temporary.unsure]
    ended = [one for one in unsure if (owner := _owner(one)) is not None and not _may_live(owner)]
    for folder in ended:
        _recovered(folder)
    removed = [*found.removed, *temporary.removed, *ended]
    return Cleaned(removed, found.busy, [one for one in unsure if one not in ended])


def journal(moves: Sequence[tuple[Path, Path]], stale: Sequence[Path]) -> None:
    """Write down in each draft's workshop which renames come, the model's last."""
    draft, model = moves[-1]
    commit = str(model.parent.resolve() / model.name), draft.stat().st_ino
    for folder in dict.fromkeys(_shop(draft) for draft, _ in moves):
        mine = [(d, place, k) for k, (d, place) in enumerate(moves[:-1]) if _shop(d) == folder]
        rows = [(place.name, d.stat().st_ino, kept_aside(d, k).name) for d, place, k in mine]
        gone = [path.name for path in stale] if folder == _shop(draft) else []
        text = json.dumps(asdict(Moves(commit, rows, gone)))
        new = folder / f"{MOVES}.new"
        new.write_text(text)
        synced(new)
        new.replace(folder / MOVES)
        synced(folder)


def kept_aside(draft: Path, number: int) -> Path:
    """Where a rename keeps what stood in its place."""
    return _shop(draft) / f"{number}.before"


def _shop(draft: Path) -> Path:
    return draft.parent.parent


def synced(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time in a folder, where its file system has locks; a lock dies with its process."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, wait=True)
        yield
    finally:
        os.close(handle)


# ---------------------------------------------------------------------------------------- folders


def _made(prefix: str, place: Path, target: str) -> tuple[Path, int]:
    """A new folder that this process owns, and what locks it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    return folder, _own(folder, target)


def _own(folder: Path, target: str) -> int:
    """Say in a folder that it is this process's; the lock of that."""
    new = folder / BORN
    handle = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
    _lock(handle)
    os.write(handle, json.dumps(asdict(Owner(os.getpid(), socket.gethostname(), target))).encode())
    new.replace(folder / OWNER)  # whoever sees it finds it locked
    _OURS.add(folder)
    return handle


def _taken_over(place: Path, target: str, key: str) -> tuple[Path, int] | None:
    """The folder of a run that has ended, did not begin to commit, and had this target and key."""
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
    """Remove what is in a folder, but for what stays."""
    for path in [one for one in folder.iterdir() if not stays(one)]:
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()


def _remover(folder: Path, handle: int) -> Callable[[], None]:
    """What removes a folder of this process."""

    def remove() -> None:
        with uninterrupted():
            _OURS.discard(folder)
            _removed(folder)
            os.close(handle)

    return remove


def _removed(folder: Path) -> None:
    """Remove a folder, what says whose it is last: who is killed meanwhile, or may not remove all of it,
    leaves what the next one finds.
    """
    with contextlib.suppress(OSError):
        for path in [one for one in folder.iterdir() if one.name != OWNER]:
            with contextlib.suppress(OSError):
                _remove(path)
        if {one.name for one in folder.iterdir()} <= {OWNER}:
            shutil.rmtree(folder, ignore_errors=True)


def _settled(place: Path, prefix: str) -> Cleaned:
    """Put in order what nobody holds any more of the folders of one kind; the others.

    A process that was killed while it made one left it without a name in it.
    """
    found = Cleaned()
    for folder in _own_folders(place, prefix):
        try:
            owner, names = _owner(folder), {path.name for path in folder.iterdir()}
            if OWNER not in names and not names <= {BORN}:  # nobody says that growc made it
                continue
            handle = os.open(folder / (OWNER if OWNER in names else BORN), os.O_RDWR | os.O_CREAT)
        except OSError:  # another process is done with it by now
            continue
        try:
            held = _lock(handle)
            if held:
                _recovered(folder)
                found.removed.append(folder)
            elif held is None:
                found.unsure.append(folder)
            elif owner is not None:
                found.busy[folder] = owner
        finally:
            os.close(handle)
    return found


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


def _require_free(target: Path, there: Cleaned) -> None:
    for owner in (*there.busy.values(), *filter(None, map(_owner, there.unsure))):
        if owner.target == os.path.realpath(target) and owner.process != os.getpid() and _may_live(owner):
            where = "" if owner.host == socket.gethostname() else f" on {owner.host}"
            message = f"`{target}` is being made by process {owner.process}{where}"
            remedy = "wait for it, or write elsewhere with `-o OUT`"
            raise GrowError(Diagnostic("G501", message, help=remedy))


def _may_live(owner: Owner) -> bool:
    """Whether a process is there yet, as far as this host can tell."""
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
    """Undo the renames that a run began and did not commit, or end what it committed; remove its folder.

    Only what the run itself put beside the folder is touched: names with the inodes that it wrote down.
    """
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        said = Moves(**json.loads((folder / MOVES).read_text()))
        model, inode = said.model
        committed = _inode(Path(model)) == inode
        for name, number, before in [] if committed else said.moves:
            place, aside = folder.parent / Path(name).name, folder / Path(before).name
            if _inode(place) != number:
                continue
            if aside.exists():
                aside.replace(place)
            else:
                place.unlink()
        for name in said.stale if committed else ():
            (folder.parent / Path(name).name).unlink(missing_ok=True)
    _removed(folder)


def _inode(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return path.lstat().st_ino
    return None


def _lock(handle: int, *, wait: bool = False) -> bool | None:
    """Whether this process has the lock of an open file by now; None where there are no locks."""
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
