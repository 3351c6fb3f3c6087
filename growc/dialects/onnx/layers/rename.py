"""Names of layers by their number: `h.3.mlp.c_fc.weight` of the fourth layer is `h.12.mlp.c_fc.weight` in the
thirteenth, and of `past6` and `past7` it is `past24` and `past25`.

Names label, they decide nothing: where no number is found that goes with the layers, copies get a suffix. A
run may stand in several lists, one behind the other, each with numbers of its own. Where nothing goes with
all of its layers, the number of one is the last that most names of its tensors have and no others.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Listed:
    """Layers with numbers in one list. first: the first of them; numbers: those of each, layer by layer."""

    first: int
    numbers: Sequence[set[int]]

    def __contains__(self, layer: int) -> bool:
        """Whether it is one of them."""
        return self.first <= layer < self.first + len(self.numbers)


class Numbering:
    """Needs: the names in each layer of a run, for each layer of the result the one that it comes from; names
    of stored tensors, by layer and of those elsewhere. Gives: `rename`.
    """

    def __init__(
        self,
        names: Sequence[frozenset[str]],
        order: Sequence[int],
        own: Sequence[Collection[str]],
        others: Collection[str],
    ) -> None:
        self.order = order
        self.lists = {before: Listed(0, sets) for before, sets in _numbers(names).items()}
        unnumbered = not any(self._listed(name, i) for i, stored in enumerate(own) for name in stored)
        self.lists |= _lists(own, others) if unnumbered else {}

    def rename(self, name: str, layer: int, place: int) -> str | None:
        """The name, which is one of `layer`, in the layer that stands at `place`; None where no number in it
        goes with the layers.
        """
        for before, number, rest in _parts(name):
            if before in self.lists and layer in self.lists[before]:
                return f"{before}{self.moved(self.lists[before], number, layer, place)}{rest}"
        return None

    def behind(self, name: str) -> str | None:
        """The name of what stands behind all layers in one list with them; None of what does not."""
        for before, number, rest in _parts(name):
            listed = self.lists.get(before)
            if listed is not None and number > max(map(max, listed.numbers)):
                more = len(self.placed(listed)) - len(listed.numbers)
                return f"{before}{number + len(listed.numbers[0]) * more}{rest}"
        return None

    def placed(self, listed: Listed) -> list[int]:
        """Where layers of a list stand in the result."""
        return [place for place, layer in enumerate(self.order) if layer in listed]

    def moved(self, listed: Listed, number: int, layer: int, place: int) -> int:
        """A number of `layer`, in this list, at `place`: layer by layer, or kind by kind."""
        numbers, placed = listed.numbers, self.placed(listed)
        stride, first, now = len(numbers[0]), min(numbers[0]), placed.index(place)
        if _in_blocks(numbers):
            return number + stride * (now - (layer - listed.first))
        return first + (number - first) // len(numbers) * len(placed) + now

    def _listed(self, name: str, layer: int) -> bool:
        return any(before in self.lists and layer in self.lists[before] for before, _, _ in _parts(name))


def _parts(name: str) -> list[tuple[str, int, str]]:
    """For each number in a name: what stands before it, the number, what stands behind it."""
    found = re.finditer(r"\d+", name)
    return [(name[: one.start()], int(one.group()), name[one.end() :]) for one in found]


def _numbers(names: Sequence[frozenset[str]]) -> dict[str, list[set[int]]]:
    """What stands before a number that goes with the layers, and the numbers of each layer.

    Of all names that begin so, each layer has as many numbers: one block of them, or one of every block.
    """
    seen: Mapping[str, list[set[int]]] = defaultdict(lambda: [set() for _ in names])
    for layer, own in enumerate(names):
        for name in own:
            for before, number, _ in _parts(name):
                seen[before][layer].add(number)
    several = seen if len(names) > 1 else {}
    return {p: sets for p, sets in several.items() if _in_blocks(sets) or _in_turns(sets)}


def _lists(own: Sequence[Collection[str]], others: Collection[str]) -> dict[str, Listed]:
    """The lists that layers stand in, by what stands before the numbers: one layer behind the other."""
    found: dict[str, Listed] = {}
    for layer, names in enumerate(own):
        before, number = _number(names, {*others, *(n for o in own if o is not names for n in o)})
        if before not in found:
            found[before] = Listed(layer, [])
        listed = found[before]
        if layer == listed.first + len(listed.numbers):
            found[before] = Listed(listed.first, [*listed.numbers, {number}])
    return {before: listed for before, listed in found.items() if before and _in_blocks(listed.numbers)}


def _number(own: Collection[str], others: Collection[str]) -> tuple[str, int]:
    """The last number that most of a layer's tensors have, and no others, behind what stands before it."""
    counts = Counter(name[: found.end()] for name in own for found in re.finditer(r"\d+(?=\.)", name))
    common = [p for p, n in counts.items() if 2 * n > len(own) and n == max(counts.values())]
    for prefix in sorted(common, key=len, reverse=True):
        if not any(name.startswith(f"{prefix}.") for name in others):
            before = prefix.rstrip("0123456789")
            return before, int(prefix.removeprefix(before))
    return "", 0


def _in_blocks(sets: Sequence[set[int]]) -> bool:
    stride, first = len(sets[0]), min(sets[0], default=0)
    blocks = [set(range(first + k * stride, first + (k + 1) * stride)) for k in range(len(sets))]
    return stride > 0 and list(sets) == blocks


def _in_turns(sets: Sequence[set[int]]) -> bool:
    """Whether numbers go with the kinds first, as of `norms.0` and `norms.2` in the first of two layers."""
    count, first = len(sets), min(sets[0], default=0)
    turns = [set(range(first + k, first + k + count * len(sets[0]), count)) for k in range(count)]
    return bool(sets[0]) and list(sets) == turns
