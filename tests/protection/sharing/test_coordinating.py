"""What the server refuses of an aggregator: each step's message missing, repeated, foreign, tampered, out of order."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from secagg.errors import MalformedMessage, ProtocolViolation, SessionAborted
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.derivations import ACCEPTED, KEY, SUM, Equivocated
from secagg.protection.sharing.messages import SessionKeys, SetLists, SetPledges, SumPledges
from secagg.wire import decode, encode
from tests.protection.sharing.proofs import is_proof
from tests.protection.sharing.rehearsal import Shared, identity, shared_context, through

# For each step of the server: the aggregators' step, what a missing one did not do, and to whom the answer goes.
GATHERED: dict[str, tuple[str, str, Callable[[Shared], set[int]]]] = {
    "SessionKeys": (
        "",
        "publish a session key",
        lambda session: {*session.context.clients, *session.context.helpers},
    ),
    "SetPledges": ("reveal set", "commit to what it accepted", lambda session: set(session.context.helpers)),
    "SetLists": (
        "agree",
        "reveal what it accepted",
        lambda session: {*session.context.clients, *session.context.helpers},
    ),
    "SumPledges": ("reveal sum", "commit to its sum share", lambda session: set(session.context.helpers)),
    "SumShare": ("open", "reveal its sum share", lambda session: set()),
}
PLEDGED = {"SessionKeys": (KEY, SessionKeys), "SetPledges": (ACCEPTED, SetPledges), "SumPledges": (SUM, SumPledges)}


def gathering(name: str, m: int = 3) -> Shared:
    """Four clients and m aggregators, whose messages of a step are said and not yet heard."""
    session = Shared(shared_context(m, 4))
    if name != "SessionKeys":
        session.until(GATHERED[name][0])
    assert session.server.awaits.__name__ == name
    return session


def refused(session: Shared, number: int, message: Any, problem: str) -> None:
    """The server names the aggregator, and takes its true message afterwards."""
    with pytest.raises(ProtocolViolation, match=problem) as caught:
        session.server.accept(session.context.index_of(number), message)
    assert caught.value.culprit == session.context.index_of(number)


def goes_on(session: Shared, name: str) -> None:
    """Played on from a step of the server, the session ends with the right sum."""
    if name == "SessionKeys":
        session.until("open")
    elif name != "SumShare":
        step = GATHERED[name][0]
        session.play(step, "open")
    assert session.open() == session.expected((1, 2, 3, 4))


@pytest.mark.parametrize("m", [2, 3, 5])
@pytest.mark.parametrize("name", GATHERED)
def test_every_aggregator_is_needed_at_every_step(name: str, m: int) -> None:
    """A step is complete with all messages; closed without one or all, the session ends and says whose are missing."""
    session = gathering(name, m)
    lacking = GATHERED[name][1]
    with pytest.raises(SessionAborted, match=rf"a1, a2.* did not {lacking}"):
        session.server.close()
    for number in session.context.numbers:
        assert not session.server.complete
        if number != 2:
            session.accept(number, session.said[number])
    with pytest.raises(SessionAborted, match=f": a2 did not {lacking}"):
        session.server.close()
    session.accept(2, session.said[2])
    assert session.server.complete
    _, answers = session.server.close()
    assert set(answers) == GATHERED[name][2](session)
    goes_on(session, name)


@pytest.mark.parametrize("name", GATHERED)
def test_a_repetition_changes_nothing(name: str) -> None:
    """The same message again is nothing."""
    session = gathering(name)
    for number in (2, 1, 2):
        session.accept(number, session.said[number])
    assert not session.server.complete
    goes_on(session, name)


@pytest.mark.parametrize("name", GATHERED)
def test_only_aggregators_are_heard_and_each_for_itself(name: str) -> None:
    """A client, a stranger, another's message, none and several at once are refused; the true ones still go on."""
    session = gathering(name)
    said = session.said
    for member in (0, 1, 4, 99):
        with pytest.raises(ProtocolViolation, match="is not expected at this step"):
            session.server.accept(member, said[1])
    refused(session, 1, said[2], "not its own" if name == "SumShare" else "does not show one")
    if name != "SumShare":
        field = "lists" if name == "SetLists" else "pledges"
        own, other = (getattr(said[number], field) for number in (1, 2))
        for items in ((), (*own, *other), own * 2):
            refused(session, 1, replace(said[1], **{field: items}), "does not show one")
    goes_on(session, name)


@pytest.mark.parametrize("name", PLEDGED)
def test_a_pledge_is_signed_for_its_step_and_session(name: str) -> None:
    """A tampered pledge, one of another step, session or signer is refused; the true one still goes on."""
    session = gathering(name)
    step, bundle = PLEDGED[name]
    (true,) = session.said[2].pledges
    other = Shared(shared_context(3, 4, plan=b"other"))
    foreign = bind.sign_pledge(other.context, identity(2), 2, step, true.content)
    for false in (
        replace(true, signature=bytes(64)),
        replace(true, content=bytes(range(32))),
        replace(true, step="other"),
        bind.sign_pledge(session.context, identity(3), 2, step, true.content),
        bind.sign_pledge(session.context, identity(2), 2, SUM if step == KEY else KEY, true.content),
        foreign,
    ):
        refused(session, 2, bundle((false,)), "a2 did not sign")
    goes_on(session, name)


