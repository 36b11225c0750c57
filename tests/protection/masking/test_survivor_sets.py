"""A server that lies about who survived gets no signature, or no share."""

from dataclasses import replace

import pytest

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import MalformedMessage
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.client import Opened
from secagg.protection.masking.messages import Endorsement, Quorum, Survivors
from secagg.protection.messages import Outcome
from tests.protection.masking.tampering import refused_as
from tests.protection.rehearsal import Rehearsal, context_for
from tests.worlds.rosters import identity

VICTIM = 1
ALL = (1, 2, 3, 4, 5)
TOTAL = bytes(32)


def session_at(shown: str) -> Rehearsal:
    """A session of five (t = 4, c = 1, D = 1) whose server has prepared its message of this class."""
    return Rehearsal(context_for(5, colluders=1, dropouts=1)).until_shown(shown)


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ((2, 3, 4, 5), "subset of the dealers"),
        ((1, 2, 3, 6), "subset of the dealers"),
        ((1, 2, 3), "open the sum of 3 clients; 4 is the least"),
        ((1,), "open the sum of 1 clients; 4 is the least"),
    ],
)
def test_false_survivor_sets_are_not_signed(members: tuple[int, ...], problem: str) -> None:
    """A set without the client, with a non-dealer, or below the least number of survivors gets no signature."""
    session = session_at("Survivors")
    refused_as(SERVER_INDEX, problem, session.show, VICTIM, Survivors(members, TOTAL))
    assert VICTIM not in session.outbox


def test_plans_minimum_binds_the_client_too() -> None:
    """A survivor set below the plan's minimum of clients gets no signature though t signatures would exist."""
    session = Rehearsal(context_for(6, dropouts=1, min_clients_in_sum=5)).until_shown("Survivors")
    refused_as(SERVER_INDEX, "5 is the least", session.show, VICTIM, Survivors((1, 2, 3, 4), TOTAL))


def test_dealers_that_never_dealt_cannot_survive() -> None:
    """A client of the directory that did not deal is no possible survivor."""
    session = Rehearsal(context_for(5, colluders=1, dropouts=1)).until_said("Dealing")
    session.leave(5)
    session.until_shown("Survivors")
    refused_as(SERVER_INDEX, "subset of the dealers", session.show, VICTIM, Survivors((1, 2, 3, 4, 5), TOTAL))


def endorsements(session: Rehearsal, signers: tuple[int, ...], survivors: tuple[int, ...]) -> tuple[Endorsement, ...]:
    """What willing signers would say of any survivor set of this session."""
    state = session.states[VICTIM]
    parts = bind.endorsement_parts(session.context, state.directory, state.dealers, survivors, state.total)
    return tuple(Endorsement(member, identity(member).sign("survivors", *parts)) for member in signers)


QUORUMS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "another_survivor_set": ("signature of member 1 on another set", (1, 2, 3, 4), (1, 2, 3, 4)),
    "too_few": ("shows 3 of the 4 signatures", (1, 2, 3), ALL),
    "of_a_stranger": ("member 6, which did not survive", (1, 2, 3, 6), ALL),
}


@pytest.mark.parametrize("attack", QUORUMS)
def test_false_quorums_open_nothing(attack: str) -> None:
    """Signatures on another set, too few, or of a stranger do not move a client to open a share."""
    problem, signers, survivors = QUORUMS[attack]
    session = session_at("Quorum")
    shown = Quorum(endorsements(session, signers, survivors))
    refused_as(SERVER_INDEX, problem, session.show, VICTIM, shown)
    assert VICTIM not in session.outbox


def test_non_survivors_do_not_count() -> None:
    """A dropped client's signature on the right set is not counted."""
    session = Rehearsal(context_for(5, colluders=1, dropouts=1)).until_said("UploadHeader")
    session.leave(5)
    session.until_shown("Quorum")
    shown = Quorum(endorsements(session, (1, 2, 3, 5), (1, 2, 3, 4)))
    refused_as(SERVER_INDEX, "member 5, which did not survive", session.show, VICTIM, shown)


