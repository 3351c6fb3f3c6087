"""The changes of a growth to inputs and outputs as JSON and back, for records of recipes that read files."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from growc.algebra.indexmap import IndexMap, Ints
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.json_data import Json, fields, items, text, texts, whole, wholes
from growc.passes.finish.interface import Ports

LARGEST = 1 << 26
"""The largest number of units of an axis that a record may have."""


def to_json(ports: Ports) -> dict[str, Json]:
    """Ports as plain data. Parts that did not change are left out."""
    outputs = [{"name": n, "axis": axis, **_map(state)} for (n, axis), state in ports.outputs.items()]
    return {
        "outputs": outputs,
        "states": {name: [past, sorted(axes)] for name, (past, axes) in ports.states.items()},
        "numbers": {name: _runs(old_numbers) for name, old_numbers in ports.numbers.items()},
        "renamed": dict(ports.renamed),
        "blends": [{"name": n, "axis": axis, "matrix": m.tolist()} for (n, axis), m in ports.blends.items()],
        "narrower": ports.narrower,
        "logits": sorted(ports.logits),
    }


def from_json(data: Json) -> Ports:
    """The ports that `to_json` stored. Raises GrowError (G310) where the data are damaged or foreign."""
    try:
        return _read(data)
    except Exception as error:  # anyone can write a record, so any error may arise
        raise GrowError(Diagnostic("G310", "the record in the model is damaged")) from error


def _read(data: Json) -> Ports:
    parts = fields(data)
    outputs, blends = map(fields, items(parts["outputs"])), map(fields, items(parts.get("blends", ())))
    states = {name: items(state) for name, state in fields(parts["states"]).items()}
    return Ports(
        {_place(one): _read_map(one) for one in outputs},
        {name: (text(past), frozenset(wholes(axes))) for name, (past, axes) in states.items()},
        {name: _read_runs(runs) for name, runs in fields(parts["numbers"]).items()},
        {name: None if new is None else text(new) for name, new in fields(parts["renamed"]).items()},
        bool(parts["narrower"]),
        frozenset(texts(parts["logits"])),
        {_place(one): np.array(one["matrix"]) for one in blends},
    )


def _place(record: Mapping[str, Json]) -> tuple[str, int]:
    return text(record["name"]), whole(record["axis"])


def _map(state: IndexMap) -> dict[str, Json]:
    entry: dict[str, Json] = {"source": state.source, "index": _runs(state.index)}
    if (state.weight != (state.index >= 0)).any():
        entry["weight"] = state.weight.tolist()
    if state.mean.any():
        entry["mean"] = state.mean.tolist()
    if state.junk.any():
        entry["junk"] = np.flatnonzero(state.junk).tolist()
    return entry


def _read_map(data: Mapping[str, Json]) -> IndexMap:
    index = _read_runs(data["index"])
    junk = np.zeros(len(index), dtype=bool)
    junk[np.asarray(data.get("junk", ()), dtype=np.int64)] = True
    weight, mean = (np.asarray(data[k], dtype=np.float64) if k in data else None for k in ("weight", "mean"))
    return IndexMap.of(whole(data["source"]), index, weight, mean, junk)


def _runs(numbers: Ints) -> list[list[int]]:
    """[first number, count] of each run of consecutive numbers."""
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 2) != 1)
    counts = np.diff(starts, append=len(numbers))
    return [[int(numbers[start]), int(count)] for start, count in zip(starts, counts, strict=True)]


def _read_runs(data: Json) -> Ints:
    runs = [wholes(run) for run in items(data)]
    if sum(count for _, count in runs) > LARGEST:
        raise ValueError("too many units")
    parts = [first + np.arange(count) for first, count in runs]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])
