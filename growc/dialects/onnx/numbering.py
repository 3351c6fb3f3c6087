"""Names of layers by their number: `h.3.mlp.c_fc.weight` of the fourth layer is `h.12.mlp.c_fc.weight` in the
thirteenth.

Names label, they decide nothing: where no number is found that goes with the layers, copies get a suffix.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence


class Numbering:
    """Needs: the names in each layer of a run. Gives: `rename`."""

    def __init__(self, names: Sequence[frozenset[str]]) -> None:
        self.offsets = _offsets(names)

    def rename(self, name: str, number: int) -> str | None:
        """The name in the layer of that number; None where it has no number of a layer."""
        for found in re.finditer(r"\d+", name):
            offset = self.offsets.get(name[: found.start()])
            if offset is not None:
                return f"{name[: found.start()]}{number + offset}{name[found.end() :]}"
        return None


def _offsets(names: Sequence[frozenset[str]]) -> dict[str, int]:
    """What stands before a layer's number, and what number the first layer has.

    Every name that begins so has the number of its layer, in every layer.
    """
    seen: Mapping[str, list[set[int]]] = defaultdict(lambda: [set() for _ in names])
    for layer, own in enumerate(names):
        for name in own:
            for found in re.finditer(r"\d+", name):
                seen[name[: found.start()]][layer].add(int(found.group()))
    offsets = {}
    for prefix, numbers in seen.items():
        apart = {min(found) - layer for layer, found in enumerate(numbers) if found}
        if len(apart) == 1 and len(names) > 1 and all(len(found) == 1 for found in numbers):
            offsets[prefix] = apart.pop()
    return offsets
