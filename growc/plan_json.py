"""A plan as JSON and back. Index maps that many weights share are stored once, in `maps`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from growc.plans import (
    Alike,
    AxisChange,
    AxisStep,
    Certificate,
    Gap,
    Layout,
    LeafStep,
    NextLayer,
    Noise,
    Normed,
    Plan,
    Summary,
    WeightPlan,
)


def to_json(plan: Plan) -> dict[str, Any]:
    """The plan as plain data. `axes` has a number where a name has one size, else a list."""
    pool = _Pool()
    weights = [_weight(w, pool) for w in plan.weights]
    gaps = [{"node": g.node, "op": g.op, "cause": g.cause, "help": g.help} for g in plan.certificate.gaps]
    return {
        "model": plan.model,
        "certificate": {"exact": plan.certificate.exact, "gaps": gaps},
        "parameters": {"before": plan.parameters[0], "after": plan.parameters[1]},
        "bytes": plan.bytes_to_write,
        "axes": {n: {"before": one(a.before), "after": one(a.after)} for n, a in plan.axes.items()},
        "statements": [asdict(s) for s in plan.summaries],
        "warnings": list(plan.warnings),
        "notes": list(plan.notes),
        "alike": [asdict(a) for a in plan.alike],
        "attributes": [list(a) for a in plan.attributes],
        "weights": weights,
        "maps": pool.maps,
    }


def one(sizes: tuple[int, ...]) -> int | list[int]:
    """A single size as a number, several as a list."""
    return sizes[0] if len(sizes) == 1 else list(sizes)


def from_json(data: dict[str, Any]) -> Plan:
    """The plan that `to_json` stored."""
    maps = data["maps"]
    return Plan(
        data["model"],
        Certificate(tuple(Gap(**g) for g in data["certificate"]["gaps"])),
        {n: AxisChange(_many(a["before"]), _many(a["after"])) for n, a in data["axes"].items()},
        tuple(_summary(**s) for s in data["statements"]),
        tuple(_read_weight(w, maps) for w in data["weights"]),
        (data["parameters"]["before"], data["parameters"]["after"]),
        data["bytes"],
        tuple(data["warnings"]),
        tuple((n, k, v) for n, k, v in data["attributes"]),
        tuple(data["notes"]),
        tuple(Alike(**a) for a in data["alike"]),
    )


def _summary(
    before: Sequence[int], after: Sequence[int], removed: Sequence[Sequence[int]], **others: Any
) -> Summary:
    return Summary(before=tuple(before), after=tuple(after), removed=tuple(map(tuple, removed)), **others)


def _many(sizes: int | list[int]) -> tuple[int, ...]:
    return (sizes,) if isinstance(sizes, int) else tuple(sizes)


class _Pool:
    def __init__(self) -> None:
        self.maps: list[dict[str, Any]] = []
        self.places: dict[object, int] = {}

    def place(self, layout: Layout) -> int:
        key = layout.signature
        if key not in self.places:
            self.places[key] = len(self.maps)
            self.maps.append({})
            self.maps[self.places[key]] = self.entry(layout)
        return self.places[key]

    def entry(self, layout: Layout) -> dict[str, Any]:
        if layout.step is None:
            return {"kind": layout.kind, "parts": [self.place(p) for p in layout.parts]}
        step = layout.step
        made: dict[str, Any] = {"kind": "leaf", "before": step.before, "after": step.after}
        if step.is_identity:
            return made
        made |= {"index": step.index.tolist(), "weight": step.weight.tolist(), "filler": step.filler.tolist()}
        made |= {"key": str(step.key), "block": step.block}
        made |= {"factors": step.factors} if step.factors else {}
        if step.noise is not None:
            n = step.noise
            made["noise"] = {
                "key": str(n.key),
                "scale": n.scale,
                "rows": np.flatnonzero(n.rows).tolist(),
                "groups": n.groups.tolist(),
                "balance": None if n.balance is None else n.balance.tolist(),
            }
        return made


def _weight(weight: WeightPlan, pool: _Pool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": weight.name,
        "source": weight.source,
        "dtype": weight.dtype,
        "before": list(weight.before),
        "after": list(weight.after),
        "steps": [_step(s, pool) for s in weight.steps],
    }
    if weight.scale != 1.0:
        made["scale"] = weight.scale
    if weight.literal is not None:
        made["literal"] = list(weight.literal)
    if weight.copy_of:
        made |= {"copy_of": weight.copy_of, "zero": weight.zero}
    if weight.shift:
        made["shift"] = weight.shift
    if weight.stored:
        made["stored"] = True
    if weight.normed is not None:
        n = weight.normed
        made["normed"] = {"part": n.part, "direction": n.direction, "length": n.length, "axes": list(n.axes)}
        made["normed"] |= {"steps": [_step(s, pool) for s in n.steps], "zero": n.zero}
    return made


def _step(step: AxisStep, pool: _Pool) -> dict[str, Any]:
    made = {"axis": step.axis, "verb": step.verb, "name": step.name, "map": pool.place(step.layout)}
    if step.next is not None:
        made["next"] = {"source": step.next.source, "steps": [_step(s, pool) for s in step.next.steps]}
    return made


def _read_step(data: dict[str, Any], maps: list[dict[str, Any]]) -> AxisStep:
    above = None
    if "next" in data:
        steps = tuple(_read_step(s, maps) for s in data["next"]["steps"])
        above = NextLayer(data["next"]["source"], steps)
    return AxisStep(data["axis"], _read_layout(data["map"], maps), data["verb"], data["name"], above)


def _read_weight(data: dict[str, Any], maps: list[dict[str, Any]]) -> WeightPlan:
    steps = tuple(_read_step(s, maps) for s in data["steps"])
    literal = None if "literal" not in data else tuple(data["literal"])
    before, after = tuple(data["before"]), tuple(data["after"])
    scale = data.get("scale", 1.0)
    normed = _read_normed(data["normed"], maps) if "normed" in data else None
    others = data.get("copy_of", ""), data.get("zero", False), data.get("shift", 0.0), normed
    stored = data.get("stored", False)
    return WeightPlan(
        data["name"], data["source"], data["dtype"], before, after, steps, scale, literal, *others, stored
    )


def _read_normed(data: dict[str, Any], maps: list[dict[str, Any]]) -> Normed:
    steps = tuple(_read_step(s, maps) for s in data["steps"])
    return Normed(data["part"], data["direction"], data["length"], tuple(data["axes"]), steps, data["zero"])


def _read_layout(place: int, maps: list[dict[str, Any]]) -> Layout:
    data = maps[place]
    if data["kind"] != "leaf":
        return Layout(data["kind"], tuple(_read_layout(p, maps) for p in data["parts"]))
    if "index" not in data:
        return Layout("leaf", (), LeafStep.keep(data["before"]))
    noise = None
    if "noise" in data:
        n = data["noise"]
        rows = np.zeros(data["after"], dtype=bool)
        rows[n["rows"]] = True
        balance = None if n["balance"] is None else np.asarray(n["balance"], dtype=np.float64)
        noise = Noise(int(n["key"]), n["scale"], rows, np.asarray(n["groups"], dtype=np.int64), balance)
    index = np.asarray(data["index"], dtype=np.int64)
    weight = np.asarray(data["weight"], dtype=np.float64)
    filler = np.asarray(data["filler"], dtype=np.int64)
    key, factors = int(data["key"]), data.get("factors", "")
    step = LeafStep(data["before"], index, weight, filler, key, noise, data["block"], factors)
    return Layout("leaf", (), step)
