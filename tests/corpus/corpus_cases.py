"""The corpus: models of every form, each with a recipe; the same every time they are made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.extend(
    str(Path(__file__).resolve().parents[1] / part) for part in ("zoo", "fuzz", "torch", "checkpoint", ".")
)

from digests import Digests, of_apply, of_growth, of_module, of_path

ROOT = Path(__file__).resolve().parents[2]
RECIPES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "wide": (("hidden",), "widen hidden to 2 * hidden with cyclic copy split random noise 0.1 balanced"),
    "ffn": (("ffn",), "widen ffn to 3 * ffn / 2 with uniform copy split random seed 3"),
    "heads": (("heads",), "widen heads to 2 * heads with neighbor copy noise 0.01"),
    "deep": (("layers",), "stack layers to layers + 2 by each with zero outputs"),
    "means": (("hidden",), "widen hidden to 3 * hidden / 2 with average fill"),
    "smaller": (
        ("hidden", "ffn"),
        "subclone hidden to hidden / 2 by first\nsubclone ffn to ffn / 2 by magnitude",
    ),
    "order": (("ffn",), "reorder ffn by magnitude\nwiden ffn to 2 * ffn with tail copy"),
    "untied": (("vocab", "hidden"), "untie head\nwiden vocab to vocab + 3 with random fill"),
    "arranged": (("layers",), "arrange layers as 0, 0, 1 with zero outputs"),
    "short": (("layers",), "subclone layers to 1 by even"),
    "double": (
        ("hidden", "heads", "ffn"),
        "widen hidden to 2 * hidden with cyclic copy\nwiden heads to 2 * heads with neighbor copy\n"
        "widen ffn to 2 * ffn with cyclic copy",
    ),
    "channels": ((), "widen channels to 2 * channels with neighbor copy"),
}
"""By name: the roles that a model must have, and the statements."""

OF_CLASSES = ("double", "ffn", "deep", "short", "order", "arranged")
"""The recipes whose results most configurations can express."""

FLAVOURS = ("dynamo", "torchscript", "dynamo23", "extended", "fused", "torchscript.anon")
"""Of the zoo's files. The first two get two recipes each."""

GRAPHS = range(70_000, 70_100)
"""Seeds of generated graphs: 16-bit types, quantisation, control flow, fused operators."""
SMOKE_GRAPHS = range(70_000, 70_014)


@dataclass(frozen=True)
class Case:
    """One result. make: what it is, in an empty folder; the digests have that of its source."""

    name: str
    make: Callable[[Path], Digests]


def recipes_of(facts: Any, start: int, count: int, names: Collection[str] = RECIPES) -> list[str]:
    """Some recipes that have something to act on in a model, from a place in the list on."""
    if facts.convolutional:
        return ["channels"]
    fitting = [
        name
        for name, (roles, _) in RECIPES.items()
        if name in names and roles and all(getattr(facts, role) for role in roles)
    ]
    return [fitting[(start + k) % len(fitting)] for k in range(min(count, len(fitting)))]


def zoo_files(zoo: Path) -> Iterator[Case]:
    """Files of the zoo, as exporters and onnxruntime's optimisers write them."""
    from zoo import ZOO

    for place, name in enumerate(ZOO):
        for turn, flavour in enumerate(FLAVOURS):
            path = zoo / f"{name}.{flavour}.onnx"
            wanted = recipes_of(ZOO[name].facts, place + 3 * turn, 2 if turn < 2 else 1)
            for recipe in wanted if path.exists() and (turn != 5 or place % 4 == 0) else ():
                yield Case(f"{name}.{flavour}: {recipe}", _of_file(path, RECIPES[recipe][1]))


def _of_file(path: Path, recipe: str) -> Callable[[Path], Digests]:
    return lambda folder: {"source": of_path(path)} | of_apply(recipe, path, folder)


def graphs(seeds: range) -> Iterator[Case]:
    """Generated graphs, each with its own recipe."""
    for seed in seeds:
        yield Case(f"graph {seed}", _of_graph(seed))


