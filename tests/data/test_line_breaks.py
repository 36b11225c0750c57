"""Line breaks in quoted cells: one line is one record, the cause is named, and a rewritten table has none."""

import csv
from pathlib import Path

import pytest

from secagg.agreement.schema import Numeric, Schema
from secagg.data import open_dataset
from secagg.data.delimited import MOST_LINES, line_breaks_in, write_without_line_breaks
from secagg.data.derivation import draft_schema
from secagg.data.sources import read_public_table
from secagg.errors import BadInput, BadRecord

SCHEMA = Schema(
    (Numeric("hb", 0.0, 30.0),), "ill", (("0", "no"), ("1", "yes")), ("no", "yes"), decimal=",", delimiter=";"
)
TORN = (4, 11, 18)
"""Rows of the table, the header being 1, whose text has a line break where it is not mended."""


def write(path: Path, ending: str = "\r\n", text: str = "Übelkeit, Schwindel\nseit gestern") -> Path:
    """A German export with a column of free text that no schema names."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter=";", lineterminator=ending)
        table.writerow(["Nr", "hb", "Befund", "ill"])
        for row in range(2, 22):
            table.writerow([row, f"{row},5", text.replace("\n", ending) if row in TORN else 'o. "B."', row % 2])
    return path


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("text", ["a\nb", "a;\n\n;b", '"\n"\n"', "\n"])
def test_a_rewritten_table_reads_as_csv_reads_the_first(tmp_path: Path, ending: str, text: str) -> None:
    """Every record has the cells that RFC 4180 gives it, but for a space where each line break was."""
    path, out = write(tmp_path / "t.csv", ending, text), tmp_path / "new.csv"
    assert write_without_line_breaks(path, out) == len(TORN)
    with path.open(encoding="utf-8", newline="") as old, out.open(encoding="utf-8", newline="") as new:
        expected = [[cell.replace(ending, " ") for cell in row] for row in csv.reader(old, delimiter=";")]
        assert list(csv.reader(new, delimiter=";")) == expected
    assert out.read_bytes().count(ending.encode()) == 21
    assert line_breaks_in(out, SCHEMA) == ""
    data = open_dataset(str(out), schema=SCHEMA, split=False)
    assert (len(data.train), data.train.bad) == (20, 0)


def test_each_reader_names_the_cause(tmp_path: Path) -> None:
    """The strict reader and the draft refuse the first such row with the remedy; the tolerant one counts lines."""
    path = write(tmp_path / "t.csv")
    words = r"t\.csv, row 4: a quoted cell holds a line break \(records with one: 3\); .*--without-line-breaks NEW\.csv"
    for read in (
        lambda: open_dataset(str(path), schema=SCHEMA, split=False),
        lambda: draft_schema(read_public_table(path), "ill"),
        lambda: open_dataset(str(path), label="ill"),
    ):
        with pytest.raises(BadRecord, match=words):
            read()
    found = open_dataset(str(path), schema=SCHEMA, split=False, tolerant=True).train
    assert (len(found), found.bad) == (20 + len(TORN), 2 * len(TORN))
    assert "records torn apart by a line break in a quoted cell: 3, the first" in line_breaks_in(path, SCHEMA)


def test_a_header_with_a_line_break_is_refused_and_mended(tmp_path: Path) -> None:
    """The same of names of columns."""
    path = tmp_path / "t.csv"
    path.write_text('Nr;"hb\n(g/dl)";ill\n1;12,5;0\n2;13;1\n')
    for tolerant in (False, True):
        with pytest.raises(BadRecord, match=r"row 1: a quoted cell holds a line break \(records with one: 1\)"):
            open_dataset(str(path), schema=SCHEMA, split=False, tolerant=tolerant)
    assert write_without_line_breaks(path, tmp_path / "new.csv") == 1
    assert (tmp_path / "new.csv").read_text() == 'Nr;"hb (g/dl)";ill\n1;12,5;0\n2;13;1\n'


@pytest.mark.parametrize("broken", ['5;"12,5;x;1', '5;12,5;"x";"1', '5;"12,5"x;o;1', '"', '5;"12,5;x;1\n6;"'])
def test_an_open_quote_is_no_line_break(tmp_path: Path, broken: str) -> None:
    """A quote that nothing closes is refused as such, spoils its own line, and is left as it stands."""
    lines = ["Nr;hb;Befund;ill", "1;12,5;a;0", broken, *(f"{row};13,5;b;1" for row in range(MOST_LINES + 5))]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n")
    assert line_breaks_in(path, SCHEMA) == ""
    with pytest.raises(BadRecord, match=r"row 3: cannot be split into fields .*; check its quotes"):
        open_dataset(str(path), schema=SCHEMA, split=False)
    assert open_dataset(str(path), schema=SCHEMA, split=False, tolerant=True).train.bad == 1 + broken.count("\n")
    assert write_without_line_breaks(path, tmp_path / "new.csv") == 0
    assert (tmp_path / "new.csv").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_a_header_of_another_encoding_is_named_first(tmp_path: Path, encoding: str) -> None:
    """Tolerant or not, a header that is not UTF-8 is refused as such, and the same holds of a schema's file."""
    path = tmp_path / "t.csv"
    path.write_text("Größe;Hämoglobin;ill\n1;2;0\n", encoding=encoding)
    known = "UTF-16" if encoding == "utf-16" else "WINDOWS-1252"
    remedy = f"not UTF-8 text; .*save the table as UTF-8, or: iconv -f {known} -t UTF-8 .*t.csv > utf8.csv"
    for options in ({}, {"tolerant": True}, {"tolerant": True, "most": 9}):
        with pytest.raises(BadRecord, match=f"row 1: field 1 is {remedy}"):
            open_dataset(str(path), schema=SCHEMA, split=False, **options)
    with pytest.raises(BadRecord, match=remedy):
        read_public_table(path)
    with pytest.raises(BadRecord, match=remedy):
        write_without_line_breaks(path, tmp_path / "new.csv")
    assert not (tmp_path / "new.csv").exists()


