"""Simulation at finite ε: what the plan becomes, what the sums bear, what the report says, what is refused."""

import json
import math
import re
from itertools import pairwise

import numpy as np
import pytest

import secagg
from secagg.errors import BadInput
from secagg.privacy import Mechanism
from secagg.session import RoundSetup
from tests.cli.test_simulate import KEYS
from tests.experiments.test_simulation import FEATURES, LABELS
from tests.session.noise_checks import check_neighbours, check_noise, check_promise, check_stated, delta_by_hand
from tests.worlds.setups import exact, local, make_setup

EPSILON, DELTA = 2.0, 1e-5
PRIVATE = {"epsilon": EPSILON, "delta": DELTA, "adjacency": "add-remove"}
REPLACE = {**PRIVATE, "adjacency": "replace-one"}
LENGTH = 3 + 3 * 5 + 15
"""Counts, class sums and moments of three classes and five features."""


def simulated(features=FEATURES, labels=LABELS, **settings):
    """A simulation over small arrays, private and of one sum unless said otherwise."""
    return secagg.simulate(features, labels, **{**PRIVATE, "refine": 0, **settings})


def planned(**settings):
    """The setup of such a simulation."""
    setup: RoundSetup = simulated(**settings).federated.setup
    return setup


def ring_bytes(clients, records, levels, noise):
    """Bytes of the smallest ring for |sum| ≤ clients·records·R_q² + noise, by hand."""
    largest = clients * records * levels**2 + noise
    return next(size for size in range(1, 9) if largest < 1 << (8 * size - 1))


@pytest.mark.parametrize("settings", [{}, {"noise": "aggregator"}, {"unit": "client", "max_records": 32}])
def test_json_is_the_contract(settings):
    """The report has every key of the contract, with the promise that was asked for, and is plain JSON."""
    run = simulated(clients=4, test_features=FEATURES, test_labels=LABELS, **settings)
    content = run.to_json()
    assert set(content) >= KEYS
    stated = {
        key: content[key] for key in ("epsilon", "delta", "adjacency", "unit", "noise", "normalisation", "radius")
    }
    assert stated == {
        "epsilon": EPSILON,
        "delta": DELTA,
        "adjacency": "add-remove",
        "unit": settings.get("unit", "record"),
        "noise": settings.get("noise", "client"),
        "normalisation": "centred-unit",
        "radius": 1.0,
    }
    assert content["vector_length"] == LENGTH
    assert content["promise"] == run.federated.setup.facts.claim.sentence()
    assert f"(epsilon {EPSILON:g}, add-remove, {stated['unit']} level)" in content["promise"]
    assert re.fullmatch("[0-9a-f]{64}", content["aggregate_sha256"])
    assert not [note for note in content["notes"] if "most frequent class" not in note]  # noise may leave chance
    without_noise = {"accuracy", "accuracy_interval", "accuracy_reference", "bad_records", "seconds", "client_seconds"}
    assert without_noise <= set(content["not_private"]) <= set(content)
    assert ("ring" in content["not_private"]) == (settings.get("max_records") is None)
    assert json.loads(json.dumps(content, allow_nan=False)) == content


@pytest.mark.parametrize("clients", [3, 9])
def test_levels_ring_and_saving_by_rule(clients):
    """R_q = 2¹⁰, the ring is the least for all records and 10σ√n, and what the coarse grid saves is as computed."""
    run = simulated(clients=clients)
    content, plan = run.to_json(), run.federated.setup.plan
    records = 1 << math.ceil(math.log2(90 / clients))
    assert (content["levels"], plan.max_records) == (1024, records)
    noise = math.ceil(10 * math.sqrt(clients) * max(each.sigma for each in plan.noises))
    used = ring_bytes(clients, records, 1024, noise)
    assert content["ring"] == 8 * used
    assert content["bytes_saved_by_grid"] == LENGTH * (ring_bytes(clients, records, 1 << 16, 0) - used) > 0


def test_levels_grow_with_the_dimension_and_with_little_noise():
    """R_q is a power of two of at least 16·√d, and doubles until the noise of one share dominates it."""
    wide = np.random.default_rng(2).normal(size=(90, 5000))
    assert planned(features=wide, method="prototypes").plan.levels == 2048
    little = planned(epsilon=1e5, clients=9).plan
    assert little.levels > 1024
    assert min(each.sigma for each in little.noises) >= 3
    assert planned(levels=300).plan.levels == 300


def test_sigmas_between_adjacencies():
    """Replacing takes √2.3805 times the noise of add/remove with FedCGS' default shares, and √3.6 with prototypes."""
    for settings, factor in (({}, math.sqrt(2.3805)), ({"method": "prototypes"}, math.sqrt(3.6))):
        one, other = (planned(**settings, **adjacency).plan.noises for adjacency in (PRIVATE, REPLACE))
        for before, after in list(zip(one, other, strict=True))[1:]:
            assert before.block == after.block
            assert after.sigma / before.sigma == pytest.approx(factor, rel=1e-3)


