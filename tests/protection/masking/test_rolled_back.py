"""A dealer whose state was rolled back deals twice, and gives nothing away by it."""

from dataclasses import replace

import pytest

from secagg.crypto.envelopes import EnvelopeKey
from secagg.crypto.sharing import PRIME
from secagg.protection import LocalParty
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.client import Advertised, Dealt
from secagg.protection.masking.messages import Dealing, Directory
from secagg.randomness import OperatingSystem
from tests.protection.rehearsal import Rehearsal, context_for, identity

DEALER = 1


def at_directory() -> tuple[Rehearsal, Advertised, Directory]:
    """A session of five in which the directory is about to reach the dealer."""
    session = Rehearsal(context_for(5)).until_shown("Directory")
    return session, session.states[DEALER], session.inbox[DEALER]


def dealt(session: Rehearsal, state: Advertised, directory: Directory) -> tuple[Dealt, Dealing]:
    """One dealing of this state, with fresh randomness."""
    me = LocalParty(DEALER, identity(DEALER), OperatingSystem())
    transition = state.advance(session.context, me, directory)
    return transition.state, transition.outgoing  # type: ignore[return-value]


def opened(session: Rehearsal, directory: Directory, dealing: Dealing) -> dict[int, bytes]:
    """Both shares of every other holder, as its key opens them."""
    binding = bind.session_binding(session.context, directory.digest)
    keys = {member: EnvelopeKey.from_bytes(state.channel_secret) for member, state in session.states.items()}
    return {
        each.holder: keys[each.holder].open(each.sealed, bind.share_address(binding, DEALER, each.holder))
        for each in dealing.shares
    }


def test_two_dealings_of_one_directory_are_of_the_same_shares() -> None:
    """Dealt again, every share is the same, and its envelope has no block of the first in its place."""
    session, state, directory = at_directory()
    (one, first), (other, second) = (dealt(session, state, directory) for _ in range(2))
    assert one == other
    assert opened(session, directory, first) == opened(session, directory, second)
    for once, again in zip(first.shares, second.shares, strict=True):
        assert (once.seed_hash, once.key_hash) == (again.seed_hash, again.key_hash)
        starts = range(len(once.sealed) - 7)
        assert not any(once.sealed[at : at + 8] == again.sealed[at : at + 8] for at in starts)


def test_another_directory_gets_other_shares() -> None:
    """For another directory the same secrets are shared anew: t − 1 shares of each tell no more than of one."""
    session, state, directory = at_directory()
    nonce = bind.sign_advertisement(session.context, identity(5), replace(directory.entries[4], nonce=bytes(32)))
    elsewhere = Directory((*directory.entries[:4], nonce))
    found = [opened(session, each, dealt(session, state, each)[1]) for each in (directory, elsewhere)]
    for holder in (2, 3, 4, 5):
        assert found[0][holder][:33] != found[1][holder][:33]
        assert found[0][holder][33:] != found[1][holder][33:]


def test_seed_and_key_are_shared_by_polynomials_of_their_own() -> None:
    """No holder's two shares differ by what another's do, as they would if one polynomial had both secrets."""
    session, state, directory = at_directory()
    shares = opened(session, directory, dealt(session, state, directory)[1]).values()
    differences = {int.from_bytes(both[:33], "big") - int.from_bytes(both[33:], "big") for both in shares}
    assert len({difference % PRIME for difference in differences}) == 4


@pytest.mark.parametrize("secret", ["seed", "mask_secret", "channel_secret"])
def test_coefficients_follow_from_a_secret_of_their_own(secret: str) -> None:
    """Neither of the shared secrets is the key of its own coefficients, and the next state does not hold that key."""
    session, state, directory = at_directory()
    before, _ = dealt(session, state, directory)
    other = replace(state, **{secret: bytes(range(32))})
    after, _ = dealt(session, other, directory)
    moved = {
        name: (int.from_bytes(getattr(after, name), "big") - int.from_bytes(getattr(before, name), "big")) % PRIME
        for name in ("own_seed_share", "own_key_share")
    }
    change = {"seed": "own_seed_share", "mask_secret": "own_key_share"}.get(secret, "")
    by = int.from_bytes(bytes(range(32)), "big") - int.from_bytes(getattr(state, secret), "big")
    assert moved == {name: by % PRIME if name == change else 0 for name in moved}
    assert state.dealing_secret not in vars(before).values()
