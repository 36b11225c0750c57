"""Questions about pictures, and a small encoder that has seen public ones: what `tests.benchmarks.feddat` runs on.

`python -m tests.benchmarks.questions --data D --out F`

D holds `mnist_12k.npz`, `usps.npz`, `pacs_32px.npz` and the files of `fashion-mnist`. F receives
`members.triplets.parquet` (five domains, a member each, of its own questions, pictures and answers), twice as many in
`many.triplets.parquet`, for 200 members, and `encoder`: a ViLT of two layers and 64 numbers a token, trained in minutes
to count, to name colours and digits and to compare, on pictures that no member holds: handwritten digits of USPS, and
half of Fashion-MNIST.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.data.triplets import METADATA, facts_of, join
from secagg.features import Encoder, open_backbone
from tests.benchmarks.fashion_mnist import CLASSES as GARMENTS
from tests.benchmarks.fashion_mnist import DATA, read

SIDE = 32
COLOURS: Mapping[str, tuple[int, int, int]] = {
    "red": (230, 40, 40), "green": (40, 200, 60), "blue": (60, 80, 240),
    "yellow": (230, 220, 40), "violet": (180, 60, 220), "white": (240, 240, 240),
}  # fmt: skip
DIGITS = tuple(map(str, range(10)))
COUNTS = ("1", "2", "3", "4")
YES_NO = ("no", "yes")
PUBLIC_STEPS, PUBLIC_BATCH = 5000, 64
RNG = np.random.Generator
Images = NDArray[np.uint8]
Triplet = tuple[Images, str, int]
"""A picture (SIDE, SIDE, 3), a question, and the place of its answer."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """Grey or coloured pictures (n, h, w[, 3]) of things, and which thing each is (n,)."""

    images: Images
    labels: NDArray[np.int64]

    def draw(self, rng: RNG, label: int | None = None) -> tuple[Images, int]:
        """One of them, of this label if one is given."""
        row = int(rng.integers(len(self.labels)))
        while label is not None and self.labels[row] != label:
            row = int(rng.integers(len(self.labels)))
        return self.images[row], int(self.labels[row])


@dataclass(frozen=True)
class Task:
    """A kind of question: its words, its answers, and how a triplet is made."""

    answers: tuple[str, ...]
    make: Callable[[RNG], Triplet]


def canvas(rng: RNG) -> Images:
    """A dark ground with some noise."""
    return rng.integers(0, 50, (SIDE, SIDE, 3), dtype=np.uint8)


def put(ground: Images, piece: Images, corner: tuple[int, int], colour: str) -> None:
    """Draw a grey piece in a colour, its top left at the corner."""
    height, width = piece.shape
    place = ground[corner[0] : corner[0] + height, corner[1] : corner[1] + width]
    strength = piece[..., None].astype(np.float64) / 255
    place[:] = place * (1 - strength) + strength * np.array(COLOURS[colour])


def some_colour(rng: RNG) -> str:
    """Any."""
    return str(rng.choice(list(COLOURS)))


def half(piece: Images) -> Images:
    """A piece at half its size."""
    height, width = (each // 2 * 2 for each in piece.shape)
    return piece[:height, :width].reshape(height // 2, 2, width // 2, 2).mean(axis=(1, 3)).astype(np.uint8)


def middle(piece: Images) -> tuple[Images, tuple[int, int]]:
    """A piece, twice as large if it is small, and where it stands in the middle."""
    whole = piece.repeat(2, axis=0).repeat(2, axis=1) if 2 * len(piece) <= SIDE else piece
    return whole, ((SIDE - whole.shape[0]) // 2, (SIDE - whole.shape[1]) // 2)


def single(pieces: Pieces, question: str) -> Callable[[RNG], Triplet]:
    """Questions which thing it is."""

    def make(rng: RNG) -> Triplet:
        piece, label = pieces.draw(rng)
        if piece.ndim == 3:
            return piece, question, label
        ground = canvas(rng)
        put(ground, *middle(piece), some_colour(rng))
        return ground, question, label

    return make


def colours(pieces: Pieces, question: str) -> Callable[[RNG], Triplet]:
    """Questions which colour it has."""

    def make(rng: RNG) -> Triplet:
        ground, place = canvas(rng), int(rng.integers(len(COLOURS)))
        piece, _ = pieces.draw(rng)
        put(ground, *middle(piece), list(COLOURS)[place])
        return ground, question, place

    return make


def counts(pieces: Pieces, question: str) -> Callable[[RNG], Triplet]:
    """Questions how many there are, of up to four in four places."""

    def make(rng: RNG) -> Triplet:
        ground, count = canvas(rng), int(rng.integers(1, 5))
        for place in rng.permutation(4)[:count]:
            piece = half(pieces.draw(rng)[0])
            put(ground, piece, (16 * (place // 2) + 1, 16 * (place % 2) + 1), some_colour(rng))
        return ground, question, count - 1

    return make


def pairs(pieces: Pieces, question: str) -> Callable[[RNG], Triplet]:
    """Questions whether both are the same thing."""

    def make(rng: RNG) -> Triplet:
        ground, same = canvas(rng), int(rng.integers(2))
        first, label = pieces.draw(rng)
        other = label if same else (label + int(rng.integers(1, 10))) % 10
        for column, piece in enumerate((first, pieces.draw(rng, other)[0])):
            put(ground, half(piece) if len(piece) > 16 else piece[:16, :15], (8, 16 * column), some_colour(rng))
        return ground, question, same

    return make


def read_pieces(data: Path) -> dict[str, Pieces]:
    """All pictures, public ones apart from members'."""
    mnist, usps, pacs = (np.load(data / f"{name}.npz") for name in ("mnist_12k", "usps", "pacs_32px"))
    garments, their = read(data, "train", "images", (-1, 28, 28)), read(data, "train", "labels", (-1,))
    domains = ("art_painting", "cartoon", "photo", "sketch")
    return {
        "digits": Pieces(mnist["train_images"], mnist["train_labels"].astype(np.int64)),
        "public digits": Pieces(usps["train_images"], usps["train_labels"].astype(np.int64)),
        "garments": Pieces(garments[:30_000], their[:30_000].astype(np.int64)),
        "public garments": Pieces(garments[30_000:], their[30_000:].astype(np.int64)),
        "things": Pieces(
            np.concatenate([pacs[f"{each}_images"] for each in domains]),
            np.concatenate([pacs[f"{each}_labels"] for each in domains]).astype(np.int64),
        ),
    }


