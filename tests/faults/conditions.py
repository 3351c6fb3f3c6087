"""Conditions under which a run leaves the old result or the new one, whole: signals at any time, limits of
the system, closed streams, a disk that is too small. Each gives what is wrong, or nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from harness import Bench

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
INTERRUPTED = 130
LIMITED = """
import os, resource, sys
name, size = sys.argv[1:3]
resource.setrlimit(getattr(resource, name), (int(size), int(size)))
os.execv(sys.argv[3], sys.argv[3:])
"""
LIMITS = {
    "RLIMIT_FSIZE": (0, 100, 1_000, 10_000, 50_000),
    "RLIMIT_NOFILE": (6, 8, 10, 14, 20, 40),
    "RLIMIT_AS": (150 << 20, 200 << 20, 250 << 20, 300 << 20, 400 << 20, 800 << 20),
}
"""By limit of a process: bytes of a file, open files, bytes of memory. With less, no Python starts."""
STREAMS = ("<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-")


PAGE = 4096
ROOM = tuple(PAGE * k for k in (1, 2, 4, 8, 12, 16, 24, 40, 80))
LARGE = 1 << 24
"""Bytes of a disk: what room it has beside what stands there, and one that has enough."""


def interrupted(bench: Bench, number: signal.Signals, seconds: float) -> str:
    """A signal after some time."""
    process = bench.start(1)
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
        status = process.wait()
    allowed = (0, -signal.SIGKILL) if number == signal.SIGKILL else (0, INTERRUPTED, -number)
    return bench.judged(f"{number.name} after {seconds:.3f} s", status, allowed)


def at_random(bench: Bench, count: int, seed: int, numbers: tuple[signal.Signals, ...]) -> Iterator[str]:
    """Signals at times at random within what a run takes."""
    start = time.monotonic()
    bench.apply(1)
    lasts = time.monotonic() - start
    bench.fresh()
    random = Random(seed)
    for k in range(count):
        yield interrupted(bench, numbers[k % len(numbers)], random.uniform(0, lasts))


def every(bench: Bench, kills: int) -> Iterator[tuple[str, str]]:
    """All of them: kind of condition, what is wrong."""
    yield from (("killed", wrong) for wrong in at_random(bench, kills, 1, SIGNALS[:1]))
    yield from (("interrupted", wrong) for wrong in at_random(bench, kills // 4, 2, SIGNALS[1:]))
    yield from (("small disk", wrong) for wrong in on_small_disks(bench))
    yield from (("closed streams", closed(bench, streams)) for streams in STREAMS)
    for name, sizes in LIMITS.items():
        yield from ((name, limited(bench, name, size)) for size in sizes)


def limited(bench: Bench, name: str, size: int) -> str:
    """A limit of the process."""
    process = bench.start(1, condition=(sys.executable, "-c", LIMITED, name, str(size)))
    # Without memory a library may abort instead of failing (glibc by 127), and OpenBLAS interrupts.
    allowed = (0, 3, 4, 127, INTERRUPTED, -signal.SIGABRT) if name == "RLIMIT_AS" else (0, 3, 4)
    return bench.judged(f"{name} {size}", process.wait(), allowed)


def closed(bench: Bench, streams: str) -> str:
    """Streams that are closed, as a shell closes them."""
    process = bench.start(1, condition=("sh", "-c", f'exec "$@" {streams}', "sh"))
    return bench.judged(f"closed {streams}", process.wait(), (0,))


def on_small_disks(bench: Bench) -> Iterator[str]:
    """A file system with room for all that stands there, and a little more."""
    mount = ("mount", "-t", "tmpfs", "tmpfs", str(bench.made))
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        return  # not everybody may mount
    try:
        bench.fresh()
        disk = os.statvfs(bench.made)
        taken = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        for more in ROOM:
            _resize(bench.made, taken + more)
            status = bench.start(1).wait()
            _resize(bench.made, LARGE)
            yield bench.judged(f"{more} bytes of room", status, (0, 4))
    finally:
        subprocess.run(("umount", str(bench.made)), check=True)


def _resize(place: Path, size: int) -> None:
    subprocess.run(("mount", "-o", f"remount,size={size}", str(place)), check=True)
