"""The search for a config of a class that holds a planned mixture, and for the contents of the class's
tensors.

Needs: the analysed dense source, its networks, and the class of the result. Gives: `Fitted`.

The config begins with the fields of the source's config that the class has too, or asks for while it is
built, and the class's own defaults. Fields that change the sizes of experts are set until the sizes are as
planned. Then the field for the number of chosen experts is set. If the class still computes something else,
fields that the source does not have are tried: switches, and numbers other than one. Raises GrowError (G318)
for what the class cannot hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from growc.checkpoint.classes.class_weights import first_names
from growc.checkpoint.classes.config_only import ConfigOnly
from growc.checkpoint.classes.model import ClassModel, class_model
from growc.checkpoint.mixtures.place_tensors import (
    EXPERT,
    INNER,
    Kinds,
    MixtureTensor,
    UnplacedError,
    chosen,
    computes_the_same,
    places,
)
from growc.checkpoint.mixtures.region import Region
from growc.checkpoint.mixtures.same_graph import Matching
from growc.dialects.transformers.classes import build
from growc.dialects.transformers.config.fields import FieldPath, Values, changed, complete, settings, value_at
from growc.dialects.transformers.config.shapes import shapes_of
from growc.dialects.transformers.missing_fields import asking
from growc.errors.diagnostic import Attempt, Diagnostic, GrowError
from growc.ir.walk import walk
from growc.passes import ANALYSIS, run
from growc.passes.axes.routing import fewest
from growc.passes.compilation import Analysis, Providers, Source
from growc.passes.edits import Mixture

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

OWN = ("architectures", "model_type", "transformers_version", "auto_map")
"""Fields of a config that describe its class rather than a model."""


@dataclass(frozen=True)
class Fitted:
    """The result of a search.

    module: the result's class, on meta. config: the config it is built from. tensors: the source's name for
    names of its state. contents: for each mixture, the contents of its tensors by name.
    """

    module: nn.Module
    config: Mapping[str, object]
    tensors: Mapping[str, str]
    contents: Sequence[Mapping[str, MixtureTensor]]


class ClassDiffersError(Exception):
    """The class computes something else than planned, or has other sizes."""


@dataclass
class Fit:
    """One search.

    source: the dense model. mixtures: the mixtures that replace its networks. kind: the result's class.
    """

    source: Analysis
    model: ClassModel
    mixtures: Sequence[Mixture]
    kind: type[PreTrainedModel]
    outside: Providers
    decided: Values = field(default_factory=dict)

    def run(self) -> Fitted:
        """The config that holds the plan. Raises GrowError (G318) if there is none."""
        first, values = dict(self.decided), list(self.sizes())
        reason = ""
        for more in (values, *([*values, one] for one in self.others(values))):
            try:
                return self.fitted(first | dict(more))
            except ClassDiffersError as error:
                reason = reason or str(error)
        message = f"no config of `{self.kind.__name__}` is the planned mixture"
        raise GrowError(Diagnostic("G318", message, notes=(reason,)))

    def config(self, values: Values) -> dict[str, object]:
        """The first config with other values of some fields."""
        return changed(self.first_config, values)

    @cached_property
    def first_config(self) -> Mapping[str, object]:
        """The fields of the source's config that the class has, or asks for while it is built."""
        fields = self.kind.config_class
        assert fields is not None, "a class without one is refused where it is named"
        identity = {"architectures": [self.kind.__name__], "model_type": fields.model_type}
        given = {n: value for n, value in self.model.class_weights.config.items() if n not in OWN}
        names = {*fields().to_dict(), "dtype", "torch_dtype"}
        with Attempt(), asking() as missing:
            module = build(identity | {n: value for n, value in given.items() if n in names})
            names |= {str(path[0]) for path in missing.paths(module) if len(path) == 1}
        return identity | {n: value for n, value in given.items() if n in names}

    def analysed(self, values: Values) -> Analysis:
        """The analysed class with a config. Raises OtherwiseError if the class does not accept it."""
        with Attempt() as attempt:
            config = self.config(values)
            module = build(config, constants=True)
            class_weights = ConfigOnly(module, first_names(module), config, build)
            model = ClassModel.of_weights(class_weights, self.model.inputs)
            return run(ANALYSIS, Source(Path(self.kind.__name__), model, self.outside))
        raise ClassDiffersError(str(attempt.error).splitlines()[0]) from attempt.error

    # ---- fields

    def sizes(self) -> Iterator[tuple[FieldPath, object]]:
        """Fields that give the planned number of experts, their units, and the number of chosen experts.

        Raises GrowError (G318) if the class cannot be built from the source's fields, or has no experts.
        """
        try:
            start = self.analysed(self.decided)
        except ClassDiffersError as error:
            message = f"`{self.kind.__name__}` cannot be built from the fields of the source's config"
            raise GrowError(Diagnostic("G318", message, notes=(str(error),))) from error
        kinds, first = Kinds(start), self.mixtures[0]
        inner = first.network.stacks[0]
        width = next(
            inner.weight.shape[axis]
            for axis, kind in enumerate(Kinds(self.source).of(inner))
            if kind == INNER and inner.weight is not None
        )
        values: dict[FieldPath, object] = dict(self.decided)
        for kind, wanted in ((EXPERT, first.experts), (INNER, width // first.parts)):
            axes = self.axes(start, kinds, kind)
            if not axes:
                message = f"`{self.kind.__name__}` has no experts that stand in a stack"
                raise GrowError(Diagnostic("G318", message, help="`--class` names the class of a mixture"))
            new_values = self.field_of(axes, wanted, values)
            yield from new_values
            values |= dict(new_values)
        tops = set(map(fewest, start.axes.ranked))
        if tops != {first.top}:
            for path, value in self.whole(values):
                if value in tops:
                    yield path, first.top
                    return

    def axes(self, start: Analysis, kinds: Kinds, kind: str) -> dict[tuple[str, int], int]:
        """The axes of one kind of the experts' tensors, with their sizes."""
        uses = ((u, u.weight) for u in start.graph.uses())
        kinds_of_weights = ((w, kinds.of(u)) for u, w in uses if w is not None and w.floating)
        expert_weights = ((w, axes) for w, axes in kinds_of_weights if EXPERT in axes)
        return {
            (w.name, k): w.shape[k]
            for w, axes in expert_weights
            for k, axis_kind in enumerate(axes)
            if axis_kind == kind
        }

    def field_of(
        self, axes: Mapping[tuple[str, int], int], wanted: int, values: Values
    ) -> list[tuple[FieldPath, object]]:
        """The field that scales these axes from its current value to the wanted one."""
        for path, value in self.whole(values):
            if not isinstance(value, int) or any(size % value for size in axes.values()):
                continue
            tried = wanted if value != wanted else 2 * wanted  # a field that changes nothing fits no size
            with Attempt():
                shapes = shapes_of(build(self.config({**values, path: tried})))
                after = {(n, k): shapes[n][k] for n, k in axes if n in shapes and k < len(shapes[n])}
                if after == {place: size // value * tried for place, size in axes.items()}:
                    return [] if value == wanted else [(path, wanted)]
        return []

    def whole(self, values: Values) -> Iterator[tuple[FieldPath, object]]:
        """Undecided fields with positive whole numbers; fields that only the class has come first."""
        candidates = [(p, v) for p, v in self.fields(values) if type(v) is int and v > 0 and p not in values]
        yield from sorted(candidates, key=lambda pair: self.is_given(pair[0]))

    def others(self, values: Sequence[tuple[FieldPath, object]]) -> Iterator[tuple[FieldPath, object]]:
        """Fields that the source's config does not have, each with another value."""
        for path, value in self.fields(dict(self.decided) | dict(values)):
            if self.is_given(path):
                continue
            if isinstance(value, bool):
                yield path, not value
            elif isinstance(value, float) and value not in (0.0, 1.0):
                yield path, 1.0

    def fields(self, values: Values) -> list[tuple[FieldPath, object]]:
        """All fields of the class that hold a number or a switch."""
        config = self.config(values)
        return list(settings(complete(build(config), config)))

    def is_given(self, path: FieldPath) -> bool:
        """Whether the source's config has a field."""
        try:
            value_at(self.model.class_weights.config, path)
        except (LookupError, TypeError):
            return False
        return True

    # ---- what computes the same

    def fitted(self, values: Values) -> Fitted:
        """The contents of all tensors with a config. Raises OtherwiseError if the class does not compute the
        plan.
        """
        analysis = self.analysed(values)
        class_weights = class_model(analysis).class_weights
        stops = {mixture.network.output for mixture in self.mixtures}
        match = Matching(stops, self.model.class_weights.stored, class_weights.stored)
        if not match.whole(self.source.graph, analysis.graph):
            raise ClassDiffersError(self.difference(match))
        contents = [
            self.placed(self.region(match, analysis, mixture), analysis, mixture) for mixture in self.mixtures
        ]
        accounted = {
            class_weights.first[name]
            for name in (*match.tensors, *(n for mixture_contents in contents for n in mixture_contents))
        }
        if unaccounted := [name for name, first in class_weights.first.items() if first not in accounted]:
            raise ClassDiffersError(f"nothing says what is to become of `{unaccounted[0]}`")
        return Fitted(class_weights.module, class_weights.config, match.tensors, contents)

    def region(self, match: Matching, analysis: Analysis, mixture: Mixture) -> Region:
        """The part of the class that corresponds to a network. Raises OtherwiseError if there is none."""
        network = mixture.network
        gives = match.stands.get(network.output)
        if gives is None:
            raise ClassDiffersError(f"nothing in the class stands for `{network.output.name}`")
        order = {v: k for k, node in enumerate(analysis.graph.nodes) for v in node.outputs}
        above = walk([gives], lambda v: () if v.producer is None else v.producer.operands)
        candidates = [v for v in above if v in order and v.sizes == network.input.sizes and v is not gives]
        for value in sorted(candidates, key=lambda v: -order[v]):
            if match.match(network.input, value):
                region = Region.of(analysis.graph, value, gives)
                if region.whole:
                    return region
        raise ClassDiffersError(f"nothing in the class stands for `{network.input.name}`")

    def placed(self, region: Region, analysis: Analysis, mixture: Mixture) -> Mapping[str, MixtureTensor]:
        """Contents of a region's tensors with which it computes what the network does.

        Raises OtherwiseError if there are none.
        """
        network, kinds = mixture.network, Kinds(self.source)
        if (top := chosen(region, analysis)) != {mixture.top}:
            counts = " and ".join(map(str, sorted(top))) or "no"
            raise ClassDiffersError(f"it chooses {counts} experts, and {mixture.top} are planned")
        dense = Region.of(self.source.graph, network.input, network.output)
        parts = [kinds.parts(mixture, use) for use in network.stacks]
        sources = [(one.kinds, one.shape) for one in parts]
        try:
            for contents in places(
                region, Kinds(analysis), sources, class_model(analysis).class_weights.stored
            ):
                if computes_the_same(dense, parts, region, contents):
                    return contents
        except UnplacedError as error:
            raise ClassDiffersError(str(error)) from error
        raise ClassDiffersError("with every expert a copy of the network, it computes something else")

    def difference(self, match: Matching) -> str:
        """A description of where the class differs from the source, apart from the networks."""
        one, other = match.stuck or (None, None)
        names = [
            f"`{v.name}`" if v.producer is None else f"`{v.producer.op}` at `{v.name}`"
            for v in (one, other)
            if v
        ]
        return f"besides the networks, {' and '.join(names)} differ: the source's, and the class's"
