"""Aggregators that lie to each other: what is found out, who is named, and what proves it."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secagg.errors import BadInput, ProtocolViolation, SecaggError, SessionAborted
from secagg.protection.messages import Abort
from secagg.protection.sharing import binding as bind
from secagg.protection.sharing.agreeing import SetCommitted, SetRevealed
from secagg.protection.sharing.audit import contradictions, is_proof, missing
from secagg.protection.sharing.messages import ManifestConflict, PledgeConflict
from secagg.protection.sharing.pledges import ACCEPTED, KEY, SUM, Equivocated
from secagg.protection.sharing.summing import SumCommitted, SumRevealed
from secagg.wire import decode, encode
from tests.protection.rehearsal import identity as client_identity
from tests.protection.sharing.rehearsal import Shared, identity, shared_context, through


def playing(step: str, m: int = 3) -> Shared:
    """Four clients and m aggregators, honest up to a step."""
    return Shared(shared_context(m, 4)).until(step)


def shown_to(session: Shared, number: int, **instead: Any) -> list[Any]:
    """What the others say to one aggregator, some of it replaced: a2=…, a3=…."""
    said = {f"a{other}": message for other, message in session.said().items() if other != number}
    return [message for message in (said | instead).values() if message is not None]


def answer(session: Shared, number: int, said: list[Any]) -> Any:
    """One aggregator takes its step with what it was told."""
    here = type(session.keepers[number].state)
    if here is SumRevealed:
        return session.open_at(number, said)
    method = {SetCommitted: "reveal", SetRevealed: "agree", SumCommitted: "reveal"}[here]
    session.take(number, here, lambda at, me, others: getattr(at, method)(session.context, me, others), said)
    return session.keepers[number].state


def accused(session: Shared, number: int, said: list[Any], culprit: str, problem: str) -> ProtocolViolation:
    """What was told is refused, its author named, and the aggregator stays where it was, able to go on."""
    before = session.keepers[number].state
    with pytest.raises(ProtocolViolation, match=problem) as caught:
        answer(session, number, said)
    assert caught.value.culprit == culprit
    assert session.keepers[number].state == before
    return caught.value


def equivocated(session: Shared, number: int, said: list[Any], culprit: str) -> None:
    """A lie to two aggregators is proven to anyone, and the session is over for good."""
    with pytest.raises(Equivocated) as caught:
        answer(session, number, said)
    assert caught.value.culprit == culprit
    evidence = through(caught.value.evidence)
    assert is_proof(session.context, evidence)
    assert isinstance(session.keepers[number].state, Abort)
    with pytest.raises(SessionAborted, match="signed two different"):
        session.take(number, SetCommitted, lambda *_: None, [])


def pledge(session: Shared, number: int, step: str, content: bytes, signer: int = 0) -> Any:
    """A pledge of any content."""
    return bind.sign_pledge(session.context, identity(signer or number), number, step, content)


@pytest.mark.parametrize(("at", "step"), [("reveal set", ACCEPTED), ("reveal sum", SUM)])
def test_commitments_are_signed_by_their_aggregator(at: str, step: str) -> None:
    """At both commit steps an unsigned, foreign or other pledge names its aggregator; a missing one ends all."""
    session, other = playing(at), Shared(shared_context(3, 4, plan=b"other")).until(at)
    true = session.said()[2]
    for false in (
        replace(true, signature=bytes(64)),
        replace(true, content=bytes(32)),
        pledge(session, 2, step, true.content, signer=3),
        pledge(session, 2, KEY, true.content),
        pledge(session, 2, SUM if step == ACCEPTED else ACCEPTED, true.content),
        other.said()[2],
    ):
        accused(session, 1, shown_to(session, 1, a2=false), "a2", "did not sign")
    accused(session, 1, shown_to(session, 1, a4=replace(true, aggregator=4)), "aggregator 4", "did not sign")
    with pytest.raises(SessionAborted, match="from a2"):
        answer(session, 1, shown_to(session, 1, a2=None))
    assert isinstance(session.keepers[1].state, Abort)


@pytest.mark.parametrize(("at", "step"), [("reveal set", ACCEPTED), ("reveal sum", SUM)])
def test_two_commitments_of_one_aggregator_are_proof(at: str, step: str) -> None:
    """Two different signed pledges for one step, shown to one aggregator, end the session with evidence."""
    session = playing(at)
    second = pledge(session, 2, step, bytes(32))
    equivocated(session, 1, shown_to(session, 1, again=second), "a2")


def test_a_repeated_pledge_changes_nothing() -> None:
    """The same pledge twice, in any order, is the pledge once."""
    session = playing("reveal set")
    said = shown_to(session, 1)
    assert len(answer(session, 1, [*reversed(said), *said]).pledges) == 3


LISTS: dict[str, Callable[[Any, Shared], Any]] = {
    "an upload left out": lambda shown, _: replace(shown, manifests=shown.manifests[1:]),
    "nothing": lambda shown, _: replace(shown, manifests=()),
    "another nonce": lambda shown, _: replace(shown, nonce=bytes(32)),
    "another's list": lambda shown, session: replace(session.said()[3], aggregator=2),
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
    """An aggregator that reveals another list than it committed to is named; its true list still goes on."""
    session = playing("agree")
    false = LISTS[name](session.said()[2], session)
    accused(session, 1, shown_to(session, 1, a2=false), "a2", "another list")
    assert answer(session, 1, shown_to(session, 1)).members == (1, 2, 3, 4)


def committed_to(session: Shared, manifests: tuple[Any, ...]) -> list[Any]:
    """Aggregator 2 commits to any list and reveals it, at a session in which all commit."""
    nonce = bytes(32)
    false = pledge(session, 2, ACCEPTED, bind.set_commitment(session.context, 2, nonce, manifests))
    told = {number: shown_to(session, number, a2=false) for number in (1, 3)}
    for number, said in told.items():
        answer(session, number, said)
    mine, third = session.said()[1], session.said()[3]
    return [replace(mine, aggregator=2, nonce=nonce, manifests=manifests), third]


def test_an_upload_that_nobody_signed_cannot_be_listed() -> None:
    """An aggregator that commits to a list with a forged upload, to frame a client, is named itself."""
    session = playing("reveal set")
    forged = bind.sign_manifest(session.context, identity(2), 1, [bytes(32)] * 3)
    said = committed_to(session, (forged, *session.keepers[2].state.manifests[1:]))
    accused(session, 1, said, "a2", "client 1 did not sign")


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (0, 0, 1, 2), (0, 1, 1, 3)])
def test_an_unsorted_list_cannot_be_listed(order: tuple[int, ...]) -> None:
    """A list with clients out of order or twice is refused by the codec, and by the machine behind it."""
    session = playing("reveal set")
    manifests = session.keepers[2].state.manifests
    said = committed_to(session, tuple(manifests[place] for place in order))
    accused(session, 1, said, "a2", "not in order")
    with pytest.raises(SecaggError, match="ascending"):
        encode(said[0])


@pytest.mark.parametrize(("at", "step"), [("reveal set", ACCEPTED), ("reveal sum", SUM)])
def test_different_commitments_to_different_aggregators_are_found_out(at: str, step: str) -> None:
    """An aggregator that commits differently to two others is proven to lie by the pledges that they show."""
    session = playing(at)
    answer_one, answer_three = shown_to(session, 1), shown_to(session, 3, a2=pledge(session, 2, step, bytes(32)))
    answer(session, 1, answer_one)
    answer(session, 3, answer_three)
    said = session.said()
    equivocated(session, 1, [said[3]], "a2")
    equivocated(session, 3, [said[1]], "a2")


def test_pledges_that_were_never_signed_name_who_shows_them() -> None:
    """An aggregator that shows a forged pledge of another, or not all of them, is named, not the other."""
    session = playing("agree")
    shown = session.said()[2]
    one, two, three = shown.pledges
    for false, problem in [
        ((one, two, replace(three, content=bytes(32))), "a3 did not sign"),
        ((one, two, replace(three, step=SUM)), "a3 did not sign"),
        ((one, two, pledge(session, 3, KEY, three.content)), "a3 did not sign"),
        ((one, two), "one pledge of every aggregator"),
        ((one, two, three, three), "one pledge of every aggregator"),
    ]:
        accused(session, 1, shown_to(session, 1, a2=replace(shown, pledges=false)), "a2", problem)
    accused(session, 1, shown_to(session, 1, a4=replace(shown, aggregator=4)), "aggregator 4", "not an aggregator")


def test_who_does_not_reveal_its_list_is_named() -> None:
    """When the deadline passes without a list, the session ends and says whose is missing."""
    session = playing("agree")
    with pytest.raises(SessionAborted, match="a3 did not reveal what it accepted"):
        answer(session, 1, shown_to(session, 1, a3=None))


def test_a_client_that_tells_two_aggregators_different_things_is_left_out() -> None:
    """A client with different manifests at two aggregators is not summed; the evidence names it and holds."""
    session = Shared(shared_context(3, 4)).upload(2, 3, 4).upload(1, to=(1, 2))
    session.seed = b"again"
    session.prepare(1)
    session.upload(1, to=(3,)).commit_sets().reveal_sets().agree()
    for keeper in session.keepers.values():
        (conflict,) = keeper.state.conflicts
        assert keeper.state.members == (2, 3, 4)
        assert conflict.one.client == 1
        assert is_proof(session.context, conflict)
    assert session.commit_sums().reveal_sums().open() == session.expected((2, 3, 4))


def test_evidence_against_the_honest_does_not_hold() -> None:
    """Equal, unsigned, mixed or other parties' statements prove nothing."""
    session = playing("agree", m=2)
    one, two = session.said()[1].pledges
    first, second = session.keepers[1].state.manifests[:2]
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


