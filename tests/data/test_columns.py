"""Columns of one's own table: dates, booleans, hashed values, decimal commas, stand-ins for missing values."""

import hashlib
import math

import numpy as np
import pytest

from secagg.agreement.schema import Boolean, Dated, Hashed, Numeric, Schema, column_from_dict, column_to_dict
from secagg.data import open_dataset
from secagg.errors import BadInput, BadRecord

CLINIC = Schema.from_dict(
    {
        "label": "ill",
        "classes": ["no", "yes"],
        "label_values": {"0": "no", "1": "yes"},
        "missing": [""],
        "decimal": ",",
        "columns": [
            {"name": "hb", "kind": "numeric", "low": 0, "high": 20},
            {"name": "crp", "kind": "numeric", "low": 0, "high": 100, "missing_rule": "indicator", "fill": 25},
            {"name": "born", "kind": "date", "low": "2000-01-01", "high": "2000-01-11", "pattern": "DD.MM.YYYY"},
            {"name": "smoker", "kind": "boolean", "true": ["ja", "1"], "false": ["nein"]},
            {"name": "icd", "kind": "hashed", "buckets": 4, "missing_rule": "midpoint"},
        ],
    }
)
HEADER = "hb;crp;born;smoker;icd;ill"
ROWS = ["12,5;50;01.01.2000;ja;I10;0", "5;;06.01.2000;nein;E11;1", "-0,0;1e1;10.1.2000;1,0;;1"]


def write(folder, rows=ROWS, header=HEADER, name="t.csv", encoding="utf-8"):
    """A table with a header; its path as text."""
    (folder / name).write_bytes("\n".join([header, *rows, ""]).encode(encoding))
    return str(folder / name)


def opened(source, schema=CLINIC, **options):
    """All records of a table."""
    return open_dataset(source, schema=schema, split=False, **options).train


def test_a_european_table_is_read_as_declared(tmp_path):
    """Semicolons, decimal commas, days, yes and no, hashed text and a public stand-in become the declared numbers."""
    schema = Schema.from_dict({**CLINIC.to_dict(), "columns": CLINIC.to_dict()["columns"][:-1]})
    inputs = opened(write(tmp_path), schema).inputs
    expected = [[0.25, 0, -1, 1, 0], [-0.5, -0.5, 0, -1, 1], [-1, -0.8, 0.8, 1, 0]]
    assert np.allclose(inputs, expected)
    assert inputs.shape[1] == schema.dimension


def test_hashing_is_by_published_constants(tmp_path):
    """Bucket and sign of a value are those of the guide's formula; a missing value is nowhere."""
    schema = Schema.from_dict(
        {**CLINIC.to_dict(), "columns": CLINIC.to_dict()["columns"][-1:], "missing_rule": "midpoint"}
    )
    inputs = opened(write(tmp_path), schema).inputs
    for row, value in zip(inputs, ("I10", "E11"), strict=False):
        digest = hashlib.sha256(f"secagg feature hashing v1\0icd\0{value}".encode()).digest()
        expected = np.zeros(4)
        expected[int.from_bytes(digest[:8], "little") % 4] = 1 if digest[8] % 2 else -1
        assert (row == expected).all()
    assert not inputs[2].any()


def test_no_record_is_longer_than_the_bound(tmp_path):
    """A filled value beside its indicator is longer than 1: the public bound counts it, and only there."""
    schema = Schema((Numeric("a", 0, 1, fill=1.0), Numeric("b", 0, 1)), "y", (("0", "n"), ("1", "y")), ("n", "y"),
                    missing_rule="indicator")  # fmt: skip
    inputs = opened(write(tmp_path, [",1,0", "1,,1"], "a,b,y"), schema).inputs
    assert schema.bound == pytest.approx(math.sqrt(3)) == np.linalg.norm(inputs, axis=1).max()
    assert CLINIC.bound == pytest.approx(math.sqrt(5.25))