def test_a_schema_of_another_encoding_is_named(tmp_path: Path) -> None:
    """A schema that an editor saved as Windows-1252 is refused with its line and what makes it UTF-8."""
    from secagg.agreement.schema import load_schema

    (tmp_path / "own.toml").write_text('label = "ill"\n# Größe\n', encoding="cp1252")
    with pytest.raises(BadInput, match=r"own\.toml, line 2: not UTF-8 text; save the schema as UTF-8, or: iconv"):
        load_schema(str(tmp_path / "own.toml"))


@pytest.mark.parametrize(("mark", "other"), [(",", "."), (".", ",")])
def test_thousands_are_not_taken_for_decimals(tmp_path: Path, mark: str, other: str) -> None:
    """Beside numbers with one decimal mark, those with the other before three digits are named as thousands."""
    path = tmp_path / "public.csv"
    rows = (f"1{row % 7}{mark}5;1{row:02}{other}500;{row % 2}" for row in range(60))
    path.write_text("\n".join(["hb;platelets;ill", *rows]))
    draft = draft_schema(read_public_table(path), "ill")
    assert [(column.name, column.kind) for column in draft.schema.columns] == [("hb", "numeric")]
    assert [name for name, reason in draft.unused if "thousands' separators" in reason] == ["platelets"]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ("10.{:03},9", "write 1234,5 for 1.234,5"),
        ("10,{:03}.9", "write 1234.5 for 1,234.5"),
        ("1 {:03} 000", "write 1234,5 for 1.234,5"),
        ("1'{:03},5", "write 1234,5 for 1.234,5"),
    ],
)
@pytest.mark.parametrize("rows", [20, 60])
def test_thousands_separators_are_the_cause(tmp_path: Path, numbers: str, words: str, rows: int) -> None:
    """A draft that leaves a column of numbers out says that it is for their separators, and what to write."""
    path = tmp_path / "public.csv"
    lines = ["a;leu;ill", *(f"{row},5;{numbers.format(row)};{row % 2}" for row in range(rows))]
    path.write_text("\n".join(lines))
    draft = draft_schema(read_public_table(path), "ill")
    assert draft.unused == (("leu", f"its numbers have thousands' separators: {words}"),)
    path.write_text("\n".join([lines[0], *(line.replace(";10", ";x10") for line in lines[1:])]))
    if numbers.startswith("10"):
        assert all("separators" not in reason for _, reason in draft_schema(read_public_table(path), "ill").unused)
