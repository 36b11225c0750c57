"""Aggregators and a server that lie: what is found out, who is named, and what proves it."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput, ProtocolViolation, SecaggError
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.client import missing
from secagg.protection.sharing.derivations import ACCEPTED, KEY, SUM, Equivocated
from secagg.protection.sharing.messages import (
    AcceptedUploads,
    ManifestConflict,
    PledgeConflict,
    SetLists,
    SetPledges,
    SumPledges,
)
from secagg.wire import decode, encode
from tests.protection.sharing.proofs import contradictions, is_proof
from tests.protection.sharing.rehearsal import Shared, identity, shared_context, through
from tests.worlds.rosters import identity as client_identity

COMMITMENTS = [("reveal set", ACCEPTED, SetPledges), ("reveal sum", SUM, SumPledges)]


def playing(step: str, m: int = 3) -> Shared:
    """Four clients and m aggregators, honest up to a step."""
    return Shared(shared_context(m, 4)).until(step)


def accused(session: Shared, number: int, message: Any, problem: str, culprit: int = SERVER_INDEX) -> None:
    """What an aggregator was told is refused, its author named; the aggregator stays where it was, able to go on."""
    before = session.states[number]
    with pytest.raises(ProtocolViolation, match=problem) as caught:
        before.advance(session.context, session.parties[number], message)
    assert caught.value.culprit == culprit
    assert session.states[number] == before


def equivocated(action: Callable[[], Any], session: Shared, culprit: int) -> None:
    """A lie to two parties is proven to anyone."""
    with pytest.raises(Equivocated) as caught:
        action()
    assert caught.value.culprit == session.context.index_of(culprit)
    assert is_proof(session.context, through(caught.value.evidence))


def pledge(session: Shared, number: int, step: str, content: bytes, signer: int = 0) -> Any:
    """A pledge of any content."""
    return bind.sign_pledge(session.context, identity(signer or number), number, step, content)


def swapped(items: tuple[Any, ...], number: int, item: Any) -> tuple[Any, ...]:
    """The items of a bundle, that of one aggregator replaced."""
    return (*items[: number - 1], item, *items[number:])


def resigned(session: Shared, shown: AcceptedUploads) -> AcceptedUploads:
    """A changed list that its aggregator has signed again."""
    return bind.sign_list(session.context, identity(shown.aggregator), shown)


def lists_of(session: Shared) -> tuple[AcceptedUploads, ...]:
    """The lists that the aggregators have said."""
    return tuple(said.lists[0] for said in session.said.values())


@pytest.mark.parametrize(("at", "step", "bundle"), COMMITMENTS)
def test_a_server_cannot_make_up_commitments(at: str, step: str, bundle: Any) -> None:
    """Unsigned, foreign, other, missing, doubled or reordered pledges in a bundle are laid at the server's door."""
    session, other = playing(at), Shared(shared_context(3, 4, plan=b"other")).until(at)
    one, two, three = (session.said[number].pledges[0] for number in (1, 2, 3))
    for false in (
        replace(two, signature=bytes(64)),
        replace(two, content=bytes(32)),
        pledge(session, 2, step, two.content, signer=3),
        pledge(session, 2, KEY, two.content),
        pledge(session, 2, SUM if step == ACCEPTED else ACCEPTED, two.content),
        other.said[2].pledges[0],
    ):
        accused(session, 1, bundle((one, false, three)), "a2 did not sign")
    fourth = replace(two, aggregator=4)
    for pledges in ((), (one,), (one, two), (one, three, two), (one, two, two), (one, two, three, fourth)):
        accused(session, 1, bundle(pledges), "does not show one")
    session.hear(1, bundle((one, two, three)))


@pytest.mark.parametrize(("at", "step", "bundle"), COMMITMENTS)
def test_an_aggregators_own_commitment_stands_in_the_bundle(at: str, step: str, bundle: Any) -> None:
    """An aggregator that finds another pledge as its own goes no further, signed with its key or not."""
    session = playing(at, m=2)
    one, two = (session.said[number].pledges[0] for number in (1, 2))
    accused(session, 1, bundle((replace(one, content=bytes(32)), two)), "a1 did not sign")
    second = bundle((pledge(session, 1, step, bytes(32)), two))
    equivocated(lambda: session.hear(1, second), session, 1)


