"""`.pt2` programs are grown from file to file: as torch loads and runs them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from agreement import built
from downloads import cached
from torch import nn
from torch.export import Dim

import growc
from growc import api
from growc.cli.main import main
from growc.dialects.torch.programs.guards import is_arithmetic
from growc.dialects.torch.programs.load import save
from growc.errors.diagnostic import GrowError
from growc.modules.check_against_plan import WAY

HIDDEN, VOCAB, PLACES = 8, 20, 16
ROWS, LENGTH = Dim("rows", max=50), Dim("length", min=3, max=PLACES)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 12), nn.Linear(12, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Text(nn.Module):
    """Ties, a buffer that no state dict holds, a flag, an argument by name, and results with names."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(VOCAB, HIDDEN), nn.Embedding(PLACES, HIDDEN)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCAB, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("factor", torch.rand(()) + 1, persistent=False)
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def forward(self, ids, twice=False, *, mask):
        x = self.table(ids) * self.factor + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return {"logits": self.head(self.norm(x)) * mask[..., None], "count": 2, "deep": [x]}


def arguments(rows: int, length: int) -> tuple[tuple, dict]:
    torch.manual_seed(rows)
    return (torch.randint(0, VOCAB, (rows, length)), False), {"mask": torch.rand(rows, length)}


@pytest.fixture
def text(tmp_path) -> Path:
    torch.manual_seed(0)
    module = Text().eval()
    args, kwargs = arguments(2, 5)
    shapes = {"ids": {0: ROWS, 1: LENGTH}, "twice": None, "mask": {0: ROWS, 1: LENGTH}}
    program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "text.pt2")
    return tmp_path / "text.pt2"


def loaded(path: Path) -> tuple[torch.export.ExportedProgram, nn.Module]:
    program = torch.export.load(path)
    return program, program.module()


def far(a: Path, b: Path, rows: int = 3, length: int = 7) -> float:
    args, kwargs = arguments(rows, length)
    with torch.no_grad():
        one, other = (loaded(p)[1](*args, **kwargs)["logits"] for p in (a, b))
    return float((one - other).norm() / one.norm())


def test_a_program_becomes_a_program_that_is_called_alike_and_computes_the_same(text):
    made = growc.apply("widen ffn to 18 with uniform copy split random", text)
    assert made.written == text.with_name("text.grown.pt2")
    assert made.plan.certificate.exact
    assert not made.verification.refutes_exact()
    assert made.verification.beside[WAY].relative < 1e-5
    assert far(text, made.written) < 1e-5
    before, after = loaded(text)[0], loaded(made.written)[0]
    assert after.call_spec == before.call_spec
    assert after.range_constraints == before.range_constraints
    assert list(after.state_dict) == list(before.state_dict)
    assert after.state_dict["blocks.1.up.weight"].shape == (18, HIDDEN)
    assert after.state_dict["head.weight"].data_ptr() == after.state_dict["table.weight"].data_ptr()
    assert list(after.constants) == ["factor"]
    assert made.verification.notes == made.remarks == ()


def test_a_program_in_a_cache_of_downloads_is_grown(text, tmp_path):
    snapshot = cached(tmp_path / "cache", {"text.pt2": text})
    made = growc.apply("widen ffn to 18 with average fill", snapshot / "text.pt2", tmp_path / "a.pt2")
    assert made.verification is not None
    assert far(text, made.written) < 1e-5


def test_the_same_growth_gives_the_same_bytes_and_says_how_it_came_to_be(text, tmp_path):
    for name in ("a", "b"):
        growc.apply("widen ffn to 18 with average fill", text, tmp_path / f"{name}.pt2")
    assert (tmp_path / "a.pt2").read_bytes() == (tmp_path / "b.pt2").read_bytes()
    record = (tmp_path / "a.grown.json").read_text()
    with zipfile.ZipFile(tmp_path / "a.pt2") as archive:
        [name] = [n for n in archive.namelist() if n.endswith("growc.json")]
        assert archive.read(name).decode() == record
    assert json.loads(record)["recipe"] == ["widen ffn to 18 with average fill"]


