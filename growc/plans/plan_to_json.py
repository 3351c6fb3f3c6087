"""A plan as JSON and back. Index maps that many weights share are stored once, in `maps`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from growc.errors.json_data import Json, fields, items, real, record, text, texts, whole, wholes
from growc.plans.plan import (
    Alike,
    AxisChange,
    AxisStep,
    Certificate,
    DroppedWeight,
    Gap,
    Layout,
    LeafStep,
    NextLayer,
    Noise,
    Plan,
    Summary,
    WeightNormRole,
    WeightPlan,
)
from growc.resolve.bound import BudgetRow, Decision


def to_json(plan: Plan) -> dict[str, Json]:
    """The plan as plain data. `axes` has a number where a name has one size, else a list."""
    pool = _Pool()
    weights = [_weight(w, pool) for w in plan.weights]
    return {
        "model": plan.model,
        "certificate": {"exact": plan.certificate.exact, "gaps": [asdict(g) for g in plan.certificate.gaps]},
        "parameters": {"before": plan.parameters[0], "after": plan.parameters[1]},
        "bytes": plan.bytes_to_write,
        "axes": {n: {"before": one(a.before), "after": one(a.after)} for n, a in plan.axes.items()},
        "statements": [asdict(s) for s in plan.summaries],
        "warnings": list(plan.warnings),
        "notes": list(plan.notes),
        "alike": [asdict(a) for a in plan.alike],
        "attributes": [list(a) for a in plan.attributes],
        "gone": [asdict(g) for g in plan.gone],
        "weights": weights,
        "maps": pool.maps,
        **({"budgets": [_budget(one) for one in plan.decided]} if plan.decided else {}),
    }


def _budget(decision: Decision) -> dict[str, Json]:
    """A budget and its decision, as plain data."""

    def row(budget_row: BudgetRow) -> dict[str, Json]:
        sizes: dict[str, Json] = dict(zip(decision.axes, budget_row.sizes, strict=True))
        return {"sizes": sizes, "amount": budget_row.amount, "lost": budget_row.lost, "cost": budget_row.cost}

    return {
        "statement": decision.text,
        "quantity": decision.quantity,
        "limit": decision.limit,
        "became": list(decision.plain),
        "choices": [row(choice) for choice in decision.rows],
        "near": [row(choice) for choice in decision.near],
        "notes": list(decision.notes),
        "plans": decision.plans,
    }


def _read_budget(data: Mapping[str, Json]) -> Decision:
    """The budget that `_budget` stored."""
    choices, near = (tuple(map(fields, items(data[name]))) for name in ("choices", "near"))
    axes = tuple(fields(choices[0]["sizes"])) if choices else ()

    def row(entry: Mapping[str, Json]) -> BudgetRow:
        sizes = fields(entry["sizes"])
        return BudgetRow(
            tuple(text(sizes[axis]) for axis in axes),
            whole(entry["amount"]),
            real(entry["lost"]),
            text(entry["cost"]),
        )

    return Decision(
        (),
        text(data["statement"]),
        axes,
        text(data["quantity"]),
        whole(data["limit"]),
        tuple(map(row, choices)),
        tuple(map(row, near)),
        texts(data["notes"]),
        texts(data["became"]),
        whole(data["plans"]),
    )


def one(sizes: tuple[int, ...]) -> int | list[int]:
    """A single size as a number, several as a list."""
    return sizes[0] if len(sizes) == 1 else list(sizes)


def from_json(data: Mapping[str, Json]) -> Plan:
    """The plan that `to_json` stored."""
    maps = tuple(map(fields, items(data["maps"])))
    gaps, parameters = fields(data["certificate"])["gaps"], fields(data["parameters"])
    changed = {n: fields(a) for n, a in fields(data["axes"]).items()}
    attributes = (items(one) for one in items(data["attributes"]))
    return Plan(
        text(data["model"]),
        Certificate(tuple(record(Gap, g) for g in items(gaps))),
        {n: AxisChange(_many(a["before"]), _many(a["after"])) for n, a in changed.items()},
        tuple(record(Summary, s) for s in items(data["statements"])),
        tuple(_read_weight(fields(w), maps) for w in items(data["weights"])),
        (whole(parameters["before"]), whole(parameters["after"])),
        whole(data["bytes"]),
        texts(data["warnings"]),
        tuple((text(n), text(k), real(v)) for n, k, v in attributes),
        texts(data["notes"]),
        tuple(record(Alike, a) for a in items(data["alike"])),
        tuple(
            DroppedWeight(text(g["name"]), wholes(g["shape"]))
            for g in map(fields, items(data.get("gone", ())))
        ),
        tuple(_read_budget(fields(one)) for one in items(data.get("budgets", ()))),
    )


def _many(sizes: Json) -> tuple[int, ...]:
    return (sizes,) if isinstance(sizes, int) else wholes(sizes)


class _Pool:
    def __init__(self) -> None:
        self.maps: list[Mapping[str, Json]] = []
        self.places: dict[object, int] = {}

    def place(self, layout: Layout) -> int:
        key = layout.signature
        if key not in self.places:
            self.places[key] = len(self.maps)
            self.maps.append({})
            self.maps[self.places[key]] = self.entry(layout)
        return self.places[key]

    def entry(self, layout: Layout) -> dict[str, Json]:
        if layout.step is None:
            return {"kind": layout.kind, "parts": [self.place(p) for p in layout.parts]}
        step = layout.step
        data: dict[str, Json] = {"kind": "leaf", "before": step.before, "after": step.after}
        if step.is_identity:
            return data
        data |= {"index": step.index.tolist(), "weight": step.weight.tolist(), "filler": step.filler.tolist()}
        data |= {"key": str(step.key), "block": step.block}
        data |= {"factors": step.factors} if step.factors else {}
        data |= {} if step.std is None else {"std": step.std}
        data |= {"around_mean": True} if step.around_mean else {}
        if step.noise is not None:
            n = step.noise
            balance = None if n.balance is None else n.balance.tolist()
            rows = {"rows": np.flatnonzero(n.rows).tolist(), "groups": n.groups.tolist(), "balance": balance}
            data["noise"] = {"key": str(n.key), "scale": n.scale, **rows}
        if step.within is not None:
            w = step.within
            inside: dict[str, Json] = {"index": w.index.tolist(), "behind": w.behind}
            data["within"] = {**inside, "filler": w.filler, "key": str(w.key)}
        return data


def _weight(weight: WeightPlan, pool: _Pool) -> dict[str, Json]:
    """A weight plan as plain data, without fields that have their default. A copy always has `zero`."""
    names = {f.name for f in dataclasses.fields(weight) if getattr(weight, f.name) != f.default} - {"zero"}
    names |= {"zero"} if weight.copy_of else set()
    data = {n: list(v) if isinstance(v, tuple) else v for n, v in vars(weight).items() if n in names}
    data["steps"] = [_step(s, pool) for s in weight.steps]
    if weight.normed is not None:
        data["normed"] = vars(weight.normed) | {"steps": [_step(s, pool) for s in weight.normed.steps]}
    return data


def _step(step: AxisStep, pool: _Pool) -> dict[str, Json]:
    data: dict[str, Json] = {
        "axis": step.axis,
        "verb": step.verb,
        "name": step.name,
        "map": pool.place(step.layout),
    }
    if step.next is not None:
        data["next"] = {"source": step.next.source, "steps": [_step(s, pool) for s in step.next.steps]}
    return data


def _read_steps(data: Json, maps: Sequence[Mapping[str, Json]]) -> tuple[AxisStep, ...]:
    return tuple(_read_step(fields(step), maps) for step in items(data))


def _read_step(data: Mapping[str, Json], maps: Sequence[Mapping[str, Json]]) -> AxisStep:
    above = None
    if "next" in data:
        above = record(NextLayer, data["next"], steps=_read_steps(fields(data["next"])["steps"], maps))
    return record(AxisStep, data, layout=_read_layout(whole(data["map"]), maps), next=above)


def _read_weight(data: Mapping[str, Json], maps: Sequence[Mapping[str, Json]]) -> WeightPlan:
    literal = tuple(items(data["literal"])) if "literal" in data else None
    normed = None
    if "normed" in data:
        normed = record(
            WeightNormRole, data["normed"], steps=_read_steps(fields(data["normed"])["steps"], maps)
        )
    steps, made_of = _read_steps(data["steps"], maps), tuple(texts(data.get("made_of", [])))
    mean_of = tuple(texts(data.get("mean_of", [])))
    return record(
        WeightPlan, data, steps=steps, literal=literal, normed=normed, made_of=made_of, mean_of=mean_of
    )


def _read_layout(place: int, maps: Sequence[Mapping[str, Json]]) -> Layout:
    data = maps[place]
    kind = text(data["kind"])
    if kind != "leaf":
        return Layout(kind, tuple(_read_layout(p, maps) for p in wholes(data["parts"])))
    if "index" not in data:
        return Layout("leaf", (), LeafStep.keep(whole(data["before"])))
    noise = None
    if "noise" in data:
        n = fields(data["noise"])
        rows = np.zeros(whole(data["after"]), dtype=bool)
        rows[np.asarray(n["rows"], dtype=np.int64)] = True
        noise = record(Noise, n, key=int(text(n["key"])), rows=rows)
    return Layout("leaf", (), record(LeafStep, data, key=int(text(data["key"])), noise=noise))
