"""Modules are captured whole, and left alone; what is captured computes what the module does."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn
from torch.utils._pytree import tree_flatten

from growc.checkpoint.files.directory import config_of
from growc.dialects.torch.capture.clean import clean
from growc.dialects.torch.capture.example_inputs import example_inputs, real_inputs, without_cache
from growc.dialects.torch.capture.export import export, run
from growc.dialects.torch.capture.functionalize import functionalise
from growc.dialects.transformers import classes
from growc.dialects.transformers.classes import build
from growc.errors.diagnostic import GrowError

SIZES = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "intermediate_size": 24,
    "vocab_size": 40,
    "max_position_embeddings": 32,
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "num_key_value_heads": 1,
    "tie_word_embeddings": True,
    **SIZES,
}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.up = nn.Embedding(9, 4), nn.Linear(4, 4)
        self.head = nn.Linear(4, 9, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("scale", torch.tensor(3.0), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.up(self.table(ids)) * self.scale + torch.tensor([1.0, 2.0, 3.0, 4.0]))


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


def answers(made) -> list[torch.Tensor]:
    return [value for value in tree_flatten(made)[0] if isinstance(value, torch.Tensor)]


def agree(module: nn.Module, captured, inputs) -> None:
    with torch.no_grad():
        wanted = answers(module(**inputs))
        made = answers(run(captured, module.state_dict().__getitem__, (), inputs))
    for a, b in zip(wanted, made, strict=True):
        torch.testing.assert_close(a, b)


def test_a_module_is_left_exactly_as_it_was():
    module = Tied()
    before = {name: id(tensor) for name, tensor in module.state_dict(keep_vars=True).items()}
    export(module, (torch.zeros(2, 5, dtype=torch.long),))
    assert before == {name: id(tensor) for name, tensor in module.state_dict(keep_vars=True).items()}
    assert all(part.training for part in module.modules())


def test_a_captured_program_computes_what_the_module_does_at_other_sizes():
    module = Tied().eval()
    captured = export(module, (), {"ids": torch.zeros(2, 5, dtype=torch.long)})
    agree(module, captured, {"ids": torch.randint(0, 9, (3, 7))})


def test_tied_tensors_have_one_name():
    captured = export(Tied(), (torch.zeros(2, 5, dtype=torch.long),))
    assert captured.names["head.weight"] == captured.names["table.weight"]
    assert captured.names["up.weight"] == "up.weight"


def test_constants_are_what_no_state_dict_holds():
    captured = export(Tied(), (torch.zeros(2, 5, dtype=torch.long),))
    assert sorted(value.tolist() for value in captured.constants.values() if value.ndim) == [
        [1.0, 2.0, 3.0, 4.0]
    ]
    assert captured.constants["scale"] == 3


def test_a_forward_that_asks_for_values_is_refused_with_the_reason_and_nothing_else(capfd):
    with pytest.raises(GrowError) as caught:
        export(Branching(), (torch.zeros(2),))
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.code == "G317"
    assert "data-dependent" in diagnostic.notes[0]
    assert capfd.readouterr().err == ""


def test_a_class_is_built_on_meta_and_captured_as_it_is_with_values():
    module = build(LLAMA, constants=True)
    captured = export(module, (), example_inputs(module))
    assert {parameter.device.type for parameter in module.parameters()} == {"meta"}
    from transformers import LlamaConfig, LlamaForCausalLM

    real = LlamaForCausalLM(LlamaConfig.from_dict(LLAMA)).eval()
    agree(real, captured, real_inputs(real))


def test_a_quantised_checkpoint_is_refused():
    with pytest.raises(GrowError) as caught:
        build(LLAMA | {"quantization_config": {"quant_method": "gptq"}})
    [diagnostic] = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.notes) == ("G309", ("`quantization_config` names gptq",))


def test_a_config_that_its_class_refuses_is_refused_with_its_reason():
    with pytest.raises(GrowError) as caught:
        build(LLAMA | {"vocab_size": -1})
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.code == "G310"
    assert "negative" in diagnostic.notes[0]


class Lacking:
    """transformers, where a package that a class needs is not installed."""

    def __getattr__(self, name: str) -> object:
        if name == "LlamaForCausalLM":
            reason = ImportError("No module named 'PIL'")
            raise ModuleNotFoundError(f"Could not import module '{name}'.") from reason
        return getattr(transformers, name)


def test_a_class_that_transformers_cannot_import_is_refused_with_the_reason(monkeypatch):
    monkeypatch.setattr(classes, "transformers", Lacking())
    with pytest.raises(GrowError, match="transformers cannot import `LlamaForCausalLM`") as caught:
        build(LLAMA)
    assert caught.value.diagnostics[0].code == "G310"
    assert "No module named 'PIL'" in caught.value.diagnostics[0].notes[0]


def test_code_beside_a_checkpoint_is_not_run(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["Own"], "auto_map": {"AutoModel": "own.Own"}}')
    with pytest.raises(GrowError) as caught:
        build(config_of(tmp_path))
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.code == "G310"
    assert diagnostic.notes == ("its own code (`auto_map`) is never run",)


class Writing(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        rest, turned = y[:, 1:], y.transpose(0, 1)
        rest.add_(x[:, :1]).relu_()
        y[0] = 3.0
        turned.reshape(-1)[1:2].zero_()  # a copy: nothing else is written to
        y.view(-1).mul_(0.5)
        left, right = x.exp().split(3, -1)
        right.neg_()
        best = y.exp().topk(2)[0]
        best /= best.sum(-1, keepdim=True)
        return y, turned, rest.sum(1), left + right, best


class Summing(nn.Module):
    """Writes place by place, as recurrences over chunks do, and reads views that were taken before."""

    def __init__(self, places: int) -> None:
        super().__init__()
        self.places = places

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x[:, : self.places] * 2
        pair, places = y.unflatten(-1, (2, -1)), y.unbind(-1)
        for i in range(1, self.places):
            y[:, i] += y[:, :i].sum(-1) * 0.1
        return pair.tanh().flatten(1) + places[-1][:, None]


class Halving(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.chunk(2)[0].neg_()  # of a number of rows that is free the half has no number
        return y


class Remembering(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x.softmax(-1)
        return self.last * 2


class Stretching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.resize_(3)
        return x + 1


def test_writes_become_values():
    module, x = Writing(), torch.randn(4, 6)
    captured = export(module, (), {"x": x})
    agree(module, captured, {"x": torch.randn(5, 6)})
    operators = [node.target for node in captured.program.graph.nodes if node.op == "call_function"]
    assert not any(getattr(target, "_schema", None) and target._schema.is_mutable for target in operators)


def test_views_are_taken_again_only_where_they_are_read():
    x, counts = torch.randn(4, 40), []
    agree(Summing(20), export(Summing(20), (), {"x": x}), {"x": torch.randn(5, 40)})
    for places in (20, 40):
        graph = torch.export.export(Summing(places), (x,)).graph
        functionalise(graph, ())
        counts.append(len(graph.nodes))
    assert counts[1] < 2.2 * counts[0]


def test_a_part_of_the_rows_is_written_to_where_their_number_is_fixed():
    module, x = Halving(), torch.randn(4, 6)
    agree(module, export(module, (), {"x": x}), {"x": x})


def test_a_module_that_keeps_tensors_in_attributes_is_captured_and_keeps_none():
    module = Remembering()
    captured = export(module, (), {"x": torch.zeros(2, 3)})
    assert "last" not in module.__dict__
    agree(module, captured, {"x": torch.randn(4, 3)})


def test_one_example_row_stands_for_any_number_of_rows():
    module = Tied().eval()
    captured = export(module, (), {"ids": torch.zeros(1, 5, dtype=torch.long)})
    agree(module, captured, {"ids": torch.randint(0, 9, (3, 5))})


def test_training_is_captured_as_training_with_its_writes_to_running_statistics():
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval()
    captured = export(module, (torch.zeros(2, 3),), train=True)
    arguments = {str(n.target): n.args for n in captured.program.graph.nodes if n.op == "call_function"}
    assert arguments["aten.dropout.default"][1:] == (0.5, True)
    assert "aten.add_.Tensor" in arguments
    assert not module.training


def test_a_write_that_changes_a_size_is_refused():
    with pytest.raises(GrowError) as caught:
        export(Stretching(), (torch.zeros(2, 3),))
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["G317"]


class HandingOn(nn.Module):
    """Its part takes arguments that it does not name itself."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Shifting()

    def forward(self, x: torch.Tensor, **rest) -> torch.Tensor:
        return self.part(x, **rest) * 2


