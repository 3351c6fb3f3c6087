"""How fast growc is, beside `cp` of its result, scripts that do the same by hand, and other tools.

    make bench, or: python benchmarks/speed/run.py [CASE…] [--runs N] [--peers PYTHON] [--json FILE]

Contenders of a case take turns, so that a machine that drifts favours none; medians are compared. The
machine should do nothing else. `--peers` is the Python of an environment with mergekit and Torch-Pruning.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from models import made

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from full_runs import anonymous

HERE = Path(__file__).parent
GROWC = [sys.executable, "-m", "growc.cli.main"]
MEMORY_EVERY = 0.01
"""Seconds between looks at the memory of a process."""

WIDER = [
    "widen hidden to 1024 with average fill",
    "widen heads to 16 with neighbor copy",
    "widen ffn to 4096 with cyclic copy",
    "stack layers to 24 by whole with zero outputs",
]
DEEPER = ["arrange layers as 0..8, 4..12"]
LARGER = ["widen ffn to 2 * ffn with cyclic copy", "stack layers to 33 by last with zero outputs"]
QUARTER = [f"subclone {axis} to 3 * {axis} / 4 by magnitude" for axis in ("hidden", "ffn")]
HALF = ["subclone channels to channels / 2 by magnitude"]

MERGE = """
slices:
  - sources: [{{model: {source}, layer_range: [0, 8]}}]
  - sources: [{{model: {source}, layer_range: [4, 12]}}]
merge_method: passthrough
dtype: float32
"""

Commands = Mapping[str, list[str]]


def grow(recipe: Sequence[str], source: Path, out: Path, *options: str) -> list[str]:
    """A run of growc without verification."""
    statements = [word for text in recipe for word in ("-e", text)]
    return [*GROWC, "apply", *statements, str(source), "-o", str(out), "--no-verify", "--force", *options]


def script(python: str, name: str, *arguments: Path) -> list[str]:
    """A run of one of the scripts beside this one."""
    return [python, str(HERE / "peers" / name), *map(str, arguments)]


def wider(models: Path, out: Path, peers: str) -> Commands:
    """GPT-2 124M to 355M: wider in all axes, twice as deep."""
    directory, source = made(models, "gpt2"), made(models, "gpt2.onnx")
    return {
        "growc": grow(WIDER, source, out / "grown.onnx"),
        "numpy by hand": script(sys.executable, "widen_numpy.py", source, out / "numpy.data"),
        "torch by hand": script(sys.executable, "widen_torch.py", directory, out / "torch"),
    }


def deeper(models: Path, out: Path, peers: str) -> Commands:
    """GPT-2 124M with layers 0 to 7 and 4 to 11."""
    directory, source = made(models, "gpt2"), made(models, "gpt2.onnx")
    merge = out / "merge.yml"
    merge.write_text(MERGE.format(source=directory))
    mergekit = Path(peers).with_name("mergekit-yaml")
    return {
        "growc, ONNX": grow(DEEPER, source, out / "grown.onnx"),
        "growc, directory": grow(DEEPER, directory, out / "grown"),
        "sendfile by hand": script(sys.executable, "copy_layers.py", source, out / "sent.data"),
        "mergekit": [str(mergekit), str(merge), str(out / "merged"), "--no-copy-tokenizer"],
    }


def larger(models: Path, out: Path, peers: str) -> Commands:
    """LLaMA of 1.1 billion weights in bfloat16: ffn twice, half as many layers more."""
    source = made(models, "llama")
    return {
        "growc": grow(LARGER, source, out / "grown"),
        "growc --memory 256M": grow(LARGER, source, out / "grown", "--memory", "256M"),
        "growc plan": [*GROWC, "plan", *(w for text in LARGER for w in ("-e", text)), str(source)],
        "numpy by hand": script(
            sys.executable, "widen_bfloat16.py", source / "model.safetensors", out / "numpy.safetensors"
        ),
    }


def pruned(models: Path, out: Path, peers: str, name: str, recipe: Sequence[str]) -> Commands:
    """A model made smaller, from its file, its directory, and by Torch-Pruning."""
    source, file = made(models, name), made(models, f"{name}.onnx")
    return {
        "growc, ONNX": grow(recipe, file, out / "grown.onnx"),
        "growc, directory": grow(recipe, source, out / "grown"),
        "Torch-Pruning": script(peers, f"prune_{name}.py", source, out / "pruned.pt"),
    }


def quarter(models: Path, out: Path, peers: str) -> Commands:
    """BERT-base a quarter narrower, by magnitude."""
    return pruned(models, out, peers, "bert", QUARTER)


def half(models: Path, out: Path, peers: str) -> Commands:
    """ResNet-50 half as wide, by magnitude."""
    return pruned(models, out, peers, "resnet", HALF)


def verified(models: Path, out: Path, peers: str) -> Commands:
    """GPT-2 124M to 355M, with verification on growc's own inputs; and without."""
    source = made(models, "gpt2.onnx")
    command = grow(WIDER, source, out / "grown.onnx")
    checked = [word for word in grow(WIDER, source, out / "checked.onnx") if word != "--no-verify"]
    run(grow(WIDER, source, out / "kept.onnx"))
    sessions = script(sys.executable, "sessions.py", source, out / "kept.onnx")
    return {"growc --no-verify": command, "growc": checked, "both sessions": sessions}


