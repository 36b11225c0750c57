"""Pictures by latent diffusion from a sum's mean latents, which are interpolated, noised, denoised and decoded.

**Where it starts.** The paper starts at z(T) = √ᾱ_T·z + √(1 − ᾱ_T)·ε (Eq. 3), T the last step of training, and so does
this. Stable Diffusion's schedule, and this project's tiny model's, does not end in noise alone: ᾱ_T = 0.0047, so that
√ᾱ_T = 0.068 of the latent is left (Lin et al. 2024, "Common Diffusion Noise Schedules and Sample Steps Are Flawed"),
which is how the mean reaches the picture at all. The authors' code does not noise: it starts from z as if that were
z(T) (`start` "released"), which for means of many latents lacks most of the variance that the network expects.
`strength` below 1 starts at the sampler's earlier step t (Meng et al. 2022, "SDEdit"): nearer to the means, with less
variety. There ε makes up for what a mean lacks: z_t = √ᾱ_t·z̄ + √(1 − ᾱ_t·m)·ε, m the mean square of z̄, has a mean
square of 1 as in training, whatever J and the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from secagg.crypto.labels import digest
from secagg.encoding import Grid, Normalisation, inputs_of
from secagg.errors import BadInput
from secagg.features import Latents, Progress, latents_of
from secagg.features.latents import to_pixels
from secagg.generation.concepts import require_width, tell, tell_nothing
from secagg.networks import Program, SlotMeans, TrainedModel, TrainingSettings, train
from secagg.randomness import RandomSource
from secagg.system.threads import one_thread
from secagg.wire import Range, require_in_range

if TYPE_CHECKING:
    from torch import Tensor

NOISED, RELEASED = "noised", "released"
BATCH = 64
PARTNERS = 2
GAMMA = 0.5, 0.1
"""Mean and standard deviation of γ, which is normal and clipped to [0, 1] (Chen et al. 2024, below Eq. 3)."""
GUIDANCE = 7.5
"""The guidance of `StableDiffusionPipeline`, unless its caller says another."""
GAP = 2
WHITE = 255
UNSAFE = set("/\\:\0")
"""Characters that no folder's name may hold, on any system."""


@dataclass(frozen=True)
class GenerationSettings:
    """Settings of `generate`: `count` pictures per class and domain, `steps` of DDIM, `strength` of the initial noise.

    `guidance` 1 is none: ε_∅ + guidance·(ε − ε_∅) (Ho & Salimans 2021), ∅ being the empty prompt (`tell_nothing`).
    `style_noise`: σ of normal noise on each picture's domain vector (the paper's σ_η; its code draws it once for all).
    """

    count: Annotated[int, Range(1, math.inf)] = 50
    steps: Annotated[int, Range(1, 1000)] = 50
    strength: Annotated[float, Range(0, 1, above=True)] = 1.0
    guidance: Annotated[float, Range(-math.inf, math.inf, above=True, below=True)] = GUIDANCE
    style_noise: Annotated[float, Range(0, math.inf, below=True)] = 0.1
    start: str = NOISED
    seed: int = 0

    def __post_init__(self) -> None:
        require_in_range(self)
        if self.start not in (NOISED, RELEASED):
            raise BadInput(f"start is {self.start!r}", remedy=f"give {NOISED} or {RELEASED}")


@dataclass(frozen=True, eq=False)
class Pictures:
    """Generated pictures `pixels` (n, h, w, 3) uint8 with classes and domains (n,); none is a client's record."""

    pixels: NDArray[np.uint8] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    domains: NDArray[np.int64] = field(repr=False)


def generate(
    latents: Latents, means: SlotMeans, settings: GenerationSettings, progress: Progress | None = None
) -> Pictures:
    """Generate pictures for every class and domain that has a mean latent, reproducible by seed on one machine.

    Raises BadInput for means of another autoencoder's latents, or concept vectors that its network does not take.
    """
    import torch

    if means.means.shape[1] != latents.dimension:
        problem = f"the means have {means.means.shape[1]} numbers, latents of {latents.name} {latents.dimension}"
        raise BadInput(problem, remedy="give the backbone of the plan")
    if means.concepts is not None:
        require_width(latents, means.concepts[0].shape[1])
    rng = np.random.default_rng(settings.seed)
    z, labels, domains = interpolate(means, settings.count, rng)
    random = torch.Generator().manual_seed(settings.seed)
    made = []
    with one_thread(), torch.inference_mode():
        for rows in np.array_split(np.arange(len(z)), math.ceil(len(z) / BATCH)):
            begun = torch.tensor(z[rows], dtype=torch.float32).reshape(-1, *latents.shape)
            told = tell_nothing(latents, len(rows))
            if means.concepts is not None:
                vectors = zip(means.concepts, (labels[rows], domains[rows]), strict=True)
                of_class, of_domain = (torch.tensor(each[places]) for each, places in vectors)
                noise = torch.randn(of_domain.shape, generator=random)
                told = tell(latents, of_class, of_domain + settings.style_noise * noise)
            pixels = to_pixels(latents.vae, denoise(latents, begun, told, settings, random))
            made.append(np.rint((pixels.permute(0, 2, 3, 1).numpy() + 1) * 127.5).astype(np.uint8))
            if progress is not None:
                progress(int(rows[-1]) + 1, len(z))
    return Pictures(np.concatenate(made), labels, domains)


