"""Two-stage training: sub-models of the bottom layers, which share their tensors with the whole model.

bert2BERT (Chen et al. 2022), section 4.5 and algorithm 2: a step samples one of the models with l_b, 2·l_b, …
layers. It updates only that model's top l_b layers and the head that all share. A sub-model is the plan of
`subclone layers to N by first`, so any model whose layers growc finds has sub-models.
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
from growc.errors.source import SourceText
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

    module: called like the whole model. trained: names of the whole model's parameters that a step of this
    sub-model updates: those of its top layers, and those after the last layer. Their tensors are the
    parameters of the whole model. All other tensors share the whole model's memory and get no gradient.
    """

    layers: int
    module: nn.Module = field(repr=False)
    trained: tuple[str, ...] = field(repr=False)


class SubModels:
    """The sub-models of a model, with `layers`, 2·`layers`, … layers. The last has all layers.

    Nothing is copied. An optimizer of the whole model's parameters updates them all, and leaves those without
    a gradient unchanged. A table that is tied to the head gets the gradient of the head only.
    """

    def __init__(
        self, whole: nn.Module, layers: int, example_inputs: object = None, *, seed: int = 0
    ) -> None:
        """`layers` is l_b. `example_inputs` are as for `growc.apply`. Raises GrowError and ValueError."""
        if layers < 1:
            raise ValueError(f"sub-models cannot have {layers} layers")
        self.whole = whole
        most = max(_counts(_analysed(whole, example_inputs).layers).values())
        counts = [*range(layers, most, layers), most]
        self.models = tuple(_sub_model(whole, n, layers, example_inputs) for n in counts)
        self._draws = torch.Generator().manual_seed(seed)

    def sample(self) -> SubModel:
        """Return a sub-model, drawn uniformly (algorithm 2, line 4). Equal seeds draw alike."""
        return self.models[int(torch.randint(len(self.models), (), generator=self._draws))]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of the draws, with which a resumed run draws the same sub-models."""
        return {"draws": self._draws.get_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue where `state_dict` was taken."""
        self._draws.set_state(state["draws"])


def _counts(layers: Layers) -> dict[str, int]:
    """Return the number of layers in each scope of a model. Raises ValueError if a scope has several runs."""
    scopes = [run.scope for run in layers.runs]
    if not scopes:
        raise ValueError("the model has no layers that growc finds")
    if len(set(scopes)) < len(scopes):
        raise ValueError(f"the model has {len(scopes)} runs of layers, and sub-models need one")
    return {run.scope: len(run.layers) for run in layers.runs}


def _sub_model(whole: nn.Module, count: int, top: int, example_inputs: object) -> SubModel:
    module, names = _bottom(whole, count, example_inputs)
    tensors = dict(whole.named_parameters(remove_duplicate=False)) | dict(whole.named_buffers())
    first = {parameter: name for name, parameter in whole.named_parameters()}
    top_names = top_and_head(module, top, example_inputs)
    trained: dict[str, None] = {}
    for name in list(module.state_dict(keep_vars=True)) + [n for n, _ in module.named_buffers()]:
        source = tensors[names.get(name, name)]
        if name in top_names and isinstance(source, nn.Parameter) and source.requires_grad:
            trained[first[source]] = None
            place(module, [name], source)
        else:
            place(module, [name], _numbers_of(source))
    return SubModel(count, module, tuple(trained))


def _numbers_of(tensor: Tensor) -> Tensor:
    """Return a parameter as one without a gradient in the same memory, and any other tensor as it is."""
    return nn.Parameter(tensor.data, requires_grad=False) if isinstance(tensor, nn.Parameter) else tensor


def _bottom(whole: nn.Module, count: int, example_inputs: object) -> tuple[nn.Module, Mapping[str, str]]:
    """Return the bottom layers of a model, and the model's tensor for each of theirs."""
    words = f"subclone layers to min(layers, {count}) by first"
    if not has_config(whole) and _analysed(whole, example_inputs).ties:
        words = f"untie head\n{words}"
    module, plan = grown(words, whole, example_inputs)
    if isinstance(module, GrownModule):
        return module, module.origins
    return module, {weight.name: weight.copy_of or weight.source for weight in plan.weights}


def grown(text: str, module: nn.Module, example_inputs: object) -> tuple[nn.Module, Plan]:
    """Return the module that a recipe makes and its plan. The class is kept if a config can build it."""
    recipe = load([SourceText("<training>", text)], {})
    grow = grow_class if has_config(module) else grow_module
    result = grow(recipe, module, example_inputs, check=False)
    return result, result.plan


def _analysed(module: nn.Module, example_inputs: object) -> Analysis:
    return compiled(Resolved(()), module, analysis_only=True, example_inputs=example_inputs)


def top_and_head(module: nn.Module, top: int, example_inputs: object) -> set[str]:
    """Return the names of the tensors that a module's `top` last layers or the operators after them use."""
    untied = copy.deepcopy(module)
    for names in same_tensors(untied):
        for name in names[1:]:  # untied, so that each use has its own name
            place(untied, [name], copy.deepcopy(untied.get_parameter(name)))
    analysis = _analysed(untied, example_inputs)
    runs = [run.layers for run in analysis.layers.runs]
    layered = {node for layers in runs for layer in layers for node in layer.nodes}
    highest = {node for layers in runs for layer in layers[-top:] for node in layer.nodes}
    ends = [layers[-1].end for layers in runs]
    after_layers = set(walk(used_by(ends), lambda node: used_by(node.outputs))) - layered
    uses = [use for use in analysis.graph.uses() if not (highest | after_layers).isdisjoint(readers(use))]
    weights = [use.weight for use in uses if use.weight is not None]
    return {name for weight in weights for name in (weight.name, *weight.computed)}
