"""The model that a recipe names in a comment, `# model: PATH`: its axes, inspected in a separate process.

A model is inspected once until its file changes. Nothing waits for the inspection: a question during it is
answered by a sentence that says so.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from growc.editor.reading import Reading
from growc.errors.source import Span
from growc.recipe.syntax_tree import Comment

NAMED = re.compile(r"\s*model:\s*(\S.*?)\s*")


@dataclass(frozen=True)
class CommentedModel:
    """A model named in a comment: its path as written, the resolved path, and the comment's span."""

    name: str
    path: Path
    span: Span


def model_of(reading: Reading) -> CommentedModel | None:
    """The model that the first comment of this kind names; its path is relative to the recipe."""
    for item in reading.items:
        if isinstance(item, Comment) and (match := NAMED.fullmatch(item.text)):
            path = os.path.normpath(reading.source.folder.absolute() / match[1])
            return CommentedModel(match[1], Path(path), item.span)
    return None


FileTimes = tuple[tuple[int, int], ...]
"""The times of the last changes of a model's files, and their sizes."""


def state_of(path: Path) -> FileTimes | None:
    """The state by which changes of a model are noticed: that of its file, or of all files in its folder.

    None if nothing is there.
    """
    try:
        files = [file for file in sorted(path.iterdir()) if file.is_file()] if path.is_dir() else [path]
        stats = [file.stat() for file in files]
    except (OSError, ValueError):
        return None
    return tuple((file.st_mtime_ns, file.st_size) for file in stats)


@dataclass
class AxesByModel:
    """The axes of models, by the models' paths."""

    command: tuple[str, ...] = (sys.executable, "-P", "-m", "growc", "inspect", "--json")
    known: dict[Path, tuple[FileTimes, str | dict[str, str]]] = field(default_factory=dict)
    """Results of inspections: the sizes of axes, or the reason why there are none."""
    running: dict[Path, subprocess.Popen[str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    closed: bool = False

    def all(self, model: CommentedModel) -> str:
        """A sentence on all axes of a model."""
        sizes = self.ask(model)
        listed = sizes if isinstance(sizes, str) else ", ".join(f"{axis} {n}" for axis, n in sizes.items())
        return listed or f"`{model.name}` has no axes with a name"

    def one(self, model: CommentedModel, axis: str) -> str:
        """A sentence on one axis of a model."""
        sizes = self.ask(model)
        if isinstance(sizes, str):
            return sizes
        return f"{sizes[axis]} in `{model.name}`" if axis in sizes else f"`{model.name}` has no `{axis}`"

    def ask(self, model: CommentedModel) -> str | dict[str, str]:
        """The sizes of a model, or a sentence why they are unknown. Starts an inspection if needed."""
        state = state_of(model.path)
        if state is None:
            return f"there is no `{model.name}`"
        with self.lock:
            known_state, sizes = self.known.get(model.path, ((), ""))
            if sizes and known_state == state:
                return sizes
            if model.path not in self.running and not self.closed:
                self._begin(model, state)
        return f"growc is reading `{model.name}`"

    def _begin(self, model: CommentedModel, state: FileTimes) -> None:
        process = subprocess.Popen(
            [*self.command, str(model.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
        )
        self.running[model.path] = process
        threading.Thread(target=self._end, args=(model, state, process), daemon=True).start()

    def _end(self, model: CommentedModel, state: FileTimes, process: subprocess.Popen[str]) -> None:
        output, _ = process.communicate()
        with self.lock:
            self.known[model.path] = state, _found(model, output)
            del self.running[model.path]

    def close(self) -> None:
        """End running inspections, and start no more."""
        with self.lock:
            self.closed = True
            for process in self.running.values():
                process.kill()


def _found(model: CommentedModel, output: str) -> str | dict[str, str]:
    """The result of `growc inspect --json`: sizes by axis, or the reason of its refusal."""
    try:
        data = json.loads(output)
    except ValueError:
        return f"growc could not read `{model.name}`"
    if "error" in data:
        return f"growc refuses `{model.name}`: {data['error']['message']} [{data['error']['code']}]"
    sizes = {axis: size if isinstance(size, list) else [size] for axis, size in data["axes"].items()}
    return {axis: ", ".join(map(str, numbers)) for axis, numbers in sizes.items()}
