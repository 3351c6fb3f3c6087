"""One run, step by step. It can be dropped between any two steps and goes on from its last checkpoint.

A checkpoint holds all that the next step depends on: the leg and the step, weights, optimizer, draws, the
operations so far, the record so far, and the state in which the present branch left the stable run. Batches
depend on the step alone. A run on a CPU that was dropped therefore ends with the same losses, bit for bit.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.savings.data import Bytes, Digits
from benchmarks.savings.objectives import Objective, cross_entropy
from benchmarks.savings.records import write_json, write_tensors
from benchmarks.savings.schedule import legs
from benchmarks.savings.tables import Row, Table

BETAS, WEIGHT_DECAY, CLIP = (0.9, 0.95), 0.1, 1.0
POINTS = 20
"""Places on the curve of the stable run; each is measured on one in POINT_PART of the held-out samples."""
POINT_PART = 4


class Run:
    """A row with a seed: `step` until `done`. The model and its optimizer start anew; `resume` goes on."""

    def __init__(
        self,
        table: Table,
        row: Row,
        seed: int,
        rate: float,
        model: nn.Module,
        objective: Objective,
        device: str = "cpu",
    ) -> None:
        self.task, self.seed, self.rate = table.task, seed, rate
        self.model, self.objective, self.device = model, objective, device
        self.optimizer = optimizer_of(model, rate)
        self.legs = legs(table.steps, table.warmup, row.branches)
        self.every = max(table.steps // POINTS, 1)
        self.asked = [table.steps, rate]
        self.leg, self.at, self.flops = 0, 0, 0
        self.left: dict[str, Any] | None = None
        self.record: dict[str, Any] = {"curve": [], "decayed": [], "seconds": 0.0, "revisions": []}
        self.record["finished"] = False

    @property
    def done(self) -> bool:
        """Whether all branches have ended."""
        return self.leg == len(self.legs)

    def step(self) -> None:
        """Train one step; at the end of a leg also measure, and go over to the next leg."""
        began = time.process_time()
        leg = self.legs[self.leg]
        if self.at == 0 and not self.record["curve"]:
            self._point()
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * leg.schedule(self.at)
        inputs, labels = self.task.training(self.seed, self.at)
        loss, flops = self.objective.loss((inputs.to(self.device), labels.to(self.device)), self.at)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        self.at, self.flops = self.at + 1, self.flops + flops
        if self.at % self.every == 0 and not leg.decays:
            self._point()
        if self.at == leg.stop:
            self._next_leg(leg.decays)
        self.record["seconds"] = round(self.record["seconds"] + time.process_time() - began, 3)

    def _next_leg(self, decayed: bool) -> None:
        """A branch leaves, or has ended: then the stable run goes on where it was left."""
        self.leg += 1
        if not decayed:
            self.left = copy.deepcopy(self._live())
            return
        loss = held_out_loss(self.model, self.task, self.device)
        self.record["decayed"].append([self.at, self.flops, loss])
        self.record["finished"] = self.done
        if not self.done and self.left is not None:
            self._load(self.left)

    def _point(self) -> None:
        loss = held_out_loss(self.model, self.task, self.device, POINT_PART)
        self.record["curve"].append([self.at, self.flops, loss])

    def _live(self) -> dict[str, Any]:
        """The state that training has changed."""
        return {
            "at": self.at,
            "flops": self.flops,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "objective": self.objective.state_dict(),
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        self.at, self.flops = state["at"], state["flops"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        self.objective.load_state_dict(state["objective"])

    def save(self, checkpoint: Path, record: Path, facts: Mapping[str, Any]) -> None:
        """Write the checkpoint, then the record, which never says more than the checkpoint knows."""
        state = {"asked": self.asked, "leg": self.leg, "left": self.left, "record": self.record}
        state["live"] = self._live()
        write_tensors(checkpoint, state)
        write_json(record, {**facts, **self.record})

    def resume(self, checkpoint: Path) -> None:
        """Go on from a checkpoint; one of another rate or length is of another run."""
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        if state["asked"] != self.asked:
            return
        self.leg, self.left, self.record = state["leg"], state["left"], state["record"]
        self._load(state["live"])


def optimizer_of(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    """AdamW, which decays matrices alone."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=BETAS)


@torch.no_grad()
def held_out_loss(model: nn.Module, task: Bytes | Digits, device: str = "cpu", part: int = 1) -> float:
    """Nats a place on the held-out samples, or on one in `part` of them."""
    losses, counts = [], []
    for inputs, labels in task.held_out(part):
        losses.append(cross_entropy(model(inputs.to(device)), labels.to(device)).item() * labels.numel())
        counts.append(labels.numel())
    return math.fsum(losses) / sum(counts)
