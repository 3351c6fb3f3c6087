"""`growc apply`: what is written, where, and what is left behind when nothing is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import STREAM, save

WIDER = "widen ffn to 24 with uniform copy split random"


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"stream.onnx", "mlp.onnx"}


def test_the_result_stands_beside_the_model_with_its_provenance(growc, tmp_path):
    run = growc(
        "apply", "-e", "let n = 2", "-e", "widen ffn to n * ffn with tail copy", "-p", "n=3", "stream.onnx"
    )
    assert run.status == 0
    assert files(tmp_path) == {"stream.grown.onnx", "stream.grown.json"}
    text = (tmp_path / "stream.grown.json").read_text()
    record = json.loads(text)
    assert record["recipe"] == ["let n = 2", "widen ffn to n * ffn with tail copy"]
    assert record["parameters"] == {"n": "3"}
    assert record["certificate"] == {"exact": True, "gaps": []}
    assert record["measured"] < 1e-5
    model = onnx.load(tmp_path / "stream.grown.onnx")
    assert {p.key: p.value for p in model.metadata_props} == {"growc": text}
    assert "written" not in text
    assert str(tmp_path) not in text
    assert run.out.endswith("Written: stream.grown.onnx\n")


def test_the_provenance_has_the_statements_of_included_recipes(growc, tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/ffn.grow").write_text("# the feed-forward part\nwiden ffn to 24 with tail copy\n")
    (tmp_path / "all.grow").write_text('include "parts/ffn.grow"\n\nexpect exact  # of course\n')
    growc("apply", "all.grow", "stream.onnx", "-o", "out.onnx")
    record = json.loads((tmp_path / "out.grown.json").read_text())
    assert record["recipe"] == ["widen ffn to 24 with tail copy", "expect exact"]


def test_the_same_recipe_gives_the_same_bytes(growc, tmp_path):
    for name in ("a", "b"):
        growc("apply", "-e", WIDER, "stream.onnx", "-o", f"{name}.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert (tmp_path / "a.grown.json").read_bytes() == (tmp_path / "b.grown.json").read_bytes()


def test_an_empty_recipe_copies_the_model_with_provenance(growc, tmp_path):
    (tmp_path / "empty.grow").write_text("")
    run = growc("apply", "empty.grow", "stream.onnx", "--json")
    assert run.json["verification"]["max_abs"] == 0
    before, after = (onnx.load(tmp_path / name) for name in ("stream.onnx", "stream.grown.onnx"))
    assert [p.key for p in after.metadata_props] == ["growc"]

    def nodes(model: onnx.ModelProto) -> list[object]:
        return [(n.op_type, list(n.input), list(n.output)) for n in model.graph.node]

    assert nodes(after) == nodes(before)
    assert {w.name: w.raw_data for w in after.graph.initializer} == {
        w.name: w.raw_data for w in before.graph.initializer
    }


@pytest.mark.parametrize("out", ["taken.onnx", "stream.onnx"])
def test_a_file_that_growc_did_not_make_is_replaced_only_by_force(growc, tmp_path, out):
    save(tmp_path / "taken.onnx", STREAM)
    before = (tmp_path / out).read_bytes()
    assert growc("apply", "-e", WIDER, "stream.onnx", "-o", out).status == 4
    assert (tmp_path / out).read_bytes() == before
    assert growc("apply", "-e", WIDER, "stream.onnx", "-o", out, "--force").status == 0
    assert growc("apply", "-e", "widen hidden to 36 with tail copy", "mlp.onnx", "-o", out).status == 3
    assert growc("apply", "-e", "widen vocab to 20 with zero fill", out, "-o", out).status == 0


def test_a_record_or_a_lineage_does_not_replace_a_users_file(growc, tmp_path):
    (tmp_path / "stream.grown.json").write_text("{}")
    assert growc("apply", "-e", WIDER, "stream.onnx").status == 4
    assert growc("apply", "-e", WIDER, "stream.onnx", "-o", "a.onnx", "--lineage", "mlp.onnx").status == 4
    assert files(tmp_path) == {"stream.grown.json"}


def test_external_data_has_its_digest_as_name_and_what_it_replaces_goes(growc, tmp_path):
    save(
        tmp_path / "outside.onnx", STREAM.replace("float[16, 8] table", "float[512, 8] table"), external=True
    )
    growc("apply", "-e", WIDER, "outside.onnx", "-o", "out.onnx")
    [first] = tmp_path.glob("out-*.data")
    assert len(first.stem.removeprefix("out-")) == 12
    growc("apply", "-e", "widen hidden to 16 with cyclic copy", "outside.onnx", "-o", "out.onnx")
    [second] = tmp_path.glob("out-*.data")
    assert first != second
    assert growc("verify", "outside.onnx", "out.onnx").status == 0
    assert (tmp_path / "outside.onnx.data").exists()


@pytest.mark.parametrize(
    ("recipe", "status"),
    [
        (["widen hidden to 12 with tail copy", "expect preserved within 1e-9"], 1),
        (["widen hidden to 12 with tail copy", "expect exact"], 1),
        (["widen hidden to 4 with tail copy"], 3),
        (["widen hidden too 4 with tail copy"], 2),
    ],
)
def test_nothing_is_left_behind_by_a_failure(growc, tmp_path, recipe, status):
    statements = [part for statement in recipe for part in ("-e", statement)]
    assert growc("apply", *statements, "stream.onnx", "--lineage", "lineage.json").status == status
    assert files(tmp_path) == set()


def test_a_commit_that_fails_puts_everything_back(growc, tmp_path, monkeypatch):
    growc("apply", "-e", WIDER, "stream.onnx", "--lineage", "lineage.json")
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    replace = Path.replace

    def full(self: Path, target: Path) -> Path:
        if Path(target).name == "stream.grown.onnx":
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    run = growc("apply", "-e", "widen ffn to 36 with tail copy", "stream.onnx", "--lineage", "lineage.json")
    assert run.status == 4
    assert "no space left" in run.err
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_exit_4(growc, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    assert growc("apply", "-e", WIDER, "stream.onnx", "-o", "closed/out.onnx").status == 4


def test_without_verification_there_is_a_reason(growc):
    run = growc("apply", "-e", WIDER, "stream.onnx", "--no-verify", "--json")
    assert run.json["verification"] is None
    assert run.json["reason"] == "switched off by --no-verify"


def test_preserved_is_measured_without_verification_too(growc):
    recipe = ["-e", "widen hidden to 12 with tail copy", "-e", "expect preserved within"]
    failed = growc("apply", *recipe[:-1], f"{recipe[-1]} 1e-9", "stream.onnx", "--no-verify", "--json")
    assert (failed.status, failed.json["error"]["code"]) == (1, "G401")
    done = growc("apply", *recipe[:-1], f"{recipe[-1]} 100", "stream.onnx", "--no-verify", "--json")
    assert done.status == 0
    assert done.json["verification"] is None
    assert "was measured" in done.json["reason"]


def test_inputs_are_those_of_the_file(growc, tmp_path):
    np.savez(tmp_path / "inputs.npz", tokens=np.arange(16))
    run = growc("apply", "-e", WIDER, "stream.onnx", "--inputs", "inputs.npz", "--json")
    assert run.status == 0
    assert run.json["verification"]["cases"] >= 1


def test_lineage_tells_where_every_unit_comes_from(growc, tmp_path):
    growc("apply", "-e", "widen ffn to 15 with tail copy", "stream.onnx", "--lineage", "lineage.json")
    data = json.loads((tmp_path / "lineage.json").read_text())
    up, down = data["weights"]["up_weight"], data["weights"]["down_weight"]
    assert up["shape"] == [8, 15]
    assert (up["axes"]["1"]["verb"], down["axes"]["0"]["verb"]) == ("makes", "reads")
    made, read = (data["maps"][w["axes"][k]["map"]] for w, k in ((up, "1"), (down, "0")))
    assert made["from"] == read["from"] == [*range(12), 9, 10, 11]
    assert made["factor"] == [1.0] * 15
    assert read["factor"] == [1.0] * 9 + [0.5] * 6
    assert made["new"] == [12, 13, 14]
    assert data["weights"]["table"]["axes"] == {}