@pytest.mark.soak
def test_a_program_grown_twice_is_compared_with_its_first_source(text, tmp_path):
    growc.apply("subclone vocab to 12 by first", text, tmp_path / "once.pt2")
    growc.apply("widen ffn to 18 with uniform copy", tmp_path / "once.pt2", tmp_path / "twice.pt2")
    assert len(json.loads((tmp_path / "twice.grown.json").read_text())["earlier"]) == 1
    for source in (text, tmp_path / "once.pt2"):
        assert growc.verify(source, tmp_path / "twice.pt2").relative < 1e-5
    assert growc.verify(text, tmp_path / "twice.pt2").outputs["logits"].compared


def test_another_growth_of_the_same_file_takes_its_place_and_nothing_else_does(text, tmp_path):
    out = tmp_path / "out.pt2"
    growc.apply("widen ffn to 18 with uniform copy", text, out)
    growc.apply("widen ffn to 24 with uniform copy", text, out)
    assert torch.export.load(out).state_dict["blocks.0.up.weight"].shape == (24, HIDDEN)
    with pytest.raises(GrowError, match="is the model itself"):
        growc.apply("widen ffn to 18 with uniform copy", text, text)


def test_a_refusal_leaves_no_file(text, tmp_path):
    with pytest.raises(GrowError):
        growc.apply("widen hidden to 12 with tail copy\nexpect preserved within 1e-6", text)
    assert [path.name for path in tmp_path.iterdir()] == ["text.pt2"]


def test_a_verification_that_fails_says_so(text, tmp_path):
    other = tmp_path / "other.pt2"
    growc.apply("widen hidden to 12 with tail copy", text, other)
    assert growc.verify(text, other).relative > 1e-3


def test_given_inputs_are_those_that_are_run(text, tmp_path):
    np.savez(tmp_path / "in.npz", ids=np.zeros((4, 6), np.int64), mask=np.ones((4, 6), np.float32))
    made = growc.apply("widen ffn to 18 with uniform copy", text, inputs=tmp_path / "in.npz")
    assert made.verification.cases == 1
    np.savez(tmp_path / "in.npz", mask=np.ones((4, 6), np.float32))
    with pytest.raises(GrowError, match="lacks the input `ids`"):
        growc.apply("widen ffn to 18 with uniform copy", text, inputs=tmp_path / "in.npz")


def test_a_longer_table_of_positions_takes_longer_inputs(text):
    made = growc.apply("widen positions to 2 * positions with tail copy", text)
    program = loaded(made.written)[0]
    ranges = sorted((int(r.lower), int(r.upper)) for r in program.range_constraints.values())
    assert ranges == [(0, 50), (3, 2 * PLACES)]
    args, kwargs = arguments(2, 2 * PLACES)
    assert loaded(made.written)[1](*args, **kwargs)["logits"].shape == (2, 2 * PLACES, VOCAB)


def test_layers_stand_in_modules_of_their_own(text):
    made = growc.apply("stack layers to 3 by last with zero outputs", text)
    assert far(text, made.written) < 1e-5
    program = torch.export.load(made.written)
    assert program.state_dict["blocks.2.up.weight"].shape == (12, HIDDEN)
    args, kwargs = arguments(3, 7)
    whole = torch.export.unflatten(program)
    assert {f"blocks.{k}.{part}" for k in range(3) for part in ("norm", "up", "down")} <= {
        name for name, _ in whole.named_modules()
    }
    expected = loaded(text)[1](*args, **kwargs)["logits"]
    torch.testing.assert_close(whole(*args, **kwargs)["logits"], expected, rtol=1e-4, atol=1e-4)
    deeper = growc.apply("widen ffn to 24 with uniform copy", made.written, text.with_name("d.pt2"))
    assert deeper.plan.axes["ffn"].after == (24,)


