"""Tensors that a class reads for other inputs than those that it was captured on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

import growc

IMAGE, START, END, VIDEO = 60, 61, 62, 63
WIDER = "widen hidden to 2 * hidden with neighbor copy"
MERGER = "model.visual.merger.mlp.2.weight"


@pytest.fixture(scope="module")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of words and pictures, of which growc finds inputs for words alone."""
    torch.manual_seed(0)
    turned = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10_000.0}
    text = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.Qwen2VLConfig(
        text_config={**text, "num_key_value_heads": 2, "vocab_size": 64, "rope_parameters": turned},
        vision_config={"depth": 1, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 3},
        image_token_id=IMAGE,
        vision_start_token_id=START,
        vision_end_token_id=END,
        video_token_id=VIDEO,
    )
    folder = tmp_path_factory.mktemp("pictured") / "m"
    transformers.Qwen2VLForConditionalGeneration(config).eval().save_pretrained(folder)
    return folder


def logits(folder: Path) -> Tensor:
    """Of a text with a picture."""
    model = transformers.Qwen2VLForConditionalGeneration.from_pretrained(folder).eval()
    ids = torch.tensor([[5, 6, START, IMAGE, IMAGE, IMAGE, IMAGE, END, 9]])
    pixels = torch.randn(16, 3 * 2 * 14 * 14, generator=torch.Generator().manual_seed(1))
    seen = {"pixel_values": pixels, "image_grid_thw": torch.tensor([[1, 4, 4]])}
    with torch.no_grad():
        made: Tensor = model(input_ids=ids, mm_token_type_ids=(ids == IMAGE).long(), **seen).logits
    return made


def test_a_stream_that_pictures_no_longer_fit_is_not_exact(pictured: Path, tmp_path: Path) -> None:
    wide = growc.apply(WIDER, pictured, tmp_path / "wide")
    [gap] = wide.plan.certificate.gaps
    assert MERGER.rpartition(".")[0] in gap.node
    assert "no input that was tried reads it" in gap.cause
    assert "--inputs" in gap.help
    with pytest.raises((RuntimeError, ValueError)):
        logits(tmp_path / "wide")


def test_growth_of_an_axis_that_nothing_else_reads_stays_exact(pictured: Path, tmp_path: Path) -> None:
    wide = growc.apply("widen ffn to 2 * ffn with neighbor copy", pictured, tmp_path / "wide")
    assert wide.plan.certificate.exact
    assert torch.allclose(logits(tmp_path / "wide"), logits(pictured), atol=1e-5)


@pytest.mark.soak
def test_a_tensor_that_grows_by_a_field_of_its_own_is_not_exact(pictured: Path, tmp_path: Path) -> None:
    decided = {"vision_config.hidden_size": 64}
    wide = growc.apply(WIDER, pictured, tmp_path / "wide", config=decided)
    assert MERGER.rpartition(".")[0] in wide.plan.certificate.gaps[0].node
    assert not torch.allclose(logits(tmp_path / "wide"), logits(pictured), atol=1e-2)


def test_a_tensor_of_a_field_that_the_class_takes_beside_another_alone_follows(tmp_path: Path) -> None:
    torch.manual_seed(0)
    own = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    config = transformers.Inkling2Config(
        text_config={
            **own,
            "vocab_size": 112,
            "unpadded_vocab_size": 112,
            "d_rel": 8,
            "head_dim": 16,
            "rel_extent": 16,
            "num_key_value_heads": 2,
            "moe_intermediate_size": 48,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "layer_types": ["hybrid_sliding", "hybrid"],
            "sliding_window_size": 6,
            "swa_head_dim": 16,
            "swa_num_attention_heads": 4,
            "swa_num_key_value_heads": 2,
            "max_position_embeddings": 64,
        },
        vision_config={
            **own,
            "intermediate_size": 128,
            "patch_size": 8,
            "projection_hidden_dim": 48,
            "text_hidden_size": 64,
        },
        image_token_id=100,
    )
    transformers.Inkling2ForConditionalGeneration(config).eval().save_pretrained(tmp_path / "m")
    wide = growc.apply("widen channels to 2 * channels with neighbor copy", tmp_path / "m", tmp_path / "wide")
    assert wide.plan.certificate.exact
    before, after = (read(tmp_path / name, "visual.proj_out.weight") for name in ("m", "wide"))
    assert torch.equal(after, before.repeat_interleave(2, dim=0))


def read(folder: Path, ending: str) -> Tensor:
    """The tensor of a directory whose name ends so."""
    tensors = load_file(folder / "model.safetensors")
    [found] = [tensor for name, tensor in tensors.items() if name.endswith(ending)]
    return found
