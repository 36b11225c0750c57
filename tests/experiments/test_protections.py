"""Every protection opens the same integers over the same contributions, and bears the noise that the plan asks for.

The checks of noise fail at random with probability 10⁻⁹ each.
"""

from typing import Any

import numpy as np
import pytest

import secagg
from secagg.agreement.plan import NoiseFrom
from secagg.data import open_dataset
from secagg.errors import BadInput, SessionAborted
from secagg.experiments.session import run_session
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.protection import PROTECTIONS
from tests.session.noise_checks import check_neighbours, check_noise, check_promise
from tests.worlds.rosters import make_roster
from tests.worlds.setups import IN_SUMS, exact, local, make_setup

DIGITS = open_dataset("digits")
OTHERS = tuple(name for name in PROTECTIONS if name != "none")
TOGETHER = ("shared", "encrypted")
NORMALISED = {"refine": 2, "normalise": "centred-unit"}
EXACT = {"epsilon": np.inf, "delta": None, "adjacency": None, "radius": 1.0, "colluders": 0}
LABELS = np.arange(300) % 5
FEATURES = np.random.default_rng(4).normal(size=(300, 100)) + 3 * np.eye(100)[LABELS]
PROMISE = {"epsilon": 4.0, "delta": 1e-5, "adjacency": "add-remove"}


def digits(protection: str, **settings: Any) -> Any:
    """A simulation over the digits."""
    return simulate_dataset(DIGITS, SimulationSettings(protection=protection, **settings))


def noisy(protection: str, **settings: Any) -> Any:
    """A simulation of one sum, unless said otherwise, with a promise over the arrays of this module."""
    return secagg.simulate(FEATURES, LABELS, protection=protection, **{**PROMISE, "refine": 0, **settings})


def noise_in(run: Any) -> np.ndarray:
    """What a one-sum run with everybody opened beyond the exact sum."""
    setup = run.federated.setup
    return run.federated.result.vector - exact(setup, local(setup, FEATURES, LABELS))


def identities(setup: Any) -> dict[int, Any]:
    """Every party's key by its place in the roster."""
    keys = {key.public: key for key in make_roster(len(setup.roster.clients), setup.plan.protection)[1]}
    return {index: keys[member.identity] for index, member in enumerate(setup.roster.members)}


@pytest.mark.parametrize(
    "settings", [{}, NORMALISED, {"method": "prototypes"}], ids=["fedcgs", "refined", "prototypes"]
)
@pytest.mark.parametrize(
    ("partition", "clients", "dropouts"), [("iid", 3, 0), ("dirichlet:0.3", 3, 1), ("dirichlet:0.3", 6, 1)]
)
def test_every_protection_opens_the_same_sum(
    settings: dict[str, Any], partition: str, clients: int, dropouts: int
) -> None:
    """Over the same contributions and survivors every protection gives one aggregate, head and set, to the bit."""
    given = {**settings, "partition": partition, "clients": clients, "dropouts": dropouts, "colluders": 0, "seed": 2}
    control = digits("none", **given).federated.result
    assert len(control.members) == clients - dropouts
    for protection in OTHERS:
        found = digits(protection, **given).federated.result
        assert found.members == control.members
        assert found.aggregate_sha256 == control.aggregate_sha256
        assert found.artifact_sha256 == control.artifact_sha256


def test_who_reaches_one_aggregator_is_left_out() -> None:
    """A client that leaves between the two aggregators is in no sum, like one that never uploads; its bytes count."""
    given = {"clients": 6, "dropouts": 2, "seed": 2}
    found, control = (digits(protection, **given).federated.result for protection in ("shared", "none"))
    assert len(found.members) == 4
    assert (found.members, found.aggregate_sha256) == (control.members, control.aggregate_sha256)
    setup = make_setup(protection="shared", **EXACT, dropouts=2)
    vectors = {member: np.full(setup.sum.layout.length, member) for member in setup.context.clients}
    opened = run_session(
        setup, identities(setup), vectors.__getitem__, dict(zip((1, 4), setup.protection.leaving, strict=True))
    )
    assert opened.members == (2, 3, 5)
    assert set(opened.total.tolist()) == {10}
    sent = opened.measured.client_bytes
    assert 1 not in sent
    first, _ = setup.protection.deliveries(setup.context)
    assert first.size < sent[4] < setup.context.upload_bytes < sent[5]


