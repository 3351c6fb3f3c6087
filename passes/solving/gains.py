"""Gains behind mean units: what stands in front of them can be made for them.

Needs: the links of one statement. Gives: for a gain, its stored tensor, if the state in front of it is made
by weights for this gain alone. A mean unit behind the gain is the mean of products, and so is a row of these
weights that is a mean of rows times elements of the gain; the gain itself is one there (docs/theory.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from growc.ir.graph import Value
from growc.ir.lowered_statement import Request
from growc.passes.solving.constraints import Links, Var


class Gains:
    """`changed`: uses of weights that earlier statements have changed; `quantised`: classes of integers."""

    def __init__(self, links: Links, changed: Collection[Value], quantised: Collection[Var]) -> None:
        self.links, self.changed, self.quantised = links, changed, quantised
        self.members = Counter(links.root(v) for v in range(len(links.atoms)))
        self.touches = Counter(
            links.root(v)
            for link in links.links
            for v in (*link.sources, *(link.targets if link.kind != "make" else ()))
        )

    def weighing(self, scaled: Var, gain: Var, request: Request | None) -> str:
        """The name of the tensor, which has a plain element for each unit; empty where there is none."""
        root, other = self.links.root(scaled), self.links.root(gain)
        value = self.links.owner[gain]
        weight = None if value is None else value.weight
        alone = self.touches[root] == 1 and self.touches[other] == 1 and self.members[other] == 1
        if weight is None or request is None or not alone or value in self.changed or weight.computed:
            return ""
        integers = root in self.quantised or other in self.quantised
        plain = request.unit == 1 and weight.elements == request.map.source
        return weight.name if plain and not integers else ""
