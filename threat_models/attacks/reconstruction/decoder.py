"""A decoder from features to images, learned from public images (Guan et al., FedTC, App. C: auto-encoder attack)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput

Floats = NDArray[np.float64]
Decoder = Callable[[Floats], Floats]
BATCH = 32
RATE = 2e-3
BLUR = 0.1
"""Noise on the standardised features while learning, so that the decoder bears targets that are not exact."""


def learn_decoder(targets: Floats, images: Floats, *, steps: int = 400, width: int = 32, seed: int = 0) -> Decoder:
    """Learn to map targets (n, d) to images (n, h, w, c) in [0, 1] by Adam on squared error; returns that map.

    Three times upsampling and convolution, FedTC leaves its own decoder open. The result depends on `seed` alone, up to
    rounding. Raises BadInput for fewer than 2 public images.
    """
    import torch

    if len(images) < 2 or len(images) != len(targets):
        raise BadInput(
            f"{len(images)} images and {len(targets)} features to learn from", remedy="give 2 or more of each"
        )
    mean, deviation = targets.mean(axis=0), targets.std(axis=0)
    deviation = np.where(deviation > 1e-3 * deviation.max(initial=1e-300), deviation, 1.0)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _network(targets.shape[1], images.shape[1:], width)
    inputs = torch.from_numpy((targets - mean) / deviation).float()
    wanted = torch.from_numpy(images).float().permute(0, 3, 1, 2)
    optimiser = torch.optim.Adam(network.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        rows = torch.randint(len(inputs), (BATCH,), generator=generator)
        blurred = inputs[rows] + BLUR * torch.randn(BATCH, inputs.shape[1], generator=generator)
        loss = (network(blurred) - wanted[rows]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()

    def decode(features: Floats) -> Floats:
        with torch.no_grad():
            found = network(torch.from_numpy((features - mean) / deviation).float())
        result: Floats = found.clamp(0, 1).permute(0, 2, 3, 1).double().numpy()
        return result

    return decode


def _network(dimension: int, shape: tuple[int, ...], width: int) -> Any:
    from torch import nn

    height, breadth, channels = shape
    low = (-(-height // 8), -(-breadth // 8))
    layers: list[Any] = [nn.Linear(dimension, 4 * width * low[0] * low[1]), nn.ReLU()]
    layers.append(nn.Unflatten(1, (4 * width, *low)))
    wide = 4 * width
    for scale in (4, 2, 1):
        size = (-(-height // scale), -(-breadth // scale))
        narrow = max(wide // 2, 8)
        layers += [nn.Upsample(size=size), nn.Conv2d(wide, narrow, 3, padding=1), nn.ReLU()]
        wide = narrow
    return nn.Sequential(*layers, nn.Conv2d(wide, channels, 3, padding=1))
