"""From a plan to the tensors of a new checkpoint, each made when it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from growc.algebra.indexmap import Array
from growc.checkpoint.classes.holder import Holder, first_names
from growc.checkpoint.classes.on_disk import Opened
from growc.checkpoint.classes.outlined import Outlined
from growc.checkpoint.files.key_mapping import in_file
from growc.checkpoint.files.lora import Growth, adapters_of, grow_adapter
from growc.checkpoint.files.safetensors_file import DTYPES, Entry
from growc.checkpoint.files.shards import SHARD_SIZE, Part
from growc.checkpoint.files.shares import Tell, quiet
from growc.checkpoint.files.write import as_they_are, write_checkpoint
from growc.dialects.transformers.config.shapes import Feature, same_tensors
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.passes.compilation import Result
from growc.plans.execute import planned
from growc.plans.memory_bound import working_bytes
from growc.plans.plan import ZERO, AxisStep, Layout, LeafStep, WeightPlan
from growc.plans.reads import rows_read
from growc.plans.rows import Rows, as_rows, average
from growc.system.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from growc.dialects.transformers.log.compensation import Factor

H = TypeVar("H", bound=Holder)

MADE = ("makes", "scales")
"""What a statement does to tensors of its units, where it only takes them."""


@dataclass
class GrownWeights(Generic[H]):
    """The weights of a result by the names of its class.

    planned: by names of the class. module: the result's class, on meta. config: what it was built from.
    factors: what makes up for numbers that the class computes from it. leads: for axes of tensors that
    the program does not read, axes that change with them.
    """

    source: H
    module: Any
    planned: Mapping[str, WeightPlan]
    config: Mapping[str, Any]
    factors: Mapping[str, Factor] = field(default_factory=dict)
    leads: Mapping[Feature, tuple[Feature, ...]] = field(default_factory=dict)
    carries: ClassVar[bool] = True
    """Whether plans say by the names of the result what becomes of an optimizer's state."""

    @cached_property
    def first(self) -> dict[str, str]:
        """For every name of a tensor of the result, the first of its names."""
        return first_names(self.module)

    @cached_property
    def plans(self) -> dict[str, WeightPlan]:
        """The plan of every tensor that a file is to have. Raises GrowError (G308)."""
        from transformers.modeling_utils import remove_tied_weights_from_state_dict

        same = {name: names for names in same_tensors(self.module) for name in names}
        state = self.module.state_dict()
        shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        kept = remove_tied_weights_from_state_dict(dict(state), self.module)
        found = {name: replace(self._plan_of(same[name]), name=name) for name in kept}
        for name, plan in found.items():
            if plan.after != shapes[name] and name not in self.planned:
                plan = found[name] = self._resized(plan, shapes[name])
            if plan.after != shapes[name]:
                sizes = f"{list(plan.after)} by the plan and {list(shapes[name])} in its class"
                raise GrowError(Diagnostic("G308", f"`{name}` would be {sizes}"))
        return found

    @cached_property
    def unread(self) -> dict[str, WeightPlan]:
        """The plans of tensors that the program does not read."""
        return {name: plan for name, plan in self.plans.items() if name not in self.planned}

    @cached_property
    def unled(self) -> list[str]:
        """Those of them that change, and no axis of others says with which units."""
        return [
            name
            for name, plan in self.unread.items()
            for axis, (old, new) in enumerate(zip(plan.before, plan.after, strict=True))
            if old != new and not any(self._leading(name, axis, old, new))
        ]

    def _plan_of(self, names: list[str]) -> WeightPlan:
        """What becomes of a tensor; one that the program does not use stays as it is."""
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
        """The plan of a tensor that the program does not read, and its class makes as large as others.

        An axis takes the units that most of the axes take that change with it; where there are none, what is
        new is zero, and what goes is the last.
        """
        if len(shape) != len(plan.before):
            return plan
        pairs = enumerate(zip(plan.before, shape, strict=True))
        changed = [(axis, old, new) for axis, (old, new) in pairs if old != new]
        steps = tuple(step for one in changed for step in self._steps(plan.name, *one))
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
        for tensor, at in self.leads.get((name, axis), ()):
            plan = self.planned.get(tensor)
            if plan is None or plan.literal is not None or at < 0:
                continue
            steps = tuple(step for step in plan.steps if step.axis == at)
            sizes = plan.before[at], plan.after[at]
            if steps and sizes == (old, new) and all(step.verb in MADE for step in steps):
                yield steps

    @cached_property
    def _read(self) -> frozenset[str]:
        """Under which names the tensors lie that the program reads: what becomes of these, plans say."""
        return frozenset(self.source.stored[plan.copy_of or plan.source] for plan in self.planned.values())

    def factor(self, names: list[str]) -> Factor | None:
        """What a tensor of these names takes, so that the class computes what was planned."""
        return next((self.factors[name] for name in names if name in self.factors), None)

    def _before(self, name: str) -> str | None:
        """Where an unused tensor of the result stands in the source: in the layer that its own comes from."""
        parts = name.split(".")
        for end in range(len(parts) - 1, 0, -1):
            origin = self._moves.get(tuple(parts[:end]))
            if origin is not None:
                name = ".".join((*origin, *parts[end:]))
                break
        return name if name in self.source.stored else None

    @cached_property
    def _moves(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        """Prefixes of names, up to the number of a layer, with those of the layers that they come from."""
        found: dict[tuple[str, ...], tuple[str, ...]] = {}
        for plan in self.planned.values():
            new, old = plan.name.split("."), (plan.copy_of or plan.source).split(".")
            for end, words in enumerate(zip(new, old, strict=False), start=1):
                if len(new) == len(old) and all(word.isdigit() for word in words):
                    found.setdefault(tuple(new[:end]), tuple(old[:end]))
        return found

    @cached_property
    def _origins(self) -> dict[str, str]:
        """The source's name of each tensor that plans name: layers that moved have others there."""
        return {plan.source: plan.copy_of or plan.source for plan in self.planned.values()}

    def read(self, name: str) -> Array:
        """A tensor of the source as plans name it."""
        merged = self._merged.get(name)
        if merged is not None:
            return self._old(merged).whole().reshape(merged.before)
        return self.source.read(self._origins.get(name, name))

    @cached_property
    def _merged(self) -> dict[str, WeightPlan]:
        """Tensors that plans name, and that are means."""
        return {plan.source: plan for plan in self.planned.values() if plan.mean_of}

    def _old(self, plan: WeightPlan) -> Rows:
        """What the steps of a plan begin with."""
        names = plan.mean_of or (plan.copy_of or plan.source,)
        return average([self.source.rows(name) or as_rows(self.source.read(name)) for name in names])

    def reads(self, name: str, rows: range) -> int:
        """How many bytes of the source are read for some rows of a tensor of the result."""
        seen = rows_read(self.plans[name], lambda one: self._stored_as(one).rows, rows)
        return sum(count * self._stored_as(one).row_bytes for one, count in seen.items())

    def _stored_as(self, name: str) -> Entry:
        """What a tensor of the source is, as plans name it."""
        return self.source.entry(self._origins.get(name, name))

    def origin(self, name: str) -> str:
        """The source's name of the tensor that one of the result comes from."""
        return self.plans[name].copy_of or self.plans[name].source

    def working(self, name: str) -> int:
        """How many bytes making a tensor takes beside blocks of its rows."""
        return working_bytes(self.plans[name])

    def make(self, name: str) -> Rows:
        """One tensor of the result, by rows."""
        plan = self.plans[name]
        kind = DTYPES[self.source.entry(self.origin(name)).dtype]
        made = planned(plan, np.zeros(plan.before, kind) if plan.zero else self._old(plan), self.read)
        factor = self.factors.get(name)
        return made if factor is None or not factor.shift else made.then(factor.of)

    def entry(self, name: str) -> Entry:
        """What a file says of it: it keeps its elements' type."""
        return Entry(name, self.source.entry(self.origin(name)).dtype, self.plans[name].after)


def _kept(axis: int, old: int, new: int) -> AxisStep:
    index = np.array([k if k < old else -1 for k in range(new)], dtype=np.int64)
    leaf = LeafStep(old, index, np.where(index < 0, 0.0, 1.0), np.full(new, ZERO))
    return AxisStep(axis, Layout("leaf", step=leaf), "makes")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class HeldResult(Result, Generic[H]):
    """A finished compilation of a class. held: the class that stores the result, and its weights there."""

    held: GrownWeights[H]


def held_result(c: Result) -> HeldResult[H]:
    """A finished compilation, of a class."""
    assert isinstance(c, HeldResult), "a class was compiled"
    return c


def parts(grown: GrownWeights[Opened] | GrownWeights[Outlined]) -> Iterator[Part]:
    """What the files of a result hold; what the class does not take stays as it is. Of a config alone they
    are the files that transformers makes for its class.
    """
    entries = {name: grown.entry(name) for name in grown.plans}
    if isinstance(grown.source, Outlined):
        yield from in_file(grown.module, entries, grown.make)
        return
    names, checkpoint = grown.source.names, grown.source.checkpoint
    if checkpoint.distributed:  # which has the names of the class
        made = list(in_file(grown.module, entries, grown.make))
    else:
        made = list(names.files(grown.module, entries, grown.make))
    yield from made
    taken = {entry.name for part in made for entry in part.entries}
    unused = [checkpoint.tensors[n].entry for n in names.unused if n not in taken]
    yield from as_they_are(unused, checkpoint.read)


def write_grown(
    folder: Path,
    grown: GrownWeights[Opened],
    *,
    shard_size: int = SHARD_SIZE,
    wrote: Tell = quiet,
    ranks: Ranks = ALONE,
    done: Path | None = None,
) -> None:
    """Write the result into a new folder, with the adapters that lie in the source."""
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
    growth = Growth(grown.plans, grown.source.first.get, grown.read)
    for place in adapters_of(checkpoint):
        grow_adapter(place, folder / place.relative_to(checkpoint.path), growth)


def remarks(grown: GrownWeights[Opened], carried: Path | None = None) -> Iterator[str]:
    """What became of the config, and of what no plan speaks of. carried: a file that is carried along."""
    for name, after in grown.config.items():
        before = grown.source.checkpoint.config.get(name)
        if after != before and name in grown.source.checkpoint.config:
            yield f"config.json: `{name}` {before} -> {after}"
    if unused := grown.source.names.unused:
        yield f"{len(unused)} tensors that the class does not take are as they were: {', '.join(unused[:3])}"
    left = [
        p.name for p in grown.source.checkpoint.left() if carried is None or p.resolve() != carried.resolve()
    ]
    if left:
        yield f"not carried over: {', '.join(left[:6])}"
