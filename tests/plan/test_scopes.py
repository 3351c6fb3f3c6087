"""Encoder, decoder and towers: what lies in which, and statements inside of them."""

from __future__ import annotations

import pytest
from graphs import MLP, STREAM, TOWERS, TRANSLATOR, save

from growc import api
from growc.errors.diagnostic import GrowError
from growc.render.inspection import inspect_data


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """A model with a stream that another one reads."""
    return save(tmp_path_factory.mktemp("scopes") / "translator.onnx", TRANSLATOR)


def refused(text, model):
    """The code and the message of what a recipe is refused with."""
    with pytest.raises(GrowError) as error:
        api.plan(text, model)
    [diagnostic] = error.value.diagnostics
    return diagnostic.code, diagnostic.message


def test_the_stream_that_another_one_reads_is_the_encoder(translator):
    assert inspect_data(api.inspect(translator))["scopes"] == {
        "decoder": {"axes": {"hidden": 10, "head_dim": 5, "ffn": 20, "vocab": 18, "layers": 1}},
        "encoder": {"axes": {"hidden": 8, "ffn": 12, "layers": 1}},
    }


def test_streams_that_do_not_read_each_other_are_towers(tmp_path):
    model = save(tmp_path / "towers.onnx", TOWERS)
    found = inspect_data(api.inspect(model))["scopes"]
    assert found == {
        "tower 0": {"axes": {"hidden": 8, "ffn": 12, "layers": 1}},
        "tower 1": {"axes": {"hidden": 9, "ffn": 20, "layers": 1}},
    }


@pytest.mark.parametrize("graph", [STREAM, MLP])
def test_a_single_stream_has_no_scopes(graph, tmp_path):
    assert inspect_data(api.inspect(save(tmp_path / "model.onnx", graph)))["scopes"] == {}


@pytest.mark.parametrize(
    ("statement", "before", "after"),
    [
        ("in decoder { widen ffn to 2 * hidden + 5 with uniform copy }", [12, 20], [12, 25]),
        ("in encoder { widen ffn to 2 * hidden + 5 with uniform copy }", [12, 20], [21, 20]),
        ('in "enc_*" { widen ffn to 3 * ffn with neighbor copy }', [12, 20], [36, 20]),
        ('in decoder { in "dec*" { widen ffn to 3 * ffn with neighbor copy } }', [12, 20], [12, 60]),
        ('in decoder { widen axis 1 of "dec_up" to 30 with tail copy }', [12, 20], [12, 30]),
        ("in encoder { widen hidden to 13 with uniform copy }", [8, 10], [13, 10]),
        ("in decoder { widen hidden to 2 * hidden with cyclic copy }", [8, 10], [8, 20]),
        ("in encoder { widen hidden to 16 with cyclic copy\nexpect hidden == 16 }", [8, 10], [16, 10]),
    ],
)
def test_a_statement_changes_what_lies_in_its_scope(statement, before, after, translator, tmp_path):
    done = api.apply(statement + "\nexpect exact", translator, tmp_path / "out.onnx")
    name = "hidden" if "hidden to" in statement else "ffn"
    assert [a.size for a in api.inspect(translator).roles.axes[name]] == before
    assert [a.size for a in api.inspect(tmp_path / "out.onnx").roles.axes[name]] == after
    assert done.verification is not None
    assert not done.verification.refutes_exact()


@pytest.mark.parametrize(
    ("statement", "code", "says"),
    [
        ("in encoder { widen vocab to 20 with zero fill }", "G307", "no `vocab` lies in `encoder`"),
        ('in "dec_*" { widen hidden to 20 with cyclic copy }', "G307", "`hidden` (10) reaches out of"),
        ('in "nothing" { widen ffn to 50 with tail copy }', "G306", "lies under `nothing`"),
        ('in encoder { widen axis 1 of "dec_up" to 30 with tail copy }', "G307", "lies in `encoder`"),
    ],
)
def test_an_axis_outside_the_scope_is_refused(statement, code, says, translator):
    found = refused(statement, translator)
    assert found[0] == code
    assert says in found[1]


def test_a_scope_that_the_model_does_not_have_is_refused(tmp_path):
    model = save(tmp_path / "stream.onnx", STREAM)
    statement = "in decoder { widen ffn to 24 with tail copy }"
    assert refused(statement, model) == ("G307", "the model has no `decoder`")
