"""Latents of pictures by a latent diffusion model's frozen autoencoder, as features of one public L2 norm.

The model is a folder as `diffusers` writes it, Stable Diffusion's for example: autoencoder, network and schedule. No
file is code: weights are safetensors, and of each part the class is fixed here, whatever a config names.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.features.backbone import Features, Progress, digest_of, row_by_row
from secagg.features.cache import FeatureCache, recall
from secagg.features.encoder import INDEX, ModelFolder, loading
from secagg.features.program import refusing_failures
from secagg.system.extras import extra

DIFFUSERS = "diffusers:"
VAE, UNET, SCHEDULER = "vae", "unet", "scheduler"
WEIGHTS = ("config.json", "*.safetensors", INDEX)
FILES = {VAE: WEIGHTS, UNET: WEIGHTS, SCHEDULER: ("scheduler_config.json",)}
"""The files that each part of a model consists of; others in the folder (a text encoder, say) are not read."""
MODELS = {VAE: "AutoencoderKL", UNET: "UNet2DConditionModel"}
REMEDY = "give a folder of a latent diffusion pipeline that save_pretrained wrote, with vae/, unet/ and scheduler/"


@dataclass(frozen=True)
class DiffusionFiles(ModelFolder):
    """The folder of a latent diffusion pipeline of the library `diffusers`."""

    PARTS = FILES
    REMEDY = REMEDY

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over all parts: autoencoder, denoising network and noise schedule."""
        return digest_of("secagg diffusion v1: " + self.listed_digests)

    @classmethod
    def of(cls, spec: str) -> DiffusionFiles:
        """Find the folder of `diffusers:FOLDER`. Raises BadInput where a part is missing."""
        files = cls(Path(spec.removeprefix(DIFFUSERS)))
        for part, (config, *weights) in FILES.items():
            inside = files.folder / part
            if not (inside / config).is_file() or (weights and not any(inside.glob(weights[0]))):
                wanted = f"{config} with *.safetensors" if weights else config
                raise BadInput(f"{files.folder} holds no {part}/ with {wanted}", remedy=REMEDY)
        return files

    def place(self, part: str) -> Path:
        return self.folder / part

    def load_scheduler(self) -> Any:
        """Load the noise schedule as a `DDIMScheduler`. Raises BadInput where the model does not predict noise."""
        with extra("diffusion", f"{DIFFUSERS}{self.folder.name}"):
            import diffusers
        with refusing_failures(f"diffusers cannot load {self.folder / SCHEDULER}"), self.alone(SCHEDULER) as inside:
            load: Any = diffusers.DDIMScheduler.from_pretrained
            scheduler = load(inside, local_files_only=True)
        if scheduler.config.prediction_type != "epsilon":
            kind = scheduler.config.prediction_type
            raise BadInput(f"the network in {self.folder} predicts {kind!r}", remedy="give one that predicts epsilon")
        return scheduler

    def load_model(self, part: str) -> Any:
        """Load the model of a part, such as the autoencoder (`MODELS`), frozen, in evaluation mode. Raises BadInput."""
        kind = MODELS[part]
        with extra("diffusion", f"{DIFFUSERS}{self.folder.name}"):
            import diffusers
        problem = f"diffusers cannot load a {kind} from {self.folder / part}"
        with loading("diffusers", logging.CRITICAL, problem, REMEDY), self.alone(part) as inside:
            model, loaded = getattr(diffusers, kind).from_pretrained(
                inside, local_files_only=True, use_safetensors=True, low_cpu_mem_usage=False, output_loading_info=True
            )
        if absent := sorted(map(str, loaded["missing_keys"] or loaded["mismatched_keys"])):
            raise BadInput(f"{self.folder / part} lacks the weights {', '.join(absent[:4])}", remedy=REMEDY)
        return model.eval().float().requires_grad_(False)

    def read_json(self, path: Path) -> Any:
        with suppress(BadInput):  # an index that cannot be read names no file beside it
            return super().read_json(path)
        return None


COLOURS = 3
SLACK = 1e-9
"""Relative slack of the public bound, as lengths are rounded in float64."""