class Shifting(nn.Module):
    def forward(self, x: torch.Tensor, shift: torch.Tensor, twice: bool = True) -> torch.Tensor:
        return x + shift + shift if twice else x + shift


def test_arguments_that_are_handed_on_are_captured_with_open_sizes():
    module, inputs = HandingOn(), {"x": torch.randn(3, 4), "shift": torch.randn(3, 4), "twice": False}
    captured = export(module, (), inputs)
    assert set(captured.symbols.values()) == {"batch"}
    assert "forward" not in vars(module)
    agree(module, captured, inputs)
    agree(module, captured, {**inputs, "x": torch.randn(5, 4), "shift": torch.randn(5, 4)})


SERIES = {
    "architectures": ["PatchTSTForPrediction"],
    "num_input_channels": 2,
    "context_length": 24,
    "patch_length": 4,
    "patch_stride": 4,
    "prediction_length": 6,
    "d_model": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "ffn_dim": 24,
}
FILMS = {
    "architectures": ["VJEPA2Model"],
    "crop_size": 32,
    "image_size": 32,
    "frames_per_clip": 4,
    "patch_size": 8,
    "pred_hidden_size": 16,
    "pred_num_attention_heads": 2,
    "pred_num_hidden_layers": 1,
    **SIZES,
}


