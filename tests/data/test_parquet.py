"""Parquet: the same records and the same refusals as the text table of the same content."""

import sys
import tracemalloc
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from secagg.agreement.schema import load_schema
from secagg.data import open_dataset
from secagg.data.derivation import draft_schema
from secagg.data.sources import read_public_table
from secagg.errors import BadInput, BadRecord
from tests.data.test_tables import EXPECTED, SCHEMA


@pytest.fixture
def write(tmp_path):
    """A function that writes columns as Parquet and returns the path; skipped without pyarrow."""
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `tables`)")
    parquet = pytest.importorskip("pyarrow.parquet")

    def write(columns, name="t.parquet", **options):
        parquet.write_table(pyarrow.table(columns), tmp_path / name, **options)
        return str(tmp_path / name)

    return write


COLUMNS = {"id": [7, 8, 9, 10], "age": [25.0, 100.0, None, 0.0], "sex": ["f", "m", "m", None], "ill": [0, 1, 2, 0]}


def test_parquet_is_the_text_table(write):
    """Numbers, text and absent values of a Parquet file are encoded like those of the .csv; rows count from 1."""
    data = open_dataset(write(COLUMNS), schema=SCHEMA, split=False)
    assert data.train.inputs.tolist() == EXPECTED
    assert data.train.labels.tolist() == [0, 1, 1, 0]
    assert data.train.origin.row.tolist() == [1, 2, 3, 4]
    assert data.train.columns["id"].tolist() == ["7", "8", "9", "10"]


def test_every_plain_type_is_a_cell(write):
    """Integers, floats, decimals, booleans and dictionary-encoded text are read as they are written."""
    import pyarrow

    columns = {
        "a": pyarrow.array([1, -(2**40)], pyarrow.int64()),
        "b": pyarrow.array([0.1, 1e300]),
        "c": pyarrow.array([0.1, 2.5], pyarrow.float32()),
        "d": pyarrow.array([Decimal("1.50"), None]),
        "e": [True, False],
        "f": pyarrow.array(["x", None]).dictionary_encode(),
        "g": pyarrow.array(["ä", " y "], pyarrow.large_string()),
        "label": ["u", "v"],
    }
    raw = open_dataset(write(columns), label="label", split=False, tolerant=True).train.columns
    assert {name: values.tolist() for name, values in raw.items()} == {
        "a": ["1", "-1099511627776"],
        "b": ["0.1", "1e+300"],
        "c": ["0.1", "2.5"],
        "d": ["1.50", ""],
        "e": ["true", "false"],
        "f": ["x", ""],
        "g": ["ä", "y"],
        "label": ["u", "v"],
    }


def test_parquet_and_text_mix_in_a_folder(write, tmp_path):
    """A folder is one client per table, whatever its format."""
    write(COLUMNS, "b.parquet")
    (tmp_path / "a.csv").write_text("id,age,sex,ill\n1,25,f,0\n")
    data = open_dataset(str(tmp_path), schema=SCHEMA, split=False)
    assert [(name, len(part)) for name, part in data.parts] == [("a.csv", 1), ("b.parquet", 4)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"age": [25.0, 101.0, None, 0.0]}, "row 2: column 'age' holds a number outside"),
        ({"age": [25.0, float("nan"), None, 0.0]}, "row 2: column 'age' holds no number"),
        ({"age": [25.0, float("inf"), None, 0.0]}, "row 2: column 'age' holds no finite number"),
        ({"sex": ["f", "x", "m", "m"]}, "row 2: column 'sex' holds none"),
        ({"sex": ["f", "m" * 1001, "m", "m"]}, "row 2: has a field of more than 1000"),
        ({"ill": [0, None, 2, 0]}, "row 2: column 'ill' holds no label"),
    ],
)
def test_bad_row_is_named_or_left_out(write, change, words):
    """A row at fault is refused as in a text table; tolerant, it is the one bad record."""
    path = write(COLUMNS | change)
    with pytest.raises(BadRecord) as refusal:
        open_dataset(path, schema=SCHEMA)
    assert words in str(refusal.value)
    records = open_dataset(path, schema=SCHEMA, split=False, tolerant=True).train
    assert np.flatnonzero(records.labels < 0).tolist() == [1]
    assert np.delete(records.inputs, 1, axis=0).tolist()[0] == EXPECTED[0]


