"""A wrong plan is seen: finished plans are spoilt in twenty ways, and every time verification fails.

Which weight, and which unit of it, is drawn by the test, over all weights of the plan to which the kind of
mistake applies; `make soak` tries more of them.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import faults
import pytest
from models import Models, with_epsilon, with_shifted_vectors

from growc import api
from growc.dialects.onnx.emit import rewrite
from growc.dialects.onnx.files.save import save
from growc.passes.finish import interface as ports
from growc.verification.verify import Verification, verify

if TYPE_CHECKING:
    from growc.passes.compilation import Result

BOTH = "widen heads to 8 with uniform copy\nwiden ffn to 256 with uniform copy"
AVERAGE = f"widen hidden to 64 with average fill\n{BOTH}"
DOUBLE = f"widen hidden to 96 with cyclic copy\n{BOTH}"
NOISY = "\n".join(
    f"widen {x} with uniform copy split random noise 0.3 balanced" for x in ("heads to 8", "ffn to 256")
)
NOISY += "\nwiden hidden to 96 with cyclic copy split random noise 0.3 balanced"
SILENT = "\n".join(f"widen {x} with uniform copy with zero outputs" for x in ("heads to 8", "ffn to 256"))
RESET = SILENT.replace("uniform copy", "uniform copy reset 0.5")
ISOMETRY = "widen hidden to 64 with uniform copy\nwiden ffn to 128 with uniform copy"

KINDS = [
    (faults.eps_attribute_not_scaled, "gpt2", AVERAGE),
    (faults.eps_constant_not_scaled, "llama", ISOMETRY),
    (faults.gain_not_scaled, "gpt2", AVERAGE),
    (faults.gain_not_scaled, "llama", ISOMETRY),
    (faults.bias_not_mapped, "gpt2", DOUBLE),
    (faults.bias_not_mapped, "bert", DOUBLE.replace("256", "128")),
    (faults.making_order_wrong, "gpt2", DOUBLE),
    (faults.making_order_wrong, "llama", ISOMETRY),
    (faults.reader_order_wrong, "gpt2", AVERAGE),
    (faults.reader_order_wrong, "bert-bare", DOUBLE.replace("256", "128")),
    (faults.reader_not_divided, "gpt2", DOUBLE),
    (faults.share_doubled, "gpt2", DOUBLE),
    (faults.heads_permuted_in_values_only, "gpt2", DOUBLE),
    (faults.packed_parts_swapped, "gpt2", DOUBLE),
    (faults.tie_broken_on_one_side, "gpt2", DOUBLE),
    (faults.tie_broken_on_one_side, "bert", DOUBLE.replace("256", "128")),
    (faults.tied_head_divided_twice, "gpt2", DOUBLE),
    (faults.embedding_row_scaled, "gpt2", DOUBLE),
    (faults.noise_on_a_making_weight, "gpt2", DOUBLE),
    (faults.noise_on_a_making_weight, "llama", ISOMETRY),
    (faults.noise_not_balanced, "gpt2", NOISY),
    (faults.zero_column_missing, "gpt2", SILENT),
    (faults.zero_column_missing, "gpt2", RESET),
    (faults.mean_left_out, "gpt2", AVERAGE),
    (faults.new_units_drawn, "gpt2", DOUBLE),
]
"""The kind of mistake, a model, and an exact recipe in which it can be made."""


def run(path: Path, text: str, folder: Path, mutant: faults.Mutant = faults.NONE) -> Verification:
    """Compile, spoil, write and verify."""
    c = api.compile(api.recipe(text), path)
    assert c.plan.certificate.exact
    weights = [mutant.weights.get(i, w) for i, w in enumerate(c.assembled.weights)]
    kept = c.attributes if mutant.attributes is None else _same_nodes(c, mutant)
    spoilt, _ = rewrite(c.graph, replace(c.assembled, weights=weights), c.repairs, kept)
    files = save(spoilt.source, folder, "grown.onnx", False, lambda name, count: None)
    return verify(path, files[-1], output_maps=ports.ports_of(c).output_maps())


def _same_nodes(c: Result, mutant: faults.Mutant) -> dict[object, object]:
    """The attributes of a mutant on the nodes of another compilation of the same recipe."""
    assert mutant.attributes is not None
    kept = {node.outputs[0].name for node in mutant.attributes}
    return {node: changed for node, changed in c.attributes.items() if node.outputs[0].name in kept}


def model_of(models: Models, name: str, folder: Path) -> Path:
    """GPT-2 with a large eps and large means of vectors, others as they are (LLaMA's eps is large)."""
    path = models.path(name, "torchscript")
    if name != "gpt2":
        return path
    return with_shifted_vectors(with_epsilon(path, folder / "eps.onnx", 0.05), folder / "gpt2.onnx", 0.1)


def assert_seen(path: Path, text: str, folder: Path, chosen: list[faults.Mutant]) -> None:
    assert chosen, "the recipe gives no occasion for this mistake"
    for mutant in chosen:
        seen = run(path, text, folder, mutant)
        assert seen.refutes_exact(), mutant.label
        assert seen.relative > 50 * seen.limit, f"{mutant.label}: {seen.relative:.1e}"


NAMES = [f"{kind.__name__} {model}" for kind, model, _ in KINDS]


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("kind", "model", "text"), KINDS, ids=NAMES)
def test_a_planted_fault_fails_verification(models, tmp_path, kind, model, text):
    path = model_of(models, model, tmp_path)
    found = list(kind(api.compile(api.recipe(text), path)))
    assert_seen(
        path, text, tmp_path, random.Random(f"{kind.__name__} {model}").sample(found, min(2, len(found)))
    )


@pytest.mark.soak
@pytest.mark.parametrize(("kind", "model", "text"), KINDS, ids=NAMES)
def test_many_planted_faults_fail_verification(models, tmp_path, kind, model, text):
    path = model_of(models, model, tmp_path)
    found = list(kind(api.compile(api.recipe(text), path)))
    assert_seen(path, text, tmp_path, random.Random(7).sample(found, min(60, len(found))))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("model", "text"), sorted({(model, text) for _, model, text in KINDS}))
def test_the_plan_without_a_fault_passes(models, tmp_path, model, text):
    seen = run(model_of(models, model, tmp_path), text, tmp_path)
    assert not seen.refutes_exact()
    assert seen.cases >= 2
