"""A LLaMA of 1.1 billion weights in bfloat16, by hand: ffn twice as wide, half as many layers more.

    python widen_bfloat16.py SOURCE.safetensors OUT.safetensors

Knows this model alone. Copies are gathered as 16-bit words, and halves computed in float32.
"""

import json
import os
import re
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

FFN, LAYERS, NEW = 5632, 22, 33
UNIT = np.arange(2 * FFN) % FFN
BLOCK = 1 << 19


def write(out, tensor, name, new):
    """One tensor of 16-bit words, grown; of a new layer what it adds is zero."""
    if new and re.search(r"(o_proj|down_proj)\.weight$", name):
        out.write(bytes(2 * tensor.size * (2 if "down_proj" in name else 1)))
    elif re.search(r"(gate|up)_proj\.weight$", name):
        for at in range(0, 2 * FFN, step := BLOCK // tensor.shape[1]):
            out.write(tensor[UNIT[at : at + step]].data)
    elif "down_proj" in name:
        for at in range(0, len(tensor), step := BLOCK // (2 * FFN)):
            half = tensor[at : at + step].view(ml_dtypes.bfloat16).astype("f") * np.float32(0.5)
            out.write(np.take(half.astype(ml_dtypes.bfloat16).view("u2"), UNIT, 1).data)
    else:
        out.write(tensor.data)


def main():
    """Grow the model."""
    path, target = sys.argv[1:]
    with Path(path).open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    stored = np.memmap(path, "u1", "r", 8 + length)
    with Path(target).open("wb", buffering=0) as out:
        out.write(bytes(8 + 2 * length))  # as long as a header
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            tensor = stored[begin:end].view("u2").reshape(entry["shape"])
            layer = re.search(r"layers\.(\d+)\.", name)
            write(out, tensor, name, False)
            if layer and int(layer[1]) >= LAYERS - (NEW - LAYERS):
                write(out, tensor, name, True)
        os.fsync(out)


main()
