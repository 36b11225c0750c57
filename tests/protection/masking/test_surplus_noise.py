"""Surplus noise is removed exactly, as far as missing clients allow, and no further, whoever lies."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.envelopes import seal_envelope
from secagg.crypto.sharing import SHARE_BYTES
from secagg.errors import ProtocolViolation
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.client import Advertised
from secagg.protection.masking.messages import Directory, OpenedSecret, OpenedShare, Quorum, SealedShare
from secagg.protection.masking.quorum import derive_thresholds
from tests.protection.masking.tampering import refused_as
from tests.protection.masking.test_verified_sums import Session as ShownSession
from tests.protection.masking.test_verified_sums import Shown
from tests.protection.rehearsal import Rehearsal, context_for, identity, octets, party
from tests.vectors.discrete_noise import discrete_noise
from tests.vectors.independent import derive, digest

CLIENTS, DROPOUTS, LEVELS = 9, 3, (0, 2)
LIAR, COLLUDER = 2, 9


class Noisy(Rehearsal):
    """A session of nine, three of which may be missing, with two noise levels; it remembers the noise seeds."""

    def __init__(self, levels: tuple[int, ...] = LEVELS, **choices: Any) -> None:
        fixed = {"colluders": 1, "dropouts": DROPOUTS, "noise_levels": levels, "bits": 40}
        super().__init__(context_for(CLIENTS, **{**fixed, **choices}))
        self.seeds = {m: s.noise_seed for m, s in self.states.items() if isinstance(s, Advertised)}

    def show(self, index: int, message: Any) -> None:
        if isinstance(message, Directory):
            self.directory = message.digest
        super().show(index, message)

    def drawn(self, member: int, level: int) -> np.ndarray:
        """The noise of a client and level by an independent expansion."""
        seed = self.seeds[member]
        for _ in range(1, level):
            seed = digest("next noise seed", seed)
        binding = digest("context", self.context.round_digest, self.directory)
        parts = level.to_bytes(4, "big"), member.to_bytes(4, "big")
        key = derive(seed, binding, "removable noise", *parts)
        return np.array(discrete_noise(key, list(self.context.removable[level - 1].segments)))

    def at_opening(self) -> "Noisy":
        """Play until the clients' openings lie in the outbox."""
        self.until_said("Opening")
        return self


@pytest.mark.parametrize(
    ("levels", "missing", "left"),
    [
        ((0,), 0, []),
        ((0,), 1, [1]),
        ((0, 2), 0, []),
        ((0, 2), 1, [1]),
        ((0, 2), 2, [1]),
        ((0, 2), 3, [1, 2]),
        ((1, 2), 1, []),
        ((), 0, []),
    ],
)
@pytest.mark.parametrize("step", ["UploadHeader", "Dealing"])
def test_what_is_left_is_the_noise_of_the_levels_below(
    levels: tuple[int, ...], missing: int, left: list[int], step: str
) -> None:
    """The opened sum is that of the vectors and of the survivors' noise of the levels that stay, entry for entry."""
    session = Noisy(levels)
    gone = {CLIENTS - place: step for place in range(missing)}
    members, total = session.finish(gone)
    assert members == tuple(range(1, CLIENTS + 1 - missing))
    noise = sum((session.drawn(m, level) for m in members for level in left), np.zeros(6, dtype=np.int64))
    assert total == (np.array(session.expected(members)) + noise).tolist()
    assert bool(left) == bool(noise.any())


def test_client_that_vanishes_after_the_endorsement_has_its_noise_removed() -> None:
    """Who has uploaded is in the sum, and its noise goes with that of the others, though it opens nothing."""
    session = Noisy()
    members, total = session.finish({3: "Opening", 5: "Endorsement"})
    assert members == tuple(range(1, CLIENTS + 1))
    assert total == session.expected(members)