def public_tasks(pieces: Mapping[str, Pieces]) -> tuple[Task, ...]:
    """What the encoder learns beforehand."""
    digits, garments = pieces["public digits"], pieces["public garments"]
    return (
        Task(DIGITS, single(digits, "which digit is this ?")),
        Task(tuple(COLOURS), colours(garments, "what colour is this ?")),
        Task(COUNTS, counts(digits, "how many are there ?")),
        Task(YES_NO, pairs(digits, "are both the same ?")),
    )


def member_tasks(pieces: Mapping[str, Pieces]) -> dict[str, Task]:
    """What each member asks, of pictures that nobody else has."""
    digits, garments = pieces["digits"], pieces["garments"]
    third = len(digits.labels) // 3
    parts = [Pieces(digits.images[start:][:third], digits.labels[start:][:third]) for start in (0, third, 2 * third)]
    kinds = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    return {
        "digits": Task(DIGITS, single(parts[0], "which digit is this ?")),
        "counts": Task(COUNTS, counts(parts[1], "how many are there ?")),
        "pairs": Task(YES_NO, pairs(parts[2], "are both the same ?")),
        "garments": Task(GARMENTS, single(garments, "which garment is this ?")),
        "things": Task(kinds, single(pieces["things"], "what is in the picture ?")),
    }


def words_of(tasks: Sequence[Task], rng: RNG) -> tuple[str, ...]:
    """The words that questions use, in alphabetical order."""
    return tuple(sorted({word for task in tasks for word in task.make(rng)[1].split()}))


