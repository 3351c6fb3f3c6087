"""The links of norms: of a norm that is one operator, and of one in pieces.

All axes that a norm runs over are judged as one row-major product (docs/theory.md, "Norms"). Along the other
axes it is a nonlinear function of each row alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from growc.algebra.space import Space, product
from growc.ir.graph import Node
from growc.passes.axes.infer import LineInstance
from growc.passes.axes.norms import Formula, Norm
from growc.passes.solving.constraints import Flow, Link, Links, Occurrences, Var

OPERATORS = {
    "layer_norm": Formula(centred=True),
    "rms_norm": Formula(),
    "l2_norm": Formula(total=True, outside=True),
    "l1_norm": Formula(total=True, outside=True, power=1),
}
"""The formulas of the treatments that are norms."""


def norm_operator(links: Links, at: LineInstance, ins: Occurrences, outs: Occurrences) -> None:
    """Add the links of a norm over the labels that its line names, with its gain and its bias."""
    node, over = at.node, at.line.over
    core = {
        n: [links.fresh(links.atoms[v], None) for v in operands[0]]
        for n, operands in ins.items()
        if 0 in operands
    }
    if any(n in core for n in over):
        normed_axes = ((ins[n][0] if n in core else [], core.get(n, []), at.spaces[n]) for n in over)
        _normalise(links, node, OPERATORS[at.line.treatment], normed_axes)
    for name, inner in core.items():
        if name not in over:
            for x, c in zip(ins[name][0], inner, strict=True):
                links.links.append(Link("pointwise", node, (x,), (c,), zero=True))
        for k, (c, out) in enumerate(zip(inner, outs[name][0], strict=True)):
            gain, bias = (ins[name][i][k] if i in ins[name] else None for i in (1, 2))
            _affine(links, node, c, gain, bias, out)


def _affine(links: Links, node: Node, core: Var, gain: Var | None, bias: Var | None, out: Var) -> None:
    """Add the links of core · gain + bias. Gain and bias may be absent, or have one element for all units."""
    weighted = core
    if gain is not None:
        weighted = links.fresh(links.atoms[core], None)
        links.links.append(Link("product", node, (core, gain), (weighted,)))
    if bias is None and node.input(2) is not None:
        links.links.append(Link("shift", node, (weighted,), (out,)))
        return
    links.join(weighted, out)
    if bias is not None:
        links.join(bias, out)


def norm_in_pieces(links: Links, norm: Norm) -> None:
    """Add the links of a norm in pieces, with a gain that stands in front of its quotient."""
    source, gain = norm.source, norm.gain
    normed_axes: list[tuple[list[Var], list[Var], Space]] = []
    after: list[Link] = []
    for axis in range(-source.rank, 0):
        before, result = links.of(source, axis + source.rank), links.of(norm.result, axis + source.rank)
        bare = norm.formula if norm.bare and axis not in norm.axes else None
        pairs = zip(before, result, strict=True)
        links.flows += [Flow(norm.close, {0: x}, (y,), bare=bare) for x, y in pairs]
        if gain is not None and -axis <= gain.rank and (weights := links.of(gain, axis + gain.rank)):
            core = [links.fresh(links.atoms[v], None) for v in result]
            after += [
                Link("product", norm.weigh, (c, w), (r,))
                for c, w, r in zip(core, weights, result, strict=True)
            ]
            links.visited.update(weights)
            result = core
        if axis in norm.axes:
            normed_axes.append((before, result, links.axes.of(source)[axis]))
        else:
            rows = zip(before, result, strict=True)
            links.links += [Link("pointwise", norm.close, (x,), (y,), zero=True) for x, y in rows]
    if any(before for before, _, _ in normed_axes):
        _normalise(links, norm.close, norm.formula, normed_axes, norm)
    links.links += after


def _normalise(
    links: Links,
    node: Node,
    formula: Formula,
    whole: Iterable[tuple[list[Var], list[Var], Space]],
    norm: Norm | None = None,
) -> None:
    """Add the link of a norm.

    `whole`: (variables in front, variables behind, space) of each axis it runs over.

    Two units stand for all units of an axis in which nothing changes.
    """
    sources: list[Var] = []
    targets: list[Var] = []
    spaces: list[Space] = []
    for before, behind, space in whole:
        stays = not before and not space.unit
        bearer = Space((2,) * len(space.size)) if stays else space
        sources += [links.fresh(bearer, None)] if stays else before
        targets += [links.fresh(bearer, None)] if stays else behind
        spaces.append(bearer)
    links.links.append(
        Link("norm", node, tuple(sources), tuple(targets), space=product(spaces), formula=formula, norm=norm)
    )
