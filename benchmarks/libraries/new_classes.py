"""Classes of transformers that came in 2026, each with a small config: subjects of their own.

Where a text config within another has a causal language model of its own, both are subjects. Classes
for tokens and images alone are left out, and eurobert, of which growc's own tests have a model.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from new_configs import IMAGE, LAST_WORD, SOUND, small
from new_rows import ROWS, Ids, Row
from subjects import Feeds, Subject, declare_torchvision
from torch import Tensor, nn

# fmt: off
ADDED = {
    "5.0.0": ("2026-01",
        "glm4_moe_lite glm_image lighton_ocr lw_detr minimax_m2 solar_open"),
    "5.4.0": ("2026-03",
        "chmv2 cohere_asr colmodernvbert eomt_dinov3 exaone_moe glm_moe_dsa glm_ocr higgs_audio_v2 "
        "higgs_audio_v2_tokenizer jina_embeddings_v3 mistral4 modernvbert moonshine_streaming "
        "nemotron_h olmo_hybrid pi0 pp_chart2table pp_doclayout_v2 pp_doclayout_v3 pp_lcnet "
        "pp_lcnet_v3 pp_ocrv5_mobile_det pp_ocrv5_mobile_rec pp_ocrv5_server_det pp_ocrv5_server_rec "
        "qwen3_5 qwen3_5_moe slanext timesfm2_5 uvdoc vibevoice_acoustic_tokenizer vibevoice_asr "
        "videomt voxtral_realtime youtu"),
    "5.8.0": ("2026-05",
        "deepseek_v4 deimv2 exaone4_5 gemma4 gemma4_assistant granite4_vision granite_speech_plus "
        "hy_v3 laguna minicpmv4_6 musicflamingo nomic_bert openai_privacy_filter pp_formulanet "
        "qianfan_ocr sam3_lite_text slanet"),
    "5.12.0": ("2026-06",
        "cohere2_moe cosmos3_omni deepseek_ocr2 deepseek_v32 diffusion_gemma gemma4_unified "
        "gemma4_unified_assistant glmga hrm_text hyperclovax mellum minimax_m3_vl pp_lcnet_v4 "
        "pp_ocrv6_medium_det pp_ocrv6_small_det pp_ocrv6_small_rec pp_ocrv6_tiny_rec rf_detr sapiens2"),
    "5.16.0": ("2026-08",
        "axk1 axk2 cohere_compass cosmos3_edge esmc esmfold2 granite_speech5 granite_swa "
        "granitemoe_swa hunyuan_vl inkling kimi_k25 mimo_v2_flash minicpm3 muse_glimmer "
        "muse_glimmer_assistant nemotron3_5_asr nemotron_asr_streaming qwen3_asr qwen4_exp radio "
        "step3p7 tipsv2 tipsv2_dpt videoprism xcodec2 zaya"),
    "5.20.0": ("2026-10",
        "bailing_hybrid canary embedding_gemma2 fun_asr_nano glm5_next gte hy_v4 "
        "hyperclovax_vision_v2 kimi_linear kolibri1 minicpmv4_7 molmo2 moss_transcribe_diarize "
        "muse_spark nemotron3_diarization nemotron_h_omni neomme neucodec pp_doclayout_v4 ultrabert "
        "unlimited_ocr vibevoice"),
    "5.23.0": ("2026-11",
        "beam dots3_note flint gradium_phonon_tts granite_docling inkling2 internlm3 iquestcoder jev "
        "lfm3 lfm3_vl minicpm_ocr mistral_large4 nemotron3_5_transcribe pocket_tts "
        "pocket_tts_audio_tokenizer ultravbert"),
}
# fmt: on
"""The folders of transformers/models that are in 5.23.0, by the first of these releases that has them, and
its month. 5.0.0rc1, of December 2025, has none of them. Seven that came after it in that month are left out,
by the dates of their documentation: ernie4_5_vl_moe, glmasr, jais2, pe_audio, pe_audio_video, pe_video and
pixio."""
NOT_RUN = {
    "EsmFold2Model": "its forward takes a dataclass of atoms, and no tensors alone",
    "Gemma4AssistantForCausalLM": "no config makes it in 5.23.0: all layers must be shared, which the text"
    " config refuses (`The set of layer types producing a cache is different`)",
    "Gemma4UnifiedAssistantForCausalLM": "as Gemma4AssistantForCausalLM",
    "HiggsAudioV2TokenizerModel": "requires torchaudio",
}
"""Classes that are no subjects, and why."""
EXPERTS = "batched_mm"
"""How experts are computed: without a loop over the data, and in float64 as well."""


def new_subjects() -> Iterator[Subject]:
    """The classes, by name; their family is the name without what the class is for."""
    for name, row in ROWS.items():
        yield Subject(
            "transformers", name, re.sub(r"_?(For[A-Z]|Model|Backbone).*", "", name), partial(made, row)
        )


def made(row: Row) -> tuple[nn.Module, Feeds]:
    """The class with a small config, and two inputs of its forward."""
    declare_torchvision()
    import transformers

    kind = getattr(transformers, row.kind)
    config = small(getattr(transformers, row.under) if row.under else kind.config_class, row.config)
    config._experts_implementation = EXPERTS
    torch.manual_seed(0)
    module = kind(config).eval()
    return module, (_feed(row, module, 1), _feed(row, module, 2))


def _feed(row: Row, module: nn.Module, seed: int) -> Mapping[str, Any]:
    draw = torch.Generator().manual_seed(seed)
    feed = {name: _drawn(given, draw) for name, given in row.feed.items()}
    return feed | _words(row.media, module, feed, draw) if row.media else feed


def _drawn(given: Any, draw: torch.Generator) -> Tensor:
    if isinstance(given, Ids):
        return torch.randint(3, LAST_WORD + 1, given, generator=draw)
    return torch.randn(given, generator=draw) if isinstance(given, tuple) else torch.tensor(given)


def _words(
    media: str, module: nn.Module, feed: Mapping[str, Any], draw: torch.Generator
) -> dict[str, Tensor]:
    """Two rows of words around as many places as the module has features of two images or sounds."""
    find = [getattr(part, media) for part in module.modules() if hasattr(part, media)][-1]
    taken = inspect.signature(find).parameters
    with torch.no_grad():
        output = find(**{name: value for name, value in feed.items() if name in taken})
    features = getattr(output, "pooler_output", output)
    features = output.deepstack_features[0][1] if features is None else features
    parts = [features] if isinstance(features, Tensor) else features
    count = sum(part.numel() // part.shape[-1] for part in parts) // 2
    token = SOUND if media == "get_audio_features" else IMAGE
    words = _drawn(Ids((2, count + 6)), draw)
    words[:, 3:-3] = token
    word_feed = {"input_ids": words}
    if "mm_token_type_ids" in inspect.signature(module.forward).parameters:
        word_feed["mm_token_type_ids"] = (words == token).long()
    return word_feed
