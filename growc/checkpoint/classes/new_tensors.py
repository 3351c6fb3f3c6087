"""The tensors of a new checkpoint, made from a plan when each of them is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from growc.algebra.indexmap import Array
from growc.checkpoint.classes.class_weights import ClassWeights, first_names
from growc.checkpoint.classes.config_only import ConfigOnly
from growc.checkpoint.classes.on_disk import CheckpointOnDisk
from growc.checkpoint.files.key_mapping import in_file
from growc.checkpoint.files.lora import AdapterGrowth, adapters_of, grow_adapter
from growc.checkpoint.files.process_shares import Tell, quiet
from growc.checkpoint.files.safetensors_file import DTYPES, HeaderEntry
from growc.checkpoint.files.shards import SHARD_SIZE, TensorGroup
from growc.checkpoint.files.write import as_they_are, write_checkpoint
from growc.dialects.transformers.config.shapes import Feature, same_tensors
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.passes.compilation import Result
from growc.plans.execute import planned
from growc.plans.lazy_rows import Rows, as_rows, average
from growc.plans.memory_bound import working_bytes
from growc.plans.plan import ZERO, AxisStep, Layout, LeafStep, WeightPlan
from growc.plans.reads import rows_read
from growc.system.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from growc.dialects.transformers.log.compensation import Factor

H = TypeVar("H", bound=ClassWeights)

MADE = ("makes", "scales")
"""Verbs of steps whose statements only take units, so that other tensors may take the same units."""


@dataclass
class GrownWeights(Generic[H]):
    """The weights of a result by the names of its class.

    planned: plans by names of the class. module: the result's class, on meta. config: the config it was built
    from. factors: compensation for numbers that the class computes from its config. leads: for axes of
    tensors that the program does not read, axes that change with them.
    """

    source: H
    module: Any
    planned: Mapping[str, WeightPlan]
    config: Mapping[str, Any]
    factors: Mapping[str, Factor] = field(default_factory=dict)
    leads: Mapping[Feature, tuple[Feature, ...]] = field(default_factory=dict)
    carries: ClassVar[bool] = True
    """Whether the plans name the result's tensors, so that an optimizer's state can be carried over."""

    @cached_property
    def first(self) -> dict[str, str]:
        """For every name of a tensor of the result, the tensor's first name."""
        return first_names(self.module)

    @cached_property
    def plans(self) -> dict[str, WeightPlan]:
        """The plan of every tensor that is written.

        Raises GrowError (G308) if a plan's shape differs from the class's.
        """
        from transformers.modeling_utils import remove_tied_weights_from_state_dict

        tied = {name: names for names in same_tensors(self.module) for name in names}
        state = self.module.state_dict()
        shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        stored = remove_tied_weights_from_state_dict(dict(state), self.module)
        plans = {name: replace(self._plan_of(tied[name]), name=name) for name in stored}
        for name, plan in plans.items():
            if plan.after != shapes[name] and name not in self.planned:
                plan = plans[name] = self._resized(plan, shapes[name])
            if plan.after != shapes[name]:
                sizes = f"{list(plan.after)} by the plan and {list(shapes[name])} in its class"
                raise GrowError(Diagnostic("G308", f"`{name}` would be {sizes}"))
        return plans

    @cached_property
    def unread(self) -> dict[str, WeightPlan]:
        """The plans of tensors that the program does not read."""
        return {name: plan for name, plan in self.plans.items() if name not in self.planned}

    @cached_property
    def unled(self) -> list[str]:
        """Tensors of `unread` that change although no axis of another tensor determines their units."""
        return [
            name
            for name, plan in self.unread.items()
            for axis, (old, new) in enumerate(zip(plan.before, plan.after, strict=True))
            if old != new and not any(self._leading(name, axis, old, new))
        ]

    def _plan_of(self, names: list[str]) -> WeightPlan:
        """The plan of a tensor. A tensor that the program does not use stays as it is."""
        planned = next((self.planned[name] for name in names if name in self.planned), None)
        if planned is not None:
            factor = self.factor(names)
            if factor is None or factor.shift:
                return planned
            return replace(planned, scale=planned.scale * factor.times)
        name = names[0]
        origin = self._before(name)
        if origin is None or self.source.stored[origin] in self._read:
            raise GrowError(Diagnostic("G308", f"nothing says what is to become of `{name}`"))
        shape = self.source.entry(origin).shape
        return WeightPlan(name, origin, "", shape, shape, (), copy_of=origin if origin != name else "")

    def _resized(self, plan: WeightPlan, shape: tuple[int, ...]) -> WeightPlan:
        """The plan of a tensor that the program does not read and that its class resizes along with others.

        An axis takes the units that most of the axes take that change with it. If there are none, new units
        are zero and the last units are dropped.
        """
        if len(shape) != len(plan.before):
            return plan
        pairs = enumerate(zip(plan.before, shape, strict=True))
        changed = [(axis, old, new) for axis, (old, new) in pairs if old != new]
        steps = tuple(step for change in changed for step in self._steps(plan.name, *change))
        return replace(plan, after=shape, steps=steps)

    def _steps(self, name: str, axis: int, old: int, new: int) -> tuple[AxisStep, ...]:
        leading = list(self._leading(name, axis, old, new))
        if not leading:
            return (_kept(axis, old, new),)
        counts = Counter(tuple(step.layout.signature for step in steps) for steps in leading)
        [(most, _)] = counts.most_common(1)
        best = next(steps for steps in leading if tuple(step.layout.signature for step in steps) == most)
        return tuple(replace(step, axis=axis, next=None) for step in best)

    def _leading(self, name: str, axis: int, old: int, new: int) -> Iterator[tuple[AxisStep, ...]]:
        for tensor, lead_axis in self.leads.get((name, axis), ()):
            plan = self.planned.get(tensor)
            if plan is None or plan.literal is not None or lead_axis < 0:
                continue
            steps = tuple(step for step in plan.steps if step.axis == lead_axis)
            sizes = plan.before[lead_axis], plan.after[lead_axis]
            if steps and sizes == (old, new) and all(step.verb in MADE for step in steps):
                yield steps

    @cached_property
    def _read(self) -> frozenset[str]:
        """The stored names of the tensors that the program reads; plans cover these."""
        return frozenset(self.source.stored[plan.copy_of or plan.source] for plan in self.planned.values())

    def factor(self, names: list[str]) -> Factor | None:
        """The factor for a tensor of these names with which the class computes what was planned."""
        return next((self.factors[name] for name in names if name in self.factors), None)

    def _before(self, name: str) -> str | None:
        """The source's name of an unused tensor of the result: in the layer from which the result's layer
        comes.
        """
        parts = name.split(".")
        for end in range(len(parts) - 1, 0, -1):
            origin = self._moves.get(tuple(parts[:end]))
            if origin is not None:
                name = ".".join((*origin, *parts[end:]))
                break
        return name if name in self.source.stored else None

    @cached_property
    def _moves(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        """Prefixes of names, up to the number of a layer, mapped to those of the layers they come from."""
        moves: dict[tuple[str, ...], tuple[str, ...]] = {}
        for plan in self.planned.values():
            new, old = plan.name.split("."), (plan.copy_of or plan.source).split(".")
            for end, words in enumerate(zip(new, old, strict=False), start=1):
                if len(new) == len(old) and all(word.isdigit() for word in words):
                    moves.setdefault(tuple(new[:end]), tuple(old[:end]))
        return moves

    @cached_property
    def _origins(self) -> dict[str, str]:
        """The source's name of each tensor that plans name; layers that moved have other names there."""
        return {plan.source: plan.copy_of or plan.source for plan in self.planned.values()}

    def read(self, name: str) -> Array:
        """A tensor of the source, by the name that plans use."""
        merged = self._merged.get(name)
        if merged is not None:
            return self._old(merged).whole().reshape(merged.before)
        return self.source.read(self._origins.get(name, name))

    @cached_property
    def _merged(self) -> dict[str, WeightPlan]:
        """Plans of means of several tensors, by the name that plans use."""
        return {plan.source: plan for plan in self.planned.values() if plan.mean_of}

    def _old(self, plan: WeightPlan) -> Rows:
        """The tensor to which the steps of a plan apply."""
        names = plan.mean_of or (plan.copy_of or plan.source,)
        return average([self.source.rows(name) or as_rows(self.source.read(name)) for name in names])

    def reads(self, name: str, rows: range) -> int:
        """The number of bytes of the source that are read for some rows of a tensor of the result."""
        row_counts = rows_read(self.plans[name], lambda origin: self._stored_as(origin).rows, rows)
        return sum(count * self._stored_as(origin).row_bytes for origin, count in row_counts.items())

    def _stored_as(self, name: str) -> HeaderEntry:
        """The stored entry of a tensor of the source, by the name that plans use."""
        return self.source.entry(self._origins.get(name, name))

    def origin(self, name: str) -> str:
        """The source's name of the tensor from which one of the result comes."""
        return self.plans[name].copy_of or self.plans[name].source

    def working(self, name: str) -> int:
        """The memory in bytes that making a tensor needs in addition to blocks of its rows."""
        return working_bytes(self.plans[name])

    def make(self, name: str) -> Rows:
        """One tensor of the result, by rows."""
        plan = self.plans[name]
        kind = DTYPES[self.source.entry(self.origin(name)).dtype]
        rows = planned(plan, np.zeros(plan.before, kind) if plan.zero else self._old(plan), self.read)
        factor = self.factors.get(name)
        return rows if factor is None or not factor.shift else rows.then(factor.of)

    def entry(self, name: str) -> HeaderEntry:
        """Name, element type and shape of a tensor in its file. The element type is the source's."""
        return HeaderEntry(name, self.source.entry(self.origin(name)).dtype, self.plans[name].after)


def _kept(axis: int, old: int, new: int) -> AxisStep:
    index = np.array([k if k < old else -1 for k in range(new)], dtype=np.int64)
    leaf = LeafStep(old, index, np.where(index < 0, 0.0, 1.0), np.full(new, ZERO))
    return AxisStep(axis, Layout("leaf", step=leaf), "makes")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ClassResult(Result, Generic[H]):
    """A finished compilation of a class.

    grown: the class that stores the result, and its weights there.
    """

    grown: GrownWeights[H]


def class_result(c: Result) -> ClassResult[H]:
    """The compilation as a `ClassResult`; it must be one of a class."""
    assert isinstance(c, ClassResult), "a class was compiled"
    return c


def parts(grown: GrownWeights[CheckpointOnDisk] | GrownWeights[ConfigOnly]) -> Iterator[TensorGroup]:
    """The contents of a result's files; tensors that the class does not take stay as they are.

    For a config alone, these are the files that transformers writes for its class.
    """
    entries = {name: grown.entry(name) for name in grown.plans}
    if isinstance(grown.source, ConfigOnly):
        yield from in_file(grown.module, entries, grown.make)
        return
    names, checkpoint = grown.source.names, grown.source.checkpoint
    if checkpoint.distributed:  # its names are those of the class
        class_parts = list(in_file(grown.module, entries, grown.make))
    else:
        class_parts = list(names.files(grown.module, entries, grown.make))
    yield from class_parts
    written_names = {entry.name for part in class_parts for entry in part.entries}
    unused = [checkpoint.tensors[n].entry for n in names.unused if n not in written_names]
    yield from as_they_are(unused, checkpoint.read)


def write_grown(
    folder: Path,
    grown: GrownWeights[CheckpointOnDisk],
    *,
    shard_size: int = SHARD_SIZE,
    wrote: Tell = quiet,
    ranks: Ranks = ALONE,
    done: Path | None = None,
) -> None:
    """Write the result into a new folder, with the adapters of the source."""
    checkpoint = grown.source.checkpoint
    write_checkpoint(
        folder,
        checkpoint,
        grown.config,
        parts(grown),
        shard_size=shard_size,
        parameters=grown.module.num_parameters(),
        wrote=wrote,
        ranks=ranks,
        remade=partial(parts, grown),
        done=done,
    )
    growth = AdapterGrowth(grown.plans, grown.source.first.get, grown.read)
    for place in adapters_of(checkpoint):
        grow_adapter(place, folder / place.relative_to(checkpoint.path), growth)


def remarks(grown: GrownWeights[CheckpointOnDisk], carried: Path | None = None) -> Iterator[str]:
    """Remarks on changed config fields, tensors that the class does not take, and files not carried over.

    carried: a file that is carried over in another way.
    """
    config = grown.source.checkpoint.config
    for name, after in grown.config.items():
        if name not in config:
            yield f"config.json: `{name}` is new: {after}"
        elif after != config[name]:
            yield f"config.json: `{name}` {config[name]} -> {after}"
    if unused := grown.source.names.unused:
        yield f"{len(unused)} tensors that the class does not take are as they were: {', '.join(unused[:3])}"
    not_carried = [
        p.name for p in grown.source.checkpoint.left() if carried is None or p.resolve() != carried.resolve()
    ]
    if not_carried:
        yield f"not carried over: {', '.join(not_carried[:6])}"
