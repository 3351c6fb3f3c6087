"""Streams that a gate fuses take the name `ffn` from no feed-forward network: GLPN's decoder has some."""

from __future__ import annotations

import torch
from transformers import GLPNConfig, GLPNForDepthEstimation

import growc


def test_a_feed_forward_network_keeps_its_name_beside_gates():
    sizes = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_attention_heads": [1, 2], "mlp_ratios": [4, 4]}
    stages = {"num_encoder_blocks": 2, "sr_ratios": [2, 1], "patch_sizes": [7, 3], "strides": [4, 2]}
    module = GLPNForDepthEstimation(GLPNConfig(**sizes, **stages, decoder_hidden_size=8)).eval()
    given = {"pixel_values": torch.randn(2, 3, 64, 64)}
    found = growc.inspect(module, example_inputs=given).roles.axes["ffn"]
    assert sorted(space.size[0] for axis in found for space in axis.spaces) == [32, 64]
