"""FLOPs beside torch.utils.flop_counter, forward and backward: where both agree, and where torch differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import pytest
import torch
import transformers
from models import Models, build
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import growc

SIZES: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
}
SIZES |= {"vocab_size": 40, "max_position_embeddings": 32}
IDS = {"input_ids": (3, 16)}

CLASSES: Mapping[str, tuple[Callable[[], Any], Mapping[str, tuple[int, ...]]]] = {
    "GPT-2": (
        lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=40, n_positions=32)
        ),
        IDS,
    ),
    "BERT": (lambda: transformers.BertModel(transformers.BertConfig(**SIZES)), IDS),
    "LLaMA with grouped queries": (
        lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=2)),
        IDS,
    ),
    "Mixtral": (
        lambda: transformers.MixtralForCausalLM(
            transformers.MixtralConfig(
                **SIZES,
                num_key_value_heads=2,
                num_local_experts=4,
                num_experts_per_tok=2,
                experts_implementation="batched_mm",
            )
        ),
        IDS,
    ),
    "T5": (
        lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(d_model=32, d_ff=48, d_kv=8, num_layers=2, num_heads=4, vocab_size=40)
        ),
        {"input_ids": (3, 16), "decoder_input_ids": (3, 9)},
    ),
    "ViT": (
        lambda: transformers.ViTForImageClassification(
            transformers.ViTConfig(**SIZES, image_size=16, patch_size=4)
        ),
        {"pixel_values": (3, 3, 16, 16)},
    ),
}


def by_torch(module: nn.Module, **inputs: Tensor) -> tuple[int, int]:
    """torch's counts for unfused products: forward, and backward from the sum of all outputs."""
    forward, backward = (FlopCounterMode(display=False) for _ in range(2))
    with sdpa_kernel(SDPBackend.MATH):
        with forward:
            made = module(**inputs)
        tensors = [made] if isinstance(made, Tensor) else [v for v in made.values() if isinstance(v, Tensor)]
        with backward:
            torch.stack([v.sum() for v in tensors]).sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


def drawn(shape: tuple[int, ...]) -> Tensor:
    return torch.randint(0, 40, shape) if len(shape) == 2 else torch.randn(shape)


def counted(module: nn.Module, sizes: Mapping[str, tuple[int, ...]], **options: Any) -> tuple[int, int]:
    """growc's counts: forward and backward."""
    found = growc.flops(module, sizes=sizes, **options)
    assert found.uncounted == ()
    return found.total_forward, found.total_backward


@pytest.mark.parametrize("name", CLASSES)
def test_classes_of_transformers_cost_what_torch_counts(name: str) -> None:
    make, sizes = CLASSES[name]
    module = make().eval()
    inputs = {key: drawn(shape) for key, shape in sizes.items()}
    assert counted(module, sizes) == by_torch(module, **inputs)


class Mixer(nn.Module):
    """Einsum over one, two and no axes, and between activations."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Parameter(torch.randn(8, 4, 6)), nn.Parameter(torch.randn(4, 6, 5))
        self.gain = nn.Parameter(torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        heads = torch.einsum("bsd,dhe->bshe", x, self.into)
        y = torch.einsum("bshe,heo->bso", heads.relu(), self.out)
        scores = torch.einsum("bso,bto->bst", torch.einsum("bso,o->bso", y, self.gain), y)
        return torch.einsum("bst,bto->bso", scores.softmax(-1), y)


class Grouped(nn.Module):
    """Grouped queries in one operator."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.out = nn.Linear(16, 16), nn.Linear(16, 8), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        queries, keys = (m(x).unflatten(-1, (-1, 4)).transpose(1, 2) for m in (self.query, self.key))
        made = nn.functional.scaled_dot_product_attention(queries, keys, keys, enable_gqa=True)
        return self.out(made.transpose(1, 2).flatten(2))


class Recurrent(nn.Module):
    """A recurrent layer, and what reads its steps."""

    def __init__(self, cell: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.cell = cell(5, 7, batch_first=True, **options)
        self.head = nn.Linear(7 * (1 + self.cell.bidirectional), 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0])


