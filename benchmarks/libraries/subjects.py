"""The models of libraries that growc was not developed against: a name, a family, and how one is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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
    """One model. make: the module, and two inputs of its forward."""

    library: str
    name: str
    family: str
    make: Callable[[], tuple[nn.Module, Feeds]]


class TooLargeError(Exception):
    """The model has more parameters than are run."""


def declare_torchvision() -> None:
    """Declare torchvision's compiled operators where they do not load, so that its models can be made."""
    if hasattr(torch.ops.torchvision, "nms"):
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
    return tuple({"x": torch.randn(shape, generator=draw)} for _ in range(2))  # type: ignore[return-value]


def runs(module: nn.Module, feeds: Feeds) -> bool:
    """Whether a module takes its inputs."""
    try:
        with torch.no_grad():
            module.eval()(**feeds[0])
    except Exception:  # noqa: BLE001 - whatever it raises, it does not take them
        return False
    return True


def torchvision_subjects() -> Iterator[Subject]:
    """Models of images and films but for quantised ones, and what detectors are made of."""
    declare_torchvision()
    from torchvision import models

    for name in models.list_models():
        if name.startswith(("quantized_", "raft")):
            continue
        builder = models.get_model_builder(name)
        family = builder.__module__.rsplit(".", 1)[-1]
        detector = ".detection." in builder.__module__

        def make(name: str = name, detector: bool = detector) -> tuple[nn.Module, Feeds]:
            from torchvision import models

            video = ".video." in models.get_model_builder(name).__module__
            if detector:
                return _detector(models.get_model(name, weights=None, weights_backbone=None))
            options: list[dict[str, Any]] = [{"image_size": 64}] if name.startswith("vit") else [{}]
            if ".segmentation." in models.get_model_builder(name).__module__:
                options = [{"weights_backbone": None}]
            for option in options:
                with torch.device("meta"):
                    bounded(models.get_model(name, weights=None, **option))
                module = models.get_model(name, weights=None, **option)
                for side in PIXELS:
                    feeds = _keyed(module, images(side, 16 if video else 0))
                    if runs(module, feeds):
                        return module, feeds
            raise ValueError("no image is taken")

        yield Subject("torchvision", name, family, make)


def _keyed(module: nn.Module, feeds: Feeds) -> Feeds:
    import inspect

    key = next(iter(inspect.signature(module.forward).parameters))
    return tuple({key: feed["x"]} for feed in feeds)  # type: ignore[return-value]


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


def _detector(detector: nn.Module) -> tuple[nn.Module, Feeds]:
    module = bounded(Detected(detector))
    for side in PIXELS:
        if runs(module, images(side)):
            return module, images(side)
    raise ValueError("no image is taken")


def timm_subjects() -> Iterator[Subject]:
    """For each module of timm the registered model with the fewest parameters, ties by name."""
    declare_torchvision()
    import timm

    for family in timm.list_modules():
        yield Subject("timm", family, family, lambda family=family: _timm(family))


def _timm(family: str) -> tuple[nn.Module, Feeds]:
    import timm

    module = None
    name = min(timm.list_models(module=family), key=lambda n: (_count(n), n))
    for options in ({"img_size": 64}, {}):
        try:
            module = timm.create_model(name, **options)
        except (TypeError, AssertionError, RuntimeError, ValueError):
            continue
        bounded(module)
        for side in PIXELS:
            feeds = _keyed(module, images(side))
            if runs(module, feeds):
                return module, feeds
    raise ValueError(f"{name} takes no image")


def _count(name: str) -> int:
    import timm

    try:
        with torch.device("meta"):
            return sum(p.numel() for p in timm.create_model(name).parameters())
    except Exception:  # noqa: BLE001 - one that is not made on meta is made
        return sum(p.numel() for p in timm.create_model(name).parameters())
