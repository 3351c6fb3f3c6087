"""Every row of the table computes in onnxruntime what the operator does in torch."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from complex_rows import CASES as COMPLEX
from lowered import difference, lowered, opaque
from rows import CASES, COMPOSITES, MORE, WRITES, Case
from torch import nn

from growc.dialects.torch.capture.export import export
from growc.dialects.torch.lowering.lower import lower
from growc.dialects.torch.operators.table import TABLE, TRAITS, key_of
from growc.ir.traits import Trait

LETTERS = "abcdefghijklmnopqrstuvw"


class One(nn.Module):
    """A function of up to so many tensors."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(
        self, a=None, b=None, c=None, d=None, e=None, f=None, g=None, h=None, i=None, j=None, k=None, l=None,  # noqa: E741
        m=None, n=None, o=None, p=None, q=None, r=None, s=None, t=None, u=None,
    ):  # fmt: skip
        given = (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u)
        return self.function(*(x for x in given if x is not None))


def feed_of(spec: str, **sizes: int) -> dict[str, torch.Tensor]:
    """Tensors as a case describes them, with sizes for its symbols."""
    generator = torch.Generator().manual_seed(zlib.crc32(spec.encode()))
    found = {}
    for name, one in zip(LETTERS, spec.split(";"), strict=False):
        dims, _, kind = one.strip().partition(":")
        shape = [sizes.get(d) or int(d) for d in dims.split()]
        found[name] = drawn(shape, kind, generator)
    return found


def drawn(shape: list[int], kind: str, generator: torch.Generator) -> torch.Tensor:
    if kind[:1] in ("i", "j"):  # j: not zero
        return torch.randint(int(kind[0] == "j"), int(kind[1:]), shape, generator=generator)
    if kind in ("b", "B"):  # B: some are true in every row
        made = torch.rand(shape, generator=generator) < 0.5
        return made | (torch.arange(shape[-1]) == 0) if kind == "B" else made
    real = torch.randn(shape, generator=generator)
    return {"+": real.abs() + 0.1, "u": real.tanh() * 0.9}.get(kind, real)


def axes_of(spec: str) -> Mapping[str, Mapping[int, str]]:
    pairs = zip(LETTERS, spec.split(";"), strict=False)
    return {
        name: {k: d for k, d in enumerate(one.strip().partition(":")[0].split()) if d in ("n", "m")}
        for name, one in pairs
    }


def judge(case: Case, key: str = "") -> None:
    function, spec = case
    module, feed = One(function), feed_of(spec, n=5, m=6)
    captured = export(module, (), feed, axes=axes_of(spec))
    keys = {key_of(n.target) for n in captured.program.graph.nodes if n.op == "call_function"}
    model = lower(captured, {}.__getitem__)
    assert key in keys or not key, keys
    assert opaque(model) == []
    for sizes in ({"n": 5, "m": 6}, {"n": 7, "m": 4}):
        assert difference(module, model, feed_of(spec, **sizes)) <= 1e-5


def test_every_row_has_a_case():
    assert sorted(set(TABLE) - set(CASES) - set(COMPLEX)) == []
    assert sorted({*CASES, *COMPLEX} - set(TABLE)) == []


@pytest.mark.parametrize("key", CASES)
def test_a_row_computes_what_its_operator_does(key):
    judge(CASES[key], "" if key in UNSEEN else key)


@pytest.mark.parametrize("key", TRAITS)
def test_the_law_of_a_row_holds(key):
    """On numbers that are all different; zeros are written, or the number of a case."""
    function, spec = CASES[key]
    first, *others = feed_of(spec, n=5, m=6).values()
    if TRAITS[key] is Trait.WRITE:
        others = [one * 0 if one.is_floating_point() else one for one in others]
    made = function(first, *others)
    results = made if isinstance(made, (list, tuple)) else [made]
    found = [number for one in results for number in one.flatten().tolist()]
    given = first.to(results[0].dtype).flatten().tolist()
    match TRAITS[key]:
        case Trait.SAME | Trait.VIEW:
            assert found == given
        case Trait.TURN:
            assert sorted(found) == sorted(given)
        case Trait.REPEAT:
            assert set(found) == set(given)
        case Trait.TAKE:
            assert set(found) <= set(given)
        case Trait.JOIN:
            assert sorted(found) == sorted(
                given + [number for one in others for number in one.flatten().tolist()]
            )
        case Trait.WRITE:
            assert all(b in (a, 0, 1.5) for a, b in zip(given, found, strict=True))


UNSEEN = frozenset(
    {
        *("aten.alias.default", "aten.lift_fresh_copy.default", "aten._to_copy.default"),
        *("aten.chunk.default", "aten.split.Tensor", "aten.unsafe_chunk.default", "aten.unsafe_split.Tensor"),
    }
)
"""Calls that captured programs are cleaned of: those without effect, and parts whose sizes can be said."""


@pytest.mark.parametrize(("name", "case"), MORE, ids=[name for name, _ in MORE])
def test_further_cases_of_rows_compute_what_torch_does(name, case):
    judge(case)


@pytest.mark.parametrize(("name", "case"), WRITES, ids=[name for name, _ in WRITES])
def test_writes_in_place_compute_the_same(name, case):
    judge(case)


@pytest.mark.parametrize(("name", "case"), COMPOSITES, ids=[name for name, _ in COMPOSITES])
def test_composite_operators_compute_the_same(name, case):
    judge(case)


def test_a_composition_of_what_the_table_lacks_stays_whole():
    model = lowered(One(torch.nn.functional.mse_loss), {"a": torch.ones(4, 3), "b": torch.ones(4, 3)}, {})
    assert opaque(model) == ["mse_loss.default"]
    image = One(lambda x: torch.nn.functional.interpolate(x, [3, 2], mode="bilinear", antialias=True))
    assert opaque(lowered(image, {"a": torch.ones(1, 2, 4, 5)}, {})) == ["_upsample_bilinear2d_aa.vec"]


def test_an_operator_outside_the_table_is_opaque_and_has_its_sizes():
    module, feed = One(torch.linalg.inv), {"a": torch.eye(3).expand(2, 3, 3).clone()}
    model = lowered(module, feed, {"a": {0: "n"}})
    [node] = (n for n in model.graph if n.domain == "aten")
    assert [str(d) for d in node.outputs[0].shape] == ["n", "3", "3"]


def test_an_argument_that_a_row_does_not_name_makes_the_call_opaque():
    module = One(
        lambda x: torch.ops.aten.embedding_bag.default(
            x, torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long)
        )
    )
    assert opaque(lowered(module, {"a": torch.ones(4, 3)}, {})) == ["embedding_bag.default"]
    half = One(lambda x: torch.ops.aten.round.decimals(x, decimals=2))
    assert opaque(lowered(half, {"a": torch.ones(4, 3)}, {})) == ["round.decimals"]
