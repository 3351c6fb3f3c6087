"""Whether the starter of every model of the tests is taken as it is, and each statement that it offers.

    python tests/starters/starter_sweep.py [--zoo FOLDER] [--only KIND,…] [--most N] [--jobs N] [--json FILE]

KIND: `graphs` (the models of text in the tests), `random`, `examples`, `zoo`, `programs`, `checkpoints` and
`configs`. Of each model: `growc init`, then `check`, `plan` and `apply` (which verifies) of what it wrote,
and `plan` of every statement in it that is commented out, alone and uncommented in its place.
"""

from __future__ import annotations

import argparse
import ast
import json
import logging
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.extend(str(Path(__file__).resolve().parents[1] / part) for part in (".", "zoo", "fuzz"))

from graphs import ROOT, save

from growc import api
from growc.errors.diagnostic import Attempt, GrowError
from growc.render.starter import init

TESTS = ROOT / "tests"

KINDS = ("graphs", "random", "examples", "zoo", "programs", "checkpoints", "configs")

SMALL = ("graphs", "random", "examples", "programs")
"""Kinds of which each statement is tried that a starter offers."""

RANDOM = range(90_000, 90_040)
FLAVOURS = ("dynamo", "torchscript", "dynamo.anon", "torchscript.anon")
PROGRAMS = ("gpt2", "mlp", "cnn_dense", "own_lstm", "vit")
"""Architectures of the zoo."""

SUMMED = ("init", "check", "plan", "apply", "unfit", "active", "offers", "accepted")


@dataclass
class Outcome:
    """The outcome of one starter.

    offers: statements that are commented out; accepted: of them. unfit: the model cannot be applied at all,
    as an empty recipe is refused, too. faults: what was refused, and with which words.
    """

    model: str
    init: bool = False
    check: bool = False
    plan: bool = False
    apply: bool = False
    active: bool = False
    unfit: bool = False
    offers: int = 0
    accepted: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


def offered(recipe: str) -> list[str]:
    """The statements of a starter that are commented out."""
    return re.findall(r"^#(?! |$)(.*)$", recipe, re.M)


def uncommented(recipe: str, statement: str) -> str:
    """A starter with one more statement; where that is not exact, it says how the recipe goes on."""
    lines = recipe.replace(f"\n#{statement}\n", f"\n{statement}\n", 1).split("\n")
    before = lines[: lines.index(statement)]
    comment = " ".join(line.lstrip("# ") for line in before[len(before) - before[::-1].index("") :])
    exact = "Not exact" not in comment
    active = [line for line in lines[:-1] if line and not line.startswith(("#", "expect"))]
    if "In the place of" in comment:
        lines = [line for line in lines if line not in active or line == statement]
    return "\n".join(line for line in lines if exact or line != "expect exact")


def judged(name: str, path: Path, folder: Path, each: bool) -> Outcome:
    """One model; `each`: its offers, too."""
    outcome = Outcome(name)
    start = time.time()

    def tried(step: str, act: Callable[[], object]) -> bool:
        with Attempt() as attempt:
            act()
        error = attempt.error
        if isinstance(error, GrowError):
            outcome.faults.append(f"{step}: {error.diagnostics[0].code} {error.diagnostics[0].message}")
        elif error is not None:
            outcome.faults.append(f"{step}: {''.join(traceback.format_exception(error, limit=-3))}")
        return error is None

    recipes: list[str] = []
    outcome.init = tried("init", lambda: recipes.append(init(path)))
    outcome.seconds = round(time.time() - start, 2)
    if not recipes:
        return outcome
    [recipe] = recipes
    file = folder / "start.grow"
    file.write_text(recipe, encoding="utf-8")
    outcome.active = any(line and not line.startswith(("#", "expect")) for line in recipe.splitlines())
    outcome.check = tried("check", lambda: api.recipe(file))
    outcome.plan = tried("plan", lambda: judged_plan(file, path))
    if path.suffix != ".json":
        out = folder / f"grown{path.suffix}"
        with Attempt() as empty:
            api.apply("", path, folder / f"same{path.suffix}")
        outcome.unfit = empty.error is not None
        outcome.apply = not outcome.unfit and tried("apply", lambda: api.apply(file, path, out))
    else:
        outcome.apply = outcome.plan
    offers = offered(recipe) if each else []
    outcome.offers = len(offers)
    for text in offers if each else ():
        alone = tried(f"alone `{text}`", lambda text=text: api.plan(text + "\n", path))
        beside = tried(f"in place `{text}`", lambda text=text: judged_plan(uncommented(recipe, text), path))
        outcome.accepted += alone and beside
    return outcome


def judged_plan(recipe: str | Path, model: Path) -> None:
    """Plan and judge as `growc plan` does. Raises GrowError."""
    from growc.verification.judge import judge_plan

    resolved = api.recipe(recipe)
    judge_plan(resolved.statements, api.compile(resolved, model))


# ----------------------------------------------------------------------------------------------------- models

Made = tuple[str, Callable[[Path], Path]]
"""A model's name, and what makes it in an empty folder."""