def save_encoder(folder: Path, pieces: Mapping[str, Pieces], seed: int = 0, steps: int = PUBLIC_STEPS) -> None:
    """Train the encoder on public questions, and save it as its users would."""
    import torch
    from transformers import ViltConfig, ViltModel

    rng, tasks = np.random.default_rng(seed), public_tasks(pieces)
    words = ("[PAD]", "[UNK]", *words_of((*tasks, *member_tasks(pieces).values()), rng))
    torch.manual_seed(seed)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
    model = ViltModel(
        ViltConfig(**sizes, image_size=SIDE, patch_size=8, vocab_size=len(words), max_position_embeddings=8)
    )
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    save_texts(folder, words)
    encoder = open_backbone(f"transformers:{folder}", (len(join(canvas(rng)[None], [""])[0]),))
    assert isinstance(encoder, Encoder)
    _train(encoder, tasks, rng, steps)
    encoder.module.save_pretrained(folder)


def save_texts(folder: Path, words: Sequence[str]) -> None:
    """A tokenizer of whole words, and how pictures are normalised."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, model_max_length=8, pad_token="[PAD]", unk_token="[UNK]"
    )
    tokenizer.save_pretrained(folder)
    rule = {"image_mean": [0.25] * 3, "image_std": [0.25] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(rule), encoding="utf-8")


def _train(encoder: Encoder, tasks: Sequence[Task], rng: RNG, steps: int) -> None:
    """All weights and a head for each task, by AdamW; a step has a batch of each task's in turn."""
    import torch
    from torch.nn import functional

    heads = [torch.nn.Linear(64, len(task.answers)) for task in tasks]
    parameters = [*encoder.module.parameters(), *(each for head in heads for each in head.parameters())]
    encoder.module.requires_grad_(True)
    optimiser = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=2e-3, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        place = step % len(tasks)
        made = [tasks[place].make(rng) for _ in range(PUBLIC_BATCH)]
        records = join(np.array([each[0] for each in made]), [each[1] for each in made])
        scores = heads[place](encoder.pooled(torch.from_numpy(encoder.prepare(records))))
        wanted = torch.tensor([each[2] for each in made])
        loss = functional.cross_entropy(scores, wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rates.step()
        if step % 400 < len(tasks):
            right = (scores.argmax(dim=1) == wanted).double().mean()
            print(f"  step {step} of {steps}, task {place}: loss {loss:.3f}, right {right:.2f}", flush=True)
    encoder.module.requires_grad_(False)


def triplets_of(task: Task, count: int, seed: int) -> list[Triplet]:
    """So many of a task's, always the same for a seed."""
    rng = np.random.default_rng(seed)
    return [task.make(rng) for _ in range(count)]


def save_members(path: Path, tasks: Mapping[str, Task], count: int) -> None:
    """All members' records as one Parquet file, their tasks in the column `domain`."""
    import pyarrow as pa
    import pyarrow.parquet

    rows: list[dict[str, Any]] = []
    for number, (domain, task) in enumerate(tasks.items()):
        for picture, question, place in triplets_of(task, count, 1000 + number):
            rows.append({"picture": _png(picture), "text": question, "answer": task.answers[place], "domain": domain})
    facts = facts_of(SIDE, {domain: task.answers for domain, task in tasks.items()})
    table = pa.Table.from_pylist(rows).replace_schema_metadata({METADATA: facts.encode()})
    pyarrow.parquet.write_table(table, path)


def _png(picture: Images) -> bytes:
    from PIL import Image

    file = BytesIO()
    Image.fromarray(picture).save(file, format="PNG")
    return file.getvalue()


def main() -> None:
    """Write both."""
    parser = argparse.ArgumentParser(description="Members' triplets, and an encoder that has seen public ones")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of pictures")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--count", type=int, default=1250, help="triplets of each member, a fifth of them held out")
    parser.add_argument("--steps", type=int, default=PUBLIC_STEPS, help="of training on public pictures")
    chosen = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    chosen.out.mkdir(parents=True, exist_ok=True)
    pieces = read_pieces(chosen.data)
    save_encoder(chosen.out / "encoder", pieces, steps=chosen.steps)
    for name, count in (("members", chosen.count), ("many", 2 * chosen.count)):
        save_members(chosen.out / f"{name}.triplets.parquet", member_tasks(pieces), count)


if __name__ == "__main__":
    main()
