"""Opened as tolerant: a bad record contributes zero, stays in its place, and no other record can tell."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from secagg.agreement.schema import Categorical, Numeric, Schema, load_schema
from secagg.data import open_dataset
from secagg.errors import BadInput, BadRecord

N = 6
FEATURES = np.linspace(-3.0, 3.0, N * 4).reshape(N, 4)
IMAGES = np.linspace(0.0, 1.0, N * 4).reshape(N, 2, 2)
LABELS = np.arange(N) % 3 * 1.0
NAMES = np.array(["a", "b", "c"])

TINY = Schema(
    columns=(Numeric("age", 0.0, 1e-3), Categorical("sex", ("f", "m"))),
    label="ill",
    label_values=(("", "no"), ("1", "yes")),
    classes=("no", "yes"),
    missing=("?",),
    fields=("id", "age", "sex", "ill"),
)
TINY_ROWS = ["1,0.0001,f,", "2,0.001,m,1", "3,0,m,1", "4,1e-4,f,"]
HEART = load_schema("heart-disease")
HEART_ROWS = [
    "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0",
    "67.0,1.0,4.0,160.0,286.0,0.0,2.0,108.0,1.0,1.5,2.0,3.0,3.0,2",
    "28,1,2,130,132,0,2,185,0,0,?,?,?,0",
    "53,0,3,-9,0,?,0,120,0,-.5,2,?,7,1",
]
TABLES = {"tiny": (TINY, TINY_ROWS), "heart": (HEART, HEART_ROWS)}

records = st.integers(0, N - 1)
bad_labels = st.sampled_from([-1.0, 0.5, math.nan, math.inf, -math.inf, 3.0, 7e4, 1e300])
bad_numbers = st.sampled_from([math.nan, math.inf, -math.inf, 1e308])
bad_pixels = st.sampled_from([math.nan, math.inf, -math.inf, -1e-9, 1.0000001])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for the files of all examples of a test."""
    return tmp_path_factory.mktemp("bad")


def opened(path, **options):
    """All records of a file opened as tolerant, as a member opens it."""
    return open_dataset(str(path), split=False, tolerant=True, **options).train


def saved(folder, **arrays):
    """Write an .npz and return its path."""
    np.savez(folder / "d.npz", **arrays)
    return folder / "d.npz"


def same_but(found, expected, bad):
    """Whether `found` is `expected` bit for bit, but for the bad records, which are zero with label -1."""
    good = np.isin(np.arange(len(expected)), bad, invert=True)
    assert found.inputs.dtype == expected.inputs.dtype
    assert found.inputs.shape == expected.inputs.shape
    assert found.inputs[good].tobytes() == expected.inputs[good].tobytes()
    assert found.labels[good].tolist() == expected.labels[good].tolist()
    assert found.origin.row.tolist() == expected.origin.row.tolist()
    assert (found.labels[~good] == -1).all()
    assert not found.inputs[~good].any()
    assert found.bad == len(set(bad))


@given(records, st.integers(0, 3), bad_numbers)
def test_bad_feature_touches_its_own_record(folder, record, place, value):
    """NaN, infinite and, once scaled, overflowing features spoil their own record alone."""
    arrays = {"labels": LABELS, "classes": NAMES, "scale": np.array([1e3, 2e3, 3e3, 1e9])}
    expected = opened(saved(folder, features=FEATURES, **arrays))
    features = FEATURES.copy()
    features[record, place] = value
    same_but(opened(saved(folder, features=features, **arrays)), expected, [record])


@given(records, st.integers(0, 3), bad_pixels)
def test_bad_pixel_touches_its_own_record(folder, record, place, value):
    """Pixels outside [0, 1], NaN and infinite ones spoil their own record alone."""
    expected = opened(saved(folder, images=IMAGES, labels=LABELS))
    images = IMAGES.copy()
    images.reshape(N, 4)[record, place] = value
    same_but(opened(saved(folder, images=images, labels=LABELS)), expected, [record])


@pytest.mark.parametrize(
    "inputs", [{"features": FEATURES}, {"images": IMAGES}, {"images": (IMAGES * 255).astype(np.uint8)}]
)
@given(st.dictionaries(records, bad_labels, min_size=1))
def test_bad_label_touches_its_own_record(folder, inputs, values):
    """Negative, fractional, NaN, infinite, huge and unnamed labels spoil their own records, up to all of them."""
    expected = opened(saved(folder, labels=LABELS, classes=NAMES, **inputs))
    labels = LABELS.copy()
    labels[list(values)] = list(values.values())
    same_but(opened(saved(folder, labels=labels, classes=NAMES, **inputs)), expected, list(values))


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint64])
def test_integer_label_out_of_range(folder, dtype):
    """Integer labels of any width are marked like others."""
    expected = opened(saved(folder, features=FEATURES, labels=LABELS.astype(dtype), classes=NAMES))
    labels = LABELS.astype(dtype)
    labels[2] = np.iinfo(dtype).max
    same_but(opened(saved(folder, features=FEATURES, labels=labels, classes=NAMES)), expected, [2])


