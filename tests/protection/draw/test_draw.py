"""The draw: nobody chooses it, whoever does not reveal ends it by name, and anybody can check it afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import ProtocolViolation, SessionAborted
from secagg.protection import LocalParty, SessionContext
from secagg.protection.draw import (
    DRAW,
    AwaitingCommitments,
    Commitments,
    Draw,
    DrawAwaited,
    Drawn,
    NonceCommitment,
    NonceCommitted,
    NonceReveal,
    check_draw,
    denies_reveal,
    seed_of,
)
from secagg.protection.interface import quorum_of
from secagg.protection.messages import Attachment, RoundOpening
from secagg.randomness import OperatingSystem
from secagg.session.rounds import outcome_of_draw
from tests.worlds.rosters import identity
from tests.worlds.setups import make_setup

PLAN: dict[str, Any] = {"method": "fedavg", "parameters": (("rounds", 4),), "epsilon": float("inf"), "cohort": 4}
EVERYBODY = (1, 2, 3, 4, 5, 6)


@pytest.fixture(scope="module")
def context() -> SessionContext:
    """Six members, of whom one may collude: four must take part."""
    return make_setup(6, delta=None, adjacency=None, dropouts=1, colluders=1, **PLAN).context


def party(member: int) -> LocalParty:
    """A member with fresh nonces."""
    return LocalParty(member, identity(member), OperatingSystem())


def committed(context: SessionContext, *members: int) -> tuple[dict[int, Any], AwaitingCommitments]:
    """The members' first states, and the server that has their commitments."""
    server, states = AwaitingCommitments(context), {}
    for member in members:
        begun = DRAW.client.begin(context, party(member))
        states[member] = begun.state
        server.accept(member, begun.outgoing)
    return states, server


def drawn(context: SessionContext, *members: int) -> Draw:
    """A draw from beginning to end, which every member checks."""
    states, server = committed(context, *members)
    reveals, shown = server.close()
    for member, state in states.items():
        following = state.advance(context, party(member), shown[member])
        states[member] = following.state
        reveals.accept(member, following.outgoing)
    end, told = reveals.close()
    for member, state in states.items():
        assert state.advance(context, party(member), told[member]).state.seed == end.seed
    return end.draw


def test_members_and_server_have_one_seed(context: SessionContext) -> None:
    """Four of six draw; the others can check it by plan and roster alone; another draw has another seed."""
    draw = drawn(context, 1, 2, 4, 6)
    assert draw.members == (1, 2, 4, 6)
    assert check_draw(context, draw) != check_draw(context, drawn(context, 1, 2, 4, 6))


def test_every_nonce_counts(context: SessionContext) -> None:
    """The seed changes with each nonce, with who took part, and with the plan."""
    draw = drawn(context, *EVERYBODY)
    seeds = {seed_of(context, draw), seed_of(replace(context, round_digest=bytes(32)), draw)}
    for place, reveal in enumerate(draw.reveals):
        other = replace(reveal, nonce=bytes(32))
        seeds.add(seed_of(context, replace(draw, reveals=(*draw.reveals[:place], other, *draw.reveals[place + 1 :]))))
    assert len(seeds) == 2 + len(EVERYBODY)


def test_a_signature_made_anew_changes_nothing(context: SessionContext) -> None:
    """Who reveals last cannot choose among its signatures: none is in the seed."""
    draw = drawn(context, *EVERYBODY)
    last = replace(draw.reveals[-1], signature=bytes(64))
    assert seed_of(context, replace(draw, reveals=(*draw.reveals[:-1], last))) == seed_of(context, draw)


def test_too_few_members_draw_nothing(context: SessionContext) -> None:
    """Three of six could be another three's rivals: 2·3 is not above 6 + 1."""
    assert quorum_of(context) == 4
    _, server = committed(context, 1, 2, 3)
    with pytest.raises(SessionAborted, match="only 3 members came to the draw; at least 4"):
        server.close()


