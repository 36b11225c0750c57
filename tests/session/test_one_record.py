"""One record never decides, where a plan has noise, whether its member joins, nor what other records become."""

from __future__ import annotations

import csv
import gzip
import io
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, PngImagePlugin
from torch import nn

from secagg.agreement.schema import Hashed, Numeric, Schema
from secagg.data import open_dataset
from secagg.data.arrays import load_arrays
from secagg.data.delimited import LONGEST_LINE
from secagg.data.records import MAX_CELL, Tolerance
from secagg.data.triplets import FACTS, METADATA, TABLE, TEXT_BYTES, facts_of
from secagg.encoding import Normalisation
from secagg.errors import BadInput
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.plan_facts.records import read_records
from secagg.privacy import Adjacency
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from tests.agreement.federation_files import small_roster
from tests.networks.exports import export

ROSTER = small_roster()
CLASSES = ("no", "yes")
N, PLACE, MOST = 8, 3, 16
"""Good records, where among them the worst one stands, and how many a plan allows."""
SIDE = 8
SCHEMA = Schema(
    (Numeric("age", 0.0, 100.0), Hashed("drug", 4), Hashed("place", 4)), "ill", (("0", "no"), ("1", "yes")), CLASSES
)
HEADER = ["age", "drug", "place", "ill", "remark"]
GOOD = [[str(20 + row), f"d{row % 3}", "x", str(row % 2), "-"] for row in range(N)]
LONG = "x" * 990
WORST_LINES = {
    "long cells": f"30,{LONG},{LONG},1,-",
    "a long cell that nobody reads": f"30,d0,x,1,{'r' * 70_000}",
    "a line beyond every limit": f"30,d0,x,1,{'r' * (LONGEST_LINE + 5)}",
    "a line of many limits": f"30,d0,x,1,{'r' * 3 * LONGEST_LINE}",
    "an open quote": '30,"d0,x,1,-',
    "too many fields": "1," * 500,
    "no fields": ",,,,",
    "bytes that are no text": "30,\udcff\udcfe,x,1,-",
    "NUL": "30,\x00,x,1,\x00",
}


