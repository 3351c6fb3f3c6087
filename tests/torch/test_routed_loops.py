"""Loops over the experts that some token chose: captured over all of them, and refused where that is more.

In every case some expert is chosen by no token.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from growc import api
from growc.dialects.torch.capture.export import export, run
from growc.errors.diagnostic import GrowError
from growc.render.inspection import inspect_data, inspect_lines

WIDTH, FFN, EXPERTS, VOCAB = 8, 12, 5, 16


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, FFN), nn.Linear(FFN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)))


class Experts(nn.Module):
    """Experts by name; each works on the tokens that chose it, if there are any."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleDict({f"expert_{k}": Expert() for k in range(EXPERTS)})

    def mask(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        shares, chosen = F.softmax(self.router(rows), -1).topk(2, -1)
        return shares, F.one_hot(chosen, EXPERTS).permute(2, 1, 0)

    def start(self) -> None:
        """Before the loop."""

    def body(self, out: Tensor, rows: Tensor, shares: Tensor, mask: Tensor, number: Tensor) -> Tensor:
        place, token = torch.where(mask[number].squeeze(0))
        made = self.experts[f"expert_{number[0]}"](rows[None, token].reshape(-1, WIDTH))
        out.index_add_(0, token, made * shares[token, place, None])
        return out

    def end(self, out: Tensor) -> Tensor:
        return out

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, WIDTH)
        shares, mask = self.mask(rows)
        out = torch.zeros_like(rows)
        self.start()
        for number in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
            out = self.body(out, rows, shares, mask, number)
        return self.end(out).reshape(x.shape)


class Language(nn.Module):
    def __init__(self, kind: type[Experts] = Experts) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(3))
        self.experts = nn.ModuleList(kind() for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for norm, experts in zip(self.norms, self.experts, strict=False):
            x = x + experts(norm(x).cumsum(1))
        return self.head(self.norms[-1](x))


TOKENS = torch.tensor([[3, 1, 4], [1, 5, 9]])


def drawn(kind: type[Experts] = Experts) -> Language:
    """Random gains and biases; no token chooses the second expert."""
    torch.manual_seed(3)
    model = Language(kind).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.add_(0.3 * torch.randn(parameter.shape))
    for experts in model.experts:
        experts.router.bias[1] = -50
    return model


@pytest.mark.sampled(9)
@pytest.mark.parametrize("tokens", [TOKENS, torch.arange(10).reshape(2, 5), torch.tensor([[7], [7]])])
def test_experts_that_no_token_chose_add_nothing(tokens):
    model = drawn()
    captured = export(model, (TOKENS,))
    made = run(captured, model.state_dict().__getitem__, (tokens,))
    torch.testing.assert_close(made, model(tokens), rtol=0, atol=1e-6)
    seen: list[Tensor] = []
    for experts in model.experts:
        experts.experts["expert_1"].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model(tokens)
    assert not seen


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "recipe",
    [
        "widen hidden to 2 * hidden with cyclic copy\nwiden ffn to 3 * ffn / 2 with uniform copy",
        "stack layers to 4 by last with zero outputs",
        "reorder hidden by random seed 2",
        "reorder experts by random seed 4",
    ],
)
def test_routed_experts_grow_exactly(recipe):
    model = drawn()
    grown = api.grow(model, recipe, TOKENS, check=False)
    for tokens in (TOKENS, torch.arange(10).reshape(2, 5)):
        torch.testing.assert_close(grown(tokens), model(tokens), rtol=0, atol=1e-5)


def test_an_expert_that_no_token_chose_leaves_without_a_trace():
    model = drawn()
    for experts in model.experts:
        experts.router.bias[EXPERTS - 1] = -50
    smaller = api.grow(model, f"subclone experts to {EXPERTS - 1} by first", TOKENS, check=False)
    names = [name for name, _ in smaller.named_parameters()]
    assert not any(f"expert_{EXPERTS - 1}" in name for name in names)
    assert any(f"expert_{EXPERTS - 2}" in name for name in names)
    for tokens in (TOKENS, torch.arange(10).reshape(2, 5)):
        torch.testing.assert_close(smaller(tokens), model(tokens), rtol=0, atol=1e-5)


