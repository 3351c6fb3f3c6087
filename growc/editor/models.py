"""The model that a recipe names in a comment, `# model: PATH`: its axes, inspected in a process of its own.

A model is inspected once as long as its file stays as it is. Nothing waits for it: a question before it is
done is answered by that.
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
class Model:
    """A path as the recipe names it, where that leads, and where the comment stands."""

    name: str
    path: Path
    span: Span


def model_of(reading: Reading) -> Model | None:
    """The model that the first comment of this kind names; its path is relative to the recipe."""
    for item in reading.items:
        if isinstance(item, Comment) and (found := NAMED.fullmatch(item.text)):
            path = os.path.normpath(reading.source.folder.absolute() / found[1])
            return Model(found[1], Path(path), item.span)
    return None


State = tuple[tuple[int, int], ...]
"""When the files of a model were changed last, and how large they are."""


def state_of(path: Path) -> State | None:
    """What tells whether a model has changed; None where there is nothing. A folder is the files in it."""
    try:
        files = [file for file in sorted(path.iterdir()) if file.is_file()] if path.is_dir() else [path]
        found = [file.stat() for file in files]
    except (OSError, ValueError):
        return None
    return tuple((file.st_mtime_ns, file.st_size) for file in found)


@dataclass
class Sizes:
    """The axes of models by their paths."""

    command: tuple[str, ...] = (sys.executable, "-P", "-m", "growc", "inspect", "--json")
    known: dict[Path, tuple[State, str | dict[str, str]]] = field(default_factory=dict)
    """What was found: the sizes of axes, or why there are none."""
    running: dict[Path, subprocess.Popen[str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    closed: bool = False

    def all(self, model: Model) -> str:
        """What is known of a model, in a sentence."""
        found = self.ask(model)
        listed = found if isinstance(found, str) else ", ".join(f"{axis} {n}" for axis, n in found.items())
        return listed or f"`{model.name}` has no axes with a name"

    def one(self, model: Model, axis: str) -> str:
        """What is known of an axis, in a sentence."""
        found = self.ask(model)
        if isinstance(found, str):
            return found
        return f"{found[axis]} in `{model.name}`" if axis in found else f"`{model.name}` has no `{axis}`"

    def ask(self, model: Model) -> str | dict[str, str]:
        """The sizes of a model, or in a sentence why they are not known; begins to find them."""
        state = state_of(model.path)
        if state is None:
            return f"there is no `{model.name}`"
        with self.lock:
            before, found = self.known.get(model.path, ((), ""))
            if found and before == state:
                return found
            if model.path not in self.running and not self.closed:
                self._begin(model, state)
        return f"growc is reading `{model.name}`"

    def _begin(self, model: Model, state: State) -> None:
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

    def _end(self, model: Model, state: State, process: subprocess.Popen[str]) -> None:
        output, _ = process.communicate()
        with self.lock:
            self.known[model.path] = state, _found(model, output)
            del self.running[model.path]

    def close(self) -> None:
        """End what is running, and begin nothing more."""
        with self.lock:
            self.closed = True
            for process in self.running.values():
                process.kill()


def _found(model: Model, output: str) -> str | dict[str, str]:
    """What `growc inspect --json` said: sizes by axis, or the reason of its refusal."""
    try:
        data = json.loads(output)
    except ValueError:
        return f"growc could not read `{model.name}`"
    if "error" in data:
        return f"growc refuses `{model.name}`: {data['error']['message']} [{data['error']['code']}]"
    sizes = {axis: size if isinstance(size, list) else [size] for axis, size in data["axes"].items()}
    return {axis: ", ".join(map(str, several)) for axis, several in sizes.items()}
