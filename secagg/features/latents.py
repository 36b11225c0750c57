"""Latents of pictures by the frozen autoencoder of a latent diffusion model, as features of one public length."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.features.backbone import Features
from secagg.features.cache import FeatureCache
from secagg.features.diffusion_files import DIFFUSERS, DiffusionFiles
from secagg.features.program import Progress
from secagg.system.threads import one_thread

COLOURS = 3
SLACK = 1e-9
"""By which a public bound exceeds a length in float64."""


@dataclass(frozen=True, eq=False)
class Latents:
    """Pictures of `input_shape`, (h, w) or (h, w, 1 or 3), to latents of `shape` (c, h', w') (a `Backbone`).

    A latent z is the mean of the posterior times the model's scaling factor, by which an entry's mean square is about
    1, cut to the length R = √d, d = c·h'·w'. A feature vector is z followed by √(R² − ‖z‖²): d + 1 numbers of length R
    for every picture, so that a plan which brings records to one length (`unit`) takes nothing from them. A picture
    whose latent is no number has no feature vector. Row by row: none depends on its batch.
    """

    name: str
    files: DiffusionFiles
    input_shape: tuple[int, ...]
    shape: tuple[int, int, int]
    vae: Any = field(repr=False)
    cache: FeatureCache | None = None
    progress: Progress | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the digests of autoencoder, network and schedule."""
        return self.files.digest

    @property
    def dimension(self) -> int:
        """d + 1."""
        return math.prod(self.shape) + 1

    @cached_property
    def unet(self) -> Any:
        """The network that denoises latents, frozen. Raises BadInput."""
        return self.files.load_unet()

    @cached_property
    def scheduler(self) -> Any:
        """Its schedule. Raises BadInput."""
        return self.files.load_scheduler()

    def bound(self, _input_bound: float | None, /) -> float | None:
        """R = √d."""
        return math.sqrt(math.prod(self.shape)) * (1 + SLACK)

    def extract(self, inputs: NDArray[Any]) -> Features:
        """Pictures (n, …) to features (n, d + 1). Raises BadInput for another size or type."""
        if inputs.shape[1:] != self.input_shape:
            raise BadInput(f"{self.name} takes pictures of {self.input_shape}, got {inputs.shape[1:]}")
        if self.cache is None or len(inputs) == 0:
            return self._run_all(inputs)
        return self.cache.recall(self.digest, inputs, self.dimension, lambda: self._run_all(inputs))

    def _run_all(self, inputs: NDArray[Any]) -> Features:
        import torch

        features = np.empty((len(inputs), self.dimension))
        with one_thread(), torch.inference_mode():
            for index, picture in enumerate(inputs):
                pixels = torch.tensor(pixels_of(picture[None]))
                latent = to_latents(self.vae, pixels).numpy().astype(np.float64).ravel()
                features[index] = as_feature(latent)
                if self.progress is not None:
                    self.progress(index + 1, len(inputs))
        return features


def open_latents(
    files: DiffusionFiles, input_shape: tuple[int, ...], cache: FeatureCache | None, progress: Progress | None = None
) -> Latents:
    """Load a folder's autoencoder for pictures of this shape; its digest was compared before. Raises BadInput."""
    import torch

    vae, name = files.load_vae(), f"{DIFFUSERS}{files.folder.name}"
    factor = 2 ** (len(vae.config.block_out_channels) - 1)
    if not _is_picture(input_shape, factor):
        problem = f"{name} takes pictures whose sides are multiples of {factor}, got {input_shape}"
        raise BadInput(problem, remedy="scale or pad them before")
    if vae.config.in_channels != COLOURS:
        raise BadInput(f"{name} sees {vae.config.in_channels} channels", remedy="give a model of colour pictures")
    with torch.inference_mode():
        shape = tuple(to_latents(vae, torch.zeros(1, COLOURS, *input_shape[:2])).shape[1:])
    return Latents(name, files, input_shape, shape, vae, cache, progress)


def as_feature(latent: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (z, √(R² − ‖z‖²)) of a latent (d,), cut to the length R = √d; NaN throughout where it is no number."""
    radius, length = math.sqrt(len(latent)), float(np.linalg.norm(latent))
    if not math.isfinite(length):
        return np.full(len(latent) + 1, np.nan)
    cut = latent * min(1.0, radius / max(length, np.finfo(np.float64).tiny))
    return np.append(cut, math.sqrt(max(radius**2 - float(cut @ cut), 0.0)))


def latents_of(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Latents z (n, d) of feature vectors (n, d + 1) that were brought to length 1."""
    return rows[:, :-1] * math.sqrt(rows.shape[1] - 1)


def to_latents(vae: Any, pixels: Any) -> Any:
    """Scaled means of the posteriors (n, c, h', w') of pixels (n, 3, h, w) in [−1, 1]."""
    mean = vae.encode(pixels).latent_dist.mean
    return (mean - (getattr(vae.config, "shift_factor", None) or 0.0)) * vae.config.scaling_factor


def to_pixels(vae: Any, latents: Any) -> Any:
    """Pixels (n, 3, h, w) in [−1, 1] of scaled latents (n, c, h', w')."""
    raw = latents / vae.config.scaling_factor + (getattr(vae.config, "shift_factor", None) or 0.0)
    return vae.decode(raw).sample.clamp(-1, 1)


def pixels_of(pictures: NDArray[Any]) -> NDArray[np.float32]:
    """Pictures (n, h, w) or (n, h, w, 1 or 3), uint8 or in [0, 1], as (n, 3, h, w) float32 in [−1, 1]."""
    shown = pictures[..., None] if pictures.ndim == 3 else pictures
    scaled = shown.astype(np.float32) / np.float32(255 if pictures.dtype == np.uint8 else 1)
    colours = np.broadcast_to(scaled, (*scaled.shape[:3], COLOURS))
    return np.ascontiguousarray(np.moveaxis(colours, -1, 1)) * np.float32(2) - np.float32(1)


def _is_picture(shape: tuple[int, ...], factor: int) -> bool:
    sides, channels = shape[:2], shape[2:]
    return len(sides) == 2 and channels in ((), (1,), (COLOURS,)) and all(side and side % factor == 0 for side in sides)
