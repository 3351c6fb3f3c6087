"""The parts of a model inside the scopes of a statement.

Needs: the scopes of the statement and of the model, the axis graph, the layers. Gives: `ModelPart`, the axes
that the statement sees, and which of them reach out of its scopes and so may not change. Also gives the runs
inside, and the number that `layers` means. Raises GrowError (G209, G302, G306, G307, G312) for things that
the model does not have there, or has several of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from growc.algebra.space import Space, atoms_of
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.source import Span
from growc.ir.graph import Node, Value, readers
from growc.passes.axes.infer import Axes
from growc.passes.layers.layer_runs import Layers, Run
from growc.passes.lowering.resolve_axis import lies_under, only_size
from growc.passes.roles.model_parts import Scopes
from growc.passes.roles.name_axes import RoleAxis
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import Expr, SizeName, evaluate
from growc.recipe.layer_orders import counted_back, layers_of


@dataclass(frozen=True)
class ModelPart:
    """A part of a model.

    inside: the atoms in it; None means all.
    beyond: the atoms in it that also lie elsewhere.
    """

    scopes: tuple[ast.Scope, ...] = ()
    inside: frozenset[Space] | None = None
    beyond: frozenset[Space] = frozenset()

    def of(self, axes: Sequence[RoleAxis], name: str, span: Span) -> list[RoleAxis]:
        """The axes that lie inside at least in part. Raises GrowError (G307) if there are none."""
        inside = self.inside
        if inside is None:
            return list(axes)
        axes_inside = [a for a in axes if any(atom in inside for atom in atoms_of(a.spaces))]
        if not axes_inside:
            raise GrowError(Diagnostic("G307", f"no `{name}` lies in {text_of(self.scopes)}", span))
        return axes_inside

    def require(self, axes: Sequence[RoleAxis], name: str, span: Span) -> None:
        """Raise GrowError (G307) unless all of the axes lie inside, and inside only."""
        if self.inside is None:
            return
        for axis in axes:
            if any(atom in self.beyond or atom not in self.inside for atom in atoms_of(axis.spaces)):
                message = f"`{name}` ({axis.size}) reaches out of {text_of(self.scopes)}"
                remedy = "write the statement outside of the scope"
                raise GrowError(Diagnostic("G307", message, span, "only in part inside", (), remedy))


def region_of(
    scopes: Sequence[ast.Scope], known: Scopes, axes: Axes, layers: Layers, moment: int
) -> ModelPart:
    """The part of the model in all of these scopes.

    Layers have the numbers from before the statement `moment`.
    """
    region = ModelPart(tuple(scopes))
    for scope in scopes:
        if isinstance(scope, ast.RoleScope):
            inside, beyond = _named(scope, known)
        elif isinstance(scope, ast.LayerScope):
            inside, beyond = _in_layers(scopes, scope, axes, layers, moment)
        else:
            inside, beyond = _under(scope, axes)
        inside = inside if region.inside is None else inside & region.inside
        region = replace(region, inside=inside, beyond=region.beyond | beyond)
    return region


def _named(scope: ast.RoleScope, known: Scopes) -> tuple[frozenset[Space], frozenset[Space]]:
    if scope.role not in known.names:
        listed = ", ".join(f"`{name}`" for name in known.names)
        note = f"its scopes are {listed}" if listed else "it has one part: no stream reads another one"
        raise GrowError(Diagnostic("G307", f"the model has no `{scope.role}`", scope.span, notes=(note,)))
    inside = frozenset(a for a, names in known.of_atom.items() if scope.role in names)
    return inside, frozenset(a for a in inside if len(known.of_atom[a]) > 1)


def _under(scope: ast.Scope, axes: Axes) -> tuple[frozenset[Space], frozenset[Space]]:
    """Atoms of weights under names that match, and of weights under others."""
    assert isinstance(scope, ast.GlobScope)
    under = lies_under(scope.pattern)
    inside, beyond = _among(axes, lambda use: any(map(under, [use.name, *(n.name for n in readers(use))])))
    if not inside:
        message = f"no parameter or node of the model lies under `{scope.pattern}`"
        raise GrowError(Diagnostic("G306", message, scope.span))
    return inside, beyond


def _in_layers(
    scopes: Sequence[ast.Scope], scope: ast.LayerScope, axes: Axes, layers: Layers, moment: int
) -> tuple[frozenset[Space], frozenset[Space]]:
    """Atoms of weights in layers that had these numbers before the statement `moment`, and of weights
    elsewhere too.
    """
    nodes: set[Node] = set()
    for run in runs_in(layers, scopes, scope.span):
        meant = layers_of(scope.layers, run.history.count_before(moment), partial(_number, run, moment))
        nodes.update(
            n
            for i, layer in enumerate(run.layers)
            if run.history.number_before(i, moment) in meant
            for n in layer.nodes
        )
    return _among(axes, lambda use: not nodes.isdisjoint(readers(use)))


def counted_from_the_end(scopes: Sequence[ast.Scope], layers: Layers, moment: int) -> Iterator[str]:
    """Warnings about numbers in `in layers` that come out negative."""
    for scope in scopes:
        for run in runs_in(layers, scopes, scope.span) if isinstance(scope, ast.LayerScope) else ():
            count, number = run.history.count_before(moment), partial(_number, run, moment)
            assert isinstance(scope, ast.LayerScope)
            yield from counted_back(scope.layers, count, number)


def _among(axes: Axes, chosen: Callable[[Value], bool]) -> tuple[frozenset[Space], frozenset[Space]]:
    """Atoms of the chosen uses of weights, and those of them that other uses have too."""
    sides: dict[bool, set[Space]] = {True: set(), False: set()}
    for use in axes.graph.uses():
        sides[chosen(use)].update(atoms_of(axes.of(use)))
    return frozenset(sides[True]), frozenset(sides[True] & sides[False])


def _number(run: Run, moment: int, expr: Expr) -> int:
    """The value of an expression in a range of layers. Raises GrowError (G209) for axes in it."""

    def count(axis: SizeName) -> int:
        if axis.name == "layers":
            return run.history.count_before(moment if axis.moment is None else axis.moment)
        message, remedy = f"this version does not know `{axis.name}` in a range of layers", "write a number"
        raise GrowError(Diagnostic("G209", message, axis.span, help=f"{remedy}, or one in terms of `layers`"))

    return evaluate(expr, count)


def text_of(scopes: Sequence[ast.Scope]) -> str:
    """Scopes as a recipe writes them."""
    return " and ".join(f"`{scope.span.text}`" for scope in scopes)


# ------------------------------------------------------------------------------------------- layers


def runs_in(layers: Layers, scopes: Sequence[ast.Scope], span: Span | None) -> list[Run]:
    """The runs that lie in all of these scopes. Raises GrowError (G302, G307) if there are none."""
    if not layers.runs:
        raise GrowError(Diagnostic("G302", "no layers were found in the model", span))
    runs = [r for r in layers.runs if all(lies_in(r, scope) for scope in scopes)]
    if not runs:
        raise GrowError(Diagnostic("G307", f"no `layers` lie in {text_of(scopes)}", span))
    return runs


def lies_in(run: Run, scope: ast.Scope) -> bool:
    """Whether a run lies in a scope. A run lies in a glob if any of its weights or nodes does."""
    if isinstance(scope, ast.RoleScope):
        return run.scope == scope.role
    if isinstance(scope, ast.GlobScope):
        under = lies_under(scope.pattern)
        nodes = (node.name for layer in run.layers for node in layer.nodes)
        return any(map(under, (*run.tensors, *nodes)))
    return True


def numbers(runs: Sequence[Run], moment: int | None = None) -> list[int]:
    """The distinct numbers of layers before the statement `moment`, or after the last one, in order."""
    return list(dict.fromkeys(r.history.count_before(moment) for r in runs))


def number_of_layers(layers: Layers, scopes: Sequence[ast.Scope], span: Span, moment: int | None) -> int:
    """The number of layers in these scopes before the statement `moment`, or after the last one."""
    return only_size("layers", numbers(runs_in(layers, scopes, span), moment), span)
