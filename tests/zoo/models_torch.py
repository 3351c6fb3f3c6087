"""Hand-written modules, with habits that no library's models have."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import torch
from facts import Facts, attention
from feeds import image, numbers, text
from registry import from_torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, HEADS, DEPTH, VOCAB = 64, 4, 16, 128


def causal(scores: Tensor) -> Tensor:
    """Scores with what lies ahead hidden."""
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(ahead, torch.finfo(scores.dtype).min)


class RootMeanSquare(nn.Module):
    """A norm whose gain comes first."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-2)


class Mixer(nn.Module):
    """Causal attention on one packed projection: `unpack` cuts it into queries, keys and values."""

    def __init__(self, packed: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, packed)
        self.out = nn.Linear(HEADS * DEPTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.unpack(self.qkv(x))
        scores = self.scores(q @ k.transpose(-1, -2) / math.sqrt(DEPTH))
        mixed = causal(scores).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))

    def unpack(self, packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        raise NotImplementedError

    def scores(self, scores: Tensor) -> Tensor:
        return scores


class SlicedMultiQuery(Mixer):
    """One key/value head, cut off the end of the projection and broadcast over all queries."""

    def __init__(self) -> None:
        super().__init__((HEADS + 2) * DEPTH)

    def unpack(self, packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q = packed[..., : HEADS * DEPTH].unflatten(-1, (HEADS, DEPTH)).transpose(1, 2)
        return q, packed[:, None, :, -2 * DEPTH : -DEPTH], packed[:, None, :, -DEPTH:]


class PackedByGroup(Mixer):
    """Two groups, each with its queries, its key and its value beside one another; scores are capped."""

    def __init__(self) -> None:
        super().__init__(2 * (HEADS // 2 + 2) * DEPTH)

    def unpack(self, packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        groups = packed.unflatten(-1, (2, HEADS // 2 + 2, DEPTH)).permute(0, 2, 3, 1, 4)
        q, k, v = groups.split([HEADS // 2, 1, 1], dim=2)
        return q, k, v

    def scores(self, scores: Tensor) -> Tensor:
        return 5.0 * torch.tanh(scores / 5.0)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.unpack(self.qkv(x))
        scores = self.scores(q @ k.transpose(-1, -2) / math.sqrt(DEPTH))
        mixed = causal(scores).softmax(-1) @ v
        return self.out(mixed.flatten(1, 2).transpose(1, 2).flatten(2))


class Sloped(Mixer):
    """Heads in a 5-d reshape, and a slope for each of them on the distance."""

    def __init__(self) -> None:
        super().__init__(3 * HEADS * DEPTH)
        self.register_buffer("slopes", 2.0 ** -torch.arange(1, HEADS + 1))

    def unpack(self, packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (
            packed.view(packed.shape[0], packed.shape[1], 3, HEADS, DEPTH).permute(2, 0, 3, 1, 4).unbind(0)
        )
        return q, k, v

    def scores(self, scores: Tensor) -> Tensor:
        places = torch.arange(scores.shape[-1])
        return scores + self.slopes[:, None, None] * (places[None, :] - places[:, None])


class LinearAttention(nn.Module):
    """Attention without a softmax: positive features, and sums of their products with the values."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, HEADS * DEPTH) for _ in range(3))
        self.out = nn.Linear(HEADS * DEPTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (m(x).unflatten(-1, (HEADS, DEPTH)) for m in (self.q, self.k, self.v))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = torch.einsum("bshd,bshe->bhde", k, v)
        scale = torch.einsum("bshd,bhd->bsh", q, k.sum(1))
        return self.out((torch.einsum("bshd,bhde->bshe", q, state) / scale[..., None]).flatten(2))


class Gated(nn.Module):
    """Gate and values in one projection, gate first."""

    def __init__(self, width: int = WIDTH, ffn: int = 96) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * ffn), nn.Linear(ffn, width)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.up(x).chunk(2, -1)
        return self.down(F.silu(gate) * value)


class SeparateExperts(nn.Module):
    """Four experts, all computed, weighted by a router, and one more that every token passes."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(Gated(ffn=48) for _ in range(4))
        self.shared = Gated(ffn=64)

    def forward(self, x: Tensor) -> Tensor:
        share = self.router(x).softmax(-1)
        routed = [share[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts)]
        return sum(routed, self.shared(x))


class StackedExperts(nn.Module):
    """Four experts as tensors with an axis of experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4)
        self.up = nn.Parameter(torch.empty(4, WIDTH, 48))
        self.down = nn.Parameter(torch.empty(4, 48, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        share = self.router(x).softmax(-1)
        inner = F.gelu(torch.einsum("bsh,ehf->bsef", x, self.up))
        return torch.einsum("bsef,efh,bse->bsh", inner, self.down, share)


class Language(nn.Module):
    """Two blocks between an embedding and a head; parallel: both branches read one norm."""

    def __init__(
        self, mixer: type[nn.Module], ffn: type[nn.Module], norm: type[nn.Module], parallel: bool
    ) -> None:
        super().__init__()
        self.parallel = parallel
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.mixers = nn.ModuleList(mixer() for _ in range(2))
        self.ffns = nn.ModuleList(ffn() for _ in range(2))
        self.norms = nn.ModuleList(norm(WIDTH) for _ in range(4))
        self.last, self.head = norm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        for i, (mixer, ffn) in enumerate(zip(self.mixers, self.ffns, strict=True)):
            normed = self.norms[2 * i](x)
            if self.parallel:
                x = x + mixer(normed) + ffn(normed)
            else:
                x = x + mixer(normed)
                x = x + ffn(self.norms[2 * i + 1](x))
        return self.head(self.last(x))


class Plain(nn.Sequential):
    """Two layers with a ReLU between them."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, 160), nn.ReLU(), nn.Linear(160, WIDTH))


def language(
    name: str,
    facts: Facts,
    mixer: type[nn.Module],
    ffn: type[nn.Module],
    norm: type[nn.Module] = nn.LayerNorm,
    parallel: bool = False,
) -> None:
    """Add a language model of these parts."""
    known = replace(facts, layers=(2,))
    from_torch(name, known, lambda: Language(mixer, ffn, norm, parallel), text(masked=False), ("logits",))


language(
    "own_multi_query",
    attention(kv_heads=(1,), ffn=(160,), traits=("multi-query", "packed by part", "parallel residual")),
    SlicedMultiQuery,
    Plain,
    parallel=True,
)
language(
    "own_grouped",
    attention(kv_heads=(2,), ffn=(96,), norm="rms", traits=("packed by group", "packed gate", "soft caps")),
    PackedByGroup,
    Gated,
    RootMeanSquare,
)
language("own_alibi", attention(ffn=(160,), traits=("packed by part", "ALiBi")), Sloped, Plain)
language(
    "own_linear_attention",
    attention(heads=(), head_dim=(), kv_heads=(), ffn=(160,), traits=("linear attention",)),
    LinearAttention,
    Plain,
)
language(
    "own_experts",
    attention(ffn=(48, 64), norm="rms", traits=("experts separate", "shared expert")),
    Sloped,
    SeparateExperts,
    RootMeanSquare,
)
language("own_stacked_experts", attention(ffn=(48,), traits=("experts stacked",)), Sloped, StackedExperts)


class Encoder(nn.Module):
    """torch's own encoder, which packs queries, keys and values by part."""

    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Linear(20, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 256, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.inp(x)))


class MlpMixer(nn.Module):
    """Patches mixed across places, then across channels."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, 8)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))
        self.places = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(2)
        )
        self.channels = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 160), nn.GELU(), nn.Linear(160, WIDTH)) for _ in range(2)
        )
        self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        for i, (places, channels) in enumerate(zip(self.places, self.channels, strict=True)):
            x = x + places(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * i + 1](x))
        return self.head(self.last(x).mean(1))


class Tagger(nn.Module):
    """An embedding, a recurrent network both ways, and a classifier of its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 32)
        self.rnn = nn.LSTM(32, 48, batch_first=True, bidirectional=True)
        self.inner, self.head = nn.Linear(96, 64), nn.Linear(64, 5)

    def forward(self, input_ids: Tensor) -> Tensor:
        states, _ = self.rnn(self.embed(input_ids))
        return self.head(torch.tanh(self.inner(states.mean(1))))


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers with ReLUs between them."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


from_torch(
    "torch_encoder",
    attention(vocab=(), layers=(4,), stream="post", traits=("packed by part",)),
    Encoder,
    numbers(20, sequence=True),
)
from_torch(
    "own_mlp_mixer",
    Facts(hidden=(64,), ffn=(160,), layers=(2,), traits=("mixes places",)),
    MlpMixer,
    image("x"),
)
from_torch(
    "own_lstm",
    Facts(ffn=(64,), vocab=(128,), norm="none", stream="none", traits=("recurrent",)),
    Tagger,
    text(masked=False),
)
from_torch(
    "mlp",
    Facts(ffn=(64,), layers=(3,), norm="none", stream="none", note="every width is 64"),
    lambda: perceptron(64, 64, 64, 64, 10),
    numbers(64),
)
