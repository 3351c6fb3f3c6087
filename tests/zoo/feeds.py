"""Feeds of the zoo's models: inputs of three sizes, and which of their axes are dynamic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

Feed = dict[str, Tensor]

BATCH, SEQUENCE, TARGET = (2, 3), (16, 11), (7, 9)
"""The sizes that are traced, and another: rows, positions, and positions of a decoder's input."""
VOCAB = 128
SPECIAL = 4
"""Token numbers below this one are kept for padding, begin and end."""


@dataclass(frozen=True)
class Inputs:
    """How a model is fed.

    draw: inputs by name, of the traced size (0) or of the other (1).
    axes: for each input, its dynamic axes by number; `batch` is the name of the rows everywhere.
    """

    draw: Callable[[int], Feed]
    axes: Mapping[str, Mapping[int, str]]

    def cases(self) -> list[Feed]:
        """The traced size; another, with padding where there are masks; the traced one and one more row."""
        feeds = [self.draw(0), self.draw(1)]
        return [*feeds, {name: self._one_more(name, value) for name, value in feeds[0].items()}]

    def _one_more(self, name: str, value: Tensor) -> Tensor:
        axis = next((a for a, symbol in self.axes.get(name, {}).items() if symbol == "batch"), None)
        if axis is None:
            return value
        return torch.cat([value, torch.roll(value.narrow(axis, 0, 1), 1, -1)], axis)


def tokens(rows: int, length: int, vocab: int = VOCAB) -> Tensor:
    """Token numbers of shape (rows, length)."""
    return torch.randint(SPECIAL, vocab, (rows, length))


def mask(rows: int, length: int, padded: bool) -> Tensor:
    """Ones of shape (rows, length), with the last row's end padded; no row is ever fully masked."""
    ones = torch.ones(rows, length, dtype=torch.long)
    if padded:
        ones[-1, -3:] = 0
    return ones


def text(vocab: int = VOCAB, segments: bool = False, masked: bool = True) -> Inputs:
    """Token numbers, an attention mask, and the segment of each token."""

    def draw(case: int) -> Feed:
        rows, length = BATCH[case], SEQUENCE[case]
        feed = {"input_ids": tokens(rows, length, vocab)}
        if masked:
            feed["attention_mask"] = mask(rows, length, case == 1)
        if segments:
            feed["token_type_ids"] = torch.randint(0, 2, (rows, length))
        return feed

    names = ["input_ids", *["attention_mask"] * masked, *["token_type_ids"] * segments]
    return Inputs(draw, {name: {0: "batch", 1: "seq"} for name in names})


def fixed_text(vocab: int = VOCAB) -> Inputs:
    """Token numbers of one length, for models that unroll the sequence."""
    return Inputs(
        lambda case: {"input_ids": tokens(BATCH[case], SEQUENCE[0], vocab)}, {"input_ids": {0: "batch"}}
    )


def translation(vocab: int = VOCAB) -> Inputs:
    """The inputs of an encoder and of its decoder."""

    def draw(case: int) -> Feed:
        rows, length = BATCH[case], SEQUENCE[case]
        return {
            "input_ids": tokens(rows, length, vocab),
            "attention_mask": mask(rows, length, case == 1),
            "decoder_input_ids": tokens(rows, TARGET[case], vocab),
        }

    source = {0: "batch", 1: "seq"}
    axes = {"input_ids": source, "attention_mask": source, "decoder_input_ids": {0: "batch", 1: "dec_seq"}}
    return Inputs(draw, axes)


def speech(bins: int = 16, frames: int = 64) -> Inputs:
    """A spectrogram of fixed length, and a decoder's input with its mask."""

    def draw(case: int) -> Feed:
        rows, length = BATCH[case], TARGET[case]
        return {
            "input_features": torch.randn(rows, bins, frames),
            "decoder_input_ids": tokens(rows, length),
            "decoder_attention_mask": mask(rows, length, case == 1),
        }

    target = {0: "batch", 1: "dec_seq"}
    axes = {"input_features": {0: "batch"}, "decoder_input_ids": target, "decoder_attention_mask": target}
    return Inputs(draw, axes)


def sound(samples: int = 800) -> Inputs:
    """A wave of fixed length."""
    return Inputs(
        lambda case: {"input_values": torch.randn(BATCH[case], samples)}, {"input_values": {0: "batch"}}
    )


def pixels(rows: int, size: int = 32) -> Tensor:
    """Images of shape (rows, 3, size, size): noise on every scale, so that pooled features differ."""
    coarse = interpolate(torch.randn(rows, 3, 4, 4), size=size, mode="nearest")
    return coarse + torch.randn(rows, 3, 1, 1) + 0.5 * torch.randn(rows, 3, size, size)


def image(name: str = "pixel_values", size: int = 32) -> Inputs:
    """Images of one size."""
    return Inputs(lambda case: {name: pixels(BATCH[case], size)}, {name: {0: "batch"}})


def image_and_text(last: int | None = None, length: int | None = None, masked: bool = True) -> Inputs:
    """Two towers' inputs; `last` is the number of the token that ends every text, `length` a fixed one."""

    def draw(case: int) -> Feed:
        rows, words = BATCH[case], length or SEQUENCE[case]
        ids = tokens(rows, words, VOCAB - 1)
        if last is not None:
            ids[:, -1] = last
        feed = {"input_ids": ids, "pixel_values": pixels(rows)}
        return feed | ({"attention_mask": mask(rows, words, False)} if masked else {})

    words = {0: "batch"} if length else {0: "batch", 1: "seq"}
    axes = {"input_ids": words, "pixel_values": {0: "batch"}}
    return Inputs(draw, axes | ({"attention_mask": words} if masked else {}))


def numbers(*sizes: int, sequence: bool = False) -> Inputs:
    """One real input `x` of shape (batch, *sizes), or (batch, seq, *sizes)."""

    def draw(case: int) -> Feed:
        return {"x": torch.randn(BATCH[case], *[SEQUENCE[case]] * sequence, *sizes)}

    return Inputs(draw, {"x": {0: "batch", 1: "seq"} if sequence else {0: "batch"}})


def with_cache(layers: int, kv_heads: int, head_dim: int, vocab: int = VOCAB) -> Inputs:
    """New tokens, a mask over old and new ones, and the keys and values of the old ones, layer by layer."""
    old, new = (5, 3), (4, 2)

    def draw(case: int) -> Feed:
        rows = BATCH[case]
        feed = {
            "input_ids": tokens(rows, new[case], vocab),
            "attention_mask": torch.ones(rows, old[case] + new[case], dtype=torch.long),
        }
        for layer in range(layers):
            for part in ("key", "value"):
                feed[f"past_{layer}_{part}"] = torch.randn(rows, kv_heads, old[case], head_dim)
        return feed

    axes = {"input_ids": {0: "batch", 1: "seq"}, "attention_mask": {0: "batch", 1: "total"}}
    past = {f"past_{i}_{part}": {0: "batch", 2: "past"} for i in range(layers) for part in ("key", "value")}
    return Inputs(draw, axes | past)
