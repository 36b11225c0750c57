"""Named data sets, names that are none, and the fixed split."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from secagg.agreement.schema import Numeric, Schema
from secagg.data import open_dataset
from secagg.data.partition import held_out
from secagg.errors import BadInput

SCHEMA = Schema((Numeric("x", 0.0, 1.0),), "y", (("0", "a"), ("1", "b")), ("a", "b"))


def test_digits_are_those_of_the_library():
    """Read from its file, the digits are what scikit-learn itself gives, record for record, divided by 16."""
    from sklearn.datasets import load_digits

    data, known = open_dataset("digits"), load_digits()
    rows = {tuple(image.ravel()): label for image, label in zip(known.images / 16, known.target, strict=True)}
    for part in (data.train, data.test):
        assert [rows[tuple(image.ravel())] for image in part.inputs] == part.labels.tolist()


@pytest.mark.parametrize(
    ("name", "kind", "records", "shape", "classes"),
    [
        ("digits", "images", 1797, (8, 8), 10),
        ("breast-cancer", "table", 569, (30,), 2),
        ("wine", "table", 178, (13,), 3),
    ],
)
def test_named_data_sets(name, kind, records, shape, classes):
    """The named data sets have their published sizes, a fifth held out, and inputs inside their public bound."""
    data = open_dataset(name)
    assert (data.kind, len(data.train) + len(data.test), len(data.classes)) == (kind, records, classes)
    assert abs(len(data.test) / records - 0.2) < 0.01
    inputs = np.concatenate([data.train.inputs, data.test.inputs])
    assert inputs.shape[1:] == shape
    assert np.linalg.norm(inputs.reshape(records, -1), axis=1).max() <= data.bound
    low = 0 if kind == "images" else -1
    assert (inputs.min(), inputs.max()) == (low, 1)


@pytest.mark.parametrize("options", [{"label": "y"}, {"schema": SCHEMA}])
@pytest.mark.parametrize("source", ["digits", "absent.npz"])
def test_label_and_schema_belong_to_tables(source, options):
    """A label column or schema for a source that has its own labels is refused."""
    with pytest.raises(BadInput, match="brings its own labels"):
        open_dataset(source, **options)


@pytest.mark.parametrize("source", ["no-such-name", "absent.npz", "absent.csv", "absent/folder"])
def test_absent_source_is_named(source):
    """A source that does not exist is refused by its name."""
    with pytest.raises(BadInput, match=source):
        open_dataset(source, schema=None)


def test_unknown_format_is_refused(tmp_path):
    """A file of another format is refused with the formats that are read."""
    (tmp_path / "data.feather").write_bytes(b"ARROW1")
    with pytest.raises(BadInput, match=r"\.npz, .* or a table"):
        open_dataset(str(tmp_path / "data.feather"))


@given(arrays(np.int64, st.integers(0, 200), elements=st.integers(-1, 4)))
def test_split_holds_out_a_fifth_of_each_class(labels):
    """Every class gives a fifth of its records, rounded half up; bad records are never held out."""
    test = held_out(labels)
    for label in np.unique(labels):
        count = int((labels == label).sum())
        assert int(test[labels == label].sum()) == (int(0.2 * count + 0.5) if label >= 0 else 0)


def test_split_is_the_published_one():
    """The split is a public constant: its first members never change."""
    labels = np.tile([0, 1], 25)
    assert np.flatnonzero(held_out(labels)).tolist() == [2, 9, 16, 19, 28, 31, 36, 39, 43, 48]
