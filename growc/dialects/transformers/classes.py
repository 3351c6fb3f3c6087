"""Modules from the config.json of a checkpoint: of the class that it names in transformers, or a caller.

Code that lies beside a checkpoint is never run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from typing import Any, cast
from unittest import mock

import torch
import transformers
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils.weak import WeakIdKeyDictionary
from transformers.initialization import no_init_weights

from growc.dialects.torch.capture.example_inputs import EXPERTS
from growc.dialects.transformers.computed_parameters import compute
from growc.dialects.transformers.named_class import named_class, names
from growc.errors.diagnostic import Attempt, Diagnostic, GrowError
from growc.system.limits import require

ATTENTIONS = (None, "eager")
"""transformers' own choice, which is one operator where a class can, and written out."""

LARGE = 1 << 27
"""What is made without values, and has more elements, is a parameter: no constant is so large."""

PARAMETERS = 100_000
"""As many as a class may have; the largest mixtures of single experts have three quarters of it."""


OWN = "`--class MODULE:NAME` (`model_class=` in Python) names a class of your own"


class TooManyError(Exception):
    """A class registers more parameters than that."""


def class_of(config: Mapping[str, Any]) -> type[transformers.PreTrainedModel]:
    """The class that the caller has named (growc.dialects.transformers.named_class), or that a configuration
    names, or the one without a head of its model type.

    Raises GrowError (G310) where transformers has no such class; code beside a checkpoint is never run.
    """
    if (own := named_class()) is not None and names(config):
        return own
    named, kind = config.get("architectures") or [], config.get("model_type")
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise _unreadable("`architectures` of config.json is no list of names")
    if not isinstance(kind, str | None):
        raise _unreadable("`model_type` of config.json is no name")
    first = named[:1]
    try:
        found = getattr(transformers, first[0], None) if first else _of_type(kind)
    except ImportError as error:  # a class needs a package that is not there
        lacks = (str(error.__cause__ or error).splitlines() or [""])[0]
        raise _unreadable(f"transformers cannot import `{first[0] if first else kind}`", lacks) from error
    if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
        return found
    asked = first[0] if first else kind
    if asked is None:
        raise _unreadable("config.json names no class: there is neither `architectures` nor `model_type`")
    notes = ("its own code (`auto_map`) is never run",) if config.get("auto_map") else ()
    message = f"transformers {transformers.__version__} has no class for `{asked}`"
    raise GrowError(Diagnostic("G310", message, notes=notes, help=OWN))


def _of_type(kind: str | None) -> Any:
    if kind is None or kind not in transformers.CONFIG_MAPPING:
        return None
    return transformers.MODEL_MAPPING.get(transformers.CONFIG_MAPPING[kind], None)


def build(config: Mapping[str, Any], *, constants: bool = False, unstored: Iterable[str] = ()) -> nn.Module:
    """The module of a config.json on the meta device, in evaluation mode.

    constants: all but parameters has the values that the class computes, as buffers that no state dict holds;
    without it they are on meta as well, which is faster.
    unstored: names of tensors that are such constants too, for no file holds them.

    Raises GrowError: G310 for a class that is not transformers' own, or does not take these values; G309 for
    quantised weights.
    """
    require_plain(config)
    chosen = class_of(config)
    reason: Exception | None = None
    for attention in ATTENTIONS:
        with Attempt() as attempt:
            return ClassBuilder(chosen, attention)(config, constants=constants, unstored=unstored)
        if isinstance(attempt.error, TooManyError):
            reason = attempt.error
            break
        reason = reason or attempt.error
    said = next((line.strip() for line in str(reason).splitlines() if line.strip()), type(reason).__name__)
    raise _unreadable(f"`{chosen.__name__}` does not take this config.json", said) from reason


def require_bounded(module: nn.Module, unstored: Iterable[str]) -> None:
    """Raises GrowError (G324) where a class computes too many numbers: its buffers, and tensors by name."""
    computed = [*module.buffers(), *map(module.state_dict(keep_vars=True).__getitem__, unstored)]
    size = sum(tensor.numel() * tensor.element_size() for tensor in computed)
    require("constant_bytes", f"`{type(module).__name__}` computes", size)


def require_plain(config: Mapping[str, Any]) -> None:
    """Raises GrowError (G309) for a config of quantised weights."""
    said = config.get("quantization_config")
    if said:
        how = said.get("quant_method", "an unnamed method") if isinstance(said, Mapping) else repr(said)
        message = "the model's weights are quantised, and this version grows none of these"
        raise GrowError(Diagnostic("G309", message, notes=(f"`quantization_config` names {how}",)))


@dataclass(frozen=True)
class ClassBuilder:
    """Builds one class as `build` does, and raises whatever its constructor raises.

    attention, experts: which of transformers' implementations, by parts of the config; None leaves it to it.
    """

    chosen: type[transformers.PreTrainedModel]
    attention: Any = None
    experts: Any = EXPERTS

    def __call__(
        self, config: Mapping[str, Any], *, constants: bool = False, unstored: Iterable[str] = ()
    ) -> nn.Module:
        """The module of a config on the meta device, in evaluation mode; as `build` does."""
        kind: Any = self.chosen.config_class
        configuration = kind.from_dict(_spelt_out(config))
        if self.attention is not None:
            configuration._attn_implementation = self.attention
        configuration._experts_implementation = self.experts
        where = _computing_constants() if constants else torch.device("meta")
        with _at_most(PARAMETERS), no_init_weights(), where:
            module: Any = self.chosen(configuration)
        module.tie_weights()
        for name in unstored:
            compute(module, name, constants=constants)
        module.eval()
        return cast(nn.Module, module)


@contextmanager
def _at_most(limit: int) -> Iterator[None]:
    """Raises TooManyError where modules register more parameters, before their number fills the memory."""
    numbers = count()

    def registered(part: nn.Module, name: str, parameter: nn.Parameter) -> None:
        if next(numbers) >= limit:
            raise TooManyError(f"it asks for more than {limit:,} parameters")

    hook = register_module_parameter_registration_hook(registered)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _computing_constants() -> Iterator[None]:
    """Parameters go to meta as soon as a module has them, large ones before; all else is computed."""
    register, moved = nn.Module.register_parameter, WeakIdKeyDictionary()
    empty: Callable[..., Tensor] = torch.empty

    def on_meta_if_large(*size: object, **options: object) -> Tensor:
        outline = empty(*size, **options | {"device": "meta"})
        return outline if outline.numel() > LARGE else empty(*size, **options)

    def on_meta(part: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        register(part, name, parameter)
        if parameter is not None and not parameter.is_meta:
            if parameter not in moved:
                moved[parameter] = nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
            part._parameters[name] = moved[parameter]

    with (
        mock.patch.object(nn.Module, "register_parameter", on_meta),
        mock.patch.object(torch, "empty", on_meta_if_large),
    ):
        yield


def _spelt_out(value: Any) -> Any:
    """A config with the numbers that JSON has none for: transformers writes infinity as an object."""
    if isinstance(value, Mapping):
        if list(value) == ["__float__"]:
            return float(value["__float__"])
        return {name: _spelt_out(one) for name, one in value.items()}
    return [_spelt_out(one) for one in value] if isinstance(value, list) else deepcopy(value)


def _unreadable(message: str, *notes: str) -> GrowError:
    return GrowError(Diagnostic("G310", message, notes=notes))
