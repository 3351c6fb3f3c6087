"""Which files a command opens, and which it replaces: names inside of models, links, pipes, and options."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from downloads import cached
from graphs import STREAM, save

SECRET = bytes(range(256)) * 64
WIDEN = ["apply", "-e", "widen ffn to 24 with tail copy", "m.onnx"]
LARGE = STREAM.replace("float[16, 8] table", "float[512, 8] table").replace("float[N, 16]", "float[N, 512]")


def outside(model: Path, place: str) -> None:
    """Let all that a model keeps in another file stand in `place` instead."""
    proto = onnx.load(model, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = place
    onnx.save(proto, model)


def stream(folder: Path) -> Path:
    """`m.onnx` and `m.onnx.data` in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return save(folder / "m.onnx", LARGE, external=True)


def data_of(model: Path) -> str:
    proto = onnx.load(model, load_external_data=False)
    return next(e.value for t in proto.graph.initializer for e in t.external_data if e.key == "location")


@pytest.mark.parametrize("way", ["up", "absolute", "link", "linked folder", "folder"])
@pytest.mark.parametrize("options", [[], ["--no-verify"]])
def test_data_outside_of_the_models_folder_is_not_opened(growc, tmp_path, way, options):
    model = stream(tmp_path)
    (tmp_path / "inner").mkdir()
    data = tmp_path / data_of(model)
    secret = tmp_path.parent / f"{tmp_path.name}.secret"
    data.rename(secret)
    (tmp_path / "link.data").symlink_to(secret)
    (tmp_path / "linked").symlink_to(tmp_path.parent)
    names = {
        "up": f"../{secret.name}",
        "absolute": str(secret),
        "link": "link.data",
        "linked folder": f"linked/{secret.name}",
        "folder": "inner",
    }
    outside(model, names[way])
    ran = growc(*WIDEN, *options)
    assert ran.status == 3
    assert "G310" in ran.err
    assert names[way] in ran.err
    assert not (tmp_path / "m.grown.onnx").exists()


def constant(location: str, where: str) -> onnx.ModelProto:
    """A model whose one external tensor stands in an attribute, in a body, or in a sparse tensor."""
    tensor = onnx.TensorProto(dims=[4], data_type=1, name="c", data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x, bool b) => (float[N, 4] y)'
        "{ c = Constant <value = float[4] {1, 2, 3, 4}> () y = Add(x, c) }"
    )
    [held] = model.graph.node[0].attribute
    if where == "sparse":
        sparse = onnx.SparseTensorProto(values=tensor, dims=[4])
        sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.arange(4)))
        held.name, held.type = "sparse_value", onnx.AttributeProto.SPARSE_TENSOR
        held.ClearField("t")
        held.sparse_tensor.CopyFrom(sparse)
    else:
        held.t.CopyFrom(tensor)
    if where == "body":
        body = onnx.GraphProto(name="body", node=model.graph.node)
        body.output.add(name="y").type.tensor_type.elem_type = 1
        branch = onnx.helper.make_node("If", ["b"], ["y"], then_branch=body, else_branch=body)
        del model.graph.node[:]
        model.graph.node.append(branch)
    return model


@pytest.mark.parametrize("where", ["attribute", "body", "sparse"])
def test_a_tensor_in_an_attribute_names_no_file_outside(growc, tmp_path, where):
    secret = tmp_path.parent / f"{tmp_path.name}.secret"
    secret.write_bytes(SECRET)
    onnx.save(constant(f"../{secret.name}", where), tmp_path / "m.onnx")
    for command in ("inspect", "apply"):
        ran = growc(*(WIDEN[:3] if command == "apply" else [command]), "m.onnx")
        assert ran.status == 3
        assert f"../{secret.name}" in ran.err


