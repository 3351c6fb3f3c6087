"""Model cards: what a source's card says of it, and where the card of a result stands in its directory."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from growc.errors.diagnostic import Attempt

if TYPE_CHECKING:
    from growc.errors.json_data import Json

CARDS = ("README.md", "README.growc.md")
"""Names of a card: the second one, where the source has a card of its own."""
KEPT = ("base_model", "language", "library_name", "license", "license_link", "license_name", "pipeline_tag")
"""What holds true of a result if it does of its source. The Hub has no `base_model_relation` for growth."""
TAGS = ("growc", "model-surgery")
"""What every card is tagged with."""
LARGEST = 1 << 20
"""Bytes of a card that are read."""
LONGEST = 200
"""Characters of a word in front matter, and words of a list, that are taken over."""
FRONT = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
SEAL = "<!-- growc "


def write_card(folder: Path, body: str | None, base: str) -> str:
    """Write the card of a result whose directory has the source's files; None: take those of growc away.

    base: the repository on the Hub that the source came from, where it did. A card that growc wrote and
    nobody changed is replaced; any other one stays. Returns what a reader should know, if anything.
    """
    said = front_matter_of(folder / CARDS[0])
    for place in (folder / name for name in CARDS):
        if is_own(place):
            place.unlink()
    if body is None:
        return ""
    free = next((folder / name for name in CARDS if not (folder / name).exists()), None)
    if free is None:
        return f"no model card is written: `{CARDS[1]}` is a file of the source"
    free.write_text(sealed(front_matter(said, base) + "\n" + body), encoding="utf-8", newline="\n")
    return ""


def sealed(text: str) -> str:
    """A card with a last line by which it is known as growc's for as long as nobody changes it."""
    return f"{text}\n{SEAL}{_digest(text)} -->\n"


def is_own(place: Path) -> bool:
    """Whether a file is a card that growc wrote, as it wrote it."""
    text, seal, digest = _read(place).rpartition(f"\n{SEAL}")
    return bool(seal) and digest == f"{_digest(text)} -->\n"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _read(place: Path) -> str:
    if not place.is_file():
        return ""
    with place.open("rb") as file:
        return file.read(LARGEST).decode("utf-8", "replace")


def front_matter_of(place: Path) -> dict[str, Json]:
    """What the YAML before a card says, as text and lists of text; nothing where it is no YAML.

    No tag of YAML is obeyed, and no merge key: text from elsewhere makes no objects and grows by no aliases.
    """
    import yaml

    found = FRONT.match(_read(place))
    said: object = None
    if found is not None:
        with Attempt():
            said = yaml.load(found[1], Loader=yaml.BaseLoader)
    return {str(key): value for key, value in said.items()} if isinstance(said, dict) else {}


def front_matter(said: Mapping[str, Json], base: str) -> str:
    """The YAML before the card of a result, by that of its source."""
    import yaml

    kept = {key: word for key in KEPT if (word := _words(said.get(key)))}
    own = _words(said.get("tags")) or []
    tags = [own] if isinstance(own, str) else own
    made = kept | ({"base_model": base} if base else {}) | {"tags": list(dict.fromkeys([*tags, *TAGS]))}
    return f"---\n{yaml.safe_dump(made, sort_keys=True, width=LARGEST)}---\n"


def _words(value: Json) -> str | list[str] | None:
    """A word, or a list of words; None for anything else."""
    if isinstance(value, str):
        return value.strip() if _is_word(value) else None
    if isinstance(value, list) and 0 < len(value) <= LONGEST and all(map(_is_word, value)):
        return [str(word).strip() for word in value]
    return None


def _is_word(value: object) -> bool:
    return (
        isinstance(value, str)
        and 0 < len(value) <= LONGEST
        and value.strip().lower() not in ("", "null", "~")
    )


def repository_in(reference: str) -> str:
    """The repository that a reference names, as the Hub writes it."""
    return re.sub("^hf://", "", reference).partition("@")[0]
