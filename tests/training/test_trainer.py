"""The methods in a Trainer: two processes equal one, a killed run goes on, losses are those of the pieces."""

from __future__ import annotations

import ast
import inspect
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
import trainers
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from trainers import BATCH, STEPS, TRAINERS, Texts, gpt, losses, trainer
from transformers import Trainer, TrainerCallback

from growc.training.inheritance import inheritance_rate, inherited_loss, top_logits
from growc.training.logit_store import LogitStore, StoreSizes
from growc.training.prompts import SoftPrompts, plant, remove
from growc.training.replay import Mixer, Replay
from growc.training.schedule import Rewarmed, WarmupStableDecay
from growc.training.trainer import Groups, Inheritance, Prompting, TwoStage, refuse_parts, stored


def two_processes(folder: Path) -> None:
    """Run the trainings of `trainers` in two processes that talk through gloo."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, trainers.__file__, str(folder)]
    processes = [
        subprocess.Popen(
            command,
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors[-3000:]
    finally:
        for process in processes:  # one waits for the other for ever
            process.kill()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trainer]:
    """Each training in one process, run once."""

    @cache
    def run(name: str) -> Trainer:
        one = trainer(name, tmp_path_factory.mktemp("whole"))
        one.train()
        return one

    return run


@pytest.mark.soak
def test_two_processes_equal_one(whole: Callable[[str], Trainer], tmp_path: Path) -> None:
    """Within float32's rounding of sums in another order: 1e-5 in losses of about 4, 1e-6 in parameters."""
    two_processes(tmp_path)
    assert {sub.layers for sub in whole("two stages").drawn} == {1, 2}
    for name in TRAINERS:
        one, start = whole(name), gpt(0).state_dict()
        found = {int(n): loss for n, loss in json.loads((tmp_path / f"{name}.json").read_text()).items()}
        assert found.keys() == losses(one).keys() == set(range(1, STEPS + 1))
        assert found == pytest.approx(losses(one), abs=1e-5)
        state = torch.load(tmp_path / f"{name}.pt")
        for key, tensor in one.model.state_dict().items():
            assert torch.allclose(state[key], tensor, rtol=0, atol=1e-6), (name, key)
        assert all((tensor - start[key]).abs().max() > 1e-4 for key, tensor in state.items())


class Killed(TrainerCallback):
    """Ends a training in the middle of its fifth step."""

    def on_pre_optimizer_step(self, args, state, control, **kwargs) -> None:
        if state.global_step == 4:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", TRAINERS)
def test_a_killed_run_goes_on_to_the_same_losses(
    name: str, whole: Callable[[str], Trainer], tmp_path: Path
) -> None:
    options = {"save_strategy": "steps", "save_steps": 3}
    killed = trainer(name, tmp_path / "killed", **options)
    killed.add_callback(Killed)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    resumed = trainer(name, tmp_path / "killed", **options)
    resumed.train(resume_from_checkpoint=True)
    assert list(losses(resumed)) == list(range(1, STEPS + 1))
    assert losses(resumed) == losses(whole(name))
    for key, tensor in whole(name).model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[key], tensor), key


def test_a_step_has_the_loss_of_the_paper_on_the_mixed_batch(tmp_path: Path) -> None:
    """The first step is on memories alone, with the teacher alone; the logits of a store give the same."""
    data, student, teacher = Texts(), gpt(0), gpt(7, 1)
    order = list(Mixer(trainers.SIZES, Replay(1, 0.25, recovery=2), batch=BATCH, steps=STEPS, seed=1))
    assert all(number >= trainers.SIZES[0] for number in order[: 2 * BATCH])
    ids, labels = (torch.stack([data[n][key] for n in order[:BATCH]]) for key in ("input_ids", "labels"))
    with torch.no_grad():
        made, wanted = student(ids).logits[:, :-1], teacher(ids).logits[:, :-1]
        expected = inherited_loss(made, labels[:, 1:], [wanted], inheritance_rate(0, STEPS, 1.5), 2.0)
    found = trainer("inherits", tmp_path)
    found.train()
    assert losses(found)[1] == pytest.approx(float(expected), abs=1e-4)  # the log is rounded


def test_a_loss_that_teachers_are_not_in_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="smoothed"):
        trainer("inherits", tmp_path, label_smoothing_factor=0.1).train()


def test_sub_models_have_the_precision_of_the_training(tmp_path: Path) -> None:
    for half, expected in ((False, torch.float32), (True, torch.bfloat16)):
        found = trainer("two stages", tmp_path, bf16=half)
        with found.compute_loss_context_manager():
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == expected


class Placed(Texts):
    """Texts that say where their teacher's logits stand."""

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        return {**super().__getitem__(number), "places": torch.arange(number * 8, number * 8 + 8)}


