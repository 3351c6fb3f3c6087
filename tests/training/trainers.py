"""Trainings of a tiny GPT that one process, several, and a killed run are compared in.

`python trainers.py FOLDER` runs them as one of the processes that its environment tells of; process 0
writes losses and parameters.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from growc.training.replay import Mixer, Replay
from growc.training.schedule import WarmupStableDecay
from growc.training.trainer import (
    Groups,
    Inheritance,
    Inheriting,
    Replaying,
    Scheduled,
    SubModelStage,
    TwoStage,
    predictions,
)

STEPS, BATCH, VOCABULARY = 6, 4, 40
SIZES = (18, 9)
"""Samples of a new domain, and of a memory."""


class Texts(Dataset[dict[str, Tensor]]):
    """Texts of which some places count for nothing, more in some than in others."""

    def __init__(self) -> None:
        draws = torch.Generator().manual_seed(3)
        self.ids = torch.randint(VOCABULARY, (sum(SIZES), 8), generator=draws)
        ignored = torch.rand(self.ids.shape, generator=draws) < torch.linspace(0, 0.7, len(self.ids))[:, None]
        self.labels = self.ids.masked_fill(ignored, -100)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        return {"input_ids": self.ids[number], "labels": self.labels[number]}


def gpt(seed: int, layers: int = 2) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    rates = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes = {"n_layer": layers, "n_embd": 16, "n_head": 2, "n_positions": 16, "vocab_size": VOCABULARY}
    module = GPT2LMHeadModel(GPT2Config(**sizes, **rates, bos_token_id=0, eos_token_id=0))
    for parameter in module.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return module


class Inherits(Inheriting, Replaying, Scheduled, Trainer):
    inheritance = Inheritance([predictions(gpt(7, 1))], shifted=True, decay=1.5, temperature=2.0)
    mixer = Mixer(SIZES, Replay(1, 0.25, recovery=2), batch=BATCH, steps=STEPS, seed=1)
    groups = Groups(
        lambda module: [
            {"params": [p for n, p in module.named_parameters() if ("ln" in n) == norms], "name": name}
            for name, norms in (("norms", True), ("others", False))
        ],
        WarmupStableDecay(STEPS, warmup=2, decay=2),
        {"norms": lambda step: 0.5},
    )


class InTwoStages(TwoStage, Trainer):
    first_stage = SubModelStage(steps=4, layers=1, seed=5)


TRAINERS: dict[str, type[Trainer]] = {"inherits": Inherits, "two stages": InTwoStages}


def trainer(name: str, folder: Path, samples: int = BATCH, parts: int = 1, **options: object) -> Trainer:
    """A training whose processes take `samples` at a time, and `parts` of these in a step."""
    arguments = TrainingArguments(
        **{
            "output_dir": str(folder),
            "per_device_train_batch_size": samples,
            "gradient_accumulation_steps": parts,
            "max_steps": STEPS,
            "learning_rate": 0.05,
            "weight_decay": 0.1,
            "optim": "sgd",
            "optim_args": "momentum=0.9",
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "use_cpu": True,
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            **options,
        }
    )
    return TRAINERS[name](gpt(0), arguments, train_dataset=Texts())


def losses(trained: Trainer) -> dict[int, float]:
    return {log["step"]: log["loss"] for log in trained.state.log_history if "loss" in log}


SPLITS: dict[str, Callable[[Path], Trainer]] = {
    "inherits": lambda folder: trainer("inherits", folder, samples=2),
    "two stages": lambda folder: trainer("two stages", folder, samples=1, parts=2),
}
"""The training of each of two processes, so that both together take the samples that one takes."""


def main(folder: Path) -> None:
    for name, start in SPLITS.items():
        one = start(folder / name)
        one.train()
        if one.args.process_index == 0:
            path = folder / f"{name}.json"
            path.write_text(json.dumps(losses(one)))
            torch.save(one.model.state_dict(), path.with_suffix(".pt"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    # A thread of gloo may still hold tensors of Python's: the interpreter that takes them down waits for
    # it while it waits for the interpreter, or aborts.
    os._exit(0)
