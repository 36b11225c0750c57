"""Simulated sessions over bundled data, and what adversaries see of them: for attacks on real plans."""

import math
from functools import cache

import numpy as np

from secagg.data import Dataset, open_dataset
from secagg.data import Records as DataRecords
from secagg.encoding.grid import Origin
from secagg.experiments.settings import SimulationSettings
from tests.worlds.chance import repeatable
from threat_models.adversary import adversary_named
from threat_models.evidence.simulation import rehearse
from threat_models.findings import covers
from threat_models.views import view_of


def plenty(count=12_000, dimension=20):
    """Thousands of records of two classes that differ in nothing else, so that members are not told from others."""
    generator = np.random.default_rng(7)
    labels = np.arange(count) % 2
    features = generator.normal(size=(count, dimension)) + 0.5 * (labels[:, None] == np.arange(dimension) % 2)
    whole = DataRecords(features, labels, {}, Origin.of("plenty", np.arange(1, count + 1)))
    inside, outside = np.split(np.arange(count), [3 * count // 4])
    return Dataset("plenty", "features", whole.take(inside), whole.take(outside), ("no", "yes"), None, None, None)


@cache
def rehearsed(dataset="breast-cancer", epsilon=math.inf, partition="iid", method="fedcgs", clients=8, refine=0):
    """A rehearsal, made once for all tests that ask for the same, with the same noise in every run."""
    promise = {} if math.isinf(epsilon) else {"epsilon": epsilon, "delta": 1e-5, "adjacency": "add-remove"}
    settings = SimulationSettings(clients=clients, partition=partition, method=method, refine=refine, **promise)
    with repeatable(f"{dataset} {settings}"):
        return rehearse(plenty() if dataset == "plenty" else open_dataset(dataset), settings)


def attacked(attack, adversary, rehearsal, *sessions):
    """What the attack finds in what the adversary sees of the rehearsal's sessions, or of those given."""
    seen = (sessions or rehearsal.sessions)[: attack.sessions]
    views = tuple(view_of(session, adversary_named(adversary)) for session in seen)
    return attack.run(views, rehearsal.knowledge, lambda *_: None)


def measured(finding, name, of=""):
    """The one measure that this name stands for, of what begins so."""
    (found,) = [each for each in finding.measures if covers(name, each.metric) and each.of.startswith(of)]
    return found
