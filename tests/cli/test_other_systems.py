"""Calls that not every system has: without them the bytes are the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

from growc.files.atomic_rename import exchange

MODEL = Path(__file__).parents[2] / "examples" / "models" / "tiny-gpt.onnx"
RECIPE = "widen ffn to 2 * ffn with neighbor copy"

HIDDEN = """
import ctypes, os, signal, sys
from importlib import import_module
for module in sys.argv.pop(1).split():
    import_module(module)  # theirs is not what is tried
for name in ("posix_fallocate", "sched_getaffinity", "geteuid", "pwrite", "copy_file_range"):
    vars(os).pop(name, None)
for name in ("SIGHUP", "SIGBUS", "pthread_sigmask"):
    vars(signal).pop(name, None)
sys.modules["fcntl"] = sys.modules["resource"] = None
plain = ctypes.CDLL
ctypes.CDLL = lambda name, *rest, **options: object() if name is None else plain(name, *rest, **options)
from growc.cli.main import program
del sys.modules["resource"]  # libraries that are imported later need theirs
sys.exit(program())
"""


def bytes_of(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=48)
    path = tmp_path_factory.mktemp("llama") / "source"
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    return path


@pytest.mark.parametrize("form", ["onnx", pytest.param("directory", marks=pytest.mark.soak)])
def test_calls_that_not_every_system_has_are_not_needed(form: str, directory: Path, tmp_path: Path) -> None:
    source, libraries = (
        (directory, "transformers onnxruntime") if form == "directory" else (MODEL, "onnxruntime")
    )
    made = []
    for name, start in (("usual", ["-m", "growc"]), ("bare", ["-c", HIDDEN, libraries])):
        out = tmp_path / name / ("made" if form == "directory" else "made.onnx")
        out.parent.mkdir()
        command = [sys.executable, *start, "apply", "-e", RECIPE, str(source), "-o", str(out)]
        for _ in range(2 if name == "bare" else 1):  # the second one replaces the first
            done = subprocess.run([*command, "--force"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        made.append(bytes_of(out.parent))
    assert made[0] == made[1]


def test_names_that_the_system_cannot_exchange_are_told(tmp_path: Path) -> None:
    assert not exchange(tmp_path / "one", tmp_path / "other")
