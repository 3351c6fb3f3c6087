"""The torch dialect's model: a captured and lowered module with the interface that the passes need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import onnx_ir as ir
from torch import Tensor, nn

from growc.dialects.onnx.clones import Clone
from growc.dialects.onnx.files.load import files_of
from growc.dialects.onnx.model import IrModel
from growc.dialects.torch.capture.example_inputs import capturable, register_caches, without_cache
from growc.dialects.torch.capture.example_inputs import example_inputs as guessed
from growc.dialects.torch.capture.export import ExportedModule, export
from growc.dialects.torch.capture.routed_loops import taken, unrolled_loop_sizes
from growc.dialects.torch.emit.literals import BEFORE, record_state
from growc.dialects.torch.emit.weight_norm import put_back
from growc.dialects.torch.lowering.lower import ReadParameter, lower
from growc.dialects.torch.lowering.onnx_copy import LoweredFile
from growc.dialects.torch.programs.load import load
from growc.dialects.torch.tested_versions import untested
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.short_repr import brief
from growc.passes.compilation import ModelWithMixtures, Result, Source
from growc.passes.edits import Mixture
from growc.passes.finish.assembled import Assembled


@dataclass
class TorchModel(IrModel):
    """A module captured by torch.export. `source` is its lowered program."""

    __repr__ = brief

    captured: ExportedModule = field(kw_only=True)
    read: ReadParameter = field(kw_only=True)
    lowered: LoweredFile = field(init=False)
    repeats = True
    libraries: ClassVar[tuple[str, ...]] = ("torch",)
    """The libraries that compute the model."""
    output_names: tuple[str, ...] = field(init=False)
    """The names of the source's outputs, in order."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lowered = LoweredFile(self.captured, self.read)
        self.warnings = tuple(untested(*self.libraries))
        self.output_names = tuple(value.name or "" for value in self.source.graph.outputs)
        decided = tuple(
            f"the result is for these values of `{name}`, by which forward decides: {value.tolist()}"
            for name, value in self.captured.values.items()
        )
        self.capture_notes, self.looped = (
            (*taken(self.captured.program), *decided),
            unrolled_loop_sizes(self.captured.program),
        )

    @staticmethod
    def open(captured: ExportedModule, read: ReadParameter) -> TorchModel:
        """Return the model of a captured program.

        read: loads a tensor of its state dict by its first name.
        """
        return TorchModel(lower(captured, read), captured=captured, read=read)

    @staticmethod
    def of(module: nn.Module, example_inputs: Any) -> TorchModel:
        """Return the model of a module. The inputs are a mapping by name, a sequence, or one tensor.

        Raises GrowError (G317) if the module cannot be captured.
        """
        deciding = example_inputs is not None
        args, kwargs = arguments(example_inputs if deciding else guessed(module))
        with capturable(module):
            named = without_cache(module, args, kwargs) | dict(kwargs)
            captured = export(module, args, named, deciding=deciding)
        return TorchModel.open(captured, reader(module))

    @staticmethod
    def of_program(path: Path) -> TorchModel:
        """Return the model of a `.pt2` file. Raises GrowError (G310) if it cannot be read."""
        captured = load(path)
        tensors = captured.program.state_dict
        first = {captured.names.get(name, name): tensor for name, tensor in tensors.items()}
        return TorchModel.open(captured, first.__getitem__)

    def fit_config(self, c: Result) -> Result:
        """Return the compilation. Raises GrowError (G308) if the program changes its tensors."""
        self.captured.require_pure()
        return c

    def put_back(self, assembled: Assembled) -> Assembled:
        """Return the tensors of a plan with weight norms in the form of modules."""
        return put_back(assembled, self.folded)

    def upcycle(self, mixtures: Sequence[Mixture]) -> ModelWithMixtures[Self]:
        """Raise GrowError (G309): a torch graph can only get copies of its own calls."""
        message = "a module has no calls that route: `upcycle` makes mixtures of files and directories"
        remedy = "export it to ONNX (`torch.onnx.export`), or save it (`save_pretrained`) and name a class"
        raise GrowError(Diagnostic("G309", message, help=remedy))

    def on(self, clone: Clone) -> Self:
        """Return the model on a copied structure, whose nodes keep the record of their source state."""
        for node in clone.nodes.values():
            if BEFORE in node.meta:
                node.meta[BEFORE] = node.meta[BEFORE].on(clone)
        return super().on(clone)

    def remember(self, nodes: Iterable[ir.Node]) -> None:
        """Record the state of nodes in the source, from which the calls of the result are derived."""
        record_state(nodes)

    def file(self, path: Path) -> Path:
        """Return the lowered program as a file for onnxruntime. Raises GrowError (G403) if it cannot run."""
        return self.lowered.path

    def files(self, path: Path) -> list[Path]:
        """Return the files that define the model: a `.pt2` file, or the lowered files of a module."""
        return [path] if path.suffix == ".pt2" and path.is_file() else files_of(self.lowered.path)


def torch_model(c: Source) -> TorchModel:
    """Return the model of a compilation, which must be of a module."""
    assert isinstance(c.model, TorchModel), "a module was compiled"
    return c.model


def arguments(example_inputs: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the positional and named arguments of forward."""
    register_caches(example_inputs)
    if isinstance(example_inputs, Mapping):
        return (), example_inputs
    return ((example_inputs,) if isinstance(example_inputs, Tensor) else tuple(example_inputs)), {}


def reader(module: nn.Module) -> ReadParameter:
    """Return a function that gives the tensors of a module by name."""
    tensors: dict[str, Tensor] = dict(module.named_buffers(remove_duplicate=False))
    return (tensors | dict(module.named_parameters(remove_duplicate=False))).__getitem__
