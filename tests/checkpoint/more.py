"""Classes of transformers that are not in the zoo, as entries of it for the table of checkpoints alone."""

from __future__ import annotations

from typing import Any

from facts import attention
from feeds import image, sound, text, translation
from models_decoders import NO_CACHE, special
from models_encoders import POST, STARTS
from registry import from_transformers

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 256,
}
IMAGE: dict[str, Any] = {"image_size": 32, "patch_size": 8, "num_labels": 10}
PAIR: dict[str, Any] = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 256,
    "decoder_ffn_dim": 256,
    "max_position_embeddings": 64,
}


AUDIO: dict[str, Any] = SIZES | {
    "conv_dim": (32, 32, 32),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 3),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "vocab_size": 32,
}


def decoder(name: str, kind: str, **config: Any) -> None:
    """A causal language model with the norms before its branches."""
    from_transformers(name, attention(), kind, text(), fixed=NO_CACHE, **(special() | config))


def encoder(name: str, kind: str, **config: Any) -> None:
    """A masked language model with the norms behind its sums."""
    given = special() | SIZES | {"max_position_embeddings": 66} | config
    from_transformers(name, attention(**POST), kind, text(), **given)


def vision(name: str, kind: str, **config: Any) -> None:
    """An image classifier with the norms before its branches."""
    from_transformers(name, attention(vocab=()), kind, image(), **(IMAGE | SIZES | config))


def pair(name: str, kind: str, **config: Any) -> None:
    """An encoder and a decoder with the norms before their branches."""
    given = special() | PAIR | STARTS | config
    from_transformers(name, attention(), kind, translation(), fixed=NO_CACHE, **given)


def audio(name: str, kind: str, heads: tuple[int, ...] = (4,), **config: Any) -> None:
    """A recogniser of speech with the norms behind its sums, or before its branches."""
    way = {} if config.get("do_stable_layer_norm") else POST
    facts = attention(heads=heads, vocab=(), traits=("convolutional stem", "weight norm"), **way)
    from_transformers(name, facts, kind, sound(), **(AUDIO | config))


decoder("biogpt", "BioGptForCausalLM", **SIZES, max_position_embeddings=64)
decoder("helium", "HeliumForCausalLM", **SIZES, num_key_value_heads=4, head_dim=16)
decoder("ministral", "MinistralForCausalLM", **SIZES, num_key_value_heads=4, head_dim=16)
decoder("seed_oss", "SeedOssForCausalLM", **SIZES, num_key_value_heads=4, head_dim=16)
decoder("arcee", "ArceeForCausalLM", **SIZES, num_key_value_heads=4)
decoder("exaone4", "Exaone4ForCausalLM", **SIZES, num_key_value_heads=4)
decoder("olmo3", "Olmo3ForCausalLM", **SIZES, num_key_value_heads=4)
encoder("camembert", "CamembertForMaskedLM", pad_token_id=1)
encoder("ernie", "ErnieForMaskedLM")
encoder("rembert", "RemBertForMaskedLM", input_embedding_size=32, output_embedding_size=48)
encoder("layoutlm", "LayoutLMForMaskedLM")
encoder("xlm_roberta", "XLMRobertaForMaskedLM", pad_token_id=1)
pair("mbart", "MBartForConditionalGeneration")
pair("m2m_100", "M2M100ForConditionalGeneration")
vision("deit", "DeiTForImageClassification")
vision("vit_msn", "ViTMSNForImageClassification")
vision("dinov2_registers", "Dinov2WithRegistersForImageClassification", mlp_ratio=4)
vision("ijepa", "IJepaForImageClassification")
vision("yolos", "YolosForObjectDetection", image_size=[32, 32], num_detection_tokens=4)
audio("hubert", "HubertForCTC")
audio("hubert_stable", "HubertForCTC", do_stable_layer_norm=True, feat_extract_norm="layer")
audio("wavlm", "WavLMForCTC", heads=())  # they are cut from the stream, and widen with it
audio("data2vec_audio", "Data2VecAudioForCTC", conv_pos_kernel_size=7, num_conv_pos_embeddings=2)
audio("unispeech", "UniSpeechForCTC", num_ctc_classes=32)
audio("unispeech_sat", "UniSpeechSatForCTC")
audio("sew", "SEWForCTC", squeeze_factor=2)
