"""Shrink the models of a zoo and judge them: halved, sorted, and rid of planted dead units.

    python benchmarks/halving.py ZOO [--only MODEL,…] [--flavour FLAVOUR,…] [--kind KIND,…] [-o FILE]

Every model file under every recipe, judged by onnxruntime on the inputs that lie beside it. `halved`: the
result runs, its outputs are finite and of the source's shape, its axes have the sizes asked for. `sorted`:
the same outputs. `dead`: dropping units that contribute nothing changes nothing. Half of the units of a role,
at random places, are made so: what makes and what reads them is zero, and of streams whose norms centre the
living part is centred. Streams that norms make are left out: what these add is not centred. One line of JSON
a file.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from coverage_measure import Maps, Source, difference, opened

from growc import api
from growc.dialects.onnx.emit import emitted
from growc.dialects.onnx.files.save import save
from growc.errors.diagnostic import GrowError
from growc.verification.ort_session import Session

sys.path.append(str(Path(__file__).parent.parent / "tests" / "selection"))

from planted import killed

DEAD = 2e-5
"""The relative difference that dropping dead units may make."""


@dataclass(frozen=True)
class Trial:
    """`kind`: halved, sorted or dead. `roles`: what a model must have."""

    name: str
    kind: str
    roles: tuple[str, ...]
    text: str


def trials() -> Iterator[Trial]:
    """All that is tried."""
    one = "subclone {0} to {0} / 2 by magnitude"
    roles = ("hidden", "heads", "kv_heads", "ffn", "channels")
    for role in roles:
        yield Trial(f"{role} / 2", "halved", (role,), one.format(role))
    together = ("hidden", "heads", "ffn")
    yield Trial("all / 2", "halved", together, "\n".join(one.format(role) for role in together))
    for role in roles:
        yield Trial(f"{role} sorted", "sorted", (role,), f"reorder {role} by magnitude")
    for role in roles:
        where = "rescaled in norms" if role == "hidden" else "unscaled"
        for ranking in ("importance", "magnitude"):
            text = f"subclone {role} to {{living}} by {ranking} {where}"
            yield Trial(f"{role} dead, {ranking}", "dead", (role,), text)


def tried(source: Source, trial: Trial, folder: Path) -> tuple[str, str]:
    """(status, detail) of one trial. Raises GrowError where it is refused."""
    c = api.compile(api.recipe(trial.text), source.path)
    maps, exact = Maps.of(c), c.plan.certificate.exact
    wanted = {role: sorted(set(change.after)) for role, change in c.plan.axes.items() if role in trial.roles}
    result = written(c, folder / "made.onnx")
    if trial.kind == "halved":
        return halved(source, result, maps, wanted)
    if not exact:
        return "gap", ""
    r = difference(source, result, maps)
    return ("good" if r <= max(source.limit, DEAD) else "wrong"), f"{r:.1e}"


def rid(path: Path, facts: Mapping[str, Any], trial: Trial, folder: Path) -> tuple[str, str]:
    """(status, detail) of dropping dead units of one role. Raises GrowError where it is refused."""
    [role], roles = trial.roles, api.inspect(path).roles
    sizes = set(roles.sizes(role))
    if len(sizes) > 1 or (role == "hidden" and facts["norm"] == "layer" and facts["stream"] != "pre"):
        return "left out", ""
    if role == "hidden" and facts["norm"] == "layer" and facts["embedding_norm"]:
        return "left out", ""
    [size] = sizes
    grouped = role == "heads" and roles.axes.get("kv_heads") != roles.axes["heads"]
    groups = roles.sizes("kv_heads")[0] if grouped else 1
    if size // groups < 2:
        return "left out", ""
    random = np.random.default_rng(len(path.name))
    each = size // groups
    living = [g * each + int(u) for g in range(groups) for u in sorted(random.permutation(each)[: each // 2])]
    centred = role == "hidden" and facts["norm"] == "layer"
    model = killed(path, role, living, folder / "dead.onnx", centred=centred)
    inputs = path.with_name(f"{path.stem.split('.')[0]}.inputs.npz")
    shutil.copy(inputs, folder / "dead.inputs.npz")
    recipe = folder / "r.grow"
    text = trial.text.format(living=len(living))
    recipe.write_text(f'measure importance on "dead.inputs.npz"\n{text}\n')
    c = api.compile(api.recipe(recipe), model)
    maps = Maps.of(c)
    r = difference(opened(model), written(c, folder / "made.onnx"), maps)
    return ("good" if r <= DEAD else "wrong"), f"{r:.1e}"


def halved(source: Source, made: Path, maps: Maps, wanted: dict[str, list[int]]) -> tuple[str, str]:
    """Whether a smaller model runs and is as small as it should be."""
    r = difference(source, made, maps)
    if not np.isfinite(r):
        return "wrong", "an output has another shape, or numbers that are not finite"
    roles = api.inspect(made).roles
    have = {role: sorted(set(roles.sizes(role))) for role in wanted}
    if have != wanted:
        return "sizes", f"{have} instead of {wanted}"
    return "good", f"{r:.1e}"


def written(c: Any, path: Path) -> Path:
    """The result of a compilation."""
    result = save(emitted(c), path.parent, path.name, False, lambda name, count: None)[-1]
    with Session(result):
        return result


def measured(path: Path, facts: Mapping[str, Any], kinds: Sequence[str]) -> dict[str, Any]:
    """Every trial of these kinds that applies to one file."""
    outcomes: dict[str, Any] = {}
    source = opened(path)
    c = api.inspect(path)
    roles = c.roles.axes
    for trial in (t for t in trials() if t.kind in kinds):
        grouped = roles.get("kv_heads") != roles.get("heads")
        if any(role not in roles for role in trial.roles) or ("kv_heads" in trial.roles and not grouped):
            continue
        if trial.kind == "dead" and c.graph.states:  # feeds of a cache are in the source's order
            continue
        if trial.kind == "halved" and any(a.size % 2 for role in trial.roles for a in roles[role]):
            continue
        start = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="halving-") as folder:
            try:
                if trial.kind == "dead":
                    status, detail = rid(path, facts, trial, Path(folder))
                else:
                    status, detail = tried(source, trial, Path(folder))
            except GrowError as error:
                first = error.diagnostics[0]
                status, detail = "refused", f"{first.code} {first.message} {' '.join(first.notes)}"
            except Exception:  # noqa: BLE001 - a traceback is what is looked for
                status, detail = "crash", " / ".join(traceback.format_exc().strip().splitlines()[-3:])
        outcomes[trial.name] = [status, detail, round(time.perf_counter() - start, 2)]
    return outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("zoo", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--flavour", default="dynamo,torchscript")
    parser.add_argument("--kind", default="halved,sorted,dead")
    parser.add_argument("-o", "--out", type=Path)
    given = parser.parse_args(arguments)
    known = json.loads((given.zoo / "zoo.json").read_text())
    counts: dict[str, Counter[str]] = {}
    for path in sorted(given.zoo.glob("*.onnx")):
        name, flavour = path.stem.split(".", 1)
        if flavour not in given.flavour.split(",") or (given.only and name not in given.only.split(",")):
            continue
        record = measured(path, known[name]["facts"], given.kind.split(","))
        for trial, (status, *_) in record.items():
            counts.setdefault(trial, Counter())[status] += 1
        print(path.stem, json.dumps(record), flush=True)
        if given.out is not None:
            with given.out.open("a") as file:
                file.write(json.dumps({"file": path.stem, "trials": record}) + "\n")
    for trial, count in counts.items():
        print(f"{trial:16}", dict(count))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
