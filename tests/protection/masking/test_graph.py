"""Who holds whose shares."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.protection.masking.quorum import NeighbourGraph, derive_thresholds

COMPLETE = derive_thresholds(7, 0, 0, 1)
DIGESTS = st.binary(min_size=32, max_size=32)
MEMBERS = st.lists(st.integers(1, 4096), min_size=1, max_size=30, unique=True).map(lambda found: tuple(sorted(found)))


def graph_of(members: tuple[int, ...], directory: bytes, degree: int) -> NeighbourGraph:
    """A graph of any even degree over any members."""
    return NeighbourGraph(members, directory, replace(COMPLETE, degree=degree))


@given(MEMBERS, DIGESTS, st.integers(1, 15))
def test_graph_is_symmetric_and_regular(members: tuple[int, ...], directory: bytes, half: int) -> None:
    """Everyone has k neighbours and itself (or everyone, when there are no more), and holding is mutual."""
    graph = graph_of(members, directory, 2 * half)
    holders = {member: graph.holders(member) for member in members}
    for member, near in holders.items():
        assert member in near
        assert near == tuple(sorted(set(near)))
        assert len(near) == min(2 * half + 1, len(members))
        assert all(member in holders[other] for other in near)


@given(MEMBERS, DIGESTS, st.integers(1, 15))
def test_graph_is_the_ring_of_digests(members: tuple[int, ...], directory: bytes, half: int) -> None:
    """Neighbours are the nearest on the ring that SHA-256 of directory and member orders, computed independently."""
    label = b"secagg/v1/ring"

    def place(member: int) -> bytes:
        parts = (label, directory, member.to_bytes(4, "big"))
        return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest()

    ring = sorted(members, key=place)
    for at, member in enumerate(ring):
        near = {ring[(at + step) % len(ring)] for step in range(-half, half + 1)}
        assert set(graph_of(members, directory, 2 * half).holders(member)) == near


@given(MEMBERS, st.integers(0, 2**32))
def test_graph_depends_on_the_directory_alone(members: tuple[int, ...], seed: int) -> None:
    """Two parties that hold the same directory draw the same graph."""
    directory = seed.to_bytes(32, "big")
    one, other = graph_of(members, directory, 4), graph_of(members, bytes(directory), 4)
    assert all(one.holders(member) == other.holders(member) for member in members)


def groups_of(graph: NeighbourGraph, survivors: set[int]) -> list[set[int]]:
    """The survivors, joined with those whose masks they share."""
    left, groups = set(survivors), []
    while left:
        group, edge = set(), {left.pop()}
        while edge:
            group |= edge
            edge = {near for member in edge for near in graph.holders(member) if near in survivors} - group
        left -= group
        groups.append(group)
    return groups


@given(st.integers(10, 40), DIGESTS, st.integers(1, 4), st.data())
def test_groups_that_fall_apart_cannot_be_opened(size: int, seed: bytes, half: int, data: st.DataObject) -> None:
    """When the survivors fall into groups without a common mask, each has one of whom at most k/2 + 1 hold shares.

    That is one short of t_k = k/2 + 2 + c_k even with c_k colluders, whoever the server lets drop out.
    """
    members = tuple(range(1, size + 1))
    graph = graph_of(members, seed, 2 * half)
    survivors = set(data.draw(st.lists(st.sampled_from(members), min_size=2, unique=True)))
    groups = groups_of(graph, survivors)
    if len(groups) > 1:
        for group in groups:
            assert min(len(survivors.intersection(graph.holders(member))) for member in group) <= half + 1


def test_another_directory_gives_another_graph() -> None:
    """Changing one bit of the directory's digest redraws the graph."""
    members = tuple(range(1, 301))
    one, other = (graph_of(members, bytes([bit]) + bytes(31), 64) for bit in (0, 1))
    changed = sum(one.holders(member) != other.holders(member) for member in members)
    assert changed > 290


@pytest.mark.parametrize("gone", [0, 20])
def test_graph_at_its_real_size(gone: int) -> None:
    """With 320 clients, and with 20 that never joined, the graph has the planned degree and stays regular."""
    thresholds = derive_thresholds(320, 10, 20, 1)
    members = tuple(range(1 + gone, 321))
    graph = NeighbourGraph(members, bytes(32), thresholds)
    sizes = {len(graph.holders(member)) for member in members}
    assert sizes == {thresholds.degree + 1}
    assert all(member in graph.holders(other) for member in members for other in graph.holders(member))


def test_small_directories_are_complete() -> None:
    """When fewer join than the degree asks for, everyone holds everyone's shares."""
    members = tuple(range(1, 66))
    graph = graph_of(members, bytes(32), 64)
    assert all(graph.holders(member) == members for member in members)
