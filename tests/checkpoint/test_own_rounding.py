"""A class that has no float64 kernels has a rounding of its own all the same: exact results are accepted."""

from __future__ import annotations

import pytest
from checkpoints import tiny_config

import growc
from growc.errors.diagnostic import GrowError


@pytest.mark.soak
@pytest.mark.parametrize("fill", ["uniform", "cyclic"])
def test_a_class_that_computes_nothing_in_float64_keeps_its_own_rounding(save, tmp_path, fill):
    import torch

    from growc.checkpoint.check import run as running

    path = save("MixtralForCausalLM", tiny_config("Mixtral", initializer_range=0.3))
    with pytest.raises(GrowError) as refused:
        running.load(path, torch.float64).run({"input_ids": torch.arange(8).view(1, 8)})
    assert "got Double" in refused.value.diagnostics[0].notes[0]
    recipe = f"widen hidden to 64 with {fill} copy\nexpect exact"
    found = growc.apply(recipe, path, tmp_path / "grown").verification
    assert found is not None
    assert 0 < found.relative <= found.limit
    assert found.rounding > 1e-7
