"""The ε over every column of the tables of accuracy, recomputed from the plans' noise alone by mpmath.

Nothing here is asked of `secagg.privacy`: a record's lengths, the shares that count and the Gaussian's δ are written
out once more.
"""

from collections.abc import Iterator

import mpmath
import pytest
from mpmath import mpf

from secagg.agreement.plan import Plan, PlannedNoise
from secagg.agreement.roster import Member, Roster
from secagg.crypto.signatures import SigningKey
from secagg.experiments.settings import SimulationSettings
from secagg.plan_facts.planning import PublicData, make_plan
from secagg.randomness import OperatingSystem
from tests.benchmarks.accuracy import DELTA, EPSILONS, OTHERS, ROWS, TASKS, settings_of
from tests.session.noise_checks import delta_by_hand

SHAPES = {
    "cifar": (256, 10),
    "fashion": (784, 10),
    "digits": (64, 10),
    "heart": (20, 2),
    "breast-cancer": (30, 2),
    "mnist": (784, 10),
    "pneumonia": (784, 2),
    "pacs": (256, 7),
    "adult": (105, 2),
    "credit": (30, 2),
    "usps": (256, 10),
    "usps-scattering": ((16, 16), 10),
    "mnist-scattering": ((28, 28), 10),
    "digits-scattering": ((8, 8), 10),
    "pneumonia-scattering": ((28, 28), 2),
    "fashion-scattering": ((28, 28), 10),
}
"""Inputs, or the picture's size where the backbone asks for it, and classes; the promise is the same for any."""
HOSPITALS = 4
RESIDUAL, MAPPED = 1 << 12, 1 << 16
"""Lengths in grid units: one record's residual in a round of refinement, and its mapped features."""
KNOWN_SHARE = 1
"""Of the shares in a sum: a member's own, or the one colluder's."""
FIRST = {"counts": 0, "class_sums": 1, "second_moment": 2}
"""The power of R_q that one record adds to a block of the first sum."""


def plans(label: str, name: str) -> Iterator[tuple[float, Plan, int]]:
    """The plan of every column of a row, the ε above it, and how many clients share it."""
    task = TASKS[name]
    inputs, classes = SHAPES[name]
    row = {**ROWS, **OTHERS}[label]
    clients = task.clients or HOSPITALS
    keys = [SigningKey.generate(OperatingSystem()) for _ in range(clients + 1)]
    names = [("server", "server"), *((f"client-{place}", "client") for place in range(clients))]
    roster = Roster.of("tables", [Member(*each, key.public) for each, key in zip(names, keys, strict=True)])
    kind, shape = ("images", inputs) if isinstance(inputs, tuple) else ("features", (inputs,))
    data = PublicData(kind, shape, tuple(map(str, range(classes))), None, None)
    for given in settings_of(task, row, EPSILONS):
        if given["seed"] == 0:
            settings = SimulationSettings(**{key: value for key, value in given.items() if key != "clients"})
            choices = settings.plan_choices(None, settings.max_records or 1 << 13, 0)
            yield given["epsilon"], make_plan(data, roster, choices, OperatingSystem()), clients


def squared_mu(plan: Plan, clients: int) -> mpf:
    """μ² of everything that the plan opens, for the neighbours that it names.

    One record adds Σ (multiplier·length)²/v over a sum's blocks, v = shares that count·σ² − 3. Replaced by another, at
    the cosine c, it moves the class sum by (2 − 2c) of its squared length, or two sums and two counts where the class
    is another; the second moment by 2 − 2c²; a gradient by 4 at the most. Every c is tried.
    """
    parts = {noise.block: _of_one_record(noise, plan, clients) for noise in plan.noises}
    rounds = plan.method_parameters["refine"] * parts.pop("gradient", mpf(0))
    counts, sums, second = (parts[block] for block in FIRST)
    if plan.unit == "client":
        return plan.max_records**2 * (counts + sums + second + rounds)
    if plan.adjacency == "add-remove":
        return counts + sums + second + rounds
    cosines = [mpf(place) / 1000 for place in range(-1000, 1001)]
    same = max((2 - 2 * c) * sums + (2 - 2 * c * c) * second for c in cosines)
    return max(2 * counts + 2 * sums + 2 * second, same) + 4 * rounds


def _of_one_record(noise: PlannedNoise, plan: Plan, clients: int) -> mpf:
    honest = clients - max(plan.colluders, KNOWN_SHARE)
    variances = [honest * mpf(noise.sigma) ** 2 - 3]
    if noise.off_diagonal:
        variances.append(2 * (honest * mpf(noise.off_diagonal) ** 2 - 3))
    length = mpf(plan.levels) ** FIRST[noise.block] if noise.block in FIRST else mpf(RESIDUAL) * MAPPED
    return (noise.multiplier * length) ** 2 / min(variances)


COLUMNS = [
    *((label, name) for label, row in ROWS.items() if row["method"] == "fedcgs" for name in TASKS),
    *((label, next(iter(TASKS))) for label in OTHERS),
]


@pytest.mark.parametrize(("label", "name"), COLUMNS)
def test_epsilon_of_every_column_is_kept(label: str, name: str) -> None:
    """The noise of the plan behind each column keeps the ε above it, and wastes less than a part in a thousand."""
    assert set(SHAPES) == set(TASKS)
    for epsilon, plan, clients in plans(label, name):
        assert (plan.epsilon, plan.delta, plan.dropouts) == (epsilon, DELTA, 0)
        with mpmath.workdps(40):
            mu = mpmath.sqrt(squared_mu(plan, clients))
        assert delta_by_hand(mu, epsilon) <= DELTA
        assert delta_by_hand(mu, epsilon * (1 - 1e-3)) > DELTA
