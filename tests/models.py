"""Small models of real architectures, exported by torch as users' files are, for tests of the whole compiler.

Two layers each, with weights large enough that a wrong one shows: GPT-2 (tied head; once more as transformers
initialises it, with the equal gains and zero biases that exporters merge), BERT with its tied masked-language
head and without one, and a LLaMA with grouped queries, a tied head and a large eps. Every model comes from
both exporters, and with every name taken away.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import warnings
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from numpy.typing import NDArray

ROOT = Path(__file__).parent.parent
MAKER = ROOT / "examples" / "make_models.py"
FLAVOURS = ("dynamo", "dynamo.anon", "torchscript", "torchscript.anon")
SEEDS = {"gpt2": 1, "gpt2-default": 2, "bert": 3, "bert-bare": 4, "llama": 5}

LARGE_EPS = 3e-2
"""Of the LLaMA's norms: it shows in the outputs where it is left as it was."""

Weights = dict[str, NDArray[Any]]


class Models:
    """Models in a folder, made when they are first asked for; several processes may share the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str, flavour: str = "torchscript") -> Path:
        """The ONNX file of a model in one of FLAVOURS."""
        path = self.folder / f"{name}.{flavour}.onnx"
        if not path.exists():
            self._make(name, flavour.removesuffix(".anon"))
        return path

    def weights(self, name: str) -> Weights:
        """The parameters as torch names them, ties once under each of their names."""
        path = self.folder / f"{name}.npz"
        if not path.exists():
            self._make(name, "torchscript")
        with np.load(path) as file:
            return dict(file)

    def _make(self, name: str, exporter: str) -> None:
        """Export one model with one exporter, unless another process has done so meanwhile."""
        with (self.folder / f"{name}.{exporter}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (self.folder / f"{name}.{exporter}.onnx").exists():
                return
            with TemporaryDirectory(dir=self.folder) as draft, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                named = Path(draft) / f"{name}.{exporter}.onnx"
                model = build(name)
                np.savez(Path(draft) / f"{name}.npz", **{k: v.numpy() for k, v in model.state_dict().items()})
                export(model, exporter, named)
                maker().anonymise(named, named.with_suffix(".anon.onnx"))
                for path in sorted(Path(draft).iterdir(), key=lambda p: (p.suffix == ".onnx", p == named)):
                    path.rename(self.folder / path.name)


def digest() -> str:
    """Changes whenever the models may change."""
    code = Path(__file__).read_bytes() + MAKER.read_bytes()
    versions = " ".join(version(name) for name in ("torch", "transformers", "onnx", "onnxscript"))
    return hashlib.sha256(code + versions.encode()).hexdigest()[:12]


@cache
def maker() -> Any:
    """The module examples/make_models.py."""
    spec = importlib.util.spec_from_file_location("make_models", MAKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(name: str) -> Any:
    """The torch model, seeded, in evaluation mode."""
    import torch

    torch.manual_seed(SEEDS[name])
    model = _architecture(name).eval().requires_grad_(False)
    if name != "gpt2-default":
        maker().draw_weights(model, torch.Generator().manual_seed(SEEDS[name]))
    for path, parameter in model.named_parameters():
        if name == "llama" and "norm" in path:
            parameter.copy_(1 + 0.3 * torch.randn(parameter.shape))
    return model


def _architecture(name: str) -> Any:
    import transformers

    if name.startswith("gpt2"):
        sizes = {"n_layer": 2, "n_embd": 48, "n_head": 6, "vocab_size": 90, "n_positions": 32}
        return maker().CausalLM(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    sizes = {"num_hidden_layers": 2, "hidden_size": 48, "num_attention_heads": 6, "vocab_size": 90}
    sizes |= {"intermediate_size": 96, "max_position_embeddings": 32}
    if name.startswith("bert"):
        return (maker().Encoder if name == "bert-bare" else maker().MaskedLM)(
            transformers.BertConfig(**sizes)
        )

    class Llama(transformers.LlamaForCausalLM):
        """LLaMA as a function from tensors to logits."""

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return super().forward(input_ids, attention_mask, use_cache=False).logits

    return Llama(
        transformers.LlamaConfig(
            **sizes,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            rms_norm_eps=LARGE_EPS,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def export(model: Any, exporter: str, path: Path) -> None:
    """Write the model with one of torch's two exporters, batch and sequence dynamic."""
    import torch

    given = ["input_ids", "attention_mask", "token_type_ids"][: model.forward.__code__.co_argcount - 1]
    ids = torch.randint(4, 90, (2, 7), generator=torch.Generator().manual_seed(0))
    values = (ids, torch.ones_like(ids), ids % 2)[: len(given)]
    output = "last_hidden_state" if type(model).__name__ == "Encoder" else "logits"
    axes = {name: {0: "batch", 1: "seq"} for name in given}
    common = {"input_names": given, "output_names": [output], "opset_version": maker().OPSET[exporter]}
    if exporter == "dynamo":
        options = {"dynamo": True, "dynamic_shapes": axes, "external_data": True, "verbose": False}
    else:
        options = {"dynamo": False, "dynamic_axes": {**axes, output: {0: "batch", 1: "seq"}}}
    torch.onnx.export(model, values, path, **common, **options)


def stored(path: Path) -> Weights:
    """The initializers of an ONNX file by name."""
    graph = onnx.load(path).graph
    return {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}


def with_epsilon(source: Path, target: Path, value: float) -> Path:
    """The same model with another eps in every LayerNormalization."""
    proto = onnx.load(source)
    nodes = [n for n in proto.graph.node if n.op_type == "LayerNormalization"]
    assert nodes
    for node in nodes:
        for attribute in node.attribute:
            if attribute.name == "epsilon":
                attribute.f = value
    onnx.save(proto, target)
    return target


def with_shifted_vectors(source: Path, target: Path, by: float) -> Path:
    """The same model with a number added to all gains and biases, so that their means are far from zero."""
    proto = onnx.load(source)
    vectors = [
        t for t in proto.graph.initializer if len(t.dims) == 1 and t.data_type == onnx.TensorProto.FLOAT
    ]
    assert vectors
    for tensor in vectors:
        moved = onnx.numpy_helper.to_array(tensor) + np.float32(by)
        tensor.CopyFrom(onnx.numpy_helper.from_array(moved, tensor.name))
    onnx.save(proto, target)
    return target


def tied_once(source: Path, target: Path) -> Path:
    """A model whose head is a stored transpose of the embedding, with one tensor and a Transpose instead."""
    proto = onnx.load(source)
    graph = proto.graph
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    last = [n for n in graph.node if n.op_type == "MatMul"][-1]
    head = tensors[last.input[1]]
    table = next(k for k, v in tensors.items() if v.shape == head.T.shape and np.array_equal(v, head.T))
    (stored,) = (t for t in graph.initializer if t.name == last.input[1])
    graph.initializer.remove(stored)
    turn = onnx.helper.make_node("Transpose", [table], [last.input[1]], "head/Transpose", perm=[1, 0])
    graph.node.insert(0, turn)
    onnx.save(proto, target)
    return target


def scalars(path: Path) -> list[float]:
    """Every stored single number of a float type, Constant nodes included."""
    graph = onnx.load(path).graph
    tensors = [*graph.initializer, *(a.t for n in graph.node if n.op_type == "Constant" for a in n.attribute)]
    arrays = [onnx.numpy_helper.to_array(t) for t in tensors if t.data_type == onnx.TensorProto.FLOAT]
    return [a.reshape(-1)[0] for a in arrays if a.size == 1]