def test_forms_are_inverse_and_old_ones_stay():
    """Every kind survives dictionary and JSON; what has its default is not written, so that old plans keep digests."""
    assert Schema.from_json(CLINIC.to_json()) == CLINIC
    for column in CLINIC.columns:
        assert column_from_dict(column_to_dict(column)) == column
    assert column_to_dict(Numeric("x", 0.0, 1.0)) == {"name": "x", "kind": "numeric", "low": 0.0, "high": 1.0}
    assert set(Schema((Numeric("x", 0.0, 1.0),), "y", (("0", "n"), ("1", "y")), ("n", "y")).to_dict()) == {
        *("label", "label_values", "classes", "missing", "missing_rule", "fields", "columns")
    }


@pytest.mark.parametrize(
    "column",
    [
        {"name": "d", "kind": "date", "low": "2000-01-02", "high": "2000-01-01"},
        {"name": "d", "kind": "date", "low": "1.1.2000", "high": "2000-01-01"},
        {"name": "d", "kind": "date", "low": "2000-01-01", "high": "2001-01-01", "pattern": "DD.MM.YY"},
        {"name": "d", "kind": "date", "low": "2000-01-01", "high": "2001-01-01", "pattern": "DD.MM.YYYY YYYY"},
        {"name": "d", "kind": "date", "low": "2000-01-01", "high": "2001-01-01", "fill": "1999-01-01"},
        {"name": "b", "kind": "boolean", "true": ["1"], "false": []},
        {"name": "b", "kind": "boolean", "true": ["1"], "false": ["1.0"]},
        {"name": "h", "kind": "hashed", "buckets": 1},
        {"name": "h", "kind": "hashed", "buckets": 2.5},
        {"name": "h", "kind": "hashed", "buckets": True},
        {"name": "x", "kind": "numeric", "low": 0, "high": 1, "fill": 2},
        {"name": "x", "kind": "numeric", "low": 0, "high": 1, "fill": 0},
        {"name": "x", "kind": "numeric", "low": 0, "high": 1, "missing_rule": "mean"},
        {"name": "x", "kind": ["numeric"], "low": 0, "high": 1},
    ],
)
def test_declarations_that_say_nothing_are_refused(column):
    """Empty ranges, patterns that are none, stand-ins outside the range or under "refuse", and other types."""
    with pytest.raises(BadInput):
        Schema.from_dict({**CLINIC.to_dict(), "columns": [column]})


@pytest.mark.parametrize("change", [{"decimal": "'"}, {"delimiter": "|"}, {"decimal": 1}])
def test_other_marks_are_refused(change):
    """Only points and commas are decimal marks, only comma, semicolon and tab divide fields."""
    with pytest.raises(BadInput):
        Schema.from_dict(CLINIC.to_dict() | change)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("12.5;1;01.01.2000;ja;I10;0", "row 2: column 'hb' holds no number"),
        ("1.012,5;1;01.01.2000;ja;I10;0", "write 1234,5 for 1,234.5"),
        ("abc;1;01.01.2000;ja;I10;0", "row 2: column 'hb' holds no number"),
        ("nan;1;01.01.2000;ja;I10;0", "row 2: column 'hb' holds no number"),
        ("inf;1;01.01.2000;ja;I10;0", "row 2: column 'hb' holds no finite number"),
        ("20,1;1;01.01.2000;ja;I10;0", "outside the declared range [0, 20]"),
        (";1;01.01.2000;ja;I10;0", "row 2: column 'hb' holds a missing value"),
        ("1;1;2000-01-01;ja;I10;0", "row 2: column 'born' holds no date DD.MM.YYYY"),
        ("1;1;30.02.2000;ja;I10;0", "row 2: column 'born' holds no date DD.MM.YYYY"),
        ("1;1;12.01.2000;ja;I10;0", "a date outside the declared range [2000-01-01, 2000-01-11]"),
        ("1;1;01.01.2000;JA;I10;0", "row 2: column 'smoker' holds none of the declared values"),
        ("1;1;01.01.2000;ja;I10", "row 2: has 5 fields instead of 6"),
        ("1;1;01.01.2000;ja;Ö;0", "row 2: field 5 is not UTF-8 text; save the table as UTF-8, or: iconv"),
    ],
)
def test_a_wrong_value_is_named(tmp_path, row, words):
    """File, row, column and a remedy, whatever is wrong; never the value of a patient."""
    with pytest.raises(BadRecord) as refusal:
        opened(write(tmp_path, [row, *ROWS], encoding="latin-1"))
    assert words in str(refusal.value)
    assert "t.csv" in str(refusal.value)
    assert refusal.value.remedy