def texts() -> Iterator[tuple[str, str]]:
    """The models of text that stand in the tests: constants of modules."""
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                text, [target] = node.value.value, node.targets[:1]
                if isinstance(text, str) and isinstance(target, ast.Name) and " => (" in text:
                    yield f"{path.stem}.{target.id}", text


def graphs() -> Iterator[Made]:
    for name, text in texts():
        yield name, lambda folder, text=text: save(folder / "m.onnx", text)


def random_graphs() -> Iterator[Made]:
    from choices import Choices
    from random_models import random_model

    for seed in RANDOM:

        def make(folder: Path, seed: int = seed) -> Path:
            path = folder / "m.onnx"
            random_model(Choices(seed)).save(path)
            return path

        yield f"random {seed}", make


def examples() -> Iterator[Made]:
    for path in sorted((ROOT / "examples/models").glob("*.onnx")):
        yield path.name, lambda folder, path=path: path


def zoo_files(zoo: Path) -> Iterator[Made]:
    for path in sorted(zoo.glob("*.onnx")):
        if path.name.partition(".")[2].removesuffix(".onnx") in FLAVOURS:
            yield path.name, lambda folder, path=path: path


def programs() -> Iterator[Made]:
    """Programs of torch.export, of a few architectures of the zoo."""
    for name in PROGRAMS:

        def make(folder: Path, name: str = name) -> Path:
            import torch
            from registry import build
            from zoo import ZOO

            assert name in ZOO
            built = build(name)
            program = torch.export.export(built.module, tuple(built.feeds[0].values()))
            torch.export.save(program, folder / "m.pt2")
            return folder / "m.pt2"

        yield name, make


def checkpoints() -> Iterator[Made]:
    """Directories of the zoo's classes of transformers."""
    from zoo import ZOO

    for name, blueprint in ZOO.items():
        if blueprint.pick is not None:
            yield name, lambda folder, name=name: saved(name, folder)


def configs() -> Iterator[Made]:
    """The same classes, without weights."""
    for name, _ in checkpoints():
        yield name, lambda folder, name=name: saved(name, folder) / "config.json"


def saved(name: str, folder: Path) -> Path:
    from registry import build

    module: Any = build(name).module
    module.save_pretrained(folder / "source")
    return folder / "source"


def models(kind: str, zoo: Path) -> Iterator[Made]:
    """The models of a kind."""
    makers = {
        "graphs": graphs,
        "random": random_graphs,
        "examples": examples,
        "programs": programs,
        "checkpoints": checkpoints,
        "configs": configs,
    }
    yield from zoo_files(zoo) if kind == "zoo" else makers[kind]()


# ------------------------------------------------------------------------------------------------------ sweep


def one(kind: str, name: str, zoo: Path) -> Outcome | None:
    """The outcome of a model; None where a constant is no whole model, or cannot be made here."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    make = dict(models(kind, zoo))[name]
    with tempfile.TemporaryDirectory() as folder:
        with Attempt() as attempt:
            path = make(Path(folder))
            api.inspect(path)
        if attempt.error is not None:
            print(f"{kind:12} {name:48} no model: {str(attempt.error).splitlines()[:1]}", flush=True)
            return None
        outcome = judged(name, path, Path(folder), kind in SMALL)
    verdict = "FAULT" if outcome.faults else "ok"
    print(
        f"{kind:12} {name:48} {verdict:6} {outcome.accepted}/{outcome.offers} {outcome.seconds} s", flush=True
    )
    print(
        *(f"    {fault}" for fault in outcome.faults),
        sep="\n",
        end="\n" if outcome.faults else "",
        flush=True,
    )
    return outcome


def counts(found: Sequence[Outcome]) -> dict[str, Any]:
    """The counts that the record of a run has."""
    seconds = sorted(outcome.seconds for outcome in found)
    sums = {key: sum(getattr(outcome, key) for outcome in found) for key in SUMMED}
    return {
        "models": len(found),
        **sums,
        "seconds": {"median": seconds[len(seconds) // 2], "most": seconds[-1]} if seconds else {},
        "faults": [asdict(outcome) for outcome in found if outcome.faults],
    }


def main() -> int:
    """Run the sweep; 1 where a starter is refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--zoo", type=Path, default=ROOT / "build/zoo")
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--most", type=int, help="so many models of each kind, from its first one on")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    kept = json.loads(options.json.read_text())["kinds"] if options.json and options.json.exists() else {}
    for kind in options.only.split(","):
        names = [name for name, _ in models(kind, options.zoo)][: options.most]
        with ProcessPoolExecutor(options.jobs) as pool:
            tasks = [pool.submit(one, kind, name, options.zoo) for name in names]
            outcomes = [outcome for task in tasks if (outcome := task.result()) is not None]
        kept[kind] = counts(outcomes)
        if options.json:
            revision = subprocess.run(
                ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
            )
            record = {"revision": revision.stdout.strip(), "date": time.strftime("%Y-%m-%d")}
            ordered = {kind: kept[kind] for kind in KINDS if kind in kept}
            options.json.write_text(json.dumps(record | {"kinds": ordered}, indent=1) + "\n")
    return 1 if any(kept[kind]["faults"] for kind in options.only.split(",")) else 0


if __name__ == "__main__":
    sys.exit(main())