def test_sigma_shrinks_with_epsilon():
    """Every block's noise falls as ε grows."""
    noises = [planned(epsilon=epsilon).plan.noises for epsilon in (0.5, 1.0, 4.0)]
    for more, less in pairwise(noises):
        assert all(
            one.sigma / one.multiplier > other.sigma / other.multiplier for one, other in zip(more, less, strict=True)
        )


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("noise", ["client", "aggregator"])
def test_simulated_plan_keeps_its_promise(adjacency, noise):
    """The plan of a simulation is one that members accept, and the worst neighbours use its promise up."""
    setup = planned(adjacency=adjacency, noise=noise)
    check_promise(setup.plan, setup.roster)
    check_neighbours(setup)


def noise_in(run):
    """The noise in the opened sum of a run in which nobody vanished."""
    setup = run.federated.setup
    return run.federated.result.vector - exact(setup, local(setup, WIDE, WIDE_LABELS))


WIDE_LABELS = np.arange(400) % 5
WIDE = np.random.default_rng(4).normal(size=(400, 100)) + 3 * np.eye(100)[WIDE_LABELS]


@pytest.mark.parametrize(("noise", "shares"), [("client", 5), ("aggregator", 1)])
def test_opened_sum_bears_the_planned_noise(noise, shares):
    """The opened sum is the exact one plus the planned noise: five shares or one (false failures 10⁻⁹)."""
    run = simulated(WIDE, WIDE_LABELS, noise=noise)
    check_noise(run.federated.setup, noise_in(run), shares)


def test_noise_is_not_seeded():
    """Two runs with one seed differ in the sum and agree in all that the seed decides."""
    one, other = (simulated(seed=7) for _ in range(2))
    assert one.federated.result.aggregate_sha256 != other.federated.result.aggregate_sha256
    assert one.federated.result.members == other.federated.result.members


def test_aggregator_gives_the_exact_gaussian():
    """An aggregator adds all the noise: one party, the claim by Balle & Wang to 0.1 %, less noise than in shares."""
    setup = planned(noise="aggregator")
    first = setup.facts.claim.releases.first
    assert (first.mechanism, first.parties, first.fewest) == (Mechanism.GAUSSIAN, 1, 1)
    levels = setup.plan.levels
    counts, sums, moment = setup.plan.noises
    mu = math.sqrt(
        (counts.multiplier / counts.sigma) ** 2 + (levels / sums.sigma) ** 2 + (levels**2 / moment.sigma) ** 2
    )
    assert delta_by_hand(mu, EPSILON) <= DELTA <= delta_by_hand(mu, 0.999 * EPSILON)
    assert setup.facts.claim.sentence().endswith("It holds while the party that adds the noise is honest.")
    shares = planned(noise="client", clients=5)
    assert shares.facts.claim.releases.first.mechanism is Mechanism.DISCRETE_SHARES
    assert sums.sigma < math.sqrt(5) * shares.plan.noises[1].sigma
    assert setup.sum.capacity.noise == 0 < shares.sum.capacity.noise


def test_claim_of_shares_is_never_rounded_down():
    """The ε in words is not below the exact one."""
    check_stated(planned().facts.claim)


def test_client_hides_a_whole_client():
    """A client's promise takes max_records times a record's noise, and says when that bound was read off the data."""
    record, client = planned().plan, simulated(unit="client")
    plan = client.federated.setup.plan
    assert plan.unit == "client"
    assert plan.max_records == 32
    for one, other in list(zip(record.noises, plan.noises, strict=True))[1:]:
        assert other.sigma / one.sigma == pytest.approx(32, rel=1e-3)
    assert any("read off the data" in note for note in client.notes)
    assert not simulated(unit="client", max_records=32).notes
    assert "any one client's records were among the data" in client.promise


def test_shares_move_noise_between_blocks():
    """A block with a larger share of μ² has less noise, by the square root, and the promise stays."""
    usual = planned().plan
    moved = planned(shares="counts=0.02,class_sums=0.29,second_moment=0.69")
    equal = planned(shares="equal").plan
    check_promise(moved.plan, moved.roster)
    assert moved.plan.noises[1].sigma / usual.noises[1].sigma == pytest.approx(math.sqrt(0.58 / 0.29), rel=1e-3)
    assert moved.plan.noises[2].sigma / usual.noises[2].sigma == pytest.approx(math.sqrt(0.40 / 0.69), rel=1e-3)
    shares = moved.facts.claim.releases.first.fewest
    counts = [(shares * each.sigma**2 - 3) / each.multiplier**2 for each in (equal.noises[0], usual.noises[0])]
    assert counts[0] / counts[1] == pytest.approx(0.02 * 3, rel=1e-3)


