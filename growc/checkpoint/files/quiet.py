"""What libraries say of their own accord is kept from a person who asked for something else."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without logs, warnings and bars of transformers and of torch's exporters."""
    from transformers.utils import logging as talk

    bars, disabled = talk.is_progress_bar_enabled(), logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    talk.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(disabled)
        if bars:
            talk.enable_progress_bar()