LISTS: dict[str, Callable[[AcceptedUploads, Shared], AcceptedUploads]] = {
    "an upload left out": lambda shown, _: replace(shown, manifests=shown.manifests[1:]),
    "nothing": lambda shown, _: replace(shown, manifests=()),
    "another nonce": lambda shown, _: replace(shown, nonce=bytes(32)),
    "another's list": lambda shown, session: replace(lists_of(session)[2], aggregator=2, signature=shown.signature),
    "another upload": lambda shown, session: replace(
        shown,
        manifests=(
            bind.sign_manifest(session.context, client_identity(1), 1, [bytes(32)] * 3),
            *shown.manifests[1:],
        ),
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_other_than_the_one_committed_to_is_found_out(name: str) -> None:
    """Who shows another list than was committed to is named, aggregator or server; the true list still goes on."""
    session = playing("agree")
    shown = lists_of(session)
    false = LISTS[name](shown[1], session)
    problem = "another list than the one that a2 committed to"
    accused(session, 1, SetLists(swapped(shown, 2, false)), problem)
    with pytest.raises(ProtocolViolation, match=f"party 6: shows {problem}"):
        session.accept(2, SetLists((false,)))
    session.gather().relay()
    assert all(state.members == (1, 2, 3, 4) for state in session.states.values())


def test_a_server_cannot_change_what_aggregators_say_they_saw() -> None:
    """Lists that are unsigned, missing, doubled, reordered or signed by another are laid at the server's door."""
    session = playing("agree")
    one, two, three = lists_of(session)
    for false in (
        replace(two, signature=bytes(64)),
        replace(two, signature=three.signature),
        replace(two, pledges=swapped(two.pledges, 3, pledge(session, 3, ACCEPTED, bytes(32)))),
        bind.sign_list(session.context, identity(3), two),
    ):
        accused(session, 1, SetLists((one, false, three)), "shows a list that a2 did not sign")
    for lists in ((one,), (one, three), (one, three, two), (one, two, two), (one, two, three, three)):
        accused(session, 1, SetLists(lists), "does not show one list of a1, a2, a3")


def test_different_bundles_for_two_aggregators_are_found_out() -> None:
    """A server in league with an aggregator that commits twice is found out by what the others sign that they saw."""
    session = playing("reveal set")
    pledges = tuple(said.pledges[0] for said in session.said.values())
    nonce, manifests = bytes(32), session.states[2].manifests[1:]
    second = pledge(session, 2, ACCEPTED, bind.set_commitment(session.context, 2, nonce, manifests))
    for number, bundle in ((1, pledges), (2, pledges), (3, swapped(pledges, 2, second))):
        session.hear(number, SetPledges(bundle))
    one, two, three = lists_of(session)
    equivocated(lambda: session.hear(1, SetLists((one, two, three))), session, 2)
    hidden = resigned(session, replace(two, nonce=nonce, manifests=manifests, pledges=three.pledges))
    equivocated(lambda: session.hear(3, SetLists((one, hidden, three))), session, 2)
    false = replace(three, pledges=pledges)
    accused(session, 1, SetLists((one, two, false)), "shows a list that a3 did not sign")


@pytest.mark.parametrize("m", [2, 3, 5])
def test_different_bundles_of_sum_commitments_are_found_out(m: int) -> None:
    """A sum share shows the commitments that its aggregator saw; two of one aggregator prove that it lied."""
    session = playing("reveal sum", m)
    second = pledge(session, 2, SUM, bytes(32))
    session.gather()
    bundle = session.shown[session.context.index_of(1)].pledges
    session.hear(1, SumPledges(swapped(bundle, 2, second)))
    equivocated(lambda: session.accept(1, session.said[1]), session, 2)
    assert contradictions(session.context, (*bundle, *session.said[1].pledges)) == (PledgeConflict(bundle[1], second),)


def committed_to(session: Shared, manifests: tuple[Any, ...]) -> tuple[AcceptedUploads, ...]:
    """Aggregator 2 commits to any list and reveals it, at a session in which all commit."""
    nonce = bytes(32)
    false = pledge(session, 2, ACCEPTED, bind.set_commitment(session.context, 2, nonce, manifests))
    session.said[2] = SetPledges((false,))
    session.gather()
    for number in (1, 3):
        session.hear(number, session.shown[session.context.index_of(number)])
    one, three = session.said[1].lists[0], session.said[3].lists[0]
    return one, resigned(session, replace(one, aggregator=2, nonce=nonce, manifests=manifests)), three


def test_an_upload_that_nobody_signed_cannot_be_listed() -> None:
    """An aggregator that commits to a list with a forged upload, to frame a client, is named itself."""
    session = playing("reveal set")
    forged = bind.sign_manifest(session.context, identity(2), 1, [bytes(32)] * 3)
    lists = committed_to(session, (forged, *session.states[2].manifests[1:]))
    accused(session, 1, SetLists(lists), "client 1 did not sign")
    with pytest.raises(ProtocolViolation, match="party 6: shows an upload that client 1 did not sign"):
        session.accept(2, SetLists(lists[1:2]))


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (0, 0, 1, 2), (0, 1, 1, 3)])
def test_an_unsorted_list_cannot_be_listed(order: tuple[int, ...]) -> None:
    """A list with clients out of order or twice is refused by the codec, and by the machine behind it."""
    session = playing("reveal set")
    manifests = session.states[2].manifests
    lists = committed_to(session, tuple(manifests[place] for place in order))
    accused(session, 1, SetLists(lists), "not in order")
    with pytest.raises(SecaggError, match="ascending"):
        encode(lists[1])


