"""A first schema from a public file, a look at one's own records, and test records from a file of one's own."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from secagg.agreement.schema import Boolean, Categorical, Dated, Hashed, Numeric, Schema, load_schema
from secagg.data import open_dataset
from secagg.data.derivation import draft_schema
from secagg.data.profile import profile_of
from secagg.data.sources import open_with_test, read_public_table
from secagg.errors import BadInput, BadRecord

N = 60


def rows(number=N, seed=0):
    """Cells of a made-up table, as a European hospital exports it."""
    generator = np.random.default_rng(seed)
    for place in range(number):
        hb = f"{generator.uniform(9.1, 16.9):.1f}".replace(".", ",")
        day = f"{generator.integers(1, 29):02}.{generator.integers(1, 13):02}.{generator.integers(1940, 2000)}"
        code = f"I{generator.integers(10, 55)}"
        yield [f"P{place}-{seed}", day, hb, "" if place % 7 == 0 else "3", "ja" if place % 3 else "nein", code,
               "rot" if place % 2 else "blau", "krank" if place % 2 else "gesund"]  # fmt: skip


HEADER = ["case", "born", "hb", "grade", "smoker", "icd", "colour", "outcome"]


def write(path, records, header=HEADER):
    """A semicolon-separated file; its path as text."""
    path.write_text("\n".join(";".join(cells) for cells in [header, *records]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def public(tmp_path):
    """A public file."""
    return write(tmp_path / "public.csv", rows())


def test_a_draft_tells_the_kinds_apart(public):
    """Days, decimal commas, yes and no, categories, many values and identifiers are taken for what they are."""
    draft = draft_schema(read_public_table(public), "outcome")
    kinds = {column.name: type(column) for column in draft.schema.columns}
    assert kinds == {
        "born": Dated, "hb": Numeric, "grade": Numeric, "smoker": Boolean, "icd": Hashed, "colour": Categorical
    }  # fmt: skip
    assert [name for name, _ in draft.unused] == ["case"]
    assert (draft.schema.decimal, draft.schema.delimiter) == (",", ";")
    hb = next(column for column in draft.schema.columns if column.name == "hb")
    assert (hb.low, hb.high) == (9.0, 17.0)
    assert [column.name for column in draft.schema.indicated] == ["grade"]


def test_a_few_texts_among_numbers_make_no_category(tmp_path):
    """Words among a column's numbers mark missing ones; what has a digit is quoted, and refused until it is mended."""
    table = [[f"{20 + place},5", "ill" if place % 2 else "well"] for place in range(N)]
    table[3][0], table[7][0], table[9][0] = "k.A.", "<5", "k.A."
    path = write(tmp_path / "odd.csv", table, ["hb", "outcome"])
    draft = draft_schema(read_public_table(path), "outcome")
    (hb,) = draft.schema.columns
    assert (type(hb), hb.low, hb.high, hb.missing_rule) == (Numeric, 20.0, 80.0, "indicator")
    assert "k.A." in draft.schema.missing
    assert 'taken for missing values: "k.A."' in draft.remarks[0]
    assert 'listed as missing: "<5"' in draft.remarks[0]
    with pytest.raises(BadRecord, match="row 9: column 'hb' holds no number"):
        open_dataset(str(path), schema=draft.schema, split=False)


def test_a_draft_is_a_schema_that_reads_its_file(public, tmp_path):
    """What is written loads as the same schema, whatever stands in names and values, and takes the public file."""
    draft = draft_schema(read_public_table(public), "outcome")
    (tmp_path / "own.toml").write_text(draft.to_toml(), encoding="utf-8")
    assert load_schema(str(tmp_path / "own.toml")) == draft.schema
    assert len(open_dataset(str(public), schema=draft.schema, split=False).train) == N
    odd = tmp_path / 'o"dd.csv'
    with odd.open("w", newline="") as file:
        csv.writer(file).writerows([['na"me', "[k]", "y"], ['a"b', "x\\", "1"], ["#c", "y", "0"]])
    found = draft_schema(read_public_table(odd), "y")
    (tmp_path / "odd.toml").write_text(found.to_toml(), encoding="utf-8")
    assert load_schema(str(tmp_path / "odd.toml")) == found.schema


