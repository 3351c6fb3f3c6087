"""The models that are measured, with random weights: made once, kept in a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers


def gpt2(path: Path) -> None:
    """GPT-2 124M as a directory."""
    torch.manual_seed(0)
    transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False)).save_pretrained(path)


def exported(path: Path, input_name: str, example: torch.Tensor) -> None:
    """A directory beside `path` as an ONNX file, its weights beside that: logits of one input."""
    model, directory = CLASSES[path.stem], made(path.parent, path.stem)

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model.from_pretrained(directory).eval()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.model(**{input_name: x}).logits
            return logits

    axes = {0: torch.export.Dim("batch")} | ({1: torch.export.Dim("time")} if example.ndim == 2 else {})
    options = {"dynamic_shapes": {"x": axes}, "external_data": True, "verbose": False}
    torch.onnx.export(Logits().eval(), (example,), path, **options)


def llama(path: Path) -> None:
    """1.1 billion weights in bfloat16."""
    config = transformers.LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        vocab_size=32000,
        dtype="bfloat16",
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(path)


def bert(path: Path) -> None:
    """BERT-base, with two classes."""
    transformers.BertForSequenceClassification(transformers.BertConfig()).save_pretrained(path)


def resnet(path: Path) -> None:
    """ResNet-50."""
    transformers.ResNetForImageClassification(transformers.ResNetConfig()).save_pretrained(path)


CLASSES: Mapping[str, Any] = {
    "gpt2": transformers.GPT2LMHeadModel,
    "bert": transformers.BertForSequenceClassification,
    "resnet": transformers.ResNetForImageClassification,
}
IDS = torch.arange(14).reshape(2, 7)
MODELS: Mapping[str, Callable[[Path], Any]] = {
    "gpt2": gpt2,
    "gpt2.onnx": lambda path: exported(path, "input_ids", IDS),
    "llama": llama,
    "bert": bert,
    "bert.onnx": lambda path: exported(path, "input_ids", IDS),
    "resnet": resnet,
    "resnet.onnx": lambda path: exported(path, "pixel_values", torch.randn(2, 3, 224, 224)),
}


def made(folder: Path, name: str) -> Path:
    """One of the models, made where it is not there yet."""
    path = folder / name
    if not path.exists():
        transformers.utils.logging.disable_progress_bar()
        MODELS[name](path)
    return path
