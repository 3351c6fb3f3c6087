"""Fused operators: those of onnxruntime's optimised files, and those of opset 23."""

from __future__ import annotations

import numpy as np
from one_node import Case, Feed, numbers, real, spread, weight

MS = "com.microsoft::"
LOOSE = {"epsilon": 1e-2}


def int32(*values: int) -> Feed:
    return np.asarray(values, dtype=np.int32)


def ms(
    op: str, *inputs: object, outputs: int = 1, absent: tuple[int, ...] = (), **attributes: object
) -> Case:
    return Case(MS + op, inputs, attributes, outputs, since=17, until=17, absent=absent)


def ones(*inputs: object, outputs: int = 1, op: str = "Attention", **attributes: object) -> Case:
    return Case(op, inputs, attributes, outputs, since=23)


ACTIVATIONS = [
    ms("BiasGelu", real("b", 3, 4), weight(4)),
    ms("FastGelu", real("b", 3, 4), weight(4)),
    ms("FastGelu", real("b", 3, 4)),
    ms("QuickGelu", real("b", 3, 4), alpha=1.3),
    ms("Gelu", real("b", 3, 4)),
]

SUMS = [
    ms("SkipLayerNormalization", real(2, 3, 4), real(2, 3, 4), weight(4), weight(4), weight(4), **LOOSE),
    ms("SkipLayerNormalization", real(2, 3, 4), real(2, 3, 4), weight(4), outputs=4, absent=(1, 2), **LOOSE),
    ms("SkipSimplifiedLayerNormalization", real(2, 3, 4), real(2, 3, 4), weight(4), weight(4), **LOOSE),
    ms(
        "SkipSimplifiedLayerNormalization",
        real(2, 3, 4),
        real(2, 3, 4),
        weight(4),
        outputs=4,
        absent=(1, 2),
        **LOOSE,
    ),
    ms(
        "EmbedLayerNormalization",
        *(Feed((2, 3), "index", 5), Feed((2, 3), "index", 2)),
        *(weight(5, 4), weight(6, 4), weight(2, 4), weight(4), weight(4)),
        outputs=2,
        **LOOSE,
    ),
]

PRODUCTS = [
    ms("FusedMatMul", real("b", 3, 4), weight(4, 5), alpha=0.3),
    ms("FusedMatMul", real("b", 3, 4), weight(5, 4), transB=1),
    ms("FusedMatMul", real(4, 3), weight(5, 4), transA=1, transB=1, alpha=2.0),
    ms("FusedMatMul", real(2, 3, 4, 5), real(2, 3, 6, 5), transB=1, alpha=0.5),
    ms("FusedMatMul", real(3, 2, 5, 4), real(2, 5, 4, 6), transBatchA=1),
    ms("FusedMatMul", real(4, 2, 5, 3), real(6, 2, 5, 4), transBatchA=1, transA=1, transBatchB=1, transB=1),
    ms("TransposeMatMul", real(3, 4), weight(5, 4), transB=1),
    ms("FusedConv", real(2, 4, 5), weight(6, 4, 3), weight(6), activation="Relu"),
    ms("FusedConv", real(2, 4, 5), weight(6, 2, 3), weight(6), group=2, activation="Tanh"),
    ms(
        "FusedConv",
        real(2, 4, 5, 5),
        weight(6, 4, 3, 3),
        weight(6),
        real(2, 6, 5, 5),
        pads=[1, 1, 1, 1],
        activation="Relu",
    ),
    ms(
        "FusedConv",
        real(2, 4, 5),
        weight(6, 4, 3),
        activation="LeakyRelu",
        activation_params=[0.2],
    ),
    ms("FusedConv", real(2, 4, 5), weight(6, 4, 3), activation="Clip", activation_params=[-0.5, 1.0]),
    ms(
        "FusedConv",
        real(2, 4, 5),
        weight(6, 4, 3),
        activation="HardSigmoid",
        activation_params=[0.3, 0.4],
    ),
    ms("FusedGemm", real("b", 4), weight(4, 5), weight(5), activation="Relu"),
    ms(
        "FusedGemm",
        real(3, 4),
        weight(5, 4),
        weight(5),
        transB=1,
        alpha=0.5,
        activation="LeakyRelu",
        activation_alpha=0.3,
    ),
]