def test_who_does_not_reveal_is_named(context: SessionContext) -> None:
    """The draw ends, and does not go on without the one that has seen what the others revealed."""
    states, server = committed(context, 1, 2, 3, 4, 5)
    reveals, shown = server.close()
    for member in (1, 2, 4, 5):
        reveals.accept(member, states[member].advance(context, party(member), shown[member]).outgoing)
    assert not reveals.complete
    with pytest.raises(SessionAborted, match="the server has no reveal of client-3: the draw is void"):
        reveals.close()


def test_who_reveals_another_nonce_is_named(context: SessionContext) -> None:
    """It has signed both the commitment and the nonce: the violation is its own."""
    states, server = committed(context, 1, 2, 3, 4)
    reveals, shown = server.close()
    for member in (1, 2, 3, 4):
        state = states[member]
        state = replace(state, nonce=bytes(32)) if member == 3 else state
        reveals.accept(member, state.advance(context, party(member), shown[member]).outgoing)
    with pytest.raises(ProtocolViolation, match="another nonce than it had committed to") as refusal:
        reveals.close()
    assert refusal.value.culprit == 3


def test_in_anothers_name_nothing_is_taken(context: SessionContext) -> None:
    """A commitment or a nonce that its sender did not sign for this draw is refused, and the draw goes on."""
    states, server = committed(context, 1, 2, 3)
    other = NonceCommitment.of(context, 4, identity(5), bytes(32))
    foreign = NonceCommitment.of(replace(context, session_id=bytes(32)), 4, identity(4), bytes(32))
    for wrong in (other, foreign, states[1].entry):
        with pytest.raises(ProtocolViolation, match="commits to a nonce in another name"):
            server.accept(4, wrong)
    states |= committed(context, 4)[0]
    server.accept(4, states[4].entry)
    reveals, shown = server.close()
    for wrong in (
        NonceReveal.of(context, 4, identity(5), states[4].nonce, shown[4].digest),
        NonceReveal.of(context, 4, identity(4), states[4].nonce, bytes(32)),
        NonceReveal.of(context, 3, identity(3), states[3].nonce, shown[4].digest),
    ):
        with pytest.raises(ProtocolViolation, match="reveals a nonce in another name"):
            reveals.accept(4, wrong)


def without(place: int) -> Callable[[Commitments], Commitments]:
    """The list without an entry."""
    return lambda shown: Commitments(shown.entries[:place] + shown.entries[place + 1 :])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without(0), "do not hold this member's own"),
        (lambda shown: Commitments(shown.entries[:3]), "draws with 3 members"),
        (
            lambda shown: Commitments((*shown.entries[:3], replace(shown.entries[3], commitment=bytes(32)))),
            "member 4 did not sign",
        ),
    ],
)
def test_a_list_that_is_not_theirs_gets_no_nonce(
    context: SessionContext, change: Callable[[Commitments], Commitments], words: str
) -> None:
    """A member reveals for a list that holds its own commitment and enough others', all signed."""
    states, server = committed(context, 1, 2, 3, 4)
    _, shown = server.close()
    with pytest.raises(ProtocolViolation, match=words) as refusal:
        states[1].advance(context, party(1), change(shown[1]))
    assert refusal.value.culprit == SERVER_INDEX


def test_a_member_follows_the_list_that_it_signed(context: SessionContext) -> None:
    """Two draws of one plan, both complete: whoever revealed for one of them refuses the other."""
    state = committed(context, 1, 2, 3, 4)[0][1]
    assert isinstance(state, NonceCommitted)
    shown = committed(context, 1, 2, 3, 4)[1].close()[1][1]
    shown = Commitments((state.entry, *shown.entries[1:]))
    revealed = state.advance(context, party(1), shown).state
    with pytest.raises(ProtocolViolation, match="other commitments than it has shown"):
        revealed.advance(context, party(1), drawn(context, 1, 2, 3, 4))