def module(models: Path, out: Path, peers: str) -> Commands:
    """Swin-T as a module, ffn twice; torch exports it for evaluation and for training, rows left open."""
    tasks = {"growc": "grown", "both exports": "exported", "imports and model": "made"}
    return {label: [sys.executable, str(HERE / "swin_t.py"), task] for label, task in tasks.items()}


def starting(models: Path, out: Path, peers: str) -> Commands:
    """Starts of the program."""
    return {"growc --help": [*GROWC, "--help"], "python": [sys.executable, "-c", "pass"]}


CASES = {f.__name__: f for f in (wider, deeper, larger, quarter, half, verified, module, starting)}


def run(command: Sequence[str]) -> dict[str, float]:
    """Wall and processor seconds of a process, and the most memory that it held beside mapped files."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(os.cpu_count())}
    start, seen, ended = time.perf_counter(), [0], threading.Event()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, text=True
    )

    def watch() -> None:
        while not ended.wait(MEMORY_EVERY):
            seen.append(anonymous(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    ended.set()
    watcher.join()
    if status:
        raise SystemExit(
            f"{' '.join(command)} failed: {process.stderr.read()[-2000:] if process.stderr else ''}"
        )
    return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "memory": max(seen)}


def copies(out: Path, result: Path) -> dict[str, float]:
    """`cp` of the files of a result, through to the disk."""
    start = time.perf_counter()
    before = os.times()
    files = list(result.iterdir()) if result.is_dir() else list(result.parent.glob(f"{result.stem}*"))
    for path in files:
        if path.is_file():
            shutil.copyfile(path, out / "copied")
            with (out / "copied").open("rb") as file:
                os.fsync(file)
    after = os.times()
    cpu = after.user + after.system - before.user - before.system
    return {"wall": time.perf_counter() - start, "cpu": cpu, "memory": 0}


def measured(case: str, models: Path, peers: str, runs: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each contender of a case, with its medians and all of its runs.

    The files of one are removed before another begins: all of them together may be more than memory caches.
    """
    with tempfile.TemporaryDirectory(dir=models) as name:
        out = Path(name)
        commands = CASES[case](models, out, peers)
        runs_of: dict[str, list[dict[str, float]]] = {label: [] for label in commands}
        given = set(out.iterdir())
        copied = next((label for label, command in commands.items() if "-o" in command), None)
        for _ in range(runs):
            for label, command in commands.items():
                for path in set(out.iterdir()) - given:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                runs_of[label].append(run(command))
                if label == copied:
                    result = Path(command[command.index("-o") + 1])
                    runs_of.setdefault("cp of the result", []).append(copies(out, result))
    for label, times in runs_of.items():
        middle = {key: median(one[key] for one in times) for key in times[0]}
        yield label, middle | {"runs": [round(one["wall"], 3) for one in times]}


def machine() -> dict[str, Any]:
    """The machine that was measured on."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    revision = subprocess.check_output(["git", "describe", "--always", "--dirty=+"], text=True).strip()
    load = os.getloadavg()[0]
    return {
        "processor": model or platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load before": round(load, 2),
        "revision": revision,
        "date": str(date.today()),
    }


def main() -> None:
    """Measure what is asked for, and keep the rest of the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--peers", default=sys.executable)
    parser.add_argument("--models", type=Path, default=Path("build/bench"))
    parser.add_argument("--json", type=Path, default=Path("build/performance.json"))
    options = parser.parse_args()
    options.models.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = json.loads(options.json.read_text()) if options.json.exists() else {}
    for case in options.cases or CASES:
        described = machine()
        results[case] = {
            "machine": described,
            "contenders": dict(measured(case, options.models, options.peers, options.runs)),
        }
        options.json.write_text(json.dumps(results, indent=1) + "\n")
        for label, medians in results[case]["contenders"].items():
            print(
                f"{case:10} {label:22} {medians['wall']:8.2f} s  {medians['cpu']:8.2f} s of CPU"
                f"  {medians['memory'] / 1e6:7.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
