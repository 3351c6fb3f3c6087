"""How fast growc plans and writes, as ratios: `growc plan` and `growc apply --no-verify` against `cp` of the
result.

    python benchmarks/speed.py MODEL.onnx [--runs N]

Every figure is a median over runs in turn (cp, plan, apply, cp, …), so that a drifting machine does not
favour one.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

RECIPE = [
    "-e",
    "widen heads to 4 * heads / 3 with uniform copy",
    "-e",
    "widen ffn to 4 * ffn / 3 with uniform copy",
]


def seconds(run: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def growc(*arguments: str) -> Callable[[], object]:
    """A run of the command line in a process of its own."""
    command = [sys.executable, "-m", "growc.cli.main", *arguments]
    return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def copy(files: list[Path], folder: Path) -> None:
    """`cp` of the files, through to the disk."""
    for path in files:
        shutil.copyfile(path, folder / f"{path.name}.copy")
    subprocess.run(["sync", str(folder)], check=True)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.model.parent) as name:
        folder = Path(name)
        out = folder / "grown.onnx"
        apply = growc("apply", *RECIPE, str(options.model), "-o", str(out), "--no-verify", "--force")
        apply()
        files = [p for p in folder.iterdir() if p.suffix in (".onnx", ".data")]
        tasks = {
            "cp of the result": lambda: copy(files, folder),
            "growc --help": growc("--help"),
            "growc plan": growc("plan", *RECIPE, str(options.model)),
            "growc apply --no-verify": apply,
        }
        found: dict[str, list[float]] = {task: [] for task in tasks}
        for _ in range(options.runs):
            for task, run in tasks.items():
                found[task].append(seconds(run))
        base = statistics.median(found["cp of the result"])
        size = sum(p.stat().st_size for p in files) / 1e6
        print(f"{options.model.name}: {size:.0f} MB written, {options.runs} runs")
        for task, times in found.items():
            middle = statistics.median(times)
            print(
                f"  {task:<26} {middle:7.2f} s   {middle / base:6.2f} x cp   "
                f"({min(times):.2f} to {max(times):.2f})"
            )


if __name__ == "__main__":
    main()
