"""Encoders of `transformers` with random weights, saved as their users save them, and records that they take."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from secagg.data.triplets import FACTS, TABLE, facts_of

SIDE, WIDTH, LAYERS = 16, 16, 2
WORDS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[EOS]",
    "what",
    "which",
    "colour",
    "digit",
    "is",
    "this",
    "how",
    "many",
    "?",
)
SIZES = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": 2 * WIDTH}
LIVELY = {"initializer_range": 0.3}
"""Random weights large enough that what goes in moves what comes out."""
ARCHITECTURES = ("vilt", "clip", "vit", "bert")
PLACES = {"vilt": "2x16", "clip": "2x16+2x8", "vit": "2x16", "bert": "2x16"}
QUESTIONS = {
    "colours": ("what colour is this ?", ("red", "green", "blue")),
    "digits": ("which digit is this ?", ("0", "1")),
}


def save_encoder(folder: Path, architecture: str = "vilt", seed: int = 0) -> Path:
    """Save a tiny encoder, its tokenizer and its picture processor, where it takes text or pictures."""
    torch.manual_seed(seed)
    model = _model(architecture)
    model.save_pretrained(folder)
    if architecture != "vit":
        save_tokenizer(folder)
    if architecture != "bert":
        save_processor(folder)
    return folder


def save_tokenizer(folder: Path, words: Sequence[str] = WORDS, length: int = 8) -> None:
    """A tokenizer of whole words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(word, words.index(word)) for word in ("[CLS]", "[EOS]")]
    inner.post_processor = processors.TemplateProcessing(single="[CLS] $A [EOS]", special_tokens=ends)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "eos_token": "[EOS]"}
    PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=length, **names).save_pretrained(folder)


def save_processor(folder: Path, mean: Sequence[float] = (0.5, 0.5, 0.5)) -> None:
    """How pictures are normalised."""
    rule = {"image_mean": list(mean), "image_std": [0.5, 0.5, 0.5], "do_normalize": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(rule), encoding="utf-8")


def save_triplets(folder: Path, count: int = 12, domains: Sequence[str] = tuple(QUESTIONS), seed: int = 0) -> Path:
    """`count` records of each domain: squares whose colour, or brightness, is the answer."""
    folder.mkdir(parents=True)
    generator, rows = np.random.default_rng(seed), []
    for domain in domains:
        question, answers = QUESTIONS[domain]
        for number in range(count):
            place = number % len(answers)
            picture = generator.integers(0, 60, (SIDE, SIDE, 3), dtype=np.uint8)
            picture[4:12, 4:12, place if domain == "colours" else slice(None)] += np.uint8(
                190 if place or domain == "colours" else 90
            )
            name = f"{domain}-{number}.png"
            Image.fromarray(picture).save(folder / name)
            rows.append([name, question, answers[place], domain])
    write_table(folder, rows)
    (folder / FACTS).write_text(facts_of(SIDE, {each: QUESTIONS[each][1] for each in domains}), encoding="utf-8")
    return folder


def write_table(folder: Path, rows: Sequence[Sequence[str]]) -> None:
    """The folder's table of pictures, texts, answers and domains."""
    with (folder / TABLE).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["picture", "text", "answer", "domain"], *rows])


def _model(architecture: str) -> Any:
    import transformers as t

    sight: Mapping[str, int] = {"image_size": SIDE, "patch_size": 8}
    text = {"vocab_size": len(WORDS), "max_position_embeddings": 8}
    ends = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 4}
    if architecture == "vilt":
        return t.ViltModel(t.ViltConfig(**SIZES, **LIVELY, **sight, **text))
    if architecture == "vit":
        return t.ViTModel(t.ViTConfig(**SIZES, **LIVELY, **sight))
    if architecture == "bert":
        return t.BertModel(t.BertConfig(**SIZES, **LIVELY, **text))
    narrow = {**SIZES, "hidden_size": WIDTH // 2, **sight}
    return t.CLIPModel(t.CLIPConfig(text_config={**SIZES, **text, **ends}, vision_config=narrow, projection_dim=8))
