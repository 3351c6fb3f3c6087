"""Make the small models beside tiny-gpt.onnx in examples/models, each one file of less than 2 MB.

    python examples/make_tiny_models.py [--only NAME,...] [--out DIR]

    tiny-bert   a byte-level BERT with its tied masked-language head, trained to restore masked bytes
    tiny-llama  a byte-level LLaMA with grouped queries (RMSNorm, rotary, gated), trained to go on
    tiny-mixture  the same with eight experts in each layer, of which a token takes two, seeded, not trained
    tiny-t5     an encoder-decoder as T5 has it (RMSNorm, relative positions, tied head), seeded, not trained
    tiny-seed   a byte-level GPT-2 without layers: its table, its last norm and its head, seeded, not trained
    tiny-layer  the same with one layer, a template for it, seeded, not trained
    tiny-conv   a plain convolutional network with batch norms, seeded, not trained

The trained ones read what train_tiny_gpt.py reads. NAME.json says what each was made with; a trained model's
loss on the validation windows stands in it.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
import transformers
from make_models import draw_weights
from torch import nn
from train_tiny_gpt import corpus, schedule, validation_windows

SEED = 0
MASK, MASKED = 256, 0.15
"""The token that stands for a hidden byte, and how many bytes are hidden."""


class BertBytes(transformers.BertForMaskedLM):
    """Takes `input_ids` and `attention_mask`, returns logits."""

    def forward(self, input_ids, attention_mask):
        return super().forward(input_ids, attention_mask).logits


class LlamaBytes(transformers.LlamaForCausalLM):
    """Takes `input_ids`, returns logits."""

    def forward(self, input_ids):
        return super().forward(input_ids=input_ids, use_cache=False).logits


class MixtureBytes(transformers.MixtralForCausalLM):
    """Takes `input_ids`, returns logits."""

    def forward(self, input_ids):
        return super().forward(input_ids=input_ids, use_cache=False).logits


class Translator(transformers.T5ForConditionalGeneration):
    """Takes `input_ids` and `decoder_input_ids`, returns logits."""

    def forward(self, input_ids, decoder_input_ids):
        return (
            super().forward(input_ids=input_ids, decoder_input_ids=decoder_input_ids, use_cache=False).logits
        )


class Gpt2Bytes(transformers.GPT2LMHeadModel):
    """Takes `input_ids`, returns logits."""

    def forward(self, input_ids):
        return super().forward(input_ids, use_cache=False).logits


def gpt2(layers: int) -> nn.Module:
    """Width 32, four heads."""
    return Gpt2Bytes(
        transformers.GPT2Config(
            vocab_size=256, n_embd=32, n_layer=layers, n_head=4, n_positions=64, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0,
        )
    )  # fmt: skip


def bert() -> nn.Module:
    """Three layers, width 64, four heads."""
    return BertBytes(
        transformers.BertConfig(
            vocab_size=257, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256,
            max_position_embeddings=128, type_vocab_size=1, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip


def llama() -> nn.Module:
    """Three layers, width 64, four heads in two groups."""
    return LlamaBytes(
        transformers.LlamaConfig(
            vocab_size=256, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=160, max_position_embeddings=128, tie_word_embeddings=True, bos_token_id=0,
            eos_token_id=0,
        )
    )  # fmt: skip


def mixture() -> nn.Module:
    """Two layers, width 48, eight experts of 32 with two for each token."""
    return MixtureBytes(
        transformers.MixtralConfig(
            vocab_size=256, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=32, max_position_embeddings=128, tie_word_embeddings=True, bos_token_id=0,
            eos_token_id=0, num_local_experts=8, num_experts_per_tok=2, experts_implementation="batched_mm",
        )
    )  # fmt: skip


def t5() -> nn.Module:
    """Two layers on either side, width 32, four heads of 8."""
    config = transformers.T5Config(
        vocab_size=128, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_decoder_layers=2, num_heads=4,
        relative_attention_num_buckets=8, relative_attention_max_distance=16, dropout_rate=0.0,
        tie_word_embeddings=True,
    )  # fmt: skip
    return Translator(config)


def conv() -> nn.Module:
    """Three convolutions of 8, 12 and 16 channels with batch norms, a mean over the image, a classifier."""
    parts: list[nn.Module] = []
    for before, after in ((3, 8), (8, 12), (12, 16)):
        parts += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


BUILD: dict[str, Callable[[], nn.Module]] = {
    "tiny-bert": bert,
    "tiny-llama": llama,
    "tiny-mixture": mixture,
    "tiny-t5": t5,
    "tiny-conv": conv,
    "tiny-seed": partial(gpt2, 0),
    "tiny-layer": partial(gpt2, 1),
}


@dataclass(frozen=True)
class Training:
    """Bytes in a window, windows in a step, the highest learning rate, steps.

    A masked model of this size learns to look at its neighbours where there are few of them.
    """

    context: int
    batch: int
    rate: float
    steps: int


TRAINED = {"tiny-bert": Training(24, 64, 2e-3, 6000), "tiny-llama": Training(96, 24, 3e-3, 2500)}


# ------------------------------------------------------------------------------------------------ training


def hidden_bytes(window: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A window with MASK in the place of some bytes, and which they are: the same for the same seed."""
    hidden = np.random.default_rng(seed).random(window.shape) < MASKED
    return np.where(hidden, MASK, window), hidden


