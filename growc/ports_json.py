"""What a growth does to inputs and outputs, as JSON and back: for records of recipes that read files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from growc.diagnostic import Diagnostic, GrowError
from growc.indexmap import IndexMap, Ints
from growc.ports import Ports

LARGEST = 1 << 26
"""No axis has more units."""


def to_json(ports: Ports) -> dict[str, Any]:
    """Plain data. What is as it was is left out."""
    outputs = [{"name": n, "axis": axis} | _map(state) for (n, axis), state in ports.outputs.items()]
    return {
        "outputs": outputs,
        "states": {name: [past, sorted(axes)] for name, (past, axes) in ports.states.items()},
        "numbers": {name: _runs(kept) for name, kept in ports.numbers.items()},
        "renamed": dict(ports.renamed),
        "blends": [{"name": n, "axis": axis, "matrix": m.tolist()} for (n, axis), m in ports.blends.items()],
        "narrower": ports.narrower,
        "logits": sorted(ports.logits),
    }


def from_json(data: Mapping[str, Any]) -> Ports:
    """What `to_json` stored. Raises GrowError (G310) where it is no such thing: anyone can write a record."""
    try:
        return _read(data)
    except Exception as error:  # whatever other JSON leads to
        raise GrowError(Diagnostic("G310", "the record in the model is damaged")) from error


def _read(data: Mapping[str, Any]) -> Ports:
    return Ports(
        {(one["name"], one["axis"]): _read_map(one) for one in data["outputs"]},
        {name: (past, frozenset(axes)) for name, (past, axes) in data["states"].items()},
        {name: _read_runs(runs) for name, runs in data["numbers"].items()},
        data["renamed"],
        data["narrower"],
        frozenset(data["logits"]),
        {(one["name"], one["axis"]): np.array(one["matrix"]) for one in data.get("blends", ())},
    )


def _map(state: IndexMap) -> dict[str, Any]:
    found: dict[str, Any] = {"source": state.source, "index": _runs(state.index)}
    if (state.weight != (state.index >= 0)).any():
        found["weight"] = state.weight.tolist()
    if state.mean.any():
        found["mean"] = state.mean.tolist()
    if state.junk.any():
        found["junk"] = np.flatnonzero(state.junk).tolist()
    return found


def _read_map(data: Mapping[str, Any]) -> IndexMap:
    index = _read_runs(data["index"])
    junk = np.zeros(len(index), dtype=bool)
    junk[data.get("junk", [])] = True
    return IndexMap.of(data["source"], index, data.get("weight"), data.get("mean"), junk)


def _runs(numbers: Ints) -> list[list[int]]:
    """[first, how many] of each stretch that counts up by one."""
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 2) != 1)
    counts = np.diff(starts, append=len(numbers))
    return [[int(numbers[start]), int(count)] for start, count in zip(starts, counts, strict=True)]


def _read_runs(runs: list[list[int]]) -> Ints:
    if sum(count for _, count in runs) > LARGEST:
        raise ValueError("too many units")
    parts = [first + np.arange(count) for first, count in runs]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])
