"""Training methods for transformers' Trainer, as mixin classes that can be combined.

`class Mine(Inheriting, Replaying, Trainer)` has both. The settings of a class are an attribute, set before
`train`. The Trainer handles one or many GPUs, and checkpoints. Random draws of these classes follow from the
number of the step, so that a resumed run draws the same.
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
"""Function from a batch to logits [b, n, V], or to the largest of them."""

PLACES = "places"
"""Key of a batch for the positions [b, n] of its teacher's logits on disk. The model does not get it."""


@dataclass(frozen=True)
class Inheritance:
    """Teachers, α_T (`decay`) and τ (`temperature`) of Knowledge Inheritance. The steps are the Trainer's.

    shifted: whether a label is one position after its logits, as in causal models, or at the same position.
    """

    teachers: Sequence[Teacher]
    shifted: bool
    decay: float = 1.0
    temperature: float = 1.0


def predictions(module: nn.Module) -> Teacher:
    """Return a teacher that runs a model with logits, on the batch's device."""

    @torch.no_grad()
    def teacher(batch: Batch) -> Tensor:
        inputs = _without(batch, "labels", PLACES)
        logits: Tensor = module.to(next(iter(batch.values())).device).eval()(**inputs).logits
        return logits

    return teacher


def stored(store: LogitStore) -> Teacher:
    """Return a teacher on disk. A batch holds the positions of its logits in `places` [b, n]."""

    def teacher(batch: Batch) -> TopLogits:
        logits, device = store.read(batch[PLACES].cpu()), batch[PLACES].device
        values, indices, rest = logits.values.to(device), logits.indices.to(device), logits.rest.to(device)
        return TopLogits(values, indices, rest, logits.temperature)

    return teacher


def _without(batch: Batch, *names: str) -> Batch:
    return {name: tensor for name, tensor in batch.items() if name not in names}


class Inheriting(Base):
    """Knowledge Inheritance: the loss of `inherited_loss`, over all processes and parts of a step."""

    inheritance: Inheritance

    def get_batch_samples(
        self, epoch_iterator: Iterator[Batch], num_batches: int, device: torch.device
    ) -> tuple[list[Batch], Tensor | int | None]:
        """Return the parts of a step, and the number of positions that count in all of them."""
        self._loss_shifts_labels = self.inheritance.shifted  # a Trainer does not know this of every class
        return super().get_batch_samples(epoch_iterator, num_batches, device)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, object]:
        """Return the combined loss, or the model's own in evaluation. Raises ValueError for other losses."""
        if not model.training:
            return super().compute_loss(model, _without(inputs, PLACES), return_outputs, num_items_in_batch)
        if self.label_smoother is not None or self.compute_loss_func is not None:
            message = "labels are smoothed, or another loss is given: neither is in that of the teachers"
            raise ValueError(message)
        settings, labels = self.inheritance, inputs["labels"]
        outputs = model(**_without(inputs, "labels", PLACES))
        if settings.shifted:
            labels = functional.pad(labels[..., 1:], (0, 1), value=IGNORED)
        rate = inheritance_rate(self.state.global_step, self.state.max_steps, settings.decay)
        teachers = [teacher(inputs) for teacher in settings.teachers] if rate else []
        counted = (labels != IGNORED).sum()
        if counted:
            loss = inherited_loss(outputs.logits, labels, teachers, rate, settings.temperature)
        else:
            loss = 0 * outputs.logits.sum()
        if num_items_in_batch is not None:
            ranks = self.accelerator.num_processes if self.args.average_tokens_across_devices else 1
            loss = loss * counted * ranks / num_items_in_batch
        return (loss, outputs) if return_outputs else loss


