"""What an adversary generates itself: pictures of opened means, seen again as latents."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from secagg.encoding import Integers
from secagg.features import FeatureMap, Latents
from secagg.generation import GenerationSettings, generate
from secagg.networks import SlotMeans

SETTINGS = GenerationSettings(count=20, steps=20, strength=0.5)
"""From the middle of the schedule, where more of the means is left than the server may start with."""


def generating(features: FeatureMap) -> Callable[[SlotMeans], tuple[NDArray[np.float64], Integers]] | None:
    """A function from means to features (m, d) and classes (m,) of pictures; None for other backbones."""
    latents = features.backbone
    if not isinstance(latents, Latents) or features.expansion is not None:
        return None

    def apply(means: SlotMeans) -> tuple[NDArray[np.float64], Integers]:
        made = generate(latents, means, SETTINGS)
        grey = made.pixels.mean(axis=3).round().astype(np.uint8)
        pixels = made.pixels if latents.input_shape[2:] == (3,) else grey.reshape(-1, *latents.input_shape)
        return latents.extract(pixels), made.labels

    return apply
