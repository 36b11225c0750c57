"""A tiny latent diffusion model of `diffusers` classes, trained on public pictures that no member holds.

`python -m tests.benchmarks.tiny_diffusion --data D --out FOLDER [--minutes 8]`

D holds `cifar10_images_3k.npz` and `mnist_12k.npz`. FOLDER receives what `save_pretrained` writes: vae/, unet/ and
scheduler/, for pictures of 32 × 32 pixels: 64 numbers a latent. The minutes are of one core's time, divided between
both trainings: a slower machine makes a worse model.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from torch import Tensor

SIDE, CHANNELS = 32, 4
WIDTH = 32
"""Numbers of a condition's vector."""
BATCHES = 32, 64
"""Of the VAE and the UNet."""
KL_WEIGHT = 1e-4
FORGOTTEN = 0.15
"""How often a condition is zeros, which is the one that says nothing."""
VAE_SHARE = 0.5
"""Of the time."""
STYLES = 4
VARIED = 3
"""How often every picture is seen by the UNet, each time in another form."""
STEPS = 1000
RATES = 2e-3, 1e-3
"""Of Adam, for the VAE and the UNet; both fall to nothing."""


def main() -> int:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    pictures, labels = public_pictures(chosen.data)
    seconds = 60 * chosen.minutes
    vae = train_vae(pictures, VAE_SHARE * seconds)
    unet, scheduler = train_unet(vae, pictures, labels, (1 - VAE_SHARE) * seconds)
    vae.save_pretrained(chosen.out / "vae")
    unet.save_pretrained(chosen.out / "unet")
    scheduler.save_pretrained(chosen.out / "scheduler")
    return 0


def public_pictures(data: Path) -> tuple[Tensor, Tensor]:
    """Pictures (n, 3, 32, 32) in [−1, 1] and their classes (n,): CIFAR-10's are 0 to 9, digits 10 to 19."""
    with np.load(data / "cifar10_images_3k.npz") as file:
        colour = np.concatenate([file["train_images"], file["test_images"]])
        things = np.concatenate([file["train_labels"], file["test_labels"]]).astype(np.int64)
    with np.load(data / "mnist_12k.npz") as file:
        digits = np.pad(file["train_images"][:3000], ((0, 0), (2, 2), (2, 2)))
        numbers = file["train_labels"][:3000].astype(np.int64) + 10
    grey = np.repeat(digits[..., None], 3, axis=3)
    both = np.concatenate([colour, grey]).transpose(0, 3, 1, 2)
    return torch.tensor(both / 127.5 - 1, dtype=torch.float32), torch.tensor(np.concatenate([things, numbers]))


def varied(pictures: Tensor) -> tuple[Tensor, Tensor]:
    """Mirrored and moved at random, each in one of `STYLES`: as it is, inverted, grey, of other contrast."""
    n = len(pictures)
    mirrored = torch.where(torch.rand(n, 1, 1, 1) < 0.5, pictures, pictures.flip(3))
    shift = tuple(int(each) for each in torch.randint(-3, 4, (2,)))
    moved = torch.roll(mirrored, shift, dims=(2, 3))
    styles = torch.randint(STYLES, (n,))
    grey = moved.mean(dim=1, keepdim=True).expand(-1, 3, -1, -1)
    factor = 0.4 + 1.2 * torch.rand(n, 1, 1, 1)
    forms = torch.stack([moved, -moved, grey, (moved * factor).clamp(-1, 1)])
    return forms[styles, torch.arange(n)], styles


def running(seconds: float) -> Iterator[tuple[int, float]]:
    """Numbers from 0, with the part of the processor's time that is over, until it is."""
    begun = time.process_time()
    for number in itertools.count():
        passed = (time.process_time() - begun) / seconds
        if passed >= 1:
            return
        yield number, passed


def train_vae(pictures: Tensor, seconds: float) -> AutoencoderKL:
    """Latents of 4 × 4 × 4 whose mean square over the public pictures is 1 after `scaling_factor`."""
    vae = AutoencoderKL(
        in_channels=3,
        out_channels=3,
        block_out_channels=(8, 16, 32, 64),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=1,
        latent_channels=CHANNELS,
        norm_num_groups=8,
        sample_size=SIDE,
    )
    optimiser = torch.optim.Adam(vae.parameters(), lr=RATES[0])
    for number, passed in running(seconds):
        seen, _ = varied(pictures[torch.randint(len(pictures), (BATCHES[0],))])
        posterior = vae.encode(seen).latent_dist
        made = vae.decode(posterior.sample()).sample
        loss = (made - seen).abs().mean() + KL_WEIGHT * posterior.kl().mean() / CHANNELS
        step(optimiser, loss, RATES[0] * (1 - passed), f"vae {number}")
    with torch.inference_mode():
        latents = encoded(vae.eval(), pictures[::4])
        vae.register_to_config(scaling_factor=float(1 / latents.square().mean().sqrt()))
    return vae


def train_unet(
    vae: AutoencoderKL, pictures: Tensor, labels: Tensor, seconds: float
) -> tuple[UNet2DConditionModel, DDIMScheduler]:
    """Noise of noisy latents from two vectors: of the style and of the class; Stable Diffusion's schedule."""
    unet = UNet2DConditionModel(
        sample_size=SIDE // 8,
        in_channels=CHANNELS,
        out_channels=CHANNELS,
        block_out_channels=(48, 96),
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        layers_per_block=1,
        cross_attention_dim=WIDTH,
        attention_head_dim=8,
        norm_num_groups=8,
    )
    scheduler = DDIMScheduler(
        num_train_timesteps=STEPS,
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        clip_sample=False,
        set_alpha_to_one=False,
        steps_offset=1,
    )
    words = torch.nn.ModuleList([torch.nn.Embedding(STYLES, WIDTH), torch.nn.Embedding(20, WIDTH)])
    optimiser = torch.optim.Adam([*unet.parameters(), *words.parameters()], lr=RATES[1])
    with torch.no_grad():
        forms = [varied(pictures) for _ in range(VARIED)]
        known = torch.cat([encoded(vae, seen) for seen, _ in forms]) * vae.config.scaling_factor
    all_styles, all_labels = torch.cat([styles for _, styles in forms]), labels.repeat(VARIED)
    for number, passed in running(seconds):
        rows = torch.randint(len(known), (BATCHES[1],))
        latents = known[rows]
        told = torch.stack([words[0](all_styles[rows]), words[1](all_labels[rows])], dim=1)
        told = told * (torch.rand(len(told), 2, 1) >= FORGOTTEN)
        noise, times = torch.randn_like(latents), torch.randint(STEPS, (len(latents),))
        found = unet(scheduler.add_noise(latents, noise, times), times, told).sample
        step(optimiser, (found - noise).square().mean(), RATES[1] * (1 - passed), f"unet {number}")
    return unet.eval(), scheduler


def step(optimiser: torch.optim.Optimizer, loss: Tensor, rate: float, name: str) -> None:
    """One of Adam; every hundredth says its loss."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    if name.endswith("00"):
        sys.stderr.write(f"{name}: {loss.item():.4f}\n")


def encoded(vae: AutoencoderKL, pictures: Tensor) -> Any:
    """The means of the pictures' posteriors, (n, 4, 4, 4)."""
    return torch.cat([vae.encode(part).latent_dist.mean for part in pictures.split(BATCHES[1])])


if __name__ == "__main__":
    sys.exit(main())
