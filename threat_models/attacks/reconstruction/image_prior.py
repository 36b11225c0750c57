"""Find images with given features, by descent through the backbone under a prior of what images look like.

Total variation: Mahendran & Vedaldi 2015; weight 0 is the attack of MPFT, App. G. Deep image prior: Ulyanov, Vedaldi &
Lempitsky 2018, as in FedCGS, Fig. 4: the image is what an untrained network makes of noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from secagg.encoding import Grid, Normalisation
from secagg.errors import BadInput
from threat_models.session import Floats

Decoder = Callable[[Floats], Floats]
BATCH = 32
RATE = 2e-3
BLUR = 0.1
"""Noise on the standardised features while learning, so that the decoder bears targets that are not exact."""


def learn_decoder(targets: Floats, images: Floats, *, steps: int = 400, width: int = 32, seed: int = 0) -> Decoder:
    """Learn to map targets (n, d) to images (n, h, w, c) in [0, 1] by Adam on squared error; returns that map.

    Three times upsampling and convolution; FedTC (App. C) leaves its own decoder open. The result depends on `seed`
    alone, up to rounding. Raises BadInput for fewer than 2 public images.
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


Backbone = Callable[[Any], Any]
VARIATION = 0.3
"""Weight of total variation against the relative squared error of the feature."""
OUTSIDE = 10.0
"""Weight of what a pixel has outside [0, 1]."""


def descend(
    targets: Floats,
    start: Floats,
    backbone: Backbone,
    grid: Grid,
    *,
    variation: float = VARIATION,
    steps: int = 200,
    rate: float = 0.03,
) -> Floats:
    """Find images (n, h, w, c) in [0, 1] whose records are near `targets` (n, d), over R_q, by Adam from `start`."""
    import torch

    wanted = torch.from_numpy(targets).float()
    images = torch.from_numpy(start).float().permute(0, 3, 1, 2).contiguous().requires_grad_()
    optimiser = torch.optim.Adam([images], rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(steps, 1))
    for _ in range(steps):
        excess = (images - images.clamp(0, 1)).square().mean(dim=(1, 2, 3))
        each = _misfit(backbone(images), wanted, grid) + variation * _variation(images) + OUTSIDE * excess
        optimiser.zero_grad()
        each.sum().backward()
        optimiser.step()
        schedule.step()
    return _array(images)


def deep_image_prior(
    targets: Floats,
    shape: tuple[int, ...],
    backbone: Backbone,
    grid: Grid,
    *,
    steps: int = 200,
    restarts: int = 4,
    seed: int = 0,
) -> Floats:
    """Find such images of `shape` (h, w, c), each the output of its own small network, untrained at the start.

    Each is the mean over `restarts` networks, since each network invents other details. Equal targets have equal
    images.
    """
    import torch

    different, places = np.unique(targets, axis=0, return_inverse=True)
    found = np.zeros((len(different), *shape))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for row, target in enumerate(torch.from_numpy(different).float()):
            for _ in range(restarts):
                found[row] += _grow(target, shape, backbone, grid, steps) / restarts
    return found[places]


def _grow(target: Any, shape: tuple[int, ...], backbone: Backbone, grid: Grid, steps: int) -> Floats:
    """Make one image (h, w, c) by training a network; starts from torch's generator as it stands."""
    import torch

    network, noise = _make_network(shape), torch.randn(1, 16, *(-(-side // 4) for side in shape[:2]))
    optimiser = torch.optim.Adam(network.parameters(), 0.005)
    for _ in range(steps):
        loss = _misfit(backbone(network(noise)), target[None], grid).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    image: Floats = _array(network(noise))[0]
    return image


def _misfit(features: Any, wanted: Any, grid: Grid) -> Any:
    """Relative squared distance (n,) of features from targets, on the grid's side of `secagg.encoding.quantise`."""
    if grid.normalisation is Normalisation.CENTRED_UNIT:
        moved = features - features.mean(dim=1, keepdim=True)
    else:
        moved = features - grid.centre
    length = moved.norm(dim=1, keepdim=True).clamp_min(1e-9) if grid.is_normalised else grid.radius
    return (moved / length - wanted).square().sum(dim=1) / wanted.square().sum(dim=1).clamp_min(1e-9)


def _variation(images: Any) -> Any:
    down = (images[:, :, 1:] - images[:, :, :-1]).abs().mean(dim=(1, 2, 3))
    return down + (images[:, :, :, 1:] - images[:, :, :, :-1]).abs().mean(dim=(1, 2, 3))


def _make_network(shape: tuple[int, ...]) -> Any:
    from torch import nn

    height, width, channels = shape
    layers: list[Any] = [nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.LeakyReLU(0.2)]
    for scale in (2, 1):
        size = (-(-height // scale), -(-width // scale))
        layers += [nn.Upsample(size=size, mode="bilinear"), nn.Conv2d(32, 32, 3, padding=1)]
        layers += [nn.BatchNorm2d(32), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(32, channels, 3, padding=1), nn.Sigmoid())


def _array(images: Any) -> Floats:
    result: Floats = images.detach().clamp(0, 1).permute(0, 2, 3, 1).double().numpy()
    return result
