"""Build the zoo: every architecture, exported in every flavour, with and without names.

    python tests/zoo/build.py [FOLDER] [--only NAME,…] [--flavour FLAVOUR,…] [--list]

Writes FOLDER/NAME.FLAVOUR.onnx, NAME.FLAVOUR.anon.onnx (no names but those of inputs and outputs),
NAME.inputs.npz (`in0.INPUT` and torch's `out0.OUTPUT`, three sizes) and zoo.json: the facts of every model,
and what could not be exported, with the reason. Files that exist are kept. FOLDER is build/zoo
by default.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import numpy as np
import torch
import transformers
from export import EXPORTED, FLAVOURS, OPTIMISED, NotExportableError, arrays, export, insensitive, optimise
from make_models import anonymise
from registry import build
from zoo import ZOO
from zoo import names as all_names

ROOT = Path(__file__).resolve().parents[2]


def record_of(folder: Path, name: str) -> dict[str, Any]:
    """The record of a model in zoo.json so far, with its facts."""
    path = folder / "zoo.json"
    entries = json.loads(path.read_text()) if path.exists() else {}
    return dict(entries.get(name, {})) | {"facts": ZOO[name].facts.as_json()}


def keep(folder: Path, name: str, record: dict[str, Any]) -> None:
    """Write a model's record into zoo.json, in the zoo's order."""
    path = folder / "zoo.json"
    entries = json.loads(path.read_text()) if path.exists() else {}
    entries[name] = record
    ordered = {known: entries[known] for known in ZOO if known in entries}
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(ordered, indent=1) + "\n")
    draft.replace(path)


def make(folder: Path, name: str, flavours: list[str]) -> dict[str, Any]:
    """Make what is missing of one model.

    `exports` says on which of the inputs a file agrees with torch, `dropped` why there is none.
    """
    record = record_of(folder, name)
    exports, dropped = record.setdefault("exports", {}), record.setdefault("dropped", {})
    inputs = folder / f"{name}.inputs.npz"
    if not inputs.exists() or "insensitive" not in record:
        built = build(name)
        np.savez(inputs, **arrays(built))
        record["insensitive"] = insensitive(built)
    for flavour in flavours:
        path = folder / f"{name}.{flavour}.onnx"
        if flavour in dropped or (path.exists() and flavour in exports):
            continue
        if flavour in OPTIMISED and not ZOO[name].optimiser:
            continue
        start = time.perf_counter()
        try:
            if flavour in EXPORTED:
                exports[flavour] = export(name, flavour, path)
            else:
                exports[flavour] = optimise(name, flavour, folder / f"{name}.torchscript.onnx", path)
            anonymise(path, path.with_suffix(".anon.onnx"))
        except NotExportableError as error:
            dropped[flavour] = str(error)
        seconds = time.perf_counter() - start
        print(
            f"{name:22} {flavour:14} {seconds:5.1f} s  {exports.get(flavour) or dropped[flavour]}", flush=True
        )
    return record


def main() -> None:
    """Build what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "zoo")
    parser.add_argument("--only", default="", help="models, with commas between them")
    parser.add_argument("--flavour", default=",".join(FLAVOURS), help="flavours, with commas between them")
    parser.add_argument("--list", action="store_true", help="what there is")
    options = parser.parse_args()
    if options.list:
        for name, blueprint in ZOO.items():
            print(f"{name:22} {', '.join(blueprint.facts.traits)}")
        return
    torch.backends.mha.set_fastpath_enabled(False)  # the fused encoder layer has no ONNX form
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.only.split(",") if options.only else all_names():
        keep(options.folder, name, make(options.folder, name, options.flavour.split(",")))


if __name__ == "__main__":
    main()
