"""One table of data formats: what a format is stands in its file, and a new one is that file and one place."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from secagg.agreement.schema import Schema
from secagg.cli.options import DatasetOption
from secagg.data import open_dataset, sources
from secagg.data.partition import Split
from secagg.data.records import Dataset, Records
from secagg.data.table import LabelledFormat, Lines, TableFormat
from secagg.encoding.grid import Origin
from secagg.errors import BadInput, BadRecord


def read_words(path: Path, schema: Schema | None, tolerant: bool) -> Lines:
    """A toy format: one record a line, cells between bars."""
    header, *lines = [line.split("|") for line in path.read_text().splitlines()]
    return header, lines, list(range(2, len(lines) + 2))


def open_points(path: Path, cut: Split, tolerant: bool) -> Dataset:
    """A toy format that knows its labels: each line a label and a number."""
    rows = [line.split() for line in path.read_text().splitlines()]
    inputs = np.array([[float(value)] for _, value in rows])
    labels = np.array([int(label) for label, _ in rows])
    train, test = cut(Records(inputs, labels, {}, Origin.of(str(path), np.arange(1, len(rows) + 1))))
    return Dataset(path.name, "features", train, test, ("0", "1"), None, None, None)


WORDS = TableFormat(suffixes=(".words",), called=".words", lines=read_words)
POINTS = LabelledFormat(suffixes=(".points",), called="a .points", open=open_points)
FAR = TableFormat(suffixes=(".far",), called=".far", library="nobody_has_this.reader", extra="far", lines=read_words)


@pytest.fixture(autouse=True)
def _more_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "FORMATS", (*sources.FORMATS, WORDS, POINTS, FAR))


def test_a_new_table_is_read_like_every_other(tmp_path: Path) -> None:
    """It gives the records that the same cells give as .csv, alone and in a folder, and is refused by row alike."""
    rows = ["a,class", *(f"{number},{'xy'[number % 2]}" for number in range(20))]
    for suffix, mark in ((".csv", ","), (".words", "|")):
        folder = tmp_path / suffix
        folder.mkdir()
        (folder / f"one{suffix}").write_text("\n".join(rows).replace(",", mark))
    one, other = (open_dataset(str(tmp_path / each / f"one{each}"), label="class") for each in (".csv", ".words"))
    assert np.array_equal(one.train.inputs, other.train.inputs)
    assert one.classes == other.classes
    assert open_dataset(str(tmp_path / ".words"), label="class").parts is not None
    (tmp_path / "long.words").write_text("a|class\n1|x\n" + "9" * 1001 + "|y\n")
    with pytest.raises(BadRecord, match="row 3: has a field of more than 1000 characters"):
        open_dataset(str(tmp_path / "long.words"), label="class")


@pytest.mark.parametrize("numbers", [[2], [2, 3, 4]])
def test_a_format_that_miscounts_its_rows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: list[int]
) -> None:
    """Fewer or more row numbers than lines end the reading: a later refusal would name another row."""
    miscounts = replace(WORDS, suffixes=(".off",), lines=lambda *_: (["a", "class"], [["1", "x"], ["2", "y"]], numbers))
    monkeypatch.setattr(sources, "FORMATS", (*sources.FORMATS, miscounts))
    (tmp_path / "some.off").write_text("")
    with pytest.raises(ValueError, match="argument 2 is"):
        open_dataset(str(tmp_path / "some.off"), label="class")


def test_a_new_format_with_labels_opens(tmp_path: Path) -> None:
    """It brings its labels, so that a label column is refused."""
    path = tmp_path / "some.points"
    path.write_text("".join(f"{number % 2} {number}\n" for number in range(20)))
    assert len(open_dataset(str(path), split=False).train) == 20
    with pytest.raises(BadInput, match="brings its own labels"):
        open_dataset(str(path), label="class")


def test_a_format_names_the_extra_that_reads_it(tmp_path: Path) -> None:
    """Without its library a file is refused with the extra to install."""
    (tmp_path / "some.far").write_text("a|class\n1|x\n")
    with pytest.raises(BadInput, match=re.escape("pip install 'secagg[far]'")) as refusal:
        open_dataset(str(tmp_path / "some.far"), label="class")
    assert "needs the library nobody_has_this, which is not installed" in str(refusal.value)


def test_help_and_refusals_list_the_formats(tmp_path: Path) -> None:
    """What a file may be is said from the table of formats; the option's help as well."""
    (tmp_path / "some.odd").write_text("")
    with pytest.raises(BadInput) as refusal:
        open_dataset(str(tmp_path / "some.odd"), label="class")
    assert all(known.called in str(refusal.value) for known in sources.FORMATS)
    assert ".parquet" in DatasetOption.__metadata__[0].help