def rotary_tables(op: str = "", rank: int = 3) -> tuple[Feed, Feed]:
    shape = (2, 5, 2) if rank == 3 else (9, 2)
    return spread(*shape), spread(*shape)


ROTARY = [
    ms("RotaryEmbedding", real(2, 3, 5, 4), numbers(0), *rotary_tables(rank=2)),
    ms("RotaryEmbedding", real(2, 5, 12), numbers(0), *rotary_tables(rank=2)),
    ms(
        "RotaryEmbedding",
        real(2, 5, 18),
        numbers(0),
        *rotary_tables(rank=2),
        num_heads=3,
        rotary_embedding_dim=4,
        interleaved=1,
    ),
    ones(real(2, 3, 5, 4), *rotary_tables(), op="RotaryEmbedding"),
    ones(real(2, 5, 12), *rotary_tables(), op="RotaryEmbedding", num_heads=3, interleaved=1),
    ones(
        real(2, 5, 18),
        *rotary_tables(rank=2),
        np.arange(5)[None].repeat(2, 0),
        op="RotaryEmbedding",
        num_heads=3,
        rotary_embedding_dim=4,
    ),
]

PACKED = [
    ms("Attention", real(2, 5, 6), weight(6, 36), weight(36), num_heads=3),
    ms("Attention", real(2, 5, 6), weight(6, 36), weight(36), num_heads=3, unidirectional=1, scale=0.3),
    ms("Attention", real(2, 5, 6), weight(6, 30), weight(30), num_heads=3, qkv_hidden_sizes=[12, 12, 6]),
    ms("Attention", real(2, 5, 6), weight(6, 36), weight(36), int32(5, 4), num_heads=3),
    ms(
        "Attention",
        *(real(2, 5, 6), weight(6, 36), weight(36), None, None, real(2, 3, 5, 5)),
        num_heads=3,
    ),
    ms(
        "Attention",
        *(real(2, 5, 6), weight(6, 36), weight(36), None, real(2, 2, 3, 7, 4)),
        num_heads=3,
        unidirectional=1,
        outputs=2,
    ),
]

APART = [
    ms("MultiHeadAttention", real(2, 5, 12), real(2, 6, 12), real(2, 6, 12), num_heads=3),
    ms("MultiHeadAttention", real(2, 5, 12), real(2, 6, 12), real(2, 6, 6), num_heads=3, scale=0.3),
    ms("MultiHeadAttention", real(2, 5, 12), real(2, 6, 12), real(2, 6, 6), weight(30), num_heads=3),
    ms("MultiHeadAttention", real(2, 5, 3, 3, 4), num_heads=3),
    ms("MultiHeadAttention", real(2, 5, 12), real(2, 6, 3, 2, 4), num_heads=3),
    ms(
        "MultiHeadAttention",
        *(real(2, 5, 12), real(2, 5, 12), real(2, 5, 12), weight(36), None, real(2, 3, 5, 5)),
        num_heads=3,
    ),
    ms(
        "MultiHeadAttention",
        *(real(2, 5, 12), real(2, 5, 12), real(2, 5, 12), None, None, None),
        *(real(2, 3, 7, 4), real(2, 3, 7, 4)),
        num_heads=3,
        unidirectional=1,
        outputs=3,
    ),
    ms(
        "MultiHeadAttention",
        *(real(2, 5, 12), real(2, 3, 7, 4), real(2, 3, 7, 4)),
        num_heads=3,
    ),
]