def test_class_numbers_come_from_good_records(folder):
    """Without names the classes are numbered up to the largest good label, and with no good record there are none."""
    labels = LABELS.copy()
    labels[3], labels[4] = 9.5, math.nan
    data = open_dataset(str(saved(folder, features=FEATURES, labels=labels)), tolerant=True)
    assert data.classes == ("0", "1", "2")
    data = open_dataset(str(saved(folder, features=FEATURES, labels=labels * math.nan)), tolerant=True)
    assert (data.classes, data.train.bad, data.test) == ((), N, None)


def test_domains_and_pairs_mark_their_records(folder):
    """Bad records are marked in every group of an archive, and `take` keeps them marked."""
    labels = np.where(np.arange(N) == 4, -1, LABELS)
    groups = {"art_features": FEATURES, "art_labels": labels, "line_features": FEATURES, "line_labels": LABELS}
    train = opened(saved(folder, **groups))
    assert np.flatnonzero(train.labels == -1).tolist() == [4]
    assert train.take(np.array([4, 0])).bad == 1
    pairs = {"train_features": FEATURES, "train_labels": LABELS, "test_features": FEATURES, "test_labels": labels}
    data = open_dataset(str(saved(folder, **pairs)), tolerant=True)
    assert (data.train.bad, data.test.bad) == (0, 1)


def written(folder, rows, header):
    """Write rows of bytes as a table."""
    path = folder / "t.csv"
    path.write_bytes(b"\n".join([header.encode()] * bool(header) + list(rows)) + b"\n")
    return path


def table(folder, kind, header, changes):
    """The good table's records and those with the rows in `changes` replaced; row 0 may be changed too."""
    schema, rows = TABLES[kind]
    rows = [row.encode() for row in rows]
    first = ",".join(schema.fields) if header else ""
    expected = opened(written(folder, rows, first), schema=schema)
    assert expected.bad == 0
    changed = [changes.get(index, row) for index, row in enumerate(rows)]
    return expected, opened(written(folder, changed, first), schema=schema)


def with_cell(row, place, cell):
    """A row with another cell."""
    cells = row.split(",")
    cells[place] = cell
    return ",".join(cells).encode()


rows_of = st.integers(0, 3)
kinds = st.sampled_from(sorted(TABLES))
bad_cells = st.sampled_from(["nan", "inf", "-inf", "1e308", "-1e308", "1e999", "-1", "x", "5000", "f" * 1001, "1,5"])


@given(kinds, st.booleans(), rows_of, st.sampled_from([1, 2, -1]), bad_cells)
def test_bad_cell_touches_its_own_row(folder, kind, header, row, place, cell):
    """A cell that is no number, out of range, unknown, too long or one too many spoils its own row alone."""
    expected, found = table(folder, kind, header, {row: with_cell(TABLES[kind][1][row], place, cell)})
    same_but(found, expected, [row])


broken_rows = [
    b'"',
    b'1,2,"f,1',
    b'"a"b,0,f,1',
    b"1",
    b",",
    b",,,,,,,",
    b";;;",
    b"\xff\xfe,\x00",
    b"a;b\tc",
    b"a,b,c,d",
]


@pytest.mark.parametrize("line", [*broken_rows, b"1,0,f\xe9,1", b"1,?,m,1"])
@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("header", [True, False])
def test_broken_row_touches_itself(folder, line, row, header):
    """A row with open quotes, another number of fields, other delimiters or bytes spoils itself alone."""
    expected, found = table(folder, "tiny", header, {row: line})
    same_but(found, expected, [row])


@given(kinds, st.booleans(), rows_of, st.binary(min_size=1, max_size=40))
@example("heart", False, 0, b"age,sex")
def test_no_row_changes_another(folder, kind, header, row, line):
    """Whatever bytes stand in one row, header or not, the other rows are the same, bit for bit."""
    line = b"x" + line.replace(b"\n", b"").replace(b"\r", b"")
    expected, found = table(folder, kind, header, {row: line})
    same_but(found, expected, [row] if found.labels[row] == -1 else [])


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_good_table_is_the_same(folder, kind):
    """A table without bad records opens to the same numbers whether tolerant or not."""
    schema, rows = TABLES[kind]
    for separator in (b",", b";", b"\t"):
        path = written(folder, [row.encode().replace(b",", separator) for row in rows], "")
        same_but(opened(path, schema=schema), open_dataset(str(path), schema=schema, split=False).train, [])


