"""Names of layers by their number: `h.3.mlp.c_fc.weight` of the fourth layer is `h.12.mlp.c_fc.weight` in the
thirteenth, and of `past6` and `past7` it is `past24` and `past25`.

Names label, they decide nothing: where no number is found that goes with the layers, copies get a suffix.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence


class Numbering:
    """Needs: the names in each layer of a run. Gives: `rename`."""

    def __init__(self, names: Sequence[frozenset[str]]) -> None:
        self.strides = _strides(names)

    def rename(self, name: str, layer: int, place: int) -> str | None:
        """The name, which is one of `layer`, in the layer that stands at `place`; None where no number in it
        goes with the layers.
        """
        for found in re.finditer(r"\d+", name):
            stride = self.strides.get(name[: found.start()])
            if stride is not None:
                number = int(found.group()) + stride * (place - layer)
                return f"{name[: found.start()]}{number}{name[found.end() :]}"
        return None


def _strides(names: Sequence[frozenset[str]]) -> dict[str, int]:
    """What stands before a number that goes with the layers, and by how much it grows from one to the next.

    Of all names that begin so, each layer has as many numbers, without a hole from the first to the last.
    """
    seen: Mapping[str, list[set[int]]] = defaultdict(lambda: [set() for _ in names])
    for layer, own in enumerate(names):
        for name in own:
            for found in re.finditer(r"\d+", name):
                seen[name[: found.start()]][layer].add(int(found.group()))
    return {prefix: len(sets[0]) for prefix, sets in seen.items() if len(names) > 1 and _in_blocks(sets)}


def _in_blocks(sets: Sequence[set[int]]) -> bool:
    stride, first = len(sets[0]), min(sets[0], default=0)
    blocks = [set(range(first + k * stride, first + (k + 1) * stride)) for k in range(len(sets))]
    return stride > 0 and list(sets) == blocks
