"""The cases of `make cluster`: several processes on checkpoints of a size, killed ones, trainings, and plans.

Each case asserts what it is about, and is written down with what was measured.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from full_runs import Record, anonymous, heed_interrupts

HERE = Path(__file__).parent

LLAMA = {"hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 12, "num_attention_heads": 12}
MIXTURE = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8}
SIZES = {
    "Llama": {**LLAMA, "vocab_size": 32000},
    "Mixtral": {**MIXTURE, "vocab_size": 8000, "num_local_experts": 8, "num_key_value_heads": 4},
}
GROWN = [
    "-e",
    "widen ffn to 3 * ffn / 2 with uniform copy",
    "-e",
    "stack layers to {layers} by last with zero outputs",
]
TRAINED = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
TRAINED |= {"model_type": "llama", "vocab_size": 120, "max_position_embeddings": 64, "num_key_value_heads": 2}
WIDER = """widen hidden to 2 * hidden with neighbor copy
widen heads to 8 with neighbor copy
widen ffn to 2 * ffn with neighbor copy
stack layers to 5 by last with zero outputs
"""
TRILLION = {"hidden_size": 8192, "moe_intermediate_size": 8192, "num_experts": 2560, "num_hidden_layers": 2}
TRILLION |= {"num_attention_heads": 64, "num_key_value_heads": 8}


TRIM = 'measure importance on "data.npz"\nsubclone ffn to ffn / 2 by importance\n'
BY_GRADIENTS = 'subclone ffn to ffn / 2 by taylor on "data.npz"\n'
LIBRARIES = 550_000_000
"""Bytes of memory that torch, transformers and onnxruntime take, and a plan."""

NODES = """SLURM_JOB_NUM_NODES=2 SLURM_JOB_ID=7 PROCESSES=1
scontrol() { echo localhost; }
srun() { "$@" & "$@" & wait -n && wait -n; }
"""
"""Variables and commands that Slurm gives a job: two agents on one machine."""


def started(command: list[Any], folder: Path, processes: int = 0, restarts: int = 0) -> subprocess.Popen[str]:
    """A command of growc, or a script, in a folder: alone, or by so many processes."""
    begin = [sys.executable]
    if processes:
        begin += [
            "-m",
            "torch.distributed.run",
            f"--nproc-per-node={processes}",
            f"--max-restarts={restarts}",
        ]
        begin += ["--standalone"] if not restarts else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        [*begin, *map(str, command)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: subprocess.Popen[str], *, well: bool = True) -> str:
    """Wait for a process to end as it should; return its output."""
    output, _ = process.communicate(timeout=1800)
    assert (process.returncode == 0) == well, output[-3000:]
    return output


def below(process: subprocess.Popen[str]) -> Iterator[tuple[int, int]]:
    """The processes that growc runs in below one, with the rank of each (0, where there is one alone)."""
    for place in Path("/proc").iterdir():
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
            own = dict(w.split(b"=", 1) for w in (place / "environ").read_bytes().split(b"\0") if b"=" in w)
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if (
            b"growc" in words
            and process.pid in (parent, int(place.name))
            and b"torch.distributed.run" not in words
        ):
            yield int(place.name), int(own.get(b"RANK", b"0"))


def watched(process: subprocess.Popen[str]) -> list[int]:
    """The most memory that each rank had, until the process ends."""
    most: dict[int, int] = {}
    while process.poll() is None:
        for pid, rank in below(process):
            most[rank] = max(most.get(rank, 0), anonymous(pid))
        time.sleep(0.05)
    return [most[rank] for rank in sorted(most)]


def digests(folder: Path) -> dict[str, str]:
    """Of every file."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def model(kind: str, folder: Path) -> Path:
    """A checkpoint directory in bfloat16, in several files."""
    import torch
    import transformers

    path = folder / kind
    if not path.exists():
        torch.manual_seed(0)
        config = getattr(transformers, f"{kind}Config")(**SIZES[kind], dtype="bfloat16")
        network = getattr(transformers, f"{kind}ForCausalLM")(config).to(torch.bfloat16)
        network.save_pretrained(path, max_shard_size="300MB")
    return path


def grown(kind: str, out: Path, *options: Any) -> list[Any]:
    """The command that grows one of them."""
    layers = 3 * SIZES[kind]["num_hidden_layers"] // 2
    recipe = [word.format(layers=layers) for word in GROWN]
    return [
        "-m",
        "growc",
        "apply",
        *recipe,
        kind,
        "-o",
        out,
        "--no-verify",
        "--shard-size",
        "200MB",
        *options,
    ]


