"""A recipe for a model, drawn from what the language allows and `inspect` finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

FILLS = {
    "cyclic copy": 8,
    "neighbor copy": 5,
    "tail copy": 4,
    "last copy": 3,
    "uniform copy": 5,
    "average fill": 5,
    "zero fill": 7,
    "random fill": 1,
}
VERBS = {
    "widen": 44,
    "stack": 14,
    "arrange": 9,
    "reorder": 10,
    "subclone": 4,
    "drop": 2,
    "merge": 2,
    "untie": 4,
    "upcycle": 5,
    "anonymous": 14,
}
NUMBERED = ("vocab", "positions")
ZEROED = ("ffn", "heads", "experts", "channels")


@dataclass(frozen=True)
class Seen:
    """Results of the analysis: sizes of named axes, layers of each run, parts, and weights by shape."""

    axes: Mapping[str, Sequence[int]]
    layers: Sequence[int]
    scopes: Sequence[str]
    weights: Mapping[str, Sequence[int]]
    tied: bool = False


def recipe(seed: int, seen: Seen) -> str:
    """One to three statements."""
    pick = Random(f"recipe {seed}")
    count = pick.choices([1, 2, 3], [60, 28, 12])[0]
    lines: list[str] = []
    while len(lines) < count:
        verb = pick.choices(list(VERBS), list(VERBS.values()))[0]
        line = _statement(pick, verb, seen)
        if line and line not in lines:
            lines.append(line)
        elif pick.random() < 0.1:
            break
    return "\n".join(lines or ["untie head"])


def _statement(pick: Random, verb: str, seen: Seen) -> str:
    if verb in ("stack", "arrange", "drop", "merge"):
        return _depth(pick, verb, seen)
    if verb == "untie":
        return "untie head" if seen.tied or pick.random() < 0.1 else ""
    if verb == "upcycle":
        return _upcycled(pick) if "ffn" in seen.axes else ""
    if verb == "anonymous":
        names = [name for name, shape in seen.weights.items() if shape]
        if not names:
            return ""
        name = pick.choice(names)
        axis = pick.randrange(len(seen.weights[name]))
        kind = "reorder" if pick.random() < 0.15 else "widen"
        return _width(pick, kind, f'axis {axis} of "{name}"', [seen.weights[name][axis]])
    fixed = ("layers", *NUMBERED) if verb in ("subclone", "reorder") else ("layers",)
    names = [name for name in seen.axes if name not in fixed]
    if not names:
        return ""
    weights = [6 if name in ("hidden", "ffn", "channels") else 3 for name in names]
    name = pick.choices(names, weights)[0]
    line = _width(pick, verb, name, seen.axes[name])
    if name not in ("hidden", *NUMBERED) and seen.layers and pick.random() < 0.12:
        first = pick.randrange(max(seen.layers))
        return f"in layers {first}..{first + 1} {{ {line} }}"
    if seen.scopes and pick.random() < 0.3:
        return f"in {pick.choice(list(seen.scopes))} {{ {line} }}"
    return line


def _upcycled(pick: Random) -> str:
    count = pick.choice([1, 2, 3, 4])
    noise = " noise 0.1" if pick.random() < 0.2 else ""
    fill = pick.choice([fill for fill in FILLS if fill.endswith("copy")])
    top = pick.randint(1, count)
    noise += " reset 0.5" if pick.random() < 0.2 else ""
    if pick.random() < 0.3:
        return f"upcycle ffn to experts {2 * count} top {2 * top} with {fill}{noise} in 2 parts"
    return f"upcycle ffn to experts {count} top {top} with {fill}{noise}"


def _width(pick: Random, verb: str, name: str, sizes: Sequence[int]) -> str:
    if verb == "subclone":
        ranking = pick.choice(["magnitude", "even", "first", "random seed 3"])
        option = pick.choice(["", " unscaled", " rescaled", " rescaled in norms"])
        half = max(1, sizes[0] // 2) if len(set(sizes)) == 1 else 1
        return f"subclone {name} to {half} by {ranking}{option if name in ('hidden', 'ffn', 'heads') else ''}"
    if verb == "reorder":
        return f"reorder {name} by {pick.choice(['magnitude', f'random seed {pick.randrange(9)}'])}"
    fill = pick.choices(list(FILLS), list(FILLS.values()))[0]
    if len(set(sizes)) > 1:
        size = f"{pick.choice([2, 3])} * {name}"
    else:
        d = sizes[0]
        whole, more = pick.choice([2, 2, 3]) * d, d + pick.choice([1, 2, 2, 3, 4])
        size = str(whole if pick.random() < 0.6 or fill == "cyclic copy" else more)
    return f"widen {name} to {size} with {fill}{_options(pick, name, fill)}"


def _options(pick: Random, name: str, fill: str) -> str:
    options = ""
    copies = fill.endswith("copy")
    if copies and pick.random() < 0.25 and name not in NUMBERED:
        options += " split random"
    if copies and pick.random() < 0.2 and name not in NUMBERED:
        options += " noise 0.1 balanced"
    elif pick.random() < 0.01:
        options += " noise 0.1"
    if not options and (name in ZEROED or name.startswith("axis")) and pick.random() < 0.15:
        options += " with zero outputs"
    if copies and pick.random() < 0.05 and name in ("ffn", "hidden", "heads"):
        options += " from next layer"
    if copies and pick.random() < 0.03 and name == "hidden":
        options += " plain"
    if name == "experts" and pick.random() < 0.6:
        options += f" top {pick.choice([1, 2, 2, 3, 4])}"
    if name in ("hidden", "ffn") and pick.random() < 0.06:
        options += " in blocks of 2"
    return options + (f" seed {pick.randrange(1, 99)}" if pick.random() < 0.3 else "")


def _depth(pick: Random, verb: str, seen: Seen) -> str:
    counts = [count for count in seen.layers if count]
    if not counts:
        return ""
    layers = max(counts)
    zero = " with zero outputs" if pick.random() < 0.85 else ""
    if verb == "merge":
        count = seen.axes.get("experts", (1,))[0]
        if count > 1 and pick.random() < 0.5:
            return f"merge experts to {pick.choice([n for n in range(1, count) if not count % n])} by mean"
        first = pick.randrange(layers)
        return f"merge layers {first}..{min(layers, first + 2)} by mean"
    if verb == "drop":
        return f"drop layers {pick.randrange(layers)}" if layers > 1 else ""
    if verb == "arrange":
        numbers = list(range(layers)) + [pick.randrange(layers) for _ in range(pick.choice([1, 2]))]
        if pick.random() < 0.6:
            numbers.sort()
        return f"arrange layers as {', '.join(map(str, numbers))}{zero}"
    order = pick.choice(["whole", "last", "each", "middle", f"top {pick.randint(1, layers)}"])
    return f"stack layers to {layers + pick.randint(1, 3)} by {order}{zero}"
