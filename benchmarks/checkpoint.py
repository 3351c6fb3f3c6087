"""Growing a checkpoint of 1.1 billion parameters: peak memory, and time against `cp` of the result.

    python benchmarks/checkpoint.py [--folder DIR] [--layers N] [--keep]

A LLaMA-shaped checkpoint in bfloat16 with random weights is written tensor by tensor and grown to twice the
ffn and one and a half times the depth. Memory is the maximum resident set of the process that grows it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np

from growc.checkpoint.files.safetensors_file import Entry
from growc.checkpoint.files.shards import ShardWriter
from growc.plans.rows import stored

HIDDEN, FFN, VOCAB, HEADS, KV_HEADS = 2048, 5632, 32000, 32, 4

RECIPE = [
    *("-e", "widen ffn to 2 * ffn with uniform copy split random"),
    *("-e", "stack layers to 3 * layers / 2 by each with zero outputs"),
]


def config(layers: int) -> dict[str, object]:
    """The config of the source."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "vocab_size": VOCAB,
        "tie_word_embeddings": False,
    }


def shapes(layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors of the source."""
    kv = HIDDEN * KV_HEADS // HEADS
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for layer in range(layers):
        stem = f"model.layers.{layer}"
        yield f"{stem}.input_layernorm.weight", (HIDDEN,)
        yield f"{stem}.post_attention_layernorm.weight", (HIDDEN,)
        for name, size in (("q", HIDDEN), ("k", kv), ("v", kv), ("o", HIDDEN)):
            yield f"{stem}.self_attn.{name}_proj.weight", (size, HIDDEN)
        yield f"{stem}.mlp.gate_proj.weight", (FFN, HIDDEN)
        yield f"{stem}.mlp.up_proj.weight", (FFN, HIDDEN)
        yield f"{stem}.mlp.down_proj.weight", (HIDDEN, FFN)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def make(folder: Path, layers: int) -> int:
    """Write the source; gives its number of parameters."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config(layers)))
    entries = [Entry(name, "BF16", shape) for name, shape in shapes(layers)]
    random = np.random.default_rng(0)
    with ShardWriter(folder, entries, {"format": "pt"}, 1 << 30) as writer:
        for entry in entries:
            drawn = random.standard_normal(entry.shape, dtype=np.float32) * np.float32(0.02)
            writer.put(entry.name, stored(drawn.astype(ml_dtypes.bfloat16)))
    return sum(entry.elements for entry in entries)


def run(command: list[str]) -> tuple[float, int]:
    """Wall seconds of a process, and its peak memory in bytes."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command[0]} failed")
    return time.perf_counter() - start, usage.ru_maxrss * 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--shard-size", default="5GB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        source, out, copy = (Path(name) / part for part in ("source", "grown", "copy"))
        count = make(source, options.layers)
        arguments = [*RECIPE, str(source), "-o", str(out), "--no-verify", "--shard-size", options.shard_size]
        seconds, peak = run([sys.executable, "-m", "growc.cli.main", "apply", *arguments])
        copied, _ = run(["cp", "-r", str(out), str(copy)])
        size = sum(path.stat().st_size for path in out.iterdir())
        print(f"{count / 1e9:.2f}B parameters, {size / 1e9:.2f} GB written")
        ratio = seconds / copied
        print(f"peak memory {peak / 1e9:.2f} GB; {seconds:.0f} s, cp {copied:.0f} s: {ratio:.1f} times")


if __name__ == "__main__":
    main()