@cache
def setup_of(data: PublicData, epsilon: float = 1.0, **choices: Any) -> RoundSetup:
    """A session whose plan allows MOST records."""
    private = {"delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE} if epsilon < np.inf else {}
    plan = make_plan(
        data, ROSTER, PlanChoices(epsilon=epsilon, max_records=MOST, **private, **choices), OperatingSystem()
    )
    return RoundSetup.of(plan, ROSTER)


def check_one_more(setup: RoundSetup, good: Any, more: Any, backbone: str | None = None, place: int = PLACE) -> int:
    """Compare what a member has with one record more, at `place`, and without; return the label of that record."""
    alone, beside = (read_records(setup.plan, source, backbone) for source in (good, more))
    assert (len(alone), len(beside)) == (N, N + 1)
    assert alone.bad <= 1
    others = np.arange(N + 1) != place
    assert beside.integers[others].tobytes() == alone.integers.tobytes()
    assert beside.labels[others].tolist() == alone.labels.tolist()
    return int(beside.labels[place])


def check_refused_alike(setup: RoundSetup, monkeypatch: pytest.MonkeyPatch, most: int, *sources: str | Path) -> None:
    """Compare refusals where the good records would fit into `most` bytes, and the plan's most records would not."""
    limited(monkeypatch, most)
    for source in sources:
        with pytest.raises(BadInput, match=rf"{MOST} records would take \d+ bytes, more than {most}; set"):
            read_records(setup.plan, str(source))


def limited(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Let sources of data take so many bytes."""
    monkeypatch.setenv("SECAGG_MAX_BYTES", str(most))


@pytest.mark.parametrize(("suffix", "has_header"), [(".csv", True), (".csv.gz", False)])
@pytest.mark.parametrize("worst", WORST_LINES)
def test_a_line_of_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worst: str, suffix: str, has_header: bool
) -> None:
    """Whatever stands in one line, and however long it is, the member joins with the same other records."""
    limited(monkeypatch, 40_000)
    lines = [",".join(row) for row in GOOD]
    sources = []
    for name, content in (("good", lines), ("more", [*lines[:PLACE], WORST_LINES[worst], *lines[PLACE:]])):
        text = "\n".join([",".join(HEADER)] * has_header + content) + "\n"
        raw = text.encode("utf-8", "surrogateescape")
        (tmp_path / f"{name}{suffix}").write_bytes(gzip.compress(raw, 1) if suffix.endswith("gz") else raw)
        sources.append(str(tmp_path / f"{name}{suffix}"))
    schema = SCHEMA if has_header else Schema.from_dict(SCHEMA.to_dict() | {"fields": HEADER})
    found = check_one_more(setup_of(PublicData.of_schema(schema)), *sources)
    assert found == (1 if worst == "a long cell that nobody reads" or worst.startswith("bytes") else found)
    if worst == "long cells":
        assert found == -1


@pytest.mark.parametrize("worst", ["long cells", "a long cell that nobody reads", "NUL"])
def test_a_row_of_a_parquet_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worst: str) -> None:
    """The same of Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    limited(monkeypatch, 40_000)
    row = next(csv.reader([WORST_LINES[worst]]))
    for name, rows in (("good", GOOD), ("more", [*GOOD[:PLACE], row, *GOOD[PLACE:]])):
        pq.write_table(pa.table(dict(zip(HEADER, zip(*rows, strict=True), strict=True))), tmp_path / f"{name}.parquet")
    found = check_one_more(
        setup_of(PublicData.of_schema(SCHEMA)), str(tmp_path / "good.parquet"), str(tmp_path / "more.parquet")
    )
    assert found == (1 if worst == "a long cell that nobody reads" else -1)


@pytest.mark.parametrize("kind", ["features", "images", "bytes", "a domain of megabytes"])
@pytest.mark.parametrize(("value", "label"), [(np.nan, 1.0), (np.inf, 1.0), (-1.0, np.nan), (1e300, 7.0)])
def test_a_record_of_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, value: float, label: float
) -> None:
    """Whatever numbers a record of an .npz has, and however long the text beside it, the others are the same."""
    limited(monkeypatch, 80_000)
    inputs = np.random.default_rng(0).random((N + 1, 4) if kind != "images" else (N + 1, 4, 4))
    labels, domains = np.arange(N + 1) % 2.0, np.array(["a"] * (N + 1), dtype=object)
    inputs[PLACE], labels[PLACE] = value, label
    if kind == "bytes":
        inputs = np.random.default_rng(0).integers(0, 256, (N + 1, 4, 4), dtype=np.uint8)
    if kind == "a domain of megabytes":
        domains[PLACE] = "d" * 300_000
    shape, name = inputs.shape[1:], "features" if inputs.ndim == 2 else "images"
    others = np.arange(N + 1) != PLACE
    for file, rows in (("good", others), ("more", np.full(N + 1, True))):
        texts = {"domain": domains[rows].astype(str), "note": domains[rows].astype(str)}
        np.savez_compressed(tmp_path / file, **{name: inputs[rows]}, labels=labels[rows], **texts)
    setup = setup_of(PublicData.of_shape(shape, CLASSES))
    check_one_more(setup, str(tmp_path / "good.npz"), str(tmp_path / "more.npz"))
    check_refused_alike(setup, monkeypatch, N * 128, tmp_path / "good.npz", tmp_path / "more.npz")


def test_a_domain_that_no_plan_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the plan tells domains apart, a record whose domain is megabytes long counts for nothing."""
    domains = np.array(["a", "b"] * N, dtype=object)[: N + 1]
    domains[PLACE] = "a" * 300_000
    others = np.arange(N + 1) != PLACE
    for file, rows in (("good", others), ("more", np.full(N + 1, True))):
        inputs, labels = np.random.default_rng(0).random((N + 1, 4))[rows], (np.arange(N + 1) % 2)[rows]
        np.savez_compressed(tmp_path / file, features=inputs, labels=labels, domain=domains[rows].astype(str))
    setup = setup_of(PublicData.of_shape((4,), CLASSES), method="mpft", parameters=(("domains", "a+b"),))
    limited(monkeypatch, 200_000)
    assert check_one_more(setup, str(tmp_path / "good.npz"), str(tmp_path / "more.npz")) == -1
    texts = load_arrays(tmp_path / "more.npz", Tolerance(MOST))["domain"]
    assert texts.dtype.itemsize == 4 * MAX_CELL
    assert texts.tolist() == ["" if place == PLACE else domain for place, domain in enumerate(domains)]


def picture(path: Path | io.BytesIO, size: tuple[int, int] = (SIDE, SIDE), colour: int = 90, note: int = 0) -> None:
    """A picture, with a note of so many characters in its file."""
    info = PngImagePlugin.PngInfo()
    info.add_text("note", "n" * note)
    noise = np.random.default_rng(colour).integers(0, 60, (*size[::-1], 3), dtype=np.uint8)
    Image.fromarray(noise + np.uint8(colour)).save(path, "PNG", pnginfo=info)


@pytest.mark.parametrize("worst", ["broken", "huge", "a long note", "no picture", "a link", "another mode"])
def test_a_picture_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worst: str) -> None:
    """Whatever file stands among the pictures, the others are the same."""
    for name in ("good", "more"):
        (tmp_path / name / "no").mkdir(parents=True)
        (tmp_path / name / "yes").mkdir()
        for each in range(N):
            picture(tmp_path / name / "no" / f"{each}.png", colour=20 * each)
    odd = tmp_path / "more" / "no" / "2z.png"
    if worst == "huge":
        Image.new("1", (70_000, 1_000)).save(odd)
    elif worst == "a long note":
        picture(odd, note=200_000)
    elif worst == "a link":
        odd.symlink_to("/dev/zero")
    elif worst == "another mode":
        Image.new("CMYK", (SIDE, SIDE)).save(odd, "JPEG")
    else:
        odd.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\x00" * 100 if worst == "broken" else b"")
    setup = setup_of(PublicData.of_shape((SIDE, SIDE, 3), CLASSES), backbone="pixels")
    limited(monkeypatch, MOST * SIDE * SIDE * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_one_more(setup, str(tmp_path / "good"), str(tmp_path / "more"))
    check_refused_alike(setup, monkeypatch, N * SIDE * SIDE * 3, tmp_path / "good", tmp_path / "more")


WORST_TRIPLETS = {
    "a long text": ("0.png", "t" * 990, "yes"),
    "a longer text": ("0.png", "t" * 300_000, "yes"),
    "an unknown answer": ("0.png", "which ?", "a" * 300),
    "a picture with a long note": ("note.png", "which ?", "yes"),
    "another size": ("large.png", "which ?", "yes"),
    "no picture": ("absent.png", "which ?", "yes"),
}


@pytest.mark.parametrize("worst", WORST_TRIPLETS)
@pytest.mark.parametrize("is_folder", [True, False])
def test_a_picture_with_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worst: str, is_folder: bool) -> None:
    """Whatever a record of a picture, a text and an answer holds, the others are the same."""
    rows = [(f"{each}.png", "which ?", CLASSES[each % 2]) for each in range(N)]
    sources = []
    for name, records in (("good", rows), ("more", [*rows[:PLACE], WORST_TRIPLETS[worst], *rows[PLACE:]])):
        folder = tmp_path / f"{name}.triplets"
        folder.mkdir()
        for each in range(N):
            picture(folder / f"{each}.png", colour=20 * each)
        picture(folder / "note.png", note=200_000)
        picture(folder / "large.png", size=(500, 500))
        sources.append(str(write_triplets(folder, records, is_folder=is_folder)))
    shape = (3 * SIDE * SIDE + TEXT_BYTES,)
    setup = setup_of(PublicData("triplets", shape, ("0", "1"), None, None))
    limited(monkeypatch, MOST * (3 * SIDE * SIDE + TEXT_BYTES))
    label = check_one_more(setup, *sources)
    assert label == (1 if worst == "a picture with a long note" else -1)
    check_refused_alike(setup, monkeypatch, N * (3 * SIDE * SIDE + TEXT_BYTES), *sources)


def write_triplets(folder: Path, rows: Sequence[tuple[str, str, str]], *, is_folder: bool) -> Path:
    """Records as a folder, or in the Parquet file beside it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    facts = facts_of(SIDE, CLASSES)
    if is_folder:
        with (folder / TABLE).open("w", newline="") as file:
            csv.writer(file).writerows([("picture", "text", "answer"), *rows])
        (folder / FACTS).write_text(facts)
        return folder
    names, texts, answers = zip(*rows, strict=True)
    files = [(folder / name).read_bytes() if (folder / name).exists() else b"" for name in names]
    table = pa.table({"picture": files, "text": texts, "answer": answers})
    pq.write_table(table.replace_schema_metadata({METADATA: facts}), folder.with_suffix(".triplets.parquet"))
    return folder.with_suffix(".triplets.parquet")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e308])
