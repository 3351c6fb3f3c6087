"""The zoo's entries: a name, what is true of the model, and how it is built and fed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType, MethodType
from typing import Any

import torch
import transformers
from facts import Facts
from feeds import Feed, Inputs
from torch import Tensor, nn
from weights import perturb

ATTENTIONS = ("sdpa", "eager")
"""How transformers computes attention: by one function of torch, or written out."""

EXPERTS = "batched_mm"
"""Experts' weights are gathered for every token: the one way of transformers without a loop over the data."""


@dataclass(frozen=True)
class Blueprint:
    """One architecture of the zoo.

    make: the module, for one of ATTENTIONS; modules of plain torch take no notice.
    outputs: names of the model's outputs; those of a transformers model are fields of what it returns.
    fixed: further arguments of `forward`.
    optimiser: the kind of model that onnxruntime.transformers.optimizer is told, for its flavour.
    """

    name: str
    facts: Facts
    make: Callable[[str], nn.Module]
    inputs: Inputs
    outputs: tuple[str, ...] = ("output",)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    pick: Callable[[Any], tuple[Tensor, ...]] | None = None
    optimiser: str = ""


@dataclass(frozen=True)
class Built:
    """A seeded model in evaluation mode; its forward takes the inputs, of three sizes, in order."""

    module: nn.Module
    feeds: tuple[Feed, ...]
    axes: Mapping[str, Mapping[int, str]]
    outputs: tuple[str, ...]

    def run(self, feed: Feed) -> tuple[Tensor, ...]:
        """The outputs, in order."""
        with torch.no_grad():
            outputs = self.module(*feed.values())
        return outputs if isinstance(outputs, tuple) else (outputs,)


KNOWN: dict[str, Blueprint] = {}
"""All that modules loaded so far have added: the zoo, and what a table of checkpoints goes on with."""
NOTHING: Mapping[str, Any] = MappingProxyType({})


def add(blueprint: Blueprint) -> None:
    """Make an architecture known."""
    assert blueprint.name not in KNOWN, blueprint.name
    KNOWN[blueprint.name] = blueprint


def from_transformers(
    name: str,
    facts: Facts,
    kind: str,
    inputs: Inputs,
    outputs: tuple[str, ...] = ("logits",),
    fixed: Mapping[str, Any] = NOTHING,
    optimiser: str = "",
    **config: Any,
) -> None:
    """Add a class of transformers with a configuration."""

    def make(attention: str) -> nn.Module:
        chosen = getattr(transformers, kind)
        configuration = chosen.config_class(**config)
        configuration._attn_implementation = attention
        configuration._experts_implementation = EXPERTS
        return chosen(configuration)

    def pick(returned: Any) -> tuple[Tensor, ...]:
        return tuple(returned[name] for name in outputs)

    known = replace(facts, layers=facts.layers or layers_of(config))
    add(Blueprint(name, known, make, inputs, outputs, fixed, pick, optimiser))


COUNTS = (
    "num_hidden_layers",
    "num_layers",
    "n_layers",
    "n_layer",
    "encoder_layers",
    "num_decoder_layers",
    "decoder_layers",
    "depths",
    "text_config",
    "vision_config",
)


def layers_of(config: Mapping[str, Any]) -> tuple[int, ...]:
    """The numbers of layers in a configuration, each distinct one once."""
    counts: list[int] = []
    for name in COUNTS:
        value = config.get(name, ())
        given = layers_of(value) if isinstance(value, dict) else [value] if isinstance(value, int) else value
        counts += given
    return tuple(dict.fromkeys(counts))


def from_torch(
    name: str,
    facts: Facts,
    make: Callable[[], nn.Module],
    inputs: Inputs,
    outputs: tuple[str, ...] = ("output",),
) -> None:
    """Add a module of plain torch."""
    add(Blueprint(name, facts, lambda attention: make(), inputs, outputs))


def build(name: str, attention: str = "eager") -> Built:
    """The model, its weights and inputs seeded by its name."""
    blueprint = KNOWN[name]
    seed = zlib.crc32(name.encode())
    torch.manual_seed(seed)
    module = blueprint.make(attention).eval().requires_grad_(False)
    perturb(module, seed)
    torch.manual_seed(seed + 1)
    feeds = blueprint.inputs.cases()
    if blueprint.pick is not None:
        _name_arguments(module, blueprint, list(feeds[0]))
    return Built(module, tuple(feeds), blueprint.inputs.axes, blueprint.outputs)


def _name_arguments(module: nn.Module, blueprint: Blueprint, names: list[str]) -> None:
    """Give the instance a forward with exactly these arguments; its parameters keep their names.

    Exporters read the signature, so that it has to be spelt out.
    """
    arguments = ", ".join(names)
    passed = ", ".join(f"{name}={name}" for name in names)
    scope = {"run": module.forward, "pick": blueprint.pick, "fixed": dict(blueprint.fixed)}
    exec(f"def forward(self, {arguments}):\n    return pick(run({passed}, **fixed))", scope)
    module.forward = MethodType(scope["forward"], module)


def traced_only(inputs: Inputs, kept: tuple[str, ...]) -> Inputs:
    """The inputs with only those axes dynamic that bear one of these names."""
    axes = {n: {a: s for a, s in symbols.items() if s in kept} for n, symbols in inputs.axes.items()}
    return replace(inputs, axes=axes)
