"""Tables: reading, scaling, refusing."""

import gzip

import numpy as np
import pytest

from secagg.agreement.schema import Categorical, Numeric, Schema, load_schema
from secagg.data import open_dataset
from secagg.errors import BadInput, BadRecord

SCHEMA = Schema(
    columns=(Numeric("age", 0.0, 100.0), Categorical("sex", ("f", "m"))),
    label="ill",
    label_values=(("0", "no"), ("1", "yes"), ("2", "yes")),
    classes=("no", "yes"),
    missing=("", "?"),
    missing_rule="indicator",
    fields=("id", "age", "sex", "ill"),
)
ROWS = ["7,25,f,0", "8,100,m,1", "9,?,m,2.0", "10,0,,0"]


def write(folder, rows, name="table.csv", header="id,age,sex,ill"):
    """Write a table and return its path as text."""
    path = folder / name
    path.write_text("\n".join([*([header] if header else []), *rows]) + "\n")
    return str(path)


def opened(source, schema=SCHEMA):
    """All encoded records of a small table and their labels, in the order of the file."""
    data = open_dataset(source, schema=schema)
    parts = [data.train] if data.test is None else [data.train, data.test]
    rows = np.concatenate([part.origin.row for part in parts])
    order = np.argsort(rows)
    return tuple(np.concatenate([getattr(part, name) for part in parts])[order] for name in ("inputs", "labels"))


EXPECTED = [[-0.5, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 0, 1, 1, 0], [-1, 0, 0, 0, 1]]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("header", ["id,age,sex,ill", None])
@pytest.mark.parametrize("zipped", [False, True])
def test_schema_alone_decides_the_encoding(tmp_path, delimiter, header, zipped):
    """A table gives the same numbers with any delimiter, with or without header, zipped or not."""
    path = write(tmp_path, ROWS, header=header)
    text = (tmp_path / "table.csv").read_text().replace(",", delimiter).encode()
    if zipped:
        path = str(tmp_path / "table.data.gz")
        (tmp_path / "table.data.gz").write_bytes(gzip.compress(text))
    else:
        (tmp_path / "table.csv").write_bytes(text)
    inputs, labels = opened(path)
    assert inputs.tolist() == EXPECTED
    assert labels.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(("rule", "expected"), [("midpoint", [row[:3] for row in EXPECTED]), ("indicator", EXPECTED)])
def test_missing_rule(tmp_path, rule, expected):
    """A missing number becomes the middle of its range, a missing category all zero; indicators say so."""
    schema = Schema.from_dict(SCHEMA.to_dict() | {"missing_rule": rule})
    inputs, _ = opened(write(tmp_path, ROWS), schema)
    assert inputs.tolist() == expected
    assert inputs.shape[1] == schema.dimension
    assert np.linalg.norm(inputs, axis=1).max() <= schema.bound


def test_one_record_never_changes_another(tmp_path):
    """The encoding of a row is the same when every other row differs."""
    together, _ = opened(write(tmp_path, ROWS, "together.csv"))
    alone = [opened(write(tmp_path, [row], f"alone{i}.csv"))[0][0] for i, row in enumerate(ROWS)]
    assert together.tolist() == np.array(alone).tolist()


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1,nan,f,0", ["row 3", "'age'", "no number"]),
        ("1,inf,f,0", ["row 3", "'age'", "no finite number"]),
        ("1,101,f,0", ["row 3", "'age'", "outside the declared range [0, 100]"]),
        ("1,old,f,0", ["row 3", "'age'", "no number"]),
        ("1,30,x,0", ["row 3", "'sex'", "none of the declared values"]),
        ("1,30,f,", ["row 3", "'ill'", "no label"]),
        ("1,30,f,5", ["row 3", "'ill'", "none of the declared labels"]),
        ("1,30,f", ["row 3", "3 fields instead of 4"]),
        ("1;30;f;0", ["row 3", "1 fields instead of 4", "divided by ';'"]),
        ('1,30,"f,0', ["row 3", "quotes"]),
        (f"1,30,{'f' * 2000},0", ["row 3", "1000 characters"]),
    ],
)
def test_bad_row_is_named(tmp_path, row, words):
    """A row that cannot be used is refused with its file, its row in an editor, and a remedy."""
    with pytest.raises(BadRecord) as refusal:
        opened(write(tmp_path, [ROWS[0], row]))
    for word in ["table.csv", *words]:
        assert word in str(refusal.value)
    assert refusal.value.row == 3
    assert refusal.value.remedy


@pytest.mark.parametrize(
    "lines",
    [
        ["id;age;sex;ill", "1;30,5;f;0", "2;31;m;1"],
        ["id\tage\tsex\till", "1\t,5\tf\t0"],
        ["1,5;30,5;2,5;0,5"],
        ["id,age,sex,ill", '1,"30,5",f,0'],
    ],
)
def test_decimal_commas_are_named(tmp_path, lines):
    """Numbers with decimal commas are refused with what to write instead."""
    with pytest.raises(BadRecord, match=r"decimal commas: write 1\.5 for 1,5"):
        opened(write(tmp_path, lines, header=""))


def test_a_table_without_a_header_is_held_against_the_schema(tmp_path):
    """Where the schema alone names the columns, a row of another width is told how many there are, and the ends."""
    with pytest.raises(BadRecord, match=r"row 1: has 3 fields.*names 4 columns, the first is 'id', the last 'ill'"):
        opened(write(tmp_path, ["25,f,0"], header=None))


