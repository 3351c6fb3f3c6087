"""The search for the config that holds a plan, on the module that the plan makes, without values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import torch

from growc.checkpoint.classes.class_weights import ClassWeights
from growc.checkpoint.classes.dependent_axes import following
from growc.checkpoint.classes.in_memory import ModuleInMemory
from growc.checkpoint.classes.kept_axes import kept, one_less
from growc.checkpoint.classes.model import ClassModel, class_model
from growc.checkpoint.classes.new_tensors import ClassResult, GrownWeights
from growc.checkpoint.classes.stored_axes import StoredAxes
from growc.checkpoint.classes.unread_tensors import unread_gaps, unread_notes
from growc.checkpoint.files.quiet import quiet
from growc.dialects.torch.emit.emit import planned_graph
from growc.dialects.transformers.config.check_program import check
from growc.dialects.transformers.config.near_misses import Unsolved
from growc.dialects.transformers.config.refusal import PlannedSizes, computed_otherwise, refusal
from growc.dialects.transformers.config.search import FittedConfig, solve
from growc.dialects.transformers.config.shapes import (
    among,
    layer_counts,
    read_by,
    same_tensors,
    shapes_of,
    ties_of,
)
from growc.dialects.transformers.config.trials import Target
from growc.dialects.transformers.log.compensation import Compensation, compensate
from growc.dialects.transformers.log.entry import Log, alike, same_logs
from growc.dialects.transformers.log.record import operator_log
from growc.dialects.transformers.log.zero_branches import pruned
from growc.errors.diagnostic import GrowError
from growc.errors.short_repr import brief
from growc.errors.source import SourceText as Text
from growc.passes.axes.single_heads import inner_heads
from growc.passes.compilation import Kept, ModelWithMixtures, Result
from growc.passes.edits import Mixture
from growc.passes.finish.certify import now_stored
from growc.plans.execute import stays_zero
from growc.plans.plan import Certificate, Gap, WeightPlan
from growc.recipe.syntax_tree import Statement
from growc.resolve.bound import Bound
from growc.resolve.resolve import load

if TYPE_CHECKING:
    from torch import nn

MAX_DEPENDENT_AXES = 32
"""At most so many axes follow others in one plan, so that it ends: a class has fewer sizes in its config."""

Followed = tuple[Result, FittedConfig, Target, tuple[str, ...]]
"""The plan, the config that holds it, the target of the search, and notes on the axes that follow."""


@dataclass
class FittingModel(ClassModel):
    """A model of a class, whose results get a config of that class."""

    __repr__ = brief

    def fit_config(self, c: Result) -> Result:
        """The compilation with a config of the class. Raises GrowError (G309, G318, G319) if none fits."""
        if any(weight.upcycled for weight in c.graph.weights):
            from growc.checkpoint.mixtures.named_mixture import fit_mixture

            return fit_mixture(c)
        return fit_config(c)

    def upcycle(self, mixtures: Sequence[Mixture]) -> ModelWithMixtures[Self]:
        """The model with mixtures of experts in place of networks, as the class of the result has them.

        Raises GrowError (G309) for a module in memory.
        """
        return (
            super().upcycle(mixtures)
            if isinstance(self.class_weights, ModuleInMemory)
            else self.with_mixtures(mixtures)
        )


def fit_config(compilation: Result) -> Result:
    """The compilation with the class of its result, and with the plans of the weights in that class.

    An axis that only the class ties to another axis follows it. If the class has a fixed number of parts with
    one head in each, these parts get more heads. Raises GrowError (G308, G318, G319) if no config of the
    class holds the plan.
    """
    model = class_model(compilation)
    try:
        outcome = _fitting(compilation)
        if isinstance(outcome, Unsolved):
            raise _refused(compilation, outcome, StoredAxes.of(compilation))
    finally:
        model.tried.clear()
    c, answer, target, notes = outcome
    source = model.class_weights
    module = source.build(answer.config, constants=True)
    compensation, idle = _made_up(module, target, answer.log)
    grown = GrownWeights(source, module, _planned(c), answer.config, compensation.factors, answer.leads)
    gaps = (*c.plan.certificate.gaps, *_gaps(module, compensation), *unread_gaps(grown))
    written = sum(grown.entry(name).nbytes for name in grown.plans)  # in the types that are stored
    plan = replace(
        c.plan,
        certificate=Certificate(gaps),
        weights=_with_factors(c, grown),
        bytes_to_write=written,
        notes=(*c.plan.notes, *notes, *idle, *unread_notes(grown), *filter(None, [source.remark])),
    )
    return ClassResult(**vars(c) | {"plan": plan, "after": compilation.after}, grown=grown)


def _fitting(c: Result) -> Followed | Unsolved:
    """The plan that a config holds, or the closest config.

    A config that comes close leads to axes that follow. If another config holds the plan after that, the
    first may have come close by chance, so the next ones are tried first.
    """
    first, target = _answer(c)
    fitting_others: list[Followed] = []
    for answer in (first, *(first.others if isinstance(first, Unsolved) else ())):
        grown = _followed(c, answer, target)
        if grown is not None and all(grown[1].fields.get(name) == new for name, new in answer.fields.items()):
            return grown
        fitting_others += [] if grown is None else [grown]
    if fitting_others:
        return fitting_others[0]
    assert isinstance(first, Unsolved), "a config that holds the plan is taken at once"
    return next(filter(None, map(partial(_less, c), one_less(c))), first)


def _less(c: Result, stays: Kept) -> Followed | None:
    """The plan that a config holds if more axes or layers stay as they are."""
    try:
        less = _again(c, [], c.inside, stays)
    except GrowError:
        return None
    return _followed(less, *_answer(less))


def _followed(c: Result, answer: FittedConfig | Unsolved, target: Target) -> Followed | None:
    """The plan that a config holds after more axes follow or stay; None if no more can."""
    notes: tuple[str, ...] = ()
    tried: list[Statement] = []
    while isinstance(answer, Unsolved):
        led = following(answer, StoredAxes.of(c)) if len(notes) < MAX_DEPENDENT_AXES else []
        led = [pair for pair in led if pair[0].statement not in tried]  # do not try a statement twice
        tried += [bound.statement for bound, _ in led]
        inside = not led and not c.inside and bool(inner_heads(c.axes))
        stays = c.kept if led or inside else kept(answer, StoredAxes.of(c))
        if not led and not inside and stays == c.kept:
            return None
        notes += tuple(_told(c, *pair) for pair in led)
        try:
            c = _again(c, [bound for bound, _ in led], c.inside or inside, stays)
        except GrowError:
            return None
        answer, target = _answer(c)
    return c, answer, target, notes


def _answer(c: Result) -> tuple[FittedConfig | Unsolved, Target]:
    model = class_model(c)
    source, target = model.class_weights, _target(c)
    with quiet():
        return solve(source.config, target, source.build, model.tried, model.decided), target


def _refused(c: Result, answer: Unsolved, axes: StoredAxes) -> GrowError:
    class_weights = class_model(c).class_weights
    module, kind = class_weights.module, type(class_weights.module).__name__
    for weight in now_stored(c.assembled)[:1]:
        return GrowError(computed_otherwise(kind, weight.name, weight.computed))
    stored = ((w.copy_of, w.name) for w in c.plan.weights if w.copy_of in class_weights.stored)
    copies = Counter(origin for origin, name in stored if name.startswith(f"{origin}."))
    repeated = {name: count + 1 for name, count in copies.items()}
    verbs = frozenset(type(bound.statement).__name__.lower() for bound in c.statements)
    planned_sizes = PlannedSizes(verbs, axes.named, shapes_of(module), lambda more: _works(c, more))
    return GrowError(refusal(kind, answer, planned_sizes, repeated))


def _works(c: Result, more: Sequence[str]) -> bool:
    """Whether a config holds the plan if more statements follow those of the recipe."""
    last = max((bound.number for bound in c.statements), default=0)
    try:
        statements = load([Text("help", "\n".join(more))], {}).statements
        again = _again(
            c, [replace(bound, number=last + bound.number) for bound in statements], c.inside, c.kept
        )
        outcome = _fitting(again)
        if isinstance(outcome, Unsolved):
            return False
        c, answer, target, _ = outcome
        _made_up(class_model(c).class_weights.build(answer.config, constants=True), target, answer.log)
    except GrowError:
        return False
    return True


def _again(c: Result, more: Sequence[Bound], inside: bool, stays: Kept) -> Result:
    """The same plan with more statements. `inside` and `stays` are those of a compilation's `SourceText`."""
    from growc.passes import AFTER_EDIT, run
    from growc.passes.lowering.edit_model import asked_again

    return run(AFTER_EDIT, asked_again(c, (*c.statements, *more), inside, stays))


