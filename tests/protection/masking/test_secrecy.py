"""What a protected upload and the states around it give away: nothing."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from secagg.crypto.agreement import AgreementKey
from secagg.crypto.sharing import SharesInconsistent, combine
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.client import Ready
from tests.protection.rehearsal import Rehearsal, context_for, octets, party
from tests.vectors.independent import keystream

FALSE_FAILURE = 1e-6  # were the seeds not fixed, one run in a million would fail


def ready_state(session: Rehearsal, member: int) -> Ready:
    """The state of a client that has opened its inbox and protects next."""
    session.until_shown("Inbox")
    state = session.states[member]
    return state.advance(session.context, session.parties[member], session.inbox[member]).state


def protected(session: Rehearsal, ready: Ready, values: np.ndarray) -> np.ndarray:
    """The packed bytes of a vector under a Ready state's masks."""
    transition = ready.protect(session.context, party(1), session.context.ring.encode(values))
    return np.frombuffer(transition.vector, dtype=np.uint8)


@pytest.mark.parametrize("bits", [8, 24, 32, 48, 64])
@pytest.mark.parametrize("value", ["zeros", "largest"])
def test_one_upload_looks_uniform(bits: int, value: str) -> None:
    """The bytes of a constant vector's upload pass a chi-square test of uniformity with false-failure rate 1e-6."""
    session = Rehearsal(context_for(3, bits=bits, length=40_000))
    values = np.full(40_000, 0 if value == "zeros" else 2 ** (bits - 1) - 1, dtype=np.int64)
    packed = protected(session, ready_state(session, 1), values)
    for place in range(bits // 8):
        observed = np.bincount(packed[place :: bits // 8], minlength=256)
        expected = len(values) / 256
        assert ((observed - expected) ** 2 / expected).sum() < chi2.isf(FALSE_FAILURE / (bits // 8), 255)


def test_a_vector_of_zeros_shows_exactly_its_masks() -> None:
    """The upload is the self mask plus the pairwise masks, signed by the order of the members, from AES-CTR itself."""
    session = Rehearsal(context_for(4, bits=64, length=50))
    ready = ready_state(session, 2)
    transition = ready.protect(session.context, session.parties[2], np.zeros(50, dtype="<u8"))
    binding = bind.session_binding(session.context, ready.directory.digest)
    secret = AgreementKey.from_bytes(ready.mask_secret)
    expected = keystream(bind.self_mask_key(ready.seed, 2, binding), 8, 50)
    for entry in ready.directory.entries:
        if entry.member != 2:
            sign = 1 if entry.member > 2 else -1
            key = bind.pairwise_key(secret, 2, entry.member, entry.mask_key, binding)
            expected = [(old + sign * new) % 2**64 for old, new in zip(expected, keystream(key, 8, 50), strict=True)]
    assert session.context.ring.unpack(transition.vector, 50).tolist() == expected


@pytest.mark.parametrize("changed", ["seed", "mask_secret"])
def test_one_secret_changes_the_whole_upload(changed: str) -> None:
    """With only the self-mask seed (or only the mask key) replaced, no 64-bit entry of the upload stays."""
    session = Rehearsal(context_for(3, bits=64, length=5000))
    ready = ready_state(session, 1)
    values = np.arange(5000, dtype=np.int64)
    one = protected(session, ready, values).view(np.uint64)
    other = protected(session, replace(ready, **{changed: bytes(range(32))}), values).view(np.uint64)
    assert not (one == other).any()
    difference = np.bincount((one - other).view(np.uint8), minlength=256)
    expected = difference.sum() / 256
    assert ((difference - expected) ** 2 / expected).sum() < chi2.isf(FALSE_FAILURE, 255)


def secrets_of(session: Rehearsal) -> dict[int, tuple[bytes, ...]]:
    """Channel key, mask key, seed and dealing secret of every client, before the first answer."""
    return {
        member: (state.channel_secret, state.mask_secret, state.seed, state.dealing_secret)
        for member, state in session.until_said("KeyAdvertisement").states.items()
    }


def test_states_after_the_upload_cannot_unmask() -> None:
    """From the upload on, a state holds no seed and no key, and one share of each: fewer than recover anything."""
    session = Rehearsal(context_for(5))
    secrets = secrets_of(session)
    for said in ("UploadHeader", "Endorsement", "Opening"):
        session.until_said(said)
        for member, state in session.states.items():
            found = set(octets(state))
            for secret in secrets[member]:
                assert not any(secret in content for content in found)
    held = session.states[1]
    assert set(octets(held)) == set()


def test_own_shares_alone_do_not_recover() -> None:
    """What a client holds after its upload is one share of each dealer: combined alone it is not the secret."""
    session = Rehearsal(context_for(5))
    secrets = secrets_of(session)
    session.until_said("UploadHeader")
    for member, state in session.states.items():
        assert [held.dealer for held in state.held] == [1, 2, 3, 4, 5]
        for held in state.held:
            with suppress(SharesInconsistent):
                assert combine({member: held.seed_share}) != secrets[held.dealer][2]
            with suppress(SharesInconsistent):
                assert combine({member: held.key_share}) != secrets[held.dealer][1]


def test_secrets_never_print() -> None:
    """No state, transition, party, mask or sum shows a seed, key, share or vector in its repr."""
    session = Rehearsal(context_for(4, dropouts=1))
    secrets = [secret for each in secrets_of(session).values() for secret in each]
    shown = []
    shares: list[bytes] = []
    for said in ("KeyAdvertisement", "Dealing", "UploadHeader", "Endorsement", "Opening"):
        session.until_said(said)
        shown += [repr(value) for value in (session.states, session.outbox, session.parties)]
        if said == "UploadHeader":
            shares = [share for state in session.states.values() for each in state.held for share in octets(each)]
            session.leave(4)
    session.finish()
    shown += [repr(session.server), repr(session.server.masks)]
    secrets += shares
    secrets += [mask.key for mask in session.server.masks]
    assert len(secrets) > 30
    for text in shown:
        for secret in secrets:
            assert secret.hex() not in text
            assert repr(secret)[2:-1] not in text