@pytest.mark.parametrize("protection", TOGETHER)
def test_who_left_is_in_no_later_round(protection: str) -> None:
    """Refinement goes on with those that are left."""
    assert len(digits(protection, clients=6, dropouts=1, seed=2, **NORMALISED).federated.result.members) == 5


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_too_few_uploads_abort(protection: str) -> None:
    """When one client of four is left nothing is opened, and settings that ask for it are refused beforehand."""
    setup = make_setup(4, protection=protection, **EXACT, dropouts=1)
    vectors = {member: np.full(setup.sum.layout.length, member) for member in setup.context.clients}
    with pytest.raises(SessionAborted, match="at least"):
        run_session(
            setup, identities(setup), vectors.__getitem__, dict.fromkeys((1, 2, 3), setup.protection.leaving[0])
        )
    most = 1 if protection == "masked" else 2
    with pytest.raises(BadInput, match=f"tolerate at most {most} dropouts"):
        digits(protection, clients=4, colluders=0, dropouts=3)


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_bytes_are_those_that_the_plan_says(protection: str) -> None:
    """A client sends its protected vector, as long as the plan says, and at most five kilobytes more."""
    run = digits(protection, clients=3)
    said = run.federated.setup.context.upload_bytes
    assert said < run.to_json()["upload_bytes_per_client"] < said + 5120
    beside = {"shared": 32 + 2 * 1136}.get(protection, 0)  # a seed, and the envelopes of it and of the vector
    assert said == run.federated.setup.context.packed_bytes + beside or protection == "encrypted"


@pytest.mark.parametrize("protection", PROTECTIONS)
@pytest.mark.parametrize("noise", IN_SUMS)
def test_noise_is_that_of_the_plan(protection: str, noise: NoiseFrom) -> None:
    """The opened sum bears all clients' shares, or one whole noise of each party that opens it; the claim is kept."""
    if (protection, noise) == ("encrypted", NoiseFrom.AGGREGATOR):
        with pytest.raises(BadInput, match="the exact sum before"):
            noisy(protection, noise=noise.value)
        return
    run = noisy(protection, noise=noise.value)
    setup = run.federated.setup
    openers = len(setup.facts.openers)
    parties = 5 if noise is NoiseFrom.CLIENT else openers
    assert openers == (2 if protection in TOGETHER else 1)
    assert setup.sum.calibration.parties == parties
    check_noise(setup, noise_in(run), parties)
    check_promise(setup.plan, setup.roster)
    check_neighbours(setup)
    assert setup.sum.opened_noise(5)["class_sums"].sigma == pytest.approx(np.sqrt(parties) * setup.plan.noises[1].sigma)


def test_noise_of_both_parties_is_their_own() -> None:
    """Two runs open sums whose noises have nothing in common."""
    one, other = (noise_in(noisy("shared", noise="aggregator")) for _ in range(2))
    assert np.mean(one == other) < 0.1


@pytest.mark.parametrize(
    ("protection", "noise"),
    [("shared", NoiseFrom.CLIENT), ("shared", NoiseFrom.AGGREGATOR), ("encrypted", NoiseFrom.CLIENT)],
)
def test_rounds_and_dropouts_go_with_noise(protection: str, noise: NoiseFrom) -> None:
    """With refinement, a promise and a client that leaves, a session comes to its end and states the promise."""
    run = noisy(protection, noise=noise.value, refine=1, dropouts=1, epsilon=8.0)
    assert len(run.federated.result.members) == 4
    assert "over all 2 sums together" in run.promise
    honest = "at least one of 2 parties that add the whole noise is honest"
    assert (honest in run.promise) == (noise is NoiseFrom.AGGREGATOR)


@pytest.mark.parametrize("protection", PROTECTIONS)
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_up_to_the_capacity_are_exact(protection: str, sign: int) -> None:
    """When all entries of the sum are as large as the plan allows, they come through the ring."""
    setup = make_setup(protection=protection, **EXACT)
    vectors = np.full(setup.sum.layout.length, sign * (setup.sum.capacity.largest // 5))
    opened = run_session(setup, identities(setup), lambda member: vectors, {})
    assert set(opened.total.tolist()) == {sign * setup.sum.capacity.largest}


def test_a_sum_beyond_the_capacity_is_not_opened() -> None:
    """The key holder releases nothing when an entry is larger than honest clients can make it."""
    setup = make_setup(protection="encrypted", **EXACT)
    vectors = np.full(setup.sum.layout.length, setup.sum.capacity.largest // 5)
    vectors[3] += 1
    with pytest.raises(SessionAborted, match="outside the plan's capacity"):
        run_session(setup, identities(setup), lambda member: vectors, {})
