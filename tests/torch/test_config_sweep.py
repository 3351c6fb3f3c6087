"""The solver on the classes of the zoo: the true config of each request is hidden from it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from truths import REQUESTS, on_meta, target_of, true_config

from growc.dialects.transformers.classes import build
from growc.dialects.transformers.config.search import FittedConfig, solve
from growc.dialects.transformers.config.shapes import shapes_of
from growc.dialects.transformers.log.record import operator_log
from growc.errors.diagnostic import GrowError

sys.path.append(str(Path(__file__).parents[1] / "zoo"))


def classes() -> list[str]:
    import zoo

    return [name for name, blueprint in zoo.ZOO.items() if blueprint.pick and "cache" not in name]


def case(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config.json of a class, and what it is fed."""
    from zoo import ZOO

    blueprint = ZOO[name]
    module: Any = blueprint.make("eager")
    config = module.config.to_diff_dict() | {"architectures": [type(module).__name__]}
    config.setdefault("model_type", module.config.model_type)
    return config, on_meta(blueprint.inputs.draw(0)) | dict(blueprint.fixed)


@pytest.mark.soak
@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("name", classes())
def test_the_config_of_a_class_is_found(name, request_name):
    config, inputs = case(name)
    true = true_config(config, request_name)
    if true is None:
        pytest.skip("no field for it")
    try:
        target = target_of(true, inputs)
    except (GrowError, RuntimeError) as error:
        pytest.skip(f"the class does not take the true config: {error}")
    if target.shapes.items() <= shapes_of(build(config)).items():
        pytest.skip("no shape changes")
    found = solve(config, target, build)
    assert isinstance(found, FittedConfig), found
    module = build(found.config, constants=True)
    assert target.shapes.items() <= shapes_of(module).items()
    assert operator_log(module, inputs) == target.log
