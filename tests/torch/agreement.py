"""Whether a module and its ONNX file are understood alike: what is said differently, and why.

    python tests/torch/agreement.py [NAME…] [--kept FOLDER] [--page PATH]

Compared is what `inspect` and `plan` say, without names of nodes and parameters. `--kept`: facts are stored
there as JSON and not found twice. `--page` writes docs/agreement.md.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "zoo"))

import torch
from exporters import DOINGS
from registry import ATTENTIONS, Built, build
from zoo import ZOO

from growc import api
from growc.algebra.space import find, leaves
from growc.dialects.onnx.model import OnnxModel
from growc.dialects.torch.capture.export import ExportedModule, export
from growc.dialects.torch.model import TorchModel, reader
from growc.errors.diagnostic import GrowError
from growc.formats.compiler import outside
from growc.passes import ANALYSIS, PIPELINE, run
from growc.passes.axes.queries import AxisQueries
from growc.passes.compilation import Analysis, Result, Source
from growc.passes.finish.assemble import count_parameters
from growc.render.inspection import attention_kinds

FILES = Path(__file__).resolve().parents[2] / "build" / "zoo"
RECIPES = (
    "widen ffn to 2 * ffn with uniform copy",
    "widen hidden to 2 * hidden with cyclic copy\nwiden heads to 2 * heads with neighbor copy",
    "widen head_dim to 2 * head_dim with zero fill",
    "widen vocab to vocab + 3 with average fill",
    "widen channels to 2 * channels with cyclic copy",
    "widen experts to 2 * experts with cyclic copy",
    "stack layers to layers + 2 by last with zero outputs",
    "subclone ffn to ffn / 2 by magnitude",
)

Facts = dict[str, Any]
"""Facts by name. Where facts are held by recipe, those of the analysis have the recipe ""."""


def built(name: str) -> Built:
    """A model of the zoo with attention as one operator, where its class has that."""
    for attention in ATTENTIONS:
        try:
            return build(name, attention)
        except ValueError:
            continue
    raise AssertionError(name)


def captured(model: Built) -> ExportedModule:
    """A model captured by torch.export, with the dynamic axes of its file."""
    own = inspect.signature(model.module.forward).bind(*model.feeds[0].values()).arguments
    axes = {mine: model.axes[name] for mine, name in zip(own, model.feeds[0], strict=True)}
    return export(model.module, tuple(model.feeds[0].values()), axes=axes)


# ---------------------------------------------------------------------------------------------- facts


def analysed(c: Analysis) -> Facts:
    """The facts of an analysis."""
    facts: Facts = {f"axes `{name}`": _spaces(c, name) for name in c.roles.axes}
    facts["layers"] = [f"{len(r.layers)} {r.scope} {r.kinds} {r.period}" for r in c.layers.runs]
    facts["attention"] = [
        f"{n} x {kind.counted}, {kind.packing}"
        for kind, n in attention_kinds(AxisQueries(c.axes), c.roles).items()
    ]
    facts["free axes of matrices"] = sorted(
        {
            space.size[0]
            for use in c.graph.uses()
            if use.weight is not None and use.weight.floating and len(use.weight.shape) > 1
            for axis in c.axes.of(use)
            for space in leaves(axis)
            if space.frozen is None and space.addressed is None
        }
    )
    live = {i.node for i in c.axes.instances}
    norms = Counter(n.op for n in c.graph.nodes if n in live and "Normalization" in n.op)
    facts["parameters"] = count_parameters(c.axes, c.ties)
    facts["norms"] = [f"{n} {op}" for op, n in sorted(norms.items())]
    return facts


def _spaces(c: Analysis, name: str) -> list[str]:
    """The spaces of a role that change by themselves: how many there are of a size, scope and number of
    places where matrices have them.
    """
    groups: list[tuple[set[int], list[Any]]] = []
    for axis in c.roles.axes[name]:
        atoms = {find(x) for s in axis.spaces for x in leaves(s)}
        near = [g for g in groups if g[0] & atoms]
        groups = [g for g in groups if not g[0] & atoms]
        groups.append((atoms.union(*(g[0] for g in near)), [axis, *(a for g in near for a in g[1])]))
    counts: Counter[str] = Counter()
    for atoms, axes in groups:
        sizes = "/".join(sorted({str(a.size) for a in axes}))
        scopes = ", ".join(sorted({s for a in axes for s in c.roles.scopes.of(a.spaces)}))
        fixed = any(x.frozen for a in axes for s in a.spaces for x in leaves(s))
        counts[f"{sizes} in {_bearing(c, atoms)} matrices {scopes}{' frozen' * fixed}".strip()] += 1
    return [f"{n} x {what}" for what, n in sorted(counts.items())]


def _bearing(c: Analysis, atoms: set[int]) -> int:
    """In how many places a matrix with an axis of these units is used."""
    return sum(
        any(find(x) in atoms for s in c.axes.of(use) for x in leaves(s))
        for use in c.graph.uses()
        if use.weight is not None and sum(k > 1 for k in use.weight.shape) > 1
    )


def planned(c: Result) -> Facts:
    """The facts of a plan."""
    plan = c.plan
    shapes = {
        tuple(sorted((a, b) for a, b in zip(w.before, w.after, strict=True) if max(a, b) > 1))
        for w in plan.weights
        if sum(k > 1 for k in w.before) > 1
    }
    return {
        "exact": plan.certificate.exact,
        "gaps": sorted({re.sub("`.*?`", "`…`", g.cause) for g in plan.certificate.gaps}),
        "sizes": {name: [list(a.before), list(a.after)] for name, a in plan.axes.items()},
        "parameters": plan.parameters,
        "matrices": [" x ".join(f"{a} -> {b}" for a, b in one) for one in sorted(shapes)],
    }


def said(opened: Any, name: str, recipe: str) -> Facts:
    """The facts of a model or of a plan for it, or the codes of a refusal."""
    bound = api.recipe(recipe).statements if recipe else ()
    try:
        begun = Source(Path(name), opened, outside(), bound)
        return planned(run(PIPELINE, begun)) if recipe else analysed(run(ANALYSIS, begun))
    except GrowError as error:
        return {"refused": [d.code for d in error.diagnostics]}


def facts(name: str, path: Path, recipes: Sequence[str] = RECIPES) -> dict[str, dict[str, Facts]]:
    """The facts of a module of the zoo and of its file, by recipe."""
    model = built(name)
    program, read = captured(model), reader(model.module)
    by_recipe = {
        "file": {recipe: said(OnnxModel.open(path), name, recipe) for recipe in ("", *recipes)},
        "module": {recipe: said(TorchModel.open(program, read), name, recipe) for recipe in ("", *recipes)},
    }
    return json.loads(json.dumps(by_recipe))


def differences(found: dict[str, dict[str, Facts]]) -> Iterator[tuple[str, str, Any, Any]]:
    """(recipe, what, of the file, of the module) for everything that is said differently."""
    for recipe, theirs in found["file"].items():
        ours = found["module"][recipe]
        for what in dict.fromkeys([*theirs, *ours]):
            if theirs.get(what) != ours.get(what):
                yield recipe, what, theirs.get(what), ours.get(what)


# ---------------------------------------------------------------------------------------------- reasons


def reasons(name: str, wanted: dict[str, Facts]) -> list[str]:
    """The exporter's changes that explain the differences: with them, the module's own model is understood as
    the file is. One change, or else all; empty where all of them do not explain it.
    """
    model = built(name)
    program, read = captured(model), reader(model.module)
    for doings in (*([one] for one in DOINGS), list(DOINGS)):
        by_recipe = {
            recipe: said(done(TorchModel.open(program, read).source, doings), name, recipe)
            for recipe in wanted
        }
        if json.loads(json.dumps(by_recipe)) == wanted:
            return doings
    return []


def done(source: Any, doings: Sequence[str]) -> OnnxModel:
    """A lowered module with what exporters do to it, as a file."""
    for one in doings:
        DOINGS[one](source)
    return OnnxModel(source)


def compared(name: str, path: Path, recipes: Sequence[str] = RECIPES) -> dict[str, Any]:
    """The facts of a module and of its file, and the reasons for their differences."""
    record: dict[str, Any] = facts(name, path, recipes)
    return record | {"reasons": reasons(name, record["file"]) if list(differences(record)) else []}


def outcome(name: str, folder: Path | None) -> dict[str, Any]:
    """As compared, of a file in the zoo; kept in a folder."""
    path, file = None if folder is None else folder / f"{name}.json", FILES / f"{name}.dynamo.onnx"
    if path is not None and path.exists():
        return json.loads(path.read_text())
    record = compared(name, file) if file.exists() else {"file": None}
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record))
    return record


# ---------------------------------------------------------------------------------------------- the page

HEAD = """# Agreement

