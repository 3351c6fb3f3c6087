"""A planned mixture in the class that a caller names: its config, and its weights by the names of the class.

Needs: a finished compilation of a dense checkpoint whose recipe upcycles. Gives: the same compilation with
the class of its result. Raises GrowError (G200, G309, G318).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from growc.algebra.indexmap import Array
from growc.checkpoint.classes.class_weights import ClassWeights
from growc.checkpoint.classes.model import class_model
from growc.checkpoint.classes.new_tensors import ClassResult, GrownWeights, H
from growc.checkpoint.classes.on_disk import CheckpointOnDisk
from growc.checkpoint.files.lora import adapters_of
from growc.checkpoint.files.quiet import quiet
from growc.checkpoint.files.safetensors_file import DTYPES
from growc.checkpoint.mixtures.fit import Fit
from growc.checkpoint.mixtures.place_tensors import MixtureTensor
from growc.dialects.transformers.named_class import named_class
from growc.errors.diagnostic import Diagnostic, GrowError, wrong
from growc.ir.graph import Upcycled
from growc.passes.compilation import Result
from growc.passes.upcycling.networks import mixtures
from growc.plans.execute import execute
from growc.plans.lazy_rows import Rows, stored
from growc.plans.plan import WeightPlan
from growc.recipe import syntax_tree as ast


@dataclass
class MixtureWeights(GrownWeights[H]):
    """The weights of a mixture by the names of its class.

    dense: the source's name for names of tensors that stay the source's. mixed: contents of the mixtures'
    tensors. stacks, routers: for each of these tensors, the plans of its mixture.
    """

    carries = False
    dense: Mapping[str, str] = field(default_factory=dict)
    mixed: Mapping[str, MixtureTensor] = field(default_factory=dict)
    stacks: Mapping[str, Sequence[WeightPlan]] = field(default_factory=dict)
    routers: Mapping[str, WeightPlan] = field(default_factory=dict)

    @cached_property
    def plans(self) -> dict[str, WeightPlan]:
        """A plan for every tensor of a file; plans of experts' tensors state only their sizes."""
        from transformers.modeling_utils import remove_tied_weights_from_state_dict

        stored_names = remove_tied_weights_from_state_dict(dict(self.module.state_dict()), self.module)
        dense = {self.first[name]: origin for name, origin in self.dense.items()}
        plans = {}
        for name in stored_names:
            origin = dense.get(self.first[name]) or self.stacks[name][0].source
            shape = self.mixed[name].shape if name in self.mixed else self.source.entry(origin).shape
            plans[name] = WeightPlan(name, origin, "", shape, shape, ())
        return plans

    @property
    def unread(self) -> dict[str, WeightPlan]:
        """Empty: all tensors of the class have a place."""
        return {}

    def working(self, name: str) -> int:
        """The memory in bytes that making a tensor needs: twice its size if it holds experts, which are made
        as a whole.
        """
        return 2 * self.entry(name).nbytes if name in self.mixed else 0

    def make(self, name: str) -> Rows:
        """One tensor of the result: the source's tensor, or experts' tensors made as a whole."""
        if name not in self.mixed:
            origin = self.origin(name)
            return self.source.rows(origin) or stored(self.source.read(origin))
        place, plans, router = self.mixed[name], self.stacks[name], self.routers[name]
        kind = DTYPES[self.entry(name).dtype]
        if place.router:
            scores = execute(router, np.zeros(router.before, np.float32))
            return stored(place.filled({}, scores).astype(kind))
        stacks = {number: self.stack(plans[number]) for number in place.numbers}
        return stored(place.filled(stacks, np.zeros(0)).astype(kind))

    def stack(self, plan: WeightPlan) -> Array:
        """A tensor of the network for each expert, stacked along a new first axis."""
        grown = execute(plan, self.source.read(plan.source).reshape(plan.before), self.source.read)
        rank = len(self.source.entry(plan.source).shape)
        return grown.reshape(plan.after[0], *plan.after[-rank:])

    def reads(self, name: str, rows: range) -> int:
        """The number of bytes of the source that are read for some rows; for experts' tensors, all."""
        if name not in self.mixed:
            entry = self.entry(name)
            return len(rows) * entry.row_bytes
        plans = self.stacks[name]
        return sum(self.source.entry(plans[k].source).nbytes for k in self.mixed[name].numbers)


def fit_mixture(c: Result) -> Result:
    """The compilation with the class of its result.

    Raises GrowError (G200, G309, G318).
    """
    model, kind = class_model(c), named_class()
    if kind is None:
        remedy = "name one that transformers has: `--class transformers:NAME` (`model_class=` in Python)"
        raise wrong("`upcycle` of a checkpoint needs the class that holds the mixture", remedy)
    require_alone(c)
    upcyclings = [b for b in c.statements if isinstance(b.statement, ast.Upcycle)]
    planned = mixtures(c.first, upcyclings)
    with quiet():
        fitted = Fit(c.first, model, planned, kind, c.outside, model.decided).run()
    plans = {plan.source: plan for plan in c.plan.weights}
    routers = {_place(w.upcycled): plans[w.name] for w in c.graph.weights if w.upcycled and w.upcycled.router}
    stacks, drawn = dict[str, Sequence[WeightPlan]](), dict[str, WeightPlan]()
    for mixture, mixture_contents in zip(planned, fitted.contents, strict=True):
        stack_plans = [plans[use.name] for use in mixture.network.stacks]
        stacks |= dict.fromkeys(mixture_contents, stack_plans)
        drawn |= dict.fromkeys(mixture_contents, routers[mixture.statement, mixture.number])
    contents = {
        name: place for mixture_contents in fitted.contents for name, place in mixture_contents.items()
    }
    class_weights: ClassWeights = model.class_weights
    weights = MixtureWeights(
        class_weights, fitted.module, {}, fitted.config, {}, {}, fitted.tensors, contents, stacks, drawn
    )
    written = sum(weights.entry(name).nbytes for name in weights.plans)
    note = f"the result is a `{kind.__name__}`; weights stand here by the names of the source"
    plan = replace(c.plan, bytes_to_write=written, notes=(*c.plan.notes, note))
    return ClassResult(**vars(c) | {"plan": plan}, grown=weights)


def _place(mark: Upcycled | None) -> tuple[int, int]:
    assert mark is not None
    return mark.statement, mark.network


def require_alone(c: Result) -> None:
    """Raise GrowError (G309) if the recipe asks for more than a mixture, or the checkpoint is more than a
    directory.
    """
    others = [b for b in c.statements if not isinstance(b.statement, ast.Upcycle | ast.Expect)]
    if others:
        message = "beside `upcycle`, a checkpoint takes no other statement"
        remedy = "apply the others first, or to the mixture that this one gives"
        raise GrowError(Diagnostic("G309", message, others[0].statement.span, help=remedy))
    source = class_model(c).class_weights
    if isinstance(source, CheckpointOnDisk) and source.checkpoint.distributed:
        raise GrowError(Diagnostic("G309", "`upcycle` reads no distributed checkpoint"))
    if isinstance(source, CheckpointOnDisk) and list(adapters_of(source.checkpoint)):
        message = "an adapter lies in the checkpoint, of weights that become those of experts"
        raise GrowError(Diagnostic("G309", message, help="merge it into the weights, or take it out"))
