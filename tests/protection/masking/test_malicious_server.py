"""A server that shows a client anything but the truth is refused and named, and gets no answer."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.envelopes import EnvelopeKey
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.messages import Directory, Inbox, KeyAdvertisement
from secagg.wire import decode, encode
from tests.protection.masking.tampering import is_refused, refused_as, variants
from tests.protection.rehearsal import SHOWN, Rehearsal, context_for
from tests.worlds.rosters import identity

VICTIM = 1
ALL = (1, 2, 3, 4, 5)
Attack = Callable[[Rehearsal, Any], Any]


def session_at(shown: str, *, plan: bytes = b"plan", seed: bytes = b"") -> Rehearsal:
    """A session of five (t = 4, c = 1, D = 1) whose server has prepared its message of this class."""
    return Rehearsal(context_for(5, colluders=1, dropouts=1, plan=plan), seed=seed).until_shown(shown)


@pytest.mark.parametrize("shown", SHOWN)
def test_every_small_change_is_refused(shown: str) -> None:
    """Each field changed, each item gone, twice or moved in a server's message is refused with the server named."""
    session = session_at(shown)
    message = session.inbox[VICTIM]
    before = session.states[VICTIM], dict(session.outbox)
    changes = [*variants(message)]
    assert len(changes) > 5
    for name, changed in changes:
        if shown == "Survivors" and changed.members == message.members:
            continue  # one client cannot tell another digest of the sum: others do not endorse it
        assert is_refused(SERVER_INDEX, session.show, VICTIM, changed), name
    assert (session.states[VICTIM], session.outbox) == before


@pytest.mark.parametrize("shown", ["Directory", "Inbox", "Quorum"])
def test_messages_of_another_session_are_refused(shown: str) -> None:
    """The same step's message of an earlier session, or of one under another plan, is refused."""
    for other in (session_at(shown, seed=b"earlier"), session_at(shown, plan=b"another")):
        session = session_at(shown)
        assert is_refused(SERVER_INDEX, session.show, VICTIM, other.inbox[VICTIM])