def _of_graph(seed: int) -> Callable[[Path], Digests]:
    def make(folder: Path) -> Digests:
        import onnx
        from hostile.cases import RECIPES as ATTEMPTS
        from hostile.cases import seen, source
        from hostile.recipes import recipe

        import growc

        drawn = source(seed)
        if drawn is None:
            return {"source": "none"}
        path = folder / "model.onnx"
        onnx.save(drawn.model, path)
        text = recipe(seed * ATTEMPTS, seen(growc.inspect(path), drawn.model))
        return {"source": of_path(path)} | of_apply(text, path, folder)

    return make


def modules() -> Iterator[Case]:
    """Modules in memory, and `.pt2` programs of them."""
    from zoo import ZOO

    for place, name in enumerate(ZOO):
        wanted = recipes_of(ZOO[name].facts, place + 1, 1)
        for recipe in wanted if place % 2 == 0 else ():
            yield Case(f"{name}, module: {recipe}", _of_module(name, RECIPES[recipe][1]))
        for recipe in wanted if place % 5 == 1 else ():
            yield Case(f"{name}.pt2: {recipe}", _of_program(name, RECIPES[recipe][1]))


def _of_module(name: str, recipe: str) -> Callable[[Path], Digests]:
    def make(folder: Path) -> Digests:
        from registry import build

        built = build(name)
        source = {"source": of_module(built.module)["state"]}
        return source | of_growth(recipe, built.module, tuple(built.feeds[0].values()))

    return make


def _of_program(name: str, recipe: str) -> Callable[[Path], Digests]:
    def make(folder: Path) -> Digests:
        from registry import build

        from growc.dialects.torch.programs.load import save

        built, path = build(name), folder / "model.pt2"
        save(path, built.module, tuple(built.feeds[0].values()))
        return {"source": of_module(built.module)["state"]} | of_apply(recipe, path, folder)

    return make


def directories() -> Iterator[Case]:
    """Checkpoint directories of transformers; every fourth in bfloat16, every sixth with an optimizer."""
    from zoo import ZOO

    names = [name for name, blueprint in ZOO.items() if blueprint.pick is not None]
    for place, name in enumerate(names):
        for recipe in recipes_of(ZOO[name].facts, place + 2, 1, OF_CLASSES):
            kind = "bfloat16" if place % 4 == 3 else "float32"
            trained = place % 6 == 0
            label = f"{name}, directory{' in bfloat16' * (kind != 'float32')}{' with optimizer' * trained}"
            yield Case(f"{label}: {recipe}", _of_directory(name, kind, trained, RECIPES[recipe][1]))


def _of_directory(name: str, kind: str, trained: bool, recipe: str) -> Callable[[Path], Digests]:
    def make(folder: Path) -> Digests:
        import torch
        from registry import build

        module: Any = build(name).module.to(getattr(torch, kind))
        module.save_pretrained(folder / "model")
        options = {"optimizer": _optimizer(module, folder)} if trained else {}
        return {"source": of_path(folder / "model")} | of_apply(recipe, folder / "model", folder, **options)

    return make


def _optimizer(module: Any, folder: Path) -> Path:
    """The state of AdamW after one step along gradients that are the weights themselves."""
    import torch

    parameters = [p for p in module.requires_grad_(True).parameters() if p.is_floating_point()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    for parameter in parameters:
        parameter.grad = parameter.detach().clone()
    optimizer.step()
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    return folder / "optimizer.pt"


def examples() -> Iterator[Case]:
    """The recipes of examples/ on the models beside them."""
    for line in sorted(
        line.removeprefix("#   growc apply ").strip()
        for path in (ROOT / "examples").glob("[0-9]*/recipe.grow")
        for line in path.read_text().splitlines()
        if line.startswith("#   growc apply ")
    ):
        recipe, model = line.split()[:2]
        if (ROOT / model).exists():
            yield Case(f"example {recipe}", _of_example(ROOT / recipe, ROOT / model))


def _of_example(recipe: Path, model: Path) -> Callable[[Path], Digests]:
    return lambda folder: {"source": of_path(model)} | of_apply(recipe, model, folder)


def smoke() -> list[Case]:
    """Some that need no exported files: those that run each time."""
    return [*graphs(SMOKE_GRAPHS), *examples()]


def everything(zoo: Path) -> list[Case]:
    """All of them. `zoo`: where tests/zoo/build.py has written its files."""
    return [*zoo_files(zoo), *graphs(GRAPHS), *modules(), *directories(), *examples()]
