"""Every module of the zoo is captured, in evaluation and in training, and its program computes the same."""

from __future__ import annotations

import inspect

import pytest
import torch
from registry import Built, build
from torch.utils._pytree import tree_flatten
from zoo import ZOO, names

from growc.dialects.torch.capture.example_inputs import example_inputs, real_inputs
from growc.dialects.torch.capture.export import ExportedModule, export, run
from growc.dialects.transformers.classes import build as build_class
from growc.errors.diagnostic import GrowError

pytestmark = [pytest.mark.soak, pytest.mark.filterwarnings("ignore")]

WITHIN = 1e-5
LAYER_DROP = {"wav2vec2"}
"""In training they leave out layers by chance, which no graph can."""
FROM_CONFIG = [name for name in names() if ZOO[name].pick is not None]


@pytest.fixture(autouse=True)
def whole_layers():
    """torch's encoder layer has a path of its own for inference, of other operators."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


def built(name: str) -> Built:
    try:
        return build(name, "sdpa")
    except ValueError:  # the class has no such attention
        return build(name, "eager")


def captured(model: Built, train: bool) -> tuple[ExportedModule, list[dict[str, torch.Tensor]]]:
    """The program, and the three feeds by the names of forward's arguments."""
    arguments = list(inspect.signature(model.module.forward).parameters)
    feeds = [dict(zip(arguments, feed.values(), strict=False)) for feed in model.feeds]
    axes = dict(zip(arguments, model.axes.values(), strict=False))
    return export(model.module, (), feeds[0], train=train, axes=axes), feeds


def difference(wanted, made) -> float:
    pairs = zip(tree_flatten(wanted)[0], tree_flatten(made)[0], strict=True)
    return max(float((a - b).abs().max() / max(1, a.abs().max())) for a, b in pairs)


@pytest.mark.parametrize("name", names())
def test_the_program_computes_what_the_module_does_at_three_sizes(name):
    model = built(name)
    program, feeds = captured(model, train=False)
    weights = model.module.state_dict()
    for feed, own in zip(feeds, model.feeds, strict=True):
        with torch.no_grad():
            assert difference(model.run(own), run(program, weights.__getitem__, (), feed)) < WITHIN


@pytest.mark.parametrize("name", sorted(LAYER_DROP))
def test_training_that_leaves_out_layers_by_chance_is_refused(name):
    with pytest.raises(GrowError) as caught:
        captured(built(name), train=True)
    assert "data-dependent" in caught.value.diagnostics[0].notes[0]


@pytest.mark.parametrize("name", [name for name in names() if name not in LAYER_DROP])
def test_the_program_of_training_draws_and_writes_as_the_module_does(name):
    model = built(name)
    program, feeds = captured(model, train=True)
    weights = {key: value.clone() for key, value in model.module.state_dict().items()}
    model.module.train()
    with torch.no_grad():
        torch.manual_seed(3)
        wanted = model.run(model.feeds[0])
        torch.manual_seed(3)
        assert difference(wanted, run(program, weights.__getitem__, (), feeds[0])) < WITHIN
    for key, value in model.module.state_dict().items():
        torch.testing.assert_close(value, weights[key])


@pytest.mark.parametrize("name", FROM_CONFIG)
def test_a_class_from_its_config_has_the_same_tensors_and_runs_on_inputs_that_are_found(name):
    module = ZOO[name].make("eager").eval()
    config = module.config.to_dict() | {"architectures": [type(module).__name__]}
    meta = build_class(config, constants=True)
    assert {k: v.shape for k, v in meta.state_dict().items()} == {
        k: v.shape for k, v in module.state_dict().items()
    }
    for key, buffer in module.named_buffers():
        if key not in module.state_dict():
            torch.testing.assert_close(meta.get_buffer(key), buffer, rtol=0, atol=0)
    inputs = real_inputs(module)
    program = export(meta, (), example_inputs(meta))
    with torch.no_grad():
        wanted = module(**inputs)
        assert difference(wanted, run(program, module.state_dict().__getitem__, (), inputs)) < WITHIN