def test_nobody_opens_what_is_to_stay() -> None:
    """Opened shares are of the survivors' seeds of one level; of a lower level, or of the missing, none is opened."""
    session = Noisy().until_said("UploadHeader")
    held = {m: {each.dealer: each.noise_shares for each in state.held} for m, state in session.states.items() if m}
    session.leave(CLIENTS)
    session.until_said("Opening")
    for member, opening in session.outbox.items():
        assert {each.dealer: each.share for each in opening.noise_shares} == {
            dealer: shares[1] for dealer, shares in held[member].items() if dealer != CLIENTS
        }
        kept = {shares[0] for shares in held[member].values()} | {held[member][CLIENTS][1]}
        assert not kept & set(octets(opening))
    threshold = derive_thresholds(CLIENTS, 1, DROPOUTS, 1).shares
    assert threshold > session.context.colluders  # who keep their shares of all kept seeds


def test_all_noise_stays_with_the_most_missing() -> None:
    """With as many missing as may be no share of any noise seed is opened, and the server learns no seed."""
    session = Noisy().until_said("UploadHeader")
    for member in (7, 8, 9):
        session.leave(member)
    session.until_said("Opening")
    assert [opening.noise_shares for opening in session.outbox.values()] == [()] * 6
    session.finish()
    assert session.server.noise_seeds == ()
    assert not {*session.seeds.values()} & set(octets(session.server))


def test_uploaded_state_knows_no_noise_seed() -> None:
    """After its upload a client can be made to tell no seed of its noise, nor the noise."""
    session = Noisy().until_said("UploadHeader")
    for member, seed in session.seeds.items():
        known = {*octets(session.states[member])}
        assert not {seed, digest("next noise seed", seed)} & known


def test_two_survivor_sets_open_nothing() -> None:
    """Two survivor sets, one of which alone has a level removed, shown to half of the clients each: none is opened."""
    session = Noisy().until_shown("Survivors")
    whole = session.inbox[1]
    smaller = replace(whole, members=tuple(member for member in whole.members if member != 8))
    shown = dict.fromkeys((1, 2, 3, 4, COLLUDER), smaller), dict.fromkeys((5, 6, 7, 8, COLLUDER), whole)
    for each in shown:
        states = {m: session.states[m].advance(session.context, party(m), each[m]) for m in each}
        quorum = Quorum(tuple(states[member].outgoing for member in each))
        for member in set(each) - {COLLUDER}:
            endorsed = states[member].state
            refused_as(SERVER_INDEX, "shows 5 of the 6", endorsed.advance, session.context, party(member), quorum)


BAD_ADVERTISEMENTS: dict[str, tuple[bytes, ...]] = {
    "none": (),
    "one too few": (bytes(32),),
}


@pytest.mark.parametrize("commitments", BAD_ADVERTISEMENTS.values(), ids=BAD_ADVERTISEMENTS)
def test_advertisement_commits_to_a_seed_for_each_level(commitments: tuple[bytes, ...]) -> None:
    """Server and clients refuse a well-signed advertisement with another number of noise seeds."""
    session = Noisy()
    entry = replace(session.outbox[LIAR], noise_commitments=commitments)
    signed = bind.sign_advertisement(session.context, identity(LIAR), entry)
    refused_as(LIAR, "other noise seeds than the plan's noise levels", session.deliver, LIAR, signed)
    session.until_shown("Directory")
    directory = session.inbox[1]
    entries = tuple(signed if each.member == LIAR else each for each in directory.entries)
    refused_as(SERVER_INDEX, "other noise seeds", session.show, 1, replace(directory, entries=entries))


def test_commitments_to_noise_seeds_are_signed() -> None:
    """Server and clients refuse an advertisement with other commitments than its client signed."""
    session = Noisy()
    unsigned = replace(session.outbox[LIAR], noise_commitments=(bytes(32), bytes(32)))
    refused_as(LIAR, "not signed by its identity", session.deliver, LIAR, unsigned)
    session.until_shown("Directory")
    directory = session.inbox[1]
    entries = tuple(unsigned if each.member == LIAR else each for each in directory.entries)
    refused_as(SERVER_INDEX, "are not signed by it", session.show, 1, replace(directory, entries=entries))


