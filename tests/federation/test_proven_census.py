"""Whoever lies about an exact census opens no class of a single client: clients' proofs, under every protection.

Four members, one of whom alone has records of class 2; the gate asks for four that say they have some: two honest ones,
one that may vanish and one that may collude.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import secagg.federation.client as client_module
from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import SecaggError, SessionAborted
from secagg.federation import session_folder
from secagg.protection.encryption import key_holder
from secagg.protection.encryption import server as encryption_server
from secagg.protection.encryption.polynomials import add, scaled
from secagg.protection.proven_bits import NO_CENSUS
from secagg.protection.sharing.aggregator import SetAgreed
from secagg.session.attachments import SUM_FILE
from tests.federation.test_gate import EXACT, LONELY, gated, held
from tests.protection.census_liars import (
    PLUS,
    another_prover,
    changed_blindings,
    deaf,
    proves_no_bits,
    true_bits,
    unchecked,
    with_more,
)
from tests.worlds.federation import Ending, SimulatedFederation, opened, run_federation

LIAR = 4
PROTECTIONS = ("masked", "shared", "encrypted")
SHOWN_FALSE = "server: opens a census that is not the sum of the entries that clients proved"


def census_only(folder: Path, protection: str) -> SimulatedFederation:
    """The plan, whose class 2 must stay closed."""
    world = gated(folder, refine=0, class_gate=2, protection=protection, colluders=1, dropouts=0, **EXACT)
    assert (held(world)[LONELY], world.setup.method.traits.class_threshold) == (1, 3)
    return world


def is_closed(world: SimulatedFederation, played: Ending, reason: str) -> None:
    """Every client has left for this reason, and no second sum was opened."""
    for member, end in played.clients.items():
        assert isinstance(end, SessionAborted), (member, end)
        assert reason in end.reason
    assert not any((session_folder(world.state(SERVER_INDEX), each) / SUM_FILE).exists() for each in played.stages[1:])


def enters_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lying client adds two clients to the class that it does not hold."""
    true = client_module.contribution_of

    def told(setup: Any, records: Any, randomness: Any, member: int = 0, state: bytes = b"") -> Any:
        vector, kept = true(setup, records, randomness, member, state)
        return vector + PLUS * (np.arange(len(vector)) == LONELY) * (member == LIAR and setup.number == 1), kept

    monkeypatch.setattr(client_module, "contribution_of", told)


def lies_in_its_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """N1: a client proves its true bits, and enters more."""
    enters_more(monkeypatch)
    another_prover(monkeypatch, LIAR, true_bits)


@pytest.mark.parametrize("protection", PROTECTIONS)
async def test_true_census_is_opened(protection: str, tmp_path: Path) -> None:
    """With nobody lying the census opens, the class of one client stays closed, and all hold one result."""
    world = census_only(tmp_path, protection)
    played = await run_federation(world)
    census, main = played.stages
    assert opened(world, census).tolist() == held(world)
    assert not main.sum.layout.split(opened(world, main))["class_sums"][LONELY].any()
    assert len({end[1].head_sha256 for end in played.clients.values()}) == 1