@dataclass(frozen=True)
class SubModelStage:
    """Stage one of two-stage training: `steps` steps on sub-models of `layers`, 2·`layers`, … layers."""

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
        """Run a step of the drawn sub-model, or of the whole model. Raises ValueError for sharded models."""
        if self.state.global_step >= self.first_stage.steps:
            return super().training_step(model, inputs, num_items_in_batch)
        if self.sub_models is None:  # only now are parameters on their device
            whole_model, settings = self.accelerator.unwrap_model(model), self.first_stage
            refuse_parts(
                whole_model, self.args.n_gpu, sharded=self.is_fsdp_enabled or self.is_deepspeed_enabled
            )
            self.sub_models = SubModels(
                whole_model, settings.layers, settings.example_inputs, seed=settings.seed
            )
            self.drawn = []
        while len(self.drawn) <= self.state.global_step:
            self.drawn.append(self.sub_models.sample())
        sub = self.drawn[self.state.global_step]
        loss = super().training_step(sub.module, inputs, num_items_in_batch)
        if self.accelerator.sync_gradients:
            average_gradients(self.sub_models.whole.get_parameter(name) for name in sub.trained)
        return loss

    def compute_loss_context_manager(self) -> ExitStack:
        """Return the Trainer's context with mixed precision, for which it has not prepared sub-models."""
        stack = super().compute_loss_context_manager()
        stack.enter_context(self.accelerator.autocast())
        return stack


def refuse_parts(module: nn.Module, devices: int, *, sharded: bool = False) -> None:
    """Raise ValueError unless a process holds the whole model, on one device."""
    if sharded or any(isinstance(parameter, DTensor) for parameter in module.parameters()):
        raise ValueError("sub-models share whole parameters, and FSDP or ZeRO cuts them: train with DDP")
    if devices > 1:
        raise ValueError(f"sub-models train on one GPU a process, and not {devices}: start with torchrun")


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Average gradients over processes, as DDP does, for modules that are not called through DDP."""
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return
    all_parameters = list(parameters)
    used = torch.tensor(
        [parameter.grad is not None for parameter in all_parameters], device=all_parameters[0].device
    ).int()
    distributed.all_reduce(used, distributed.ReduceOp.MAX)
    for parameter in (
        parameter for parameter, anywhere in zip(all_parameters, used.tolist(), strict=True) if anywhere
    ):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        distributed.all_reduce(parameter.grad)
        parameter.grad /= distributed.get_world_size()


class Replaying(Base):
    """Memory replay: the training set is the concatenation of a mixer's sources."""

    mixer: Mixer

    def _get_train_sampler(self, train_dataset: object = None) -> Mixer:
        """Return the mixer at its beginning, since a resumed Trainer skips used samples.

        Raises ValueError if data set, batch or steps do not match the mixer, or if data skipping is disabled.
        """
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

    of: makes the groups of a model, as `growc.param_groups` does. A group without `weight_decay` has that of
    the Trainer's arguments. schedules: by a group's name. All other groups have `schedule`. entries: selects
    entries of a model's parameters with separate rates, and gives the schedule of their factor.
    """

    of: Callable[[nn.Module], Sequence[Mapping[str, object]]]
    schedule: Schedule
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    entries: tuple[Callable[[nn.Module], Mapping[Tensor, Tensor]], Schedule] | None = None


class Scheduled(Base):
    """Groups and schedules that replace the Trainer's. The optimizer is that of its arguments."""

    groups: Groups

    def create_optimizer(self, model: nn.Module | None = None) -> optim.Optimizer:
        """Return an optimizer of the groups. Raises ValueError for an optimizer that takes no groups."""
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
        """Return a scheduler with one factor per group."""
        if self.lr_scheduler is None:
            chosen = optimizer or self.create_optimizer()
            names = [str(group.get("name")) for group in chosen.param_groups]
            schedules = [self.groups.schedules.get(name, self.groups.schedule) for name in names]
            self.lr_scheduler, self._created_lr_scheduler = (
                optim.lr_scheduler.LambdaLR(chosen, schedules),
                True,
            )
        return self.lr_scheduler


@dataclass(frozen=True)
class Prompting:
    """A data collator that adds, after `collate`, the prompt of its `domain` in front of each row.

    The Trainer must not drop `domain`: `remove_unused_columns=False`.
    """

    collate: Callable[[list[dict[str, object]]], Mapping[str, Tensor]]
    prompts: SoftPrompts

    def __call__(self, examples: Sequence[Mapping[str, object]]) -> Batch:
        """Return a batch of examples, each of which has a `domain`."""
        domains = [str(example["domain"]) for example in examples]
        others = [{k: v for k, v in example.items() if k != "domain"} for example in examples]
        return self.prompts.in_front(self.collate(others), domains)
