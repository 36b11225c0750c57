"""Simulated plans with a promise: the noise is the plan's, the reference has none.

The checks of noise fail at random with probability 10⁻⁹ each.
"""

import math
from typing import Any

import numpy as np
import pytest

import secagg
from secagg.agreement.plan import NoiseFrom
from secagg.data import partition
from secagg.encoding import Normalisation
from secagg.errors import BadInput
from secagg.experiments.reference import pooled_result
from secagg.heads import head_digest
from secagg.privacy import Unit
from tests.session.noise_checks import check_neighbours, check_noise, check_promise
from tests.worlds.setups import exact, local, make_setup, some_records

GENERATOR = np.random.default_rng(1)
LABELS = np.arange(120) % 3
FEATURES = GENERATOR.normal(size=(120, 40)) + 2 * np.eye(40)[LABELS]
PROMISE = {"epsilon": 4.0, "delta": 1e-5, "adjacency": "add-remove"}
HELD_OUT = {"test_features": FEATURES[::2], "test_labels": LABELS[::2]}


def simulated(**settings: Any) -> Any:
    """A simulation over the arrays of this module, of one sum unless said otherwise."""
    return secagg.simulate(FEATURES, LABELS, **{"refine": 0, **settings})


def noise_in(run: Any) -> np.ndarray:
    """What a one-sum run with everybody opened beyond the exact sum."""
    setup = run.federated.setup
    return run.federated.result.vector - exact(setup, local(setup, FEATURES, LABELS))


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("unit", "records"), [("record", None), ("client", 40)])
@pytest.mark.parametrize(("noise", "shares"), [("client", 5), ("aggregator", 1)])
def test_noise_is_that_of_the_plan(adjacency: str, unit: str, records: int | None, noise: str, shares: int) -> None:
    """The opened sum bears the noise of all clients' shares, or of one aggregator, and the plan keeps its promise."""
    run = simulated(**{**PROMISE, "adjacency": adjacency}, unit=unit, max_records=records, noise=noise, refine=0)
    setup = run.federated.setup
    check_noise(setup, noise_in(run), shares)
    check_promise(setup.plan, setup.roster)
    if unit == Unit.RECORD:
        check_neighbours(setup)
    assert "epsilon 4," in run.promise
    assert (f"{unit} level" in run.promise, adjacency in run.promise) == (True, True)


def test_noise_is_fresh_in_every_run() -> None:
    """The seed moves partition and dropouts and never the noise: two runs with one seed open different sums."""
    one, other = (simulated(**PROMISE, seed=3) for _ in range(2))
    assert np.mean(noise_in(one) == noise_in(other)) < 0.1


def test_survivors_shares_are_in_the_sum() -> None:
    """With two of ten gone the noise is that of eight shares, and the head is told so."""
    run = simulated(**PROMISE, clients=10, dropouts=2, protection="none", refine=0)
    setup, members = run.federated.setup, run.federated.result.members
    assert len(members) == 8
    rows = partition(LABELS, {}, "iid", 10, 0)
    kept = np.concatenate([rows[member - 1] for member in members])
    check_noise(setup, run.federated.result.vector - exact(setup, local(setup, FEATURES[kept], LABELS[kept])), 8)
    opened = setup.sum.opened_noise(8)
    assert opened["class_sums"].sigma == pytest.approx(math.sqrt(8) * setup.plan.noises[1].sigma)


def test_more_dropouts_than_can_be_calibrated_for() -> None:
    """When more are to leave than a plan can tolerate, nothing runs."""
    with pytest.raises(BadInput, match="10 clients tolerate at most 4 dropouts"):
        simulated(**PROMISE, clients=10, dropouts=6)


@pytest.mark.parametrize("refine", [0, 2])
def test_reference_has_no_noise_and_no_partition(refine: int) -> None:
    """The pooled head is the same for every plan, order and division of the records, and that of exact sums."""
    none: dict[str, Any] = {"epsilon": math.inf, "delta": None, "adjacency": None}
    plain = make_setup(refine=refine, levels=1 << 12, normalise=Normalisation.CENTRED_UNIT, **none)
    records = some_records(plain, 60)
    generator = np.random.default_rng(0)
    heads = set()
    for setup in (
        plain,
        make_setup(refine=refine, levels=1 << 12),
        make_setup(refine=refine, levels=1 << 12, clients=9, epsilon=0.5),
        make_setup(refine=refine, levels=1 << 12, noise=NoiseFrom.AGGREGATOR, unit=Unit.CLIENT),
    ):
        shuffled = records.take(generator.permutation(60))
        parts = [shuffled.take(rows) for rows in np.array_split(np.arange(60), generator.integers(1, 9))]
        heads.add(pooled_result(setup, dict(enumerate(parts))).artifact_sha256)
    assert len(heads) == 1