def test_a_tensor_in_an_attribute_may_lie_in_a_file_beside_the_model(growc, tmp_path):
    (tmp_path / "c.data").write_bytes(np.array([4, 3, 2, 1], np.float32).tobytes())
    onnx.save(constant("c.data", "attribute"), tmp_path / "m.onnx")
    (tmp_path / "out").mkdir()
    ran = growc("apply", "-e", "expect preserved within 1e-6", "m.onnx", "-o", "out/m.onnx")
    assert ran.status == 0, ran.err
    [held] = [n for n in onnx.load(tmp_path / "out/m.onnx").graph.node if n.op_type == "Constant"]
    assert onnx.numpy_helper.to_array(held.attribute[0].t).tolist() == [4, 3, 2, 1]


def test_a_cache_keeps_model_and_data_as_links_into_one_folder(growc, tmp_path):
    model = stream(tmp_path / "plain")
    data = data_of(model)
    snapshot = cached(tmp_path / "cache", {"onnx/m.onnx": model, f"onnx/{data}": model.with_name(data)})
    ran = growc(*WIDEN[:3], snapshot / "onnx/m.onnx", "-o", tmp_path / "out.onnx", "--json")
    assert ran.status == 0
    assert ran.json["verification"]["cases"] > 0


def test_a_model_that_is_a_link_has_its_data_where_it_stands(growc, tmp_path):
    model = stream(tmp_path / "plain")
    (tmp_path / "m.onnx").symlink_to(model)
    assert growc(*WIDEN, "--json").json["verification"]["cases"] > 0


def test_data_may_be_a_hard_link_or_lie_below_the_model(growc, tmp_path):
    model = stream(tmp_path)
    data = tmp_path / data_of(model)
    (tmp_path / "below").mkdir()
    data.rename(tmp_path / "below/d")
    os.link(tmp_path / "below/d", tmp_path / "hard")
    for place in ("hard", "below/d", "./below/../hard"):
        outside(model, place)
        assert growc(*WIDEN, "--force").status == 0, place


def test_measuring_runs_a_model_of_a_cache(growc, tmp_path):
    model = stream(tmp_path / "plain")
    data = data_of(model)
    snapshot = cached(tmp_path / "cache", {"m.onnx": model, data: model.with_name(data)})
    name = onnx.load(model, load_external_data=False).graph.input[0].name
    np.savez(tmp_path / "x.npz", **{name: np.arange(10)})
    ran = growc("measure", snapshot / "m.onnx", "--inputs", "x.npz", "-o", "s.npz", "--json")
    assert ran.status == 0
    assert len(ran.json["scores"]["ffn.0"]) == 12


# ---------------------------------------------------------------------------- one part for each file


def recipe(folder: Path) -> None:
    """`r.grow`, which includes `i.grow` and names `keep.txt` and `x.npz`."""
    (folder / "i.grow").write_text("widen ffn to 24 with tail copy\n")
    (folder / "keep.txt").write_text("\n".join(map(str, range(6))))
    np.savez(folder / "x.npz", tokens=np.arange(6))
    lines = ('measure importance on "x.npz"', 'include "i.grow"', 'subclone vocab to 6 by keep "keep.txt"')
    (folder / "r.grow").write_text("\n".join(lines) + "\n")


READ = ["m.onnx", "m.onnx.data", "r.grow", "i.grow", "keep.txt", "x.npz", "given.npz"]
WRITTEN = ["out.onnx", "out.grown.json", "m.importance.npz"]


SPELT = [("m.onnx", "other"), ("r.grow", "link"), ("m.onnx.data", "hard link"), ("out.onnx", "link")]


@pytest.mark.parametrize(("name", "spelling"), [*((name, "plain") for name in READ + WRITTEN), *SPELT])
def test_the_lineage_replaces_nothing_that_the_run_reads_or_writes(growc, tmp_path, name, spelling):
    stream(tmp_path)
    recipe(tmp_path)
    shutil.copy(tmp_path / "x.npz", tmp_path / "given.npz")
    place = tmp_path / name
    if spelling == "other":
        place = tmp_path / ".." / tmp_path.name / name
    elif "link" in spelling:
        place = tmp_path / "link"
        place.symlink_to(tmp_path / name) if spelling == "link" else place.hardlink_to(tmp_path / name)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    arguments = ["apply", "r.grow", "m.onnx", "-o", "out.onnx", "--inputs", "given.npz"]
    ran = growc(*arguments, "--lineage", place, "--force")
    assert ran.status == 2
    assert "G200" in ran.err
    assert "--lineage" in ran.err
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before


