"""ResNet-18 (He et al. 2016, table 1) with torchvision's names, so that its weight files load without torchvision."""

from pathlib import Path

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3×3 convolutions beside a short cut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, h, w) → (n, width, h / stride, w / stride)."""
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class ResNet18(nn.Module):
    """Normalised images (n, 3, h, w) → logits (n, 1000); the input of `fc` is the feature vector."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.fc = nn.Linear(512, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """The whole network."""
        x = torch.relu(self.bn1(self.conv1(images)))
        x = nn.functional.max_pool2d(x, 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(dim=(2, 3)))


def load(path: Path) -> ResNet18:
    """The network with the weights of a file such as torchvision's `resnet18-f37072fd.pth`; every name must fit."""
    network = ResNet18()
    weights = torch.load(path, map_location="cpu", weights_only=True)
    missing, unexpected = network.load_state_dict(weights, strict=False)
    # files of 2016 lack the counters of batches, which play no part
    if unexpected or not all(name.endswith("num_batches_tracked") for name in missing):
        raise ValueError(f"{path} is no ResNet-18: lacks {missing}, has {unexpected}")
    return network
