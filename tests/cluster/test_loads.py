"""The bytes that each process would read and write, as `plan` says them."""

import json

import pytest
import transformers
from tiny_llama import save_llama

from growc.cli.main import main

RECIPE = [
    "-e",
    "widen ffn to 2 * ffn with neighbor copy",
    "-e",
    "stack layers to 3 by last with zero outputs",
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loads") / "model"
    save_llama(folder)
    return folder


def told(capsys, *arguments):
    assert main(["plan", *RECIPE, *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("size", [1, 3, 16])
def test_all_processes_write_the_result(directory, capsys, size):
    said = told(capsys, directory, "--ranks", size)
    found = said["ranks"]["processes"]
    assert len(found) == size
    assert sum(one["written"] for one in found) == said["bytes"]
    stored = sum(t.nbytes for t in transformers.LlamaForCausalLM.from_pretrained(directory).parameters())
    new = 2 * (32 * 32 * 4 + 3 * 32 * 48 + 2 * 32)  # the layer that is there twice is read twice
    zeros = 2 * (32 * 32 + 32 * 48)
    assert size > 1 or found[0]["read"] == stored + new - zeros
    assert size == 1 or max(one["written"] for one in found) < 1.5 * said["bytes"] / size


def test_a_config_has_the_loads_of_its_checkpoint(directory, capsys):
    given = ["--ranks", 4, "--bandwidth", "2GB"]
    whole, outlined = (told(capsys, path, *given)["ranks"] for path in (directory, directory / "config.json"))
    assert outlined == whole
    assert whole["seconds"] == round(max(p["read"] + p["written"] for p in whole["processes"]) / 2e9, 3)


def test_a_person_reads_the_largest_share(directory, capsys):
    assert main(["plan", *RECIPE, str(directory), "--ranks", "2", "--bandwidth", "1MB"]) == 0
    assert "2 processes: the largest reads" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ranks", "0"], "is no number of processes"),
        (["--ranks", "2", "--bandwidth", "fast"], "is no size"),
    ],
)
def test_a_wrong_number_of_ranks_or_bandwidth_is_refused(directory, options, message, capsys):
    assert main(["plan", *RECIPE, str(directory), *options]) != 0
    assert message in capsys.readouterr().err