def test_logits_on_disk_teach_as_the_teacher_does(tmp_path: Path) -> None:
    data, teacher = Placed(), gpt(7, 1)
    store = LogitStore(tmp_path / "store", StoreSizes(len(data) * 8, trainers.VOCABULARY - 1, 2.0))
    with torch.no_grad():
        store.append(top_logits(teacher(data.ids).logits.flatten(0, 1), trainers.VOCABULARY - 1, 2.0))
    live = trainer("inherits", tmp_path / "live")
    live.train()
    on_disk = trainer("inherits", tmp_path / "disk", remove_unused_columns=False)
    on_disk.train_dataset = data
    on_disk.inheritance = Inheritance([stored(store)], shifted=True, decay=1.5, temperature=2.0)
    on_disk.train()
    assert losses(on_disk) == pytest.approx(losses(live), abs=1e-4)
    on_disk.eval_dataset = live.eval_dataset = data
    assert on_disk.evaluate()["eval_loss"] == pytest.approx(live.evaluate()["eval_loss"], abs=1e-4)


def test_each_group_has_its_schedule_and_new_entries_theirs(tmp_path: Path) -> None:
    """With a rate of zero for all entries of a parameter, it stays where it is."""
    found = trainer("inherits", tmp_path)
    name = "transformer.h.1.mlp.c_fc.weight"
    chosen = torch.zeros(16, 64, dtype=torch.bool)
    chosen[:, 48:] = True
    groups = found.groups
    late = Rewarmed(lambda step: float(step >= STEPS), grown=0, warmup=1)
    found.groups = Groups(
        groups.of, groups.schedule, groups.schedules, (lambda m: {m.get_parameter(name): chosen}, late)
    )
    before = found.model.get_parameter(name).detach().clone()
    found.train()
    moved = (found.model.get_parameter(name) - before).abs()
    assert moved[chosen].max() == 0
    assert moved[~chosen].min() > 0
    rates = [log["learning_rate"] for log in found.state.log_history if "loss" in log]
    assert rates == pytest.approx([0.05 * 0.5] * STEPS), "the first group's"
    others = found.optimizer.param_groups[1]
    assert others["lr"] == pytest.approx(0.05 * WarmupStableDecay(STEPS, warmup=2, decay=2)(STEPS))
    assert others["weight_decay"] == 0.1


class Domains(Texts):
    """Texts that say of which domain they are."""

    def __getitem__(self, number: int) -> dict[str, object]:
        return {**super().__getitem__(number), "domain": "new" if number < trainers.SIZES[0] else "old"}


def test_prompts_are_trained_with_the_model(tmp_path: Path) -> None:
    found = trainer("inherits", tmp_path, remove_unused_columns=False)
    table = found.model.get_input_embeddings()
    prompts = SoftPrompts(table, ["new", "old", "other"], 2)
    plant(table, prompts)
    before = prompts.vectors.detach().clone()
    for parameter in found.model.parameters():
        parameter.requires_grad_(parameter is prompts.vectors)
    state = {key: tensor.clone() for key, tensor in found.model.state_dict().items()}
    plain = gpt(0)(Texts().ids).logits
    found.train_dataset, found.data_collator = Domains(), Prompting(found.data_collator, prompts)
    found.inheritance = Inheritance([], shifted=True)
    found.args.weight_decay = 0.0
    found.train()
    moved = (prompts.vectors - before).abs().amax((1, 2))
    assert moved[:2].min() > 1e-4
    assert moved[2] == 0
    assert all(
        torch.equal(tensor, state[key])
        for key, tensor in found.model.state_dict().items()
        if "prompts" not in key
    )
    remove(table)
    assert torch.equal(found.model(Texts().ids).logits, plain)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_steps": STEPS + 1}, "7 steps"),
        ({"max_steps": -1}, "-1 steps"),
        ({"per_device_train_batch_size": 3}, "of 3 samples"),
        ({"ignore_data_skip": True}, "ignore_data_skip"),
    ],
)
def test_a_training_that_does_not_fit_the_mixer_is_refused(
    options: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        trainer("inherits", tmp_path, **options).train()


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
def test_parts_of_a_model_have_no_sub_models() -> None:
    module = nn.Sequential(nn.Linear(4, 4))
    refuse_parts(module, devices=1)
    with pytest.raises(ValueError, match="torchrun"):
        refuse_parts(module, devices=2)
    fully_shard(module, mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(ValueError, match="train with DDP"):
        refuse_parts(module, devices=1)


@pytest.mark.usefixtures("one_rank")
def test_a_student_in_parts_inherits_as_one_that_is_whole() -> None:
    """As FSDP cuts it; the Trainer cuts models on accelerators alone."""
    ids, teacher = Texts().ids[:BATCH], gpt(7, 1)
    whole, parts = gpt(0), gpt(0)
    fully_shard(parts, mesh=init_device_mesh("cpu", (1,)))
    with torch.no_grad():
        wanted = teacher(ids).logits[:, :-1]
    for student in (whole, parts):
        inherited_loss(student(ids).logits[:, :-1], ids[:, 1:], [wanted], 0.5, 2.0).backward()
    for one, part in zip(whole.parameters(), parts.parameters(), strict=True):
        assert isinstance(part, DTensor)
        assert torch.allclose(one.grad, part.grad.full_tensor(), rtol=0, atol=1e-6)


def test_an_adapter_has_at_most_40_lines() -> None:
    source = Path(inspect.getfile(TwoStage)).read_text(encoding="utf-8")
    sizes = {
        node.name: (node.end_lineno or 0) - node.lineno + 1
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    assert {"Inheriting", "TwoStage", "Replaying", "Scheduled", "Prompting"} <= sizes.keys()
    assert {name: size for name, size in sizes.items() if size > 40} == {}
