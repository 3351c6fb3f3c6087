"""Hand-written convolutional networks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from facts import Facts
from feeds import image
from registry import from_torch
from torch import Tensor, nn
from torch.nn import functional as F


class DenseNet(nn.Module):
    """Every layer reads the concatenation of all before it."""

    def __init__(self, growth: int, blocks: Sequence[int], activation: type[nn.Module]) -> None:
        super().__init__()
        width = 16
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.blocks, self.between = nn.ModuleList(), nn.ModuleList()
        for i, layers in enumerate(blocks):
            block = nn.ModuleList()
            for _ in range(layers):
                conv = nn.Conv2d(width, growth, 3, padding=1, bias=False)
                block.append(nn.Sequential(nn.BatchNorm2d(width), activation(), conv))
                width += growth
            self.blocks.append(block)
            if i < len(blocks) - 1:
                half = nn.Conv2d(width, width // 2, 1)
                self.between.append(nn.Sequential(nn.BatchNorm2d(width), activation(), half, nn.AvgPool2d(2)))
                width //= 2
        self.norm, self.head = nn.BatchNorm2d(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for i, block in enumerate(self.blocks):
            for layer in block:
                x = torch.cat([x, layer(x)], 1)
            if i < len(self.between):
                x = self.between[i](x)
        return self.head(F.relu(self.norm(x)).mean((2, 3)))


class Twice(nn.Sequential):
    """Two convolutions, each with a group norm."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(
            nn.Conv2d(before, after, 3, padding=1),
            nn.GroupNorm(4, after),
            nn.SiLU(),
            nn.Conv2d(after, after, 3, padding=1),
            nn.GroupNorm(4, after),
            nn.SiLU(),
        )


class UNet(nn.Module):
    """Down twice, up twice, with the way down beside the way up; one answer for each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.bottom = Twice(3, 16), Twice(16, 32), Twice(32, 48)
        self.down = nn.MaxPool2d(2)
        self.up_second, self.up_first = nn.ConvTranspose2d(48, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.join_second, self.join_first = Twice(64, 32), Twice(32, 16)
        self.head = nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(self.down(first))
        x = self.bottom(self.down(second))
        x = self.join_second(torch.cat([self.up_second(x), second], 1))
        x = self.join_first(torch.cat([self.up_first(x), first], 1))
        return self.head(x)


class Separable(nn.Module):
    """Depthwise and pointwise convolutions, squeezed and excited, flattened before the classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.Hardswish())
        self.depthwise = nn.Conv2d(24, 24, 3, padding=1, groups=24)
        self.squeeze, self.excite = nn.Conv2d(24, 6, 1), nn.Conv2d(6, 24, 1)
        self.pointwise = nn.Conv2d(24, 32, 1)
        self.doubled = nn.Conv2d(32, 64, 3, 2, 1, groups=32)
        self.norm, self.head = nn.BatchNorm2d(64), nn.Linear(64 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = F.relu6(self.depthwise(x))
        x = x * torch.sigmoid(self.excite(F.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        x = F.relu(self.norm(self.doubled(F.relu(self.pointwise(x)))))
        return self.head(F.avg_pool2d(x, 2).flatten(1))


class Shuffled(nn.Module):
    """Grouped convolutions whose groups are shuffled between them, and instance norms."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, 2, 1)
        self.grouped = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1, groups=4) for _ in range(2))
        self.norms = nn.ModuleList(nn.InstanceNorm2d(32, affine=True) for _ in range(2))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.stem(x))
        for conv, norm in zip(self.grouped, self.norms, strict=True):
            y = F.leaky_relu(norm(conv(x)))
            y = y.unflatten(1, (4, 8)).transpose(1, 2).flatten(1, 2)
            x = x + y
        return self.head(x.mean((2, 3)))


NETWORK = {"convolutional": True}

from_torch(
    "cnn_dense",
    Facts(norm="batch", stream="none", traits=("dense concat", "batch norm"), **NETWORK),
    lambda: DenseNet(8, [3, 3], nn.ReLU),
    image("x", 16),
)
from_torch(
    "own_dense_net",
    Facts(norm="batch", stream="none", traits=("dense concat", "batch norm"), **NETWORK),
    lambda: DenseNet(12, [2, 2, 2], nn.SiLU),
    image("x", 16),
)
from_torch(
    "own_unet",
    Facts(norm="group", stream="none", traits=("U-Net", "group norm", "transposed convolution"), **NETWORK),
    UNet,
    image("x", 16),
)
from_torch(
    "own_separable",
    Facts(norm="batch", stream="none", traits=("depthwise", "squeeze and excite", "flatten"), **NETWORK),
    Separable,
    image("x", 16),
)
from_torch(
    "own_shuffled",
    Facts(
        hidden=(32,),
        layers=(2,),
        norm="instance",
        stream="branch",
        traits=("grouped convolution", "instance norm"),
        **NETWORK,
    ),
    Shuffled,
    image("x", 16),
)