@pytest.mark.parametrize("refine", [0, 2])
def test_without_noise_the_federation_is_the_reference(refine: int) -> None:
    """At ε = ∞ every partition, with protection or not, gives the pooled head to the bit."""
    runs = [
        simulated(refine=refine, normalise="centred-unit", **more, **HELD_OUT)
        for more in ({"clients": 1, "protection": "none"}, {"clients": 6, "partition": "dirichlet:0.1"}, {"seed": 4})
    ]
    assert len({head_digest(run.head) for run in runs}) == 1
    assert all(run.evaluation == run.reference for run in runs)


def test_reference_of_a_noisy_run_is_exact() -> None:
    """However small ε, the reference is evaluated without noise; the federation's own head is not."""
    fixed = {"normalise": "centred-unit", "levels": 1 << 16, **HELD_OUT}
    exact_run = simulated(**fixed, refine=0)
    noisy = simulated(**{**PROMISE, "epsilon": 0.05}, **fixed, refine=0, seed=7, clients=4)
    assert noisy.reference == exact_run.reference
    assert noisy.reference.accuracy > 0.9
    assert head_digest(noisy.head) != head_digest(exact_run.head)


@pytest.mark.parametrize("refine", [0, 3])
def test_replacing_costs_more_than_adding(refine: int) -> None:
    """For the same ε every block bears more noise under replace-one, by √2 at least and 2 at most, rounding apart."""
    one, other = (
        simulated(**{**PROMISE, "adjacency": adjacency}, refine=refine).federated.setup.plan
        for adjacency in ("add-remove", "replace-one")
    )
    assert one.levels == other.levels
    for small, large in zip(one.noises, other.noises, strict=True):
        ratio = (large.sigma / large.multiplier) / (small.sigma / small.multiplier)
        assert small.block == large.block
        assert 0.995 * math.sqrt(2) < ratio < 2.001


def test_smaller_epsilon_costs_more() -> None:
    """σ falls as ε rises, for every block."""
    noises = [simulated(**{**PROMISE, "epsilon": epsilon}).federated.setup.plan.noises for epsilon in (0.5, 1.0, 4.0)]
    for blocks in zip(*noises, strict=True):
        each = [block.sigma / block.multiplier for block in blocks]
        assert each == sorted(each, reverse=True)


def test_rounds_run_to_the_end() -> None:
    """A refined plan has all its sums, the last of them a gradient, and one promise for all."""
    run = simulated(**{**PROMISE, "epsilon": 8.0}, refine=3, **HELD_OUT)
    setup = run.federated.setup
    assert (setup.number, setup.is_last) == (4, True)
    assert list(run.federated.result.blocks) == ["gradient"]
    assert "over all 4 sums together" in run.promise


def test_bad_records_change_nothing_but_their_count() -> None:
    """At finite ε records without a direction are counted for the operator and are in no sum."""
    bad = np.vstack([FEATURES, np.full((2, 40), np.nan), np.ones((1, 40))])
    run = secagg.simulate(bad, np.append(LABELS, [0, 1, 2]), clients=1, protection="none", colluders=0, **PROMISE)
    assert run.bad_records == 3
    check_noise(run.federated.setup, noise_in(run), 1)
    with pytest.raises(BadInput, match="row 121"):
        secagg.simulate(bad, np.append(LABELS, [0, 1, 2]), normalise="unit")


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 1.0},
        {"epsilon": 1.0, "delta": 1e-5},
        {"epsilon": 1.0, "adjacency": "add-remove"},
        {**PROMISE, "adjacency": "substitute"},
        {**PROMISE, "unit": "user"},
        {**PROMISE, "noise": "server"},
        {**PROMISE, "delta": 1.0},
        {**PROMISE, "normalise": "none"},
        {**PROMISE, "colluders": 5},
    ],
    ids=str,
)
def test_promise_that_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    """A finite ε without delta or adjacency, unknown words, and noise that nobody honest adds are refused."""
    with pytest.raises(BadInput):
        simulated(**settings)
