"""What is known of classes of variables before anything is solved.

Needs: links, and which values are weights or their layouts. Gives: `Classes`, which says of each class what
makes and reads it: who may determine its state, and in which form.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from growc.ir.graph import Value
from growc.ir.walk import walk
from growc.passes.solving.constraints import Link, Links, Var

SCALING = ("product", "quotient")


@dataclass
class Classes:
    """Facts by the root of each class."""

    free: dict[Var, bool] = field(default_factory=lambda: defaultdict(lambda: True))
    """Whether only weights stand in it."""
    quantised: set[Var] = field(default_factory=set)
    """With weights that are integers and scales."""
    normed: set[Var] = field(default_factory=set)
    """Read by a norm, or an output."""
    rms: set[Var] = field(default_factory=set)
    """Read by a norm over squares without a mean, or by what passes factors on to one."""
    partners: dict[Var, list[Var]] = field(default_factory=lambda: defaultdict(list))
    """The classes that it is contracted with."""
    contracted: set[Var] = field(default_factory=set)
    """Of activations that are contracted with each other."""
    members: Counter[Var] = field(default_factory=Counter)
    """How many variables it has."""
    touches: Counter[Var] = field(default_factory=Counter)
    """How many links it is a source or a target of."""


def classes_of(links: Links, carriers: set[Value]) -> Classes:
    """The facts. `carriers`: weights and their layouts."""
    found = Classes()
    for var, owner in enumerate(links.owner):
        root = links.root(var)
        found.free[root] = found.free[root] and owner is not None and owner in carriers
        found.members[root] += 1
        weight = None if owner is None else owner.weight
        if weight is not None and (weight.stored is not None or not weight.floating):
            found.quantised.add(root)
    for link in links.links:
        touched = (*link.sources, *(link.targets if link.kind != "make" else ()))
        found.touches.update(links.root(v) for v in touched)
        if link.kind in ("norm", "output"):
            found.normed.update(links.root(v) for v in link.sources)
        if link.formula is not None and not link.formula.centred and link.formula.power == 2:
            found.rms.update(links.root(v) for v in link.sources)
        if link.kind == "pair":
            a, b = (links.root(v) for v in link.sources)
            found.partners[a].append(b)
            found.partners[b].append(a)
    _spread_rms(links, found)
    found.contracted = _contracted(links, found, carriers)
    return found


def _spread_rms(links: Links, classes: Classes) -> None:
    """What passes factors on to an RMS norm is read by it: a state may be scaled in front of both. Of a
    product that is the factor which weights make and nothing else reads.
    """
    made: set[Var] = set()
    bent: set[Var] = set()
    for link in links.links:
        made.update(links.root(t) for t in link.targets if link.kind != "make")
        if link.kind == "pointwise" and not link.homogeneous:
            bent.update(links.root(v) for v in link.sources)
    for link in reversed(links.links):
        roots = [links.root(v) for v in link.sources]
        if not any(links.root(t) in classes.rms for t in link.targets):
            continue
        if link.kind == "pointwise" and link.homogeneous:
            classes.rms.update(roots)
        elif link.kind == "product" and not any(classes.free[r] for r in roots):
            classes.rms.update([r for r in roots if r not in made | bent][:1])


def _contracted(links: Links, classes: Classes, carriers: set[Value]) -> set[Var]:
    """Classes of activations that are contracted with each other, and what these are made from.

    Such states must pair, and no weight stands between to settle it: where nothing else determines them,
    both are isometries. A product with a table (rotary) or a gain passes the choice on to what it scales.
    """
    makers: dict[Var, list[Link]] = defaultdict(list)
    pending: list[Var] = []
    for link in links.links:
        roots = [links.root(v) for v in link.sources]
        owners = [links.owner[v] for v in link.sources]
        if link.kind == "pair" and not any(o in carriers for o in owners):
            pending += roots
        if link.kind != "make":
            for target in link.targets:
                makers[links.root(target)].append(link)

    def scaled(root: Var) -> Iterator[Var]:
        for link in makers[root]:
            sources = [links.root(v) for v in link.sources if link.kind in SCALING]
            free = [r for r in sources if all(m.kind in SCALING for m in makers[r])]
            yield from [r for r in free if not classes.free[r]][:1]

    return set(walk(pending, scaled))