def test_hospitals_have_no_bad_record(data_folder):
    """The four published files open the same, tolerant or not."""
    folder = str(data_folder / "tabular" / "heart")
    expected = open_dataset(folder, schema=HEART, split=False)
    same_but(opened(folder, schema=HEART), expected.train, [])


def test_row_numbers_are_the_editors(folder):
    """Blank lines are no records but count as rows, and a quoted line break makes two bad records."""
    found = opened(written(folder, [b"", b'1,"0', b'",f,1', b"", b"2,0,f,1"], "id,age,sex,ill"), schema=TINY)
    assert found.origin.row.tolist() == [3, 4, 6]
    assert found.labels.tolist() == [-1, -1, 1]


@pytest.mark.parametrize(
    "arrays",
    [
        {"features": FEATURES},
        {"features": FEATURES, "labels": LABELS[:3]},
        {"features": FEATURES, "labels": LABELS.astype(complex)},
        {"features": FEATURES, "labels": LABELS, "scale": np.ones(2)},
        {"images": IMAGES.astype(np.uint16), "labels": LABELS},
    ],
)
def test_archive_at_fault_still_raises(folder, arrays):
    """A layout, shape or type that is wrong for all records is refused, tolerant or not."""
    with pytest.raises(BadInput, match=r"d\.npz"):
        opened(saved(folder, **arrays))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"id,age,ill\n1,2,0\n", "lacks the columns"),
        (b"id,age,age,sex,ill\n1,2,2,f,0\n", "no header"),
    ],
)
def test_table_at_fault_still_raises(folder, content, words):
    """A table that needs a header and has none, or one that lacks a column or repeats one, is refused all the same."""
    path = Path(folder) / "t.csv"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=words):
        opened(path, schema=replace(TINY, fields=()))


@pytest.mark.parametrize("first", [b"id,sex,age,ill", b"id,age,ill", b"ill;age;sex;id", b"id,age,sex,sex"])
def test_first_line_decides_nothing_for_the_others(folder, first):
    """Where the schema fixes the order, a first line that spells other columns is one bad record."""
    others = [b"1,20,f,0", b"2,30,m,1"]
    found = opened(written(folder, [first, *others], ""), schema=TINY)
    alone = opened(written(folder, others, ""), schema=TINY)
    assert found.labels.tolist() == [-1, *alone.labels.tolist()]
    assert np.array_equal(found.inputs[1:], alone.inputs)


def test_header_in_the_fixed_order_is_no_record(folder):
    """The line that spells the schema's order counts for nothing, with or without records behind it."""
    assert len(opened(written(folder, [b"1,20,f,0"], "id,age,sex,ill"), schema=TINY)) == 1
    for lines in ([], [b""]):
        assert len(opened(written(folder, lines, "id,age,sex,ill"), schema=TINY)) == 0


def test_no_record_is_a_data_set_too(folder):
    """An archive without records opens like one with records: whether there is one must not decide anything."""
    found = opened(saved(folder, features=FEATURES[:0], labels=LABELS[:0]))
    assert found.inputs.shape == (0, FEATURES.shape[1])


def test_missing_file_and_broken_archive_still_raise(folder):
    """A file that cannot be read is refused, tolerant or not."""
    for name in ("absent.csv", "broken.npz", "broken.csv.gz"):
        if name.startswith("broken"):
            (folder / name).write_bytes(b"PK\x03\x04 broken")
        with pytest.raises(BadInput, match=name):
            opened(folder / name, **({} if name.endswith("npz") else {"schema": TINY}))


def test_derived_schema_leaves_out_bad_cells(folder):
    """Without a declared schema infinite, missing and unlabelled cells and broken rows are marked."""
    path = written(folder, [b"1,a,no", b"inf,a,no", b"?,b,yes", b"3,b,", b"9", b"3,b,yes"], "x,y,label")
    found = opened(path, label="label")
    assert found.labels.tolist() == [0, -1, -1, -1, -1, 1]
    assert found.inputs[[0, 5]].tolist() == [[-1, 1, 0], [1, 0, 1]]


def test_default_refuses(folder):
    """Without `tolerant` the same bad record is refused with its row."""
    path = written(folder, [row.encode() for row in (*TINY_ROWS, "1,2,f,1")], "")
    with pytest.raises(BadRecord, match="row 5"):
        open_dataset(str(path), schema=TINY, split=False)
    assert opened(path, schema=TINY).bad == 1
