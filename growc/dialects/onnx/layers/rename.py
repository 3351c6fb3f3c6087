"""Names of layers by their number: `h.3.mlp.c_fc.weight` of the fourth layer is `h.12.mlp.c_fc.weight` in the
thirteenth, and of `past6` and `past7` it is `past24` and `past25`.

Names label, they decide nothing: where no number is found that goes with the layers, copies get a suffix. A
run may stand in several lists, one behind the other, each with numbers of its own. Where nothing goes with
all of its layers, the number of one is the last that most names of its tensors have and no others.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain


@dataclass(frozen=True)
class Listed:
    """Layers with numbers in one list. first: the first of them; numbers: those of each, layer by layer;
    order: for each layer of the result the one that it comes from.
    """

    first: int
    numbers: list[set[int]]
    order: Sequence[int]

    def __contains__(self, layer: int) -> bool:
        """Whether it is one of them."""
        return self.first <= layer < self.first + len(self.numbers)

    def moved(self, number: int, layer: int, place: int) -> int:
        """A number of `layer` where that stands at `place`: layer by layer, or kind by kind."""
        now = self._places[place]
        if self._is_in_blocks:
            return number + len(self.numbers[0]) * (now - (layer - self.first))
        first = min(self.numbers[0])
        return first + (number - first) // len(self.numbers) * len(self._places) + now

    def behind(self, number: int) -> int | None:
        """A number behind those of all layers; None of one that is not."""
        more = len(self._places) - len(self.numbers)
        return number + len(self.numbers[0]) * more if number > self._last else None

    @cached_property
    def _places(self) -> Mapping[int, int]:
        """Where these layers stand in the result, and the how manyth of them each is."""
        return {place: k for k, place in enumerate(p for p, layer in enumerate(self.order) if layer in self)}

    @cached_property
    def _is_in_blocks(self) -> bool:
        return _in_blocks(self.numbers)

    @cached_property
    def _last(self) -> int:
        return max(map(max, self.numbers))


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
        self.lists = {before: Listed(0, sets, order) for before, sets in _numbers(names).items()}
        stored = ((name, layer) for layer, tensors in enumerate(own) for name in tensors)
        if not any(self._numbered(name, layer) for name, layer in stored):
            self.lists |= _lists(own, others, order)

    def rename(self, name: str, layer: int, place: int) -> str | None:
        """The name, which is one of `layer`, in the layer that stands at `place`; None where no number in it
        goes with the layers.
        """
        for before, number, rest in self._numbered(name, layer)[:1]:
            return f"{before}{self.lists[before].moved(number, layer, place)}{rest}"
        return None

    def behind(self, name: str) -> str | None:
        """The name of what stands behind all layers in one list with them; None of what does not."""
        for before, number, rest in _parts(name):
            moved = self.lists[before].behind(number) if before in self.lists else None
            if moved is not None:
                return f"{before}{moved}{rest}"
        return None

    def _numbered(self, name: str, layer: int) -> list[tuple[str, int, str]]:
        """The parts of a name of `layer` at numbers that go with the layers."""
        return [part for part in _parts(name) if part[0] in self.lists and layer in self.lists[part[0]]]


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


def _lists(
    own: Sequence[Collection[str]], others: Collection[str], order: Sequence[int]
) -> dict[str, Listed]:
    """The lists that layers stand in, by what stands before the numbers: one layer behind the other."""
    found: dict[str, Listed] = {}
    everywhere = _prefixes(chain(others, *own))
    for layer, names in enumerate(own):
        before, number = _number(names, everywhere)
        listed = found.setdefault(before, Listed(layer, [], order))
        if layer == listed.first + len(listed.numbers):
            listed.numbers.append({number})
    return {before: listed for before, listed in found.items() if before and _in_blocks(listed.numbers)}


def _number(own: Collection[str], everywhere: Mapping[str, int]) -> tuple[str, int]:
    """The last number that most of a layer's tensors have, and no others, behind what stands before it."""
    counts = _prefixes(own)
    common = [p for p, n in counts.items() if 2 * n > len(own) and n == max(counts.values())]
    for prefix in sorted(common, key=len, reverse=True):
        if everywhere[prefix] == counts[prefix]:
            before = prefix.rstrip("0123456789")
            return before, int(prefix.removeprefix(before))
    return "", 0


def _prefixes(names: Iterable[str]) -> Counter[str]:
    """How many names begin with each number of a part, and all before it."""
    return Counter(name[: found.end()] for name in names for found in re.finditer(r"\d+(?=\.)", name))


def _in_blocks(sets: Sequence[set[int]]) -> bool:
    stride, first = len(sets[0]), min(sets[0], default=0)
    blocks = [set(range(first + k * stride, first + (k + 1) * stride)) for k in range(len(sets))]
    return stride > 0 and list(sets) == blocks


def _in_turns(sets: Sequence[set[int]]) -> bool:
    """Whether numbers go with the kinds first, as of `norms.0` and `norms.2` in the first of two layers."""
    count, first = len(sets), min(sets[0], default=0)
    turns = [set(range(first + k, first + k + count * len(sets[0]), count)) for k in range(count)]
    return bool(sets[0]) and list(sets) == turns
