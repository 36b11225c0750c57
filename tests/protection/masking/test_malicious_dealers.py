"""Dealers of wrong shares are named: by their holders at once, or by what their shares recover."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from secagg.crypto.envelopes import Address, seal_envelope
from secagg.crypto.sharing import PRIME
from secagg.errors import SessionAborted
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.client import Advertised, _deal
from secagg.protection.masking.messages import Dealing
from tests.protection.masking.tampering import is_refused, refused_as
from tests.protection.rehearsal import Rehearsal, context_for
from tests.worlds.rosters import identity

DEALER, HOLDER = 2, 4
Shares = dict[int, bytes]


def session_with(change: Callable[[Advertised], Advertised]) -> Rehearsal:
    """A session of five (t = 3) in which the dealer goes on from another state than the one it announced."""
    session = Rehearsal(context_for(5, dropouts=2)).until_shown("Directory")
    session.states[DEALER] = change(session.states[DEALER])
    session.answer()
    return session


def envelope_changed(session: Rehearsal, **changed: Any) -> Dealing:
    """The dealer's honest dealing with one envelope changed and signed again."""
    dealing: Dealing = session.outbox[DEALER]
    binding = binding_of(session)
    shares = tuple(
        bind.sign_sealed_share(identity(DEALER), binding, replace(envelope, **changed))
        if envelope.holder == HOLDER
        else envelope
        for envelope in dealing.shares
    )
    return replace(dealing, shares=shares)


def binding_of(session: Rehearsal) -> bytes:
    """The binding of the session's keys."""
    return bind.session_binding(session.context, session.states[DEALER].directory.digest)


def sealed_as(session: Rehearsal, plain: bytes, to: int = HOLDER, **changed: Any) -> bytes:
    """Any plain text in an envelope to one holder's key, addressed as the protocol does but for what is changed."""
    entries = {entry.member: entry for entry in session.states[DEALER].directory.entries}
    address = replace(Address(binding_of(session), "Dealing", DEALER, HOLDER), **changed)
    return seal_envelope(entries[to].channel_key, plain, address)


def misaddressed(to: int = HOLDER, **changed: Any) -> Callable[[Rehearsal], Dealing]:
    """A dealing whose hashes are right and whose envelope is for another receiver, round, step or sender."""
    return lambda session: envelope_changed(
        session, sealed=sealed_as(session, bytes(66), to, **changed), **zero_hashes(session, bytes(33))
    )


def zero_hashes(session: Rehearsal, share: bytes) -> dict[str, bytes]:
    """Properly signed hashes of the same share twice."""
    binding = binding_of(session)
    return {f"{kind}_hash": bind.share_hash(kind, share, DEALER, HOLDER, binding) for kind in ("seed", "key")}


def not_canonical(session: Rehearsal) -> Dealing:
    """A share that is not below the prime, sealed and hashed as if it were one."""
    share = PRIME.to_bytes(33, "big")
    return envelope_changed(session, sealed=sealed_as(session, share + share), **zero_hashes(session, share))


BAD_DEALINGS: dict[str, Callable[[Rehearsal], Dealing]] = {
    "sealed_to_nobody": lambda session: envelope_changed(session, sealed=bytes(1202)),
    "sealed_to_another_holders_key": misaddressed(to=3),
    "addressed_to_another_holder": misaddressed(receiver=3),
    "addressed_by_another_dealer": misaddressed(sender=3),
    "addressed_to_another_round": misaddressed(binding=bytes(32)),
    "addressed_to_another_step": misaddressed(step="ShareManifest"),
    "other_seed_share_than_hashed": lambda session: envelope_changed(session, seed_hash=bytes(32)),
    "other_key_share_than_hashed": lambda session: envelope_changed(session, key_hash=bytes(32)),
    "hashes_swapped": lambda session: envelope_changed(
        session,
        seed_hash=session.outbox[DEALER].shares[2].key_hash,
        key_hash=session.outbox[DEALER].shares[2].seed_hash,
    ),
    "not_canonical": not_canonical,
}


@pytest.mark.parametrize("attack", BAD_DEALINGS)
@pytest.mark.parametrize("leaves", [{}, {DEALER: "UploadHeader"}, {3: "Opening"}, {5: "UploadHeader"}], ids=str)
def test_bad_shares_lead_to_a_complaint_and_the_sum_still_comes_out(attack: str, leaves: dict[int, str]) -> None:
    """A holder whose sealed shares are not what the dealer signed complains of it, and the others open without them."""
    session = Rehearsal(context_for(5, dropouts=2)).until_said("Dealing")
    session.outbox[DEALER] = BAD_DEALINGS[attack](session)
    session.until_said("UploadHeader")
    assert session.outbox[HOLDER].complaints == (DEALER,)
    assert all(header.complaints == () for member, header in session.outbox.items() if member != HOLDER)
    for member, step in leaves.items():
        if step == "UploadHeader":
            session.leave(member)
    members, total = session.finish(leaves)
    assert total == session.expected(members)
    assert HOLDER in members


