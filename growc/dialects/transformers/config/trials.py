"""Trials of configs: each builds the class, and is scored by how much of the planned program it has.

`ConfigTrials` takes the source's config, a `Target` and a build function. It builds each config once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from torch import nn

from growc.dialects.transformers.config.fields import (
    FieldPath,
    NoConfigError,
    Values,
    changed,
    complete,
    fields,
    fields_by_layer,
    scaled,
    settings,
    value_at,
    without,
)
from growc.dialects.transformers.config.shapes import (
    LAYERS,
    Feature,
    Features,
    TensorShape,
    Ties,
    agreement,
    among,
    features,
    layer_counts,
    read_by,
    shapes_of,
    ties_of,
)
from growc.dialects.transformers.log.entry import Log, alike, same_logs
from growc.dialects.transformers.log.record import operator_log
from growc.dialects.transformers.log.zero_branches import pruned
from growc.dialects.transformers.missing_fields import asking
from growc.errors.diagnostic import Attempt


class Build(Protocol):
    """Function that builds the class of a config on meta. With `constants`, unstored buffers have values."""

    def __call__(self, config: dict[str, object], *, constants: bool = False) -> nn.Module:
        """Return the module in evaluation mode. Raises if the class does not accept the config."""
        ...


@dataclass(frozen=True)
class Target:
    """The planned program.

    shapes: tensors that the result's checkpoint holds and the program reads. Other tensors of the class are
    free. ties: groups of names that are one tensor. log: the operator log of the planned program on `inputs`.
    layers: for each container whose layers change, the source layer of each new one. zeros: stored tensors
    that are zero. fixed: the program takes no other sizes, except for rows. origins: for tensors of the
    result, the tensors of the source that they come from. unread: the number of layers of a container that
    the source has and does not read.
    """

    shapes: Mapping[str, TensorShape]
    ties: Ties
    log: Log
    inputs: Mapping[str, object]
    layers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    zeros: frozenset[str] = frozenset()
    fixed: bool = False
    origins: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, int] = field(default_factory=dict)

    @property
    def features(self) -> Features:
        """The sizes that a class must have."""
        sizes = features(self.shapes)
        return {f: n + self.unread.get(f[0], 0) if f[1] == LAYERS else n for f, n in sizes.items()}


@dataclass(frozen=True)
class Built:
    """A class as built from a config.

    If it refuses the config, it has no shapes, and `failed` is its error.
    """

    shapes: Mapping[str, TensorShape] = field(default_factory=dict)
    ties: Ties = frozenset()
    log: Log | None = None
    failed: str = ""


@dataclass
class KnownSizes:
    """Earlier builds of configs, for any target.

    built: by the config, whether its log was recorded, and `Target.fixed`. completed: configs as the class
    completes them.
    """

    built: dict[tuple[str, bool, bool], Built] = field(default_factory=dict)
    completed: dict[str, dict[str, object] | None] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget all builds."""
        self.built.clear()
        self.completed.clear()


PROBED = 3
"""The factor by which proposals may exceed the present or planned number of layers.

It bounds lists per layer.
"""


@dataclass(frozen=True)
class ConfigTrial(Built):
    """A config with other values than the source's, and its build."""

    values: Values = field(default_factory=dict)

    @cached_property
    def features(self) -> dict[Feature, int]:
        """The sizes of the class."""
        return features(self.shapes)

    @cached_property
    def read(self) -> Mapping[str, TensorShape]:
        """The shapes of the tensors that the class reads, or of all tensors if that is unknown."""
        return self.shapes if self.log is None else read_by(self.log.reads, self.shapes, self.ties)

    @property
    def refused(self) -> bool:
        """Whether the class refuses a single new value."""
        return not self.shapes and len(self.values) == 1

    @cached_property
    def key(self) -> str:
        """A key that is equal for equal values."""
        return repr(sorted(self.values.items(), key=repr))


def _of_layers(entries: object, count: int, lineage: Sequence[int]) -> object | None:
    """Return a per-layer list, or a mapping by layer numbers, rewritten for these layers.

    The result is None for any other value.
    """
    if isinstance(entries, list) and len(entries) == count:
        return [entries[i] for i in lineage]
    numbered = isinstance(entries, dict) and all(str(k).isdecimal() and int(k) < count for k in entries)
    if isinstance(entries, dict) and entries and numbered:
        return {str(k): entries[str(i)] for k, i in enumerate(lineage) if str(i) in entries}
    return None


