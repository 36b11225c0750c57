"""Latent diffusion models of `diffusers` with random weights, saved as their users save them, and pictures for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

SIDE, WIDTH, CHANNELS = 8, 8, 4
DIMENSION = CHANNELS * 4 * 4
"""Of a latent: its sides are half of the picture's."""
WORDS = ("a", "style", "of", "photo", "dog", "*")
"""What the tokenizer knows as one token each."""
TOKENS = 12
"""Of every prompt, padded."""
START, END = "<|startoftext|>", "<|endoftext|>"


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


def save_text_encoder(folder: Path, words: Sequence[str] = WORDS, width: int = WIDTH, seed: int = 0) -> Path:
    """Add a tiny text encoder with random weights and its tokenizer, in the files that Stable Diffusion 1 has."""
    from transformers import CLIPTextConfig, CLIPTextModel

    torch.manual_seed(seed)
    letters = sorted(set("".join(words)))
    vocabulary = dict.fromkeys(letters + [f"{letter}</w>" for letter in letters])
    merges = []
    for word in words:
        *inner, last = word
        parts = [*inner, f"{last}</w>"]
        while len(parts) > 1:
            merges.append(f"{parts[0]} {parts[1]}")
            parts = [parts[0] + parts[1], *parts[2:]]
            vocabulary[parts[0]] = None
    numbers = {token: number for number, token in enumerate([*vocabulary, START, END])}
    special = {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": END}
    config = special | {"tokenizer_class": "CLIPTokenizer", "model_max_length": TOKENS}
    (folder / "tokenizer").mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("vocab.json", json.dumps(numbers)),
        ("merges.txt", "\n".join(["#version: 0.2", *merges, ""])),
        ("tokenizer_config.json", json.dumps(config)),
        ("special_tokens_map.json", json.dumps(special)),
    ):
        (folder / "tokenizer" / name).write_text(content, encoding="utf-8")
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": TOKENS}
    ends = {"bos_token_id": numbers[START], "eos_token_id": numbers[END], "pad_token_id": numbers[END]}
    model = CLIPTextModel(
        CLIPTextConfig(vocab_size=len(numbers), hidden_size=width, intermediate_size=2 * width, **sizes, **ends)
    )
    model.save_pretrained(folder / "text_encoder")
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
