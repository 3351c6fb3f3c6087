"""Train examples/models/tiny-vit.onnx: a small ViT that tells apart scikit-learn's digits (8 x 8).

    python examples/train_tiny_vit.py [--steps N] [--out DIR]

Every fifth image is held out. The script writes tiny-vit.onnx, one file with a dynamic batch, and
tiny-vit.json: how many of the images that were held out are told apart, and what it was made with.
`digits` needs no torch, and is what others judge the model by.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from train_tiny_gpt import schedule

SEED = 0
BATCH, RATE = 64, 2e-3
WIDTH, HEADS, LAYERS = 48, 6, 4


def digits(validation: bool) -> tuple[np.ndarray, np.ndarray]:
    """Images as float32 [N, 1, 8, 8] from 0 to 1, and which digit each is."""
    from sklearn.datasets import load_digits

    found = load_digits()
    own = (np.arange(len(found.target)) % 5 == 4) == validation
    return (found.images[own, None] / 16).astype(np.float32), found.target[own].astype(np.int64)


def build():
    """ViT's architecture at toy size: 16 patches of 2 x 2 and a class token; images to logits."""
    import transformers

    class Digits(transformers.ViTForImageClassification):
        """Takes `pixel_values`, returns logits."""

        def forward(self, pixel_values):
            return super().forward(pixel_values).logits

    config = transformers.ViTConfig(
        image_size=8, patch_size=2, num_channels=1, num_labels=10, hidden_size=WIDTH,
        num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=4 * WIDTH,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return Digits(config)


def train(model, steps: int) -> None:
    """AdamW on images that are moved by a pixel at most, all drawn from SEED."""
    import torch
    import torch.nn.functional as F

    images, targets = map(torch.from_numpy, digits(validation=False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule(step, steps))
    rng = np.random.default_rng(SEED)
    for step in range(steps):
        rows = torch.from_numpy(rng.integers(0, len(targets), BATCH))
        moved = torch.roll(images[rows], tuple(rng.integers(-1, 2, 2).tolist()), (2, 3))
        loss = F.cross_entropy(model(moved), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 200 == 0 or step == steps - 1:
            print(f"step {step:5d}  loss {loss.item():.4f}", flush=True)


def export(model, path: Path) -> float:
    """Write the ONNX file; the largest relative difference to torch on the images that were held out."""
    import onnx
    import onnxruntime
    import torch

    torch.onnx.export(
        model, (torch.zeros(2, 1, 8, 8),), path, dynamo=True, opset_version=20, external_data=False,
        input_names=["pixel_values"], output_names=["logits"], dynamic_shapes={"pixel_values": {0: "batch"}},
        verbose=False,
    )  # fmt: skip
    proto = onnx.load(path)
    for item in (*proto.graph.node, *proto.graph.value_info):  # stack traces name files of this machine
        kept = [entry for entry in item.metadata_props if "stack_trace" not in entry.key]
        del item.metadata_props[:]
        item.metadata_props.extend(kept)
    onnx.save(proto, path)
    images, _ = digits(validation=True)
    (logits,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        None, {"pixel_values": images}
    )
    with torch.no_grad():
        expected = model(torch.from_numpy(images)).numpy()
    return float(np.abs(logits - expected).max() / np.abs(expected).max())


def main() -> None:
    """Train, judge, export, write the record."""
    import torch
    import transformers

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "models")
    args = parser.parse_args()
    torch.manual_seed(SEED)
    model, start = build(), time.perf_counter()
    train(model, args.steps)
    model.eval()
    images, targets = digits(validation=True)
    with torch.no_grad():
        right = model(torch.from_numpy(images)).argmax(-1).numpy() == targets
    record = {
        "validation accuracy": round(float(right.mean()), 4),
        "onnxruntime against torch": export(model, args.out / "tiny-vit.onnx"),
        "parameters": sum(p.numel() for p in model.parameters()),
        "training images": len(digits(validation=False)[1]),
        "validation images": len(targets),
        "steps": args.steps,
        "images per step": BATCH,
        "rate": RATE,
        "seed": SEED,
        "seconds": round(time.perf_counter() - start),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    (args.out / "tiny-vit.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
