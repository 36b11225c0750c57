"""The networks whose weights lie in ../shared/data/backbones, as torch modules: images (n, 3, h, w) in [0, 1]."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from secagg.features.export import Network as Exportable
from secagg.features.export import export_network

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""Of CIFAR-10, with which the stored features were made."""
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation with which ResNet-18 was trained."""


class Network(nn.Module):
    """Frozen weights by the names of the file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        with np.load(path) as content:
            self.weights = {name: torch.from_numpy(content[name]) for name in content.files}

    def conv(self, x: Tensor, name: str, weight: str, bias: str, **options: int) -> Tensor:
        return functional.conv2d(x, self.weights[f"{name}.{weight}"], self.weights[f"{name}.{bias}"], **options)


class ResNet18(Network):
    """conv1 to layer3 of ResNet-18 (He et al. 2016), batch norm folded; averaged: 256 features."""

    def __init__(self, folder: Path, mean=MEAN, deviation=DEVIATION) -> None:
        super().__init__(folder / "resnet18_imagenet_conv1_to_layer3_bnfolded.npz")
        self.mean, self.deviation = (torch.tensor(each).view(1, 3, 1, 1) for each in (mean, deviation))

    def forward(self, images: Tensor) -> Tensor:
        x = torch.relu(self._conv((images - self.mean) / self.deviation, "conv1", stride=2, padding=3))
        x = functional.max_pool2d(x, 3, stride=2, padding=1)
        for layer, stride in ((1, 1), (2, 2), (3, 2)):
            x = self._block(self._block(x, f"layer{layer}.0", stride), f"layer{layer}.1", 1)
        return x.mean(dim=(2, 3))

    def _block(self, x: Tensor, name: str, stride: int) -> Tensor:
        y = torch.relu(self._conv(x, f"{name}.conv1", stride=stride, padding=1))
        y = self._conv(y, f"{name}.conv2", padding=1)
        short = self._conv(x, f"{name}.downsample.0", stride=stride) if stride > 1 else x
        return torch.relu(y + short)

    def _conv(self, x: Tensor, name: str, **options: int) -> Tensor:
        return self.conv(x, name, "weight", "bias", **options)


class SqueezeNet(Network):
    """SqueezeNet 1.1 without its classifier (Iandola et al. 2016); averaged: 512 features."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "squeezenet_v1.1_imagenet_features.npz")
        self.mean = torch.tensor((103.939, 116.779, 123.68)).view(1, 3, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        x = torch.relu(self._conv(images.flip(1) * 255 - self.mean, "conv1", stride=2))
        for fire in range(2, 10):
            if fire in (2, 4, 6):  # as its authors do, with rounding up
                x = functional.max_pool2d(x, 3, stride=2, ceil_mode=True)
            y = torch.relu(self._conv(x, f"fire{fire}/squeeze1x1"))
            wide = self._conv(y, f"fire{fire}/expand3x3", padding=1)
            x = torch.relu(torch.cat([self._conv(y, f"fire{fire}/expand1x1"), wide], dim=1))
        return x.mean(dim=(2, 3))

    def _conv(self, x: Tensor, name: str, **options: int) -> Tensor:
        return self.conv(x, name, "w", "b", **options)


def export(network: Network, path: Path, image_size: int = 32, resize: int | None = None) -> Path:
    """Write one of these networks as a program for images of `image_size` pixels a side, and return its path."""
    plain = Exportable(network, (0.0,) * 3, (1.0,) * 3, 32, has_head=False)  # they normalise themselves
    export_network(plain, path, image_size=image_size, resize=resize)
    return path
