"""Flat sums split into named blocks, with the integer multipliers divided out, and the noise planned on the blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from methods.method import domains_of
from secagg.agreement.plan import NoiseFrom
from secagg.encoding import Block, Integers, Kind, Normalisation
from secagg.privacy import OpenedNoise
from secagg.session import RoundSetup
from threat_models.estimation.noise_tests import chance_of_multiples
from threat_models.evidence.split_sessions import ciphertexts_of
from threat_models.session import OTHER, AuditRecords, Blocks, NoisySum, Session, ZeroSample

KNOWN = {
    Kind.COUNTS: "counts",
    Kind.CLASS_SUMS: "class_sums",
    Kind.SECOND_MOMENT: "second_moment",
    Kind.CENSUS: "census",
}
"""Names by which attacks know the first block of each kind in a session, whatever the plan's method calls it."""
MULTIPLES = 1e-6
"""Largest chance that planned noise gives only multiples of a block's multiplier, for the block to be tested."""


def names_of(blocks: Sequence[Block], dimension: int, *, is_of_features: bool = True) -> dict[str, str]:
    """Map each block's name in the method to its name in the session.

    It is the name of the block's kind, if attacks know that kind.
    They know counts, and sums and second moments of d features beside these, where sums are of features: what goes
    through a private state is not. Any other block keeps its name, unless that is one of theirs.
    """
    counted = next((block.shape for block in blocks if block.kind is Kind.COUNTS), None)
    shapes = {Kind.CLASS_SUMS: (*(counted or ()), dimension), Kind.SECOND_MOMENT: (dimension * (dimension + 1) // 2,)}
    found: dict[str, str] = {}
    for block in blocks:
        known = KNOWN.get(block.kind, "")
        is_shaped = is_of_features and counted is not None and block.shape == shapes.get(block.kind)
        is_known = block.kind not in shapes or is_shaped
        own = f"{OTHER}{block.name}" if block.name in KNOWN.values() else block.name
        found[block.name] = known if known and is_known and known not in found.values() else own
    return found


def blocks_of(setup: RoundSetup, vector: Integers) -> Blocks:
    """Split a flat vector into named blocks, with each block's integer multiplier divided out.

    A block with a multiplier becomes float64. Parts of classes become rows.
    """
    tensors, names, dimension = setup.sum.layout.split(vector), _names(setup), setup.plan.dimension
    found = {}
    for block in setup.sum.layout.blocks:
        whole = tensors[block.name] if block.multiplier == 1 else tensors[block.name] / block.multiplier
        is_rows = block.kind is Kind.CLASS_SUMS and block.shape[-1:] == (dimension,)
        shape = (-1,) if block.kind is Kind.COUNTS else (-1, dimension) if is_rows else block.shape
        found[names[block.name]] = whole.reshape(shape)
    return found


def _names(setup: RoundSetup) -> dict[str, str]:
    return names_of(setup.sum.layout.blocks, setup.plan.dimension, is_of_features=not setup.sum.spec.keeps_state)


def noise_of(setup: RoundSetup, members: int) -> Mapping[str, OpenedNoise] | None:
    """Return the planned noise by block, multipliers divided out, in a sum of `members` clients; None without noise."""
    noise, names = setup.sum.opened_noise(members), _names(setup)
    return None if noise is None else {names[name]: each.of_record for name, each in noise.items()}


def flaws_of(setup: RoundSetup, vector: Integers, members: int) -> tuple[str, ...]:
    """Report blocks that lack the noise they should have: all their entries are multiples of the multiplier.

    By chance this has a probability below `MULTIPLES`.
    """
    noise = setup.sum.opened_noise(members)
    if noise is None:
        return ()
    found = []
    for block in setup.sum.layout.blocks:
        chance = chance_of_multiples(noise[block.name].sigma, block.multiplier, block.size)
        if chance < MULTIPLES and not (setup.sum.layout.split(vector)[block.name] % block.multiplier).any():
            name = f"{block.name.replace('_', ' ')} of sum {setup.number}"
            found.append(f"All entries of {name} are multiples of {block.multiplier}: there is no noise on them.")
    return tuple(found)


def noisy_sum_of(setup: RoundSetup, vector: Integers, members: int) -> NoisySum:
    """Compute sums of entries that are 0 but for noise, in units of the planned σ; an exact sum gives none."""
    if setup.sum.calibration is None:
        return NoisySum(setup.number, None, ())
    is_centred = setup.plan.grid.normalisation is Normalisation.CENTRED_UNIT
    calibration, by_clients = setup.sum.calibration, setup.plan.noise == NoiseFrom.CLIENT
    noisers = members if by_clients else calibration.parties
    missing = calibration.parties - noisers
    noises = {each.block.name: each for each in calibration.blocks}
    blocks = setup.sum.layout.split(vector)
    samples = []
    for rule in setup.sum.spec.zero_sums:
        if is_centred or not rule.centred:
            noise = noises[rule.block]
            left = (calibration.left_of(each, missing) for each in (noise.sigma, noise.least))
            sigma, off_diagonal = (each * math.sqrt(noisers) for each in left)
            samples.append(ZeroSample.of(setup.number, rule, sigma, off_diagonal, blocks[rule.block]))
    seen = {sample.rule.block for sample in samples}
    return NoisySum(setup.number, setup.known_round, tuple(samples), tuple(name for name in noises if name not in seen))


def cell_names(setup: RoundSetup) -> tuple[str, ...]:
    """Name the classes, or their domains and slots, that a sum counts: "7", "7, slot 3", "dog, photo, slot 3"."""
    plan = setup.plan
    counted = (block.shape for block in setup.sum.layout.blocks if block.kind is Kind.COUNTS)
    shape = next(counted, (len(plan.classes),))
    domains = domains_of(plan.method_parameters) if len(shape) > 2 else ()
    slots = [f"slot {slot}" for slot in range(shape[-1])] if len(shape) > 1 and shape[-1] > 1 else [""]
    return tuple(
        ", ".join(filter(None, (name, domain, slot)))
        for name in plan.classes
        for domain in domains or ("",)
        for slot in slots
    )


def session_of(setup: RoundSetup, members: Sequence[int], opened: Integers | None, **known: Any) -> Session:
    """Make the `Session` of a sum over clients `members`, with its opened vector if at hand, and other fields."""
    names = setup.context.names
    return Session(
        plan=setup.plan,
        clients=tuple(names[member] for member in setup.context.clients),
        members=tuple(names[member] for member in members),
        release={} if opened is None else blocks_of(setup, opened),
        noise=noise_of(setup, len(members)),
        claim=setup.facts.claim,
        calibration=setup.sum.calibration,
        round=setup.round,
        cells=cell_names(setup),
        is_shown=setup.shows_sum,
        number=setup.number,
        ciphertexts=ciphertexts_of(setup),
        flaws=() if opened is None else flaws_of(setup, opened, len(members)),
        consortium=len(setup.roster.clients),
        **known,
    )


def assign_cells(session: Session, records: AuditRecords) -> AuditRecords:
    """Assign each record of one party to a class or slot that the session's sum counts, −1 for one that is in none."""
    if session.round is None:
        return records
    classes = len(session.plan.classes)
    places = session.round.cells(records.examples, classes)
    cells = records.labels * (len(session.cells) // classes) + places
    return replace(records, in_cells=np.where(places < 0, -1, cells))


def keep_counted(session: Session, records: AuditRecords) -> AuditRecords:
    """Keep the records that the session's sum counts; where it counts whole classes, `in_cells` becomes None."""
    found = records.take(records.cells >= 0)
    return found if len(session.cells) > len(session.plan.classes) else replace(found, in_cells=None)