TOTAL = (int32(4, 4), np.asarray(5, dtype=np.int32))
"""Lengths of keys, less one; the longest."""
PAST = (int32(11, 11), np.asarray(12, dtype=np.int32))

GROUPED = [
    ms(
        "GroupQueryAttention",
        *(real(2, 5, 48), real(2, 5, 16), real(2, 5, 16), None, None, *TOTAL),
        num_heads=6,
        kv_num_heads=2,
        outputs=3,
    ),
    ms(
        "GroupQueryAttention",
        *(real(2, 5, 80), None, None, None, None, *TOTAL),
        num_heads=6,
        kv_num_heads=2,
        outputs=3,
    ),
    ms(
        "GroupQueryAttention",
        *(real(2, 1, 96), real(2, 1, 32), real(2, 1, 32), real(2, 2, 11, 16), real(2, 2, 11, 16), *PAST),
        *(spread(16, 8), spread(16, 8)),
        num_heads=6,
        kv_num_heads=2,
        do_rotary=1,
        outputs=3,
    ),
    ms(
        "GroupQueryAttention",
        *(real(2, 5, 32), real(2, 5, 32), real(2, 5, 32), None, None, *TOTAL, None, None, None),
        *(real(2, 4, 5, 5),),
        num_heads=4,
        kv_num_heads=4,
        scale=0.2,
        outputs=3,
    ),
    ms(
        "GroupQueryAttention",
        *(real(2, 5, 48), real(2, 5, 16), real(2, 5, 16), None, None, *TOTAL),
        *(None, None, None, None, weight(6)),
        num_heads=6,
        kv_num_heads=2,
        outputs=3,
    ),
]

OPSET_23 = [
    ones(real(2, 3, 5, 4), real(2, 3, 6, 4), real(2, 3, 6, 5), scale=0.3),
    ones(real(2, 6, 5, 4), real(2, 3, 5, 4), real(2, 3, 5, 4), is_causal=1),
    ones(real(2, 3, 5, 4), real(2, 1, 5, 4), real(2, 1, 5, 4), real(2, 3, 5, 5)),
    ones(real(2, 3, 5, 4), real(2, 3, 5, 4), real(2, 3, 5, 4), real(5, 5)),
    ones(real(2, 5, 12), real(2, 6, 12), real(2, 6, 15), q_num_heads=3, kv_num_heads=3),
    ones(
        *(real(2, 5, 24), real(2, 6, 8), real(2, 6, 10), real(2, 6, 5, 6)),
        q_num_heads=6,
        kv_num_heads=2,
        softcap=3.0,
    ),
    ones(
        *(real(2, 6, 5, 4), real(2, 2, 5, 4), real(2, 2, 5, 4), None),
        *(real(2, 2, 7, 4), real(2, 2, 7, 4)),
        outputs=3,
        is_causal=1,
    ),
    ones(
        *(real(2, 5, 24), real(2, 5, 8), real(2, 5, 8), None, real(2, 2, 7, 4), real(2, 2, 7, 4)),
        q_num_heads=6,
        kv_num_heads=2,
        outputs=4,
    ),
    ones(
        *(real(2, 3, 5, 4), real(2, 3, 5, 4), real(2, 3, 5, 4)),
        outputs=4,
        qk_matmul_output_mode=3,
    ),
]

SMALL = np.random.default_rng(0).integers(-99, 99, (4, 6)).astype(np.int8)

QUANTISED = [
    ms("DynamicQuantizeMatMul", real(2, 3, 4), SMALL, np.float32(0.02), np.int8(5)),
    ms("DynamicQuantizeMatMul", real(2, 4), SMALL, spread(6), np.zeros(6, np.int8), weight(6)),
]

FUSED_CASES = [*ACTIVATIONS, *SUMS, *PRODUCTS, *ROTARY, *PACKED, *APART, *GROUPED, *QUANTISED, *OPSET_23]