def test_an_acknowledged_upload_that_was_dropped_is_proven() -> None:
    """An aggregator that leaves an upload out after giving a receipt is found by any holder of the receipt."""
    session = playing("commit set")
    state = session.keepers[2].state
    session.keepers[2]._state = replace(state, manifests=state.manifests[1:])
    session.commit_sets().reveal_sets()
    lists = list(session.said().values())
    receipts = [receipt for sent in session.sent.values() for receipt in sent.receipts]
    (proof,) = missing(session.context, receipts, lists)
    assert (proof.aggregator, proof.client) == (2, 1)
    assert missing(session.context, receipts, [lists[0], lists[2]]) == ()
    assert missing(session.context, [replace(proof, signature=bytes(64))], lists) == ()
    session.agree()
    assert all(keeper.state.members == (2, 3, 4) for keeper in session.keepers.values())


def test_nothing_is_missing_from_an_honest_session() -> None:
    """Every receipt of an honest session is honoured, also for uploads that another aggregator never got."""
    session = Shared(shared_context(3, 4)).upload(1, 2, 3).upload(4, to=(2,)).commit_sets().reveal_sets()
    receipts = [receipt for sent in session.sent.values() for receipt in sent.receipts]
    assert len(receipts) == 10
    assert missing(session.context, receipts, session.said().values()) == ()
    false = replace(session.said()[2], manifests=())
    with pytest.raises(ProtocolViolation, match="a2: reveals another list"):
        missing(session.context, receipts, [false])


