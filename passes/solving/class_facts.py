"""Facts about classes of variables that are known before anything is solved.

Needs: links, and which values are weights or their layouts. Gives: `Classes`, which says what makes and reads
each class. That decides who may determine its state, and in which form.
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
    """Facts about classes. Each class is given by its root."""

    free: dict[Var, bool] = field(default_factory=lambda: defaultdict(lambda: True))
    """Whether all variables of the class belong to weights or their layouts."""
    quantised: set[Var] = field(default_factory=set)
    """Classes with weights that are integers, or integers with scales."""
    normed: set[Var] = field(default_factory=set)
    """Classes that a norm reads, or that an output shows."""
    rms: set[Var] = field(default_factory=set)
    """Classes read by a norm over squares without a mean, or by an operator that passes factors on to one."""
    partners: dict[Var, list[Var]] = field(default_factory=lambda: defaultdict(list))
    """The classes that each class is contracted with."""
    contracted: set[Var] = field(default_factory=set)
    """Classes of activations that are contracted with each other, and of those that they are made from."""
    members: Counter[Var] = field(default_factory=Counter)
    """The number of variables of each class."""
    touches: Counter[Var] = field(default_factory=Counter)
    """The number of links that each class is a source or a target of."""


def classes_of(links: Links, carriers: set[Value]) -> Classes:
    """The facts about all classes. `carriers`: weights and their layouts."""
    classes = Classes()
    for var, owner in enumerate(links.owner):
        root = links.root(var)
        classes.free[root] = classes.free[root] and owner is not None and owner in carriers
        classes.members[root] += 1
        weight = None if owner is None else owner.weight
        if weight is not None and (weight.stored is not None or not weight.floating):
            classes.quantised.add(root)
    for link in links.links:
        touched = (*link.sources, *(link.targets if link.kind != "make" else ()))
        classes.touches.update(links.root(v) for v in touched)
        if link.kind in ("norm", "output"):
            classes.normed.update(links.root(v) for v in link.sources)
        if link.formula is not None and not link.formula.centred and link.formula.power == 2:
            classes.rms.update(links.root(v) for v in link.sources)
        if link.kind == "pair":
            a, b = (links.root(v) for v in link.sources)
            classes.partners[a].append(b)
            classes.partners[b].append(a)
    _spread_rms(links, classes)
    classes.contracted = _contracted(links, classes, carriers)
    return classes


def _spread_rms(links: Links, classes: Classes) -> None:
    """Add to `rms` the classes that homogeneous operators pass on to an RMS norm.

    A state may be scaled in front of both. Of a product, only one factor counts: the first that weights make
    and no nonlinear function reads.
    """
    computed: set[Var] = set()
    nonlinear: set[Var] = set()
    for link in links.links:
        computed.update(links.root(t) for t in link.targets if link.kind != "make")
        if link.kind == "pointwise" and not link.homogeneous:
            nonlinear.update(links.root(v) for v in link.sources)
    for link in reversed(links.links):
        roots = [links.root(v) for v in link.sources]
        if not any(links.root(t) in classes.rms for t in link.targets):
            continue
        if link.kind == "pointwise" and link.homogeneous:
            classes.rms.update(roots)
        elif link.kind == "product" and not any(classes.free[r] for r in roots):
            classes.rms.update([r for r in roots if r not in computed | nonlinear][:1])


def _contracted(links: Links, classes: Classes, carriers: set[Value]) -> set[Var]:
    """Classes of activations that are contracted with each other, and the classes that these are made from.

    Such states must pair, and no weight stands between that could make them pair. Where nothing else
    determines them, both are isometries. A product with a table (rotary) or a gain passes the choice on to
    the operand that it scales.
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