@dataclass(frozen=True, eq=False)
class Latents:
    """A backbone that maps pictures (h, w) or (h, w, 1 or 3) (`input_shape`) to latents (c, h', w') (`shape`).

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
        """SHA-256 (hex) over the digests of autoencoder, denoising network and noise schedule."""
        return self.files.digest

    @property
    def dimension(self) -> int:
        """Length of a feature vector: d + 1, for latents of d = c·h'·w' numbers."""
        return math.prod(self.shape) + 1

    @cached_property
    def unet(self) -> Any:
        """The frozen network that denoises latents. Raises BadInput if it cannot be loaded."""
        return self.files.load_model(UNET)

    @cached_property
    def scheduler(self) -> Any:
        """The noise schedule of the denoising network. Raises BadInput if it cannot be loaded."""
        return self.files.load_scheduler()

    def bound(self, _input_bound: float | None, /) -> float | None:
        """Return slightly more than R = √d (d: numbers of a latent), the L2 norm of every feature vector."""
        return math.sqrt(math.prod(self.shape)) * (1 + SLACK)

    def extract(self, inputs: NDArray[Any]) -> Features:
        """Map pictures (n, …) to features (n, d + 1). Raises BadInput for pictures of a wrong size or type."""
        if inputs.shape[1:] != self.input_shape:
            raise BadInput(f"{self.name} takes pictures of {self.input_shape}, got {inputs.shape[1:]}")
        import torch

        def features_of(picture: NDArray[Any]) -> Features:
            pixels = torch.tensor(pixels_of(picture[None]))
            return as_feature(to_latents(self.vae, pixels).numpy().astype(np.float64).ravel())

        def compute() -> Features:
            with torch.inference_mode():
                return row_by_row(inputs, self.dimension, features_of, self.progress)

        return recall(self.cache, self.digest, inputs, self.dimension, compute)


def open_latents(
    files: DiffusionFiles, input_shape: tuple[int, ...], cache: FeatureCache | None, progress: Progress | None = None
) -> Latents:
    """Load a folder's autoencoder for pictures of this shape; its digest must have been checked. Raises BadInput."""
    import torch

    vae, name = files.load_model(VAE), f"{DIFFUSERS}{files.folder.name}"
    factor = 2 ** (len(vae.config.block_out_channels) - 1)
    is_picture = len(input_shape) in (2, 3) and input_shape[2:] in ((), (1,), (COLOURS,))
    if not is_picture or any(not side or side % factor for side in input_shape[:2]):
        problem = f"{name} takes pictures whose sides are multiples of {factor}, got {input_shape}"
        raise BadInput(problem, remedy="scale or pad them before")
    if vae.config.in_channels != COLOURS:
        raise BadInput(f"{name} sees {vae.config.in_channels} channels", remedy="give a model of colour pictures")
    with torch.inference_mode():
        shape = tuple(to_latents(vae, torch.zeros(1, COLOURS, *input_shape[:2])).shape[1:])
    return Latents(name, files, input_shape, shape, vae, cache, progress)


def as_feature(latent: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the feature (z, √(R² − ‖z‖²)) of a latent z (d,), norm-clipped to R = √d; all NaN if z is not finite."""
    radius, length = math.sqrt(len(latent)), float(np.linalg.norm(latent))
    if not math.isfinite(length):
        return np.full(len(latent) + 1, np.nan)
    cut = latent * min(1.0, radius / max(length, np.finfo(np.float64).tiny))
    return np.append(cut, math.sqrt(max(radius**2 - float(cut @ cut), 0.0)))


def latents_of(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the latents z (n, d) of feature vectors (n, d + 1) that were scaled to L2 norm 1."""
    return rows[:, :-1] * math.sqrt(rows.shape[1] - 1)


def to_latents(vae: Any, pixels: Any) -> Any:
    """Encode pixels (n, 3, h, w) in [−1, 1] as latents (n, c, h', w'): the scaled means of the posteriors."""
    mean = vae.encode(pixels).latent_dist.mean
    return (mean - (getattr(vae.config, "shift_factor", None) or 0.0)) * vae.config.scaling_factor


def to_pixels(vae: Any, latents: Any) -> Any:
    """Decode scaled latents (n, c, h', w') to pixels (n, 3, h, w) in [−1, 1]."""
    raw = latents / vae.config.scaling_factor + (getattr(vae.config, "shift_factor", None) or 0.0)
    return vae.decode(raw).sample.clamp(-1, 1)


def pixels_of(pictures: NDArray[Any]) -> NDArray[np.float32]:
    """Convert pictures (n, h, w) or (n, h, w, 1 or 3), uint8 or in [0, 1], to (n, 3, h, w) float32 in [−1, 1]."""
    shown = pictures[..., None] if pictures.ndim == 3 else pictures
    scaled = shown.astype(np.float32) / np.float32(255 if pictures.dtype == np.uint8 else 1)
    colours = np.broadcast_to(scaled, (*scaled.shape[:3], COLOURS))
    return np.ascontiguousarray(np.moveaxis(colours, -1, 1)) * np.float32(2) - np.float32(1)