The judgement of growc on every model of the zoo (`tests/zoo`: small models of real architectures,
random weights), captured by torch.export, and of the file that torch exports of it. `make agreement`
writes this page.

Compared are: the axes of every name (how many change by themselves, of which sizes and scopes, on how many
matrices), the free axes of matrices, layers, norms, parameters; and of the plans for eight recipes the
certificate with its gaps, all sizes, parameters, matrices, or the refusal. Names of nodes and parameters are
left out.

Where something is said differently, what exporters do to a model before they write it is done to the module's
own (`tests/torch/exporters.py`). If everything is said alike then, that is the reason.
"""


def page(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    """docs/agreement.md."""
    there = {name: one for name, one in found.items() if one["file"] is not None}
    other = {name: list(differences(one)) for name, one in there.items()}
    same = sum(not one for one in other.values())
    explained = sum(bool(there[name]["reasons"]) for name, one in other.items() if one)
    yield HEAD
    rest = len(there) - same - explained
    yield f"**{same} of {len(there)} models are understood alike; {explained} differ for a reason that was"
    yield f"checked, {rest} for none.** The recipes:"
    yield ""
    yield from (f"- `{'; '.join(recipe.splitlines())}`" for recipe in RECIPES)
    yield ""
    yield "| model | module and file |"
    yield "| --- | --- |"
    for name, one in found.items():
        if one["file"] is None:
            yield f"| {name} | there is no file |"
        elif not other[name]:
            yield f"| {name} | alike |"
        else:
            what = ", ".join(dict.fromkeys(what for _, what, _, _ in other[name]))
            why = "; ".join(one["reasons"]) or "**no reason was found**"
            yield f"| {name} | other: {what}. {why[0].upper()}{why[1:]} |"


def main() -> None:
    """Print what differs: - is said of the file, + of the module; or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--kept", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    records = {}
    for name in options.names or list(ZOO):
        one = records[name] = outcome(name, options.kept)
        other = list(differences(one)) if one["file"] else []
        why = (
            "; ".join(one["reasons"]) or "for no reason"
            if other
            else "as its file"
            if one["file"]
            else "no file"
        )
        print(f"{name}: {why}", flush=True)
        for recipe, what, theirs, ours in other:
            print(f"    {recipe.splitlines()[0] if recipe else 'inspect'}: {what}")
            print(f"        - {theirs}\n        + {ours}", flush=True)
    if options.page is not None:
        options.page.write_text("\n".join(page(records)) + "\n")


if __name__ == "__main__":
    main()
