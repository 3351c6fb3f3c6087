"""A class with weights as a model for the passes: its captured program, and tensors that are read on
demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from growc.checkpoint.classes.class_weights import ClassWeights, single
from growc.checkpoint.classes.config_only import ConfigOnly
from growc.checkpoint.classes.on_disk import CheckpointOnDisk
from growc.checkpoint.files.config_folders import home_of
from growc.checkpoint.files.directory import CONFIG, weight_files
from growc.checkpoint.files.quiet import quiet
from growc.dialects.torch.capture.example_inputs import example_inputs as guessed
from growc.dialects.torch.capture.example_inputs import without_cache
from growc.dialects.torch.capture.export import ExportedModule, export
from growc.dialects.torch.capture.tracing import by_name
from growc.dialects.torch.lowering.lower import lower
from growc.dialects.torch.model import TorchModel, arguments
from growc.dialects.torch.operators.arrays import to_torch
from growc.dialects.transformers.config.fields import FieldPath, Values, complete, path_of, value_at
from growc.dialects.transformers.config.trials import KnownSizes
from growc.dialects.transformers.first_step import first_step
from growc.errors.diagnostic import nearest, wrong
from growc.errors.json_data import Json
from growc.errors.short_repr import brief
from growc.passes.compilation import Result, Source
from growc.verification.feeds import named_arrays


@dataclass
class ClassModel(TorchModel):
    """The program of a class.

    inputs: the inputs of the capture. tried: outcomes of other configs of the class, kept while a config is
    searched. decided: fields of the result's config that the caller sets.
    """

    __repr__ = brief

    libraries = ("torch", "transformers")
    class_weights: ClassWeights = field(kw_only=True)
    inputs: Mapping[str, Any] = field(kw_only=True)
    tried: KnownSizes = field(default_factory=KnownSizes, kw_only=True)
    decided: Values = field(default_factory=dict, kw_only=True)
    open_masks = True

    @classmethod
    def at(cls, path: Path, example_inputs: object = None) -> Self:
        """The model of a checkpoint directory or a config.json.

        example_inputs: inputs by name, or the `.npz` file that holds them. Raises GrowError (G309, G310,
        G317, G323) if the path cannot be read or its class cannot be captured.
        """
        with quiet():
            class_weights = CheckpointOnDisk.open(path) if path.is_dir() else ConfigOnly.open(path)
            if example_inputs is None:
                return cls.of_weights(class_weights, guessed(class_weights.module))
            if isinstance(example_inputs, str | Path):
                example_inputs = {n: to_torch(a) for n, a in named_arrays(Path(example_inputs)).items()}
            inputs = tree_map_only(Tensor, single, _given(class_weights.module, example_inputs))
            return cls.of_weights(class_weights, inputs)

    @classmethod
    def of_module(cls, module: nn.Module, example_inputs: Any = None) -> Self:
        """The model of a transformers module.

        example_inputs: as for `TorchModel.of`; caches among them are left out. Raises GrowError (G309, G317,
        G321) if the class does not build the module or cannot be captured.
        """
        from growc.checkpoint.classes.in_memory import ModuleInMemory

        if example_inputs is None:
            class_weights = ModuleInMemory.of(module)
            return cls.of_weights(class_weights, guessed(class_weights.module))
        inputs = _given(module, example_inputs)
        return cls.of_weights(ModuleInMemory.of(module, inputs), tree_map_only(Tensor, single, inputs))

    @classmethod
    def of_weights(cls, class_weights: ClassWeights, inputs: Mapping[str, Any]) -> Self:
        """The model of a class, captured on these inputs. Raises GrowError (G317) if it cannot be
        captured.
        """
        captured = export(class_weights.module, (), inputs)
        return cls.of_captured(class_weights, inputs, captured)

    @classmethod
    def of_captured(
        cls, class_weights: ClassWeights, inputs: Mapping[str, Any], captured: ExportedModule
    ) -> Self:
        """The model of a class that is already captured."""
        program = lower(captured, class_weights.stored_tensor, class_weights.has)
        return cls(
            program, captured=captured, read=class_weights.tensor, class_weights=class_weights, inputs=inputs
        )

    def deciding(self, config: Mapping[str, Json]) -> Self:
        """The model with these values in the result's config. Raises GrowError (G200) for an unknown
        field.
        """
        fields, decided = complete(self.class_weights.module, {}), dict[FieldPath, object]()
        for spelling, value in config.items():
            try:
                value_at(fields, path := path_of(spelling))
            except (ValueError, LookupError, TypeError):
                near = nearest(spelling, map(str, fields))
                remedy = f"did you mean `{near}`?" if near else "its config.json shows which there are"
                kind = type(self.class_weights.module).__name__
                raise wrong(f"the config of `{kind}` has no field `{spelling}`", remedy) from None
            decided[path] = value
        return replace(self, decided=decided)

    def fit_config(self, c: Result) -> Result:
        """The compilation. A class has a forward of its own, which may change tensors."""
        return c

    def files(self, path: Path) -> list[Path]:
        """The files that define what the model computes: config and weights of a directory."""
        return [home_of(path) / CONFIG, *weight_files(path)] if path.is_dir() else super().files(path)


def _given(module: nn.Module, example_inputs: object) -> dict[str, object]:
    """Inputs of the module's forward by name, without caches."""
    args, kwargs = arguments(example_inputs)
    step = first_step(module, by_name(module, args, kwargs))
    return without_cache(module, kwargs=step) | step


def class_model(c: Source) -> ClassModel:
    """The model of a compilation of a class."""
    assert isinstance(c.model, ClassModel), "a class was compiled"
    return c.model