def same_bytes(kind: str, folder: Path) -> dict[str, Any]:
    """One process, and one, two and three ranks."""
    source = model(kind, folder)
    record: dict[str, Any] = {"bytes": sum(p.stat().st_size for p in source.glob("*.safetensors"))}
    wanted = None
    for processes in (0, 1, 2, 3):
        out = folder / f"{kind}.by{processes}"
        start = time.perf_counter()
        process = started(grown(kind, out), folder, processes)
        memory = watched(process)
        ended(process)
        seconds = round(time.perf_counter() - start, 1)
        record[f"{processes} ranks" if processes else "alone"] = {"seconds": seconds, "memory": memory}
        wanted = wanted or digests(out)
        assert digests(out) == wanted, processes
        record["written"] = sum(p.stat().st_size for p in out.glob("*.safetensors"))
        if processes:
            shutil.rmtree(out)
    return record


def killed(folder: Path, restarts: int, rank: int) -> dict[str, Any]:
    """A rank is killed once some of the weights are on the disk."""
    model("Llama", folder)
    out = folder / f"killed{restarts}{rank}"
    process = started(grown("Llama", out), folder, 2, restarts)
    while not any(note.stat().st_size for note in folder.glob(".growc-*/notes/*.jsonl")):
        assert process.poll() is None, ended(process)
        time.sleep(0.01)
    os.kill(next(pid for pid, own in below(process) if own == rank), signal.SIGKILL)
    ended(process, well=restarts > 0)
    left = [p.name for p in folder.glob(".growc-*")]
    if restarts:
        assert digests(out) == digests(folder / "Llama.by0")
        assert not left
        shutil.rmtree(out)
        return {"identical": True}
    assert not out.exists()
    ended(started(grown("Mixtral", folder / "next"), folder))
    assert not [*folder.glob(".growc-*")]
    shutil.rmtree(folder / "next")
    return {"target": "untouched", "left": len(left), "left after the next run": 0}


def trained(folder: Path) -> dict[str, Any]:
    """Trained under FSDP2 by two ranks, grown, trained on by three."""
    home = _home(folder / "home").parent
    (folder / "wider.grow").write_text(WIDER)
    script = [HERE / "train.py"]
    before = json.loads(
        ended(started([*script, home / "config.json", "-", "saved", 20], folder, 2)).split("\n")[-2]
    )
    given = ["-m", "growc", "apply", "wider.grow", "saved", "--model", home, "-o", "grown"]
    assert "Certificate: exact" in ended(started(given, folder))
    after = json.loads(
        ended(started([*script, "grown/config.json", "grown", "-", 20], folder, 3)).split("\n")[-2]
    )
    seam = abs(after["first"] - before["last"])
    assert seam <= 1e-4, (before, after)
    return {"before": before, "after": after, "seam": seam}


def measured(folder: Path) -> dict[str, Any]:
    """Importance by one process and by two."""
    model("Mixtral", folder)
    words = np.random.default_rng(0).integers(0, 8000, (65, 32))
    np.savez(folder / "data.npz", input_ids=words)
    scores, seconds = [], []
    for workers in (1, 2):
        given = [
            "-m",
            "growc",
            "measure",
            "Mixtral",
            "--inputs",
            "data.npz",
            "--json",
            "-o",
            f"{workers}.npz",
        ]
        start = time.perf_counter()
        text = ended(started([*given, "--workers", workers], folder))
        seconds.append(round(time.perf_counter() - start, 1))
        scores.append(json.loads(text[text.index("{") :])["scores"])
    one, two = scores
    apart = max(float(np.max(np.abs(np.subtract(two[n], s)) / np.abs(s))) for n, s in one.items())
    assert apart <= 1e-5
    assert all(np.array_equal(np.argsort(two[n]), np.argsort(s)) for n, s in one.items())
    return {"largest difference": apart, "axes": len(one), "seconds": seconds}


def larger_than_memory(folder: Path) -> dict[str, Any]:
    """Importance and gradients of a model whose weights take 2.2 GB in single precision stay in a file."""
    source = model("Llama", folder)
    held = 2 * sum(p.stat().st_size for p in source.glob("*.safetensors"))
    words = np.random.default_rng(0).integers(0, SIZES["Llama"]["vocab_size"], (4, 32))
    np.savez(folder / "data.npz", input_ids=words)
    largest = SIZES["Llama"]["vocab_size"] * SIZES["Llama"]["hidden_size"]
    per_element = {"importance": 4, "taylor": 16}  # a gradient, its product in float64, and room to spare
    record: dict[str, Any] = {"bytes in single precision": held}
    for kind, recipe in {"importance": TRIM, "taylor": BY_GRADIENTS}.items():
        wanted = None
        for processes in (0, 2):
            command = ["-m", "growc", "apply", "-e", recipe, "Llama", "-o", "trimmed", "--no-verify"]
            start = time.perf_counter()
            process = started(command, folder, processes)
            memory = watched(process)
            ended(process)
            seconds = round(time.perf_counter() - start, 1)
            record[f"{kind}, {processes or 1}"] = {"seconds": seconds, "memory": memory}
            wanted = wanted or digests(folder / "trimmed")
            assert digests(folder / "trimmed") == wanted, (kind, processes)
            assert max(memory) < LIBRARIES + largest * per_element[kind], (kind, memory)
            (folder / f"Llama.{kind}.npz").unlink()
            shutil.rmtree(folder / "trimmed")
    return record


