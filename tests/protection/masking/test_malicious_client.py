"""A client that says anything but the truth is refused and named, and the session goes on as if it had not spoken."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from secagg.errors import ProtocolViolation
from secagg.protection.interface import CollectingStep
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.messages import Endorsement, OpenedShare, Opening
from secagg.wire import decode, encode
from tests.protection.masking.tampering import is_refused, refused_as, variants
from tests.protection.rehearsal import SENT, Rehearsal, context_for
from tests.worlds.rosters import identity

LIAR = 2
Change = Callable[[Rehearsal, Any], Any]


def session_at(sent: str, *, plan: bytes = b"plan", seed: bytes = b"") -> Rehearsal:
    """A session of five (t = 4, c = 1, D = 1) whose clients have this message ready; from the upload on without c5."""
    session = Rehearsal(context_for(5, colluders=1, dropouts=1, plan=plan), seed=seed)
    if SENT.index(sent) > SENT.index("UploadHeader"):
        session.until_said("UploadHeader")
        session.leave(5)
    return session.until_said(sent)


def ends_well(session: Rehearsal) -> None:
    """Play on with what the clients have honestly said."""
    members, total = session.finish()
    assert total == session.expected(members)
    assert LIAR in members


@pytest.mark.parametrize("sent", SENT)
def test_every_small_change_is_refused(sent: str) -> None:
    """Each field changed, each item gone, twice or moved is refused with the sender named, and leaves no trace."""
    session = session_at(sent)
    honest = session.outbox[LIAR]
    # An upload's digest is checked against its bytes by whoever receives them; its complaints have tests of their own.
    changes = [(name, changed) for name, changed in variants(honest) if ".digest" not in name]
    assert len(changes) >= 4
    for name, changed in changes:
        assert is_refused(2, session.deliver, LIAR, changed), name
    ends_well(session)


@pytest.mark.parametrize("sent", [name for name in SENT if name != "UploadHeader"])
def test_messages_of_another_member_are_refused(sent: str) -> None:
    """What another client has honestly said is refused from this one, who is named, and still counts from its owner."""
    session = session_at(sent)
    assert is_refused(2, session.deliver, LIAR, session.outbox[3])
    ends_well(session)


@pytest.mark.parametrize("sent", SENT)
def test_messages_of_another_session_are_refused(sent: str) -> None:
    """What the same client said in a session under another plan is refused."""
    session, other = session_at(sent), session_at(sent, plan=b"another", seed=b"another")
    assert is_refused(2, session.deliver, LIAR, other.outbox[LIAR])
    ends_well(session)


@pytest.mark.parametrize("sent", SENT[1:])
def test_messages_of_an_earlier_run_are_refused(sent: str) -> None:
    """Even under the very same plan, messages that belong to another directory are refused."""
    session, earlier = session_at(sent), session_at(sent, seed=b"earlier")
    assert is_refused(2, session.deliver, LIAR, earlier.outbox[LIAR])
    ends_well(session)


@pytest.mark.parametrize("sent", SENT)
def test_repeated_messages_change_nothing(sent: str) -> None:
    """The same message again is taken silently; a second, different one is refused with the sender named."""
    session = session_at(sent)
    honest = session.outbox[LIAR]
    session.deliver(LIAR, honest)
    session.deliver(LIAR, honest)
    for _, changed in variants(honest):
        assert is_refused(2, session.deliver, LIAR, changed)
    ends_well(session)


@pytest.mark.parametrize("sent", SENT)
def test_messages_out_of_order_are_refused(sent: str) -> None:
    """At each step the bytes of every other step's message are refused, and so are truncated and longer ones."""
    session = session_at(sent)
    right = encode(session.outbox[LIAR])
    wrong = [encode(session_at(name).outbox[LIAR]) for name in SENT if name != sent]
    wrong += [right[: len(right) // 2], right[:-1], right + b"\0", right + right, b""]
    for data in wrong:
        assert is_refused(2, lambda data: session.server.accept(LIAR, decode(session.server.awaits, data)), data)
    ends_well(session)


@pytest.mark.parametrize("sent", SENT)
def test_strangers_are_refused(sent: str) -> None:
    """A member that the step does not expect is refused, whatever it says."""
    session = session_at(sent)
    refused_as(6, "not expected", session.deliver, 6, session.outbox[LIAR])
    ends_well(session)


@pytest.mark.parametrize("sent", SENT[1:4])
def test_latecomers_are_refused(sent: str) -> None:
    """Who left out a step is not expected at the next one."""
    session = Rehearsal(context_for(5, dropouts=1)).until_said(SENT[SENT.index(sent) - 1])
    session.outbox.pop(LIAR)
    session.until_said(sent)
    refused_as(2, "not expected", session.deliver, LIAR, session.outbox[3])


def re_signed(**changed: Any) -> Change:
    """An advertisement whose owner signs again after the change."""
    return lambda session, sent: bind.sign_advertisement(session.context, identity(LIAR), replace(sent, **changed))


def spoilt_channel_key(point: bytes) -> Change:
    """A channel key with another X25519 half."""
    return lambda session, sent: re_signed(channel_key=sent.channel_key[:-32] + point)(session, sent)


OVER = b"\xff" * 1184 + (9).to_bytes(32, "little")
"""No key of ML-KEM-768: its coefficients are not reduced."""

ADVERTISEMENTS: dict[str, tuple[str, Change]] = {
    "channel_key_of_small_order": ("small order", spoilt_channel_key(bytes(32))),
    "channel_key_above_the_modulus": ("small order", re_signed(channel_key=OVER)),
    "mask_key_of_small_order": ("small order", re_signed(mask_key=bytes([1]) + bytes(31))),
    "channel_key_not_canonical": ("not canonical", spoilt_channel_key((2**255 - 10).to_bytes(32, "little"))),
    "mask_key_with_the_unused_bit": ("not canonical", re_signed(mask_key=bytes([9] + [0] * 30 + [128]))),
    "mask_key_of_another": (
        "twice",
        lambda session, sent: re_signed(mask_key=session.outbox[1].mask_key)(session, sent),
    ),
    "channel_key_of_another": (
        "twice",
        lambda session, sent: re_signed(channel_key=session.outbox[1].channel_key)(session, sent),
    ),
    "in_another_members_name": ("not signed", re_signed(member=3)),
}


@pytest.mark.parametrize("attack", ADVERTISEMENTS)
def test_unusable_keys_are_refused_at_the_door(attack: str) -> None:
    """Keys of small order, used twice or copied never reach the directory, where they would stop everyone."""
    problem, change = ADVERTISEMENTS[attack]
    session = session_at("KeyAdvertisement")
    session.deliver(1, session.outbox[1])
    refused_as(2, problem, session.deliver, LIAR, change(session, session.outbox[LIAR]))
    ends_well(session)


def test_endorsements_of_another_set_are_refused() -> None:
    """A signature on another survivor set than the one shown is refused."""
    session = session_at("Endorsement")
    state = session.states[LIAR]
    parts = bind.endorsement_parts(session.context, state.directory, state.dealers, (1, 2, 3, 4, 5), state.total)
    lie = Endorsement(LIAR, identity(LIAR).sign("survivors", *parts))
    refused_as(2, "did not sign the survivor set", session.deliver, LIAR, lie)
    ends_well(session)


@pytest.mark.parametrize("complaints", [(LIAR,), (6,), (4096,), (5,)], ids=["itself", "stranger", "far", "absent"])
def test_complaints_about_no_dealer_are_refused(complaints: tuple[int, ...]) -> None:
    """A complaint about oneself, a stranger or a client that never dealt is refused with the complainer named."""
    session = Rehearsal(context_for(5, colluders=1, dropouts=1)).until_said("Dealing")
    session.leave(5)
    session.until_said("UploadHeader")
    lie = replace(session.outbox[LIAR], complaints=complaints)
    assert is_refused(2, session.deliver, LIAR, lie)
    ends_well(session)


def wrong_seed_share(session: Rehearsal, sent: Opening) -> Opening:
    """Another share of c3's seed."""
    return replace(sent, seed_shares=(*sent.seed_shares[:2], OpenedShare(3, bytes(33)), *sent.seed_shares[3:]))


def other_holders_shares(session: Rehearsal, sent: Opening) -> Opening:
    """What c3 opens: valid shares, but not this client's."""
    opening: Opening = session.outbox[3]
    return opening


OPENINGS: dict[str, tuple[str, Change]] = {
    "wrong_seed_share": ("wrong share of member 3's seed", wrong_seed_share),
    "wrong_key_share": (
        "wrong share of member 5's mask key",
        lambda _, sent: replace(sent, key_shares=(OpenedShare(5, bytes(33)),)),
    ),
    "shares_of_another_holder": ("wrong share of member 1's seed", other_holders_shares),
    "not_canonical": (
        "wrong share of member 1's seed",
        lambda _, sent: replace(sent, seed_shares=(OpenedShare(1, b"\xff" * 33), *sent.seed_shares[1:])),
    ),
    "one_withheld": ("exactly one share", lambda _, sent: replace(sent, seed_shares=sent.seed_shares[1:])),
    "all_withheld": ("exactly one share", lambda _, sent: Opening((), (), sent.tags)),
    "both_kinds_of_one_dealer": (
        "exactly one share",
        lambda _, sent: replace(sent, key_shares=(OpenedShare(3, bytes(33)), *sent.key_shares)),
    ),
    "other_kind_of_one_dealer": (
        "exactly one share",
        lambda _, sent: Opening(sent.seed_shares[1:], (OpenedShare(1, bytes(33)), *sent.key_shares), sent.tags),
    ),
    "tags_of_another_holder": (
        "did not sign the tags",
        lambda session, sent: replace(sent, tags=session.outbox[3].tags),
    ),
    "tags_renamed": ("did not sign the tags", lambda _, sent: replace(sent, tags=replace(sent.tags, member=3))),
    "tags_changed": ("did not sign the tags", lambda _, sent: replace(sent, tags=replace(sent.tags, tags=bytes(80)))),
    "tags_of_another_sum": (
        "did not sign the tags",
        lambda _, sent: replace(sent, tags=bind.sign_tags(identity(LIAR), LIAR, sent.tags.tags, (b"another",))),
    ),
    "share_of_a_stranger": (
        "exactly one share",
        lambda _, sent: replace(sent, key_shares=(*sent.key_shares, OpenedShare(6, bytes(33)))),
    ),
}


@pytest.mark.parametrize("attack", OPENINGS)
def test_wrong_openings_name_their_holder(attack: str) -> None:
    """A wrong, foreign, missing or superfluous share names its holder, and the rest still open the sum without it."""
    problem, change = OPENINGS[attack]
    session = Rehearsal(context_for(6, colluders=0, dropouts=2)).until_said("UploadHeader")
    session.leave(5)
    session.until_said("Opening")
    refused_as(2, problem, session.deliver, LIAR, change(session, session.outbox[LIAR]))
    session.outbox.pop(LIAR)
    members, total = session.finish()
    assert members == (1, 2, 3, 4, 6)
    assert total == session.expected(members)


@pytest.mark.parametrize("length", [1, 23, 25, 2**40])
@pytest.mark.parametrize("protection", ["masked", "none"])
def test_uploads_of_another_length_are_refused(protection: str, length: int) -> None:
    """An announced length other than the plan's is refused with the client named."""
    session = Rehearsal(context_for(5), protection).until_said("UploadHeader")
    lie = replace(session.outbox[LIAR], length=length)
    refused_as(2, f"uploads {length} bytes", session.deliver, LIAR, lie)
    ends_well(session)


def test_step_keeps_one_message_for_each() -> None:
    """A step knows repetitions, conflicts and strangers apart, checks each message once, and lists members in order."""
    checked = []

    class Step(CollectingStep):
        def check(self, member: int, incoming: Any) -> None:
            checked.append(member)

    step = Step((1, 2))
    step.accept(2, "a")
    step.accept(2, "a")
    with pytest.raises(ProtocolViolation, match="second, different str"):
        step.accept(2, "b")
    with pytest.raises(ProtocolViolation, match="not expected"):
        step.accept(3, "a")
    assert not step.complete
    step.accept(1, "c")
    assert (step.members, checked, step.complete) == ((1, 2), [2, 1], True)