@pytest.mark.parametrize(("clients", "dropouts"), [(10, 0), (10, 3), (7, 2)])
def test_noise_is_calibrated_for_clients_minus_dropouts(clients, dropouts):
    """As many as may vanish do, and the sum of the others still keeps the promise; no smaller one may be opened."""
    run = simulated(clients=clients, dropouts=dropouts, seed=3)
    setup, claim = run.federated.setup, run.federated.setup.facts.claim
    assert setup.plan.min_clients_in_sum == setup.facts.fewest == claim.releases.first.fewest + 1 == clients - dropouts
    assert clients - dropouts <= len(run.federated.result.members) <= clients
    assert claim.what_if(dropped=dropouts, colluding=1) <= EPSILON < claim.what_if(dropped=dropouts + 1, colluding=1)


def test_colluders_take_more_noise():
    """Shares of colluders do not count, and one does not where there are none: fewer honest ones carry the promise."""
    trusting, usual, careful = (planned(clients=7, **each) for each in ({"colluders": 0}, {}, {"colluders": 2}))
    assert (usual.plan.colluders, trusting.plan.noises) == (1, usual.plan.noises)
    assert careful.facts.claim.releases.first.fewest == 5
    assert careful.plan.noises[1].sigma / usual.plan.noises[1].sigma == pytest.approx(math.sqrt(6 / 5), rel=1e-3)


@pytest.mark.parametrize(("protection", "most"), [("masked", 4), ("shared", 8), ("encrypted", 8), ("none", 8)])
def test_too_many_dropouts_are_refused(monkeypatch, protection, most):
    """More dropouts than the protection bears are refused; no session with too little noise begins."""
    monkeypatch.setattr("secagg.experiments.simulation.play_rounds", None)
    with pytest.raises(BadInput, match=f"10 clients tolerate at most {most} dropouts where 0 may collude"):
        simulated(clients=10, colluders=0, dropouts=most + 1, protection=protection)


@pytest.mark.parametrize("protection", ["shared", "encrypted"])
def test_most_dropouts_keep_the_promise(protection):
    """With as many dropouts as the protection bears, the sum of the two that are left keeps the promise."""
    run = simulated(clients=6, colluders=0, dropouts=4, protection=protection)
    setup = run.federated.setup
    assert setup.plan.min_clients_in_sum == setup.facts.fewest == 2 <= len(run.federated.result.members)
    assert setup.facts.claim.what_if(dropped=4) <= EPSILON


@pytest.mark.parametrize("noise", ["client", "aggregator"])
def test_refinement_is_within_the_same_promise(noise):
    """Rounds of refinement share one ε: the claim counts all sums together, and the last sum is a round's."""
    run = simulated(clients=3, refine=2, noise=noise, epsilon=8.0)
    setup = run.federated.setup
    assert setup.rounds == 3
    assert setup.is_last
    assert setup.facts.claim.releases.epsilon(DELTA) <= 8.0
    assert "over all 3 sums together" in run.promise
    assert list(run.federated.result.blocks) == ["gradient"]
    assert run.to_json()["refine"] == 2


@pytest.mark.parametrize(
    ("settings", "rounds"),
    [
        ({}, 16),
        ({"protection": "none"}, 16),
        ({"noise": "aggregator"}, 16),
        ({"at_least": 100}, 16),
        ({"protection": "shared"}, 0),
        ({"protection": "encrypted"}, 0),
        ({"unit": "client"}, 0),
        ({"method": "prototypes"}, 0),
        ({"parameters": "personalise=1"}, 0),
        ({"parameters": "refine=3"}, 3),
        ({"refine": 0}, 0),
        ({"epsilon": math.inf}, 0),
    ],
    ids=str,
)
def test_rounds_by_rule(settings, rounds):
    """Unless told otherwise a simulation has rounds where they pay, by the plan's fields and never by the data."""
    setup = planned(clients=4, **{"refine": None, **settings})
    assert setup.rounds == rounds + 1
    assert setup.plan.at_least == settings.get("at_least", 0)


