"""The facts of each model of the zoo: the ground truth that tests and benchmarks hold the compiler against.

Nothing here is ever an input of the compiler.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Facts:
    """Sizes of every role (each distinct size once, empty where there is none), and what a model is made of.

    layers: of a model of transformers, as its configuration says; of a network of convolutions, how many
        blocks of each width have a bypass that nothing works on.
    norm: what norms the streams: `layer`, `rms`, `batch`, `group` or `none`.
    stream: where those norms stand: `pre`, `post`, `sandwich` (before and after), `branch` (after only), or
        `none` where there is no stream.
    embedding_norm: a norm makes a stream before its first block.
    convolutional: a network of convolutions, whose widths are `channels`.
    whole_norm: a norm runs over a whole query or key projection, all heads at once.
    traits: quirks of the graph that the zoo is to hold at least once, see TRAITS.
    """

    hidden: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    kv_heads: tuple[int, ...] = ()
    head_dim: tuple[int, ...] = ()
    ffn: tuple[int, ...] = ()
    vocab: tuple[int, ...] = ()
    layers: tuple[int, ...] = ()
    norm: str = "layer"
    stream: str = "pre"
    embedding_norm: bool = False
    convolutional: bool = False
    whole_norm: bool = False
    traits: tuple[str, ...] = ()
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """For the record beside built models."""
        return asdict(self)


def attention(**changed: Any) -> Facts:
    """A transformer of the zoo's usual sizes."""
    usual: dict[str, Any] = {
        "hidden": (64,),
        "heads": (4,),
        "head_dim": (16,),
        "ffn": (256,),
        "vocab": (128,),
    }
    sizes = usual | changed
    sizes.setdefault("kv_heads", sizes["heads"])
    return Facts(**sizes)
