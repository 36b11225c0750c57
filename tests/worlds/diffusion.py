"""Latent diffusion models of `diffusers` with random weights, saved as their users save them, and pictures for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

SIDE, WIDTH, CHANNELS = 8, 8, 4
DIMENSION = CHANNELS * 4 * 4
"""Of a latent: its sides are half of the picture's."""


def save_diffusion(folder: Path, seed: int = 0, like_stable: bool = False) -> Path:
    """Save a tiny autoencoder, network and schedule; `like_stable`: with the schedule that Stable Diffusion 1 has."""
    from diffusers import AutoencoderKL, DDIMScheduler, PNDMScheduler, UNet2DConditionModel

    torch.manual_seed(seed)
    kinds = "CrossAttnDownBlock2D", "CrossAttnUpBlock2D"
    vae = AutoencoderKL(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=CHANNELS,
        norm_num_groups=4,
        sample_size=SIDE,
        scaling_factor=1.0,
    )
    unet = UNet2DConditionModel(
        sample_size=SIDE // 2,
        block_out_channels=(8,),
        down_block_types=kinds[:1],
        up_block_types=kinds[1:],
        layers_per_block=1,
        cross_attention_dim=WIDTH,
        attention_head_dim=4,
        norm_num_groups=4,
    )
    rates = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1}
    scheduler = (
        PNDMScheduler(**rates, skip_prk_steps=True) if like_stable else DDIMScheduler(**rates, clip_sample=False)
    )
    for part, each in (("vae", vae), ("unet", unet), ("scheduler", scheduler)):
        each.save_pretrained(folder / part)
    return folder


def pictures(per_cell: int = 12, classes: int = 2, domains: int = 1, seed: int = 0) -> dict[str, NDArray[np.generic]]:
    """Noisy squares (n, 8, 8, 3), brighter the higher the class, and inverted in every other domain."""
    rng = np.random.default_rng(seed)
    labels = np.tile(np.repeat(np.arange(classes), per_cell), domains)
    places = np.repeat(np.arange(domains), classes * per_cell)
    base = 40 + 170 * labels / max(1, classes - 1) + rng.normal(scale=20, size=len(labels))
    shade = np.where(places % 2, 255 - base, base)[:, None, None, None]
    noise = rng.normal(scale=20, size=(len(labels), SIDE, SIDE, 3))
    return {
        "images": np.clip(shade + noise, 0, 255).astype(np.uint8),
        "labels": labels,
        "domain": np.array([f"d{place}" for place in places]),
    }