SHARES: dict[str, tuple[Callable[[Any, Shared], Any], str]] = {
    "another sum": (lambda shown, _: replace(shown, digest=bytes(32)), "another sum share"),
    "another nonce": (lambda shown, _: replace(shown, nonce=bytes(32)), "another sum share"),
    "another set": (lambda shown, _: replace(shown, agreed=bytes(32)), "another set"),
    "another's": (lambda shown, session: replace(session.said()[3], aggregator=2), "another sum share"),
    "pledges left out": (lambda shown, _: replace(shown, pledges=shown.pledges[:2]), "every aggregator"),
    "no aggregator": (lambda shown, _: replace(shown, aggregator=7), "not an aggregator"),
}


@pytest.mark.parametrize("name", SHARES)
def test_a_sum_share_other_than_the_one_committed_to_is_found_out(name: str) -> None:
    """An aggregator that reveals another sum share, or that of another set, is named; its true one still opens."""
    session = playing("open")
    change, problem = SHARES[name]
    false = change(session.said()[2], session)
    culprit = session.context.names.get(false.aggregator, "aggregator 7")
    accused(session, 1, shown_to(session, 1, a2=false), culprit, problem)
    assert session.open() == session.expected((1, 2, 3, 4))


def test_the_bytes_of_a_sum_share_are_those_announced() -> None:
    """Other bytes, another length, a repetition or a stranger's share do not enter the sum."""
    session = playing("open", m=2)
    said, mine = shown_to(session, 1), session.disk[1]["sum"]
    opening = session.keepers[1].state.opening(session.context, session.parties[1], said)
    true = session.disk[2]["sum"]
    for number, packed in [(2, mine), (2, true[:-1]), (2, true + b"\0"), (2, b""), (3, true), (1, true)]:
        with pytest.raises(ProtocolViolation, match="not awaited or not the one"):
            opening.add(number, packed)
    opening.add(2, true)
    with pytest.raises(ProtocolViolation, match="a2: its sum share is not awaited"):
        opening.add(2, true)
    with pytest.raises(BadInput, match=r"aggregators \[1\]"):
        opening.integers()
    opening.add(1, mine)
    assert opening.integers().tolist() == session.expected((1, 2, 3, 4))


