"""benchmarks/savings in miniature: every row of every table, stopped, resumed, and read as a page."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch
from graphs import ROOT

sys.path.append(str(ROOT))

from benchmarks.savings import run as command
from benchmarks.savings import table as tables_page
from benchmarks.savings.model import model_of
from benchmarks.savings.objectives import Plain
from benchmarks.savings.records import Places, locked
from benchmarks.savings.runner import Runner
from benchmarks.savings.tables import MINIATURE, TABLES, TwoStage
from benchmarks.savings.training import POINT_PART, Run, held_out_loss
from growc import api

SEED = 0
LISTED = [(name, row.name) for name, make in TABLES.items() for row in make(MINIATURE).rows if row.listed]


@pytest.fixture(scope="module")
def runner_of(tmp_path_factory):
    """Runners of the miniatures, each with its sources and trials trained."""
    found = {}

    def runner(name):
        if name not in found:
            folder = tmp_path_factory.mktemp(name)
            made = Runner(TABLES[name](MINIATURE), Places(folder / "runs", folder / "work"))
            first = [run for run in made.table.order() if not run[0].listed]
            assert made.run(first) == []
            found[name] = made
        return found[name]

    return runner


def record_of(runner, name):
    return runner.places.finished(runner.table, runner.table.row(name), SEED)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("table", "name"), LISTED)
def test_a_row_runs_to_its_end(runner_of, table, name):
    runner = runner_of(table)
    assert runner.run([(runner.table.row(name), SEED)]) == []
    record = record_of(runner, name)
    assert [step for step, _, _ in record["decayed"]] == [2, 4, 6]
    losses = {loss for _, _, loss in record["decayed"]}
    assert len(losses) == 3
    assert all(map(math.isfinite, losses))
    if runner.table.row(name).training is None:
        assert record["decayed"][-1][1] == 6 * record["whole_step_flops"]


def test_exact_growth_begins_with_its_sources_loss(runner_of):
    runner = runner_of("cpu")
    runner.run([(runner.table.row("exact"), SEED)])
    source = runner.table.row("source")
    model = runner.begin(runner.table.row("source trained on"), SEED)
    assert model.state_dict().keys() == runner.weights("source", SEED).keys()
    loss = held_out_loss(model, runner.table.task, part=POINT_PART)
    assert record_of(runner, "exact")["curve"][0][2] == pytest.approx(loss, rel=1e-6)
    assert held_out_loss(model, runner.table.task) == record_of(runner, source.name)["decayed"][-1][2]


@pytest.mark.parametrize(
    ("name", "stops"),
    [("scratch", range(1, 8)), ("AKI, two-stage", [3]), ("KI", [2, 5])],
    ids=lambda v: str(v),
)
def test_a_run_that_is_dropped_ends_with_the_same_losses(runner_of, tmp_path, name, stops):
    runner = runner_of("cpu")
    row = runner.table.row(name)
    if row.training == TwoStage(1):
        row = replace(row, training=TwoStage(1, part=0.5))  # draws are left when it is dropped
    begun = runner.begin(row, SEED).state_dict()

    def fresh():
        model = model_of(row.shape, SEED)
        model.load_state_dict(begun)
        return Run(runner.table, row, SEED, 1e-2, model, runner.objective(row, SEED, model))

    whole = fresh()
    while not whole.done:
        whole.step()
    for stop in stops:
        dropped, checkpoint = fresh(), tmp_path / f"{stop}.pt"
        for _ in range(stop):
            dropped.step()
        dropped.save(checkpoint, tmp_path / "record.json", {})
        dropped.step()  # lost
        dropped = fresh()
        dropped.resume(checkpoint)
        while not dropped.done:
            dropped.step()
        assert dropped.record["decayed"] == whole.record["decayed"]
        assert dropped.record["curve"] == whole.record["curve"]
        for key, tensor in whole.model.state_dict().items():
            assert torch.equal(tensor, dropped.model.state_dict()[key])


def test_a_branch_leaves_the_stable_run_as_it_was(runner_of):
    runner = runner_of("cpu")
    row = runner.table.row("scratch")

    def run(branches):
        model = runner.begin(row, SEED)
        made = Run(runner.table, row, SEED, 1e-2, model, runner.objective(row, SEED, model))
        made.legs = [leg for leg in made.legs if not leg.decays or leg.stop in branches]
        while not made.done:
            made.step()
        return made.record["decayed"][-1]

    assert run({2, 4, 6}) == run({6})


def test_a_family_shares_the_rate_of_its_best_trial(runner_of, tmp_path):
    table = TABLES["cpu"](None)
    runner = Runner(table, Places(tmp_path / "runs", tmp_path / "work"))
    trials = [trial for trial in table.trials() if trial.family == "growth"]
    losses = (2.0, 1.0, *[3.0] * (len(trials) - 2))
    for loss, trial in zip(losses, trials, strict=True):
        assert runner.rate(table.row("AKI")) is None
        path = runner.places.record(table, trial, SEED)
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {"finished": True, "steps": table.steps, "rate": trial.rate, "decayed": [[1, 1, loss]]}
        path.write_text(json.dumps(record))
    assert runner.rate(table.row("AKI")) == trials[1].rate
    assert runner.rate(trials[2]) == trials[2].rate


@pytest.mark.parametrize("other", [{"rate": 1.0}, {"steps": 5}], ids=str)
def test_a_run_at_another_rate_or_length_is_missing(runner_of, other):
    runner = runner_of("subcloned-vit")
    row = runner.table.row("scratch")
    runner.run([(row, SEED)])
    path = runner.places.record(runner.table, row, SEED)
    kept = path.read_text()
    assert runner.ready(row, SEED)
    path.write_text(json.dumps(json.loads(kept) | other))
    assert not runner.ready(row, SEED)
    path.write_text(kept)


def test_a_checkpoint_of_another_rate_is_not_taken_up(runner_of, tmp_path):
    runner = runner_of("cpu")
    row = runner.table.row("scratch")
    runs = [
        Run(runner.table, row, SEED, rate, m := model_of(row.shape, SEED), Plain(m, row.shape))
        for rate in (1, 2)
    ]
    runs[0].step()
    runs[0].save(tmp_path / "checkpoint.pt", tmp_path / "record.json", {})
    runs[1].resume(tmp_path / "checkpoint.pt")
    assert (runs[0].at, runs[1].at) == (1, 0)


def test_scratch_comes_first_and_every_run_once():
    for make in TABLES.values():
        table = make(None)
        order = [(row.name, seed) for row, seed in table.order()]
        assert len(order) == len(set(order))
        assert [name for name, _ in order].index("scratch") == len(table.families[0].rates)
        assert {name for name, _ in order} == {row.name for row in (*table.rows, *table.trials())}


def test_a_run_has_one_runner(runner_of):
    runner = runner_of("cpu")
    row = runner.table.row("KI")
    runner.places.record(runner.table, row, SEED).unlink(missing_ok=True)
    with locked(runner.places.at_work(runner.table, row, SEED, "lock")) as own:
        assert own
        assert runner.tries(row, SEED) == "taken"
    assert runner.tries(row, SEED) == "trained"


def test_initial_weights_made_elsewhere_are_used(runner_of, monkeypatch):
    runner = runner_of("gpu")
    row = runner.table.row("LEMON")
    runner.places.record(runner.table, row, SEED).unlink(missing_ok=True)
    made = runner.begin(row, SEED)
    runner.grow(row, SEED)
    monkeypatch.setattr(api, "grow", None)
    grown = runner.begin(row, SEED)
    assert all(torch.equal(tensor, made.state_dict()[name]) for name, tensor in grown.state_dict().items())
    assert grown.norm.eps == made.norm.eps < 1e-5
    assert runner.tries(row, SEED) == "trained"


def test_the_initial_weights_of_a_seed_are_small_enough():
    table = TABLES["gpu"](None)
    models = [model_of(row.shape, SEED) for row in table.rows if row.recipe or not row.listed]
    sizes = [4 * p.numel() for model in models for p in model.parameters()]
    assert 0.5 * command.WEIGHTS_LIMIT < sum(sizes) < command.WEIGHTS_LIMIT


def test_a_line_is_trained_anew_and_no_other(tmp_path, capsys):
    words = [
        "--table",
        "cpu",
        "--miniature",
        "--runs",
        str(tmp_path / "runs"),
        "--work",
        str(tmp_path / "work"),
    ]
    assert command.main([*words, "--only", "scratch"]) == 0
    assert command.main([*words, "--only", "source"]) == 0
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.json")}
    assert command.main([*words, "--only", "source", "--again"]) == 0
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*.json")}
    assert {name for name in after if after[name] != before[name]} == {"source-0.json"}
    assert command.main([*words, "--minutes", "0"]) == 1
    assert "FPI, seed 0: left" in capsys.readouterr().out


def test_the_page_has_the_rows_that_have_ended(runner_of, tmp_path):
    runner = runner_of("subcloned-vit")
    assert runner.run(runner.table.order()) == []
    words = ["--miniature", "--runs", str(runner.places.runs), "--out", str(tmp_path)]
    assert tables_page.main(words) == 0
    text = (tmp_path / "savings.md").read_text(encoding="utf-8")
    for name in ("scratch", "by importance", "by magnitude", "by first", "by random"):
        record = record_of(runner, name)
        assert f"| {name} |" in text
        assert f"| {record['decayed'][-1][2]:.4f} |" in text
    assert "8 of 8 runs have ended." in text
    first = text[text.index("## Which recipe") : text.index("## What the tables say")]
    assert [line.split(" | ")[1] for line in first.splitlines() if "a trained" in line] == [
        "the same depth, wider",
        "half of it",
        "half of it",
        "deeper, or deeper and wider",
    ]
    assert first.count("not measured yet") == 3
    assert "| whole |" not in text
    picture = (tmp_path / "savings" / "subcloned-vit.svg").read_text(encoding="utf-8")
    assert picture.count("<circle") == 3 * 5
    assert ElementTree.fromstring(picture).tag.endswith("svg")


def test_the_committed_page_is_what_the_committed_runs_say(tmp_path):
    assert tables_page.main(["--out", str(tmp_path)]) == 0
    for path in tmp_path.rglob("*.*"):
        kept = ROOT / "docs" / path.relative_to(tmp_path)
        assert kept.read_text(encoding="utf-8") == path.read_text(encoding="utf-8")
