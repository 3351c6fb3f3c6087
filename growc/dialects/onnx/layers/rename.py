"""Names of layers by their number.

`h.3.mlp.c_fc.weight` of the fourth layer becomes `h.12.mlp.c_fc.weight` in the thirteenth; `past6` and
`past7` become `past24` and `past25`.

Names are labels and decide nothing: if no number in them follows the layers, copies get a suffix. A run may
stand in several lists, one behind the other, each with its own numbers. If nothing follows all of its layers,
the number of a layer is the last one that most names of its tensors have, and no others.
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
    """Layers with numbers in one list.

    first: the first of these layers. numbers: the numbers of each layer. order: for each layer of the result,
    the source's layer.
    """

    first: int
    numbers: list[set[int]]
    order: Sequence[int]

    def __contains__(self, layer: int) -> bool:
        """Whether a layer is one of them."""
        return self.first <= layer < self.first + len(self.numbers)

    def moved(self, number: int, layer: int, place: int) -> int:
        """Return a number of `layer` once that stands at `place`: layer by layer, or kind by kind."""
        index = self._places[place]
        if self._is_in_blocks:
            return number + len(self.numbers[0]) * (index - (layer - self.first))
        first = min(self.numbers[0])
        return first + (number - first) // len(self.numbers) * len(self._places) + index

    def behind(self, number: int) -> int | None:
        """Return the new number of an item behind all layers; None if it is not behind them."""
        more = len(self._places) - len(self.numbers)
        return number + len(self.numbers[0]) * more if number > self._last else None

    @cached_property
    def _places(self) -> Mapping[int, int]:
        """The places of these layers in the result, each with its index among them."""
        return {place: k for k, place in enumerate(p for p, layer in enumerate(self.order) if layer in self)}

    @cached_property
    def _is_in_blocks(self) -> bool:
        return _in_blocks(self.numbers)

    @cached_property
    def _last(self) -> int:
        return max(map(max, self.numbers))


class Numbering:
    """The new names of a run's layers.

    Needs: the names in each layer; for each layer of the result, the source's layer; names of stored tensors,
    by layer and elsewhere. Gives: `rename`.
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
        """Return a name of `layer` for its place in the result; None if no number in it follows layers."""
        for before, number, rest in self._numbered(name, layer)[:1]:
            return f"{before}{self.lists[before].moved(number, layer, place)}{rest}"
        return None

    def behind(self, name: str) -> str | None:
        """Return the name of an item behind all layers in one list with them; None for other items."""
        for before, number, rest in _parts(name):
            moved = self.lists[before].behind(number) if before in self.lists else None
            if moved is not None:
                return f"{before}{moved}{rest}"
        return None

    def _numbered(self, name: str, layer: int) -> list[tuple[str, int, str]]:
        """Return the parts of a name of `layer` at numbers that follow the layers."""
        return [part for part in _parts(name) if part[0] in self.lists and layer in self.lists[part[0]]]


def _parts(name: str) -> list[tuple[str, int, str]]:
    """Return, for each number in a name: the text before it, the number, the text behind it."""
    matches = re.finditer(r"\d+", name)
    return [(name[: match.start()], int(match.group()), name[match.end() :]) for match in matches]


def _numbers(names: Sequence[frozenset[str]]) -> dict[str, list[set[int]]]:
    """Return the text before each number that follows the layers, with the numbers of each layer.

    Among the names with this text before the number, each layer has as many numbers: one block, or one of
    every block.
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
    """Return the lists that contain the layers one behind the other, by the text before the numbers."""
    lists: dict[str, Listed] = {}
    everywhere = _prefixes(chain(others, *own))
    for layer, names in enumerate(own):
        before, number = _number(names, everywhere)
        listed = lists.setdefault(before, Listed(layer, [], order))
        if layer == listed.first + len(listed.numbers):
            listed.numbers.append({number})
    return {before: listed for before, listed in lists.items() if before and _in_blocks(listed.numbers)}


def _number(own: Collection[str], everywhere: Mapping[str, int]) -> tuple[str, int]:
    """Return the last number that most of a layer's tensors have and no others, with the text before it."""
    counts = _prefixes(own)
    common = [p for p, n in counts.items() if 2 * n > len(own) and n == max(counts.values())]
    for prefix in sorted(common, key=len, reverse=True):
        if everywhere[prefix] == counts[prefix]:
            before = prefix.rstrip("0123456789")
            return before, int(prefix.removeprefix(before))
    return "", 0


def _prefixes(names: Iterable[str]) -> Counter[str]:
    """Count the names by each prefix that ends in a number of a dotted name."""
    return Counter(name[: match.end()] for name in names for match in re.finditer(r"\d+(?=\.)", name))


def _in_blocks(sets: Sequence[set[int]]) -> bool:
    stride, first = len(sets[0]), min(sets[0], default=0)
    blocks = [set(range(first + k * stride, first + (k + 1) * stride)) for k in range(len(sets))]
    return stride > 0 and list(sets) == blocks


def _in_turns(sets: Sequence[set[int]]) -> bool:
    """Whether numbers count kinds first: `norms.0` and `norms.2` belong to the first of two layers."""
    count, first = len(sets), min(sets[0], default=0)
    turns = [set(range(first + k, first + k + count * len(sets[0]), count)) for k in range(count)]
    return bool(sets[0]) and list(sets) == turns
