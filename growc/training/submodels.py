"""Two-stage training: sub-models of the bottom layers, which share their tensors with the whole model.

bert2BERT (Chen et al. 2022), section 4.5 and algorithm 2: a step samples one of the models with l_b, 2·l_b, …
layers, and updates only its top l_b layers and the head that all share. A sub-model is the plan of
`subclone layers to N by first`, so that any model has them whose layers growc finds.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from growc.checkpoint.grow_module import grow as grow_class
from growc.checkpoint.grow_module import place
from growc.dialects.torch.emit.grown_module import GrownModule
from growc.dialects.transformers.config.shapes import same_tensors
from growc.errors.source import Source
from growc.formats.compiler import compiled, has_config
from growc.ir.graph import readers, used_by
from growc.ir.walk import walk
from growc.modules.grow import grow as grow_module
from growc.passes.compilation import Analysis
from growc.passes.layers.layer_runs import Layers
from growc.plans.plan import Plan
from growc.resolve.bound import Resolved
from growc.resolve.resolve import load


@dataclass(frozen=True)
class SubModel:
    """The bottom `layers` layers of a model and its head.

    module: called as the whole model is. trained: names of the whole model's parameters that a step of this
    sub-model updates: those of its top layers, and what follows the last layer. Their tensors are the
    parameters of the whole model; all other tensors are the whole model's numbers, which get no gradient.
    """

    layers: int
    module: nn.Module = field(repr=False)
    trained: tuple[str, ...] = field(repr=False)


class SubModels:
    """The sub-models of a model, with `layers`, 2·`layers`, … layers, the last with all.

    Nothing is copied: an optimizer of the whole model's parameters updates them all, and leaves those without
    a gradient alone. Where a table is tied to the head, it gets the gradient of the head alone.
    """

    def __init__(
        self, whole: nn.Module, layers: int, example_inputs: object = None, *, seed: int = 0
    ) -> None:
        """`layers` is l_b, `example_inputs` are as for `growc.apply`. Raises GrowError, ValueError."""
        if layers < 1:
            raise ValueError(f"sub-models cannot have {layers} layers")
        self.whole = whole
        most = max(_counts(_analysed(whole, example_inputs).layers).values())
        counts = [*range(layers, most, layers), most]
        self.models = tuple(_sub_model(whole, n, layers, example_inputs) for n in counts)
        self._draws = torch.Generator().manual_seed(seed)

    def sample(self) -> SubModel:
        """One of them, each as likely as any other (algorithm 2, line 4). Equal seeds draw alike."""
        return self.models[int(torch.randint(len(self.models), (), generator=self._draws))]

    def state_dict(self) -> dict[str, Tensor]:
        """The state of the draws, so that a run that goes on draws as it would have."""
        return {"draws": self._draws.get_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on where `state_dict` was taken."""
        self._draws.set_state(state["draws"])


def _counts(layers: Layers) -> dict[str, int]:
    """How many layers there are in each part of a model. Raises ValueError where a part has several runs."""
    scopes = [run.scope for run in layers.runs]
    if not scopes:
        raise ValueError("the model has no layers that growc finds")
    if len(set(scopes)) < len(scopes):
        raise ValueError(f"the model has {len(scopes)} runs of layers, and sub-models need one")
    return {run.scope: len(run.layers) for run in layers.runs}


def _sub_model(whole: nn.Module, count: int, top: int, example_inputs: object) -> SubModel:
    module, names = _bottom(whole, count, example_inputs)
    own = dict(whole.named_parameters(remove_duplicate=False)) | dict(whole.named_buffers())
    first = {parameter: name for name, parameter in whole.named_parameters()}
    chosen = top_and_head(module, top, example_inputs)
    trained: dict[str, None] = {}
    for name in list(module.state_dict(keep_vars=True)) + [n for n, _ in module.named_buffers()]:
        source = own[names.get(name, name)]
        if name in chosen and isinstance(source, nn.Parameter) and source.requires_grad:
            trained[first[source]] = None
            place(module, [name], source)
        else:
            place(module, [name], _numbers_of(source))
    return SubModel(count, module, tuple(trained))


def _numbers_of(tensor: Tensor) -> Tensor:
    """The same numbers in the same memory, as a parameter that gets no gradient, or as they are."""
    return nn.Parameter(tensor.data, requires_grad=False) if isinstance(tensor, nn.Parameter) else tensor


def _bottom(whole: nn.Module, count: int, example_inputs: object) -> tuple[nn.Module, Mapping[str, str]]:
    """The bottom layers of a model, and which of its tensors each of theirs is."""
    words = f"subclone layers to min(layers, {count}) by first"
    if not has_config(whole) and _analysed(whole, example_inputs).ties:
        words = f"untie head\n{words}"
    module, plan = grown(words, whole, example_inputs)
    if isinstance(module, GrownModule):
        return module, module.origins
    return module, {weight.name: weight.copy_of or weight.source for weight in plan.weights}


def grown(text: str, module: nn.Module, example_inputs: object) -> tuple[nn.Module, Plan]:
    """The module that a recipe makes, of the same class where a config makes that class; and the plan."""
    recipe = load([Source("<training>", text)], {})
    grow = grow_class if has_config(module) else grow_module
    made = grow(recipe, module, example_inputs, check=False)
    return made, made.plan


def _analysed(module: nn.Module, example_inputs: object) -> Analysis:
    return compiled(Resolved(()), module, analysis_only=True, example_inputs=example_inputs)


def top_and_head(module: nn.Module, top: int, example_inputs: object) -> set[str]:
    """Names of the tensors of a module that its `top` last layers use, or what follows the last one."""
    apart = copy.deepcopy(module)
    for names in same_tensors(apart):
        for name in names[1:]:  # each use of a tied tensor has a name of its own
            place(apart, [name], copy.deepcopy(apart.get_parameter(name)))
    found = _analysed(apart, example_inputs)
    runs = [run.layers for run in found.layers.runs]
    layered = {node for layers in runs for layer in layers for node in layer.nodes}
    highest = {node for layers in runs for layer in layers[-top:] for node in layer.nodes}
    ends = [layers[-1].end for layers in runs]
    behind = set(walk(used_by(ends), lambda node: used_by(node.outputs))) - layered
    uses = [use for use in found.graph.uses() if not (highest | behind).isdisjoint(readers(use))]
    weights = [use.weight for use in uses if use.weight is not None]
    return {name for weight in weights for name in (weight.name, *weight.computed)}
