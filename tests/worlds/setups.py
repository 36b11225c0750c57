"""Plans of federations in memory, and made-up records that fit them."""

from __future__ import annotations

from typing import Any

import numpy as np

from methods.method import domains_of
from secagg.agreement.plan import NoiseFrom
from secagg.data import Records
from secagg.data.records import DOMAIN
from secagg.encoding import Integers
from secagg.encoding.grid import Origin
from secagg.features.local_records import quantised_records
from secagg.plan_facts.planning import PlanChoices, PublicData, SurplusNoise, make_plan
from secagg.plan_facts.records import LocalRecords
from secagg.privacy import Adjacency
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from secagg.session.round_setup import local_of
from tests.worlds.rosters import make_roster

DELTA = 1e-5
IN_SUMS = (NoiseFrom.CLIENT, NoiseFrom.AGGREGATOR)
"""Whose noise is in what is summed; that of members' training is in what they make of their records."""
WIDE = 128
"""Features of the plans whose noise is measured: 8 643 coordinates tell n shares from n − 1 = 4."""


def make_setup(clients: int = 5, dimension: int = 4, classes: int = 3, refine: int = 0, **choices: Any) -> RoundSetup:
    """The first session of a plan, ε = 1 and all noise of the members kept unless said otherwise."""
    data = PublicData("features", (dimension,), tuple(f"class {number}" for number in range(classes)), None, None)
    fixed: dict[str, Any] = {"epsilon": 1.0, "delta": DELTA, "adjacency": Adjacency.ADD_REMOVE, "max_records": 64}
    fixed |= {"surplus_noise": SurplusNoise.KEEP}
    given = PlanChoices(**{**fixed, "parameters": (("refine", refine),), **choices})
    roster, _ = make_roster(clients, given.protection)
    return RoundSetup.of(make_plan(data, roster, given, OperatingSystem()), roster)


def some_records(setup: RoundSetup, count: int = 20, seed: int = 0) -> LocalRecords:
    """Records of the plan's grid with labels of all classes."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % len(setup.plan.classes)
    features = generator.normal(size=(count, setup.plan.dimension)) + 3 * np.eye(setup.plan.dimension)[labels]
    return local(setup, features, labels)


def local(setup: RoundSetup, features: np.ndarray, labels: np.ndarray) -> LocalRecords:
    """Features and labels as a member has them; where the plan has domains, records of all of them in turn."""
    origin, names = Origin.of("features", np.arange(1, len(labels) + 1)), domains_of(setup.plan.method_parameters)
    turns = np.arange(len(labels)) // len(setup.plan.classes)
    columns = {DOMAIN: np.array(names)[turns % len(names)]} if names else {}
    return quantised_records(setup.plan, features, Records(features, labels.astype(np.int64), columns, origin))


def exact(setup: RoundSetup, records: LocalRecords) -> Integers:
    """The flat vector without noise, multipliers included."""
    tensors = setup.round.contribute(local_of(setup, records, OperatingSystem())).blocks
    return setup.sum.layout.flatten(tensors)