@pytest.mark.parametrize("shown", SHOWN)
def test_messages_out_of_order_are_refused(shown: str) -> None:
    """At each step the bytes of every other step's message are refused, and so are truncated and longer ones."""
    messages: dict[str, bytes] = {}
    for name in SHOWN:
        messages[name] = encode(session_at(name).inbox[VICTIM])
    session = session_at(shown)
    state, me = session.states[VICTIM], session.parties[VICTIM]
    wrong = [data for name, data in messages.items() if name != shown]
    right = messages[shown]
    wrong += [right[: len(right) // 2], right[:-1], right + b"\0", right + right, b""]
    for data in wrong:
        assert is_refused(
            SERVER_INDEX, lambda data: state.advance(session.context, me, decode(state.awaits, data)), data
        )


def test_messages_for_another_member_are_refused() -> None:
    """The inbox of one client is refused by every other."""
    session = session_at("Inbox")
    refused_as(SERVER_INDEX, "exactly one share|did not sign", session.show, 1, session.inbox[2])


def entry_of(session: Rehearsal, member: int, **changed: Any) -> KeyAdvertisement:
    """An advertisement that its owner signs again after the change."""
    entry = next(each for each in session.inbox[VICTIM].entries if each.member == member)
    return bind.sign_advertisement(session.context, identity(member), replace(entry, **changed))


def swapped(directory: Directory, entry: KeyAdvertisement) -> Directory:
    """The directory with one member's entry replaced."""
    return Directory(tuple(entry if each.member == entry.member else each for each in directory.entries))


OWN = {"channel_key": EnvelopeKey.from_bytes(bytes(32)).public, "mask_key": bytes(range(32))}
OWN["seed_commitment"] = OWN["nonce"] = bytes(range(32))
"""What the server puts in place of a client's."""


def key_swapped(name: str) -> Attack:
    """Replace another client's key by one of the server's."""
    return lambda session, shown: swapped(shown, replace(shown.entries[2], **{name: OWN[name]}))


def fresh_own_keys(session: Rehearsal, shown: Directory) -> Directory:
    """The victim's own entry with other keys, even if its signature were good."""
    return swapped(shown, entry_of(session, VICTIM, channel_key=OWN["channel_key"]))


DIRECTORIES: dict[str, tuple[str, Attack]] = {
    "without_the_client": ("own keys", lambda _, shown: Directory(shown.entries[1:])),
    "own_keys_swapped": ("own keys", fresh_own_keys),
    "channel_key_swapped": ("member 3 are not signed", key_swapped("channel_key")),
    "mask_key_swapped": ("member 3 are not signed", key_swapped("mask_key")),
    "commitment_swapped": ("member 3 are not signed", key_swapped("seed_commitment")),
    "nonce_swapped": ("member 3 are not signed", key_swapped("nonce")),
    "entry_under_another_member": (
        "member 4 are not signed",
        lambda _, shown: Directory((*shown.entries[:2], replace(shown.entries[2], member=4), shown.entries[4])),
    ),
    "too_few": ("only 3 clients", lambda _, shown: Directory(shown.entries[:3])),
    "two_clients_with_one_mask_key": (
        "same key twice",
        lambda session, shown: swapped(shown, entry_of(session, 3, mask_key=shown.entries[3].mask_key)),
    ),
    "the_clients_own_key_copied": (
        "same key twice",
        lambda session, shown: swapped(shown, entry_of(session, 3, channel_key=shown.entries[0].channel_key)),
    ),
    "a_stranger": (
        "member 6 are not signed",
        lambda session, shown: Directory(
            (
                *shown.entries,
                bind.sign_advertisement(
                    session.context,
                    identity(6),
                    KeyAdvertisement(6, OWN["channel_key"], b"b" * 32, bytes(32), bytes(32), bytes(64)),
                ),
            )
        ),
    ),
}


@pytest.mark.parametrize("attack", DIRECTORIES)
def test_false_directories_are_refused(attack: str) -> None:
    """Swapped, copied, missing, strange or too few keys are refused before any share is dealt."""
    problem, change = DIRECTORIES[attack]
    session = session_at("Directory")
    refused_as(SERVER_INDEX, problem, session.show, VICTIM, change(session, session.inbox[VICTIM]))
    assert VICTIM not in session.outbox


def test_keys_signed_for_another_plan_are_refused() -> None:
    """A directory of keys that the others signed for another plan is refused, though it holds the client's own."""
    session, other = session_at("Directory"), session_at("Directory", plan=b"another")
    own = session.inbox[VICTIM].entries[0]
    mixed = Directory((own, *other.inbox[VICTIM].entries[1:]))
    refused_as(SERVER_INDEX, "member 2 are not signed", session.show, VICTIM, mixed)


def test_channel_keys_of_small_order_name_their_owner() -> None:
    """A client that is to seal shares to a key of small order stops and names the peer that signed it."""
    session = session_at("Directory")
    directory = swapped(session.inbox[VICTIM], entry_of(session, 3, channel_key=OWN["channel_key"][:-32] + bytes(32)))
    refused_as(3, "small order", session.show, VICTIM, directory)


def test_mask_keys_of_small_order_name_their_owner() -> None:
    """A client that is to mask with a key of small order uploads nothing and names the peer that signed it."""
    session = session_at("Directory")
    entry = entry_of(session, 3, mask_key=bytes(32))
    session.states[3] = replace(session.states[3], advertisement=entry)
    directory = swapped(session.inbox[VICTIM], entry)
    for member in ALL:
        session.show(member, directory)
    dealt = [share for dealing in session.outbox.values() for share in dealing.shares if share.holder == VICTIM]
    refused_as(3, "small order", session.show, VICTIM, Inbox(ALL, tuple(dealt)))
    assert VICTIM not in session.uploads


def resealed(session: Rehearsal, inbox: Inbox, signer: int, **changed: Any) -> Inbox:
    """The inbox whose first envelope is changed and signed by `signer`."""
    directory = session.states[VICTIM].directory.digest
    binding = bind.session_binding(session.context, directory)
    first = bind.sign_sealed_share(identity(signer), binding, replace(inbox.shares[0], **changed))
    return replace(inbox, shares=(first, *inbox.shares[1:]))


INBOXES: dict[str, tuple[str, Attack]] = {
    "without_the_client": ("subset of the directory", lambda _, shown: replace(shown, dealers=shown.dealers[1:])),
    "dealer_outside_the_directory": (
        "subset of the directory",
        lambda _, shown: replace(shown, dealers=(*shown.dealers, 6)),
    ),
    "too_few_dealers": (
        "only 3 clients dealt",
        lambda _, shown: Inbox(shown.dealers[:3], shown.shares[:2]),
    ),
    "share_withheld": ("exactly one share", lambda _, shown: replace(shown, shares=shown.shares[1:])),
    "share_of_no_dealer": ("exactly one share", lambda _, shown: replace(shown, dealers=(1, 2, 3, 4))),
    "share_unsigned": (
        "member 2 did not sign",
        lambda _, shown: replace(shown, shares=(replace(shown.shares[0], signature=bytes(64)), *shown.shares[1:])),
    ),
    "share_signed_by_the_server": (
        "member 2 did not sign",
        lambda session, shown: resealed(session, shown, 5, seed_hash=bytes(32)),
    ),
    "share_of_another_dealer": (
        "member 2 did not sign",
        lambda _, shown: replace(shown, shares=(replace(shown.shares[1], dealer=2), *shown.shares[1:])),
    ),
    "share_for_another_holder": (
        "did not sign for this client",
        lambda session, shown: replace(shown, shares=(session.inbox[3].shares[1], *shown.shares[1:])),
    ),
    "share_signed_for_another_holder": (
        "did not sign for this client",
        lambda session, shown: resealed(session, shown, 2, holder=3),
    ),
}


@pytest.mark.parametrize("attack", INBOXES)
def test_false_inboxes_are_refused(attack: str) -> None:
    """Withheld, strange, unsigned or misdirected shares are the server's fault, not the dealer's."""
    problem, change = INBOXES[attack]
    session = session_at("Inbox")
    refused_as(SERVER_INDEX, problem, session.show, VICTIM, change(session, session.inbox[VICTIM]))
    assert VICTIM not in session.uploads