def test_missing_value_is_refused_by_the_rule(tmp_path):
    """Under the rule "refuse" a missing value names its row, blank lines counted."""
    schema = Schema.from_dict(SCHEMA.to_dict() | {"missing_rule": "refuse"})
    with pytest.raises(BadRecord, match="row 5: column 'age' holds a missing value"):
        opened(write(tmp_path, ["9,25,f,0", "", "8,?,m,1"], header="id,age,sex,ill\n"), schema)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"id,age,sex,ill\n", "no records"),
        (b"id,age,ill\n1,2,0\n", "lacks the columns sex"),
        (b"id,age,age,sex,ill\n1,2,2,f,0\n", "no header"),
        (b"\xff\xfe\x00", "UTF-8"),
    ],
)
def test_unusable_file_is_named(tmp_path, content, words):
    """A file that is no such table gives one line with its name."""
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"table\.csv") as refusal:
        open_dataset(str(path), schema=SCHEMA)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_broken_gzip_is_refused(tmp_path):
    """A truncated archive is refused instead of read in part."""
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"id,age,sex,ill\n1,2,f,0\n")[:-5])
    with pytest.raises(BadInput, match=r"t\.csv\.gz"):
        open_dataset(str(tmp_path / "t.csv.gz"), schema=SCHEMA)


def test_derived_schema_scales_by_the_pooled_range(tmp_path):
    """Without a schema numbers scale by their minimum and maximum, text becomes categories, a constant becomes 0."""
    rows = ["3,a,5,yes", "1,b,5,no", "2,a,5,yes"]
    data = open_dataset(write(tmp_path, rows, header="x,y,z,label"), label="label")
    assert data.classes == ("no", "yes")
    assert data.train.inputs.tolist() == [[1, 1, 0, 0], [-1, 0, 1, 0], [0, 1, 0, 0]]
    assert data.train.labels.tolist() == [1, 0, 1]
    assert data.train.columns["y"].tolist() == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["nan,a,yes", "1,b,no"], "row 2: column 'x'"),
        (["inf,a,yes", "1,b,no"], "row 2: column 'x'"),
        (["?,a,yes", "1,b,no"], "a missing value"),
        (["1,a,", "1,b,no", "1,b,yes"], "no label"),
    ],
)
def test_derived_schema_forgives_no_bad_record(tmp_path, rows, words):
    """Deriving a schema does not turn NaN, infinite, missing or unlabelled records into valid ones."""
    with pytest.raises(BadRecord) as refusal:
        open_dataset(write(tmp_path, rows, header="x,y,label"), label="label")
    assert words in str(refusal.value)


def test_identifiers_are_no_category(tmp_path):
    """A text column with more than 256 values is refused with its name."""
    rows = [f"name{i},{i % 2}" for i in range(300)]
    with pytest.raises(BadInput, match="column 'who' has 300 different values"):
        open_dataset(write(tmp_path, rows, header="who,label"), label="label")


def test_a_word_among_numbers_is_told(tmp_path):
    """One cell of text makes a derived column a category: a note names column, file and row, and not the cell."""
    rows = [f"{i},{i % 3 or 'none'},{i % 2}" for i in range(60)]
    rows[7] = "unwell,1,1"
    data = open_dataset(write(tmp_path, rows, header="x,y,label"), label="label")
    (note,) = data.notes
    assert note.startswith("column 'x' became a category of 60 values")
    assert "table.csv, row 9," in note
    assert "unwell" not in note


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "which column is the label"),
        ({"label": "nothing"}, "none of the 4 columns of .* is called 'nothing'"),
        ({"label": "sex", "schema": SCHEMA}, "'ill' in the schema"),
    ],
)
def test_label_must_be_known(tmp_path, options, words):
    """No label, an unknown one, or one that contradicts the schema is refused."""
    with pytest.raises(BadInput, match=words):
        open_dataset(write(tmp_path, ROWS), **options)


def test_folder_is_one_client_per_file(tmp_path):
    """A folder opens its tables by name, ignores other files, and splits each file on its own."""
    rows = [f"{i},{i},f,{i % 2}" for i in range(20)]
    for name in ("b.csv", "a.data", "c.csv"):
        write(tmp_path, rows, name)
    (tmp_path / "notes.txt").write_text("ignored")
    data = open_dataset(str(tmp_path), schema=SCHEMA)
    assert [name for name, _ in data.parts] == ["a.data", "b.csv", "c.csv"]
    assert [len(indices) for _, indices in data.parts] == [16, 16, 16]
    assert np.concatenate([indices for _, indices in data.parts]).tolist() == list(range(48))
    for name, indices in data.parts:
        origin = data.train.origin
        assert {origin.files[file] for file in origin.file[indices]} == {str(tmp_path / name)}
    assert len(data.test) == 12


def test_folder_without_tables_is_refused(tmp_path):
    """A folder that holds no table is refused."""
    with pytest.raises(BadInput, match="holds no table"):
        open_dataset(str(tmp_path), schema=SCHEMA)


def test_hospitals_load_under_the_packaged_schema(data_folder):
    """All four heart-disease files load, and their sizes and labels are the published ones."""
    data = open_dataset(str(data_folder / "tabular" / "heart"), schema=load_schema("heart-disease"))
    sizes = {name.split(".")[1]: len(indices) for name, indices in data.parts}
    labels = np.concatenate([data.train.labels, data.test.labels])
    assert len(labels) == 303 + 294 + 123 + 200
    assert (labels == 0).sum() == 164 + 188 + 8 + 51
    assert sizes == {"cleveland": 242, "hungarian": 235, "switzerland": 98, "va": 160}
