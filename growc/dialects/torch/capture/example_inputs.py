"""Example inputs for a module of transformers, from the signature of its forward and its configuration.

Arguments of one meaning have one name in all classes of transformers. Sizes are read from the configuration
and its sub-configurations. Sizes that the configuration does not state are tried. The first inputs that the
forward runs on, with fake tensors, are taken. Inputs with all modalities are tried first.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from growc.dialects.torch.capture.data_dependence import asks_data, reasons, untraceable
from growc.dialects.torch.capture.fake_module import Fakes, exporting, standing_in
from growc.errors.diagnostic import Attempt, Diagnostic, GrowError

__all__ = ["EXPERTS", "capturable", "example_inputs", "real_inputs", "ways", "without_cache"]

EXPERTS = "batched_mm"
"""Experts implementation that gathers weights per token: the only one of transformers without a data loop."""

ROWS, LENGTH, DECODED = 2, 12, 7
"""Number of rows, and lengths of texts for an encoder and a decoder. They differ to tell the axes apart."""
USUAL_IMAGES = (64, 64), (224, 224)
"""Images to try where the config has no size: a small one, and that of ImageNet."""
MEL_BINS, FRAMES = 80, 128
"""A spectrum to try where the config has no size: the bins of Whisper, and some frames."""
WINDOWS, ONE_SECOND = 40, 16000
"""A sound to try: so many windows of all strides together, or a second at 16 kHz."""
PADDED = 3
"""Number of masked positions at the end of the last row."""
SPECIAL = 4
"""First token number to draw. Lower ones are mostly reserved for padding, begin and end."""


LENGTHS = ("seq_length", "seq_len", "max_position_embeddings", "n_positions")
"""Suffixes of configuration fields that state the longest or the only length of a text."""


@dataclass(frozen=True)
class Slot:
    """One input: the name of its argument, its content (`ids` below `bound`, `mask`, `real`) and shape."""

    name: str
    holds: str
    shape: tuple[int, ...]
    bound: int = 0


ConfigFields = Mapping[str, list[Any]]
"""The values of each configuration field: its own first, then those of sub-configurations."""


def example_inputs(module: nn.Module) -> dict[str, Any]:
    """Return keyword arguments that the module's forward runs on, as tensors on meta. Only their sizes count.

    The module may be on meta, and is left as it was. Raises GrowError (G317) if no inputs are found.
    """
    slots, way = _found(module)
    return {s.name: torch.empty(s.shape, dtype=_dtype(s, module), device="meta") for s in slots} | way


def real_inputs(module: nn.Module, seed: int = 0) -> dict[str, Any]:
    """Return example inputs with values drawn by `seed`.

    They are token numbers, masks with some padding, and normally distributed numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    slots, way = _found(module)
    return {slot.name: _draw(slot, module, generator) for slot in slots} | way


def without_cache(
    module: nn.Module, args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
) -> dict[str, bool]:
    """Return the argument by which a forward returns tensors only, without a cache object.

    A forward of transformers that does not name the argument may pass it on to a submodule with its other
    keyword arguments. It may also set the argument itself, and fail if it is given as well.
    """
    keywords = kwargs or {}
    if "use_cache" in keywords:
        return {}
    options = _ways_to_tell(module)
    if len(options) == 1:
        return options[0]
    with standing_in(module) as fakes, capturable(module), torch.no_grad(), exporting():
        return _tried(module, fakes, args, keywords)[1]


def _ways_to_tell(module: nn.Module) -> list[dict[str, bool]]:
    """Return the ways to ask a forward for no cache: by its argument, by a submodule's, or not at all."""
    kinds = inspect.signature(module.forward).parameters
    if "use_cache" in kinds:
        return [{"use_cache": False}]
    hands_on = hasattr(module, "config") and any(kind.kind is kind.VAR_KEYWORD for kind in kinds.values())
    parts = module.modules() if hands_on else ()
    part_takes_it = any("use_cache" in inspect.signature(part.forward).parameters for part in parts)
    return [{"use_cache": False}, {}] if part_takes_it else [{}]


