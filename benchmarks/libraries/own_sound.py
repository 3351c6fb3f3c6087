"""Codecs, vocoders, and models of speech: snac, encodec, vocos and conformer."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from own_row import Made, Noise, Row, Tokens

CHANNELS, BOTH = ("channels",), ("ffn", "heads")
LATENT = {"z": Noise((2, 32, 12))}
WAVE = {"x": Noise((2, 1, 512))}
PLAIN_SNAC = {"attn_window_size": None}
SEANET = {"dimension": 32, "n_filters": 8, "ratios": [4, 2], "norm": "weight_norm"}
MELS = {"input_channels": 20}

TABLE: tuple[tuple[str, str, str, tuple[str, ...], Made, dict[str, Any]], ...] = (
    ("snac", "snac-encoder", "snac", CHANNELS,
     Made("snac.layers:Encoder", {"d_model": 16, "strides": [2, 4], **PLAIN_SNAC}), WAVE),
    ("snac", "snac-encoder-depthwise", "snac", CHANNELS,
     Made("snac.layers:Encoder", {"d_model": 16, "strides": [2, 4], "depthwise": True, **PLAIN_SNAC}), WAVE),
    ("snac", "snac-encoder-attention", "snac", CHANNELS,
     Made("snac.layers:Encoder", {"d_model": 32, "strides": [2, 4], "attn_window_size": 8}), WAVE),
    ("snac", "snac-decoder", "snac", CHANNELS,
     Made("snac.layers:Decoder", {"input_channel": 32, "channels": 64, "rates": [4, 2], **PLAIN_SNAC}),
     {"x": Noise((2, 32, 16))}),
    ("snac", "snac-decoder-depthwise", "snac", CHANNELS,
     Made("snac.layers:Decoder", {"input_channel": 32, "channels": 64, "rates": [4, 2], "depthwise": True,
                                  **PLAIN_SNAC}),
     {"x": Noise((2, 32, 16))}),
    ("snac", "snac-decoder-attention", "snac", CHANNELS,
     Made("snac.layers:Decoder", {"input_channel": 32, "channels": 128, "rates": [4, 2],
                                  "attn_window_size": 8}),
     {"x": Noise((2, 32, 16))}),
    ("snac", "snac", "snac", CHANNELS,
     Made("snac:SNAC", {"encoder_dim": 16, "encoder_rates": [2, 4], "decoder_dim": 64,
                        "decoder_rates": [4, 2], "codebook_size": 64, "vq_strides": [2, 1],
                        "noise": False, **PLAIN_SNAC}),
     {"audio_data": Noise((2, 1, 512))}),
    ("encodec", "seanet-encoder", "encodec", CHANNELS,
     Made("encodec.modules:SEANetEncoder", {**SEANET, "lstm": 0}), WAVE),
    ("encodec", "seanet-encoder-lstm", "encodec", CHANNELS,
     Made("encodec.modules:SEANetEncoder", {**SEANET, "lstm": 1, "causal": True}), WAVE),
    ("encodec", "seanet-encoder-true-skip", "encodec", CHANNELS,
     Made("encodec.modules:SEANetEncoder", {**SEANET, "lstm": 0, "norm": "time_group_norm",
                                            "n_residual_layers": 2, "true_skip": True}), WAVE),
    ("encodec", "seanet-decoder", "encodec", CHANNELS,
     Made("encodec.modules:SEANetDecoder", {**SEANET, "lstm": 0}), LATENT),
    ("encodec", "seanet-decoder-lstm", "encodec", CHANNELS,
     Made("encodec.modules:SEANetDecoder", {**SEANET, "lstm": 1, "causal": True}), LATENT),
    ("encodec", "encodec-language-model", "encodec", BOTH,
     Made("encodec.model:LMModel", {"n_q": 2, "card": 64, "dim": 64, "num_heads": 4, "num_layers": 2}),
     {"indices": Tokens((2, 2, 16), 64)}),
    ("encodec", "encodec", "encodec", CHANNELS,
     Made("encodec.model:EncodecModel", {
         "encoder": Made("encodec.modules:SEANetEncoder", SEANET),
         "decoder": Made("encodec.modules:SEANetDecoder", SEANET),
         "quantizer": Made("encodec.quantization:ResidualVectorQuantizer",
                           {"dimension": 32, "n_q": 2, "bins": 64, "kmeans_init": False}),
         "target_bandwidths": [1.5], "sample_rate": 800, "channels": 1, "normalize": True,
     }), WAVE),
    ("vocos", "vocos-backbone", "vocos", ("ffn",),
     Made("vocos.models:VocosBackbone", {**MELS, "dim": 48, "intermediate_dim": 96, "num_layers": 2}),
     {"x": Noise((2, 20, 16))}),
    ("vocos", "vocos-backbone-conditioned", "vocos", ("ffn",),
     Made("vocos.models:VocosBackbone", {**MELS, "dim": 48, "intermediate_dim": 96, "num_layers": 2,
                                         "adanorm_num_embeddings": 4}),
     {"x": Noise((2, 20, 16)), "bandwidth_id": Tokens((1,), 4)}),
    ("vocos", "vocos-resnet", "vocos", CHANNELS,
     Made("vocos.models:VocosResNetBackbone", {**MELS, "dim": 48, "num_blocks": 2}),
     {"x": Noise((2, 20, 16))}),
    ("vocos", "vocos-waveform", "vocos", CHANNELS,
     Made("torch.nn:Sequential", parts=(
         Made("vocos.models:VocosBackbone", {**MELS, "dim": 48, "intermediate_dim": 96, "num_layers": 2}),
         Made("vocos.heads:ISTFTHead", {"dim": 48, "n_fft": 32, "hop_length": 8}),
     )), {"input": Noise((2, 20, 16))}),
    ("conformer", "conformer", "speech", CHANNELS,
     Made("conformer:Conformer", {"dim": 48, "depth": 2, "dim_head": 12, "heads": 4, "ff_mult": 2,
                                  "conv_kernel_size": 7}), {"x": Noise((2, 24, 48))}),
    ("conformer", "conformer-causal", "speech", CHANNELS,
     Made("conformer:Conformer", {"dim": 48, "depth": 2, "dim_head": 12, "heads": 4, "ff_mult": 2,
                                  "conv_kernel_size": 7, "conv_causal": True}), {"x": Noise((2, 24, 48))}),
    ("conformer", "conformer-convolution", "speech", CHANNELS,
     Made("conformer.conformer:ConformerConvModule", {"dim": 48, "kernel_size": 7}),
     {"x": Noise((2, 24, 48))}),
)  # fmt: skip
"""A library, a name, a family, axes, the model, its inputs."""


def import_codecs() -> None:
    """Import encodec and vocos without torchaudio: they need it for files of sound and for losses."""
    names = ("torchaudio", "torchaudio.functional", "torchaudio.functional.functional")
    absent: dict[str, Any] = {name: ModuleType(name) for name in names}
    absent[names[-1]]._hz_to_mel = absent[names[-1]]._mel_to_hz = None
    sys.modules.update(absent)
    for name in ("encodec", "vocos"):
        import_module(name)
    for name in names:
        del sys.modules[name]


ROWS = tuple(Row(*row, import_codecs) for row in TABLE)
