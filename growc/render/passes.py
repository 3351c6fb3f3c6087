"""What each pass made, as lines of text: for people who work on growc."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from growc.algebra.space import find
from growc.passes.compilation import (
    Analysis,
    Arranged,
    Captured,
    Kind,
    Mapped,
    Named,
    Normed,
    Repaired,
    Request,
    Result,
    Simulated,
    Solved,
    Source,
    Spaced,
    Stored,
    Tied,
)
from growc.passes.edits import Part
from growc.render.terminal import numbers_text, plan_lines, step_text, weight_row
from growc.render.text import many, table

if TYPE_CHECKING:
    from growc.algebra.indexmap import IndexMap
    from growc.algebra.space import Size, Space
    from growc.ir.graph import Node, Value
    from growc.passes.axes.infer import Axes

LEAST = 6
"""So many numbers of a table or of an attribute are shown."""


def lines_after(name: str, made: Source) -> Iterator[str]:
    """A heading, and what the pass of this name made."""
    yield f"After {name}:"
    yield from (f"  {line}".rstrip() for line in [*PRINTERS[name](made)] or ["nothing"])
    yield ""


def graph_lines(c: Captured) -> Iterator[str]:
    """Every node: its results, its operator, its operands, how its operator treats maps."""
    weights = ((w.name, f"{w.dtype}{list(w.shape)}") for w in c.graph.weights)
    yield from table(("weight", *row) for row in weights)
    yield from table(("input", v.name) for v in c.graph.inputs)
    yield from table((_names(n.outputs), "=", _called(n), n.treatment) for n in c.graph.nodes)
    yield from table(("output", v.name) for v in c.graph.outputs)


def size_lines(c: Simulated) -> Iterator[str]:
    """Every value: its type, its sizes at the sample points, and its elements where they are known."""
    values = (v for v in c.graph.values() if v.weight is None)
    yield from table((v.name, v.dtype, _sizes(v.sizes), *_known(v)) for v in values)


def norm_lines(c: Normed) -> Iterator[str]:
    """Every norm, by what it computes."""
    for norm in c.norms:
        axes = ", ".join(map(str, norm.axes))
        eps = "no eps" if norm.eps is None else f"eps {norm.eps.name}"
        yield f"{norm.result.name} = {norm.formula.name} of {norm.source.name} over {axes} ({eps})"


def space_lines(c: Spaced) -> Iterator[str]:
    """Every space, with its size and the axes that it is; then every node with its line."""
    called = _Names(c.axes)
    rows = []
    for space, members in called.members.items():
        frozen = () if space.frozen is None else (f"(frozen: {space.frozen.cause})",)
        rows.append((called.of(space), _size(space.size), " ".join([*members, *frozen])))
    yield from table(rows)
    yield from table(
        (
            _names(i.node.outputs),
            i.node.op,
            str(i.line),
            " ".join(f"{k}={called.of(s)}" for k, s in i.spaces.items()),
        )
        for i in c.axes.instances
    )


def tie_lines(c: Tied) -> Iterator[str]:
    """Uses of weights that are one tensor."""
    for tie in c.ties:
        turned = (" transposed" if turned else "" for turned in tie.turned)
        yield " = ".join(_read(use) + how for use, how in zip(tie.uses, turned, strict=True))


def role_lines(c: Named) -> Iterator[str]:
    """Every name, with the spaces that bear it."""
    called = _Names(c.axes)
    for name, axes in c.roles.axes.items():
        for axis in axes:
            yield f"{name} {axis.size}: {' '.join(map(called.of, axis.spaces))}"


def layer_lines(c: Analysis) -> Iterator[str]:
    """Every layer of every run: between which values it lies."""
    for number, run in enumerate(c.layers.runs):
        yield f"run {number}{run.scope and f' ({run.scope})'}: {many(len(run.layers), 'layer')}"
        for k, layer in enumerate(run.layers):
            kind = run.kinds[k] if run.kinds else 0
            nodes = many(len(layer.nodes), "node")
            yield f"  layer {k}: {layer.start.name} -> {layer.end.name}, {nodes}, kind {kind}"


def untied_lines(c: Request) -> Iterator[str]:
    """The heads that are cut from their tables, and what stays tied."""
    yield f"cut: {numbers_text(sorted(c.untied)) or 'none'}"
    yield from tie_lines(c)


def statement_lines(c: Request) -> Iterator[str]:
    """The statements, one a line."""
    from growc import grammar
    from growc.recipe.syntax_tree import Recipe

    for bound in c.statements:
        yield f"{bound.number}: {grammar.format(Recipe((bound.statement,))).rstrip()}"


def depth_lines(c: Arranged) -> Iterator[str]:
    """Which layer of the source each layer of the result is."""
    for number, past in enumerate(c.depth.runs):
        zero = [k for k, zeroed in enumerate(past.zeroed) if zeroed]
        adding = f", adding nothing: {numbers_text(zero)}" if zero else ""
        yield f"run {number}: {past.count} -> {numbers_text(past.order)}{adding}"
    yield from (f"{old} is now {new}" for old, new in c.renamed.items())
    yield from layer_lines(c)


def lowered_lines(c: Mapped) -> Iterator[str]:
    """Every statement as the map of each space that it resizes."""
    called = _Names(c.axes)
    for stage in c.lowered.stages:
        yield f"{stage.number}: {stage.text}"
        for request in stage.requests.values():
            sizes = f"{request.map.source} -> {request.map.size}"
            how = "" if request.fill is None else f" by {request.fill.name}"
            yield f"  {called.of(request.space)}: {sizes}{how}: {map_text(request.map)}"
        for group in (*stage.regroups, *stage.pools):
            yield f"  {type(group).__name__.lower()} {called.of(group.keys)} {called.of(group.group)}"


def step_lines(c: Solved) -> Iterator[str]:
    """What is done to each weight, what becomes of outputs, what is not exact."""
    done = [use for use in c.graph.uses() if c.steps.get(use) or c.scales.get(use, 1.0) != 1.0]
    for use in done:
        steps = [
            f"{step_text(s)} on {s.axis}: {s.layout.before} -> {s.layout.after}" for s in c.steps.get(use, ())
        ]
        times = [f"times {c.scales[use]:g}"] if c.scales.get(use, 1.0) != 1.0 else []
        yield f"{_read(use)}: {'; '.join([*steps, *times])}"
    for node, changed in c.attributes.items():
        yield f"{node.name or node.kind}: {', '.join(f'{k} = {v:g}' for k, v in changed.items())}"
    for (name, axis), state in c.outputs.items():
        yield f"output {name}, axis {axis}: {map_text(state)}"
    yield from (f"gap at {gap.node} ({gap.op}): {gap.cause}" for gap in c.gaps)


def patch_lines(c: Repaired) -> Iterator[str]:
    """Operands and attributes of nodes that change."""
    for node, patch in c.repairs.patches.items():
        operands = (f"operand {i} = [{', '.join(map(_entry, new))}]" for i, new in patch.operands.items())
        attributes = (f"{name} = {value}" for name, value in patch.attributes.items())
        yield f"{node.name or _names(node.outputs)} ({node.kind}): {', '.join([*operands, *attributes])}"


def tensor_lines(c: Stored) -> Iterator[str]:
    """The stored tensors of the result that are not those of the source."""
    yield from table(weight_row(weight) for weight in c.assembled.weights if weight.changed)


def certified_lines(c: Result) -> Iterator[str]:
    """The plan."""
    yield from plan_lines(c.plan, everything=True)


def printer(kind: type[Kind], lines: Callable[[Kind], Iterator[str]]) -> Callable[[Source], Iterator[str]]:
    """What prints records of a kind."""

    def printed(made: Source) -> Iterator[str]:
        assert isinstance(made, kind), "a pass makes the kind that it says"
        return lines(made)

    return printed


PRINTERS = {
    "capture": printer(Captured, graph_lines),
    "simulate": printer(Simulated, size_lines),
    "norms": printer(Normed, norm_lines),
    "spaces": printer(Spaced, space_lines),
    "ties": printer(Tied, tie_lines),
    "roles": printer(Named, role_lines),
    "layers": printer(Analysis, layer_lines),
    "untie": printer(Request, untied_lines),
    "groups": printer(Request, space_lines),
    "match": printer(Request, statement_lines),
    "depth": printer(Arranged, depth_lines),
    "lower": printer(Mapped, lowered_lines),
    "solve": printer(Solved, step_lines),
    "mend": printer(Repaired, patch_lines),
    "assemble": printer(Stored, tensor_lines),
    "certify": printer(Result, certified_lines),
    "hold": printer(Result, certified_lines),
}


class _Names:
    """A letter and a number for every space, in the order of the graph; `members`: the axes of each."""

    def __init__(self, axes: Axes) -> None:
        self.numbers: dict[Space, int] = {}
        self.members: dict[Space, dict[str, None]] = {}
        for value in axes.graph.values():
            for axis, space in enumerate(axes.of(value)):
                self.of(space)
                self.members.setdefault(find(space), {})[f"{_read(value)}.{axis}"] = None

    def of(self, space: Space) -> str:
        """`s3`; `(s1 s2)` for a product, `(s1 + s2)` for a sum."""
        space = find(space)
        if space.kind == "atom":
            return f"s{self.numbers.setdefault(space, len(self.numbers))}"
        return f"({(' ' if space.kind == 'product' else ' + ').join(map(self.of, space.parts))})"


def map_text(found: IndexMap) -> str:
    """Its rows in order: which unit each one is, times what; `mean`, `0`, and `?` for what is neither."""
    rows = zip(
        found.index.tolist(), found.weight.tolist(), found.mean.tolist(), found.junk.tolist(), strict=True
    )
    kinds = groupby(rows, lambda row: (row[0] >= 0, *row[1:]))
    return ", ".join(_rows(kind, [row[0] for row in alike]) for kind, alike in kinds)


def _rows(kind: tuple[bool, float, float, bool], index: list[int]) -> str:
    copied, weight, mean, junk = kind
    times = f" x {len(index)}" if len(index) > 1 else ""
    if junk:
        return f"?{times}"
    terms = [numbers_text(index) if weight == 1 else f"{weight:g} of {numbers_text(index)}"] if copied else []
    terms += [("mean" if mean == 1 else f"{mean:g} of mean") + ("" if copied else times)] if mean else []
    return " + ".join(terms) or f"0{times}"


def _read(value: Value) -> str:
    """A value by its name; a use of a weight with what uses it."""
    if value.weight is None or not value.users:
        return value.name
    return f"{value.name}@{_names(value.users[0][0].outputs)}"


def _names(values: Iterable[Value | None]) -> str:
    return ", ".join("_" if v is None else v.name for v in values)


def _called(node: Node) -> str:
    given = [f"{name}={_short(value)}" for name, value in sorted(node.attributes.items())]
    return f"{node.op}({', '.join([_names(node.inputs), *given])})"


def _entry(entry: int | Part | None) -> str:
    """An element of a changed operand: a number, the one that stood there, or a part of one."""
    if isinstance(entry, Part):
        return f"{entry.factor} of {'it' if entry.whole is None else entry.whole.name}"
    return "as before" if entry is None else str(entry)


def _short(value: object) -> str:
    if not isinstance(value, int | float | str | tuple | list):
        return type(value).__name__
    text = str(value)
    return text if len(text) <= 10 * LEAST else f"{text[: 10 * LEAST]}…"


def _known(value: Value) -> tuple[str]:
    numbers = () if value.known is None else value.known[0].reshape(-1).tolist()
    more = ", …" if len(numbers) > LEAST else ""
    return (f"= {', '.join(map(str, numbers[:LEAST]))}{more}" if numbers else "",)


def _sizes(sizes: Iterable[Size] | None) -> str:
    return "unknown" if sizes is None else f"[{', '.join(map(_size, sizes))}]"


def _size(size: Size) -> str:
    """`8`; `2|3|5` where it is another one at each sample point."""
    return "|".join(map(str, size if len(set(size)) > 1 else size[:1]))
