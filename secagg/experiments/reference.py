"""Reference results of simulations: the same method without noise, on pooled records where the method allows it."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from methods.gate import without_gate
from secagg.agreement.plan import Plan, canonical_json
from secagg.crypto.labels import digest, number
from secagg.encoding import Integers, sum_digest
from secagg.features import Progress
from secagg.heads import Evaluation
from secagg.plan_facts.records import LocalRecords
from secagg.privacy import Unit
from secagg.protection import UNPROTECTED
from secagg.randomness import OperatingSystem, RandomSource
from secagg.session.outcome import SumResult, conclude
from secagg.session.round_setup import RoundSetup, contribution_of
from secagg.session.rounds import Rounds
from secagg.system.files import write_synced
from secagg.wire import encode


def is_own_reference(setup: RoundSetup, members: tuple[int, ...]) -> bool:
    """Return whether a result needs no separate reference: it sums all clients, without noise or left-out classes."""
    everybody = members == tuple(setup.context.clients)
    plain = not setup.plan.has_noise and not setup.method.traits.class_threshold
    return everybody and plain and (not is_pooled(setup) or all(kind.is_additive for kind in setup.facts.sums))


def is_pooled(setup: RoundSetup) -> bool:
    """Return whether the reference result is computed from all clients' records, pooled.

    Where what a client sends is computed from all of its records together, as an update is, or by a model of its own,
    pooling them would be another method, and so it would where only cohorts are in the sums: the members' own
    contributions are summed instead, exactly.
    """
    return not setup.plan.cohort and all(kind.per is Unit.RECORD and not kind.keeps_state for kind in setup.facts.sums)


def reference_key(setup: RoundSetup, records: str) -> str:
    """Return a digest of all that decides the reference result over pooled `records`: method, features, grid."""
    anonymous = replace(
        _without_noise(setup), session=bytes(32), roster=bytes(32), purpose="", contact="", retention="", max_records=1,
        colluders=0, dropouts=0, min_clients_in_sum=1, security=128, join_seconds=1, step_seconds=1, round_seconds=1,
        unit=Unit.RECORD,
    )  # fmt: skip
    tolerant = setup.plan.has_noise  # bad records are left out, not refused
    return digest("reference", encode(anonymous), bytes([tolerant]), records.encode()).hex()


def pooled_result(
    setup: RoundSetup,
    members: Mapping[int, LocalRecords],
    randomness: RandomSource | None = None,
    progress: Progress | None = None,
) -> SumResult:
    """Compute the reference result: the last round's, over all members' records, without noise or class gate.

    Records are pooled where `is_pooled`. Public randomness comes from the sums alone, so that it is the same whatever
    plan asks. `randomness` is the members' own, by default the operating system's. Cohorts are those of `setup`, a
    round's. `progress` takes (rounds done, rounds in all).
    """
    source = randomness or OperatingSystem()
    first = RoundSetup.of(_without_noise(setup), setup.roster).seeded(setup.seed)
    rounds: Rounds[SumResult] = Rounds(first)
    sources = {0: LocalRecords.pooled(list(members.values()))} if is_pooled(setup) else dict(members)
    states = dict.fromkeys(sources, b"")
    for stage in rounds:
        drawn = {index: sources[index] for index in stage.context.clients} if setup.seed else sources
        made = {index: contribution_of(stage, own, source, index, states[index]) for index, own in drawn.items()}
        vector: Integers = sum(own for own, _ in made.values())  # type: ignore[assignment]
        states |= {index: state for index, (_, state) in made.items()}
        seed = digest("public randomness of a reference", number(stage.number), sum_digest(vector))
        result = conclude(stage, tuple(stage.context.clients)[: len(sources)], vector, seed)
        rounds.ended(result, result.broadcast)
        if progress is not None:
            progress(stage.number, stage.rounds)
    return rounds.last


def _without_noise(setup: RoundSetup) -> Plan:
    return replace(
        setup.plan,
        parameters=canonical_json(without_gate(setup.method).parameters),
        protection=UNPROTECTED,
        epsilon=math.inf,
        delta=0.0,
        adjacency="",
        noise="",
        noises=(),
        noise_levels=(),
    )


_known: dict[tuple[str, str], Evaluation | None] = {}
"""The references that this process has computed or read, by the data's digest and the reference's key."""


@dataclass(frozen=True)
class References:
    """A cache of reference accuracies for runs over one data set; processes share it in `folder`, if one is given."""

    data_sha256: str
    folder: Path | None

    def recall(self, key: str, compute: Callable[[], Evaluation | None]) -> Evaluation | None:
        """Return the accuracy for a key, computing it once; other processes that ask meanwhile wait for the result."""
        place = self.data_sha256, key
        if place not in _known:
            _known[place] = compute() if self.folder is None else _shared(self.folder / f"{key}.json", compute)
        return _known[place]


def _shared(path: Path, compute: Callable[[], Evaluation | None]) -> Evaluation | None:
    with os.fdopen(os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # which the system lets go when its holder dies
        if path.exists():
            counted = json.loads(path.read_bytes())
            return Evaluation.counted(*counted) if counted else None
        found = compute()
        write_synced(path, json.dumps([found.correct, found.total] if found else []).encode())
        return found