@pytest.mark.parametrize("change", ["hashes", "own hashes", "unsigned"])
def test_dealing_has_a_share_of_each_level(change: str) -> None:
    """The server refuses shares of another number of noise seeds, and hashes of them that are not signed."""
    session = Noisy().until_said("Dealing")
    honest, binding = session.outbox[LIAR], session.states[LIAR].directory.digest
    binding = bind.session_binding(session.context, binding)
    if change == "own hashes":
        hashes = honest.own_seed_hash, honest.own_key_hash, bytes(32)
        lie = bind.sign_dealing(identity(LIAR), binding, LIAR, honest.shares, hashes)
        problem = "other noise seeds than the plan's noise levels"
    else:
        first = replace(honest.shares[0], noise_hashes=honest.shares[0].noise_hashes[:1])
        if change == "hashes":
            first, problem = bind.sign_sealed_share(identity(LIAR), binding, first), "other noise seeds than the plan's"
        else:
            problem = "dealt an unsigned share"
        lie = replace(honest, shares=(first, *honest.shares[1:]))
    refused_as(LIAR, problem, session.deliver, LIAR, lie)


def test_wrong_noise_share_leads_to_a_complaint() -> None:
    """A holder whose sealed share of a noise seed is not the hashed one complains; the sum comes out, noise removed."""
    session = Noisy().until_said("Dealing")
    honest = session.outbox[LIAR]
    binding = bind.session_binding(session.context, session.states[LIAR].directory.digest)
    first = replace(honest.shares[0], noise_hashes=(honest.shares[0].noise_hashes[0], bytes(32)))
    lie = bind.sign_sealed_share(identity(LIAR), binding, first)
    session.outbox[LIAR] = replace(honest, shares=(lie, *honest.shares[1:]))
    session.until_said("UploadHeader")
    assert session.outbox[lie.holder].complaints == (LIAR,)
    members, total = session.finish()
    assert total == session.expected(members)


@pytest.mark.parametrize(("sealed", "hashed"), [(2, 4), (3, 4), (4, 2), (4, 3), (2, 2)])
def test_other_number_of_noise_shares_leads_to_a_complaint(sealed: int, hashed: int) -> None:
    """A holder complains about a dealer that seals or hashes fewer shares than there are secrets, true as they are."""
    session = Noisy().until_shown("Inbox")
    inbox, directory = session.inbox[1], session.states[1].directory
    binding, share = bind.session_binding(session.context, directory.digest), bytes(SHARE_BYTES)
    kinds = ("seed", "key", "noise 1", "noise 2")
    seed_hash, key_hash, *noise_hashes = (bind.share_hash(kind, share, LIAR, 1, binding) for kind in kinds[:hashed])
    key = next(entry.channel_key for entry in directory.entries if entry.member == 1)
    envelope = seal_envelope(key, sealed * share, bind.share_address(binding, LIAR, 1))
    lie = SealedShare(LIAR, 1, seed_hash, key_hash, envelope, bytes(64), tuple(noise_hashes))
    lie = bind.sign_sealed_share(identity(LIAR), binding, lie)
    shares = tuple(lie if each.dealer == LIAR else each for each in inbox.shares)
    found = session.states[1].advance(session.context, party(1), replace(inbox, shares=shares))
    assert found.state.complaints == (LIAR,)


def committed_to(seed: bytes) -> Noisy:
    """A session in which the liar deals and adds noise of another seed than it committed to."""
    session = Noisy().until_shown("Directory")
    session.states[LIAR] = replace(session.states[LIAR], noise_seed=seed)
    session.answer()
    return session


def test_dealer_of_another_noise_seed_is_named() -> None:
    """Shares of another noise seed than the committed one name their dealer, and nothing is opened."""
    refused_as(LIAR, "another noise seed than it committed to", committed_to(bytes(range(32))).finish)


def test_seed_of_a_kept_level_is_not_asked_for() -> None:
    """A wrong seed of a level that stays changes nothing that anybody relies on: the sum is opened without it."""
    session = committed_to(bytes(range(32)))
    session.until_said("UploadHeader")
    for member in (7, 8, 9):
        session.leave(member)
    members, _ = session.finish()
    assert members == (1, 2, 3, 4, 5, 6)