@pytest.mark.parametrize("protection", PROTECTIONS)
@pytest.mark.parametrize(
    "lie",
    [lies_in_its_vector, lambda patch: another_prover(patch, LIAR, changed_blindings)],
    ids=["another vector", "changed blindings"],
)
async def test_client_that_lies_opens_no_class(
    protection: str, lie: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N1: a vector of other entries than the proven ones, or a false blinding, ends the plan; nobody is named."""
    lie(monkeypatch)
    world = census_only(tmp_path, protection)
    is_closed(world, await run_federation(world), NO_CENSUS)


@pytest.mark.parametrize("protection", PROTECTIONS)
async def test_server_in_league_with_the_client_opens_no_class(
    protection: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that shows such a census all the same is named by every client, in the first round."""
    lies_in_its_vector(monkeypatch)
    deaf(monkeypatch)
    world = census_only(tmp_path, protection)
    is_closed(world, await run_federation(world), SHOWN_FALSE)


@pytest.mark.parametrize("protection", PROTECTIONS)
async def test_entries_that_are_no_bits_are_refused_by_name(
    protection: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof of an entry of 2 is none: the upload is refused, its client named, and the others go on without it."""
    proves_no_bits(monkeypatch)
    enters_more(monkeypatch)
    world = census_only(tmp_path, protection)
    world = replace(world, setup=gated(tmp_path, 0, 1, protection=protection, **EXACT).setup)
    played = await run_federation(world)
    assert isinstance(played.clients[LIAR], SecaggError)
    assert "party 4: shows a census entry of member 4 that is not proven to be 0 or 1" in str(played.clients[LIAR])
    assert {end[1].members for member, end in played.clients.items() if member != LIAR} == {(1, 2, 3)}


@pytest.mark.parametrize("protection", PROTECTIONS)
async def test_proofs_that_the_server_lets_pass_are_refused(
    protection: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every client checks all proofs itself: where server and aggregators accept an entry of 2 it names the server."""
    proves_no_bits(monkeypatch)
    enters_more(monkeypatch)
    unchecked(monkeypatch)
    world = census_only(tmp_path, protection)
    is_closed(
        world, await run_federation(world), "server: shows a census entry of member 4 that is not proven to be 0 or 1"
    )


@pytest.mark.parametrize(("is_deaf", "reason"), [(False, NO_CENSUS), (True, SHOWN_FALSE)], ids=["alone", "in league"])
async def test_one_aggregator_opens_no_class(
    is_deaf: bool, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N1b: an aggregator that adds two clients to its share of the census ends the plan, also with the server."""
    true = SetAgreed.commit

    def commit(self: Any, context: Any, me: Any, packed: bytes) -> Any:
        is_liar = context.proves_bits and context.number_of(me.member) == 2
        return true(self, context, me, with_more(context, packed, LONELY, PLUS) if is_liar else packed)

    monkeypatch.setattr(SetAgreed, "commit", commit)
    if is_deaf:
        deaf(monkeypatch)
    world = census_only(tmp_path, "shared")
    is_closed(world, await run_federation(world), reason)


async def test_server_of_the_encrypted_protection_opens_no_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that adds two clients to the encrypted census, which the honest key holder opens, is named by all."""
    true, done = encryption_server.CiphertextsToAdd._unsigned, set[int]()

    def lying(self: Any) -> Any:
        context = self._context
        if context.proves_bits and id(self) not in done and not self._lacking:
            done.add(id(self))
            lie = scaled(context.parameters, PLUS * (np.arange(context.length) == LONELY).astype(np.int64))
            add(self._total[:, 0], lie, context.parameters.primes)
        return true(self)

    monkeypatch.setattr(encryption_server.CiphertextsToAdd, "_unsigned", lying)
    deaf(monkeypatch)
    world = census_only(tmp_path, "encrypted")
    is_closed(world, await run_federation(world), SHOWN_FALSE)
    assert done


@pytest.mark.parametrize(("is_deaf", "reason"), [(False, NO_CENSUS), (True, SHOWN_FALSE)], ids=["alone", "in league"])
async def test_key_holder_opens_no_class(
    is_deaf: bool, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key holder that says two clients more of the lonely class ends the plan, also with the server."""
    true = key_holder.HeldKey._open

    def opens(self: Any, context: Any, unmasked: Any) -> Any:
        found = true(self, context, unmasked)
        return found + PLUS * (np.arange(len(found)) == LONELY) * context.proves_bits

    monkeypatch.setattr(key_holder.HeldKey, "_open", opens)
    if is_deaf:
        deaf(monkeypatch)
    world = census_only(tmp_path, "encrypted")
    is_closed(world, await run_federation(world), reason)


async def test_census_under_noise_has_no_proof(tmp_path: Path) -> None:
    """Under noise entries are bits plus noise: nothing is proven, and nothing beside the vector is sent."""
    world = gated(tmp_path, refine=0, epsilon=4000.0)
    assert not world.setup.context.proves_bits
    assert world.setup.context.upload_bytes == world.setup.context.packed_bytes