def test_refinement_without_noise_normalises():
    """At ε = ∞ refinement brings records to length 1, promises nothing, and is exact."""
    run = simulated(epsilon=math.inf, refine=2, test_features=FEATURES, test_labels=LABELS)
    content = run.to_json()
    assert (content["normalisation"], content["radius"], content["levels"]) == ("centred-unit", 1.0, 1 << 16)
    assert content["promise"] is None
    assert content["accuracy"] == content["accuracy_reference"]
    assert planned(epsilon=math.inf, refine=1, centre=0.3).plan.normalisation == "unit"


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one", None])
def test_delta_and_adjacency_are_accepted_without_noise(unit, adjacency):
    """At ε = ∞ delta, adjacency and unit change nothing in the sum, and are reported as given."""
    plain = simulated(epsilon=math.inf, delta=None, adjacency=None)
    given = simulated(epsilon=math.inf, adjacency=adjacency, unit=unit)
    assert given.federated.result.aggregate_sha256 == plain.federated.result.aggregate_sha256
    content = given.to_json()
    named = "delta and adjacency promise" if adjacency else "delta promises"
    assert f"{named} nothing at epsilon inf: there is no noise" in content["notes"]
    assert not any("promise nothing" in note for note in plain.notes)
    assert (content["epsilon"], content["delta"], content["adjacency"], content["unit"], content["noise"]) == (
        "inf",
        DELTA,
        adjacency,
        unit,
        None,
    )
    assert (content["promise"], content["bytes_saved_by_grid"]) == (None, 0)


def test_bad_records_count_for_nothing():
    """NaN and constant records are counted, and the exact part of the sum is that of the others."""
    features = FEATURES.copy()
    features[3, 2], features[40], features[41, 0] = np.nan, 1.0, np.inf
    run = simulated(features, noise="aggregator", epsilon=50.0)
    assert run.bad_records == run.to_json()["bad_records"] == 3
    assert run.notes == (
        "3 of 90 training records are bad and count as zero; 0 of 0 held-out records are bad and are not scored",
    )
    setup = run.federated.setup
    kept = np.isin(np.arange(90), [3, 40, 41], invert=True)
    good = exact(setup, local(setup, FEATURES[kept], LABELS[kept]))
    check_noise(setup, run.federated.result.vector - good, 1)
    assert simulated().bad_records == 0


def test_reference_is_pooled_and_exact():
    """The reference is the head of the exact pooled sum on the same grid, the same in every run."""
    tests = {"test_features": FEATURES, "test_labels": LABELS}
    runs = [simulated(epsilon=0.5, clients=clients, **tests) for clients in (3, 6)]
    alone = simulated(epsilon=math.inf, normalise="centred-unit", levels=1024, **tests)
    assert {run.reference for run in runs} == {alone.evaluation}


def test_prototypes_at_finite_epsilon():
    """Prototypes take noise on their two blocks and give a head."""
    run = simulated(method="prototypes", epsilon=8.0, test_features=FEATURES, test_labels=LABELS)
    assert [noise.block for noise in run.federated.setup.plan.noises] == ["counts", "class_sums"]
    assert run.to_json()["vector_length"] == 3 + 15
    assert run.head.present.all()


@pytest.mark.parametrize("settings", [{"refine": 2}, {"ridge": 0.1}, {"covariance": "total"}])
def test_prototypes_take_no_parameters(settings):
    """What prototypes do not have is refused, not left out silently."""
    with pytest.raises(BadInput, match="prototypes"):
        simulated(method="prototypes", **settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"delta": None}, "without its delta and adjacency"),
        ({"adjacency": None}, "without its delta and adjacency"),
        ({"noise": "magic"}, "no such noise: magic"),
        ({"unit": "patient"}, "no such unit"),
        ({"adjacency": "swap"}, "no such adjacency"),
        ({"normalise": "none"}, "needs normalised records"),
        ({"normalise": "magic"}, "no such normalise"),
        ({"epsilon": math.inf, "refine": 1, "normalise": "none"}, "takes records of one length"),
        ({"radius": 2.0}, "normalised records all have length 1"),
        ({"centre": 0.3, "normalise": "centred-unit"}, "their own mean as centre"),
        ({"levels": 1}, "at least 3"),
        ({"levels": 1 << 20}, "grid units"),
        ({"delta": 0.6}, "delta"),
        ({"epsilon": 1e-7}, "epsilon: 1e-07 is outside"),
        ({"shares": "magic"}, "unknown rule 'magic'"),
        ({"shares": "counts=x"}, "are no shares"),
        ({"shares": "counts=0.5,class_sums=0.5"}, "do not fit"),
        ({"shares": "counts=0,class_sums=0.5,second_moment=0.5"}, ""),
        ({"shares": "counts=0.5,class_sums=0.5,second_moment=0.5"}, ""),
        ({"clients": 3, "colluders": 2}, ""),
        ({"max_records": 10}, "more than 10; raise max_records"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_what_cannot_be_promised_is_refused(monkeypatch, settings, words):
    """Settings that keep no promise are refused before any session runs."""
    monkeypatch.setattr("secagg.experiments.simulation.play_rounds", None)
    with pytest.raises(BadInput, match=words or None):
        simulated(**settings)


def test_members_of_a_real_federation_get_the_same_noise():
    """The rule that plans a simulation is the one that plans a federation."""
    real = make_setup(dimension=5, classes=3, epsilon=EPSILON, colluders=0, dropouts=0, max_records=32)
    assert real.plan.noises == planned(clients=5).plan.noises