def task(name: str, window: np.ndarray, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """The inputs of a model, the targets, and where it is judged, from windows of bytes."""
    if name == "tiny-bert":
        ids, hidden = hidden_bytes(window[:, :-1], seed)
        return {"input_ids": ids, "attention_mask": np.ones_like(ids)}, window[:, :-1], hidden
    return {"input_ids": window[:, :-1]}, window[:, 1:], np.ones(window[:, 1:].shape, bool)


def loss_of(model: nn.Module, name: str, window: np.ndarray, seed: int) -> torch.Tensor:
    """Mean cross-entropy in nats where the model is judged."""
    inputs, targets, judged = task(name, window, seed)
    logits = model(*map(torch.from_numpy, inputs.values()))
    where = torch.from_numpy(judged)
    return F.cross_entropy(logits[where], torch.from_numpy(targets)[where])


def validation_loss(model: nn.Module, name: str) -> float:
    """Nats per byte on the validation windows."""
    windows = enumerate(validation_windows(length=TRAINED[name].context + 1))
    with torch.no_grad():
        return float(np.mean([loss_of(model, name, window, i).item() for i, window in windows]))


def train(model: nn.Module, name: str) -> None:
    """AdamW on random windows, all drawn from SEED."""
    data, how = corpus(validation=False), TRAINED[name]
    optimizer = torch.optim.AdamW(model.parameters(), lr=how.rate, betas=(0.9, 0.95), weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule(step, how.steps))
    rng, start = np.random.default_rng(SEED), time.perf_counter()
    for step in range(how.steps):
        rows = rng.integers(0, len(data) - how.context - 1, how.batch)
        window = data[rows[:, None] + np.arange(how.context + 1)].astype(np.int64)
        loss = loss_of(model, name, window, how.batch * step)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 100 == 0 or step == how.steps - 1:
            print(f"step {step:5d}  loss {loss.item():.4f}  {time.perf_counter() - start:6.0f} s", flush=True)


# --------------------------------------------------------------------------------------------------- files


def example_inputs(name: str) -> dict[str, torch.Tensor]:
    """Inputs that a model is exported with."""
    ids = torch.randint(0, 128, (2, 12), generator=torch.Generator().manual_seed(SEED))
    match name:
        case "tiny-conv":
            return {"image": torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(SEED))}
        case "tiny-t5":
            return {"input_ids": ids, "decoder_input_ids": ids[:, :9]}
        case "tiny-bert":
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        case _:
            return {"input_ids": ids}


def export(model: nn.Module, name: str, path: Path) -> None:
    """Write one ONNX file; batch and length are dynamic, of an image the batch."""
    inputs = example_inputs(name)
    axes: dict[str, dict[int, Any]] = {
        i: {0: "batch"} if v.ndim == 4 else {0: "batch", 1: f"{i}_length"} for i, v in inputs.items()
    }
    if "attention_mask" in axes:
        axes["attention_mask"] = axes["input_ids"]
    torch.onnx.export(
        model, tuple(inputs.values()), path, dynamo=True, opset_version=20, external_data=False,
        input_names=[*inputs], output_names=["logits"], dynamic_shapes=tuple(axes.values()), verbose=False,
    )  # fmt: skip
    proto = onnx.load(path)
    for item in (*proto.graph.node, *proto.graph.value_info):  # stack traces name files of this machine
        kept = [entry for entry in item.metadata_props if "stack_trace" not in entry.key]
        del item.metadata_props[:]
        item.metadata_props.extend(kept)
    onnx.save(proto, path)


def make(name: str, out: Path) -> dict[str, Any]:
    """Build one model, train or draw its weights, write it; what it was made with."""
    torch.manual_seed(SEED)
    model = BUILD[name]()
    record: dict[str, Any] = {"seed": SEED, "parameters": sum(p.numel() for p in model.parameters())}
    if name in TRAINED:
        train(model, name)
        loss = round(validation_loss(model.eval(), name), 4)
        record |= {"validation nats per byte": loss, **asdict(TRAINED[name])}
    else:
        model.eval().requires_grad_(False)
        generator = torch.Generator().manual_seed(SEED)
        draw_weights(model, generator)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.copy_(0.2 * torch.randn(module.num_features, generator=generator))
                module.running_var.copy_(0.5 + torch.rand(module.num_features, generator=generator))
    export(model.eval(), name, out / f"{name}.onnx")
    return record | {"torch": torch.__version__, "transformers": transformers.__version__}


def main() -> None:
    """Make what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="names, separated by commas; all by default")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "models")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    for name in args.only.split(",") if args.only else BUILD:
        record = make(name, args.out)
        (args.out / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
        print(name, json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
