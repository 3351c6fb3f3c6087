"""growc from Python: what results show, and what wrong calls are told."""

from __future__ import annotations

import inspect
import re
from html import unescape
from pathlib import Path

import nbformat
import pytest
from graphs import STREAM, TINY, save
from nbclient import NotebookClient

import growc
from growc.cli.main import main
from growc.errors.diagnostic import GrowError
from growc.errors.display import Shown, lines_of
from growc.render.progress import progress

WIDEN = "widen hidden to 128 with neighbor copy"
HOSTILE = "<img src=x onerror=alert(1)>"


def printed(capsys, *words):
    """The output of the command line."""
    capsys.readouterr()
    main(list(map(str, words)))
    return capsys.readouterr().out


def test_an_inspection_is_shown_as_on_the_command_line(capsys):
    assert f"{growc.inspect(TINY)}\n" == printed(capsys, "inspect", TINY)


def test_a_plan_is_shown_as_on_the_command_line(capsys):
    shown = printed(capsys, "plan", "-e", WIDEN, TINY).splitlines()
    assert str(growc.plan(WIDEN, TINY)).splitlines()[:-1] == shown[:-2]


def test_an_applied_recipe_is_shown_as_on_the_command_line(capsys, tmp_path):
    done = growc.apply("widen ffn to 400 with cyclic copy", TINY, tmp_path / "out.onnx")
    shown = printed(
        capsys,
        *("apply", "-e", "widen ffn to 400 with cyclic copy", TINY, "-o", tmp_path / "out.onnx", "--force"),
    )
    assert f"{done}\n" == shown
    assert str(done.verification) in shown
    assert str(done.plan.certificate) in shown


def test_every_result_has_lines():
    kinds = Shown.__subclasses__()
    names = "Analysis Applied Certificate Difference Flops Measurement Outcome Plan Profile Verification"
    assert sorted(kind.__name__ for kind in kinds) == names.split()
    str(growc.flops(TINY))
    assert all(lines_of.dispatch(kind) is not lines_of.dispatch(object) for kind in kinds)


@pytest.mark.parametrize("kind", ["plan", "inspection"])
def test_a_notebook_shows_the_same_text_and_no_markup_of_a_model(tmp_path, kind):
    text = STREAM.replace("up_weight", "evil")
    save(tmp_path / "hostile.onnx", text)
    result = growc.plan("widen ffn to 24 with tail copy", tmp_path / "hostile.onnx")
    result = result if kind == "plan" else growc.inspect(tmp_path / "hostile.onnx")
    page = result._repr_html_()
    assert unescape(re.sub(r"</?(span|pre)[^>]*>", "", page)) == str(result)


def test_a_notebook_unfolds_what_the_text_leaves_out() -> None:
    """A notebook has no option `--all`."""
    result = growc.plan("widen ffn to 2 * ffn with tail copy", TINY)
    assert "more (--all)" in str(result)
    shown, unfolded = result._repr_html_().split("<details>")
    assert "--all" not in shown + unfolded
    assert shown.count("makes ffn") < unfolded.count("makes ffn") == 8


def test_names_are_no_markup(tmp_path):
    path = tmp_path / f"{HOSTILE.replace('/', '')}.onnx"
    save(path, STREAM)
    page = growc.plan("widen ffn to 24 with tail copy", path)._repr_html_()
    assert "<img" not in page
    assert "&lt;img" in page


def test_apply_has_named_options():
    options = inspect.signature(growc.apply).parameters
    assert {"text", "model", "out", "params", "inputs", "check", "force", "example_inputs", "state_dict"} <= {
        *options
    }
    assert all(option.kind is not option.VAR_KEYWORD for option in options.values())
    assert all(option.annotation is not option.empty for option in options.values())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: growc.apply(WIDEN, TINY, chek=False), "did you mean `check`?"),
        (lambda: growc.plan(WIDEN, TINY, exmple_inputs=()), "did you mean `example_inputs`?"),
        (lambda: growc.plan(WIDEN), "missing a required argument: 'model'"),
        (lambda: growc.verify(TINY), "missing a required argument"),
        (lambda: growc.measure(TINY), "missing a required argument: 'inputs'"),
        (lambda: growc.plan(WIDEN, None), "`None` is no model"),
        (lambda: growc.inspect(5), "`5` is no model"),
        (lambda: growc.plan(3, TINY), "`3` is no recipe"),
        (lambda: growc.plan([3], TINY), "`[3]` is no recipe"),
        (lambda: growc.plan(WIDEN, TINY, [1]), "`params` is no mapping"),
        (lambda: growc.apply(WIDEN, TINY, out=3), "`out` is no path"),
        (lambda: growc.apply(WIDEN, Path("missing.onnx")), "there is no model at `missing.onnx`"),
    ],
)
def test_a_wrong_call_is_told_in_words(call, said):
    with pytest.raises(GrowError, match=re.escape(said)):
        call()


class Listening(NotebookClient):
    """Runs a notebook, and keeps what its kernel says."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.said = []

    def process_message(self, message, cell, number):
        self.said.append((message["msg_type"], message["content"].get("data", {})))
        return super().process_message(message, cell, number)


def test_a_notebook_shows_progress_and_results(tmp_path):
    code = f"""
import growc, growc.render.progress as progress
progress.SELDOM = 0
growc.apply("widen ffn to 400 with cyclic copy", {str(TINY)!r}, "out.onnx")
"""
    cells = [nbformat.v4.new_code_cell(code)]
    client = Listening(nbformat.v4.new_notebook(cells=cells), resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    told = [data["text/plain"] for kind, data in client.said if kind == "update_display_data"]
    assert f"reading {TINY.name} …" in told
    assert "planning …" in told
    assert told[-1] == ""
    (result,) = [data for kind, data in client.said if kind == "execute_result"]
    assert "Certificate: exact" in result["text/html"]


def test_numbers_are_parameters_too():
    plan = growc.plan("let n = 1\nwiden hidden to n with neighbor copy", TINY, {"n": 128})
    assert plan.axes["hidden"].after == (128,)


def test_a_stage_of_many_weights_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(verbose=True) as show:
        for phrase in ("planning", "writing a.weight", "writing b.weight", "fetching model.safetensors"):
            show(phrase, 0, 2)
    stages = [line.rpartition(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert stages == ["planning", "writing the weights", "fetching the weights"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: growc.apply(WIDEN, TINY, memory=100), "`memory` of `apply` is 100, of type int"),
        (lambda: growc.apply(WIDEN, TINY, progress=True), "`progress` of `apply` is True"),
        (lambda: growc.verify(TINY, 3), "3"),
        (lambda: growc.verify(TINY, TINY, inputs=3), "the path of a `.npz` file"),
        (lambda: growc.measure(TINY, "x.npz", samples=-1), "`samples` is at least 1"),
        (lambda: growc.measure(TINY, "x.npz", samples="x"), "`samples` of `measure` is 'x'"),
        (lambda: growc.flops(3), "`model` of `flops` is 3"),
        (lambda: growc.diff(TINY, None), "`after` of `diff` is None"),
        (lambda: growc.save(3, 4), "`module` of `save` is 3"),
        (lambda: growc.plan(WIDEN, TINY, example_inputs={"a": 1}), "is a graph already"),
        (lambda: growc.inspect(TINY, example_inputs=1), "is a graph already"),
        (lambda: growc.recipes("lemno"), "`recipes` is called wrongly"),
    ],
)
def test_an_argument_of_another_type_is_refused_by_its_name(call, said):
    with pytest.raises(GrowError) as raised:
        call()
    assert said in str(raised.value)
    assert raised.value.diagnostics[0].code == "G200"