def _told(c: Result, bound: Bound, leader: Bound) -> str:
    ours, theirs = (getattr(statement.statement, "axis").name for statement in (bound, leader))  # noqa: B009
    kind = type(class_model(c).class_weights.module).__name__
    return f"`{ours}` follows `{theirs}`, to which the config of `{kind}` ties it"


def _planned(c: Result) -> dict[str, WeightPlan]:
    """The plans of the tensors that are stored, by the names of the result."""
    stored = class_model(c).class_weights.stored
    return {w.name: w for w in c.plan.weights if (w.copy_of or w.source) in stored}


def _target(c: Result) -> Target:
    """The target of the search: shapes, ties and the log of the planned program."""
    model = class_model(c)
    program = planned_graph(c, model.class_weights.outline)
    _stay_on_cpu(program)
    inputs = model.inputs
    tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    fixed = set(model.captured.symbols.values()) <= {"batch"}
    log = operator_log(program, tensors, fixed)
    ties = ties_of(program)
    shapes = read_by(log.reads, shapes_of(program), ties)
    planned = _planned(c)
    zeros = frozenset(name for name, plan in planned.items() if stays_zero(plan))
    origins = {name: plan.copy_of or plan.source for name, plan in planned.items()}
    unread = _unread_layers(model)
    return Target(shapes, among(ties, shapes), log, inputs, _layers(origins), zeros, fixed, origins, unread)


