"""Floating-point operations by rule: what training a model of given sizes costs. Needs nothing.

A multiplication and an addition are two operations. Counted are products of matrices alone: 2·parameters for
each place that a matrix reads, and attention's two products over all pairs of places. A backward pass costs
twice its forward pass. tests/savings/test_flops.py compares the rule with torch's own counter.
"""

from __future__ import annotations

from benchmarks.savings.model import Shape


def layer_flops(shape: Shape) -> int:
    """Forward through one layer, for one sample."""
    inner = shape.heads * shape.head_dim
    matrices = 4 * shape.width * inner + 2 * shape.width * shape.ffn
    return 2 * shape.length * matrices + 4 * shape.length**2 * inner


def head_flops(shape: Shape) -> int:
    """Forward through the head, for one sample: at each place of a GPT, once in a ViT."""
    return 2 * shape.width * shape.outputs * (shape.length if shape.kind == "gpt" else 1)


def embedding_flops(shape: Shape) -> int:
    """Forward through the embedding, for one sample: a GPT looks rows up, a ViT multiplies."""
    return 0 if shape.kind == "gpt" else 2 * shape.length * shape.inputs * shape.width


def forward_flops(shape: Shape, layers: int | None = None) -> int:
    """Forward for one sample, through the bottom `layers` layers alone where that is given."""
    count = shape.layers if layers is None else layers
    return embedding_flops(shape) + count * layer_flops(shape) + head_flops(shape)


def step_flops(shape: Shape) -> int:
    """Forward and backward for one sample. No gradient by the inputs is needed."""
    return 3 * forward_flops(shape) - embedding_flops(shape)


def sub_model_flops(shape: Shape, layers: int, trained: int) -> int:
    """A step of two-stage training, for one sample.

    Forward through the bottom `layers` layers, backward through the `trained` highest of these and the head.
    """
    return forward_flops(shape, layers) + 2 * (trained * layer_flops(shape) + head_flops(shape))