def planned(folder: Path) -> dict[str, Any]:
    """A mixture of a trillion weights from its config, shared out among 64 processes."""
    import transformers

    config = transformers.Qwen3MoeConfig(**TRILLION)
    config.architectures, config.dtype = ["Qwen3MoeForCausalLM"], "bfloat16"
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    recipe = ["-e", "widen ffn to 2 * ffn with uniform copy"]
    start = time.perf_counter()
    process = started(["-m", "growc", "plan", *recipe, "config.json", "--ranks", 64, "--json"], folder)
    text, _ = process.communicate()
    usage = json.loads(text[text.index("{") :])
    seconds = time.perf_counter() - start
    assert seconds <= 10, seconds
    return {
        "seconds": round(seconds, 1),
        "parameters": usage["parameters"],
        "ranks": usage["ranks"]["seconds"],
    }


def documented(folder: Path) -> dict[str, Any]:
    """Every command of docs/cluster.md, by two processes; jobs by two agents, one for each node."""
    text = (HERE.parents[1] / "docs/cluster.md").read_text()
    place = folder / "documented"
    place.mkdir()
    ended(started([*[HERE / "train.py"], _home(place / "model"), "-", place / "saved", 20], folder, 2))
    (place / "wider.grow").write_text("widen ffn to 2 * ffn with neighbor copy\n")
    (place / "trim.grow").write_text(TRIM)
    given = [
        "-m",
        "growc",
        "apply",
        "-e",
        "",
        "saved",
        "--model",
        "model",
        "-o",
        "plain",
        "--weights",
        "safetensors",
    ]
    ended(started(given, place))
    shutil.copytree(place / "plain", place / "model", dirs_exist_ok=True)
    shutil.rmtree(place / "plain")
    np.savez(place / "data.npz", input_ids=np.random.default_rng(0).integers(0, 120, (17, 16)))
    commands = re.findall(r"^\$ (.*)$", text, re.M)
    for command in commands:
        shell(command, place)
    [script] = re.findall(r"^```bash\n(.*?)^```$", text, re.S | re.M)
    [job] = re.findall(r"^```yaml\n(.*?)^```$", text, re.S | re.M)
    shell(f"{NODES}\n{script}", place)
    [container] = list(yaml.safe_load_all(job))[1]["spec"]["template"]["spec"]["containers"]
    pod = " ".join([*container["command"], *container["args"]]).replace("growc-0.growc", "localhost")
    shell(f"{pod} & {pod} & wait -n && wait -n", place)
    contents = [
        digests(place / name)["model.safetensors"]
        for name in ("wider", "wider.two", "wider.slurm", "wider.pods")
    ]
    assert len(set(contents)) == 1
    return {"commands": len(commands) + 2}


def _home(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **TRAINED}))
    return path


def shell(command: str, folder: Path) -> None:
    """A command as somebody types it who has an environment with growc."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=own, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "same bytes, bfloat16 in several files": lambda folder: same_bytes("Llama", folder),
    "same bytes, a mixture of experts": lambda folder: same_bytes("Mixtral", folder),
    "rank 1 killed, one restart": lambda folder: killed(folder, 1, 1),
    "rank 0 killed, one restart": lambda folder: killed(folder, 1, 0),
    "rank 1 killed, no restart": lambda folder: killed(folder, 0, 1),
    "FSDP2 on two ranks, grown, on three": trained,
    "importance by two": measured,
    "weights that stay in their file": larger_than_memory,
    "a plan of a trillion weights": planned,
    "the commands of docs/cluster.md": documented,
}


def main() -> None:
    """Run all cases, or those that are named."""
    heed_interrupts()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []])
    parser.add_argument("--json", type=Path, default=Path("build/cluster.json"))
    options = parser.parse_args()
    record = Record(options.json)
    with tempfile.TemporaryDirectory(dir="build") as folder:
        for name in options.cases or CASES:
            start = time.perf_counter()
            results = CASES[name](Path(folder).resolve())
            record.add(name, {"took": round(time.perf_counter() - start, 1), **results})
            print(f"{name}: {json.dumps(results)}", flush=True)


if __name__ == "__main__":
    main()
