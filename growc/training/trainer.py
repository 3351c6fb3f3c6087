"""The methods in transformers' Trainer: classes that stand in front of it, in any number.

`class Mine(Inheriting, Replaying, Trainer)` has both; what a class is to know is an attribute, set before
`train`. One GPU, many, and checkpoints are the Trainer's. What these classes draw follows from the number of
the step, so that a run that goes on draws as it would have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, distributed, nn, optim
from torch.distributed.tensor import DTensor
from torch.nn import functional

from growc.training.entry_rates import EntryRates
from growc.training.inheritance import IGNORED, TopLogits, inheritance_rate, inherited_loss
from growc.training.logit_store import LogitStore
from growc.training.prompts import SoftPrompts
from growc.training.replay import Mixer
from growc.training.schedule import Schedule
from growc.training.submodels import SubModel, SubModels

if TYPE_CHECKING:
    from transformers import Trainer as Base
else:
    Base = object

Batch = dict[str, Tensor]
Teacher = Callable[[Batch], Tensor | TopLogits]
"""From a batch to logits [b, n, V], or the largest of them."""

PLACES = "places"
"""What of a batch says where its teacher's logits [b, n] stand on disk; it is not given to the model."""


@dataclass(frozen=True)
class Inheritance:
    """Teachers, α_T, and τ of Knowledge Inheritance; the steps are the Trainer's.

    shifted: whether a label stands one place behind its logits, as in causal models, or at the same place.
    """

    teachers: Sequence[Teacher]
    shifted: bool
    decay: float = 1.0
    temperature: float = 1.0


def predictions(module: nn.Module) -> Teacher:
    """A teacher that runs: a model that gives logits, on the batch's device."""

    @torch.no_grad()
    def teacher(batch: Batch) -> Tensor:
        given = _without(batch, "labels", PLACES)
        logits: Tensor = module.to(next(iter(batch.values())).device).eval()(**given).logits
        return logits

    return teacher


def stored(store: LogitStore) -> Teacher:
    """A teacher on disk; a batch says by `places` [b, n] where its logits stand."""

    def teacher(batch: Batch) -> TopLogits:
        found, device = store.read(batch[PLACES].cpu()), batch[PLACES].device
        values, indices, rest = found.values.to(device), found.indices.to(device), found.rest.to(device)
        return TopLogits(values, indices, rest, found.temperature)

    return teacher


def _without(batch: Batch, *names: str) -> Batch:
    return {name: tensor for name, tensor in batch.items() if name not in names}


class Inheriting(Base):
    """Knowledge Inheritance: the loss that `inherited_loss` has, over all processes and parts of a step."""

    inheritance: Inheritance

    def get_batch_samples(
        self, epoch_iterator: Iterator[Batch], num_batches: int, device: torch.device
    ) -> tuple[list[Batch], Tensor | int | None]:
        """The parts of a step, and how many places of all of them count."""
        self._loss_shifts_labels = self.inheritance.shifted  # which a Trainer does not know of every class
        return super().get_batch_samples(epoch_iterator, num_batches, device)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, object]:
        """In training the loss of both; in evaluation the model's own. Raises ValueError for a third one."""
        if not model.training:
            return super().compute_loss(model, _without(inputs, PLACES), return_outputs, num_items_in_batch)
        if self.label_smoother is not None or self.compute_loss_func is not None:
            raise ValueError(
                "labels are smoothed, or another loss is given: neither is in that of the teachers"
            )
        how, labels, outputs = self.inheritance, inputs["labels"], model(**_without(inputs, "labels", PLACES))
        if how.shifted:
            labels = functional.pad(labels[..., 1:], (0, 1), value=IGNORED)
        rate = inheritance_rate(self.state.global_step, self.state.max_steps, how.decay)
        teachers = [teacher(inputs) for teacher in how.teachers] if rate else []
        kept = (labels != IGNORED).sum()
        if kept:
            loss = inherited_loss(outputs.logits, labels, teachers, rate, how.temperature)
        else:
            loss = 0 * outputs.logits.sum()
        if num_items_in_batch is not None:
            ranks = self.accelerator.num_processes if self.args.average_tokens_across_devices else 1
            loss = loss * kept * ranks / num_items_in_batch
        return (loss, outputs) if return_outputs else loss


@dataclass(frozen=True)
class SubModelStage:
    """Stage one of two-stage training: for `steps` steps, sub-models of `layers`, 2·`layers`, … layers."""

    steps: int
    layers: int
    example_inputs: object = None
    seed: int = 0


