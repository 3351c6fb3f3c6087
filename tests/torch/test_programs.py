"""`.pt2` files come in and go out whole; no code in them is run."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from growc.dialects.torch.capture.export import run
from growc.dialects.torch.programs.load import load, save
from growc.errors.diagnostic import GrowError


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0, 4.0]), persistent=False)
        self.register_buffer("shift", torch.ones(9))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(ids) * self.scale).flatten(1) + self.shift.repeat(ids.shape[1])


@pytest.fixture
def program(tmp_path) -> Path:
    torch.manual_seed(0)
    save(tmp_path / "tied.pt2", Tied().eval(), (torch.zeros(2, 5, dtype=torch.long),))
    return tmp_path / "tied.pt2"


def changed(path: Path, name: str, change) -> Path:
    """The file with another content of the member whose name ends like this."""
    made = path.with_name("changed.pt2")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as new:
        assert any(entry.endswith(name) for entry in old.namelist())
        for entry in old.namelist():
            content = old.read(entry)
            new.writestr(entry, change(content) if entry.endswith(name) else content)
    return made


class Touch:
    """An object whose pickle makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def refusal(path: Path) -> str:
    with pytest.raises(GrowError) as caught:
        load(path)
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.code == "G310"
    return diagnostic.message


def test_a_saved_program_computes_the_same_at_all_sizes(program):
    torch.manual_seed(0)
    module, captured = Tied().eval(), load(program)
    ids = torch.randint(0, 9, (3, 7))
    made = run(captured, captured.program.state_dict.__getitem__, (ids,))
    torch.testing.assert_close(made, module(ids), rtol=0, atol=0)


def test_a_file_knows_its_ties_constants_and_free_sizes(program):
    captured = load(program)
    assert captured.names == {
        "table.weight": "table.weight",
        "head.weight": "table.weight",
        "shift": "shift",
    }
    assert list(captured.constants) == ["scale"]
    assert sorted(captured.symbols.values()) == ["batch", "sequence"]


def test_a_pickle_with_code_is_refused_and_not_run(program, tmp_path):
    trap = tmp_path / "trap"
    message = refusal(changed(program, "sample_inputs/model.pt", lambda _: pickle.dumps(Touch(trap))))
    assert not trap.exists()
    assert "weights_only" in message.lower() or "weights only" in message.lower()


def test_a_pickled_object_among_the_constants_is_refused(program):
    def with_object(content: bytes) -> bytes:
        config = json.loads(content)
        for payload in config["config"].values():
            payload["path_name"] = "opaque_obj_0"
        return json.dumps(config).encode()

    assert "pickled objects" in refusal(changed(program, "constants_config.json", with_object))


@pytest.mark.parametrize("size", ["exec(chr(49))", "s7.__class__", "Abs('exec(1)')", "open(s7)"])
def test_a_size_that_is_no_arithmetic_is_refused(program, size):
    def with_size(content: bytes) -> bytes:
        model = json.loads(content)
        meta = model["graph_module"]["graph"]["tensor_values"]["ids"]
        meta["sizes"][0]["as_expr"]["expr_str"] = size
        return json.dumps(model).encode()

    assert "no arithmetic" in refusal(changed(program, "models/model.json", with_size))


def test_a_call_that_is_no_operator_of_torch_is_refused(program):
    def calling(content: bytes) -> bytes:
        return content.replace(b"torch.ops.aten.flatten.using_ints", b"torch.ops.load_library")

    assert "not an allowed operator" in refusal(changed(program, "models/model.json", calling))


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / "broken.pt2").write_bytes(b"PK\x03\x04 nothing")
    assert "cannot be read as a program" in refusal(tmp_path / "broken.pt2")


class Angles(nn.Module):
    """A part without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            a, b = x.sin() + self.up.bias[:4], x.cos()
        return self.up(x * a + b)


def test_calls_without_gradients_are_inlined_in_the_graph(tmp_path):
    module, x = Angles().eval(), torch.randn(3, 4)
    program = torch.export.export(module, (x,))
    assert any("grad" in str(node.target) for node in program.graph.nodes)
    torch.export.save(program, tmp_path / "angles.pt2")
    captured = load(tmp_path / "angles.pt2")
    assert not any("grad" in str(node.target) for node in captured.program.graph.nodes)
    made = run(captured, captured.program.state_dict.__getitem__, (x,))
    torch.testing.assert_close(made, module(x), rtol=0, atol=0)
