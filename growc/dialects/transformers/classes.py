"""Construction of modules from the config.json of a checkpoint.

The class is the one that the config names in transformers, or one that the caller names. Code that lies
beside a checkpoint is never run.
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
"""Attention implementations to try: the default of transformers (one operator if the class has it), then
eager.
"""

LARGE = 1 << 27
"""Number of elements above which a tensor made without values is a parameter. No constant is so large."""

PARAMETERS = 100_000
"""The most parameters of a class. The largest mixtures of single experts have three quarters of it."""


OWN = "`--class MODULE:NAME` (`model_class=` in Python) names a class of your own"


class TooManyError(Exception):
    """A class registers too many parameters."""


def class_of(config: Mapping[str, Any]) -> type[transformers.PreTrainedModel]:
    """Return the class of a checkpoint.

    It is the class that the caller has named (growc.dialects.transformers.named_class), the one that the
    config names, or the headless class of its model type. Raises GrowError (G310) if transformers has no such
    class. Code beside a checkpoint is never run.
    """
    if (own := named_class()) is not None and names(config):
        return own
    architectures, kind = config.get("architectures") or [], config.get("model_type")
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise _unreadable("`architectures` of config.json is no list of names")
    if not isinstance(kind, str | None):
        raise _unreadable("`model_type` of config.json is no name")
    first = architectures[:1]
    try:
        resolved = getattr(transformers, first[0], None) if first else _of_type(kind)
    except ImportError as error:  # the class needs a package that is not installed
        missing_package = (str(error.__cause__ or error).splitlines() or [""])[0]
        raise _unreadable(
            f"transformers cannot import `{first[0] if first else kind}`", missing_package
        ) from error
    if isinstance(resolved, type) and issubclass(resolved, transformers.PreTrainedModel):
        return resolved
    class_name = first[0] if first else kind
    if class_name is None:
        raise _unreadable("config.json names no class: there is neither `architectures` nor `model_type`")
    notes = ("its own code (`auto_map`) is never run",) if config.get("auto_map") else ()
    message = f"transformers {transformers.__version__} has no class for `{class_name}`"
    raise GrowError(Diagnostic("G310", message, notes=notes, help=OWN))


def _of_type(kind: str | None) -> Any:
    if kind is None or kind not in transformers.CONFIG_MAPPING:
        return None
    return transformers.MODEL_MAPPING.get(transformers.CONFIG_MAPPING[kind], None)


def build(config: Mapping[str, Any], *, constants: bool = False, unstored: Iterable[str] = ()) -> nn.Module:
    """Return the module of a config.json on the meta device, in evaluation mode.

    constants: tensors other than parameters get the values that the class computes, as buffers that no state
        dict holds. Otherwise they are on meta as well, which is faster.
    unstored: names of tensors that are such constants too, since no file holds them.

    Raises GrowError: G310 for a class that is not transformers' own, or does not accept these values; G309
    for quantised weights.
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
    first_line = next(
        (line.strip() for line in str(reason).splitlines() if line.strip()), type(reason).__name__
    )
    raise _unreadable(f"`{chosen.__name__}` does not take this config.json", first_line) from reason


def require_bounded(module: nn.Module, unstored: Iterable[str]) -> None:
    """Check the size of the constants that a class computes: its buffers, and tensors by name.

    Raises GrowError (G324) if they are too large.
    """
    computed = [*module.buffers(), *map(module.state_dict(keep_vars=True).__getitem__, unstored)]
    size = sum(tensor.numel() * tensor.element_size() for tensor in computed)
    require("constant_bytes", f"`{type(module).__name__}` computes", size)


def require_plain(config: Mapping[str, Any]) -> None:
    """Raise GrowError (G309) for a config of quantised weights."""
    quantization = config.get("quantization_config")
    if quantization:
        method = (
            quantization.get("quant_method", "an unnamed method")
            if isinstance(quantization, Mapping)
            else repr(quantization)
        )
        message = "the model's weights are quantised, and this version grows none of these"
        raise GrowError(Diagnostic("G309", message, notes=(f"`quantization_config` names {method}",)))


@dataclass(frozen=True)
class ClassBuilder:
    """A builder of one class that works like `build`, but raises whatever the constructor raises.

    attention, experts: implementations of transformers, by sub-configs. None leaves the choice to
    transformers.
    """

    chosen: type[transformers.PreTrainedModel]
    attention: Any = None
    experts: Any = EXPERTS

    def __call__(
        self, config: Mapping[str, Any], *, constants: bool = False, unstored: Iterable[str] = ()
    ) -> nn.Module:
        """Return the module of a config on the meta device, in evaluation mode, as `build` does."""
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
    """Raise TooManyError if modules register too many parameters, before their number fills the memory."""
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
    """Move parameters to meta when a module registers them, and compute all other tensors.

    Large empty tensors are created on meta.
    """
    register, outlines = nn.Module.register_parameter, WeakIdKeyDictionary()
    empty: Callable[..., Tensor] = torch.empty

    def on_meta_if_large(*size: object, **options: object) -> Tensor:
        outline = empty(*size, **options | {"device": "meta"})
        return outline if outline.numel() > LARGE else empty(*size, **options)

    def on_meta(part: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        register(part, name, parameter)
        if parameter is not None and not parameter.is_meta:
            if parameter not in outlines:
                outlines[parameter] = nn.Parameter(
                    parameter.to("meta"), requires_grad=parameter.requires_grad
                )
            part._parameters[name] = outlines[parameter]

    with (
        mock.patch.object(nn.Module, "register_parameter", on_meta),
        mock.patch.object(torch, "empty", on_meta_if_large),
    ):
        yield


def _spelt_out(value: Any) -> Any:
    """Return a config with numbers that JSON cannot express. transformers writes infinity as an object."""
    if isinstance(value, Mapping):
        if list(value) == ["__float__"]:
            return float(value["__float__"])
        return {name: _spelt_out(one) for name, one in value.items()}
    return [_spelt_out(one) for one in value] if isinstance(value, list) else deepcopy(value)


def _unreadable(message: str, *notes: str) -> GrowError:
    return GrowError(Diagnostic("G310", message, notes=notes))