@pytest.mark.parametrize(
    ("change", "words", "culprit"),
    [
        (lambda draw: replace(draw, reveals=draw.reveals[:-1]), "without the nonces of all", SERVER_INDEX),
        (
            lambda draw: replace(draw, reveals=(replace(draw.reveals[0], nonce=bytes(32)), *draw.reveals[1:])),
            "a nonce that member 1 did not sign",
            SERVER_INDEX,
        ),
        (
            lambda draw: Draw(Commitments(draw.commitments.entries[:4]), draw.reveals[:4]),
            "a nonce that member 1 did not sign",
            SERVER_INDEX,
        ),
        (lambda draw: Draw(Commitments(draw.commitments.entries[:3]), draw.reveals[:3]), "with 3 members", 0),
    ],
)
def test_a_changed_draw_is_found_out(
    context: SessionContext, change: Callable[[Draw], Draw], words: str, culprit: int
) -> None:
    """Without a nonce, with another one, or of fewer members than have revealed for it: plan and roster tell."""
    with pytest.raises(ProtocolViolation, match=words) as refusal:
        check_draw(context, change(drawn(context, *EVERYBODY)))
    assert refusal.value.culprit == culprit


def test_a_draw_that_ends_with_another_seed_is_refused(context: SessionContext) -> None:
    """The end of a draw names the seed that its nonces give: members and helpers refuse any other."""
    draw = drawn(context, 1, 2, 3, 4)
    seed = seed_of(context, draw)
    state = DrawAwaited().advance(context, party(1), draw).state
    assert state.advance(context, party(1), outcome_of_draw((1, 2, 3, 4), seed)).state == state
    for other in (bytes(32), seed[::-1], bytes([seed[0] ^ 1]) + seed[1:]):
        with pytest.raises(ProtocolViolation, match="another seed than its nonces give") as refusal:
            state.advance(context, party(1), outcome_of_draw((1, 2, 3, 4), other))
        assert refusal.value.culprit == SERVER_INDEX


@pytest.mark.parametrize("other", [bytes([1, *bytes(31)]), bytes([*bytes(31), 1])], ids=["first bit", "last bit"])
@pytest.mark.parametrize("number", [1, 2])
def test_every_round_is_bound_to_the_seed(number: int, other: bytes) -> None:
    """Two draws of one plan lead to sessions of which neither takes the other's frames, in each round's cohort."""
    setup = make_setup(6, delta=None, adjacency=None, dropouts=1, colluders=1, **PLAN)
    first, second = (setup.seeded(seed) for seed in (bytes(32), other))
    if number == 2:
        opening = RoundOpening(2, bytes(32), bytes(32), Attachment(1, bytes(32)))
        first, second = (each.at(replace(opening, previous=each.context.round_digest)) for each in (first, second))
    assert first.context.round_digest != second.context.round_digest
    assert first.context.session_id != second.context.session_id


def test_a_nonce_is_in_no_repr(context: SessionContext) -> None:
    """Before it is revealed a nonce shows in no log."""
    state = committed(context, 1)[0][1]
    assert state.nonce.hex() not in repr(state)
    assert repr(state.nonce) not in repr(state)


def test_a_draw_opens_nothing(context: SessionContext) -> None:
    """There are no vectors in it, whatever the plan's protection."""
    assert Drawn(drawn(context, *EVERYBODY), bytes(32)).vectors == ()


@pytest.mark.parametrize(
    ("reason", "is_denied"),
    [
        ("the server has no reveal of client-1: the draw is void", True),
        ("the server has no reveal of client-3, client-1: the draw is void", True),
        ("the server has no reveal of client-12: the draw is void", False),
        ("only 2 members came to the draw; client-1 did not", False),
        ("the server has no reveal of client-3, client-1", False),  # cut off: it may be the beginning of client-12
        ("the server has no reveal of client-1, client-3", True),
    ],
)
def test_whose_reveal_a_server_denies(reason: str, is_denied: bool) -> None:
    """A member is denied its reveal where the reason has its whole name, among those whose reveals are missing."""
    assert denies_reveal(reason, "client-1") == is_denied
