"""Suppress the output of libraries that a user did not ask for."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def without_logs() -> Iterator[None]:
    """In this context, no library logs or warns."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(disabled)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """In this context, transformers and torch's exporters show no logs, warnings or progress bars."""
    from transformers.utils import logging as talk

    bars = talk.is_progress_bar_enabled()
    talk.disable_progress_bar()
    try:
        with without_logs():
            yield
    finally:
        if bars:
            talk.enable_progress_bar()
