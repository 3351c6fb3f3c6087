"""Train examples/models/tiny-gpt.onnx: a byte-level GPT on the source of Python's standard library.

    python examples/train_tiny_gpt.py [--steps N] [--width W] [--layers L] [--seed S] [--name NAME]
        [--out DIR]

Every tenth file (by a hash of its name) is held out. The script writes tiny-gpt.onnx, one file with a dynamic
batch and sequence, and tiny-gpt.json: its validation loss in nats per byte beside that of a bigram model
counted on the same training files, and what both were made with.

`validation_windows` needs numpy alone and is meant to be imported by benchmarks.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

CONTEXT = 128
WIDTH, HEADS, LAYERS = 96, 6, 4
SEED = 0
SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


def library_files() -> list[Path]:
    """The standard library's modules, sorted by name, without its tests."""
    root = Path(os.__file__).parent
    names = sorted(path.relative_to(root) for path in root.rglob("*.py"))
    return [root / name for name in names if not SKIPPED & set(name.parts)]


def held_out(path: Path) -> bool:
    """Whether the file belongs to the validation part: one in ten, by its name alone."""
    name = path.relative_to(Path(os.__file__).parent).as_posix()
    return hashlib.sha256(name.encode()).digest()[0] % 10 == 0


def corpus(validation: bool) -> np.ndarray:
    """All bytes of one part, end to end, with a zero byte after each file."""
    parts = [path.read_bytes() + b"\0" for path in library_files() if held_out(path) == validation]
    return np.frombuffer(b"".join(parts), dtype=np.uint8)


def validation_windows(batch: int = 32, count: int = 16, length: int = CONTEXT + 1) -> Iterator[np.ndarray]:
    """`count` batches of int64 byte windows, evenly spread over the held-out files: the same on every call.

    The model reads all but the last byte of a window and is judged on all but the first.
    """
    data = corpus(validation=True).astype(np.int64)
    starts = np.linspace(0, len(data) - length, batch * count).astype(np.int64)
    for rows in starts.reshape(count, batch):
        yield data[rows[:, None] + np.arange(length)]


def bigram_loss(train: np.ndarray) -> float:
    """Nats per byte of an add-one smoothed bigram model on the validation windows."""
    counts = np.ones((256, 256))
    np.add.at(counts, (train[:-1], train[1:]), 1)
    log_p = np.log(counts / counts.sum(1, keepdims=True))
    return float(np.mean([-log_p[x[:, :-1], x[:, 1:]].mean() for x in validation_windows()]))


def build(width: int = WIDTH, layers: int = LAYERS):
    """GPT-2's architecture at toy size; its forward takes bytes and returns logits."""
    import transformers

    class ByteGPT(transformers.GPT2LMHeadModel):
        """Takes `input_ids`, returns logits."""

        def forward(self, input_ids):
            return super().forward(input_ids=input_ids, use_cache=False).logits

    config = transformers.GPT2Config(
        vocab_size=256, n_positions=CONTEXT, n_embd=width, n_head=HEADS * width // WIDTH, n_layer=layers,
        bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
    )  # fmt: skip
    return ByteGPT(config)


def loss_of(model, window):
    """Mean cross-entropy of every next byte."""
    import torch.nn.functional as F

    logits = model(window[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())


def validation_loss(model) -> float:
    """Nats per byte on the validation windows."""
    import torch

    with torch.no_grad():
        return float(np.mean([loss_of(model, torch.from_numpy(x)).item() for x in validation_windows()]))


def schedule(step: int, steps: int, warmup: int = 100) -> float:
    """A linear warm-up, then a cosine down to a hundredth."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def train(model, data: np.ndarray, steps: int, batch: int, rate: float, seed: int = SEED) -> None:
    """AdamW on random windows, all drawn from `seed`."""
    import torch

    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule(step, steps))
    rng, start = np.random.default_rng(seed), time.perf_counter()
    for step in range(steps):
        rows = rng.integers(0, len(data) - CONTEXT - 1, batch)
        window = torch.from_numpy(data[rows[:, None] + np.arange(CONTEXT + 1)].astype(np.int64))
        loss = loss_of(model, window)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step:5d}  loss {loss.item():.4f}  {time.perf_counter() - start:6.0f} s", flush=True)


def export(model, path: Path) -> float:
    """Write the ONNX file; the largest relative difference to torch at three sizes."""
    import onnx
    import onnxruntime
    import torch

    example = torch.zeros(2, 16, dtype=torch.long)
    sizes = {"input_ids": {0: "batch", 1: "seq"}}
    torch.onnx.export(
        model, (example,), path, dynamo=True, opset_version=20, external_data=False, verbose=False,
        input_names=["input_ids"], output_names=["logits"], dynamic_shapes=sizes,
    )  # fmt: skip
    proto = onnx.load(path)
    for item in (*proto.graph.node, *proto.graph.value_info):  # stack traces name files of this machine
        kept = [entry for entry in item.metadata_props if "stack_trace" not in entry.key]
        del item.metadata_props[:]
        item.metadata_props.extend(kept)
    onnx.save(proto, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    difference = 0.0
    for batch, length in ((1, 128), (2, 16), (3, 77)):
        ids = next(validation_windows(batch, 1, length))
        with torch.no_grad():
            expected = model(torch.from_numpy(ids)).numpy()
        (logits,) = session.run(None, {"input_ids": ids})
        difference = max(difference, float(np.abs(logits - expected).max() / np.abs(expected).max()))
    return difference


def main() -> None:
    """Train, judge, export, write the record."""
    import onnx
    import torch
    import transformers

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--seed", type=int, default=SEED, help="of the weights and of what is read")
    parser.add_argument("--name", default="tiny-gpt")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "models")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    model, data, start = build(args.width, args.layers), corpus(validation=False), time.perf_counter()
    train(model, data, args.steps, args.batch, args.rate, args.seed)
    seconds = time.perf_counter() - start
    model.eval()
    args.out.mkdir(parents=True, exist_ok=True)
    record = {
        "validation nats per byte": round(validation_loss(model), 4),
        "bigram nats per byte": round(bigram_loss(data), 4),
        "onnxruntime against torch": export(model, args.out / f"{args.name}.onnx"),
        "parameters": sum(p.numel() for p in model.parameters()),
        "training bytes": len(data),
        "validation bytes": len(corpus(validation=True)),
        "steps": args.steps,
        "bytes per step": args.batch * CONTEXT,
        "rate": args.rate,
        "seed": args.seed,
        "seconds": round(seconds),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "onnx": onnx.__version__,
    }
    (args.out / f"{args.name}.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