def images() -> nn.Module:
    """Convolutions with strides and margins, one of them transposed."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, (3, 1), dilation=2),
        nn.ConvTranspose2d(16, 4, 3, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 10),
    )


OWN: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "einsum": (Mixer, (2, 9, 8)),
    "attention": (Grouped, (2, 9, 16)),
    "convolutions": (images, (2, 3, 17, 16)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (2, 9, 16)),
}


@pytest.mark.parametrize("name", OWN)
def test_own_modules_cost_what_torch_counts(name: str) -> None:
    make, shape = OWN[name]
    module, x = make().eval(), torch.randn(shape)
    argument = next(iter(signature(module.forward).parameters))
    assert counted(module, {argument: shape}, example_inputs=x) == by_torch(module.train(), **{argument: x})


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama"])
@pytest.mark.parametrize("flavour", ["dynamo", "torchscript.anon"])
def test_a_file_costs_what_its_module_costs(models: Models, name: str, flavour: str) -> None:
    module = build(name).requires_grad_(True)
    names = ["input_ids", "attention_mask", "token_type_ids"][: module.forward.__code__.co_argcount - 1]
    inputs = {key: torch.ones(3, 16, dtype=torch.int64) for key in names}
    analysed = growc.inspect(models.path(name, flavour))
    sizes = {value.name: (3, 16) for value in analysed.graph.inputs}
    found = growc.flops(analysed, sizes=sizes)
    assert (found.total_forward, found.total_backward) == by_torch(module, **inputs)
    assert (found.unit, found.units) == ("token", 48)


def test_frozen_parameters_cost_no_gradient() -> None:
    make, sizes = CLASSES["GPT-2"]
    module = make().eval().requires_grad_(False)
    last = [*module.transformer.h[1].parameters(), *module.transformer.ln_f.parameters()]
    for parameter in last:
        parameter.requires_grad_(True)
    whole = growc.flops(module, sizes=sizes, trained=dict(module.named_parameters()))
    found = counted(module, sizes)
    assert found == by_torch(module, input_ids=drawn((3, 16)))
    assert found[0] == whole.total_forward
    assert found[1] < whole.total_backward


# ---------------------------------------------------------------------------- where torch counts otherwise


def test_torch_counts_kernels_of_groups_as_whole_ones_backward() -> None:
    groups, shape = 4, (2, 8, 16)
    layers = [nn.Conv1d(8, 8, 3), nn.Conv1d(8, 16, 3, groups=groups)]
    module, x = nn.Sequential(*layers).eval(), torch.randn(shape)
    forward, backward = counted(module, {"input": shape}, example_inputs=x)
    others, more = by_torch(module, input=x)
    kernel = 2 * 2 * 12 * 16 * 2 * 3  # a multiplication and an addition, samples, places, weights
    assert forward == others
    assert more - backward == (groups - 1) * kernel


@pytest.mark.filterwarnings("ignore:The tensor attributes", "ignore:TF32")
@pytest.mark.parametrize(("cell", "gates"), [(nn.LSTM, 4), (nn.GRU, 3)])
def test_torch_counts_no_gradient_of_the_first_state_of_a_recurrence(
    cell: type[nn.RNNBase], gates: int
) -> None:
    shape, layers, directions = (2, 6, 5), 2, 2
    module, x = Recurrent(cell, num_layers=layers, bidirectional=True).eval(), torch.randn(shape)
    forward, backward = counted(module, {"x": shape}, example_inputs=x)
    with torch.backends.mkldnn.flags(enabled=False):  # one operator, which torch does not count
        others, fewer = by_torch(module.train(), x=x)
    assert forward == others
    assert backward - fewer == layers * directions * 2 * 2 * gates * 7 * 7


def test_torch_counts_no_products_with_a_vector() -> None:
    module = Vector()
    x = torch.randn(2, 9, 8)
    assert counted(module, {"x": (2, 9, 8)}, example_inputs=x) == (2 * 2 * 9 * 8, 2 * 2 * 9 * 8)
    assert by_torch(module, x=x) == (0, 0)


class Vector(nn.Module):
    """A product with a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight
