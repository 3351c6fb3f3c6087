"""Attributes that count axes in the result: groups, heads, widths of packed parts, channels for a scale."""

from __future__ import annotations

from collections.abc import Mapping

from growc.algebra.space import find
from growc.dialects.onnx.repair.patch import Demands
from growc.dialects.onnx.shapes.simulation import Simulation
from growc.passes.axes.infer import LineInstance
from growc.passes.edits import ChangedAttribute, Patch

COUNTS: dict[str, Mapping[str, str]] = {
    "Conv": {"group": "g"},
    "ConvTranspose": {"group": "g"},
    "GroupNormalization": {"num_groups": "g"},
    "LSTM": {"hidden_size": "h"},
    "GRU": {"hidden_size": "h"},
    "RNN": {"hidden_size": "h"},
    "RotaryEmbedding": {"num_heads": "h"},
    "com.microsoft::RotaryEmbedding": {"num_heads": "h"},
    "growc::SplitHeads": {"num_heads": "h"},
    "growc::Unpack": {"num_heads": "h"},
    "growc::Unfold": {"num_heads": "h"},
    "growc::Repeat": {"num_heads": "h", "times": "g"},
    "growc::SplitPacked": {"num_heads": "q", "kv_num_heads": "k"},
}
"""Attributes that are the size of a label."""


def count(wants: Demands, instance: LineInstance, sim: Simulation) -> Patch:
    """Update attributes that are the size of a label."""
    node = instance.node
    changed: dict[str, ChangedAttribute] = {}
    for name, label in COUNTS[node.op].items():
        if label in instance.spaces:
            size = wants.resize(find(instance.spaces[label]))[0]
            if size != instance.spaces[label].size[0] and node.attributes.get(name):
                changed[name] = size
    return Patch({}, changed)


def packed(wants: Demands, instance: LineInstance, sim: Simulation) -> Patch:
    """Update the number of heads side by side, and the widths of q, k and v if these are given or needed."""
    patch, before = count(wants, instance, sim), instance.node.integers("widths")
    sizes = [[wants.resize(find(instance.spaces[n]))[0] for n in pair] for pair in ("qd", "ke", "vf")]
    widths = [heads * channels for heads, channels in sizes]
    spelt = before is not None or len({channels for _, channels in sizes}) > 1
    if spelt and (before or []) != widths:
        patch.attributes["widths"] = widths
    return patch


def scale(wants: Demands, instance: LineInstance, sim: Simulation) -> Patch:
    """Keep the source's value of a score scale that is computed from the channels."""
    depth = instance.spaces.get("d")
    if depth is None or "scale" in instance.node.attributes or wants.resize(find(depth)) == depth.size:
        return Patch()
    return Patch({}, {"scale": depth.size[0] ** -0.5})