@pytest.mark.parametrize(("backbone", "expand"), [("features", 8), ("random-features:6", 0), ("features+features", 0)])
def test_a_row_of_arrays(value: float, expand: int, backbone: str) -> None:
    """The same of arrays in memory, with each backbone that is no file."""
    inputs = np.random.default_rng(0).normal(size=(N + 1, 4))
    inputs[PLACE], labels = value, np.arange(N + 1) % 2
    others = np.arange(N + 1) != PLACE
    setup = setup_of(PublicData.of_shape((4,), CLASSES), backbone=backbone, expand=expand)
    check_one_more(setup, (inputs[others], labels[others]), (inputs, labels))


class Codes(nn.Module):
    """Embed the first number, a code from 0 to 9: any other one is an IndexError."""

    def __init__(self) -> None:
        super().__init__()
        self.codes, self.rest = nn.Embedding(10, 5), nn.Linear(3, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 4) → (n, 5)."""
        return torch.tanh(self.codes(x[:, 0].round().long()) + self.rest(x[:, 1:]))


def with_code(code: float) -> tuple[Any, Any]:
    """Arrays without, and with, a record of this code."""
    inputs = np.random.default_rng(0).normal(size=(N + 1, 4))
    inputs[:, 0], labels = np.arange(N + 1), np.arange(N + 1) % 2
    inputs[PLACE, 0] = code
    others = np.arange(N + 1) != PLACE
    return (inputs[others], labels[others]), (inputs, labels)


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of the network that fails on some records."""
    return str(export(Codes().eval(), tmp_path_factory.mktemp("codes") / "codes.pt2", 4))