@pytest.mark.soak
def test_caches_of_new_layers_are_inputs_by_name(tmp_path):
    model = built("gpt2_cache")
    save(tmp_path / "cached.pt2", model.module, (), model.feeds[0])
    made = growc.apply("stack layers to layers + 1 by last with zero outputs", tmp_path / "cached.pt2")
    assert not made.verification.refutes_exact()
    assert made.remarks
    program, module = loaded(made.written)
    names = {s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"}
    assert set(model.feeds[0]) < names
    given = dict(model.feeds[0]) | dict.fromkeys(names - set(model.feeds[0]), model.feeds[0]["past_0_key"])
    expected = model.run(model.feeds[0])
    torch.testing.assert_close(module(**given)[0], expected[0], rtol=1e-4, atol=1e-4)


class Counting(Text):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, ids):
        self.steps.add_(1)
        return super().forward(ids, mask=torch.ones(1, 1))["logits"] * self.steps


@pytest.mark.parametrize("decomposed", [False, True])
def test_a_program_that_writes_to_its_buffers_is_refused(tmp_path, decomposed):
    program = torch.export.export(Counting().eval(), (arguments(2, 5)[0][0],))
    program = program.run_decompositions({}) if decomposed else program
    torch.export.save(program, tmp_path / "counting.pt2")
    with pytest.raises(GrowError, match="writes to `steps`"):
        growc.apply("widen ffn to 18 with uniform copy", tmp_path / "counting.pt2")
    assert [path.name for path in tmp_path.iterdir()] == ["counting.pt2"]


def test_the_command_line_does_the_same(text, capsys):
    assert main(["apply", "-e", "widen ffn to 18 with uniform copy", str(text)]) == 0
    assert "The plan, in onnxruntime" in capsys.readouterr().out
    assert main(["verify", str(text), str(text.with_name("text.grown.pt2"))]) == 0


def test_a_grown_module_is_exported_as_any_other(tmp_path):
    module = Text().eval()
    args, kwargs = arguments(2, 5)
    inputs = {"ids": args[0], **kwargs}
    grown = api.apply(module, "widen ffn to 18 with uniform copy", inputs)
    free = {0: Dim.AUTO, 1: Dim.AUTO}
    others = {"mask": kwargs["mask"], "ids": args[0]}  # not in the order of the source's arguments
    shapes = {"ids": free, "mask": free}
    program = torch.export.export(grown, (), others, dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "grown.pt2")
    args, kwargs = arguments(3, 7)
    found = loaded(tmp_path / "grown.pt2")[1](ids=args[0], **kwargs)
    expected = module(args[0], **kwargs)
    assert found.keys() == expected.keys()
    assert found["count"] == 2
    torch.testing.assert_close(found["logits"], expected["logits"], rtol=1e-4, atol=1e-4)


class Halves(nn.Module):
    """Traced for rows of an even number, of which the second input has fewer."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(HIDDEN, 12), nn.Linear(12, HIDDEN)

    def forward(self, x, other):
        if x.shape[0] % 2 or x.shape[0] <= other.shape[0]:
            return x
        return self.down(torch.tanh(self.up(x))) + other.sum()


def test_guards_of_sizes_are_the_results_as_well(tmp_path):
    rows = {"x": {0: Dim.AUTO}, "other": {0: Dim.AUTO}}
    given = torch.randn(6, HIDDEN), torch.randn(5)
    program = torch.export.export(halves := Halves(), given, dynamic_shapes=rows)
    source, target = tmp_path / "halves.pt2", tmp_path / "larger.pt2"
    torch.export.save(program, source)
    growc.apply("widen ffn to 24 with neighbor copy\nexpect exact", source, target)
    grown, module = loaded(target)
    assert grown._guards_code == program._guards_code
    assert len(grown._guards_code) == 2
    torch.testing.assert_close(module(*given), halves(*given), rtol=1e-4, atol=1e-4)
    for x, other in [(7, 5), (4, 6)]:
        with pytest.raises(AssertionError, match="Guard failed"):
            module(torch.randn(x, HIDDEN), torch.randn(other))


class Sliced(nn.Module):
    """A table that is cut as long as its input: torch.export sees where it ends."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(VOCAB, HIDDEN), nn.Parameter(torch.randn(PLACES, HIDDEN))
        self.block, self.head = Block(), nn.Linear(HIDDEN, VOCAB)

    def forward(self, ids):
        return self.head(self.block(self.table(ids) + self.places[: ids.shape[1]]))


