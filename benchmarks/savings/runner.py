"""The runs of a table: which one is next, what it needs, and training it to its end."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.savings.flops import step_flops
from benchmarks.savings.initial import initial
from benchmarks.savings.model import model_of, norms_of
from benchmarks.savings.objectives import Inherited, Objective, Plain, Staged
from benchmarks.savings.records import Places, locked, revision, write_tensors
from benchmarks.savings.tables import Inherit, Row, Table, TwoStage
from benchmarks.savings.training import Run

PAUSE = 20.0
"""Seconds until a runner looks again whether a source is there."""


State = Literal["waits", "taken", "trained"]
"""Of a run: what it needs is missing, another runner has it, or it was trained."""


class Runner:
    """The runs of a table on one device. `deadline` is by `time.monotonic`, or never."""

    def __init__(
        self,
        table: Table,
        places: Places,
        device: str = "cpu",
        deadline: float = float("inf"),
        save: float = 60,
    ) -> None:
        self.table, self.places, self.device, self.deadline, self.every = (
            table,
            places,
            device,
            deadline,
            save,
        )
        self.kept = {name for row in table.rows for name in row.needs}

    def ready(self, row: Row, seed: int) -> bool:
        """Whether a run has ended with the table's steps and its family's rate, and left its weights."""
        weights = self.places.at_work(self.table, row, seed, "weights.pt")
        there = row.name not in self.kept or weights.exists()
        record = self.places.finished(self.table, row, seed)
        return there and record is not None and record["rate"] == self.rate(row)

    def rate(self, row: Row) -> float | None:
        """A row's own rate, or the best of its family's trials, when all have ended."""
        if row.rate:
            return row.rate
        trials = [trial for trial in self.table.trials() if trial.family == row.family]
        records = [self.places.finished(self.table, trial, self.table.seeds[0]) for trial in trials]
        ended = [record for record in records if record is not None]
        if len(ended) < len(trials):
            return None
        return min(ended, key=lambda record: record["decayed"][0][2])["rate"]

    def weights(self, name: str, seed: int) -> dict[str, torch.Tensor]:
        """The final weights of a row that has ended."""
        path = self.places.at_work(self.table, self.table.row(name), seed, "weights.pt")
        return torch.load(path, weights_only=True)

    def grown(self, row: Row, seed: int) -> Path:
        """Where the weights stand that growc made for a row."""
        begins = self.table.row(row.tunes) if row.tunes else row
        return self.places.at_work(self.table, begins, seed, "initial.pt")

    def begin(self, row: Row, seed: int) -> torch.nn.Module:
        """The model that a run begins with, made by growc where it was not made before."""
        path = self.grown(row, seed)
        source = self.table.row(row.source) if row.source else None
        if path.exists():
            kept = torch.load(path, weights_only=True)
            model = model_of(row.shape, seed)
            model.load_state_dict(kept["weights"])
            for name, norm in norms_of(model).items():
                norm.eps = kept["eps"][name]
            return model
        weights = self.weights(source.name, seed) if source else None
        return initial(row, seed, source, weights, self.table.task)

    def grow(self, row: Row, seed: int) -> None:
        """Write the initial weights of a run whose source is there."""
        if row.source and row.recipe and self.ready(self.table.row(row.source), seed):
            model = self.begin(row, seed)
            eps = {name: norm.eps for name, norm in norms_of(model).items()}
            write_tensors(self.grown(row, seed), {"weights": model.state_dict(), "eps": eps})

    def objective(self, row: Row, seed: int, model: torch.nn.Module) -> Objective:
        """The objective that a run minimises."""
        if isinstance(row.training, TwoStage):
            example, _ = self.table.task.training(seed, 0)
            return Staged(model, row.shape, row.training, self.table.steps, example[:2].to(self.device))
        if isinstance(row.training, Inherit):
            small = self.table.row(row.training.teacher)
            teacher = model_of(small.shape, 0)
            teacher.load_state_dict(self.weights(small.name, seed))
            teacher.to(self.device)
            return Inherited(model, row.shape, row.training, self.table.steps, teacher, small.shape)
        return Plain(model, row.shape)

    def facts(self, row: Row, seed: int, rate: float) -> dict[str, Any]:
        """The facts that a record has of a run beside its losses."""
        size = sum(p.numel() for p in model_of(row.shape, 0).parameters())
        task = self.table.task
        step = step_flops(row.shape) * task.batch
        needed = [self.places.finished(self.table, self.table.row(name), seed) for name in row.needs]
        return {
            "table": self.table.name,
            "row": row.name,
            "seed": seed,
            "rate": rate,
            "steps": self.table.steps,
            "parameters": size,
            "tokens_per_parameter": round(self.table.steps * task.batch * row.shape.length / size, 3),
            "whole_step_flops": step,
            "needs": [
                {k: record[k] for k in ("row", "parameters", "tokens_per_parameter")}
                | {"flops": record["decayed"][-1][1], "loss": record["decayed"][-1][2]}
                for record in needed
                if record
            ],
            "machine": f"{self.device}, torch {torch.__version__}, {torch.get_num_threads()} threads, "
            f"Python {platform.python_version()}",
        }

    def train(self, row: Row, seed: int, rate: float) -> bool:
        """Train a run to its end, or to the deadline. Whether it has ended."""
        model = self.begin(row, seed).to(self.device)
        run = Run(self.table, row, seed, rate, model, self.objective(row, seed, model), self.device)
        checkpoint = self.places.at_work(self.table, row, seed, "checkpoint.pt")
        record, facts = self.places.record(self.table, row, seed), self.facts(row, seed, rate)
        if checkpoint.exists():
            run.resume(checkpoint)
        if (code := revision()) not in run.record["revisions"]:
            run.record["revisions"].append(code)
        saved = time.monotonic()
        while not run.done and time.monotonic() < self.deadline:
            run.step()
            if time.monotonic() - saved >= self.every:
                run.save(checkpoint, record, facts)
                saved = time.monotonic()
        if run.done and row.name in self.kept:
            final = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
            write_tensors(self.places.at_work(self.table, row, seed, "weights.pt"), final)
        run.save(checkpoint, record, facts)
        if run.done:
            checkpoint.unlink()
        return run.done

    def tries(self, row: Row, seed: int) -> State:
        """Train a run if all that it needs is there and no other runner has it."""
        rate = self.rate(row)
        needed = [self.table.row(name) for name in row.needs]
        if rate is None or not all(self.ready(other, seed) for other in needed):
            return "waits"
        with locked(self.places.at_work(self.table, row, seed, "lock")) as own:
            if not own or self.ready(row, seed):
                return "taken"
            began = time.monotonic()
            ended = self.train(row, seed, rate)
        state = "ended" if ended else "stopped"
        print(f"{row.name}, seed {seed}: {state} after {time.monotonic() - began:.0f} s", flush=True)
        return "trained"

    def run(self, wanted: Sequence[tuple[Row, int]]) -> list[tuple[Row, int]]:
        """Train what is missing of these, each when what it needs is there; returns what is left.

        Runs are left when the time is over, or when they wait for runs that are not among these.
        """
        while missing := [(row, seed) for row, seed in wanted if not self.ready(row, seed)]:
            if time.monotonic() >= self.deadline:
                break
            states = set()
            for row, seed in missing:
                states.add(self.tries(row, seed))
                if "trained" in states:
                    break
            if states == {"waits"}:
                break
            if "trained" not in states:
                time.sleep(PAUSE)
        return missing


def needed_by(table: Table, rows: Sequence[Row]) -> list[tuple[Row, int]]:
    """The runs of these rows and of all that they need, in the table's order."""
    names = {row.name for row in rows}
    for row in rows:
        families = {row.family, *(table.row(name).family for name in row.needs)}
        trials = [trial for trial in table.trials() if trial.family in families]
        names |= {*row.needs, *(trial.name for trial in trials)}
        names |= {name for trial in trials for name in trial.needs}
    return [(row, seed) for row, seed in table.order() if row.name in names]