def test_the_target_replaces_the_model_and_no_other_file_that_is_read(growc, tmp_path):
    model = stream(tmp_path)
    data = tmp_path / data_of(model)
    data.rename(tmp_path / "data")
    outside(model, "data")
    assert growc(*WIDEN, "-o", "data", "--force").status == 2
    recipe(tmp_path)
    (tmp_path / "r.grow").rename(tmp_path / "r.onnx")
    assert growc("apply", "r.onnx", "m.onnx", "-o", "r.onnx", "--force").status == 2
    assert growc(*WIDEN, "-o", "m.onnx", "--force").status == 0


def test_a_measurement_replaces_neither_its_inputs_nor_the_model(growc, tmp_path):
    stream(tmp_path)
    np.savez(tmp_path / "x.npz", tokens=np.arange(10))
    for name in ("x.npz", "m.onnx", "m.onnx.data"):
        ran = growc("measure", "m.onnx", "--inputs", "x.npz", "-o", name, "--force")
        assert ran.status == 2, ran.err
    shutil.copy(tmp_path / "x.npz", tmp_path / "m.importance.npz")
    assert growc("measure", "m.onnx", "--inputs", "m.importance.npz").status == 2


def test_files_of_their_own_and_a_second_run_are_no_conflict(growc, tmp_path):
    stream(tmp_path)
    recipe(tmp_path)
    for _ in range(2):
        ran = growc("apply", "r.grow", "m.onnx", "--inputs", "x.npz", "--lineage", "m.lineage.json")
        assert ran.status == 0, ran.err


def test_a_list_of_units_is_never_quoted(growc, tmp_path):
    (tmp_path / "shadow").write_text("root:secret\n")
    ran = growc("plan", "-e", 'subclone vocab to 6 by keep "shadow"', "stream.onnx")
    assert ran.status == 3
    assert "secret" not in ran.err
    assert "line 1" in ran.err


RESHAPED = """
reshaped (float[N, S, 8] x) => (float[N, S, 16] y)
<float[8, 12] up, float[12, 8] down, float[8] gain, float[8, 16] head>
{
    n = LayerNormalization <axis = -1> (x, gain)
    u = MatMul(n, up)
    r = Relu(u)
    d = MatMul(r, down)
    s = Add(x, d)
    t = Reshape(s, shape)
    h = MatMul(t, head)
    y = Mul(h, one)
}
"""


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """growc in a process of its own, where loggers have no reader but the terminal."""
    words = [sys.executable, "-m", "growc", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.soak
def test_all_tensors_in_a_file_beside_the_model_are_as_good_as_inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    constants = {"shape": np.array([0, 0, 8]), "one": np.float32(1)}
    save(tmp_path / "m.onnx", RESHAPED, external=True, **constants)
    save(tmp_path / "inside.onnx", RESHAPED, **constants)
    done = run(*WIDEN)
    assert (done.returncode, done.stderr) == (0, "")
    assert run("verify", "m.onnx", "m.grown.onnx").returncode == 0
    assert run("verify", "inside.onnx", "m.grown.onnx").returncode == 0
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).standard_normal((3, 2, 8)))
    done = run("measure", "m.onnx", "--inputs", "x.npz", "--layers")
    assert (done.returncode, done.stderr) == (0, "")


