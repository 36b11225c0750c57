"""The papers' own noise on what clients send, in simulation: it reproduces them, and protects nothing."""

from __future__ import annotations

import numpy as np

from methods.baselines.paper_noise import PaperNoise
from methods.method import domains_of
from secagg.encoding import Integers
from secagg.errors import BadInput
from secagg.plan_facts.records import LocalRecords
from secagg.randomness import OperatingSystem, RandomSource
from secagg.session import RoundSetup
from secagg.session.contribution import local_of

DELTA = 1e-5
"""The δ at which ε is stated where the settings give none."""


def noisy_contribution(
    setup: RoundSetup, records: LocalRecords, mechanism: PaperNoise, source: RandomSource | None = None
) -> Integers:
    """One client's counts, exact, and its prototypes p_j = A_j/N_j with the noise, times N_j again.

    The noise is drawn from `source`, by default the operating system. A prototype is that of a class, or for `mpft` of
    a class in a domain. Raises BadInput for noise that does not fit into the plan's ring.
    """
    plan = setup.plan
    tensors = setup.round.contribute(local_of(setup, records, OperatingSystem())).blocks
    counts, sums = tensors.values()
    held = np.nonzero(counts)
    unit = plan.grid.unit(plan.dimension) / plan.radius
    if len(records):
        prototypes = mechanism.apply(sums[held] / counts[held][:, None] / unit, source)
        sums[held] = np.rint(prototypes * unit * counts[held][:, None]).astype(np.int64)
    if np.abs(sums).max(initial=0) > plan.max_records * plan.levels:
        raise BadInput("noise of this size does not fit into the ring", remedy="give a larger max_records")
    return setup.sum.layout.flatten(tensors)


def amounts_to(setup: RoundSetup, members: list[LocalRecords], mechanism: PaperNoise, delta: float | None) -> str:
    """What the noise is worth, in one line: ε for replacing a record by another of its label, the counts being public.

    The other record is of the same domain, too, where the method tells domains apart.
    With records of length 1 a prototype of N_j records moves by at most 2/N_j; the smallest N_j that a client has
    decides. Where records are not clipped no ε holds.
    """
    source = OperatingSystem()
    counts = np.stack(
        [next(iter(setup.round.contribute(local_of(setup, each, source)).blocks.values())) for each in members]
    )
    smallest = int(counts[counts > 0].min())
    grid, dimension = setup.plan.grid, setup.plan.dimension
    longest = grid.levels / grid.unit(dimension)
    sensitivity = 2 * longest / smallest if grid.is_normalised else None
    at = delta or DELTA
    epsilon = mechanism.epsilon(sensitivity=sensitivity, dimension=dimension, delta=at)
    alike = "label and domain" if domains_of(setup.plan.method_parameters) else "label"
    return f"{mechanism.sentence(epsilon, at)} (another record of the same {alike}; counts are public and exact)"