class TwoStage(Base):
    """Two-stage training: sub-models first, then the whole model. All processes draw the same sub-model."""

    first_stage: SubModelStage
    sub_models: SubModels | None = None
    drawn: list[SubModel]

    def training_step(
        self, model: nn.Module, inputs: Batch, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """A step of the sub-model that is drawn, or of the whole model. Raises ValueError for shards."""
        if self.state.global_step >= self.first_stage.steps:
            return super().training_step(model, inputs, num_items_in_batch)
        if self.sub_models is None:  # parameters are on their device by now
            whole, how = self.accelerator.unwrap_model(model), self.first_stage
            refuse_parts(whole, self.args.n_gpu, sharded=self.is_fsdp_enabled or self.is_deepspeed_enabled)
            self.sub_models = SubModels(whole, how.layers, how.example_inputs, seed=how.seed)
            self.drawn = []
        while len(self.drawn) <= self.state.global_step:
            self.drawn.append(self.sub_models.sample())
        sub = self.drawn[self.state.global_step]
        loss = super().training_step(sub.module, inputs, num_items_in_batch)
        if self.accelerator.sync_gradients:
            average_gradients(self.sub_models.whole.get_parameter(name) for name in sub.trained)
        return loss

    def compute_loss_context_manager(self) -> ExitStack:
        """Mixed precision for sub-models too, which the Trainer has not prepared for it."""
        stack = super().compute_loss_context_manager()
        stack.enter_context(self.accelerator.autocast())
        return stack


def refuse_parts(module: nn.Module, devices: int, *, sharded: bool = False) -> None:
    """Raises ValueError where a process does not hold a model whole, and on one device."""
    if sharded or any(isinstance(parameter, DTensor) for parameter in module.parameters()):
        raise ValueError("sub-models share whole parameters, and FSDP or ZeRO cuts them: train with DDP")
    if devices > 1:
        raise ValueError(f"sub-models train on one GPU a process, and not {devices}: start with torchrun")


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Gradients as DDP makes them: means over processes, for what is not called through DDP."""
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return
    own = list(parameters)
    used = torch.tensor([parameter.grad is not None for parameter in own], device=own[0].device).int()
    distributed.all_reduce(used, distributed.ReduceOp.MAX)
    for parameter in (parameter for parameter, anywhere in zip(own, used.tolist(), strict=True) if anywhere):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        distributed.all_reduce(parameter.grad)
        parameter.grad /= distributed.get_world_size()


class Replaying(Base):
    """Memory replay: the training set is the concatenation of a mixer's sources."""

    mixer: Mixer

    def _get_train_sampler(self, train_dataset: object = None) -> Mixer:
        """The mixer, from its beginning: a Trainer that goes on skips what was used. Raises ValueError."""
        data, mixer, args = self.train_dataset, self.mixer, self.args
        if not isinstance(data, Sized) or len(data) != sum(mixer.sizes):
            raise ValueError(f"the training set has not the {sum(mixer.sizes)} samples that the mixer has")
        batch = self.get_total_train_batch_size(args)
        if batch != mixer.batch or not 0 < args.max_steps <= mixer.steps:
            raise ValueError(
                f"{args.max_steps} steps (max_steps) of {batch} samples, and the mixer has {mixer.steps} of"
                f" {mixer.batch}"
            )
        if args.ignore_data_skip:
            raise ValueError("a run that goes on would begin again with the data: `ignore_data_skip` is set")
        mixer.seek(0)
        return mixer


@dataclass(frozen=True)
class Groups:
    """Groups of parameters, and their schedules.

    of: the groups of a model, as `growc.param_groups` makes them; one without `weight_decay` has the
    arguments'. schedules: by a group's name; all others have `schedule`. entries: which entries of a model's
    parameters have rates of their own, and the schedule by which these differ.
    """

    of: Callable[[nn.Module], Sequence[Mapping[str, object]]]
    schedule: Schedule
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    entries: tuple[Callable[[nn.Module], Mapping[Tensor, Tensor]], Schedule] | None = None


class Scheduled(Base):
    """Groups and schedules in place of the Trainer's; the optimizer is that of its arguments."""

    groups: Groups

    def create_optimizer(self, model: nn.Module | None = None) -> optim.Optimizer:
        """An optimizer of the groups. Raises ValueError for one that takes none."""
        if self.optimizer is None:
            module: nn.Module = self.accelerator.unwrap_model(model or self.model)
            kind, options = self.get_optimizer_cls_and_kwargs(self.args)
            if not isinstance(kind, type) or not issubclass(kind, optim.Optimizer):
                raise ValueError(f"`{self.args.optim}` takes no groups of parameters")
            decay = {"weight_decay": self.args.weight_decay}
            self.optimizer = kind([{**decay, **group} for group in self.groups.of(module)], **options)
            if self.groups.entries is not None:
                chosen, schedule = self.groups.entries
                EntryRates(self.optimizer, chosen(module), lambda _: schedule(self.state.global_step))
        return self.optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: optim.Optimizer | None = None
    ) -> optim.lr_scheduler.LRScheduler:
        """A factor for each group."""
        if self.lr_scheduler is None:
            chosen = optimizer or self.create_optimizer()
            names = [str(group.get("name")) for group in chosen.param_groups]
            own = [self.groups.schedules.get(name, self.groups.schedule) for name in names]
            self.lr_scheduler, self._created_lr_scheduler = optim.lr_scheduler.LambdaLR(chosen, own), True
        return self.lr_scheduler


@dataclass(frozen=True)
class Prompting:
    """A data collator: behind `collate`, each row has the prompt of its `domain` in front.

    The Trainer is not to drop `domain`: `remove_unused_columns=False`.
    """

    collate: Callable[[list[dict[str, object]]], Mapping[str, Tensor]]
    prompts: SoftPrompts

    def __call__(self, examples: Sequence[Mapping[str, object]]) -> Batch:
        """A batch of examples, each with its `domain`."""
        domains = [str(example["domain"]) for example in examples]
        others = [{k: v for k, v in example.items() if k != "domain"} for example in examples]
        return self.prompts.in_front(self.collate(others), domains)
