"""Experts become more: exact where every copy of what was chosen is chosen, and its shares add up alike."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import save
from judging import run
from models import stored
from routers import ROUTERS, E, F, H, K, router
from test_experts import ALL, GIVEN_OUT, mixture, weights

import growc
from growc.errors.diagnostic import GrowError
from growc.passes.solving.choices import shares

TWICE = "widen experts to 2 * experts with neighbor copy top 4"
SOFTMAX = "softmax, then the best"


def x(rows: int = 40) -> dict[str, np.ndarray]:
    return {"ids": np.random.default_rng(3).standard_normal((rows, H)).astype(np.float32)}


def difference(before: Path, after: Path) -> float:
    a, b = (run(path, x())["y"] for path in (before, after))
    return float(np.abs(a - b).max() / np.abs(a).max())


@pytest.mark.parametrize("name", ROUTERS)
@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_the_certificate_says_what_the_router_does(tmp_path: Path, name: str, scale: float) -> None:
    source = router(tmp_path / "m.onnx", name, scale)
    done = growc.apply(TWICE, source, tmp_path / "out.onnx", check=False)
    assert done.plan.certificate.exact == ROUTERS[name][-1]
    if done.plan.certificate.exact:
        assert difference(source, done.written) < 2e-6
    else:
        assert difference(source, done.written) > 1e-4


@pytest.mark.parametrize("fill", ["neighbor copy", "cyclic copy", "last copy", "random fill", "average fill"])
@pytest.mark.parametrize("top", ["", "top 3", "top 4", "top 10"])
def test_more_experts_are_exact_only_where_all_copies_are_chosen(tmp_path: Path, fill: str, top: str) -> None:
    source = router(tmp_path / "m.onnx", SOFTMAX)
    plan = growc.plan(f"widen experts to 2 * experts with {fill} {top}", source)
    equal = fill in ("neighbor copy", "cyclic copy", "average fill")
    assert plan.certificate.exact == (equal and top == "top 4")
    if not plan.certificate.exact:
        assert plan.certificate.gaps[0].op == "TopK"


@pytest.mark.parametrize(
    "option", ["split random", "noise 0.1 balanced", "noise 0.1 on copies", "with zero outputs"]
)
def test_options_on_readers_change_no_experts_and_a_note_says_so(tmp_path: Path, option: str) -> None:
    source = router(tmp_path / "m.onnx", SOFTMAX)
    recipe = f"widen experts to 2 * experts with neighbor copy {option} top 4"
    plain, done = (
        growc.apply(r, source, tmp_path / f"{k}.onnx", check=False) for k, r in enumerate((TWICE, recipe))
    )
    assert f"`{option}` changes nothing: no weight reads `experts`" in done.plan.notes
    assert not plain.plan.notes
    before, after = stored(plain.written), stored(done.written)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert done.plan.alike[0].remedy.startswith("`noise 0.01` lets")


@pytest.mark.parametrize(
    ("fill", "top", "told"),
    [
        ("cyclic copy", "top 4", True),
        ("average fill", "top 4", True),
        ("neighbor copy", "top 4", False),
        ("cyclic copy", "", False),
    ],
)
def test_a_note_says_where_equal_scores_are_chosen_in_another_order(
    tmp_path: Path, fill: str, top: str, told: bool
) -> None:
    plan = growc.plan(f"widen experts to 2 * experts with {fill} {top}", router(tmp_path / "m.onnx", SOFTMAX))
    assert any("of equal score" in note for note in plan.notes) == told


def test_experts_that_are_not_more_but_chosen_more_often_are_a_change(tmp_path: Path) -> None:
    plan = growc.plan(f"widen experts to {E} with neighbor copy top 3", router(tmp_path / "m.onnx", SOFTMAX))
    assert not plan.certificate.exact
    assert "changes nothing" not in str(plan)


def test_networks_biases_and_router_are_copies(tmp_path: Path) -> None:
    source = router(tmp_path / "m.onnx", "scores chosen by others")
    out = growc.apply(TWICE, source, tmp_path / "out.onnx").written
    before, made = stored(source), stored(out)
    for name, axis in (("router", 1), ("bias", 0), ("up", 0), ("down", 0)):
        np.testing.assert_array_equal(made[name], before[name].repeat(2, axis=axis))
    [chosen] = (node.input[1] for node in onnx.load(out).graph.node if node.op_type == "TopK")
    np.testing.assert_array_equal(made[chosen], [2 * K])


@pytest.mark.parametrize("top", ["", "top 3"])
def test_copies_that_are_not_chosen_together_are_drawn_apart(tmp_path: Path, top: str) -> None:
    """By the formula N(0, 0.01 std) on the rows of copies: the originals stay, and networks are copies."""
    source = router(tmp_path / "m.onnx", SOFTMAX)
    recipe = f"widen experts to 2 * experts with cyclic copy {top}"
    done = [growc.apply(recipe, source, tmp_path / f"{k}.onnx", check=False).written for k in range(2)]
    before, made = stored(source), stored(done[0])
    apart = made["router"][:, E:] - before["router"]
    np.testing.assert_array_equal(made["router"][:, :E], before["router"])
    assert (apart != 0).all()
    assert 0.005 < apart.std() / before["router"].std() < 0.02
    np.testing.assert_array_equal(made["up"][E:], before["up"])
    np.testing.assert_array_equal(made["router"], stored(done[1])["router"])


def test_equal_scores_are_broken_as_in_the_source(tmp_path: Path) -> None:
    """Beside their originals, the copies of the first of equals are chosen before the next one."""
    values = weights()
    values["router"][:] = values["router"][:, :1]
    values["bias"][:] = 0
    source = mixture(tmp_path / "m.onnx", **values)
    made = growc.apply(TWICE, source, tmp_path / "out.onnx", check=False).written
    feeds = {"x": x()["ids"]}
    np.testing.assert_allclose(run(made, feeds)["y"], run(source, feeds)["y"], rtol=1e-5, atol=1e-5)


def test_one_statement_after_the_other(tmp_path: Path) -> None:
    source = router(tmp_path / "m.onnx", "sigmoid of the best, which sum to one")
    recipe = (
        f"{TWICE}\nreorder experts by random seed 3\nwiden experts to 3 * experts with cyclic copy top 12"
    )
    done = growc.apply(f"{recipe}\nexpect exact\nexpect experts == 30", source, tmp_path / "out.onnx")
    assert difference(source, done.written) < 2e-6
    with pytest.raises(GrowError, match="chooses 4 of them"):
        growc.plan(f"{TWICE}\nsubclone experts to 3 by first", source)


def test_the_rest_grows_beside(tmp_path: Path) -> None:
    source = router(tmp_path / "m.onnx", "softmax over the best")
    recipe = f"widen ffn to 2 * ffn with uniform copy split random\n{TWICE}\nexpect exact"
    done = growc.apply(recipe, source, tmp_path / "out.onnx")
    assert difference(source, done.written) < 5e-6
    assert stored(done.written)["up"].shape == (2 * E, H, 2 * F)


def test_a_claim_that_is_false_is_refuted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = router(tmp_path / "m.onnx", "sigmoid of the best")
    monkeypatch.setattr(shares, "choice_gaps", lambda axes, solution: [])
    monkeypatch.setattr("growc.passes.solving.statements.choice_gaps", lambda axes, solution: [])
    with pytest.raises(GrowError, match="exact"):
        growc.apply(TWICE, source, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


DENSE = re.sub(r"\bx\b", "ids", ALL).replace("Relu(l)", "Softmax <axis = -1> (l)")


def test_experts_that_all_run_share_out_among_copies(tmp_path: Path) -> None:
    source = save(tmp_path / "m.onnx", DENSE, outer=np.array([0]), behind=np.array([2]))
    done = growc.apply("widen experts to 15 with cyclic copy\nexpect exact", source, tmp_path / "out.onnx")
    assert difference(source, done.written) < 2e-6
    with pytest.raises(GrowError, match="nothing chooses from `experts`"):
        growc.plan(TWICE, source)
    assert not growc.plan("widen experts to 8 with uniform copy", source).certificate.exact


WRONG = {
    "more than there are": (TWICE.replace("top 4", "top 11"), "11 of 10 units"),
    "none": ("widen experts to 2 * experts with cyclic copy top experts - 5", "0 of 10 units"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_number_that_cannot_be_chosen_is_refused(tmp_path: Path, case: str) -> None:
    recipe, message = WRONG[case]
    with pytest.raises(GrowError, match=message):
        growc.plan(recipe, router(tmp_path / "m.onnx", SOFTMAX))


def test_numbers_that_are_given_out_stay(tmp_path: Path) -> None:
    with pytest.raises(GrowError, match="TopK reads this axis"):
        growc.plan(TWICE, mixture(tmp_path / "m.onnx", GIVEN_OUT, **weights()))


def test_shares_that_are_given_out_keep_their_number(tmp_path: Path) -> None:
    from test_experts import MIXTURE

    text = MIXTURE.replace("(float[N, 6] y)", "(float[N, 6] y, float[N, 2] w)")
    with pytest.raises(GrowError, match="gives it out"):
        growc.plan(TWICE, mixture(tmp_path / "m.onnx", text, **weights()))
