"""A model's analysis as text and as data: axes, frozen places, why axes are tied."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from growc.algebra.space import atoms_of
from growc.errors.json_data import Json
from growc.ir.graph import Node
from growc.passes.axes.queries import AxisQueries
from growc.passes.axes.ties import Tie
from growc.passes.finish.assemble import count_parameters
from growc.passes.layers.layer_runs import Run
from growc.passes.lowering.scopes import numbers
from growc.passes.raising.attention import Packing, left_plain, packing
from growc.passes.roles.indexed_axes import spelling_of_experts
from growc.passes.roles.name_axes import RoleAxis, Roles
from growc.passes.roles.why_tied import Frozen, TiePath, frozen_axes, ways
from growc.plans.plan_to_json import one
from growc.recipe.option_rules import CHOSEN
from growc.render.picture import picture_lines
from growc.render.text import count, many, table

if TYPE_CHECKING:
    from growc.passes.compilation import Analysis

SHOWN = 12
"""The most frozen places that are shown as text; `--json` has all."""


def inspect_data(c: Analysis) -> dict[str, Json]:
    """Return the data that `growc inspect --json` prints."""
    nodes = {(f.node, f.cause): None for f in frozen_axes(c.axes)}
    return {
        "axes": {n: one(tuple(c.roles.sizes(n))) for n in c.roles.axes} | layer_counts(c.layers.runs),
        "scopes": {scope: {"axes": scope_sizes(c, scope)} for scope in c.roles.scopes.names},
        "runs": [
            {"scope": r.scope, "layers": len(r.layers), "kinds": list(r.kinds), "period": r.period}
            for r in c.layers.runs
        ],
        "attention": [
            {"number": number, **asdict(kind), "packing": str(kind.packing)}
            for kind, number in attention_kinds(AxisQueries(c.axes), c.roles).items()
        ],
        **({"experts": list(ways_of_experts(c))} if "experts" in c.roles.axes else {}),
        "parameters": count_parameters(c.axes, c.ties),
        "frozen": [{"node": n.name, "op": n.kind, "reason": cause} for n, cause in nodes],
    }


def scope_sizes(c: Analysis, scope: str) -> dict[str, int | list[int]]:
    """Return the sizes of every named axis that has a part in a scope."""
    sizes: dict[str, int | list[int]] = {}
    for name, axes in c.roles.axes.items():
        sizes_in_scope = [a.size for a in axes if scope in c.roles.scopes.of(a.spaces)]
        sizes.update({name: one(tuple(dict.fromkeys(sizes_in_scope)))} if sizes_in_scope else {})
    return sizes | layer_counts([r for r in c.layers.runs if r.scope == scope])


def layer_counts(runs: Sequence[Run]) -> dict[str, int | list[int]]:
    """Return `layers`, as one more axis."""
    return {"layers": one(tuple(numbers(runs)))} if runs else {}


def inspect_lines(c: Analysis) -> Iterator[str]:
    """Yield roles, sizes, and frozen places."""
    parameters = count(count_parameters(c.axes, c.ties))
    yield f"{c.path.name} · {parameters} parameters · {many(len(c.graph.nodes), 'node')}"
    yield ""
    axes = c.roles.axes
    rows = [*(role_row(c, name) for name in axes), *layer_rows(c.layers.runs), *attention_rows(c)]
    yield from ("  " + line for line in table(rows, "<><"))
    yield from (f"  {line}" for line in absent(axes))
    if "hidden" in axes:
        yield ""
        yield from picture_lines(c)
    groups: dict[tuple[Node, str], list[Frozen]] = defaultdict(list)
    for frozen in frozen_axes(c.axes):
        groups[frozen.node, frozen.cause].append(frozen)
    if groups:
        yield ""
        yield "Frozen:"
    rows = [
        (
            f"{node.kind} {node.name}".rstrip(),
            cause,
            f"axis {places[0].axis} of {places[0].weight}" + _more(len(places)),
        )
        for (node, cause), places in groups.items()
    ]
    yield from (f"  {line}" for line in table(rows[:SHOWN]))
    if len(rows) > SHOWN:
        yield f"  … {len(rows) - SHOWN} more (--json)"


def _more(n: int) -> str:
    return "" if n == 1 else f", and {n - 1} more"


def ways_of_experts(c: Analysis) -> dict[str, None]:
    """Return the ways in which the networks of experts are stored, each once."""
    axes, looped = c.axes, c.model.looped
    return dict.fromkeys(spelling_of_experts(axes, a.spaces, looped) for a in c.roles.axes["experts"])


def role_row(c: Analysis, name: str) -> tuple[str, str, str]:
    """`ffn`, `3072`, `12 spaces`."""
    role_axes = c.roles.axes[name]
    if name == "kv_heads" and role_axes == c.roles.axes.get("heads"):
        note = "as heads: there are no groups"
    else:
        fixed = sum(any(x.frozen for x in atoms_of(a.spaces)) for a in role_axes)
        note = many(len(role_axes), "space") + (f", {fixed} of them frozen" if fixed else "")
        note += "" if all(a.spaces for a in role_axes) else ", where there is one nothing counts it"
        note += f", {' / '.join(ways_of_experts(c))}" if name == "experts" else ""
    return name, " / ".join(map(str, c.roles.sizes(name))), note


def layer_rows(runs: Sequence[Run]) -> Iterator[tuple[str, str, str]]:
    """Yield `layers`, `4 / 3`, `tower 0 / tower 1`; and the kinds of layers, if these differ."""
    if runs:
        scopes = list(dict.fromkeys(r.scope for r in runs if r.scope))
        note = (
            " / ".join(r.scope for r in runs) if scopes else many(len(runs), "run") if len(runs) > 1 else ""
        )
        yield "layers", " / ".join(str(len(r.layers)) for r in runs), note
    for run in runs:
        if len(set(run.kinds)) > 1:
            again = f", again after {run.period}" if run.period > 1 else ""
            yield "", "", f"{kinds_text(run.kinds)}{again}" + (f" ({run.scope})" if run.scope else "")


def attention_rows(c: Analysis) -> Iterator[tuple[str, str, str]]:
    """Yield one row for each kind of attention.

    An example is `attention`, `4`, `6 heads of 16; queries, keys and values packed in a row`.
    """
    flow = AxisQueries(c.axes)
    kinds = attention_kinds(flow, c.roles)
    for k, (kind, number) in enumerate(kinds.items()):
        yield "" if k else "attention", str(number), f"{kind.counted}; {kind.packing}"
    if plain := left_plain(flow, c.roles.attention):
        first = f"{node_text(plain[0])}{_more(len(plain))}"
        cause = "no product of activations makes the scores"
        yield "" if kinds else "attention", str(len(plain)), f"left as plain operators, {cause}: {first}"


@dataclass(frozen=True)
class AttentionKind:
    """A kind of attention: the number of heads and of groups, and how its weights are packed."""

    heads: int
    kv_heads: int
    head_dim: int
    packing: Packing

    @property
    def counted(self) -> str:
        """`6 heads of 16`, `8 heads of 8 in 2 groups`."""
        groups = f" in {many(self.kv_heads, 'group')}" if self.kv_heads != self.heads else ""
        return f"{many(self.heads, 'head')} of {self.head_dim}{groups}"


def attention_kinds(flow: AxisQueries, roles: Roles) -> Counter[AttentionKind]:
    """Count the attentions of each kind, in canonical order."""
    kinds = Counter[AttentionKind]()
    for attention in roles.attention:
        heads = RoleAxis(attention.heads)
        keys = RoleAxis(roles.without_groups(attention.heads))
        depth = next((RoleAxis(d).size for d in attention.depths if d), 1)
        kinds[AttentionKind(heads.size, keys.size, depth, packing(flow, attention))] += 1
    return kinds


def kinds_text(kinds: Sequence[int]) -> str:
    """`2 kinds: A A B`."""
    letters = [chr(ord("A") + k) if max(kinds) < 26 else str(k) for k in kinds]
    return f"{len(set(kinds))} kinds: {' '.join(letters)}"


def absent(axes: dict[str, list[RoleAxis]]) -> Iterator[str]:
    """Yield lines for the most important axes, if they were not found."""
    if not axes:
        yield 'No axis of this model has a name of its own; `axis N of "PARAMETER"` names any.'
    if "hidden" not in axes:
        yield "No residual stream was found."
    if "heads" not in axes:
        yield "No attention was found."


# -------------------------------------------------------------------------------------------- explain


def explain_lines(c: Analysis, name: str, role_axes: Sequence[RoleAxis], everything: bool) -> Iterator[str]:
    """Yield why axes change together: each weight axis of each space of a name, and the operators between.

    Without `everything`, places that are reached alike (in equal layers) stand once, and so do spaces.
    """
    explained = [(axis, ways(c.axes, list(c.ties), axis)) for axis in role_axes]
    shown: dict[object, int] = defaultdict(int)
    for axis, paths in explained:
        kind: object = (axis.size, *map(likeness, paths))
        shown[kind] += 1
        if everything or shown[kind] == 1:
            yield from [""] if len(shown) > 1 or shown[kind] > 1 else []
            yield from space_lines(c, name, axis, paths, everything)
    more = len(explained) - len(shown)
    if more and not everything:
        yield ""
        like = "this one" if len(shown) == 1 else "these"
        yield f"{many(more, 'more space')} of {c.path.name} like {like} (--all)."


def space_lines(
    c: Analysis, name: str, axis: RoleAxis, paths: list[TiePath], everything: bool
) -> Iterator[str]:
    """Yield the lines of one space."""
    axes = "1 weight axis" if len(paths) == 1 else f"{len(paths)} weight axes that change together"
    yield f"`{name}` of {c.path.name}: {many(axis.size, 'unit')}, {axes}"
    for space in axis.spaces:
        reason = space.frozen or space.addressed or space.chosen
        if reason is not None:
            grows = name in CHOSEN and not c.axes.taken_singly(space)
            read = "chosen from" if grows else "cannot grow"
            how = "frozen" if space.frozen else "addressed" if space.addressed else read
            where = f" ({node_text(reason.node)})" if isinstance(reason.node, Node) else ""
            yield f"  {how}: {reason.cause}{where}"
    groups: dict[object, list[TiePath]] = defaultdict(list)
    for path in paths:
        groups[path if everything else likeness(path)].append(path)
    for alike in groups.values():
        yield f"  {place(alike[0])}"
        if route := route_text(alike[0]):
            yield f"      {route}"
        if len(alike) > 1:
            yield f"      and {len(alike) - 1} more alike, to {place(alike[-1])}"


def likeness(path: TiePath) -> object:
    """Return a key that is equal for places that are reached alike."""
    value, axis = path.vertex
    return axis, value.sizes, tuple(map(_kind, path.steps)), _kind(path.start)


def _kind(step: object) -> str:
    return step.kind if isinstance(step, Node) else type(step).__name__


def place(path: TiePath) -> str:
    """`axis 0 of fc1.weight [64, 256]`."""
    value, axis = path.vertex
    assert value.weight is not None
    return f"axis {axis} of {value.weight.name} {list(value.weight.shape)}"


def route_text(path: TiePath) -> str:
    """`from Add node_add_3, by LayerNormalization node_ln, Gemm node_addmm`."""
    start = "" if path.start is None else f"from {node_text(path.start)}, "
    steps = list(path.steps)
    if steps and steps[0] is path.start:
        steps = steps[1:]
    return (
        f"{start}by {', '.join(dict.fromkeys(map(node_text, steps)))}" if steps else start.removesuffix(", ")
    )


def node_text(step: Node | Tie) -> str:
    """`MatMul /h.0/attn/MatMul`."""
    if isinstance(step, Tie):
        return "the tie of embedding and head" if step.is_head else "a tie"
    return f"{step.kind} {step.name}".rstrip()