def test_bad_shares_for_too_many_holders_open_nothing() -> None:
    """A dealer whose shares fewer than t holders could use is named when its secret cannot be recovered."""
    session = Rehearsal(context_for(5, dropouts=2)).until_said("Dealing")
    dealing, binding = session.outbox[DEALER], binding_of(session)
    shares = tuple(
        bind.sign_sealed_share(identity(DEALER), binding, replace(envelope, sealed=bytes(1202)))
        for envelope in dealing.shares
    )
    session.outbox[DEALER] = replace(dealing, shares=shares)
    with pytest.raises(SessionAborted, match=r"too few shares are left to unmask c2$"):
        session.finish()


def test_a_complaint_cannot_hold_back_other_shares() -> None:
    """A holder that complained of one dealer still owes its shares of all others."""
    session = Rehearsal(context_for(5, dropouts=2)).until_said("Dealing")
    session.outbox[DEALER] = BAD_DEALINGS["sealed_to_nobody"](session)
    session.until_said("Opening")
    honest = session.outbox[HOLDER]
    assert [share.dealer for share in honest.seed_shares] == [1, 3, 4, 5]
    less = replace(honest, seed_shares=honest.seed_shares[1:])
    refused_as(4, "exactly one share", session.deliver, HOLDER, less)


def test_unsigned_or_missing_shares_never_leave_the_server() -> None:
    """A dealing with an envelope unsigned, missing, doubled or misdirected is refused with the dealer named."""
    session = Rehearsal(context_for(5, dropouts=2)).until_said("Dealing")
    honest = session.outbox[DEALER]
    first, *rest = honest.shares
    for shares in (
        (replace(first, signature=bytes(64)), *rest),
        (replace(first, dealer=3), *rest),
        (bind.sign_sealed_share(identity(DEALER), binding_of(session), replace(first, dealer=3)), *rest),
        tuple(rest),
        (first, replace(rest[0], holder=5), *rest[2:]),
        session.outbox[3].shares,
        (),
    ):
        assert is_refused(2, session.deliver, DEALER, replace(honest, shares=shares))
    for own in ({"own_seed_hash": bytes(32)}, {"own_key_hash": bytes(32)}, {"signature": bytes(64)}):
        refused_as(2, "share that it keeps", session.deliver, DEALER, replace(honest, **own))


def test_shares_of_another_seed_are_named_at_recovery() -> None:
    """A surviving dealer whose shares recover another seed than it committed to is named."""
    session = session_with(lambda state: replace(state, seed=bytes(range(32))))
    refused_as(2, "another seed than it committed to", session.finish)


def test_shares_of_another_mask_key_are_named_at_recovery() -> None:
    """A dropped dealer whose shares recover another mask key than it advertised is named."""
    session = session_with(lambda state: replace(state, mask_secret=bytes(range(32))))
    refused_as(2, "another mask key than it advertised", session.finish, {DEALER: "UploadHeader"})


def dealt_by_hand(seeds: Shares, keys: Shares) -> Rehearsal:
    """A session in which the dealer signs and seals these shares, whatever they are."""
    session = Rehearsal(context_for(5, dropouts=2)).until_shown("Directory")
    directory = session.inbox[DEALER]
    session.answer()
    binding = bind.session_binding(session.context, directory.digest)
    session.outbox[DEALER] = _deal(session.parties[DEALER], binding, directory, {"seed": seeds, "key": keys})
    dealt = session.states[DEALER]
    session.states[DEALER] = replace(dealt, own_seed_share=seeds[DEALER], own_key_share=keys[DEALER])
    return session


def constant(value: int) -> Shares:
    """Shares of a constant polynomial."""
    return {holder: value.to_bytes(33, "big") for holder in range(1, 6)}


def crooked() -> Shares:
    """Shares on no polynomial of degree two."""
    return {holder: pow(holder, 5).to_bytes(33, "big") for holder in range(1, 6)}


@pytest.mark.parametrize(
    ("seeds", "keys", "leaves", "problem"),
    [
        (constant(2**256 + 7), constant(9), {}, "shares of no secret"),
        (constant(9), constant(2**256 + 7), {DEALER: "UploadHeader"}, "shares of no secret"),
        (crooked(), constant(9), {}, "another seed"),
        (constant(9), crooked(), {DEALER: "UploadHeader"}, "another mask key"),
    ],
    ids=["seed_above_32_bytes", "key_above_32_bytes", "crooked_seed", "crooked_key"],
)
def test_shares_of_no_secret_are_named_at_recovery(
    seeds: Shares, keys: Shares, leaves: dict[int, str], problem: str
) -> None:
    """Well-signed shares that lie on no polynomial, or on one of no 32-byte secret, name their dealer."""
    refused_as(2, problem, dealt_by_hand(seeds, keys).finish, leaves)


def test_a_crooked_kept_share_is_harmless_while_others_suffice() -> None:
    """Only the shares that are used count: a wrong share that its dealer keeps to itself changes nothing."""
    session = Rehearsal(context_for(5, dropouts=2)).until_said("Dealing")
    dealing, binding = session.outbox[5], binding_of(session)
    state = session.states[5]
    own = tuple(bind.share_hash(kind, bytes(33), 5, 5, binding) for kind in ("seed", "key"))
    session.outbox[5] = bind.sign_dealing(identity(5), binding, 5, dealing.shares, own)
    session.states[5] = replace(state, own_seed_share=bytes(33), own_key_share=bytes(33))
    members, total = session.finish()
    assert total == session.expected(members)
