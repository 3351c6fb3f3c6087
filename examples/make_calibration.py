"""Make the inputs that the examples of subcloning measure importance on, from the models' training data.

    python examples/make_calibration.py

Writes calibration.npz (windows of bytes for tiny-gpt) beside its recipes, and digits.npz beside those for
tiny-vit (images of digits). Both are evenly spread over the training data.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from train_tiny_gpt import CONTEXT, corpus
from train_tiny_vit import digits

EXAMPLES = Path(__file__).parent
WINDOWS, IMAGES = 64, 128


def main() -> None:
    """Write all files."""
    data = corpus(validation=False).astype(np.int64)
    starts = np.linspace(0, len(data) - CONTEXT, WINDOWS).astype(np.int64)
    windows = data[starts[:, None] + np.arange(CONTEXT)]
    for folder in ("24-subcloning", "27-minitron", "28-shortgpt", "29-reap"):
        np.savez_compressed(EXAMPLES / folder / "calibration.npz", input_ids=windows)
    images, _ = digits(validation=False)
    chosen = images[np.linspace(0, len(images) - 1, IMAGES).astype(np.int64)]
    for folder in ("25-subcloning-vit", "26-reorder", "35-nest"):
        np.savez_compressed(EXAMPLES / folder / "digits.npz", pixel_values=chosen)


if __name__ == "__main__":
    main()