def test_a_draft_needs_a_table_and_its_label(public, tmp_path):
    """A folder, another format and a label that is no column are refused by name."""
    with pytest.raises(BadInput, match=r"no column of .* is called 'ill'"):
        draft_schema(read_public_table(public), "ill")
    (tmp_path / "x.npz").touch()
    for path, said in (
        (tmp_path, "is no table"),
        (tmp_path / "absent.csv", "no file"),
        (tmp_path / "x.npz", "no table"),
    ):
        with pytest.raises(BadInput, match=said):
            read_public_table(path)


def profile(path, schema):
    """What a member is told of a file."""
    data = open_dataset(str(path), schema=schema, split=False, tolerant=True)
    return profile_of(data.train, data.classes, schema)


def widened(public):
    """The draft's schema with generous ranges."""
    values = draft_schema(read_public_table(public), "outcome").schema.to_dict()
    values["columns"][0] |= {"low": "1930-01-01", "high": "2000-12-31"}
    values["columns"][1] |= {"low": 0, "high": 200}
    return Schema.from_dict(values)


def test_a_profile_counts_what_is_there(public):
    """Class counts, missing cells, minimum, median and maximum are those of the file."""
    found = profile(public, widened(public))
    columns = {column.name: column for column in found.columns}
    assert (found.records, found.bad, dict(found.classes)) == (N, 0, {"gesund": N // 2, "krank": N // 2})
    values = sorted(float(cells[2].replace(",", ".")) for cells in rows())
    said = (columns["hb"].least, columns["hb"].middle, columns["hb"].most)
    assert tuple(map(float, said)) == (values[0], values[N // 2 - 1], values[-1])
    assert columns["grade"].missing == sum(not cells[3] for cells in rows())
    assert dict(columns["smoker"].values) == {"ja": 40, "nein": 20}
    assert columns["born"].declared == "1930-01-01 to 2000-12-31"
    assert found.to_json()["columns"][1]["least"] == columns["hb"].least


@pytest.mark.parametrize(
    ("change", "column", "doubt"),
    [
        (lambda cells: [*cells[:2], "0,9", *cells[3:]], "hb", "all 60 values are the same"),
        (
            lambda cells: [*cells[:2], f"10,{cells[1][0]}", *cells[3:]],
            "hb",
            "lie in 0.1 % of the declared range",
        ),
        (lambda cells: [*cells[:2], f"99{cells[2]}", *cells[3:]], "hb", "60 of 60 values are outside"),
        (lambda cells: [*cells[:3], "", *cells[4:]], "grade", "60 of 60 values are missing"),
        (lambda cells: [*cells[:4], "ja", *cells[5:]], "smoker", "all 60 values are the same"),
        (lambda cells: [*cells[:5], cells[0], *cells[6:]], "icd", "is it an identifier?"),
    ],
)
def test_doubts_name_what_a_person_should_look_at(public, tmp_path, change, column, doubt):
    """Another unit, a constant, an empty column and an identifier are doubted; the public file gives no such doubt."""
    schema = widened(public)
    path = write(tmp_path / "own.csv", map(change, rows()))
    told = {each.name: " ".join(each.doubts) for each in profile(path, schema).columns}
    assert doubt in told[column]
    plain = {each.name: " ".join(each.doubts) for each in profile(public, schema).columns}
    assert doubt not in plain[column]


def test_a_class_that_nobody_has_is_doubted(public, tmp_path):
    """So is a record that cannot be used."""
    schema = widened(public)
    path = write(tmp_path / "own.csv", [[*cells[:7], "krank" if place else "?"] for place, cells in enumerate(rows())])
    assert profile(path, schema).doubts == (
        "no record is of class gesund",
        f"1 of {N} cannot be used: malformed, or not labelled",
        'the schema declares no positive class: add positive = "gesund" or "krank"',
    )
    assert not any("positive" in each for each in profile(path, replace(schema, positive="krank")).doubts)


def test_test_records_come_from_ones_own_file(public, tmp_path):
    """Nothing of the data set is held out, and the test records are all of the other file."""
    schema = widened(public)
    own = write(tmp_path / "own.csv", rows(30, 1))
    data = open_with_test(str(public), str(own), schema=schema)
    assert (len(data.train), len(data.test)) == (N, 30)
    assert (data.test.inputs == open_dataset(str(own), schema=schema, split=False).train.inputs).all()
    short = [[cells[0], *cells[2:5], *cells[6:]] for cells in rows(30, 1)]
    header = [name for name in HEADER if name not in ("born", "icd")]
    files = [
        write(tmp_path / f"{name}.csv", [[*cells[:2], "1", *cells[3:]] for cells in short], header) for name in "ab"
    ]
    derived = open_with_test(*map(str, files), label="outcome")
    assert (len(derived.train), len(derived.test)) == (30, 30)


def test_test_records_of_another_kind_are_refused(public, tmp_path):
    """Test records beside a file's own, of another shape, and of a class that there is not."""
    schema = widened(public)
    np.savez(tmp_path / "pair.npz", train_features=np.ones((4, 2)), train_labels=np.array([0, 1, 0, 1]),
             test_features=np.ones((2, 2)), test_labels=np.array([0, 1]))  # fmt: skip
    np.savez(tmp_path / "two.npz", features=np.ones((4, 2)), labels=np.array([0, 1, 0, 1]))
    np.savez(tmp_path / "three.npz", features=np.ones((4, 3)), labels=np.array([0, 1, 0, 1]))
    np.savez(tmp_path / "far.npz", features=np.ones((4, 2)), labels=np.array([0, 1, 0, 2]))
    two = str(tmp_path / "two.npz")
    with pytest.raises(BadInput, match="brings test records of its own"):
        open_with_test(str(tmp_path / "pair.npz"), two)
    with pytest.raises(BadInput, match=r"holds features of shape \(3,\)"):
        open_with_test(two, str(tmp_path / "three.npz"))
    with pytest.raises(BadRecord, match="row 4: the label is none of the 2 classes"):
        open_with_test(two, str(tmp_path / "far.npz"))
    bad = write(tmp_path / "own.csv", [[*cells[:2], "300", *cells[3:]] for cells in rows(3)])
    with pytest.raises(BadRecord, match=r"own\.csv, row 2: column 'hb' holds a number outside"):
        open_with_test(str(public), str(bad), schema=schema)


@pytest.mark.parametrize(("cells", "words"), [(("-1e308", "1e308", "0"), "too wide"), (("5e-324", "0", "0"), "")])
def test_numbers_at_the_ends_of_float64_are_a_range_or_are_refused(tmp_path, cells, words):
    """No power of ten rounds them: the smallest have a range all the same, the largest a line that names the column."""
    file = write(tmp_path / "odd.csv", [[cell, str(place % 2)] for place, cell in enumerate(cells)], ["a", "y"])
    if words:
        with pytest.raises(BadInput, match=f"'a'.*{words}"):
            draft_schema(read_public_table(file), "y")
        return
    (column,) = draft_schema(read_public_table(file), "y").schema.columns
    assert column.low <= 0 < 5e-324 <= column.high


@pytest.mark.parametrize("days", [("2020-01-01", "9999-12-31"), ("9999-12-31",)])
def test_a_last_day_that_means_no_end_is_read(tmp_path, days):
    """Files say 31 December 9999 for "still open"."""
    cells = [[day, str(place % 2)] for place, day in enumerate(days * 10 + days)] + [[days[-1], "1"]]
    dataset = open_dataset(str(write(tmp_path / "open.csv", cells, ["until", "y"])), label="y", split=False)
    assert dataset.train.inputs.max() == 1.0
