"""The models of libraries that growc was not developed against: a name, a family, and how one is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

Feeds = tuple[Mapping[str, Any], Mapping[str, Any]]
LARGEST = 60_000_000
"""Models with more parameters are named, not run."""
PIXELS = (64, 96, 128, 160, 192, 224, 256, 384)
"""The sides of images that are tried, in this order."""


@dataclass(frozen=True)
class Subject:
    """One model. make: the module, and two inputs of its forward. axes: what it has, where that is said
    beforehand: then it has to be found.
    """

    library: str
    name: str
    family: str
    make: Callable[[], tuple[nn.Module, Feeds]]
    axes: tuple[str, ...] = ()


class TooLargeError(Exception):
    """The model has more parameters than are run."""


def declare_torchvision() -> None:
    """Declare torchvision's compiled operators where they do not load, so that its models can be made."""
    with suppress(RuntimeError):  # an operator that does not exist
        import torchvision  # noqa: F401

        return
    boxes = "Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
    sizes = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
    pooled = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
    deform = (
        "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
        "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dil_h, SymInt dil_w, SymInt groups, "
        "SymInt offset_groups, bool use_mask"
    )
    for text in (
        "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        f"roi_align({boxes}, int sampling_ratio, bool aligned) -> Tensor",
        f"_roi_align_backward(Tensor grad, Tensor rois, {pooled}, {sizes}, int sampling_ratio, bool aligned)"
        " -> Tensor",
        f"roi_pool({boxes}) -> (Tensor, Tensor)",
        f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {pooled}, {sizes}) -> Tensor",
        f"ps_roi_align({boxes}, int sampling_ratio) -> (Tensor, Tensor)",
        f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {pooled}, "
        f"int sampling_ratio, {sizes}) -> Tensor",
        f"ps_roi_pool({boxes}) -> (Tensor, Tensor)",
        f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor mapping, {pooled}, {sizes}) -> Tensor",
        f"deform_conv2d({deform}) -> Tensor",
        f"_deform_conv2d_backward(Tensor grad, {deform}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    ):
        DECLARED.define(text)


DECLARED = torch.library.Library("torchvision", "FRAGMENT")


def bounded(module: nn.Module) -> nn.Module:
    """The module. Raises TooLargeError."""
    if sum(p.numel() for p in module.parameters()) > LARGEST:
        raise TooLargeError
    return module


def images(side: int, frames: int = 0, batch: int = 2) -> Feeds:
    """Two batches of images, or of films."""
    draw = torch.Generator().manual_seed(1)
    shape = (batch, 3, frames, side, side) if frames else (batch, 3, side, side)
    return {"x": torch.randn(shape, generator=draw)}, {"x": torch.randn(shape, generator=draw)}


def fed(module: nn.Module, frames: int = 0) -> Feeds | None:
    """Images of the least side that a module takes, by the name of its argument; None where it takes none."""
    key = next(iter(inspect.signature(module.forward).parameters))
    for side in PIXELS:
        first, second = (feed["x"] for feed in images(side, frames))
        with suppress(Exception), torch.no_grad():  # a module that raises does not take them
            module.eval()(first)
            return {key: first}, {key: second}
    return None


def torchvision_subjects() -> Iterator[Subject]:
    """Models of images and films but for quantised ones, and what detectors are made of."""
    declare_torchvision()
    from torchvision import models

    for name in models.list_models():
        if not name.startswith(("quantized_", "raft")):
            place = models.get_model_builder(name).__module__
            yield Subject("torchvision", name, place.rsplit(".", 1)[-1], partial(_torchvision, name, place))


def _torchvision(name: str, place: str) -> tuple[nn.Module, Feeds]:
    from torchvision import models

    options: dict[str, Any] = {"image_size": 64} if name.startswith("vit") else {}
    if ".detection." in place or ".segmentation." in place:
        options = {"weights_backbone": None}
    with suppress(NotImplementedError), torch.device("meta"):  # some draw weights in a way that meta lacks
        bounded(models.get_model(name, weights=None, **options))
    module = bounded(models.get_model(name, weights=None, **options))
    module = Detected(module) if ".detection." in place else module
    feeds = fed(module, 16 if ".video." in place else 0)
    if feeds is None:
        raise ValueError("no image is taken")
    return module, feeds


class Detected(nn.Module):
    """A detector's backbone and heads: what it has before boxes are chosen."""

    def __init__(self, detector: nn.Module) -> None:
        super().__init__()
        self.backbone = detector.backbone
        self.rpn = getattr(getattr(detector, "rpn", None), "head", None)
        self.head = getattr(detector, "head", None)

    def forward(self, x: torch.Tensor) -> Any:
        """Features, and the heads' outputs."""
        features = self.backbone(x)
        maps = list(features.values()) if isinstance(features, dict) else [features]
        if self.rpn is not None:
            return self.rpn(maps)
        return self.head(maps)


def timm_subjects() -> Iterator[Subject]:
    """For each module of timm the registered model with the fewest parameters, ties by name."""
    declare_torchvision()
    import timm

    for family in timm.list_modules():
        yield Subject("timm", family, family, partial(_timm, family))


def _timm(family: str) -> tuple[nn.Module, Feeds]:
    import timm

    name = min(timm.list_models(module=family), key=lambda n: (_count(n), n))
    for options in ({"img_size": 64}, {}):
        with suppress(TypeError, AssertionError, RuntimeError, ValueError):  # it has its own size
            module = bounded(timm.create_model(name, **options))
            if (feeds := fed(module)) is not None:
                return module, feeds
    raise ValueError(f"{name} takes no image")


def _count(name: str) -> int:
    import timm

    try:
        with torch.device("meta"):
            return sum(p.numel() for p in timm.create_model(name).parameters())
    except Exception:  # noqa: BLE001 - one that is not made on meta is made
        return sum(p.numel() for p in timm.create_model(name).parameters())
