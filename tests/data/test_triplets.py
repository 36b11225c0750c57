"""Records of a picture, a text and an answer: both layouts, labels that are the owner's own, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from secagg.data import open_dataset
from secagg.data.triplets import FACTS, METADATA, TEXT_BYTES, divide, facts_of, side_of
from secagg.errors import BadInput, BadRecord
from tests.worlds.encoders import QUESTIONS, SIDE, save_triplets, write_table


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six records of each of two domains."""
    return save_triplets(tmp_path / "own.triplets", 6)


def as_parquet(folder: Path, *, struct: bool = False) -> Path:
    """The same records as one file, a picture alone or as others store it."""
    lines = [line.split(",") for line in (folder / "table.csv").read_text().splitlines()[1:]]
    pictures = [(folder / name).read_bytes() for name, *_ in lines]
    columns = {
        "picture": [{"bytes": each, "path": None} for each in pictures] if struct else pictures,
        **{name: [line[place] for line in lines] for place, name in ((1, "text"), (2, "answer"), (3, "domain"))},
    }
    facts = (folder / FACTS).read_bytes()
    path = folder.with_suffix(".triplets.parquet")
    pyarrow.parquet.write_table(pa.table(columns).replace_schema_metadata({METADATA: facts}), path)
    return path


def test_labels_are_places_among_the_domains_answers(folder: Path) -> None:
    """Each domain counts its own answers from 0; the plan's classes are as many numbers as the longest list."""
    data = open_dataset(str(folder), split=False)
    assert (data.kind, data.classes, data.is_named) == ("triplets", ("0", "1", "2"), False)
    pictures, texts = divide(data.train.inputs)
    assert pictures.shape == (12, SIDE, SIDE, 3)
    for domain, (question, answers) in QUESTIONS.items():
        rows = data.train.columns["domain"] == domain
        assert set(np.array(texts)[rows]) == {question}
        assert data.train.labels[rows].tolist() == [number % len(answers) for number in range(6)]
    brightest = pictures[data.train.columns["domain"] == "colours"][:, 8, 8].argmax(axis=1)
    assert brightest.tolist() == [number % 3 for number in range(6)]


@pytest.mark.parametrize("struct", [False, True])
def test_both_layouts_hold_the_same(folder: Path, struct: bool) -> None:
    """A Parquet file of pictures gives the records of the folder, bit for bit."""
    one, other = (open_dataset(str(path)) for path in (folder, as_parquet(folder, struct=struct)))
    assert np.array_equal(one.train.inputs, other.train.inputs)
    assert np.array_equal(one.train.labels, other.train.labels)
    assert one.test is None or np.array_equal(one.test.inputs, other.test.inputs)  # type: ignore[union-attr]


def test_declared_answers_do_not_depend_on_the_records(folder: Path) -> None:
    """With a list beside them a label means the same whoever else is there; without, they count alphabetically."""
    declared = open_dataset(str(folder), split=False).train.labels
    (folder / FACTS).write_text(facts_of(SIDE, {"colours": ["blue", "green", "grey", "red"], "digits": ["1", "0"]}))
    turned = open_dataset(str(folder), split=False)
    assert turned.classes == ("0", "1", "2", "3")
    rows = turned.train.columns["domain"] == "digits"
    assert np.array_equal(turned.train.labels[rows], 1 - declared[rows])
    (folder / FACTS).unlink()
    derived = open_dataset(str(folder), split=False).train.labels
    assert np.array_equal(derived[~rows], np.array([2, 1, 0])[declared[~rows]])


def test_tolerant_readers_ask_for_what_is_declared(folder: Path) -> None:
    """A record at fault is marked and moves no other; nothing is read off the records, and none is refused."""
    rows = [line.split(",") for line in (folder / "table.csv").read_text().splitlines()[1:]]
    before = open_dataset(str(folder), split=False, tolerant=True).train
    rows[0][2], rows[1][1], rows[2][0], rows[3][0] = "pink", "w" * (TEXT_BYTES + 1), "../outside.png", "none.png"
    Image.new("RGB", (SIDE + 1, SIDE)).save(folder / rows[4][0])
    write_table(folder, rows)
    after = open_dataset(str(folder), split=False, tolerant=True).train
    assert after.labels[:5].tolist() == [-1] * 5
    assert not after.inputs[:5].any()
    assert np.array_equal(after.labels[5:], before.labels[5:])
    assert np.array_equal(after.inputs[5:], before.inputs[5:])
    (folder / FACTS).unlink()
    with pytest.raises(BadInput, match=r"does not say which answers there are.*would tell of them"):
        open_dataset(str(folder), split=False, tolerant=True)


@pytest.mark.parametrize(
    ("place", "content", "words"),
    [
        (2, "pink", "row 2.*none of the declared"),
        (1, "w" * (TEXT_BYTES + 1), "row 2.*a text of more than 256 bytes"),
        (0, "../own.triplets/colours-0.png", "row 2.*a picture that is no PNG or JPEG"),
        (0, "/etc/hostname", "row 2.*a picture that is no PNG or JPEG"),
        (0, "none.png", "row 2.*a picture that is no PNG or JPEG"),
    ],
)  # fmt: skip
def test_a_record_at_fault_is_refused(folder: Path, place: int, content: str, words: str) -> None:
    """File, row, what is wrong and what to do; no name leads out of the folder."""
    rows = [line.split(",") for line in (folder / "table.csv").read_text().splitlines()[1:]]
    rows[0][place] = content
    write_table(folder, rows)
    with pytest.raises(BadRecord, match=words):
        open_dataset(str(folder), split=False)