@pytest.mark.parametrize(
    ("config", "name", "shape"),
    [(SERIES, "past_values", (2, 24, 2)), (FILMS, "pixel_values_videos", (2, 4, 3, 32, 32))],
)
def test_inputs_are_found_for_series_and_films(config, name, shape):
    inputs = example_inputs(build(config))
    assert inputs[name].shape == shape


def test_a_class_that_hands_the_choice_of_a_cache_on_gives_none():
    config = {
        "architectures": ["GraniteMoeForCausalLM"],
        "num_key_value_heads": 1,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        **SIZES,
    }
    inputs = example_inputs(module := build(config))
    assert inputs["use_cache"] is False
    assert export(module, (), inputs).symbols


class Refusing(nn.Module):
    """It has a part that could keep a cache, and hands on what it does not know to another one."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.plain = build(LLAMA), Shifting()

    def forward(self, x: torch.Tensor, **rest) -> torch.Tensor:
        return self.plain(x, **rest)


def test_a_module_that_is_no_class_of_transformers_is_given_what_it_names_alone():
    assert without_cache(Refusing()) == {}
    assert without_cache(build(LLAMA)) == {"use_cache": False}


class Deciding(nn.Module):
    """Its part could keep a cache, and it says by itself that none is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.part = build(LLAMA)
        self.config = self.part.config

    def forward(self, input_ids: torch.Tensor, **rest) -> torch.Tensor:
        return self.part(input_ids=input_ids, use_cache=False, **rest)[0]


def test_a_module_that_decides_on_caches_by_itself_is_not_told():
    ids = {"input_ids": torch.ones(1, 3, dtype=torch.long)}
    assert without_cache(Deciding(), kwargs=ids) == {}


class Choosing(nn.Module):
    """Its last operator chooses elements by a mask, so that data decide the size of its output."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(torch.tanh(self.up(x)))
        x[:, 0] += 1
        return x[x > 0]


def test_a_user_that_torch_forgets_is_found_again():
    """torch.export does so now and then, of sizes that data decide; what edits a graph fails then."""
    program = torch.export.export(Choosing(), (torch.randn(3, 8),))
    [size] = [node for node in program.graph.nodes if node.target is torch.ops.aten.sym_size.int]
    [chosen] = size.all_input_nodes
    del chosen.users[size]
    clean(program)
    assert all(node in operand.users for node in program.graph.nodes for operand in node.all_input_nodes)
    assert not any(node.target is torch.ops.aten.add_.Tensor for node in program.graph.nodes)


class Stepping(nn.Module):
    """It goes along its input, and writes what it has by then through `made[:, t]`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made, state = torch.zeros_like(x), x[:, 0]
        for t in range(x.shape[1]):
            state = state * 0.5 + x[:, t]
            made[:, t] = state
        return made


def test_a_write_through_a_slice_that_shows_everything_cuts_nothing():
    module, inputs = Stepping(), {"x": torch.randn(3, 4, 5)}
    captured = export(module, (), inputs)
    called = [str(node.target) for node in captured.program.graph.nodes]
    assert called.count("aten.select_scatter.default") == 4
    assert "aten.slice_scatter.default" not in called
    agree(module, captured, inputs)
    agree(module, captured, {"x": torch.randn(5, 4, 5)})