def _unread_layers(model: ClassModel) -> dict[str, int]:
    """For each container of layers, how many of its layers the source's class has and does not read."""
    module = model.class_weights.module
    shapes = shapes_of(module)
    layers_read = layer_counts(read_by(model.captured.reads, shapes, ties_of(module)))
    return {name: count - layers_read.get(name, 0) for name, count in layer_counts(shapes).items()}


def _made_up(module: nn.Module, target: Target, log: Log) -> tuple[Compensation, list[str]]:
    """Changes of weights that compensate for what the class computes from its config, with the gaps that
    remain.

    Also returns notes on branches that add nothing yet and in which the class computes something else. Raises
    GrowError (G319) if the class computes something else elsewhere.
    """
    if same_logs(target.log, log):
        check(module, target, log)
        return Compensation(), []
    whole = compensate(target.log, log) if alike(target.log, log) is not None else None
    if whole is not None and not whole.gaps:
        return whole, []
    planned, computed = (
        pruned(target.log, target.zeros),
        pruned(log, target.zeros),
    )
    partial_fit = compensate(planned, computed) if alike(planned, computed) is not None else None
    if partial_fit is not None and (whole is None or len(partial_fit.gaps) < len(whole.gaps)):
        return partial_fit, [_idle(type(module).__name__, sorted(target.zeros))]
    if whole is None:
        check(module, target, log)
    return whole or Compensation(), []


def _idle(kind: str, zeros: Sequence[str]) -> str:
    more = f" and {len(zeros) - 1} more are" if len(zeros) > 1 else " is"
    return f"what new layers add is zero yet (`{zeros[0]}`{more} zero); in them `{kind}` computes what it \
computes at their place, not what the layers do that were copied"


def _with_factors(c: Result, grown: GrownWeights[ClassWeights]) -> tuple[WeightPlan, ...]:
    """The weights of the plan, with the factors that compensate for the class."""
    names = {name: tied for tied in same_tensors(grown.module) for name in tied}
    factors = [grown.factor(names.get(weight.name, [])) for weight in c.plan.weights]
    return tuple(
        weight if factor is None else replace(weight, scale=weight.scale * factor.times)
        for weight, factor in zip(c.plan.weights, factors, strict=True)
    )


def _gaps(module: nn.Module, made_up: Compensation) -> list[Gap]:
    """A gap for each number of the class that differs from the plan's."""
    kind = type(module).__name__
    remedy = "`keep_class=False`, in Python, gives a module that has the numbers of the plan"
    cause = f"`{kind}` computes from its config what no weight makes up for"
    return [Gap("", kind, f"{cause}: {gap}", remedy) for gap in made_up.gaps]


def _stay_on_cpu(program: Any) -> None:
    """Put tensors that the program creates on the CPU, where the class has them when logs are taken."""
    for node in program.graph.nodes:
        if "device" in node.kwargs:
            node.update_kwarg("device", torch.device("cpu"))
    program.recompile()


def _layers(origins: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """For each container of layers, the source's layer for each layer of the result."""
    numbers: dict[str, dict[int, int]] = {}
    for name, origin in origins.items():
        new, old = name.split("."), origin.split(".")
        for position, (a, b) in enumerate(zip(new, old, strict=False)):
            if position and a.isdigit() and b.isdigit():
                numbers.setdefault(".".join(new[:position]), {})[int(a)] = int(b)
    counts = layer_counts(origins)
    return {
        container: tuple(layers[k] for k in sorted(layers))
        for container, layers in numbers.items()
        if len(layers) == counts[container]
    }