def test_pictures_that_do_not_fit_are_refused(folder: Path) -> None:
    """To the pixel: nothing is scaled in silence."""
    Image.new("RGB", (SIDE, SIDE + 4)).save(folder / "digits-3.png")
    with pytest.raises(BadRecord, match=f"is {SIDE} × {SIDE + 4} pixels.*scale it to {SIDE} × {SIDE}"):
        open_dataset(str(folder), split=False)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ("[]", "does not tell side and answers"),
        ("{", "does not tell side and answers"),
        ('{"side": 16}', "does not tell side and answers"),
        ('{"side": 16, "answers": ["a", "b"], "more": 1}', "tells other things"),
        ('{"side": 0, "answers": ["a", "b"]}', "the side is 0"),
        ('{"side": true, "answers": ["a", "b"]}', "the side is True"),
        ('{"side": 16, "answers": ["a", "a"]}', "listed twice"),
        ('{"side": 16, "answers": ["a"]}', "one answer only"),
        ('{"side": 16, "answers": {"colours": ["red", "blue"], "digits": ["1"]}}', "one answer only in digits"),
        ('{"side": 16, "answers": [1, 2]}', "tells other things"),
    ],
)
def test_other_facts_are_refused(folder: Path, facts: str, words: str) -> None:
    """Side and lists of answers, and nothing else."""
    (folder / FACTS).write_text(facts)
    with pytest.raises(BadInput, match=words):
        open_dataset(str(folder), split=False)


def test_a_source_without_its_columns_is_refused(folder: Path, tmp_path: Path) -> None:
    """They are named; a folder without a table, and bytes that are no Parquet, too."""
    path = as_parquet(folder)
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(path).drop_columns(["answer"]), path)
    with pytest.raises(BadInput, match="lacks the columns answer"):
        open_dataset(str(path))
    path.write_bytes(b"PAR1 not")
    with pytest.raises(BadInput, match=r"cannot read .* as Parquet"):
        open_dataset(str(path))
    (tmp_path / "none.triplets").mkdir()
    with pytest.raises(BadInput, match=r"holds no table\.csv"):
        open_dataset(str(tmp_path / "none.triplets"))


def test_rows_of_bytes_have_one_reading() -> None:
    """The side follows from the length, and a length that is none is refused."""
    assert side_of(3 * 32**2 + TEXT_BYTES) == 32
    for length in (0, 5, TEXT_BYTES, 3 * 32**2 + TEXT_BYTES + 1):
        with pytest.raises(BadInput, match="no picture and text"):
            side_of(length)
    assert json.loads(facts_of(8, ["a", "b"])) == {"side": 8, "answers": ["a", "b"]}


def write_cells(folder: Path, **columns: object) -> Path:
    """A Parquet file of these columns, in place of the folder's."""
    facts = (folder / FACTS).read_bytes()
    path = folder.with_suffix(".triplets.parquet")
    pyarrow.parquet.write_table(pa.table(columns).replace_schema_metadata({METADATA: facts}), path)
    return path


def test_no_cell_keeps_its_member_out(folder: Path) -> None:
    """Where a refusal would tell of a record, one of megabytes, or of no text at all, is left out by itself."""
    picture, count = (folder / "digits-0.png").read_bytes(), 4000
    odd = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], dtype=np.int32)), pa.py_buffer(b"\xff1")]
    )
    texts = pa.array(["x" * 2_000_000, *["which ?"] * (count - 1)])  # 32 GB as an array of text
    domains = ["digits"] * count
    long = write_cells(folder, picture=[picture] * count, text=texts, answer=["1"] * count, domain=domains)
    data = open_dataset(str(long), split=False, tolerant=True)
    assert data.train.labels.tolist() == [-1, *[1] * (count - 1)]
    with pytest.raises(BadRecord, match=r"row 1.* is no row of the table"):
        open_dataset(str(long))
    broken = write_cells(folder, picture=[picture] * 2, text=["a", "b"], answer=odd, domain=["digits"] * 2)
    assert open_dataset(str(broken), split=False, tolerant=True).train.labels.tolist() == [-1, 1]
    with pytest.raises(BadInput, match=r"holds text that is not UTF-8; save the table as UTF-8"):
        open_dataset(str(broken))


def test_a_name_that_no_file_can_have_is_no_picture(folder: Path) -> None:
    """It is a fault of its record alone."""
    write_table(folder, [["x" * 600 + ".png", "a", "1", "digits"], ["digits-0.png", "a", "0", "digits"]])
    assert open_dataset(str(folder), split=False, tolerant=True).train.labels.tolist() == [-1, 0]


def test_bombs_are_refused_before_they_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that take no room in a file take room in memory."""
    monkeypatch.setenv("SECAGG_MAX_BYTES", "10000000")
    places = pa.array(np.zeros(100_000, dtype=np.int32))
    cells = {name: pa.DictionaryArray.from_arrays(places, [name]) for name in ("text", "answer", "domain")}
    picture = pa.DictionaryArray.from_arrays(places, [(folder / "digits-0.png").read_bytes()])
    bomb = write_cells(folder, picture=picture, **cells)
    assert bomb.stat().st_size < 100_000
    with pytest.raises(BadInput, match="more than 10000000; set SECAGG_MAX_BYTES"):
        open_dataset(str(bomb), tolerant=True)