def test_a_client_that_tells_two_aggregators_different_things_is_left_out() -> None:
    """A client with different manifests at two aggregators is not summed; the evidence names it and holds."""
    session = Shared(shared_context(3, 4)).upload(2, 3, 4).upload(1, to=(1, 2))
    session.seed = b"again"
    session.prepare(1)
    session.upload(1, to=(3,)).commit_sets().reveal_sets().agree()
    for state in session.states.values():
        (conflict,) = state.conflicts
        assert state.members == (2, 3, 4)
        assert conflict.one.client == 1
        assert is_proof(session.context, through(conflict))
    assert session.commit_sums().reveal_sums().open() == session.expected((2, 3, 4))


def test_evidence_against_the_honest_does_not_hold() -> None:
    """Equal, unsigned, mixed or other parties' statements prove nothing."""
    session = playing("agree", m=2)
    one, two = lists_of(session)[0].pledges
    first, second = lists_of(session)[0].manifests[:2]
    other = replace(one, content=bytes(32))
    for evidence in (
        PledgeConflict(one, one),
        PledgeConflict(one, two),
        PledgeConflict(one, other),
        PledgeConflict(other, one),
        PledgeConflict(one, pledge(session, 1, SUM, bytes(32))),
        PledgeConflict(one, first),
        PledgeConflict(first, one),
        ManifestConflict(first, first),
        ManifestConflict(first, second),
        ManifestConflict(first, replace(first, digests=second.digests)),
    ):
        assert not is_proof(session.context, evidence)
    true = pledge(session, 1, ACCEPTED, bytes(32))
    assert contradictions(session.context, [one, two, other, true, one]) == (PledgeConflict(one, true),)


@pytest.mark.parametrize("m", [2, 3, 5])
def test_an_acknowledged_upload_that_was_dropped_is_proven(m: int) -> None:
    """An aggregator that leaves an upload out after giving a receipt is found by its client, from the lists."""
    session = playing("commit set", m)
    state = session.states[2]
    session.states[2] = replace(state, manifests=state.manifests[1:])
    session.commit_sets().reveal_sets().gather()
    lists = session.shown[1].lists
    receipts = [receipt for given in session.receipts.values() for receipt in given.values()]
    assert len(receipts) == 4 * m
    (proof,) = missing(session.context, session.receipts[1].values(), lists)
    assert (proof.aggregator, proof.client) == (2, 1)
    assert missing(session.context, receipts, lists) == (proof,)
    assert missing(session.context, receipts, swapped(lists, 2, lists[0])) == ()
    assert missing(session.context, [replace(proof, signature=bytes(64))], lists) == ()
    session.relay()
    assert all(state.members == (2, 3, 4) for state in session.states.values())


def test_nothing_is_missing_from_an_honest_session() -> None:
    """Every receipt of an honest session is honoured, also for uploads that another aggregator never got."""
    session = Shared(shared_context(3, 4)).upload(1, 2, 3).upload(4, to=(2,)).commit_sets().reveal_sets()
    receipts = [receipt for given in session.receipts.values() for receipt in given.values()]
    assert len(receipts) == 10
    assert missing(session.context, receipts, lists_of(session)) == ()
    with pytest.raises(ProtocolViolation, match="party 6: shows another list"):
        missing(session.context, receipts, [replace(lists_of(session)[1], manifests=())])


def test_a_wrong_sum_share_that_was_committed_to_is_not_found_out() -> None:
    """The documented limit: an aggregator that adds wrongly before it commits shifts the sum, and no check fails."""
    session = playing("commit sum", m=2)
    honest = session.expected((1, 2, 3, 4))
    session.commit_sums({2: np.ones(6, dtype=np.int64)})
    assert session.reveal_sums().open() == [value + 1 for value in honest]


def test_only_the_accepted_shares_are_added() -> None:
    """A kept share that is changed, foreign, doubled or left out stops the sum before anything is committed to."""
    session = playing("commit sum", m=2)
    state, me = session.states[1], session.parties[1]
    total = state.summing(session.context, me)
    assert total.waiting == (1, 2, 3, 4)
    kept = session.disk[1]
    for client, sealed in [(1, kept[2]), (1, kept[1][:-1]), (1, session.disk[2][1]), (5, kept[1])]:
        with pytest.raises(BadInput, match="not one that is awaited"):
            total.add(client, sealed)
    total.add(1, kept[1])
    with pytest.raises(BadInput, match="not one that is awaited"):
        total.add(1, kept[1])
    with pytest.raises(BadInput, match="have not been added"):
        total.packed(None)
    with pytest.raises(BadInput, match="has 24 bytes, not 23"):
        state.commit(session.context, me, bytes(23))
    stranger = replace(state, secret=bytes(range(32))).summing(session.context, me)
    with pytest.raises(BadInput, match="does not open"):
        stranger.add(1, kept[1])


def test_messages_of_another_class_do_not_pass() -> None:
    """The bytes of one closing message are no other closing message."""
    session = playing("open", m=2)
    share = session.said[1]
    for cls in (SetLists, SumPledges, AcceptedUploads):
        with pytest.raises(SecaggError):
            decode(cls, encode(share))
    assert hashlib.sha256(session.disk[1]["sum"]).digest() == share.digest