def test_a_guard_ends_where_a_longer_table_does(tmp_path):
    program = torch.export.export(
        Sliced(), (torch.randint(0, VOCAB, (2, 5)),), dynamic_shapes={"ids": {0: Dim.AUTO, 1: Dim.AUTO}}
    )
    assert program._guards_code == ["L['ids'].size()[1] <= 16"]
    source, target = tmp_path / "sliced.pt2", tmp_path / "longer.pt2"
    torch.export.save(program, source)
    growc.apply("widen positions to 24 with tail copy", source, target)
    assert loaded(target)[1](torch.randint(0, VOCAB, (2, 24))).shape == (2, 24, VOCAB)
    with pytest.raises(AssertionError):
        loaded(target)[1](torch.randint(0, VOCAB, (2, 25)))


@pytest.mark.parametrize(
    "guard",
    [
        "__import__('os').system('true') == 0",
        "L['x'].size()[0] == 2 or exit()",
        "L['x\"+exit()+\"'].size()[0] == 2",
        "[1 for _ in L['x'].size()]",
        "L['x'].size()[0] ** 99999999 > 1",
        "L['x'].size()[0] << 999999999",
        "math.__loader__.load_module('os')",
        "(lambda: True)()",
        "L['x'].__class__ == 1",
        "'a' * 99999999999",
    ],
)
def test_a_guard_that_is_no_arithmetic_is_refused(text, tmp_path, guard):
    """torch runs these texts as Python."""
    planted = tmp_path / "planted.pt2"
    with zipfile.ZipFile(text) as archive, zipfile.ZipFile(planted, "w") as made:
        for entry in archive.infolist():
            data = archive.read(entry)
            if entry.filename.endswith("models/model.json"):
                data = json.dumps(json.loads(data) | {"guards_code": [guard]}).encode()
            made.writestr(entry, data)
    with pytest.raises(GrowError, match="no arithmetic of sizes") as caught:
        growc.inspect(planted)
    assert caught.value.diagnostics[0].code == "G310"


@pytest.mark.parametrize(
    "guard",
    [
        "L['x'].size()[0] > 3",
        "(L['x'].size()[0] % 2) == 0",
        "L['x'].size()[0] != (1 + L['y'].size()[0])",
        "((-1)*L['pair'][0].size()[1]) + ((L['x'].size()[0] // 4)) <= 0",
        "max(1, L['x'].size()[0] ** 2) < 2147483648 and not (L['n'] == 3)",
        "math.floor(L['x'].size()[0] / 2.0) == torch.sym_min(3, L['x'].stride()[1])",
        "L['x'].storage_offset() == 0",
    ],
)
def test_guards_of_sizes_are_arithmetic(guard):
    assert is_arithmetic(guard)


def test_inputs_may_be_named_as_builtins_are(tmp_path):
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 5)

        def forward(self, input, *, type):  # noqa: A002
            return self.down(torch.relu(self.up(input))) * type

    torch.manual_seed(0)
    torch.export.save(
        torch.export.export(Named(), (torch.randn(2, 6),), {"type": torch.randn(2, 1)}), tmp_path / "m.pt2"
    )
    done = api.apply("widen ffn to 16 with neighbor copy", tmp_path / "m.pt2")
    assert done.plan.certificate.exact
    assert done.verification is not None
    made = torch.export.load(done.written).module()
    assert made(torch.ones(2, 6), type=torch.ones(2, 1)).shape == (2, 5)