BAD_OPENINGS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "left out": ("exactly the shares of noise seeds", lambda honest: replace(honest, noise_shares=())),
    "one left out": (
        "exactly the shares of noise seeds",
        lambda honest: replace(honest, noise_shares=honest.noise_shares[1:]),
    ),
    "another share": (
        "wrong share of member 1's noise seed",
        lambda honest: replace(
            honest, noise_shares=(OpenedShare(1, honest.seed_shares[0].share), *honest.noise_shares[1:])
        ),
    ),
}


@pytest.mark.parametrize("lie", BAD_OPENINGS)
def test_wrong_opening_of_noise_is_refused(lie: str) -> None:
    """A client that opens other shares of noise seeds than the sum asks for is named, and the others go on."""
    session = Noisy().at_opening()
    problem, change = BAD_OPENINGS[lie]
    refused_as(LIAR, problem, session.deliver, LIAR, change(session.outbox[LIAR]))
    session.leave(LIAR)
    members, total = session.finish()
    assert total == session.expected(members)


def test_share_of_another_level_is_refused() -> None:
    """With two missing the second level alone is opened: a share of the first is refused."""
    session = Noisy().until_said("UploadHeader")
    held = {each.dealer: each for each in session.states[LIAR].held}
    session.leave(9)
    session.leave(8)
    session.until_said("Opening")
    honest = session.outbox[LIAR]
    lower = tuple(OpenedShare(each.dealer, held[each.dealer].noise_shares[0]) for each in honest.noise_shares)
    lie = replace(honest, noise_shares=lower)
    refused_as(LIAR, "wrong share of member 1's noise seed", session.deliver, LIAR, lie)


class NoisyShown(ShownSession):
    """A session of six of which one is missing, with two noise levels, and all that the first client hears."""

    def __init__(self, levels: tuple[int, ...]) -> None:
        self.heard, self.headers = {}, {}
        Rehearsal.__init__(self, context_for(6, colluders=1, dropouts=2, bits=40, noise_levels=levels))


def seeds_of(shown: Shown, member: int, secret: bytes) -> Shown:
    """Another noise seed of one client."""
    seeds = (OpenedSecret(m.member, secret) if m.member == member else m for m in shown.listed.noise_seeds)
    return shown.listing(noise_seeds=tuple(seeds))


LIES: dict[str, tuple[str, Callable[[Shown], Shown]]] = {
    "another seed": ("noise seed of member 3 that is not", lambda shown: seeds_of(shown, 3, bytes(32))),
    "a seed left out": (
        "noise seeds of all clients in the sum, or of none",
        lambda shown: shown.listing(noise_seeds=shown.listed.noise_seeds[1:]),
    ),
    "no seeds": (
        "noise seeds of all clients in the sum, or of none",
        lambda shown: shown.listing(noise_seeds=()),
    ),
    "the next level's seed": (
        "noise seed of member 3 that is not",
        lambda shown: seeds_of(shown, 3, bind.next_noise_seed(shown.listed.noise_seeds[2].secret)),
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_clients_find_a_lie_about_removed_noise(lie: str) -> None:
    """Clients remove the noise themselves and find every other seed than those in the directory."""
    shown = NoisyShown((0, 1)).released()
    assert shown.open() == shown.total
    assert len(shown.listed.noise_seeds) == len(shown.members)
    problem, change = LIES[lie]
    refused_as(SERVER_INDEX, problem, change(shown).open)


def test_noise_that_stays_is_not_removed_by_the_server() -> None:
    """Where all noise is to stay, a release with a noise seed is refused, even one that a client committed to."""
    session = NoisyShown((0,))
    seeds = {member: state.noise_seed for member, state in session.states.items() if member}
    shown = session.released()
    assert shown.open() == shown.total != session.expected(shown.members)
    lie = shown.listing(noise_seeds=tuple(OpenedSecret(member, seeds[member]) for member in shown.members))
    with pytest.raises(ProtocolViolation, match="noise seeds of all clients in the sum, or of none"):
        lie.open()