@pytest.mark.parametrize(("code", "cached", "beside"), [(11, True, ""), (-1, False, "+features"), (1e9, True, "")])
def test_a_backbone_that_fails_on_a_record(
    codes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: float, cached: bool, beside: str
) -> None:
    """A record on which the program fails counts for nothing, whether features are kept on disk or not."""
    monkeypatch.setenv("SECAGG_CACHE", str(tmp_path / "cache") if cached else "off")
    setup = setup_of(PublicData.of_shape((4,), CLASSES), backbone=codes + beside)
    assert check_one_more(setup, *with_code(code), codes + beside) == -1


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["vilt", "bert"])
def test_an_encoder_that_fails_on_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str) -> None:
    """The same of an encoder whose model fails on the text of one record."""
    from secagg.features.encoder import Encoder
    from tests.worlds.encoders import SIDE as SEEN
    from tests.worlds.encoders import save_encoder, save_triplets

    backbone = f"transformers:{save_encoder(tmp_path / 'encoder', architecture)}"
    sources = [save_triplets(tmp_path / f"{name}.triplets", N, ("digits",)) for name in ("good", "more")]
    lines = (sources[1] / TABLE).read_text().splitlines()
    (sources[1] / TABLE).write_text("\n".join([*lines[: PLACE + 1], "digits-0.png,red,1,digits", *lines[PLACE + 1 :]]))
    setup = setup_of(PublicData("triplets", (3 * SEEN**2 + TEXT_BYTES,), ("0", "1"), None, None), backbone=backbone)
    works = Encoder.pooled
    red = next(iter(open_dataset(str(sources[1]), split=False).train.inputs[PLACE : PLACE + 1]))

    def pooled(self: Encoder, x: torch.Tensor) -> torch.Tensor:
        if (x[0].numpy() == self.prepare(red[None])[0]).all():
            raise RuntimeError("cannot take this record")
        return works(self, x)

    monkeypatch.setattr(Encoder, "pooled", pooled)
    assert check_one_more(setup, *map(str, sources), backbone) == -1


