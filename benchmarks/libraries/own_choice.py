"""Models of the author's own choice: sequences, sound and diffusion, in tables of rows."""

from __future__ import annotations

from collections.abc import Iterator

import own_diffusion
import own_sequences
import own_sound
from own_row import Row
from subjects import Subject

ROWS: tuple[Row, ...] = (*own_sequences.ROWS, *own_sound.ROWS, *own_diffusion.ROWS)


def own_subjects() -> Iterator[Subject]:
    """The rows, as what is measured."""
    for row in ROWS:
        yield row.subject()