def test_signatures_count_once() -> None:
    """One endorsement shown four times is no quorum."""
    session = session_at("Quorum")
    (one,) = endorsements(session, (2,), ALL)
    with pytest.raises(MalformedMessage):
        session.show(VICTIM, Quorum((one, one, one, one)))
    names = tuple(replace(one, member=member) for member in (1, 2, 3, 4))
    refused_as(SERVER_INDEX, "signature of member 1", session.show, VICTIM, Quorum(names))


@pytest.mark.parametrize("changed", ["round_digest", "session_id", "roster"])
def test_quorums_are_of_one_session(changed: str) -> None:
    """Signatures over another plan, session identifier or roster do not count."""
    session = session_at("Quorum")
    state = session.states[VICTIM]
    elsewhere = replace(session.context, **{changed: bytes(32)})
    parts = bind.endorsement_parts(elsewhere, state.directory, state.dealers, ALL, state.total)
    shown = Quorum(tuple(Endorsement(m, identity(m).sign("survivors", *parts)) for m in (1, 2, 3, 4)))
    refused_as(SERVER_INDEX, "signature of member 1", session.show, VICTIM, shown)


def test_two_survivor_sets_never_both_open() -> None:
    """A server that shows two sets, with one colluder signing both, finds at most one quorum among the clients."""
    session = session_at("Survivors")
    sets = {1: ALL, 2: ALL, 3: (2, 3, 4, 5), 4: (2, 3, 4, 5)}
    for member, survivors in sets.items():
        session.show(member, Survivors(survivors, TOTAL))
    colluder = 5
    for member, survivors in sets.items():
        same = [other for other, seen in sets.items() if seen == survivors]
        shown = Quorum(endorsements(session, (*same, colluder), survivors))
        refused_as(SERVER_INDEX, "shows 3 of the 4 signatures", session.show, member, shown)
        assert not isinstance(session.states[member], Opened)


def test_a_second_survivor_set_is_never_signed() -> None:
    """A client that has signed one set takes no other: neither does its state know how, nor do the bytes pass."""
    session = session_at("Survivors")
    session.show(VICTIM, Survivors(ALL, TOTAL))
    signed = session.outbox[VICTIM]
    with pytest.raises(MalformedMessage):
        session.show(VICTIM, Survivors((1, 2, 3, 4), TOTAL))
    assert session.outbox[VICTIM] == signed


def test_no_client_opens_both_shares_of_a_dealer() -> None:
    """An opening holds one share of each dealer: of a survivor's seed, of a dropped client's key; then all is gone."""
    session = Rehearsal(context_for(5, colluders=1, dropouts=1)).until_said("UploadHeader")
    session.leave(5)
    session.until_shown("Quorum")
    quorum = session.inbox[VICTIM]
    session.show(VICTIM, quorum)
    opening = session.outbox[VICTIM]
    assert [each.dealer for each in opening.seed_shares] == [1, 2, 3, 4]
    assert [each.dealer for each in opening.key_shares] == [5]
    assert not hasattr(session.states[VICTIM], "held")
    with pytest.raises(MalformedMessage):
        session.show(VICTIM, quorum)


@pytest.mark.parametrize("members", [(1, 2, 3, 4), (2, 3, 4, 5), (1,)])
def test_outcomes_of_another_set_are_refused(members: tuple[int, ...]) -> None:
    """The outcome must name exactly the set that this client helped to open."""
    session = session_at("Quorum")
    session.answer()
    outcome = Outcome(members, bytes(32), bytes(32))
    refused_as(SERVER_INDEX, "other clients", session.show, VICTIM, outcome)


def test_outcomes_without_the_client_are_refused_without_protection() -> None:
    """A client whose plain vector was left out of the sum says so."""
    session = Rehearsal(context_for(3), "none")
    refused_as(SERVER_INDEX, "leaves this client out", session.show, 1, Outcome((2, 3), bytes(32), bytes(32)))
