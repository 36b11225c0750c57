"""Latents of pictures by the frozen autoencoder of a latent diffusion model, as features of one public length.

The model is a folder as `diffusers` writes it, Stable Diffusion's for example: autoencoder, network and schedule. No
file is code: weights are safetensors, and of each part the class is fixed here, whatever a config names.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.features.backbone import Features, Progress, digest_of, row_by_row
from secagg.features.cache import FeatureCache
from secagg.features.encoder import ModelFolder, linked, loading
from secagg.features.program import refusing_failures
from secagg.system.extras import extra
from secagg.system.reading import DOCUMENT_BYTES, parse_json, read_limited

DIFFUSERS = "diffusers:"
VAE, UNET, SCHEDULER = "vae", "unet", "scheduler"
FILES = {
    VAE: ("config.json", "*.safetensors", "*.safetensors.index.json"),
    UNET: ("config.json", "*.safetensors", "*.safetensors.index.json"),
    SCHEDULER: ("scheduler_config.json",),
}
"""Which files decide what a part does; others in the folder (a text encoder, say) are not read."""
INDEX = "*.safetensors.index.json"
REMEDY = "give a folder of a latent diffusion pipeline that save_pretrained wrote, with vae/, unet/ and scheduler/"


@dataclass(frozen=True)
class DiffusionFiles(ModelFolder):
    """A pipeline's folder."""

    PARTS = FILES

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over all parts."""
        return digest_of("secagg diffusion v1: " + self.listed_digests)

    @classmethod
    def of(cls, spec: str) -> DiffusionFiles:
        """The folder of `diffusers:FOLDER`. Raises BadInput where a part is missing."""
        files = cls(Path(spec.removeprefix(DIFFUSERS)))
        for part, (config, *weights) in FILES.items():
            inside = files.folder / part
            if not (inside / config).is_file() or (weights and not any(inside.glob(weights[0]))):
                wanted = f"{config} with *.safetensors" if weights else config
                raise BadInput(f"{files.folder} holds no {part}/ with {wanted}", remedy=REMEDY)
        return files

    def place(self, part: str) -> Path:
        """The part's own folder."""
        return self.folder / part

    def load_vae(self) -> Any:
        """The `AutoencoderKL`, frozen. Raises BadInput."""
        return self._load("AutoencoderKL", VAE)

    def load_unet(self) -> Any:
        """The `UNet2DConditionModel`, frozen. Raises BadInput."""
        return self._load("UNet2DConditionModel", UNET)

    def load_scheduler(self) -> Any:
        """The schedule as a `DDIMScheduler`. Raises BadInput for one that does not predict noise."""
        with extra("diffusion", f"{DIFFUSERS}{self.folder.name}"):
            import diffusers
        with refusing_failures(f"diffusers cannot load {self.folder / SCHEDULER}"), self._alone(SCHEDULER) as inside:
            load: Any = diffusers.DDIMScheduler.from_pretrained
            scheduler = load(inside, local_files_only=True)
        if scheduler.config.prediction_type != "epsilon":
            kind = scheduler.config.prediction_type
            raise BadInput(f"the network in {self.folder} predicts {kind!r}", remedy="give one that predicts epsilon")
        return scheduler

    def _load(self, kind: str, part: str) -> Any:
        """A model in evaluation, without gradients of its own. Raises BadInput for a folder that holds none."""
        with extra("diffusion", f"{DIFFUSERS}{self.folder.name}"):
            import diffusers
        problem = f"diffusers cannot load a {kind} from {self.folder / part}"
        with loading("diffusers", logging.CRITICAL, problem, REMEDY), self._alone(part) as inside:
            model, loaded = getattr(diffusers, kind).from_pretrained(
                inside, local_files_only=True, use_safetensors=True, low_cpu_mem_usage=False, output_loading_info=True
            )
        if absent := sorted(map(str, loaded["missing_keys"] or loaded["mismatched_keys"])):
            raise BadInput(f"{self.folder / part} lacks the weights {', '.join(absent[:4])}", remedy=REMEDY)
        return model.eval().float().requires_grad_(False)

    @contextmanager
    def _alone(self, part: str) -> Iterator[Path]:
        """While it lasts, a folder with links to the files that the part's digest is over, and to no other.

        Raises BadInput for an index that names a file elsewhere: it would be read, and be in no digest; and at the end
        for files that are others by then, since what was read of them may not be what was compared, minutes ago.
        """
        _, paths = self.parts, self.paths(part)  # the digests are known before anything is read
        known = {path.name for path in paths}
        for path in (self.folder / part).glob(INDEX):
            try:
                named = parse_json(read_limited(path, DOCUMENT_BYTES))["weight_map"].values()
                is_known = all(each in known for each in named)
            except (OSError, ValueError, TypeError, KeyError, AttributeError):
                is_known = False
            if not is_known:
                raise BadInput(f"{path} names files that are not beside it", remedy=REMEDY)
        with linked(paths) as inside:
            yield inside
        self.refuse_changed(part)


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

        def features_of(picture: NDArray[Any]) -> Features:
            pixels = torch.tensor(pixels_of(picture[None]))
            return as_feature(to_latents(self.vae, pixels).numpy().astype(np.float64).ravel())

        with torch.inference_mode():
            return row_by_row(inputs, self.dimension, features_of, self.progress)


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
    """Return (z, √(R² − ‖z‖²)) of a latent (d,), cut to the length R = √d; NaN throughout where it is not finite."""
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
