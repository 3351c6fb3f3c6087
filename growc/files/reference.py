"""References to models of the Hugging Face Hub, as users write them: `hf://owner/name@revision`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from growc.errors.diagnostic import wrong

SCHEME = "hf://"
NAME = re.compile(r"(?!.*(\.\.|--))[A-Za-z0-9_]([\w.-]{0,94}\w)?", re.ASCII)
"""An owner, the name of a repository, or a part of a file's path."""
REVISION = re.compile(r"(?!.*(\.\.|//))\w[\w./+-]*(?<![/.])", re.ASCII)
"""A branch, a tag, a commit, or a pull request (`refs/pr/1`)."""
FILES = (".onnx", "config.json")
"""Endings of files that a reference may name."""
FORM = "it is `hf://OWNER/NAME`, with `@REVISION` for a branch, a tag or a commit"


@dataclass(frozen=True)
class Reference:
    """A repository, a revision of it (empty: its main branch), and a file if one is named."""

    repository: str
    revision: str = ""
    file: str = ""

    @staticmethod
    def read(reference: str | Path) -> Reference:
        """Parse a reference. Raises GrowError (G200) if it is malformed."""
        text = re.sub("^hf:/{0,2}", "", str(reference))
        body, at, revision = text.partition("@")
        owner, *rest = body.split("/")
        if not rest or not all(NAME.fullmatch(part) for part in (owner, *rest)):
            raise wrong(f"`{SCHEME}{text}` names no model of the Hugging Face Hub", FORM)
        if at and not REVISION.fullmatch(revision):
            raise wrong(f"`{SCHEME}{text}` names no revision behind `@`", FORM)
        file = "/".join(rest[1:])
        if file and not file.endswith(FILES):
            remedy = f"a repository is `{SCHEME}OWNER/NAME`; of files, `.onnx` and `config.json` may be named"
            raise wrong(f"`{SCHEME}{body}` is no model file that growc fetches", remedy)
        return Reference(f"{owner}/{rest[0]}", revision, file)

    def __str__(self) -> str:
        """The reference as a user writes it."""
        at = f"@{self.revision}" if self.revision else ""
        return SCHEME + "/".join(filter(None, (self.repository, self.file))) + at


def is_reference(model: str | Path) -> bool:
    """Whether a model is named by a reference. In a Path its two slashes have become one."""
    text = str(model)
    return text.startswith(SCHEME) or ((text.startswith("hf:/") or text == "hf:") and not Path(text).exists())
