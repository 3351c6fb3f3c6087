"""Names of layers by their number: `h.3.mlp.c_fc.weight` of the fourth layer is `h.12.mlp.c_fc.weight` in the
thirteenth, and of `past6` and `past7` it is `past24` and `past25`.

Names label, they decide nothing: where no number is found that goes with the layers, copies get a suffix. Of
a layer that stands alone it is the last number that most names of its tensors have and no others.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence


class Numbering:
    """Needs: the names in each layer of a run, the number of layers of the result; of stored tensors, those
    in the run and those elsewhere. Gives: `rename`.
    """

    def __init__(
        self, names: Sequence[frozenset[str]], count: int, own: Collection[str], others: Collection[str]
    ) -> None:
        self.layers, self.count = len(names), count
        self.numbers = _numbers(names) if len(names) > 1 else _number(own, others)
        self.in_blocks = {before for before, numbers in self.numbers.items() if _in_blocks(numbers)}

    def rename(self, name: str, layer: int, place: int) -> str | None:
        """The name, which is one of `layer`, in the layer that stands at `place`; None where no number in it
        goes with the layers.
        """
        for found in re.finditer(r"\d+", name):
            before = name[: found.start()]
            if before in self.numbers:
                number = self.moved(before, int(found.group()), layer, place)
                return f"{before}{number}{name[found.end() :]}"
        return None

    def behind(self, name: str) -> str | None:
        """The name of what stands behind all layers in one list with them; None of what does not."""
        for found in re.finditer(r"\d+", name):
            numbers = self.numbers.get(name[: found.start()])
            if numbers is not None and int(found.group()) > max(map(max, numbers)):
                number = int(found.group()) + len(numbers[0]) * (self.count - self.layers)
                return f"{name[: found.start()]}{number}{name[found.end() :]}"
        return None

    def moved(self, before: str, number: int, layer: int, place: int) -> int:
        """A number of `layer`, behind this text, at `place`: layer by layer, or kind by kind."""
        stride, first = len(self.numbers[before][0]), min(self.numbers[before][0])
        if before in self.in_blocks:
            return number + stride * (place - layer)
        return first + (number - first) // self.layers * self.count + place


def _numbers(names: Sequence[frozenset[str]]) -> dict[str, list[set[int]]]:
    """What stands before a number that goes with the layers, and the numbers of each layer.

    Of all names that begin so, each layer has as many numbers: one block of them, or one of every block.
    """
    seen: Mapping[str, list[set[int]]] = defaultdict(lambda: [set() for _ in names])
    for layer, own in enumerate(names):
        for name in own:
            for found in re.finditer(r"\d+", name):
                seen[name[: found.start()]][layer].add(int(found.group()))
    return {p: sets for p, sets in seen.items() if _in_blocks(sets) or _in_turns(sets)}


def _number(own: Collection[str], others: Collection[str]) -> dict[str, list[set[int]]]:
    """The same for one layer: what stands before the last number that most of its tensors have, and no
    others.
    """
    counts = Counter(name[: found.end()] for name in own for found in re.finditer(r"\d+(?=\.)", name))
    common = [p for p, n in counts.items() if 2 * n > len(own) and n == max(counts.values())]
    for prefix in sorted(common, key=len, reverse=True):
        if not any(name.startswith(f"{prefix}.") for name in others):
            before = prefix.rstrip("0123456789")
            return {before: [{int(prefix.removeprefix(before))}]}
    return {}


def _in_blocks(sets: Sequence[set[int]]) -> bool:
    stride, first = len(sets[0]), min(sets[0], default=0)
    blocks = [set(range(first + k * stride, first + (k + 1) * stride)) for k in range(len(sets))]
    return stride > 0 and list(sets) == blocks


def _in_turns(sets: Sequence[set[int]]) -> bool:
    """Whether numbers go with the kinds first, as of `norms.0` and `norms.2` in the first of two layers."""
    count, first = len(sets), min(sets[0], default=0)
    turns = [set(range(first + k, first + k + count * len(sets[0]), count)) for k in range(count)]
    return bool(sets[0]) and list(sets) == turns
