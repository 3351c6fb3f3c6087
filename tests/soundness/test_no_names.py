"""No architecture's name decides anything: the compiler's code holds none, comments and docstrings aside."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted(p for folder in ("growc", "grammar", "passes") for p in (ROOT / folder).rglob("*.py"))

NAMES = """
albert aria bart beit bert biogpt bloom chatglm clap codegen cohere convnext dbrx deberta deepseek deit
densenet dinov distilbert dpt efficientnet electra ernie exaone falcon flaubert gemma glm glpn gpt granite
grok hubert inception jamba jetmoe lfm lilt llama llava longformer longt luke mamba marian mbart minilm
minimax mistral mixtral mobilenet mobilevit modernbert moonshine mpnet mpt nemotron neox nystromformer olmo
olmoe paligemma pegasus persimmon phi pixtral pythia qwen regnet resnet retnet roberta rwkv segformer
siglip smollm stablelm starcoder swin umt unet vgg vit wav whisper xception xglm xlm xlnet yolo yolos zamba
"""

ARCHITECTURES = frozenset(NAMES.split())
"""Families of models. Words of operators or of English (Clip, Opt) are left out: they cannot be told."""


def spoken(path: Path) -> Iterator[tuple[int, str]]:
    """(line, word) for every word of identifiers and of strings that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        texts = [getattr(node, field, None) for field in ("id", "attr", "name", "arg")]
        if isinstance(node, ast.Constant) and id(node) not in prose:
            texts.append(node.value)
        for text in texts:
            if isinstance(text, str):
                for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", text):
                    yield getattr(node, "lineno", 0), word.lower()


def test_the_compiler_names_no_architecture() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in FILES
        for line, word in spoken(path)
        if word in ARCHITECTURES
    ]
    assert not found, "\n".join(found)


def test_a_name_would_be_seen(tmp_path: Path) -> None:
    path = tmp_path / "rule.py"
    path.write_text('"""As in bert."""\ndef widen_llama(name): return "gpt2" in name\n')
    assert {word for _, word in spoken(path)} & ARCHITECTURES == {"llama", "gpt"}
