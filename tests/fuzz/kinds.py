"""Kinds of cases for fuzzing: each makes files in a folder, and says what growc is to do with them."""

from __future__ import annotations

import io
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path

import bad_checkpoints
import numpy as np
import onnx
from drawn_recipes import drawn_recipe
from graphs import MLP, STREAM, TRANSLATOR, UP_DOWN, save
from mutations import in_archive, in_bytes, in_json, in_message

from growc.cli.main import main

CORPUS = Path(__file__).parent / "corpus"
EXAMPLES = Path(__file__).parents[2] / "examples"
RECIPE = "recipe.grow"
STATEMENTS = (
    "widen ffn to 2 * ffn with tail copy",
    "widen hidden to hidden + 4 with neighbor copy",
    "subclone hidden to hidden / 2 by magnitude",
    'widen axis 1 of "up*" to 96 with uniform copy',
    "stack layers to 2 * layers by whole",
    "untie head",
    "upcycle ffn to experts 3 top 2 with cyclic copy noise 0.1",
    "upcycle ffn to experts 3 top 2 with cyclic copy reset 0.5",
    "upcycle ffn to experts 4 top 2 with cyclic copy in 2 parts",
)
IMPORTANCE = 'measure importance on "inputs.npz"\nsubclone ffn to ffn / 2 by importance'


@dataclass(frozen=True)
class Stock:
    """Files to change: good models by name, a folder with checkpoints, recipes, and models of the corpus."""

    models: Mapping[str, bytes]
    checkpoints: Path
    recipes: Sequence[bytes]
    odd: Sequence[bytes]


def stock(folder: Path) -> Stock:
    """Made once, in a folder."""
    graphs = {"stream": STREAM, "mlp": MLP, "translator": TRANSLATOR, "up_down": UP_DOWN}
    models = {name: save(folder / f"{name}.onnx", graph).read_bytes() for name, graph in graphs.items()}
    bad_checkpoints.save_good(folder / "checkpoints")
    with redirect_stdout(StringIO()):  # children inherit these imports
        main(["inspect", str(folder / "checkpoints/plain")])
    recipes = [path.read_bytes() for path in sorted(EXAMPLES.rglob("*.grow"))]
    recipes += [path.read_bytes() for path in sorted(CORPUS.glob("recipe*"))]
    odd = [path.read_bytes() for path in sorted(CORPUS.glob("*.onnx"))]
    return Stock(models, folder / "checkpoints", recipes, odd)


Maker = Callable[[random.Random, Stock, Path], list[str]]
"""Makes the files of a case; gives the arguments of growc."""


def _recipe(text: bytes, chance: random.Random, given: Stock, folder: Path) -> list[str]:
    (folder / RECIPE).write_bytes(text)
    match chance.randrange(12):
        case 0:
            (folder / "m.onnx").write_bytes(given.models["stream"])
            return ["plan", RECIPE, "m.onnx"]
        case 1:
            return ["fmt", RECIPE]
        case _:
            return ["check", RECIPE]


def grammatical(chance: random.Random, given: Stock, folder: Path) -> list[str]:
    """A recipe drawn from the grammar."""
    return _recipe(drawn_recipe(chance).encode(), chance, given, folder)


def spelt(chance: random.Random, given: Stock, folder: Path) -> list[str]:
    """A recipe with other bytes."""
    text = in_bytes(chance, chance.choice(given.recipes), given.recipes)
    return _recipe(text, chance, given, folder)


def _command(chance: random.Random, model: str) -> list[str]:
    plan = ["plan", "-e", chance.choice(STATEMENTS), model]
    apply = ["apply", *plan[1:], "-o", f"wide{Path(model).suffix}"]
    return chance.choice((["inspect", model], plan, plan, [*apply, "--no-verify"], apply))


def onnx_bytes(chance: random.Random, given: Stock, folder: Path) -> list[str]:
    """An ONNX file with other bytes."""
    models = [*given.models.values(), *given.odd]
    (folder / "m.onnx").write_bytes(in_bytes(chance, chance.choice(models), models))
    return _command(chance, "m.onnx")


def onnx_structure(chance: random.Random, given: Stock, folder: Path) -> list[str]:
    """An ONNX file whose protobuf has other fields."""
    model = onnx.load_from_string(chance.choice([*given.models.values()]))
    in_message(chance, model)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return _command(chance, "m.onnx")


@cache
def _inputs() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, tokens=np.arange(8), x=np.ones((2, 8), np.float32))
    return buffer.getvalue()


def arrays(chance: random.Random, given: Stock, folder: Path) -> list[str]:
    """A `.npz` file beside a good model."""
    (folder / "m.onnx").write_bytes(given.models["stream"])
    (folder / "inputs.npz").write_bytes(in_archive(chance, _inputs()))
    statements = ["plan", "-e", IMPORTANCE, "m.onnx"]
    return chance.choice((statements, ["verify", "m.onnx", "m.onnx", "--inputs", "inputs.npz"]))


def _checkpoint(
    chance: random.Random, given: Stock, folder: Path, form: str, name: str, change: Callable[..., bytes]
) -> list[str]:
    shutil.copytree(given.checkpoints / form, folder / "m")
    path = folder / "m" / name
    path.write_bytes(change(chance, path.read_bytes()))
    return chance.choice((bad_checkpoints.PLAN, bad_checkpoints.APPLY, ["inspect", "m"]))


def safetensors(chance: random.Random, given: Stock, folder: Path) -> list[str]:
    """A directory whose file of tensors has other bytes, most of them in its header."""

    def headed(chance: random.Random, data: bytes) -> bytes:
        length = int.from_bytes(data[:8], "little")
        change = chance.choice((in_json, in_bytes))
        header = change(chance, data[8 : 8 + length])
        return len(header).to_bytes(8, "little") + header + data[8 + length :]

    change = headed if chance.randrange(3) else in_bytes
    return _checkpoint(chance, given, folder, "plain", "model.safetensors", change)


def json(chance: random.Random, given: Stock, folder: Path) -> list[str]:
    """A directory with another config, or another index of its shards."""
    form, name = chance.choice(
        (("plain", "config.json"), ("shards", "model.safetensors.index.json"), ("shards", "config.json"))
    )
    return _checkpoint(chance, given, folder, form, name, in_json if chance.randrange(4) else in_bytes)


def programs(chance: random.Random, given: Stock, folder: Path) -> list[str]:
    """A `.pt2` program of which members are changed."""
    (folder / "m.pt2").write_bytes(in_archive(chance, (given.checkpoints / "m.pt2").read_bytes()))
    return _command(chance, "m.pt2")


@dataclass(frozen=True)
class Kind:
    """Makes cases; `whole` is how many a full run judges, `seconds` the processor time that each may take."""

    make: Maker
    whole: int
    seconds: int = 10


EXPORTED = 40
"""Seconds, where a directory that is still good is grown and verified: PyTorch exports it to ONNX twice."""

KINDS = {
    "recipe-grammar": Kind(grammatical, 60_000),
    "recipe-bytes": Kind(spelt, 40_000),
    "onnx-structure": Kind(onnx_structure, 9_500),
    "onnx-bytes": Kind(onnx_bytes, 5_500),
    "npz": Kind(arrays, 3_000),
    "safetensors": Kind(safetensors, 1_000, EXPORTED),
    "json": Kind(json, 1_000, EXPORTED),
    "pt2": Kind(programs, 500),
}
