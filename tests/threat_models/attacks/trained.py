"""Simulated chains of training over records made up for it, and what an adversary finds in them."""

import math
from functools import cache

import numpy as np

from secagg.data import Dataset
from secagg.data import Records as DataRecords
from secagg.encoding.grid import Origin
from secagg.experiments.settings import SimulationSettings
from tests.threat_models.attacks.audited import plenty
from tests.worlds.chance import repeatable
from threat_models.evidence.simulation import rehearse


def few(inside=24, outside=400, dimension=100):
    """Few members' records with far more features, and strangers; two classes that are drawn alike."""
    generator = np.random.default_rng(11)
    count = inside + outside
    features, labels = generator.normal(size=(count, dimension)), np.arange(count) % 2
    whole = DataRecords(features, labels, {}, Origin.of("few", np.arange(1, count + 1)))
    held, free = np.split(np.arange(count), [inside])
    return Dataset("few", "features", whole.take(held), whole.take(free), ("no", "yes"), None, None, None)


@cache
def trained(
    dataset="few", parameters="rounds=2 gradients=1", epsilon=math.inf, clients=6, method="fedavg", unit="record"
):
    """A rehearsal of a method that trains, with the same noise in every run."""
    promise = (
        {} if math.isinf(epsilon) else {"epsilon": epsilon, "delta": 1e-5, "adjacency": "add-remove", "unit": unit}
    )
    settings = SimulationSettings(clients=clients, method=method, parameters=parameters, **promise)
    with repeatable(f"{dataset} {settings}"):
        return rehearse(few() if dataset == "few" else plenty(), settings)
