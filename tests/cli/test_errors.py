"""Errors about a model, a judgement or the system, as text: golden/CODE-….txt, at least one for each code."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from graphs import MLP, STREAM, TRANSLATOR, save

from growc.errors.codes import CODES
from growc.verification.verify import Verification

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parent.parent.parent

BUGS = {"G900"}
"""Its message names a file; test_exit_status.py has it."""

IN_PROGRAMS = {"G316", "G317", "G318", "G319", "G320", "G321", "G406"}
"""Codes that the command line does not reach; tests/torch has them."""

MIXTURE = ROOT / "examples/models/tiny-mixture.onnx"
FROZEN = STREAM.replace("x1 = Add(x0, db)", "s1 = Add(x0, db)\n x1 = Hardmax <axis = -1> (s1)")
TAPPED = """
tapped (float[N, 8] x0) => (float[N, 8] y, float[N, 8] deep)
<float[8] g0, float[8, 12] u0, float[12, 8] d0, float[8] g1, float[8, 12] u1, float[12, 8] d1,
 float[8] g2, float[8, 12] u2, float[12, 8] d2, float[8, 8] head, float[12, 8] probe>
{
    n0 = LayerNormalization <axis = -1> (x0, g0)
    a0 = MatMul(n0, u0)
    r0 = Relu(a0)
    b0 = MatMul(r0, d0)
    x1 = Add(x0, b0)
    n1 = LayerNormalization <axis = -1> (x1, g1)
    a1 = MatMul(n1, u1)
    r1 = Relu(a1)
    b1 = MatMul(r1, d1)
    x2 = Add(x1, b1)
    n2 = LayerNormalization <axis = -1> (x2, g2)
    a2 = MatMul(n2, u2)
    r2 = Relu(a2)
    b2 = MatMul(r2, d2)
    x3 = Add(x2, b2)
    y = MatMul(x3, head)
    deep = MatMul(r1, probe)
}
"""
BLOCKED = """
blocked (float[N, 8, 4, 4] x) => (float[N, 8, 4, 4] y) <float[8, 8, 1, 1] w>
{
    y = com.microsoft.nchwc.Conv(x, w)
}
"""
PLAIN = "plain (float[N, 8] x) => (float[N, 4] y) <float[8, 4] w> { y = MatMul(x, w) }"
WRONG = MLP.replace("float[8, 3] fc2_weight", "float[9, 3] fc2_weight")


def plan(statement: str, model: str = "stream.onnx") -> list[str]:
    return ["plan", "-e", statement, model]


CASES: dict[str, list[str]] = {
    "G200-no-command": ["aply", "stream.onnx"],
    "G200-no-recipe": ["plan", "stream.onnx"],
    "G200-option": ["plan", "--al", "r.grow", "stream.onnx"],
    "G200-no-inputs": ["verify", "stream.onnx", "other.onnx", "--inputs", "nosuch.npz"],
    "G200-other-kind": ["apply", "-e", "untie head", "stream.onnx", "-o", "out.pt2"],
    "G213-missing": ["plan", "nosuch.grow", "stream.onnx"],
    "G301-two-sizes": [
        *plan("widen ffn to 24 with tail copy"),
        "-e",
        'widen axis 1 of "up_weight" to 36 with tail copy',
    ],
    "G302-no-such-axis": plan("widen heads to 8 with tail copy"),
    "G200-prefix-share": ["apply", "--prefix", "1/3", "nested.onnx"],
    "G200-prefix-axis": ["apply", "--prefix", "heads=3", "nested.onnx"],
    "G200-prefix-of-nothing": ["apply", "--prefix", "1/2", "stream.onnx"],
    "G302-upcycle": plan("upcycle ffn to experts 4 top 2 with cyclic copy", "plain.onnx"),
    "G303-merge": plan("merge experts to 16 by mean", str(MIXTURE)),
    "G303-smaller": plan("widen ffn to 6 with tail copy"),
    "G303-budget": plan("subclone to parameters <= 9 over ffn by magnitude"),
    "G303-total": plan("subclone ffn to total 99 by magnitude"),
    "G304-upcycle": plan("upcycle ffn to experts 4 top 2 with cyclic copy", "tapped.onnx"),
    "G304-upcycle-twice": [
        *plan("upcycle ffn to experts 4 top 2 with cyclic copy"),
        "-e",
        "upcycle ffn to experts 2 top 1 with cyclic copy",
    ],
    "G304-frozen": plan("widen hidden to 16 with tail copy", "frozen.onnx"),
    "G304-input": plan('widen axis 0 of "fc1_weight" to 8 with tail copy', "mlp.onnx"),
    "G305-merge": plan("merge experts to 3 by mean", str(MIXTURE)),
    "G305-blocks": plan("widen ffn to 20 with tail copy in blocks of 3"),
    "G306-no-such-parameter": plan('widen axis 0 of "up.*" to 24 with tail copy'),
    "G306-no-such-number": plan('widen axis 2 of "up_weight" to 24 with tail copy'),
    "G307-no-scope": plan("in encoder { widen ffn to 24 with tail copy }"),
    "G307-outside": plan("in encoder { widen vocab to 24 with tail copy }", "translator.onnx"),
    "G307-nothing-there": plan('in "up*" { widen vocab to 24 with tail copy }'),
    "G308-unaccounted": plan("widen ffn to 24 with tail copy"),
    "G309-blocked": ["inspect", "blocked.onnx"],
    "G310-folder": ["inspect", "."],
    "G310-missing": ["inspect", "nosuch.onnx"],
    "G310-no-model": ["inspect", "text.onnx"],
    "G311-invalid": ["inspect", "wrong.onnx"],
    "G312-budget": plan("subclone to parameters <= 300 over ffn by magnitude multiples of ffn / 5"),
    "G312-not-whole": plan("widen hidden to 4 * hidden / 3 with average fill"),
    "G313-numbered": plan('subclone axis 0 of "table" to 8 by magnitude'),
    "G314-needed": plan("drop layers 1", "tapped.onnx"),
    "G315-too-late": [*plan("subclone ffn to 6 by first"), "-e", 'measure importance on "inputs.npz"'],
    "G322-replay": ["replay", "grown.onnx", "other.onnx", "-o", "again.onnx"],
    "G323-missing": [
        "plan",
        "-e",
        'measure importance on "calibration.npz"',
        "-e",
        "subclone ffn to 6 by importance",
        "stream.onnx",
    ],
    "G323-missing-by-loss": [
        "plan",
        "-e",
        'measure importance on "calibration.npz"',
        "-e",
        "subclone layers to 1 by loss",
        "tapped.onnx",
    ],
    "G324-nodes": [*plan("untie head"), "--limit", "nodes=3"],
    "G325-changed": ["apply", "-e", "untie head", "stream.onnx"],
    "G326-infinite": ["apply", "-e", "widen hidden to 12 with average fill", "infinite.onnx", "--no-verify"],
    "G401-exact": [*plan("widen hidden to 12 with neighbor copy"), "-e", "expect exact"],
    "G401-sizes": [*plan("expect ffn == 13"), "-e", "expect parameters < 1K", "-e", "expect parameters > 1K"],
    "G401-preserved": [
        "apply",
        "-e",
        "widen hidden to 12 with neighbor copy",
        "-e",
        "expect preserved within 1e-5",
        "stream.onnx",
    ],
    "G402-refuted": ["apply", "-e", "widen ffn to 24 with tail copy", "stream.onnx"],
    "G403-cannot-run": [
        "apply",
        "-e",
        "widen ffn to 24 with tail copy",
        "stream.onnx",
        "--inputs",
        "inputs.npz",
    ],
    "G404-different": ["verify", "stream.onnx", "other.onnx"],
    "G405-not-formatted": ["fmt", "--check", "ugly.grow"],
    "G501-exists": ["apply", "-e", "untie head", "stream.onnx", "-o", "text.onnx"],
    "G501-itself": ["apply", "-e", "untie head", "stream.onnx", "-o", "stream.onnx"],
    "G502-no-folder": ["apply", "-e", "untie head", "stream.onnx", "-o", "nosuch/out.onnx"],
    "G503-interrupted": ["plan", "-e", "untie head", "stream.onnx"],
}


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def differ(*_: object, **__: object) -> Verification:
    return Verification(0.5, 0.25, 1e-7, 2, {}, (), frozenset())


NUMBERS = count()
PATCHES: dict[str, tuple[str, Callable[..., object]]] = {
    "G308-unaccounted": ("growc.dialects.onnx.repair.repair.ShapeRepair.fits", lambda *_: False),
    "G325-changed": ("growc.source_changes._identity", lambda _: (next(NUMBERS),)),
    "G402-refuted": ("growc.verification.verify.verify", differ),
    "G503-interrupted": ("growc.api.reading_of", interrupt),
}


@pytest.mark.parametrize("name", CASES)
def test_an_error_is_explained_as_agreed(name, growc, golden, tmp_path, monkeypatch):
    if name == "G310-folder":
        pytest.importorskip("transformers")
    save(tmp_path / "frozen.onnx", FROZEN)
    save(tmp_path / "wrong.onnx", WRONG)
    save(tmp_path / "plain.onnx", PLAIN)
    save(tmp_path / "blocked.onnx", BLOCKED)
    save(tmp_path / "tapped.onnx", TAPPED)
    save(tmp_path / "translator.onnx", TRANSLATOR)
    save(tmp_path / "infinite.onnx", STREAM, down_bias=np.full(8, -np.inf, np.float32))
    save(tmp_path / "other.onnx", STREAM, norm1_bias=np.ones(8, np.float32))
    if name.startswith("G200-prefix"):
        growc("apply", "-e", "nest ffn by magnitude at 1/2", "stream.onnx", "-o", "nested.onnx")
    if name == "G322-replay":
        wider = STREAM.replace("12]", "14]").replace("12, 8]", "14, 8]")
        growc("apply", "-e", "untie head", save(tmp_path / "wide.onnx", wider), "-o", "grown.onnx")
    (tmp_path / "text.onnx").write_text("hello")
    (tmp_path / "ugly.grow").write_text("untie   head\n")
    np.savez(tmp_path / "inputs.npz", token=np.zeros(3, np.int64))
    if name in PATCHES:
        if name == "G402-refuted":
            monkeypatch.setattr(Verification, "refuting", lambda self: ("", self))
        monkeypatch.setattr(*PATCHES[name])
    run = growc(*CASES[name])
    code = name[:4]
    assert run.status == CODES[code].status
    assert f"error[{code}]" in run.err
    # Measured numbers depend on the processor.
    golden(GOLDEN / f"{name}.txt", re.sub(r"\d\.\de-\d\d", "#", run.err))


def test_every_golden_file_belongs_to_a_case():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(CASES)


def test_every_code_that_is_raised_is_shown_somewhere():
    sources = [p for folder in ("growc", "grammar", "passes") for p in (ROOT / folder).rglob("*.py")]
    texts = [path.read_text() for path in sources]
    raised = {code for text in texts for code in re.findall(r'"(G\d\d\d)"', text)}
    shown = {name[:4] for name in CASES} | BUGS | IN_PROGRAMS
    assert raised - shown == {c for c in CODES if c < "G3"} - {
        "G200",
        "G213",
    }
    assert set(CODES) == raised