def test_inspect_says_that_they_are_looped_over():
    found = api.inspect(drawn(), example_inputs=TOKENS)
    assert inspect_data(found)["experts"] == ["looped over"]
    assert "experts 5 2 spaces, looped over" in [" ".join(line.split()) for line in inspect_lines(found)]


def test_a_plan_says_over_what_its_loops_run():
    done = api.compile(api.recipe("widen ffn to 2 * ffn with cyclic copy"), drawn(), example_inputs=TOKENS)
    [note] = [note for note in done.plan.notes if "loop" in note]
    assert note.startswith("a loop over what is not zero runs over all of 5, at test_routed_loops.py:")
    assert done.plan.certificate.exact


class Biased(Experts):
    """Every expert that is chosen adds a bias to all tokens."""

    def body(self, out, rows, shares, mask, number):
        return super().body(out, rows, shares, mask, number) + self.experts[f"expert_{number[0]}"].down.bias


class Counting(Experts):
    """The mean over experts that are chosen: no tensor says how many there are."""

    def start(self):
        self.count = 0

    def body(self, *given):
        self.count += 1
        return super().body(*given)

    def end(self, out):
        return out / max(self.count, 1)


class First(Counting):
    """The first expert that is chosen gets other numbers."""

    def body(self, out, rows, *given):
        self.count += 1
        return Experts.body(self, out, rows * (2 if self.count == 1 else 1), *given)

    def end(self, out):
        return out


class Others(Experts):
    """Experts work on the tokens that did not choose them."""

    def body(self, out, rows, shares, mask, number):
        return super().body(out, rows, shares, 1 - mask, number)


class Signed(Experts):
    """Numbers whose sum may be zero where they are not."""

    def mask(self, rows):
        shares, mask = super().mask(rows)
        return shares, mask - mask.roll(1, 1)


class Compared(Experts):
    """Only experts that several tokens chose are worked with."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, WIDTH)
        shares, mask = self.mask(rows)
        out = torch.zeros_like(rows)
        for number in (mask.sum(dim=(-1, -2)) > 1).nonzero():
            out = self.body(out, rows, shares, mask, number)
        return out.reshape(x.shape)


class Earlier(Experts):
    """A loop over what another mask counts."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, WIDTH)
        shares, mask = self.mask(rows)
        out = torch.zeros_like(rows)
        for number in mask[:, :1].sum(dim=(-1, -2)).nonzero():
            out = self.body(out, rows, shares, mask, number)
        return out.reshape(x.shape)


class Backwards(Experts):
    """The chosen experts in another order, of which the last one writes over the others."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, WIDTH)
        shares, mask = self.mask(rows)
        out = torch.zeros_like(rows)
        for number in mask.sum(dim=(-1, -2)).nonzero().flip(0):
            place, token = torch.where(mask[number].squeeze(0))
            made = self.experts[f"expert_{number[0]}"](rows[None, token].reshape(-1, WIDTH))
            out = out.index_copy(0, token, made * shares[token, place, None])
        return out.reshape(x.shape)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", [Backwards, Biased, Counting, First, Others, Signed, Compared, Earlier])
def test_a_loop_that_does_more_is_refused_by_its_place(kind):
    with pytest.raises(GrowError) as caught:
        export(drawn(kind), (TOKENS,))
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.code == "G317"
    assert "loop" in diagnostic.notes[0]
    assert "test_routed_loops.py:" in diagnostic.notes[0]


def test_numbers_may_be_given_one_by_one():
    class Flat(Experts):
        def forward(self, x: Tensor) -> Tensor:
            rows = x.reshape(-1, WIDTH)
            shares, mask = self.mask(rows)
            out = torch.zeros_like(rows)
            for number in mask.any(-1).any(-1).nonzero().squeeze(-1):
                place, token = torch.where(mask[number])
                made = self.experts[f"expert_{number}"](rows[token])
                out = out.index_add(0, token, made * shares[token, place, None])
            return out.reshape(x.shape)

    model = drawn(Flat)
    captured = export(model, (TOKENS,))
    made = run(captured, model.state_dict().__getitem__, (TOKENS,))
    torch.testing.assert_close(made, model(TOKENS), rtol=0, atol=1e-6)
