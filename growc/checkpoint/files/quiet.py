"""What libraries say of their own accord is kept from a person who asked for something else."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def without_logs() -> Iterator[None]:
    """Without logs and warnings of any library."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(disabled)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without logs, warnings and bars of transformers and of torch's exporters."""
    from transformers.utils import logging as talk

    bars = talk.is_progress_bar_enabled()
    talk.disable_progress_bar()
    try:
        with without_logs():
            yield
    finally:
        if bars:
            talk.enable_progress_bar()