@pytest.mark.parametrize("pattern", ["YYYY-MM-DD", "DD.MM.YYYY hh:mm"])
@pytest.mark.parametrize("kind", ["date32", "date64", "timestamp[s]", "timestamp[ns]"])
def test_dates_are_those_of_the_text_table(write, tmp_path, pattern, kind):
    """Days and moments are the .csv's, written as the schema's pattern has them; absent and impossible ones too."""
    import pyarrow

    moments = [datetime.fromisoformat("2020-03-01 14:30:59.000999"), None, datetime.fromisoformat("2031-01-01")]
    given = [each and (each.date() if kind.startswith("date") else each) for each in moments]
    column = pyarrow.array(given).cast(kind, safe=False)
    keys = 'label = "ill"\nlabel_values = {0 = "no", 1 = "yes"}\nclasses = ["no", "yes"]\nmissing_rule = "midpoint"\n'
    day = f'columns = [{{name = "seen", kind = "date", low = 2000-01-01, high = 2030-12-31, pattern = "{pattern}"}}]\n'
    (tmp_path / "s.toml").write_text(keys + day)
    seen = {"YYYY-MM-DD": "2020-03-01,2031-01-01", "DD.MM.YYYY hh:mm": "01.03.2020 14:30,01.01.2031 00:00"}[pattern]
    first, last = seen.replace(" 14:30", " 00:00" if kind.startswith("date") else " 14:30").split(",")
    (tmp_path / "t.csv").write_text(f"seen,ill\n{first},0\n,1\n{last},1\n")
    path = write({"seen": column, "ill": [0, 1, 1]})
    schema = load_schema(str(tmp_path / "s.toml"))
    read, expected = (
        open_dataset(each, schema=schema, split=False, tolerant=True).train for each in (path, str(tmp_path / "t.csv"))
    )
    assert read.inputs.tolist() == expected.inputs.tolist()
    assert read.labels.tolist() == expected.labels.tolist() == [0, 1, -1]


def test_dates_are_drafted_like_those_of_a_text_table(write):
    """A schema made of a Parquet file has its days as dates, and its moments with their times."""
    at = datetime.fromisoformat("2020-01-01 03:00")
    path = write({"day": [date(2020, 1, 1), date(2021, 5, 5)], "at": [at] * 2, "y": ["a", "b"]})
    columns = {each.name: each for each in draft_schema(read_public_table(Path(path)), "y").schema.columns}
    assert (columns["day"].pattern, columns["at"].pattern) == ("YYYY-MM-DD", "YYYY-MM-DD hh:mm:ss")


ZONED = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("column", [[[1], [2]], [{"x": 1}, {"x": 2}], [b"a", b"b"], [ZONED] * 2, [time(1)] * 2])
def test_nested_and_other_types_are_refused(write, column):
    """A column of lists, structures, bytes or moments of a time zone is refused by its name, tolerant or not."""
    path = write({"x": column, "label": ["u", "v"]})
    for tolerant in (False, True):
        with pytest.raises(BadInput, match="column 'x' is of type") as refusal:
            open_dataset(path, label="label", tolerant=tolerant)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"id": [1], "age": [1], "ill": [0]}, "lacks the columns sex"),
        ({"x": [1]}, "none of the schema's columns"),
        ({name: [] for name in COLUMNS}, "no records"),
    ],
)
def test_unusable_parquet_is_named(write, columns, words):
    """Absent columns and absent records are refused like those of a text table."""
    with pytest.raises(BadInput, match=r"t\.parquet") as refusal:
        open_dataset(write(columns), schema=SCHEMA)
    assert words in str(refusal.value)


def test_repeated_names_are_refused(tmp_path, write):
    """Two columns of one name are no table."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table([pyarrow.array([1]), pyarrow.array([2])], names=["x", "x"])
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(BadInput, match="empty or repeated"):
        open_dataset(str(tmp_path / "t.parquet"), label="x")


def test_bytes_that_are_no_text_spoil_their_own_row(tmp_path, write):
    """Text that is not UTF-8 is refused; tolerant, only its own row is bad."""
    import pyarrow

    wrong = pyarrow.array([b"f", b"\xff", b"m", b"m"]).view(pyarrow.string())
    path = write(COLUMNS | {"sex": wrong})
    with pytest.raises(BadInput, match="not UTF-8"):
        open_dataset(path, schema=SCHEMA)
    assert open_dataset(path, schema=SCHEMA, split=False, tolerant=True).train.labels.tolist() == [0, -1, 1, 0]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"age,sex\n1,f\n", b"PAR1" + bytes(100) + b"PAR1"])
def test_other_file_is_refused(write, tmp_path, content):
    """A file that only bears the name gives one line."""
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(BadInput, match=r"cannot read .*t\.parquet as Parquet") as refusal:
        open_dataset(str(tmp_path / "t.parquet"), schema=SCHEMA)
    assert "\n" not in str(refusal.value)


def test_missing_library_names_the_extra(tmp_path, monkeypatch):
    """Without pyarrow the refusal says what to install."""
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadInput, match=r"pip install 'secagg\[tables\]'"):
        open_dataset(str(tmp_path / "t.parquet"), label="x")


def test_word_that_stands_often_is_kept_once(write):
    """A long text that a few bytes repeat for every row is refused as too long before it is written out."""
    import pyarrow

    often = pyarrow.DictionaryArray.from_arrays(np.zeros(20_000, dtype=np.int32), ["y" * 1_000_000])
    path = write({"x": often, "label": ["u", "v"] * 10_000}, store_schema=False)
    assert Path(path).stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match="more than 1000 characters"):
            open_dataset(path, label="label")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_more_rows_than_memory_are_refused(write, monkeypatch):
    """The rows that a file says it holds are counted before they are read."""
    monkeypatch.setenv("SECAGG_MAX_BYTES", "1000000")
    path = write({"x": [1] * 20_000, "label": [0, 1] * 10_000})
    with pytest.raises(BadInput, match="more than 1000000; set SECAGG_MAX_BYTES"):
        open_dataset(path, label="label")
