"""Partitions: every record once, each rule's own promise, refused specifications."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.data import partition
from secagg.errors import BadInput

labels_of = st.lists(st.integers(-1, 4), max_size=80).map(lambda values: np.array(values, dtype=np.int64))
specs = st.sampled_from(
    ["iid", "dirichlet:0.001", "dirichlet:0.05", "dirichlet:100", "shards:1", "shards:5", "column:c", "column:c:3"]
)


@given(labels_of, specs, st.integers(5, 12), st.integers(0, 2**32))
def test_every_record_belongs_to_one_client(labels, spec, clients, seed):
    """Parts are disjoint, cover all records, bad ones included, ascend, and the same seed gives them again."""
    columns = {"c": np.array([f"v{label % 3}" for label in labels], dtype=np.str_)}
    present = np.unique(labels[labels >= 0])
    if spec == "shards:5" and len(present) < 5:
        spec = "shards:1"
    if spec == "shards:1" and not len(present):
        spec = "iid"
    wanted = None if spec.startswith("column") else clients
    parts = partition(labels, columns, spec, wanted, seed)
    assert sorted(np.concatenate([*parts, np.zeros(0, np.int64)]).tolist()) == list(range(len(labels)))
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
    values = len(np.unique(columns["c"]))
    assert len(parts) == {"column:c": values, "column:c:3": 3 * values}.get(spec, clients)
    again = partition(labels, columns, spec, wanted, seed)
    assert [part.tolist() for part in parts] == [part.tolist() for part in again]


LABELS = np.repeat(np.arange(10), 30)


def test_iid_parts_are_equal():
    """iid parts differ in size by at most one, and another seed gives other parts."""
    parts = partition(LABELS, {}, "iid", 7, 0)
    assert {len(part) for part in parts} == {42, 43}
    assert parts[0].tolist() != partition(LABELS, {}, "iid", 7, 1)[0].tolist()


def test_shards_hold_k_classes():
    """Every client holds exactly K classes and every class is held."""
    for clients, each in [(5, 2), (10, 1), (7, 3), (3, 10)]:
        held = [set(LABELS[part]) for part in partition(LABELS, {}, f"shards:{each}", clients, 3)]
        assert {len(classes) for classes in held} == {each}
        assert set.union(*held) == set(range(10))


@pytest.mark.parametrize("spec", ["shards:2", "dirichlet:0.05"])
def test_bad_records_are_dealt_evenly(spec):
    """Bad records count as no class: they change no demand on K and every client gets its even share."""
    parts = partition(np.where(np.arange(300) % 30 < 3, -1, LABELS), {}, spec, 5, 3)
    assert [int((np.array(part) % 30 < 3).sum()) for part in parts] == [6] * 5


def test_small_alpha_concentrates_classes():
    """A small ALPHA gives most of a class to one client; a large one spreads it."""

    def largest_share(alpha):
        parts = partition(LABELS, {}, f"dirichlet:{alpha}", 5, 0)
        return np.mean([max((LABELS[part] == label).sum() for part in parts) / 30 for label in range(10)])

    assert largest_share(0.05) > 0.8
    assert largest_share(1000) < 0.3


def test_column_gives_one_client_per_value():
    """Clients follow the sorted values of the column."""
    columns = {"site": np.where(LABELS < 4, "west", "east")}
    east, west = partition(LABELS, columns, "column:site", 2, 0)
    assert set(LABELS[west]) == {0, 1, 2, 3}
    assert set(LABELS[east]) == {4, 5, 6, 7, 8, 9}


def test_column_is_divided_evenly_among_its_clients():
    """K clients for each value, in the values' order, share its records at random, as evenly as can be."""
    columns = {"site": np.where(LABELS < 4, "west", "east")}
    parts = partition(LABELS, columns, "column:site:7", 14, 0)
    assert [set(columns["site"][part]) for part in parts] == [{"east"}] * 7 + [{"west"}] * 7
    sizes = [len(part) for part in parts]
    assert max(sizes[:7]) - min(sizes[:7]) <= 1 >= max(sizes[7:]) - min(sizes[7:])
    assert any(np.diff(part).max() > 1 for part in parts)
    other = partition(LABELS, columns, "column:site:7", None, 1)
    assert not all(np.array_equal(one, two) for one, two in zip(parts, other, strict=True))


def test_column_named_like_a_division_is_that_column():
    """A colon in a column's name does not divide its clients."""
    columns = {"site:2": np.where(LABELS < 4, "west", "east")}
    assert len(partition(LABELS, columns, "column:site:2", None, 0)) == 2


@pytest.mark.parametrize(
    ("spec", "clients", "seed", "words"),
    [
        ("random", 5, 0, "unknown partition"),
        ("iid:3", 5, 0, "unknown partition"),
        ("iid", 0, 0, "0 clients"),
        ("iid", None, 0, "None clients"),
        ("iid", 5, -1, "seed"),
        ("dirichlet:", 5, 0, "ALPHA"),
        ("dirichlet:0", 5, 0, "ALPHA"),
        ("dirichlet:nan", 5, 0, "ALPHA"),
        ("dirichlet:inf", 5, 0, "ALPHA"),
        ("shards:0", 5, 0, "K is"),
        ("shards:2.5", 5, 0, "K is"),
        ("shards:1", 5, 0, "cannot hold 10 classes"),
        ("shards:11", 5, 0, "cannot hold 10 classes"),
        ("column:hospital", None, 0, "no column"),
        ("column:site", 3, 0, "gives 2 clients but 3"),
        ("column:site:3", 5, 0, "gives 6 clients but 5"),
        ("column:site:0", None, 0, "K is a number of clients"),
        ("column:site:x", None, 0, "K is a number of clients"),
        ("column:hospital:2", None, 0, "no column"),
    ],
)
def test_impossible_partition_is_refused(spec, clients, seed, words):
    """A form, parameter or number of clients that cannot be met is refused with a remedy."""
    with pytest.raises(BadInput, match=words) as refusal:
        partition(LABELS, {"site": np.where(LABELS < 4, "west", "east")}, spec, clients, seed)
    assert refusal.value.remedy
