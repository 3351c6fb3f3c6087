"""The main job on small models, both exporters, with and without names: what is exact, why not the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import epsilons, named_weights
from models import FLAVOURS, stored, tied_once, with_epsilon

from growc.errors.diagnostic import GrowError
from growc.verification.verify import verify

INSIDE = "widen heads to 4 * heads / 3 with uniform copy\nwiden ffn to 4 * ffn / 3 with uniform copy"
DOUBLE = "widen hidden to 2 * hidden with cyclic copy"
AVERAGE = "widen hidden to 4 * hidden / 3 with average fill"
ALL = "\n".join(f"{line} split random noise 0.05 balanced" for line in f"{INSIDE}\n{AVERAGE}".splitlines())
RECIPES = {"inside": INSIDE, "double": DOUBLE, "average": AVERAGE, "all": ALL}
NEIGHBOR = "widen hidden to 4 * hidden / 3 with neighbor copy"
LIMIT = 2e-5
SIZES = ("Shape", "Constant", "Concat", "Slice", "Gather", "Squeeze", "Unsqueeze", "Mul", "Div")
"""Operators that compute shapes: some go where a number takes their place, others come."""


def assert_exact(done, limit=LIMIT):
    assert done.plan.certificate.exact, done.plan.certificate.gaps[:2]
    assert done.verification.relative <= limit
    assert not done.verification.refutes_exact()
    assert done.verification.cases >= 2


def real(path: Path) -> list[np.ndarray]:
    """The stored tensors that hold real numbers, in the order of the file."""
    return [w for w in stored(path).values() if w.dtype == np.float32]


def matrices(path: Path) -> list[np.ndarray]:
    return [w for w in real(path) if w.ndim == 2]


def tied_pairs(path: Path) -> int:
    """How many pairs of stored matrices are transposes of each other."""
    found = matrices(path)
    return sum(np.array_equal(a, b.T) for i, a in enumerate(found) for b in found[:i])


@pytest.mark.sampled(7)
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("model", ["gpt2", "gpt2-default"])
def test_a_gpt2_grows_exactly_and_its_head_stays_tied(models, grow, model, recipe, flavour):
    done = grow(RECIPES[recipe], model, flavour)
    assert_exact(done)
    assert tied_pairs(done.written) == tied_pairs(models.path(model, flavour)) == 1


@pytest.mark.sampled(4)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_head_that_is_one_tensor_with_the_embedding_stays_one(models, grow, tmp_path, recipe):
    source = tied_once(models.path("gpt2", "dynamo"), tmp_path / "once.onnx")
    done = grow(RECIPES[recipe], source)
    assert_exact(done)
    assert tied_pairs(done.written) == tied_pairs(source) == 0
    assert len(matrices(done.written)) == len(matrices(source))


def test_an_untied_head_becomes_a_weight_of_its_own(models, grow, tmp_path):
    source = tied_once(models.path("gpt2", "dynamo"), tmp_path / "once.onnx")
    done = grow(f"untie head\n{DOUBLE}", source)
    assert_exact(done)
    assert len(matrices(done.written)) == len(matrices(source)) + 1
    table = done.plan.parameters[1] - grow(DOUBLE, source, out="tied.onnx").plan.parameters[1]
    assert table == 90 * 96


@pytest.mark.sampled(4)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_copies_with_unequal_counts_on_a_layer_norm_stream_are_not_exact_and_every_norm_is_named(
    grow, flavour
):
    done = grow(NEIGHBOR, flavour=flavour)
    gaps = [g for g in done.plan.certificate.gaps if g.op == "LayerNormalization"]
    assert not done.plan.certificate.exact
    assert len({g.node for g in gaps}) == 5
    assert all("unequal copy counts (1, 2)" in g.cause and "average fill" in g.help for g in gaps)
    assert done.verification.relative > 1e-3
    assert done.verification.refutes_exact()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("flavour", ["dynamo", "torchscript"])
def test_an_expectation_that_fails_writes_nothing(grow, tmp_path, flavour):
    with pytest.raises(GrowError) as raised:
        grow(f"{NEIGHBOR}\nexpect preserved within 1e-5", flavour=flavour)
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == "G401"
    assert list(tmp_path.iterdir()) == []


def test_an_expectation_that_holds_is_no_obstacle(grow):
    assert grow(
        f"{AVERAGE}\nexpect preserved within 1e-5\nexpect exact\nexpect hidden == 64"
    ).written.exists()


@pytest.mark.sampled(7)
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("model", ["bert", "bert-bare"])
@pytest.mark.parametrize(
    "recipe", [DOUBLE, INSIDE, "widen hidden to 3 * hidden with cyclic copy split random noise 0.05 balanced"]
)
def test_a_bert_grows_exactly_at_multiples_and_inside_at_any_size(grow, model, recipe, flavour):
    assert_exact(grow(recipe, model, flavour))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("model", ["bert", "bert-bare"])
def test_average_fill_on_a_bert_is_not_exact_because_norms_make_the_stream(grow, model, flavour):
    done = grow(AVERAGE, model, flavour)
    assert not done.plan.certificate.exact
    assert done.verification.relative > 1e-3
    norms = {g.node for g in done.plan.certificate.gaps if g.op == "LayerNormalization"}
    assert len(norms) >= 4
    assert any("norm" in g.cause.lower() and "stream" in g.cause for g in done.plan.certificate.gaps)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(
    "recipe",
    [
        "widen hidden to 64 with uniform copy",
        "widen hidden to 64 with neighbor copy split random noise 0.05 balanced",
        "widen hidden to 64 with zero fill",
        "widen hidden to 96 with cyclic copy",
        INSIDE,
    ],
)
def test_a_llama_with_a_large_eps_grows_exactly_at_any_size(grow, recipe, flavour):
    assert_exact(grow(recipe, "llama", flavour))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("recipe", ["average", "all", "double"])
@pytest.mark.parametrize("flavour", ["dynamo", "torchscript"])
def test_a_large_eps_is_scaled_with_the_width(models, grow, tmp_path, recipe, flavour):
    source = with_epsilon(models.path("gpt2", flavour), tmp_path / "eps.onnx", 1e-2)
    done = grow(RECIPES[recipe], source)
    assert_exact(done)
    factor = 1 if recipe == "double" else 0.75
    assert epsilons(done.written) == pytest.approx([1e-2 * factor] * 5, rel=1e-6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("recipe", ["average", "double"])
def test_eps_left_alone_shows_where_it_should_have_been_scaled(models, grow, tmp_path, recipe):
    source = with_epsilon(models.path("gpt2"), tmp_path / "eps.onnx", 1e-2)
    written = grow(RECIPES[recipe], source).written
    spoilt = with_epsilon(written, tmp_path / "spoilt.onnx", 1e-2)
    assert verify(source, spoilt).refutes_exact() == (recipe == "average")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "recipe", [INSIDE, ALL, "widen hidden to 64 with random fill\nwiden vocab to 99 with random fill"]
)
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_without_names_the_weights_are_the_same(grow, recipe, exporter):
    named = real(grow(recipe, flavour=exporter, check=False).written)
    bare = real(grow(recipe, flavour=f"{exporter}.anon", check=False, out="anon.onnx").written)
    for one, other in zip(named, bare, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("flavour", ["dynamo", "torchscript"])
def test_the_same_recipe_gives_the_same_bytes(grow, tmp_path, flavour):
    first = {
        p.name: p.read_bytes() for p in grow(ALL, flavour=flavour).written.parent.iterdir() if p.is_file()
    }
    again = {
        p.name: p.read_bytes() for p in grow(ALL, flavour=flavour).written.parent.iterdir() if p.is_file()
    }
    assert first.keys() == again.keys()
    assert all(first[name] == again[name] for name in first)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("widen ffn to 256 with cyclic copy", "widen ffn to 300 with tail copy"),
        ("widen heads to 12 with neighbor copy", "widen heads to 15 with last copy"),
        ("widen hidden to 96 with cyclic copy", "widen hidden to 144 with neighbor copy"),
        ("widen hidden to 64 with average fill", "widen hidden to 96 with neighbor copy"),
        ("widen vocab to 100 with neighbor copy", "widen vocab to 120 with tail copy"),
        (DOUBLE, "widen heads to 9 with neighbor copy"),
    ],
)
def test_two_statements_are_two_recipes_one_after_the_other(grow, one, two):
    composed = grow(f"{one}\n{two}", check=False, out="composed.onnx").written
    first = grow(one, check=False, out="first.onnx").written
    second = grow(two, first, check=False, out="second.onnx").written
    a, b = named_weights(composed), named_weights(second)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=3e-7, atol=1e-9, err_msg=name)
    assert epsilons(composed) == pytest.approx(epsilons(second), rel=1e-6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "recipe",
    [
        f"{DOUBLE}\n{AVERAGE}",
        "widen ffn to 200 with uniform copy\nwiden ffn to 333 with neighbor copy split random",
    ],
)
def test_statements_on_one_axis_compose_exactly(grow, recipe):
    assert_exact(grow(recipe))


def test_names_order_opset_and_interface_stay(models, grow):
    for flavour in ("dynamo", "torchscript"):
        source = onnx.load(models.path("gpt2", flavour), load_external_data=False)
        result = onnx.load(grow(ALL, flavour=flavour).written, load_external_data=False)
        assert [v.name for v in result.graph.input] == [v.name for v in source.graph.input]
        assert result.graph.output == source.graph.output
        opsets = [{(o.domain, o.version) for o in m.opset_import} for m in (source, result)]
        assert opsets[0] == opsets[1]
        weights = {t.name for t in source.graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
        assert weights <= {t.name for t in result.graph.initializer}
        before, after = ([n for n in m.graph.node if n.op_type not in SIZES] for m in (source, result))
        assert [n.name for n in after] == [n.name for n in before]