def _tried(
    module: nn.Module, fakes: Fakes, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[Exception | None, dict[str, bool]]:
    """Run a forward on fake tensors. Return its error, and the way it was asked for no cache."""
    error, way = None, dict[str, bool]()
    for way in _ways_to_tell(module):
        for values in (nullcontext(), fakes.valued()):
            with Attempt() as attempt, values, fakes.mode:
                module(*fakes.within(tuple(args)), **fakes.within({**kwargs, **way}))
            error = attempt.error
            if error is None or not asks_data(error):
                break
        twice = isinstance(error, TypeError | KeyError) and "use_cache" in str(error)
        if not twice:  # Python raises either for an argument given twice
            break
    return error, way


def register_caches(inputs: Any) -> None:
    """Register the cache class of transformers with torch, if the inputs of a forward hold a cache."""
    kinds = {type(leaf).__name__ for leaf in tree_leaves(inputs)}
    if "DynamicCache" in kinds:  # torch takes an unregistered class for a leaf
        from transformers.integrations.executorch import register_dynamic_cache_export_support

        register_dynamic_cache_export_support()


def ways(config: Any, name: str) -> Any:
    """Return the implementations that a configuration and its sub-configurations name.

    The result has the form in which the field can be set.
    """
    parts = {key: getattr(config, key, None) for key in config.sub_configs}
    named = {key: ways(part, name) for key, part in parts.items() if part is not None}
    return {"": getattr(config, name), **named} if named else getattr(config, name)


@contextmanager
def capturable(module: nn.Module) -> Iterator[None]:
    """Use an experts implementation without a loop over data inside the context."""
    config: Any = getattr(module, "config", None)
    if not hasattr(config, "_experts_implementation"):
        yield
        return
    before = ways(config, "_experts_implementation")
    config._experts_implementation = EXPERTS
    try:
        yield
    finally:
        config._experts_implementation = before


def _dtype(slot: Slot, module: nn.Module) -> torch.dtype:
    if slot.holds != "real":
        return torch.long
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


def _draw(slot: Slot, module: nn.Module, generator: torch.Generator) -> Tensor:
    if slot.holds == "real":
        return torch.randn(slot.shape, generator=generator).to(_dtype(slot, module))
    if slot.holds == "ids":
        return torch.randint(min(SPECIAL, slot.bound - 1), slot.bound, slot.shape, generator=generator)
    mask = torch.ones(slot.shape, dtype=torch.long)
    mask[-1, -PADDED:] = 0
    return mask


def _found(module: nn.Module) -> tuple[tuple[Slot, ...], dict[str, bool]]:
    """Return the first candidates that the module runs on, and the way it is asked for no cache."""
    reason: Exception | None = None
    with standing_in(module) as fakes, capturable(module), torch.no_grad(), exporting():
        for slots in _candidates(module):
            inputs = {s.name: torch.empty(s.shape, dtype=_dtype(s, module), device="meta") for s in slots}
            error, way = _tried(module, fakes, (), inputs)
            if error is None:
                return slots, way
            if reason is None or (asks_data(error) and not asks_data(reason)):
                reason = error
    if reason is not None and asks_data(reason):  # the inputs fit, so torch.export would fail too
        raise GrowError(untraceable(module, reason)) from reason
    notes = reasons(reason) if reason else ("no argument of its forward is known",)
    message = f"growc finds no inputs that `{type(module).__name__}` runs on"
    raise GrowError(
        Diagnostic("G317", message, notes=notes, help="give example inputs (`--inputs`)")
    ) from reason


# ------------------------------------------------------------------------------------------ candidates


def _candidates(module: nn.Module) -> Iterator[tuple[Slot, ...]]:
    """Yield inputs to try: sets of modalities, largest first, in all sizes that the config suggests."""
    config = getattr(module, "config", None)
    if config is None:
        return
    fields = _vocabularies(module) | _fields(config.to_dict())
    taken = inspect.signature(module.forward).parameters
    ways = {name: way for name, way in MODALITIES.items() if name in taken}
    main = getattr(module, "main_input_name", "")
    others = [name for name in ways if name != main]
    for decoded in _decoded(fields, taken):
        for count in range(len(others), -1, -1):
            for chosen in itertools.combinations(others, count):
                names = [name for name in ways if name == main or name in chosen]
                for slots in itertools.product(*(ways[name](fields) for name in names)):
                    yield tuple(_with_companions(itertools.chain(*slots), taken, fields)) + decoded


def _with_companions(slots: Iterator[Slot], taken: Mapping[str, Any], fields: ConfigFields) -> Iterator[Slot]:
    """Yield the slots, with masks, segments and boxes for texts where the model takes them."""
    for slot in slots:
        yield slot
        if slot.name != "input_ids":
            continue
        if "attention_mask" in taken:
            yield Slot("attention_mask", "mask", slot.shape)
        if "token_type_ids" in taken and (kinds := _first(fields, "type_vocab_size", 0)) > 1:
            yield Slot("token_type_ids", "ids", slot.shape, kinds)
        if "bbox" in taken:
            yield Slot("bbox", "ids", (*slot.shape, 4), SPECIAL + 1)


def _vocabularies(module: nn.Module) -> dict[str, list[Any]]:
    """Return the vocabulary sizes of a module and its decoder, read from their embeddings.

    They serve where the configuration has no usual field for them.
    """
    whole: Any = module
    sizes: dict[str, list[Any]] = {}
    tables: dict[str, Callable[[], Any]] = {
        "vocab_size": lambda: whole.get_input_embeddings(),
        "decoder_vocab_size": lambda: whole.get_decoder().get_input_embeddings(),
    }
    for field, get_table in tables.items():
        with suppress(AttributeError, NotImplementedError):  # not every class gives its embeddings
            table = get_table()
            sizes |= {field: [table.num_embeddings]} if isinstance(table, nn.Embedding) else {}
    return sizes


def _texts(fields: ConfigFields) -> list[tuple[Slot, ...]]:
    named = [name for name in fields if name.endswith(LENGTHS)]
    known = [n for name in named for n in _numbers(fields, name)]
    lengths = dict.fromkeys([LENGTH, *(n for n in known if n < LENGTH), *known])
    vocab = _first(fields, "vocab_size", 0)
    return [(Slot("input_ids", "ids", (ROWS, n), vocab),) for n in lengths] if vocab else []


def _decoded(fields: ConfigFields, taken: Mapping[str, Any]) -> list[tuple[Slot, ...]]:
    """Return the decoder inputs to try: ids alone, or with a mask.

    Some classes make the mask from the data if none is given.
    """
    if "decoder_input_ids" not in taken or not _true(fields, "is_encoder_decoder"):
        return [()]
    vocab = _first(fields, "decoder_vocab_size", 0) or _first(fields, "vocab_size", 0)
    ids = Slot("decoder_input_ids", "ids", (ROWS, DECODED), vocab)
    mask = Slot("decoder_attention_mask", "mask", ids.shape)
    return [(ids,), (ids, mask)] if mask.name in taken else [(ids,)]


def _images(fields: ConfigFields) -> list[tuple[Slot, ...]]:
    channels = [n for name in ("num_channels", "in_channels", "in_chans") for n in _numbers(fields, name)]
    configured = [_pair(size) for size in fields.get("image_size", []) if size]
    sizes = [*dict.fromkeys(configured), *USUAL_IMAGES]
    frames = _numbers(fields, "num_frames")[:1]
    shapes = [(*f, *(channels or [3])[:1], *size) for size in sizes for f in (frames, [])[not frames :]]
    return [(Slot("pixel_values", "real", (ROWS, *shape)),) for shape in shapes]


def _films(fields: ConfigFields) -> list[tuple[Slot, ...]]:
    counts = [n for name in ("num_frames", "frames_per_clip") for n in _numbers(fields, name)] or [16]
    stills = [slot.shape[-3:] for (slot,) in _images(fields)]
    return [(Slot("pixel_values_videos", "real", (ROWS, counts[0], *shape)),) for shape in stills]


def _series(fields: ConfigFields) -> list[tuple[Slot, ...]]:
    length = _first(fields, "context_length", 4 * LENGTH)
    several = [(length, n) for n in _numbers(fields, "num_input_channels")]
    return [(Slot("past_values", "real", (ROWS, *shape)),) for shape in (*several, (length,))]


def _spectra(fields: ConfigFields) -> list[tuple[Slot, ...]]:
    bins = next(
        iter([*_numbers(fields, "num_mel_bins"), *_numbers(fields, "input_feat_per_channel")]), MEL_BINS
    )
    frames = (
        [2 * n for n in _numbers(fields, "max_source_positions")] + _numbers(fields, "max_length") + [FRAMES]
    )
    shapes = [s for n in frames for s in ((bins, n), (n, bins))]
    return [(Slot("input_features", "real", (ROWS, *shape)),) for shape in shapes]


def _waves(fields: ConfigFields) -> list[tuple[Slot, ...]]:
    strides = fields.get("conv_stride") or [()]
    bins, frames = _numbers(fields, "num_mel_bins"), _numbers(fields, "max_length")
    shapes: list[tuple[int, ...]] = [(n, b) for b in bins[:1] for n in frames[:1]]
    shapes.append((WINDOWS * math.prod(strides[0]),) if strides[0] else (ONE_SECOND,))
    return [(Slot("input_values", "real", (ROWS, *shape)),) for shape in shapes]


MODALITIES: Mapping[str, Callable[[ConfigFields], Sequence[tuple[Slot, ...]]]] = {
    "input_ids": _texts,
    "pixel_values": _images,
    "input_features": _spectra,
    "input_values": _waves,
    "pixel_values_videos": _films,
    "past_values": _series,
}
"""Arguments of forward, by the names that all classes of transformers use, with functions that list the slots
to try.
"""


# --------------------------------------------------------------------------------------- configurations


def _fields(config: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return all fields of a configuration and its sub-configurations."""
    merged: dict[str, list[Any]] = {}
    for name, value in config.items():
        merged.setdefault(str(name), []).append(value)
    for value in config.values():
        if isinstance(value, Mapping):
            for name, values in _fields(value).items():
                merged.setdefault(name, []).extend(values)
    return merged


def _numbers(fields: ConfigFields, name: str) -> list[int]:
    return [value for value in fields.get(name, ()) if isinstance(value, int) and value > 0]


def _first(fields: ConfigFields, name: str, default: int) -> int:
    return next(iter(_numbers(fields, name)), default)


def _true(fields: ConfigFields, name: str) -> bool:
    return fields.get(name, [False])[0] is True


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])
