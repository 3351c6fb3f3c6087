"""Swin-T of torchvision as a module: made, exported by torch in both modes with rows left open, or grown.

python swin_t.py made | exported | grown; torchvision is in build/libraries (`make build/libraries.stamp`)
"""

import sys
from pathlib import Path

import torch
from torch.export import Dim, export

sys.path.append(str(Path(__file__).parents[1] / "libraries"))
sys.path.append(str(Path(__file__).parents[2] / "build" / "libraries"))

from subjects import declare_torchvision

RECIPE = "widen ffn to 2 * ffn with cyclic copy"


def main(task: str) -> None:
    """Do a task."""
    declare_torchvision()
    from torchvision.models import swin_t

    torch.manual_seed(0)
    model, image = swin_t(weights=None).eval(), torch.randn(2, 3, 224, 224)
    if task == "exported":
        for training in (False, True):
            export(model.train(training), (image,), dynamic_shapes=({0: Dim.AUTO},))
    if task == "grown":
        import growc

        growc.apply(model, RECIPE, example_inputs=(image,), check=False)


main(sys.argv[1])
