"""Models that are measured while their weights stay in their files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import full_runs
import numpy as np
import pytest
from full_runs import anonymous
from graphs import save

import growc
from growc.verification import ort_session

LAYERS, WIDTH = 8, 2048
BYTES = LAYERS * WIDTH * WIDTH * 4

MEASURES = """
import os, sys
import growc
from full_runs import anonymous
from growc.verification import ort_session
ort_session.LARGE = int(sys.argv[1])
run, most = ort_session.Session.run, []
def watched(session, feeds):
    outputs = run(session, feeds)
    most.append(anonymous(os.getpid()))
    return outputs
ort_session.Session.run = watched
before = anonymous(os.getpid())
growc.measure('m.onnx', 'data.npz', sys.argv[2])
print(max(most) - before)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 128 MB, and data for it."""
    folder = tmp_path_factory.mktemp("large")
    weights = ", ".join(f"float[{WIDTH}, {WIDTH}] w{k}" for k in range(LAYERS))
    lines = [f"h{k} = MatMul({f'r{k - 1}' if k else 'x'}, w{k})  r{k} = Tanh(h{k})" for k in range(LAYERS)]
    graph = (
        f"m (float[b, {WIDTH}] x) => (float[b, {WIDTH}] r{LAYERS - 1}) <{weights}> {{ {' '.join(lines)} }}"
    )
    random = np.random.default_rng(0)
    values = {
        f"w{k}": random.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32) for k in range(LAYERS)
    }
    save(folder / "m.onnx", graph, external=True, **values)
    np.savez(folder / "data.npz", x=random.standard_normal((4, WIDTH)).astype(np.float32))
    return folder


@pytest.mark.skipif(not anonymous(os.getpid()), reason="the system does not say what is in memory")
@pytest.mark.parametrize(("large", "held"), [(0, False), (1 << 31, True)])
def test_memory_holds_weights_unless_they_are_large(folder: Path, large: int, held: bool) -> None:
    command = [sys.executable, "-c", MEASURES, str(large), f"{large}.npz"]
    paths = os.pathsep.join([str(Path(full_runs.__file__).parent), os.environ.get("PYTHONPATH", "")])
    own = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=True)
    assert (int(done.stdout) > BYTES / 2) == held, (done.stdout, BYTES)


def test_scores_are_the_same_within_rounding(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = growc.measure(folder / "m.onnx", folder / "data.npz", out=folder / "small.npz")
    monkeypatch.setattr(ort_session, "LARGE", 0)
    large = growc.measure(folder / "m.onnx", folder / "data.npz", out=folder / "large.npz")
    for one, other in zip(small.values(), large.values(), strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-5 * np.max(one))