class ConfigTrials:
    """Configs with other values than the source's, built on demand.

    config: the config with all fields of the class.
    settings: its numbers that may change, and None for each field that the class asks for and does not find.
    wanted: the planned sizes. decided: values that the caller decides. start: the source with these.
    paired: any other number may change with one that the class refuses alone.
    by_layer: fields that may have a value of their own in each layer (`per_layer_config` of transformers).
    proposed: trials that sizes and logs suggest, in order.
    common: for a proposed trial, the overlap of its origin's log with the planned one.
    """

    def __init__(
        self,
        source_config: Mapping[str, object],
        target: Target,
        build: Build,
        known: KnownSizes | None = None,
        decided: Values | None = None,
        paired: bool = False,
        by_layer: Collection[FieldPath] = (),
    ) -> None:
        self.source_config, self.target, self.build, self.paired = dict(source_config), target, build, paired
        self.known = KnownSizes() if known is None else known
        with asking() as missing:
            module = build(self.source_config)
        self.config = complete(module, self.source_config)
        self.settings = dict(settings(self.config))
        self.settings |= {path: None for path in missing.paths(module) if path not in self.settings}
        for path in by_layer:
            own = fields_by_layer(module, path)
            taken = own and self._tried({own[0]: scaled(self.settings[path], 2)}, logged=False).shapes
            self.settings |= {
                place: self.settings[path] for place in own if taken and place not in self.settings
            }
        self.wanted = target.features
        self.seen: dict[str, ConfigTrial] = {}
        self.proposed: list[ConfigTrial] = []
        self.common: dict[str, float] = {}
        self.decided: Values = {}
        self.source = self.of({}, logged=False)
        self.decided = decided or {}
        for path in self.decided:
            self.settings = {p: v for p, v in self.settings.items() if p[: len(path)] != path[: len(p)]}
        self.start = self.of({})

    @cached_property
    def before(self) -> dict[Feature, int]:
        """The sizes of the source. A layer of the result has the sizes of the layer that it comes from."""
        origins = self.target.origins
        return {(n, k): self.source.features.get((origins.get(n, n), k), -1) for n, k in self.wanted}

    def value(self, path: FieldPath) -> object:
        """Return the source's value at a path, or None for a field that the config lacks."""
        return self.settings[path] if path in self.settings else value_at(self.config, path)

    def propose(self, values: Values, origin: ConfigTrial) -> ConfigTrial:
        """Try values that sizes or logs of another trial suggest.

        The log overlap of the trial, as long as it is unknown, is taken from its origin.
        """
        self.proposed.append(trial := self.of(values))
        self.common.setdefault(trial.key, self.overlap(origin))
        return trial

    def of(self, values: Values, logged: bool | None = None) -> ConfigTrial:
        """Return the trial of these values.

        logged: whether its log is recorded. None records it if the sizes are as wanted.
        """
        values = {p: v for p, v in values.items() if p not in self.settings or v != self.settings[p]}
        values |= self.decided
        key = ConfigTrial(values=values).key
        trial = self.seen.get(key) or self._built(values, logged=False)
        needs_log = not self.wrong(trial) if logged is None else logged
        if needs_log and trial.log is None and not trial.failed:
            trial = self._built(trial.values, logged=True)
        self.seen[key] = trial
        return trial

    def _built(self, values: Values, logged: bool) -> ConfigTrial:
        trial = self._tried(values, logged)
        return (self._joined(trial, logged) or trial) if trial.failed else trial

    def _tried(self, values: Values, logged: bool) -> ConfigTrial:
        try:
            config = changed(self.config, values)
        except NoConfigError as error:  # a list may be shorter than in the source
            return ConfigTrial(values=values, failed=said(error))
        return ConfigTrial(values=values, **vars(self.built(config, logged)))

    def _joined(self, trial: ConfigTrial, logged: bool) -> ConfigTrial | None:
        """Extend the new values if the class refuses them alone, or builds and does not run.

        Of the trials of one kind of extension, the one with most of the planned sizes is taken. If the class
        was built but did not run, a trial that runs with the same sizes is taken.
        """
        for several in self._more(trial):
            candidates = (self._tried({**more, **trial.values}, logged=False) for more in several if more)
            accepted = [t for t in candidates if t.shapes and (not trial.shapes or t.shapes == trial.shapes)]
            for candidate in sorted(accepted, key=lambda t: -agreement(self.wanted, t.features)):
                candidate = self._tried(candidate.values, logged)
                if not candidate.failed:
                    return candidate
        return None

    def _more(self, trial: ConfigTrial) -> Iterator[Sequence[Values]]:
        """Yield kinds of values to change with the others, in this order.

        - Fields that the class fills itself.
        - All numbers that were equal to a changed one.
        - One number in proportion, since heads times head width is the width of a layer.
        - Lists per layer.
        - Lists of the same length that the class fills.
        """
        equal, ratios = self._equal(trial.values), self._in_proportion(trial.values)
        if trial.shapes or not self.paired:
            ratios = [more for more in ratios if more.items() <= equal.items()]
        if not trial.shapes:
            yield [self.filled(trial.values, self.own)]
        yield [equal]
        yield ratios
        yield [self.lists(trial.values)]
        if not trial.shapes:
            yield [self.filled(trial.values, self.whole)]

    def built(self, config: dict[str, object], logged: bool) -> Built:
        """Return the build of a config, made once for all targets, with its log or only its sizes."""
        key = repr(config), logged, self.target.fixed
        if key not in self.known.built:
            self.known.built[key] = self._made(config, logged)
        return self.known.built[key]

    def _made(self, config: dict[str, object], logged: bool) -> Built:
        with Attempt() as attempt:
            module = self.build(config, constants=logged)
        if attempt.error is not None:
            return Built(failed=said(attempt.error))
        shapes, ties = shapes_of(module), ties_of(module)
        if not logged:
            return Built(shapes, ties)
        with Attempt() as attempt:
            return Built(shapes, ties, operator_log(module, self.target.inputs, self.target.fixed))
        assert attempt.error is not None
        return Built(shapes, ties, failed=said(attempt.error))

    def _equal(self, values: Values) -> Values:
        """Return the numbers that were equal to changed ones, with the same new values."""
        numbers = {
            self.settings[p]: v for p, v in values.items() if type(v) is type(self.settings.get(p)) is int
        }
        others = [p for p, value in self.settings.items() if type(value) is int and p not in values]
        return {path: numbers[self.settings[path]] for path in others if self.settings[path] in numbers}

    def _in_proportion(self, values: Values) -> list[Values]:
        """Return each other number alone, scaled by the ratio of the changed one, if exactly one changed."""
        [path, *more] = values or [()]
        old, new = self.settings.get(path), values.get(path)
        if more or type(old) is not int or type(new) is not int or not old:
            return []
        others = ((p, v) for p, v in self.settings.items() if type(v) is int and v > 1 and p != path)
        return [{p: value} for p, v in others if (value := scaled(v, new / old)) is not None]

    def filled(self, values: Values, paths: Iterable[FieldPath]) -> Values:
        """Return the values that the class fills in for unchanged fields: names of stages, a quotient."""
        paths = [p for p in paths if all(path[: len(p)] != p for path in values)]
        try:
            full = changed(self.config, values)
        except NoConfigError:
            return {}
        completed, filled_values = (
            self._completed(without(full, paths)) if paths else None,
            dict[FieldPath, object](),
        )
        for path in paths:
            with suppress(LookupError, TypeError):  # the class does not fill this field
                if (new := value_at(completed, path)) != value_at(full, path):
                    filled_values[path] = new
        return filled_values

    def lists(self, values: Values) -> Values:
        """Return the lists and mappings per layer with the entries of the new layers.

        They belong to changed numbers of layers. The target gives the new layers for a container of this
        length.
        """
        counts, rewritten = layer_counts(self.source.shapes), dict[FieldPath, Any]()
        most = PROBED * max([*counts.values(), *layer_counts(self.target.shapes).values()], default=0)
        for path, new in values.items():
            old, siblings = self.settings.get(path), value_at(self.config, path[:-1])
            if type(old) is not int or type(new) is not int or not isinstance(siblings, dict):
                continue
            if not old or new > most:
                continue
            lineages = (k for c, k in self.target.layers.items() if counts.get(c) == old and len(k) == new)
            lineage = next(lineages, tuple(min(i, old - 1) for i in range(new)))
            for key, entries in siblings.items():
                place = (*path[:-1], key)
                if place not in values and (new_entries := _of_layers(entries, old, lineage)) is not None:
                    rewritten[place] = new_entries
        return rewritten

    @cached_property
    def own(self) -> tuple[FieldPath, ...]:
        """Lists and integers of the config that the class fills with the same values if they are missing.

        Lists with one entry per layer, judged by their length, are left out.
        """
        present = list(fields(self.config))
        lists = [p for p, v in present if isinstance(v, list) and p not in self.layered]
        return self._own((*lists, *(p for p, v in present if type(v) is int)))

    @cached_property
    def layered(self) -> frozenset[FieldPath]:
        """Lists that are as long as a list of layers."""
        counts = set(layer_counts(self.source.shapes).values())
        return frozenset(p for p, v in fields(self.config) if isinstance(v, list) and len(v) in counts)

    @cached_property
    def whole(self) -> tuple[FieldPath, ...]:
        """`own` together with lists as long as a list of layers, since these may be names of stages."""
        return self._own(sorted(self.layered, key=repr), self.own)

    def _own(self, paths: Iterable[FieldPath], filled: tuple[FieldPath, ...] = ()) -> tuple[FieldPath, ...]:
        """Extend `filled` by fields that the class fills with equal values if all of these are missing."""
        for path in paths:
            completed = self._completed(without(self.config, (*filled, path)))
            filled += (path,) if completed == self.config else ()
        return filled

    def _completed(self, config: dict[str, object]) -> dict[str, object] | None:
        """Return a config as the class completes it, or None if the class refuses it."""
        key = repr(config)
        if key not in self.known.completed:
            self.known.completed[key] = None
            with suppress(Exception):  # a constructor may refuse with anything
                self.known.completed[key] = complete(self.build(config), config)
        return self.known.completed[key]

    def score(self, trial: ConfigTrial) -> float:
        """Return how close a trial is: agreement of sizes, overlap of logs, and equality of ties."""
        if not trial.shapes:
            return -1.0
        return agreement(self.wanted, trial.features) + self.overlap(trial) + self.tied(trial)

    def overlap(self, trial: ConfigTrial) -> float:
        """Return the overlap of a trial's log with the planned one.

        Without a log, that of its origin counts.
        """
        if trial.log is None:
            return 0.0 if trial.failed else self.common.get(trial.key, 0.0)
        return trial.log.overlap(self.target.log)

    def tied(self, trial: ConfigTrial) -> bool:
        """Whether a trial has the planned ties."""
        return among(trial.ties, trial.read) == self.target.ties

    def solves(self, trial: ConfigTrial, zeros: frozenset[str] = frozenset()) -> bool:
        """Whether a trial is the planned program apart from real literals, if `zeros` are zero."""
        if trial.log is None or trial.read != self.target.shapes or not self.tied(trial):
            return False
        return alike(pruned(self.target.log, zeros), pruned(trial.log, zeros)) is not None

    def exact(self, trial: ConfigTrial) -> bool:
        """Whether a trial is the planned program, including real literals."""
        return self.solves(trial) and trial.log is not None and same_logs(self.target.log, trial.log)

    def wrong(self, trial: ConfigTrial) -> set[Feature]:
        """Return the planned sizes that differ in a trial."""
        return {f for f, n in self.wanted.items() if trial.features.get(f, n) != n}


def said(error: Exception) -> str:
    """Return the first line of an error of a class, and the lines that it announces by a final colon."""
    error = error.__cause__ if isinstance(error.__cause__, Exception) else error
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    announced = next((k for k, line in enumerate(lines) if not line.endswith(":")), 0)
    return f"{type(error).__name__}: {' '.join(lines[: announced + 1])}"