def test_wrong_declared_sizes_bring_no_logs_of_libraries(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "m.onnx", STREAM.replace("float[16, 8] table", "float[512, 8] table"))
    done = run(*WIDEN)
    assert "Traceback" not in done.stderr
    assert "inference failed" not in done.stderr.lower()
    model = onnx.load(tmp_path / "m.onnx")
    model.graph.node[0].input[0] = "nowhere\x1b"
    onnx.save(model, "m.onnx")
    assert run("inspect", "m.onnx").stderr == ""


# ---------------------------------------------------------------------------------- pipes and devices

PIPED = {
    "model": ["inspect", "pipe"],
    "model.onnx": ["inspect", "pipe.onnx"],
    "program": ["inspect", "pipe.pt2"],
    "recipe": ["plan", "pipe", "stream.onnx"],
    "checked": ["check", "pipe"],
    "inputs": ["apply", "-e", "widen ffn to 24 with tail copy", "stream.onnx", "--inputs", "pipe"],
    "measured": ["measure", "stream.onnx", "--inputs", "pipe"],
    "scores": ["measure", "stream.onnx", "--inputs", "x.npz", "-o", "pipe"],
    "calibration": ["plan", "-e", 'measure importance on "pipe"', "stream.onnx"],
    "keep": ["plan", "-e", 'subclone vocab to 4 by keep "pipe"', "stream.onnx"],
    "match": ["plan", "-e", 'match "pipe.json" with tail copy', "stream.onnx"],
    "matched model": ["plan", "-e", 'match "pipe.onnx" with tail copy', "stream.onnx"],
    "target": ["apply", "-e", "widen ffn to 24 with tail copy", "stream.onnx", "-o", "pipe.onnx", "--force"],
    "lineage": [
        "apply",
        "-e",
        "widen ffn to 24 with tail copy",
        "stream.onnx",
        "--lineage",
        "pipe",
        "--force",
    ],
    "result": ["verify", "stream.onnx", "pipe.onnx"],
}


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("what", PIPED)
def test_neither_pipes_nor_devices_are_opened(growc, tmp_path, what, kind):
    np.savez(tmp_path / "x.npz", tokens=np.arange(8))
    for name in ("pipe", "pipe.onnx", "pipe.pt2", "pipe.json"):
        os.mkfifo(tmp_path / name) if kind == "pipe" else (tmp_path / name).symlink_to("/dev/zero")
    ran = growc(*PIPED[what])
    assert ran.status in (2, 3, 4), ran.err
    assert "pipe" in ran.err


def test_an_initializer_that_is_there_twice_is_refused(growc, tmp_path):
    model = onnx.load(tmp_path / "stream.onnx")
    model.graph.initializer.append(model.graph.initializer[2])
    onnx.save(model, tmp_path / "stream.onnx")
    ran = growc("inspect", "stream.onnx")
    assert ran.status == 3
    assert f"`{model.graph.initializer[2].name}`" in ran.err
    assert "twice" in ran.err


def test_missing_calibration_data_are_named_with_their_line_and_nothing_else_is_blamed(growc, tmp_path):
    lines = ("# importance", 'measure importance on "nosuch.npz"', "subclone ffn to 6 by importance")
    (tmp_path / "r.grow").write_text("\n".join(lines))
    ran = growc("plan", "r.grow", "stream.onnx", "--json")
    assert ran.status == 3
    assert [(e["code"], e["line"]) for e in ran.json["errors"]] == [("G323", 2)]
    assert "nosuch.npz" in ran.json["error"]["message"]


def test_files_that_are_replaced_keep_their_modes_and_new_ones_heed_the_umask(growc, tmp_path):
    stream(tmp_path)
    before = os.umask(0o027)
    try:
        assert growc(*WIDEN, "-o", "made.onnx").status == 0
        made = tmp_path / "made.onnx"
        modes = {stat.S_IMODE(path.stat().st_mode) for path in (made, tmp_path / "made.grown.json")}
        assert modes == {0o640}
        made.chmod(0o604)
        assert growc(*WIDEN, "-o", "made.onnx").status == 0
        assert stat.S_IMODE(made.stat().st_mode) == 0o604
    finally:
        os.umask(before)
