"""Model cards: the front matter of a source's card, and the card of a result in its directory."""

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
"""Names of a card: the second one if the source has a card of its own."""
KEPT = ("base_model", "language", "library_name", "license", "license_link", "license_name", "pipeline_tag")
"""Fields that hold for a result if they hold for its source. The Hub has no `base_model_relation` for
growth.
"""
TAGS = ("growc", "model-surgery")
"""Tags of every card."""
LARGEST = 1 << 20
"""Bytes of a card that are read."""
LONGEST = 200
"""Limit for the characters of a word in front matter, and for the words of a list, that are copied."""
FRONT = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
SEAL = "<!-- growc "


def write_card(folder: Path, body: str | None, base: str) -> str:
    """Write the card of a result whose directory holds the source's files; None removes growc's cards.

    base: the Hub repository of the source, if it came from there. A card that growc wrote and nobody changed
    is replaced; any other card stays. Returns a remark for the user, or an empty text.
    """
    metadata = front_matter_of(folder / CARDS[0])
    for place in (folder / name for name in CARDS):
        if is_own(place):
            place.unlink()
    if body is None:
        return ""
    unused = next((folder / name for name in CARDS if not (folder / name).exists()), None)
    if unused is None:
        return f"no model card is written: `{CARDS[1]}` is a file of the source"
    unused.write_text(sealed(front_matter(metadata, base) + "\n" + body), encoding="utf-8", newline="\n")
    return ""


def sealed(text: str) -> str:
    """A card with a last line that identifies it as growc's until it is changed."""
    return f"{text}\n{SEAL}{_digest(text)} -->\n"


def is_own(place: Path) -> bool:
    """Whether a file is a card that growc wrote and nobody changed."""
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
    """The YAML before a card, as text and lists of text; empty if it is no YAML.

    YAML tags and merge keys are ignored, so that text of others cannot create objects or expand by aliases.
    """
    import yaml

    match = FRONT.match(_read(place))
    parsed: object = None
    if match is not None:
        with Attempt():
            parsed = yaml.load(match[1], Loader=yaml.BaseLoader)
    return {str(key): value for key, value in parsed.items()} if isinstance(parsed, dict) else {}


def front_matter(metadata: Mapping[str, Json], base: str) -> str:
    """The YAML before a result's card, derived from that of its source."""
    import yaml

    copied = {key: word for key in KEPT if (word := _words(metadata.get(key)))}
    own_tags = _words(metadata.get("tags")) or []
    tags = [own_tags] if isinstance(own_tags, str) else own_tags
    fields = copied | ({"base_model": base} if base else {}) | {"tags": list(dict.fromkeys([*tags, *TAGS]))}
    return f"---\n{yaml.safe_dump(fields, sort_keys=True, width=LARGEST)}---\n"


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
    """The repository in a reference, as the Hub writes it."""
    return re.sub("^hf://", "", reference).partition("@")[0]