@pytest.mark.long
def test_an_autoencoder_that_fails_on_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of the autoencoder of a diffusion model."""
    from secagg.features import latents
    from tests.worlds.diffusion import pictures, save_diffusion

    backbone = f"diffusers:{save_diffusion(tmp_path / 'diffusion')}"
    made = pictures(per_cell=N)
    images, labels = made["images"][: N + 1], np.arange(N + 1) % 2
    others, works = np.arange(N + 1) != PLACE, latents.to_latents
    worst = latents.pixels_of(images[PLACE : PLACE + 1])
    for file, rows in (("good", others), ("more", np.full(N + 1, True))):
        np.savez(tmp_path / file, images=images[rows], labels=labels[rows])
    setup = setup_of(PublicData.of_shape(images.shape[1:], CLASSES), backbone=backbone, normalise=Normalisation.UNIT)

    def to_latents(vae: Any, pixels: torch.Tensor) -> Any:
        if (pixels.numpy() == worst).all():
            raise RuntimeError("cannot take this record")
        return works(vae, pixels)

    monkeypatch.setattr(latents, "to_latents", to_latents)
    assert check_one_more(setup, str(tmp_path / "good.npz"), str(tmp_path / "more.npz"), backbone) == -1


def test_a_failing_record_is_no_zero(codes: str) -> None:
    """Around a centre, where features of zero would count, a record on which the program fails counts for nothing."""
    chosen = {"normalise": Normalisation.UNIT, "centre": 0.5}
    setup = setup_of(PublicData.of_shape((4,), CLASSES), backbone=codes, **chosen)
    assert check_one_more(setup, *with_code(11), codes) == -1


def test_without_noise_the_record_is_named(codes: str) -> None:
    """At an infinite epsilon the same record is refused with its row, the backbone and a remedy."""
    setup = setup_of(PublicData.of_shape((4,), CLASSES), np.inf, radius=10.0, backbone=codes)
    with pytest.raises(BadInput, match=rf"row {PLACE + 1}: the backbone .*codes.pt2 fails on it .*; mend or remove"):
        read_records(setup.plan, with_code(11)[1], codes)


def test_more_records_than_planned_are_refused_while_they_are_read(tmp_path: Path) -> None:
    """A table of more records than the plan allows is not read to its end."""
    rows = [",".join(GOOD[0])] * (MOST + 1) + [str(number**5) for number in range(50_000)]
    content = gzip.compress("\n".join([",".join(HEADER), *rows]).encode())
    (tmp_path / "many.csv.gz").write_bytes(content[:-9])
    with pytest.raises(BadInput, match=rf"holds more than {MOST} records, the most that the plan allows; .*max_rec"):
        read_records(setup_of(PublicData.of_schema(SCHEMA)).plan, str(tmp_path / "many.csv.gz"))


def test_as_many_records_as_planned_are_read(tmp_path: Path) -> None:
    """A table of just as many records as the plan allows is read whole, and one of a record more is refused."""
    setup = setup_of(PublicData.of_schema(SCHEMA))
    for name, count in (("most.csv", MOST), ("more.csv", MOST + 1)):
        (tmp_path / name).write_text("\n".join([",".join(HEADER), *[",".join(GOOD[0])] * count]))
    assert len(read_records(setup.plan, str(tmp_path / "most.csv"))) == MOST
    with pytest.raises(BadInput, match=f"more.csv holds more than {MOST} records"):
        read_records(setup.plan, str(tmp_path / "more.csv"))


def test_what_cannot_be_held_is_refused_by_public_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the plan's most records would take more than the limit, a file is refused whatever it holds."""
    limited(monkeypatch, 4_000)
    for rows in (0, 1):
        (tmp_path / "few.csv").write_text("\n".join([",".join(HEADER), *(",".join(row) for row in GOOD[:rows])]))
        with pytest.raises(BadInput, match=rf"few.csv: {MOST} records would take \d+ bytes, more than 4000; set"):
            read_records(setup_of(PublicData.of_schema(SCHEMA)).plan, str(tmp_path / "few.csv"))