def interpolate(
    means: SlotMeans, count: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Return `count` interpolated mean latents (n, d) for each class and domain, with these classes and domains (n,).

    Each is γ·z + (1 − γ)·z' (Eq. 3), where z and z' are means of two slots, drawn by how many records they stand for;
    of one slot where there is one alone. γ is drawn for each (`GAMMA`).
    """
    scaled = means.means.astype(np.float64)
    rows = latents_of(scaled) if means.normalised else scaled[:, :-1]
    groups = np.unique(means.cells[:, :2], axis=0)
    found = []
    for class_, domain in groups:
        own = np.flatnonzero((means.cells[:, :2] == (class_, domain)).all(axis=1))
        weights = np.maximum(means.counts[own].astype(np.float64), 1.0)
        pairs = min(PARTNERS, len(own))
        drawn = np.array([rng.choice(own, pairs, replace=False, p=weights / weights.sum()) for _ in range(count)])
        gamma = rng.normal(*GAMMA, size=(count, 1)).clip(0, 1)
        found.append(gamma * rows[drawn[:, 0]] + (1 - gamma) * rows[drawn[:, -1]])
    labels, domains = np.repeat(groups, count, axis=0).T
    return np.concatenate(found), labels, domains


def denoise(latents: Latents, z: Tensor, told: Tensor, settings: GenerationSettings, random: Any) -> Tensor:
    """Denoise interpolated means (n, c, h, w) by DDIM (Song et al. 2021, η = 0) into latents of the same shape."""
    import torch

    scheduler, unet = latents.files.load_scheduler(), latents.unet
    scheduler.set_timesteps(settings.steps)
    times = scheduler.timesteps[settings.steps - max(1, round(settings.strength * settings.steps)) :]
    if settings.start == NOISED:
        noise = torch.randn(z.shape, generator=random)
        if settings.strength == 1:
            z = scheduler.add_noise(z, noise, torch.tensor([scheduler.config.num_train_timesteps - 1]))
        else:
            kept = float(scheduler.alphas_cumprod[times[0]])
            square = z.square().mean(dim=(1, 2, 3), keepdim=True).clamp(max=1.0)
            z = math.sqrt(kept) * z + (1 - kept * square).sqrt() * noise
    nothing = tell_nothing(latents, len(z)) if settings.guidance != 1 else None
    for time in times:
        found = unet(z, time, told).sample
        if nothing is not None:
            untold = unet(z, time, nothing).sample
            found = untold + settings.guidance * (found - untold)
        z = scheduler.step(found, time, z).prev_sample
    return z


def write_pictures(pictures: Pictures, classes: Sequence[str], folder: Path) -> None:
    """Write PNG files CLASS/NUMBER.png into a new folder. Raises as `require_names`, before it writes anything."""
    require_names(classes)
    for number, (pixels, label) in enumerate(zip(pictures.pixels, pictures.labels, strict=True)):
        place = folder / classes[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{number:06}.png")


def require_names(classes: Sequence[str]) -> None:
    """Raise BadInput if a class name, which the plan's author chose, would lead outside the folder."""
    for name in classes:
        if name in {".", ".."} or set(name) & UNSAFE:
            raise BadInput(f"the class {name!r} cannot be the name of a folder", remedy="rename it in the plan")


def contact_sheet(rows: Sequence[NDArray[Any]], path: Path) -> None:
    """Write pictures as one PNG file; each group (n, h, w, 3) uint8 in `rows` fills one row of the sheet."""
    side_h, side_w = rows[0].shape[1:3]
    width, height = max(map(len, rows)), len(rows)
    sheet = np.full((height * (side_h + GAP), width * (side_w + GAP), 3), WHITE, dtype=np.uint8)
    for y, row in enumerate(rows):
        for x, picture in enumerate(row):
            top, left = y * (side_h + GAP), x * (side_w + GAP)
            sheet[top : top + side_h, left : left + side_w] = picture
    Image.fromarray(sheet).save(path)


GRID = Grid(1.0, 1 << 16, normalisation=Normalisation.CENTRED_UNIT)
"""Grid of the classifier's training, which scales pictures to mean 0 and length 1, as plans of `fedavg` do."""
TRAINING = TrainingSettings(epochs=50, rate=0.01, batch=64, momentum=0.9)
"""Epochs, rate, batch and momentum of the classifier in FedBiP's paper (Chen et al. 2024)."""


def train_classifier(
    pictures: Pictures, input_shape: tuple[int, ...], program: Program, randomness: RandomSource
) -> TrainedModel:
    """Train a network from its public start on generated pictures, converted to records of `input_shape`.

    An exported network starts at the weights in its file: it is fine-tuned, as in the paper. All layers are trained:
    the released code builds the optimiser before it replaces the last, which stays at random. Raises BadInput.
    """
    rows = as_inputs(pictures.pixels, input_shape)
    x = (inputs_of(rows, GRID) * program.scale).astype(np.float32)
    start = program.start(digest("public start", b"generated"))
    trained = train(program, start, x, pictures.labels, TRAINING, randomness)
    first = next(iter(program.shapes.values()))
    trained[: math.prod(first)] *= program.scale  # what multiplies inputs: the model takes them as they are
    return TrainedModel.of(program, trained)


def as_inputs(pixels: NDArray[np.uint8], input_shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Convert pictures (n, h, w, 3) uint8 to rows of values in [0, 1], in grey if `input_shape` has no colours."""
    scaled = pixels.astype(np.float64) / 255.0
    if input_shape[2:] in ((), (1,)):
        scaled = scaled.mean(axis=3)
    return scaled.reshape(len(pixels), -1)
