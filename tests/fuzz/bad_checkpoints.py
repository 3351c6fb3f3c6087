"""Checkpoint directories and `.pt2` programs that are no good: headers, configs, indexes, pickles, archives.

Every case copies a good one into an empty folder, spoils one file of it and gives the command that is to
refuse it.
"""

from __future__ import annotations

import json
import pickle
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bad_files import WRONG_JSON, WRONG_VALUES, Case
from mutations import in_bytes

PLAN = ["plan", "-e", "widen ffn to 64 with tail copy", "m"]
APPLY = ["apply", "-e", "widen ffn to 64 with tail copy", "m", "-o", "wide"]
PROGRAM = ["plan", "-e", "widen ffn to 64 with tail copy", "m.pt2"]


def save_good(folder: Path) -> None:
    """`plain`, `shards` and `pickled`: a small LLaMA's directory in three forms; `m.pt2`: a program."""
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=48)
    )
    model.save_pretrained(folder / "plain")
    model.save_pretrained(folder / "shards", max_shard_size="30KB")
    (folder / "pickled").mkdir()
    shutil.copy(folder / "plain/config.json", folder / "pickled")
    torch.save(model.state_dict(), folder / "pickled/pytorch_model.bin")
    layer = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5))
    torch.export.save(torch.export.export(layer, (torch.zeros(2, 6),)), folder / "m.pt2")


def spoilt(
    good: Path, form: str, name: str, change: Callable[[bytes], bytes], command: list[str], folder: Path
) -> list[str]:
    """A directory in one of its forms, of which one file is changed."""
    shutil.copytree(good / form, folder / "m")
    path = folder / "m" / name
    path.write_bytes(change(path.read_bytes() if path.is_file() else b""))
    return command


def program(good: Path, change: Callable[[bytes], bytes], folder: Path) -> list[str]:
    """A program of which the bytes are changed."""
    (folder / "m.pt2").write_bytes(change((good / "m.pt2").read_bytes()))
    return PROGRAM


def instead(data: bytes, _: bytes) -> bytes:
    """Something else."""
    return data


def damaged(seed: int, data: bytes) -> bytes:
    """Other bytes; every other time near the front, where headers are."""
    end = 600 if seed % 2 else len(data)
    return in_bytes(random.Random(seed), data[:end]) + data[end:]


# --------------------------------------------------------------------------------------- headers, indexes


def header(change: Callable[[dict[str, Any]], None], data: bytes) -> bytes:
    """A safetensors file of which the header is changed."""
    length = struct.unpack("<Q", data[:8])[0]
    entries = json.loads(data[8 : 8 + length])
    change(entries)
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def first(**said: Any) -> Callable[[dict[str, Any]], None]:
    """Say something else of the first tensor."""

    def change(found: dict[str, Any]) -> None:
        found[next(name for name in found if name != "__metadata__")].update(said)

    return change


def _overlapping(found: dict[str, Any]) -> None:
    a, b = [name for name in found if name != "__metadata__"][:2]
    found[a]["data_offsets"] = found[b]["data_offsets"]


HEADERS: dict[str, Callable[[dict[str, Any]], None]] = {
    **{f"dtype {d!r}": first(dtype=d) for d in ("F64", "F7", "", None, 3, "I4", "BOOL")},
    **{f"shape {s}": first(shape=s) for s in ([], [-1, 4], [2**40, 2**40], "x", [1.5], None, [3], {})},
    **{f"offsets {o}": first(data_offsets=o) for o in ([0, 0], [-8, 8], [8, 0], [0, 2**62], "x", [], None)},
    "overlap": _overlapping,
    "no tensors": lambda found: found.clear(),
    "metadata": lambda found: found.update(__metadata__={"a": 1}),
    "no metadata": lambda found: found.pop("__metadata__", None),
    "a number": lambda found: found.update(extra=3),
    "a name": lambda found: found.update(
        {"\x1b[31m\u202e": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}
    ),
}
LENGTHS = (0, 1, 7, 2**20, 2**62, 2**64 - 1)


def lengthened(length: int, data: bytes) -> bytes:
    """A safetensors file that says something else of its header's length."""
    return struct.pack("<Q", length) + data[8:]


def index(value: Any, data: bytes) -> bytes:
    """An index of shards of which one entry is something else."""
    entries = json.loads(data)
    entries["weight_map"][sorted(entries["weight_map"])[0]] = value
    return json.dumps(entries).encode()


def config(key: str, value: Any, data: bytes) -> bytes:
    """A config of which one entry is something else."""
    return json.dumps(json.loads(data) | {key: value}).encode()


KEYS = (
    "hidden_size",
    "num_attention_heads",
    "num_hidden_layers",
    "vocab_size",
    "model_type",
    "architectures",
)
KEYS += ("rope_parameters", "torch_dtype", "dtype", "auto_map", "quantization_config")


class _Call:
    """A pickle that would call something where it is loaded without care."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (print, ("called",))


PICKLES = {
    "empty": b"",
    "text": b"text",
    "a call": pickle.dumps(_Call()),
    "a number": pickle.dumps(3),
    "a list": pickle.dumps([1, 2]),
    "zip": b"PK\x03\x04" + b"\0" * 60,
    "deep": b"(" * 100_000 + b".",
}


def cases(good: Path, seeds: range) -> Iterator[Case]:
    """All cases; `good`: where `save_good` has saved; `seeds` of damaged files."""
    tensors = "model.safetensors"
    for name, change in HEADERS.items():
        yield f"header {name}", partial(spoilt, good, "plain", tensors, partial(header, change), APPLY)
    for n in LENGTHS:
        yield f"header length {n}", partial(spoilt, good, "plain", tensors, partial(lengthened, n), PLAN)
    for k, text in enumerate(WRONG_JSON):
        for form, name in (("plain", "config.json"), ("shards", f"{tensors}.index.json")):
            yield f"{name} {k}", partial(spoilt, good, form, name, partial(instead, text.encode()), PLAN)
    for k, value in enumerate((*WRONG_VALUES, "../m.safetensors", "/etc/passwd", "nosuch.safetensors")):
        change = partial(index, value)
        yield f"index {k}", partial(spoilt, good, "shards", f"{tensors}.index.json", change, PLAN)
    for key in KEYS:
        for k, value in enumerate(WRONG_VALUES):
            change = partial(config, key, value)
            yield f"config {key} {k}", partial(spoilt, good, "plain", "config.json", change, PLAN)
    for name, content in PICKLES.items():
        change = partial(instead, content)
        yield f"pickle {name}", partial(spoilt, good, "pickled", "pytorch_model.bin", change, APPLY)
        yield f"program {name}", partial(program, good, change)
    for seed in seeds:
        change = partial(damaged, seed)
        yield f"damaged tensors {seed}", partial(spoilt, good, "plain", tensors, change, APPLY)
        yield f"damaged pickle {seed}", partial(spoilt, good, "pickled", "pytorch_model.bin", change, APPLY)
        yield f"damaged program {seed}", partial(program, good, change)
