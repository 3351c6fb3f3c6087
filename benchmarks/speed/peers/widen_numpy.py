"""GPT-2 124M to 355M by hand: the gathers that growc's plan comes to, in numpy, by blocks of rows.

    python widen_numpy.py MODEL.onnx OUT.data

Knows this model alone: its names, its sizes, its layout. Writes the weights one behind the other.
"""

import os
import re
import sys
from pathlib import Path

import numpy as np
import onnx

BEFORE, AFTER, HEADS, NEW_HEADS, HEAD = 768, 1024, 12, 16, 64
FFN, NEW_FFN, LAYERS, NEW_LAYERS = 3072, 4096, 12, 24
COPIED = np.arange(BEFORE)
HEAD_OF = np.arange(NEW_HEADS) * HEADS // NEW_HEADS
Q = (HEAD_OF[:, None] * HEAD + np.arange(HEAD)).ravel()
QKV = np.concatenate([part * BEFORE + Q for part in range(3)])
UNIT = np.arange(NEW_FFN) % FFN
BLOCK = 1 << 18
RANDOM = np.random.default_rng(0)


def columns(rows, how):
    """The second axis of some rows."""
    if how == "stream":  # new units are the mean of all
        mean = np.repeat(rows.mean(1, keepdims=True), AFTER - BEFORE, 1)
        return np.concatenate([rows, mean], 1)
    return rows[:, QKV if how == "qkv" else UNIT]


def rows_of(how):
    """Which rows to read, and what they count."""
    if how == "stream":
        return COPIED, None
    index = Q if how == "heads" else UNIT
    return index, (1 / np.bincount(index)[index]).astype(np.float32)[:, None]


def write(out, tensor, name):
    """One tensor, grown."""
    kind = re.search(r"(attn.c_attn|attn.c_proj|mlp.c_fc|mlp.c_proj|ln_\w+|w.e)\.(weight|bias)$", name)
    part, end = (kind[1], kind[2]) if kind else ("", "")
    if tensor.ndim == 1:
        if part.startswith("ln") and end == "weight":
            tensor = np.concatenate(
                [tensor * np.float32((BEFORE / AFTER) ** 0.5), np.zeros(AFTER - BEFORE, "f")]
            )
        elif part in ("attn.c_attn", "mlp.c_fc"):
            tensor = tensor[QKV if part == "attn.c_attn" else UNIT]
        elif len(tensor) == BEFORE:
            tensor = columns(tensor[None], "stream")[0]
        out.write(tensor.tobytes())
        return
    reads = {"attn.c_attn": "stream", "mlp.c_fc": "stream", "attn.c_proj": "heads", "mlp.c_proj": "ffn"}.get(
        part
    )
    makes = {"attn.c_attn": "qkv", "mlp.c_fc": "ffn"}.get(part, "stream")
    index, share = (np.arange(len(tensor)), None) if reads is None else rows_of(reads)
    step = BLOCK // tensor.shape[1]
    for at in range(0, len(index), step):
        rows = tensor[index[at : at + step]]
        rows = rows if share is None else rows * share[at : at + step]
        out.write(np.ascontiguousarray(columns(rows, makes)).data)
    if reads == "stream":  # of new units, which are zero behind the norm, anything is read
        width = 3 * AFTER if makes == "qkv" else NEW_FFN
        drawn = RANDOM.standard_normal((AFTER - BEFORE, width), np.float32)
        out.write((drawn * tensor.std()).data)


def main():
    """Grow the model."""
    path, target = sys.argv[1:]
    graph = onnx.load(path, load_external_data=False).graph
    stored = np.memmap(Path(path).with_name(graph.initializer[0].external_data[0].value), "f", "r")
    with Path(target).open("wb", buffering=0) as out:
        for tensor in graph.initializer:
            if not tensor.external_data:
                continue
            location = {entry.key: entry.value for entry in tensor.external_data}
            at, size = int(location["offset"]) // 4, int(location["length"]) // 4
            array = stored[at : at + size].reshape(tensor.dims)
            times = NEW_LAYERS // LAYERS if ".h." in tensor.name else 1
            for copy in range(times):
                if copy and re.search(r"c_proj\.(weight|bias)$", tensor.name):  # a new layer adds nothing
                    out.write(
                        bytes(
                            4
                            * AFTER
                            * (1 if array.ndim == 1 else AFTER if "attn" in tensor.name else NEW_FFN)
                        )
                    )
                else:
                    write(out, array, tensor.name)
        os.fsync(out)


main()
