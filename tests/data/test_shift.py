"""Feature shift: what is left out is in no client and is all of the test part; refused columns and values."""

import numpy as np
import pytest

from secagg.data import Dataset, Records
from secagg.data.partition import LeftOut, leave_out, one_by_one
from secagg.data.records import BAD
from secagg.encoding.grid import Origin
from secagg.errors import BadInput

SITES = np.array(["a", "b", "c"])


def records(first: int, count: int) -> Records:
    """Records whose only feature is their number, of three sites in turn; the fourth of each dozen is bad."""
    numbers = np.arange(first, first + count)
    labels = np.where(numbers % 12 == 3, BAD, numbers % 2)
    columns = {"site": SITES[numbers % 3]}
    return Records(numbers[:, None].astype(np.float64), labels, columns, Origin.of("made up", numbers))


def dataset(*, test: bool = True, parts: tuple[tuple[str, np.ndarray], ...] | None = None) -> Dataset:
    """Thirty training records and twelve held-out ones."""
    return Dataset(
        "small", "features", records(0, 30), records(30, 12) if test else None, ("0", "1"), None, None, parts
    )


@pytest.mark.parametrize("test", [True, False])
@pytest.mark.parametrize("site", SITES)
def test_every_record_is_on_one_side(site: str, test: bool) -> None:
    """No training record has the value, the test part is every record that has, and labels and origins go along."""
    whole = dataset(test=test)
    cut = leave_out(whole, "site", site)
    numbers = np.arange(42 if test else 30)
    assert cut.test is not None
    assert cut.train.inputs[:, 0].tolist() == [n for n in range(30) if SITES[n % 3] != site]
    assert cut.test.inputs[:, 0].tolist() == [n for n in numbers if SITES[n % 3] == site]
    assert set(cut.train.columns["site"]) == set(SITES) - {site}
    for part in (cut.train, cut.test):
        own = part.inputs[:, 0].astype(int)
        assert (part.labels == np.where(own % 12 == 3, BAD, own % 2)).all()
        assert part.origin.row.tolist() == own.tolist()
    assert (cut.classes, cut.kind, cut.name) == (whole.classes, whole.kind, whole.name)


def test_tables_lose_their_records() -> None:
    """Each table of a folder keeps exactly its other records; one that had no others is empty and remains."""
    site_a = np.arange(0, 30, 3)
    rest = np.setdiff1d(np.arange(30), site_a)
    whole = dataset(parts=(("one", site_a), ("two", rest[:7]), ("three", rest[7:])))
    cut = leave_out(whole, "site", "a")
    assert cut.parts is not None
    assert [name for name, _ in cut.parts] == ["one", "two", "three"]
    held = [cut.train.inputs[rows, 0].tolist() for _, rows in cut.parts]
    assert held == [[], rest[:7].tolist(), rest[7:].tolist()]


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("colour", "a", "no column 'colour'.*site"),
        ("site", "d", "no record has site = 'd'; give one of the column's 3 values"),
    ],
    ids=["column", "value"],
)
def test_nothing_to_leave_out(column: str, value: str, words: str) -> None:
    """A column or a value that is not there is refused with the columns, or the number of values, that are."""
    with pytest.raises(BadInput, match=words):
        leave_out(dataset(), column, value)


def test_something_must_be_left() -> None:
    """The only value of a column cannot be left out."""
    whole = dataset()
    alone = Dataset("one", "features", whole.train.take(np.arange(0, 30, 3)), None, ("0", "1"), None, None, None)
    with pytest.raises(BadInput, match="none would be left"):
        leave_out(alone, "site", "a")


@pytest.mark.parametrize("text", ["", "site", "site=", "=a", "="])
def test_not_a_value_of_a_column(text: str) -> None:
    """Anything but COLUMN=VALUE is refused."""
    with pytest.raises(BadInput, match="COLUMN=VALUE"):
        LeftOut.read(text)


def test_value_may_hold_anything() -> None:
    """Only the first = divides."""
    assert LeftOut.read("site=a=b *") == LeftOut("site", "a=b *")


def test_one_by_one() -> None:
    """A star stands for each value of the training records in order, once, and nothing else changes."""
    assert one_by_one(dataset(), [None, "site=c", "site=*"]) == (None, "site=c", "site=a", "site=b")
    with pytest.raises(BadInput, match="no column 'colour'"):
        one_by_one(dataset(), ["colour=*"])