def test_other_columns_and_encodings_of_a_file_are_named(tmp_path):
    """A renamed column brings up the name that was meant; UTF-16 is recognised; a byte order mark is no fault."""
    with pytest.raises(BadInput, match=r"lacks the columns smoker .*did you mean smokers\?"):
        opened(write(tmp_path, header=HEADER.replace("smoker", "smokers")))
    with pytest.raises(BadRecord, match="UTF-16"):
        opened(write(tmp_path, encoding="utf-16"))
    assert len(opened(write(tmp_path, encoding="utf-8-sig"))) == len(ROWS)


def test_without_a_header_no_comma_divides_decimal_commas(tmp_path):
    """Where the schema fixes the order, each line is divided at semicolons even where commas would fit as well."""
    schema = Schema.from_dict(CLINIC.to_dict() | {"fields": HEADER.split(";")})
    plain = opened(write(tmp_path))
    (tmp_path / "bare.csv").write_text("\n".join(ROWS))
    for tolerant in (False, True):
        bare = opened(str(tmp_path / "bare.csv"), schema, tolerant=tolerant)
        assert (bare.inputs == plain.inputs).all()
    declared = Schema.from_dict(CLINIC.to_dict() | {"delimiter": ","})
    with pytest.raises(BadInput, match="lacks the columns"):
        opened(write(tmp_path), declared)


def test_one_bad_cell_spoils_its_own_record(tmp_path):
    """Tolerant, a wrong date, text or hash of any record changes no other one."""
    good = opened(write(tmp_path, ROWS * 2), tolerant=True)
    bad = opened(write(tmp_path, [*ROWS, "x;;32.01.2000;?;\x00;9", *ROWS[1:]]), tolerant=True)
    assert bad.labels.tolist() == [*good.labels[:3], -1, *good.labels[4:]]
    assert (np.delete(bad.inputs, 3, 0) == np.delete(good.inputs, 3, 0)).all()
    assert not bad.inputs[3].any()


@pytest.mark.parametrize(
    ("pattern", "text", "days"),
    [
        ("YYYY-MM-DD", "2000-01-02", 1.0),
        ("DD.MM.YYYY hh:mm", "2.1.2000 06:00", 1.25),
        ("YYYY-MM-DDThh:mm:ss", "2000-01-01T23:59:59", 1 - 1 / 86400),
        ("MM/DD/YYYY", "01/02/2000", 1.0),
        ("YYYYMMDD", "20000102", 1.0),
        ("YYYY-MM-DD", "2000-01-02 ", math.nan),
        ("YYYY.MM.DD", "2000-01-02", math.nan),
        ("YYYY-MM-DD", "02.01.2000", math.nan),
    ],
)
def test_dates_are_days(pattern, text, days):
    """A date is the days since the range's first, with the fraction of the day; NaN where it is none."""
    column = Dated("d", "2000-01-01", "2001-01-01", pattern)
    found = column.read(text) - column.limits[0]
    assert found == pytest.approx(days, nan_ok=True)


def test_kinds_state_their_widths():
    """A boolean is one entry, a hash as many as it has buckets."""
    assert (Boolean("b", ("1",), ("0",)).width, Hashed("h", 8).width) == (1, 8)
