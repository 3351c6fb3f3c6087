"""First step of a decoding, derived from the inputs of a later step.

From example inputs of a class of transformers follow the same inputs without caches. A class makes its own
caches, in the sizes of its config. So the config is found, and compared, on a step without caches.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from transformers.cache_utils import Cache

from growc.dialects.torch.capture.example_inputs import without_cache
from growc.errors.diagnostic import Diagnostic, GrowError


def first_step(module: nn.Module, inputs: Mapping[str, object]) -> dict[str, object]:
    """Return the inputs without caches, and without the mask columns of cached text.

    Raises GrowError (G309) for other inputs that hold several tensors, since a class is found on single ones.
    """
    caches = [value for value in inputs.values() if isinstance(value, Cache)]
    remaining = {name: value for name, value in inputs.items() if not isinstance(value, Cache)}
    for name, value in remaining.items():
        if not isinstance(value, Tensor) and any(isinstance(leaf, Tensor) for leaf in tree_leaves(value)):
            message = f"`{name}` holds several tensors, and the config of a class is found on single ones"
            remedy = "leave it out, or use `keep_class=False`, which gives a module of growc's own"
            raise GrowError(Diagnostic("G309", message, help=remedy))
    if not caches:
        return remaining
    remaining.pop("use_cache", None)
    side = "decoder_" if any(name.startswith("decoder_") for name in remaining) else ""
    past = max(int(cache.get_seq_length()) for cache in caches)
    mask, text = (remaining.get(f"{side}{name}") for name in ("attention_mask", "input_ids"))
    text = remaining.get(f"{side}inputs_embeds") if text is None else text
    if isinstance(mask, Tensor) and isinstance(text, Tensor) and mask.shape[-1] >= past + text.shape[1]:
        remaining[f"{side}attention_mask"] = mask[..., past : past + text.shape[1]]
    return remaining | without_cache(module, kwargs=remaining)