@pytest.mark.parametrize("name", PLEDGED)
def test_two_signed_pledges_are_proof_against_their_aggregator(name: str) -> None:
    """A second, different pledge for one step is evidence that convinces anyone if signed, and refused if not."""
    session = gathering(name)
    step, bundle = PLEDGED[name]
    session.accept(2, session.said[2])
    second = bind.sign_pledge(session.context, identity(2), 2, step, bytes(range(32)))
    with pytest.raises(Equivocated) as caught:
        session.accept(2, bundle((second,)))
    assert caught.value.culprit == session.context.index_of(2)
    assert is_proof(session.context, through(caught.value.evidence))
    refused(session, 2, bundle((replace(second, signature=bytes(64)),)), "a2 did not sign")
    goes_on(session, name)


@pytest.mark.parametrize("name", PLEDGED)
def test_a_message_of_another_step_is_refused(name: str) -> None:
    """The bytes of any other step's message, from this session and its own sender, are not taken."""
    session = gathering(name)
    bundle, index = PLEDGED[name][1], session.context.index_of(2)
    for other in GATHERED.keys() - {name}:
        said = encode(gathering(other).said[2])
        with pytest.raises((MalformedMessage, ProtocolViolation), match=r"malformed|party 6: (shows a|does not show)"):
            session.server.accept(index, decode(bundle, said))
    goes_on(session, name)


def test_a_session_key_is_nobody_elses() -> None:
    """An aggregator that publishes another's session key as its own is named, in whichever order they come."""
    session = gathering("SessionKeys")
    copied = bind.sign_pledge(session.context, identity(2), 2, KEY, session.said[1].pledges[0].content)
    session.accept(1, session.said[1])
    refused(session, 2, SessionKeys((copied,)), "its session key")
    goes_on(session, "SessionKeys")


def test_a_second_list_or_sum_share_is_refused() -> None:
    """What an aggregator reveals is revealed once: another list or sum share after the true one changes nothing."""
    session = gathering("SetLists")
    session.accept(2, session.said[2])
    refused(session, 2, SetLists((replace(session.said[2].lists[0], manifests=()),)), "a second, different SetLists")
    goes_on(session, "SetLists")
    session = gathering("SumShare")
    session.accept(2, session.said[2])
    refused(session, 2, replace(session.said[2], digest=bytes(32)), "a second, different SumShare")
    goes_on(session, "SumShare")


def test_the_pledges_behind_a_list_are_those_that_were_gathered() -> None:
    """A list with pledges left out, unsigned or of another step is refused, whatever its aggregator signs."""
    session = gathering("SetLists")
    shown = session.said[2].lists[0]
    one, two, three = shown.pledges
    for pledges, problem in [
        ((one, two), "one 'accepted' pledge of a1, a2, a3"),
        ((one, two, replace(three, content=bytes(32))), "a3 did not sign"),
        ((one, two, bind.sign_pledge(session.context, identity(3), 3, SUM, three.content)), "a3 did not sign"),
    ]:
        false = bind.sign_list(session.context, identity(2), replace(shown, pledges=pledges))
        refused(session, 2, SetLists((false,)), problem)
    refused(session, 2, SetLists((replace(shown, signature=bytes(64)),)), "shows a list that a2 did not sign")
    other = bind.sign_pledge(session.context, identity(3), 3, ACCEPTED, bytes(32))
    proof = bind.sign_list(session.context, identity(2), replace(shown, pledges=(one, two, other)))
    with pytest.raises(Equivocated, match="party 7: signed two different"):
        session.accept(2, SetLists((proof,)))
    goes_on(session, "SetLists")


SHARES: dict[str, tuple[Callable[[Any, Shared], Any], str]] = {
    "another sum": (lambda shown, _: replace(shown, digest=bytes(32)), "another sum share"),
    "another nonce": (lambda shown, _: replace(shown, nonce=bytes(32)), "another sum share"),
    "another set": (lambda shown, _: replace(shown, agreed=bytes(32)), "another set"),
    "another's": (lambda _, session: replace(session.said[3], aggregator=2), "another sum share"),
    "pledges left out": (lambda shown, _: replace(shown, pledges=shown.pledges[:2]), "pledge of a1, a2, a3"),
    "no aggregator": (lambda shown, _: replace(shown, aggregator=7), "not its own"),
    "too short": (lambda shown, _: replace(shown, length=23), "has 23 bytes, not 24"),
    "too long": (lambda shown, _: replace(shown, length=25), "has 25 bytes, not 24"),
}


@pytest.mark.parametrize("name", SHARES)
def test_a_sum_share_other_than_the_one_committed_to_is_found_out(name: str) -> None:
    """An aggregator that reveals another sum share, or that of another set, is named; its true one still opens."""
    session = gathering("SumShare")
    change, problem = SHARES[name]
    refused(session, 2, change(session.said[2], session), problem)
    session.server.inspect(session.context.index_of(2), session.disk[2]["sum"])
    assert (
        session.server.vector_bytes(session.context.index_of(2))
        == session.said[2].length
        == len(session.disk[2]["sum"])
        == 24
    )
    goes_on(session, "SumShare")