@pytest.mark.parametrize("size", [0, 23, 25])
def test_a_sum_share_of_another_length_names_its_aggregator(size: int) -> None:
    """An aggregator that commits to too few or too many bytes, and reveals them, is named."""
    session = playing("reveal sum", m=2)
    session.disk[2]["sum"] = bytes(size)
    state = session.keepers[2].state
    session.keepers[2]._state = replace(state, digest=hashlib.sha256(bytes(size)).digest())
    session.reveal_sums()
    with pytest.raises(ProtocolViolation, match="a2: its sum share"):
        session.open_at(1, [session.said()[2]])


def test_who_keeps_its_sum_share_back_is_named() -> None:
    """Without every sum share nothing is opened, and the one that is missing is named."""
    session = playing("open")
    with pytest.raises(SessionAborted, match="a2, a3 did not reveal its sum share"):
        session.open_at(1, [])
    assert isinstance(session.keepers[1].state, Abort)


def test_a_wrong_sum_share_that_was_committed_to_is_not_found_out() -> None:
    """The documented limit: an aggregator that adds wrongly before it commits shifts the sum, and no check fails."""
    session = playing("commit sum", m=2)
    honest = session.expected((1, 2, 3, 4))
    session.commit_sums({2: np.ones(6, dtype=np.int64)})
    assert session.reveal_sums().open() == [value + 1 for value in honest]


def test_only_the_accepted_shares_are_added() -> None:
    """A kept share that is changed, foreign, doubled or left out stops the sum before anything is committed to."""
    session = playing("commit sum", m=2)
    total = session.keepers[1].state.summing(session.context, session.parties[1])
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
        session.keepers[1].state.commit(session.context, session.parties[1], bytes(23))
    stranger = replace(session.keepers[1].state, secret=bytes(range(32))).summing(session.context, session.parties[1])
    with pytest.raises(BadInput, match="does not open"):
        stranger.add(1, kept[1])


def test_messages_of_another_class_do_not_pass() -> None:
    """The bytes of one closing message are no other closing message."""
    session = playing("open", m=2)
    share = session.said()[1]
    with pytest.raises(SecaggError):
        decode(type(playing("agree", m=2).said()[1]), encode(share))
    assert hashlib.sha256(session.disk[1]["sum"]).digest() == share.digest
    assert isinstance(session.keepers[1].state, SumRevealed)
