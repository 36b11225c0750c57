"""Concept vectors, trained on records' latents, that take the place of words in a frozen diffusion network's prompt.

Textual inversion (Gal et al. 2022) as FedBiP has it (Chen et al. 2024, Eq. 4): a vector S for each domain and V for
each class, trained by the network's own loss. They are embeddings of tokens of the prompt "a S style of a V", which the
model's text encoder encodes (the authors' code overwrites rows of its *output*). A network without a text encoder is
told both vectors alone, two tokens, S before V, and zeros for nothing. Training starts at zeros (the paper: at random
vectors, its code: at words), which every member knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.features import Latents
from secagg.heads.descent import descend
from secagg.randomness import RandomSource
from secagg.system.threads import one_thread
from secagg.wire import Range, require_in_range

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]
SEED_BYTES = 7
LARGEST = 1000.0


@dataclass(frozen=True)
class ConceptTraining:
    """Settings for training concept vectors: `epochs`, shuffled batches of `batch`, Adam at `rate`, no weight decay."""

    epochs: Annotated[int, Range(1, math.inf)]
    rate: Annotated[float, Range(0, LARGEST, above=True)]
    batch: Annotated[int, Range(1, math.inf)]

    def __post_init__(self) -> None:
        require_in_range(self)


def train_concepts(
    latents: Latents,
    start: tuple[Floats, Floats],
    records: tuple[Floats, NDArray[np.int64], NDArray[np.int64]],
    settings: ConceptTraining,
    randomness: RandomSource,
) -> tuple[Floats, Floats]:
    """Train concept vectors from `start`, and return one for each class (C, e) and one for each domain (D, e).

    `records`: latents (n, d), classes and domains (n,). The order, the times t and the noise come from `randomness`.
    No records leave the start as it is. Raises BadInput for vectors that the network does not take.
    """
    import torch

    unet, scheduler = latents.unet, latents.scheduler
    require_width(latents, start[0].shape[1])
    if not len(records[0]):
        return start
    with one_thread(), torch.enable_grad():
        random = torch.Generator().manual_seed(int.from_bytes(randomness.bytes(SEED_BYTES), "little"))
        z = torch.tensor(records[0], dtype=torch.float32).reshape(-1, *latents.shape)
        labels, domains = (torch.tensor(each) for each in records[1:])
        trained = [torch.tensor(each, dtype=torch.float32, requires_grad=True) for each in start]

        def losses(rows: Tensor) -> Iterator[Tensor]:
            told = tell(latents, trained[0][labels[rows]], trained[1][domains[rows]])
            yield noise_loss(unet, scheduler, z[rows], told, random)

        orders = (torch.randperm(len(z), generator=random) for _ in range(settings.epochs))
        batches = (rows for order in orders for rows in torch.split(order, settings.batch))
        descend(torch.optim.Adam(trained, lr=settings.rate), batches, losses)
    return trained[0].detach().numpy().astype(np.float64), trained[1].detach().numpy().astype(np.float64)


def noise_loss(unet: Any, scheduler: Any, z: Tensor, told: Tensor, random: Any) -> Tensor:
    """Return the mean ‖ε − ε_θ(z_t, t, told)‖² of latents z (n, c, h, w): t uniform, ε normal, `told` the condition."""
    import torch

    times = torch.randint(scheduler.config.num_train_timesteps, (len(z),), generator=random)
    noise = torch.randn(z.shape, generator=random)
    found: Tensor = unet(scheduler.add_noise(z, noise, times), times, told).sample
    return (found - noise).square().mean()


def tell(latents: Latents, of_class: Tensor, of_domain: Tensor) -> Tensor:
    """Return a network's condition (n, t, e) for vectors (n, e): the encoded prompt, or both vectors (t = 2)."""
    import torch

    vectors = torch.stack([of_domain, of_class], dim=1)
    told: Tensor = vectors if latents.text is None else latents.text.encode_vectors(vectors)
    return told


def tell_nothing(latents: Latents, count: int) -> Tensor:
    """Return the condition (count, t, e) that says nothing: the encoded empty prompt, or zeros (t = 2)."""
    import torch

    if latents.text is None:
        return torch.zeros(count, 2, latents.unet.config.cross_attention_dim)
    nothing: Tensor = latents.text.encode("").expand(count, -1, -1)
    return nothing


def require_width(latents: Latents, width: int) -> None:
    """Raise BadInput unless the network is conditioned by vectors of this width, and by nothing else."""
    config, name = latents.unet.config, latents.name
    if config.cross_attention_dim != width:
        problem = f"{name} takes concept vectors of {config.cross_attention_dim} numbers, the plan has {width}"
        raise BadInput(problem, remedy=f"give width={config.cross_attention_dim}")
    if (config.in_channels, config.out_channels) != (latents.shape[0],) * 2:
        raise BadInput(f"the network of {name} does not denoise latents of {latents.shape[0]} channels")
    if getattr(config, "addition_embed_type", None) or getattr(config, "class_embed_type", None):
        raise BadInput(f"the network of {name} takes other conditions than vectors", remedy="give one like SD 1 or 2")
