"""The output of commands: JSON as agreed, and text for people."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import DEMO, STREAM, TINY, save

from growc.errors.codes import CODES
from growc.passes import PIPELINE


def test_plan_json_has_what_is_agreed(growc):
    data = growc("plan", "-e", "widen hidden to 12 with neighbor copy", "stream.onnx", "--json").json
    assert data["certificate"]["exact"] is False
    assert [sorted(gap) for gap in data["certificate"]["gaps"]] == [["cause", "help", "node", "op"]] * 2
    assert data["parameters"] == {"before": 372, "after": 552}
    assert data["axes"]["hidden"] == {"before": 8, "after": 12}
    assert data["axes"]["ffn"] == {"before": 12, "after": 12}
    assert {"name", "source", "before", "after", "steps"} <= set(data["weights"][0])


def test_apply_json_is_the_plan_and_what_was_measured(growc):
    data = growc(
        "apply", "-e", "widen ffn to 24 with tail copy", "stream.onnx", "-o", "out.onnx", "--json"
    ).json
    assert data["written"] == "out.onnx"
    assert data["certificate"] == {"exact": True, "gaps": []}
    assert {"max_abs", "relative", "rounding", "cases"} <= set(data["verification"])


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_a_command_that_names_an_option_for_more_lines_takes_it(growc, command):
    arguments = [command, "-e", "widen hidden to 12 with neighbor copy", "stream.onnx"]
    assert "more (--all)" in growc(*arguments).out
    whole = growc(*arguments, "--all", *(["--force"] if command == "apply" else [])).out
    assert "--all" not in whole
    assert whole.count("  ~ ") > 6


def test_inspect_json_has_what_is_agreed(growc):
    data = growc("inspect", "stream.onnx", "--json").json
    assert data == {
        "axes": {"hidden": 8, "ffn": 12, "vocab": 16, "layers": 1},
        "scopes": {},
        "runs": [{"scope": "", "layers": 1, "kinds": [0], "period": 1}],
        "attention": [],
        "parameters": 372,
        "frozen": [],
        "flops": {
            "unit": "token",
            "forward": 640,
            "backward": 1280,
            "inputs": {"tokens": [1024]},
            "uncounted": [],
        },
    }


def test_inspect_and_plan_show_flops(growc):
    assert growc("inspect", "stream.onnx").out.splitlines()[1] == (
        "forward 640 FLOP a token, backward 1.3 KFLOP, at 1024 tokens"
    )
    recipe = ("-e", "widen ffn to 24 with tail copy", "stream.onnx")
    assert growc("plan", *recipe).out.splitlines()[-2] == (
        "FLOPs: forward 640 FLOP -> 1.0 KFLOP a token, backward 1.3 KFLOP -> 2.0 KFLOP, at 1024 tokens."
    )
    counted = growc("plan", *recipe, "--json").json["flops"]
    assert {side: found["forward"] for side, found in counted.items()} == {"before": 640, "after": 1024}


def test_several_sizes_are_a_list_in_topological_order(growc, tmp_path):
    text = STREAM.replace(
        "n2 = ", "u2 = MatMul(x1, up2)\n r2 = Relu(u2)\n d2 = MatMul(r2, down2)\n x2 = Add(x1, d2)\n n2 = "
    )
    text = text.replace("(x1, norm2", "(x2, norm2").replace(
        "norm2_bias>", "norm2_bias, float[8, 20] up2, float[20, 8] down2>"
    )
    save(tmp_path / "two.onnx", text)
    assert growc("inspect", "two.onnx", "--json").json["axes"]["ffn"] == [12, 20]
    plan = growc("plan", "-e", "widen ffn to 2 * ffn with tail copy", "two.onnx", "--json").json
    assert plan["axes"]["ffn"] == {"before": [12, 20], "after": [24, 40]}
    shown = growc("plan", "-e", "widen ffn to 2 * ffn with tail copy", "two.onnx").out
    assert "ffn   12/20 -> 24/40   tail copy   5 weights in 2 spaces" in shown


def test_verify_json_has_what_is_agreed(growc, tmp_path):
    same = growc("verify", "stream.onnx", "stream.onnx", "--json")
    assert same.json["passed"] is True
    assert same.json["outputs"] == {"logits": {"relative": 0.0}}
    save(tmp_path / "other.onnx", STREAM, norm1_bias=np.ones(8, np.float32))
    other = growc("verify", "stream.onnx", "other.onnx", "--json")
    assert (other.status, other.json["passed"], other.json["error"]["code"]) == (1, False, "G404")
    assert growc("verify", "stream.onnx", "other.onnx", "--within", "100").status == 0
    assert growc("verify", "stream.onnx", "other.onnx", "--within", "1e-9").status == 1


def test_outputs_of_another_shape_are_infinitely_far_and_still_json(growc):
    run = growc("verify", "stream.onnx", "mlp.onnx", "--json")
    assert run.status == 1
    assert run.json["error"]["code"] in CODES


@pytest.mark.parametrize(
    "arguments",
    [
        ["aply", "--json"],
        ["plan", "--json"],
        ["plan", "-e", "wide", "stream.onnx", "--json"],
        ["plan", "-e", "widen heads to 8 with tail copy", "stream.onnx", "--json"],
        ["plan", "-e", "expect ffn == 1", "stream.onnx", "--json"],
        ["apply", "-e", "untie head", "stream.onnx", "-o", "mlp.onnx", "--json"],
        ["apply", "-e", "widen hidden to 12 with tail copy", "-e", "expect exact", "stream.onnx", "--json"],
        ["inspect", "nosuch.onnx", "--json"],
        ["verify", "stream.onnx", "nosuch.onnx", "--json"],
        ["check", "nosuch.grow", "--json"],
    ],
)
def test_every_failure_is_one_object_with_every_key(growc, arguments):
    run = growc(*arguments)
    assert run.err == ""
    error = run.json["error"]
    place = {"file", "line", "column", "end_line", "end_column"}
    assert set(error) == {"code", "message", *place, "notes", "help"}
    assert error == run.json["errors"][0]
    assert CODES[error["code"]].status == run.status != 0


def test_statements_on_the_command_line_are_lines_of_one_text(growc):
    run = growc("plan", "-e", "untie head", "-e", "widen hiden to 8 with tail copy", "stream.onnx", "--json")
    assert [run.json["error"][key] for key in ("file", "line", "column")] == ["-e", 2, 7]
    assert [run.json["error"][key] for key in ("end_line", "end_column")] == [2, 12]


def test_options_may_stand_anywhere(growc, tmp_path):
    (tmp_path / "r.grow").write_text("let n = 24\nwiden ffn to n with tail copy\n")
    orders = (["r.grow", "-p", "n=36", "stream.onnx"], ["-p", "n=36", "r.grow", "stream.onnx"])
    assert [growc("plan", *order, "--json").json["axes"]["ffn"]["after"] for order in orders] == [36, 36]


def test_a_no_op_is_said_to_be_one(growc):
    run = growc("plan", "-e", "widen ffn to ffn with tail copy", "stream.onnx")
    assert "ffn   12 -> 12   no change: that is its size" in run.out
    assert "The recipe changes nothing" in run.out


def test_a_plan_that_fails_an_expectation_is_shown_and_exits_with_1(growc):
    run = growc("plan", "-e", "widen hidden to 12 with tail copy", "-e", "expect exact", "stream.onnx")
    assert run.status == 1
    assert "Nothing was written." in run.out
    assert "error[G401]" in run.err


def test_inspect_says_what_was_not_found(growc, tmp_path):
    assert "No attention was found." in growc("inspect", "stream.onnx").out
    save(tmp_path / "one.onnx", "one (float[N, 4] x) => (float[N, 3] y) <float[4, 3] w> { y = MatMul(x, w) }")
    assert 'axis N of "PARAMETER"' in growc("inspect", "one.onnx").out


def test_windows_of_convolutions_are_no_news(growc, tmp_path):
    graph = """
    net (float[N, 3, 8, 8] x) => (float[N, 4, M, K] y) <float[6, 3, 3, 3] w1, float[4, 6, 3, 3] w2> {
        a = Conv(x, w1)
        b = Relu(a)
        y = Conv(b, w2)
    }
    """
    save(tmp_path / "net.onnx", graph)
    assert growc("inspect", "net.onnx", "--json").json["frozen"] == []


def test_a_frozen_axis_names_node_and_reason(growc, tmp_path):
    save(
        tmp_path / "odd.onnx",
        STREAM.replace("x1 = Add(x0, db)", "s1 = Add(x0, db)\n x1 = Hardmax <axis = -1> (s1)"),
    )
    [frozen] = growc("inspect", "odd.onnx", "--json").json["frozen"]
    assert frozen["node"] == "x1"
    assert frozen["op"] == "Hardmax"
    shown = growc("inspect", "odd.onnx").out
    assert "1 of them frozen" in shown
    assert "Hardmax x1" in shown


def test_explain_prints_the_operators_on_the_way(growc):
    shown = growc("explain", "stream.onnx", "ffn").out.splitlines()
    assert shown == [
        "`ffn` of stream.onnx: 12 units, 3 weight axes that change together",
        "  axis 1 of up_weight [8, 12]",
        "  axis 0 of up_bias [12]",
        "      by MatMul u, Add ub",
        "  axis 0 of down_weight [12, 8]",
        "      from MatMul u, by Add ub, Relu act, MatMul d",
    ]


def test_explain_is_short_where_layers_are_alike(growc):
    hidden = growc("explain", TINY, "hidden").out
    assert len(hidden.splitlines()) < 40
    assert "more alike" in hidden
    assert len(growc("explain", TINY, "hidden", "--all").out.splitlines()) > 80
    heads = growc("explain", TINY, "heads").out
    assert "3 more spaces of tiny-gpt.onnx like this one (--all)." in heads


def test_explain_takes_an_axis_of_a_parameter_and_codes(growc):
    assert "an axis of the model's input" in growc("explain", "mlp.onnx", 'axis 0 of "fc1_weight"').out
    assert growc("explain", "g301").out.startswith("G301: ")
    assert growc("explain", "G999").status == 2
    assert growc("explain", "stream.onnx", "hidden + 1").status == 2
    assert growc("explain", "stream.onnx", "heads").status == 3


def test_check_judges_every_recipe_without_a_model(growc, tmp_path):
    (tmp_path / "good.grow").write_text("untie head\n")
    (tmp_path / "bad.grow").write_text("untie haed\n")
    assert growc("check", "good.grow", DEMO).out.splitlines() == ["good.grow: fine", f"{DEMO}: fine"]
    bad = growc("check", "bad.grow", "good.grow", "nosuch.grow")
    assert (bad.status, bad.err.count("error[")) == (2, 2)


def test_check_takes_statements_with_and_without_files(growc, tmp_path):
    (tmp_path / "good.grow").write_text("widen ffn to 8 with zero fill\n")
    alone = growc("check", "-e", "let n = 2", "-e", "widen ffn to n * ffn with tail copy")
    assert (alone.status, alone.out) == (0, "-e: fine\n")
    assert growc("check", "good.grow", "-e", "expect exact").out.splitlines() == [
        "good.grow: fine",
        "-e: fine",
    ]
    bad = growc("check", "good.grow", "-e", "let n = 2", "-e", "widen ffm to n with tail copy")
    assert bad.status == 2
    assert "-e:2:7" in bad.err
    assert growc("check", "-e", "expect exact", "--json").json == {"passed": True}
    nothing = growc("check")
    assert nothing.status == 2
    assert "`-e STATEMENT` may stand for RECIPE" in nothing.err


def test_fmt_rewrites_what_is_not_formatted(growc, tmp_path):
    ugly, fine = tmp_path / "ugly.grow", tmp_path / "fine.grow"
    ugly.write_text("widen   ffn to 2*ffn with tail copy   # twice\r\n", newline="")
    fine.write_text("untie head\n")
    checked = growc("fmt", "--check", "ugly.grow", "fine.grow")
    assert checked.status == 1
    assert "ugly.grow" in checked.err
    assert "fine.grow" not in checked.err
    assert growc("fmt", "ugly.grow", "fine.grow").status == 0
    assert ugly.read_bytes() == b"widen ffn to 2 * ffn with tail copy  # twice\n"
    assert growc("fmt", "--check", "ugly.grow", "fine.grow").status == 0


def test_fmt_keeps_modes_and_links_and_leaves_nothing_else(growc, tmp_path):
    recipe, link = tmp_path / "own/ugly.grow", tmp_path / "link.grow"
    recipe.parent.mkdir()
    recipe.write_text("untie   head\n")
    recipe.chmod(0o640)
    link.symlink_to(recipe)
    assert growc("fmt", "link.grow").status == 0
    assert link.is_symlink()
    assert recipe.read_text() == "untie head\n"
    assert recipe.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in recipe.parent.iterdir()] == ["ugly.grow"]


def test_one_bad_recipe_does_not_keep_others_from_being_formatted(growc, tmp_path):
    (tmp_path / "bad.grow").write_text("untie haed\n")
    (tmp_path / "ugly.grow").write_text("untie   head\n")
    assert growc("fmt", "bad.grow", "ugly.grow").status == 2
    assert (tmp_path / "ugly.grow").read_text() == "untie head\n"


def test_a_plan_shows_what_passes_made(growc):
    shown = growc("plan", "-e", "widen ffn to 20 with zero fill", "stream.onnx", "--print-after", "roles")
    assert shown.status == 0
    assert shown.out.startswith("After roles:\n  roles: Roles(axes={hidden: [RoleAxis(spaces=[s2])], ffn: ")
    both = ["--print-after", "lower", "--print-after", "roles"]
    shown = growc("plan", "-e", "widen ffn to 20 with zero fill", "stream.onnx", *both)
    assert [line for line in shown.out.splitlines() if line.startswith("After")] == [
        "After roles:",
        "After lower:",
    ]
    shown = growc("plan", "-e", "widen ffn to 20 with zero fill", "stream.onnx", "--print-after", "all")
    headings = [line for line in shown.out.splitlines() if line.startswith("After ")]
    assert headings == [f"After {one.name}:" for one in PIPELINE]


def test_a_pass_that_there_is_not_is_refused_with_the_names_of_all(growc):
    refused = growc("plan", "-e", "widen ffn to 20 with zero fill", "mlp.onnx", "--print-after", "role")
    assert (refused.status, refused.out) == (2, "")
    assert "there is no pass `role`" in refused.err
    assert "did you mean `roles`? the passes are capture, simulate, norms, " in refused.err
    refused = growc("plan", "-e", "widen ffn to 20", "mlp.onnx", "--print-after", "all", "--json")
    assert refused.status == 2
