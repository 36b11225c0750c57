"""Plans whose sum two parties open: who adds the noise, what ring and ciphertexts hold, what people are told."""

import math
from dataclasses import replace
from typing import Any

import pytest

from secagg.agreement.plan import NoiseFrom
from secagg.errors import BadInput, CapacityExceeded, PlanRefused
from secagg.plan_facts.explanation import explain
from secagg.plan_facts.noise_plan import NoiseParties
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.privacy import Mechanism
from secagg.protection import PROTECTIONS
from secagg.protection.encryption.parameters import for_capacity
from secagg.session import RoundSetup
from tests.session.noise_checks import check_promise, reported
from tests.worlds.rosters import make_roster
from tests.worlds.setups import make_setup

TOGETHER = ("shared", "encrypted")
ALONE = ("masked", "none")
EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": None, "adjacency": None, "radius": 1.0}


BY_OPENERS = ("masked", "none", "shared")


@pytest.mark.parametrize("protection", BY_OPENERS)
def test_each_opener_adds_all_the_noise(protection):
    """A single opener adds the noise of an aggregator, and each of two openers adds all of it; one honest is enough."""
    setup = make_setup(protection=protection, noise=NoiseFrom.AGGREGATOR)
    parties = 2 if protection in TOGETHER else 1
    expected = NoiseParties(Mechanism.GAUSSIAN, parties, 1)
    assert NoiseParties.of(setup.plan, "aggregator", setup.roster, 4) == expected
    first = setup.facts.claim.releases.first
    assert (first.mechanism, first.parties, first.fewest) == (Mechanism.GAUSSIAN, parties, 1)
    assert setup.facts.claim.what_if(colluding=parties - 1) <= setup.plan.epsilon
    assert setup.facts.claim.what_if(colluding=parties) == math.inf


def test_one_opener_of_two_adds_as_much_as_a_single_one():
    """The planned σ of an aggregator does not depend on how many there are."""
    noises = [make_setup(protection=name, noise=NoiseFrom.AGGREGATOR).plan.noises for name in BY_OPENERS]
    assert noises == [noises[0]] * len(noises)


@pytest.mark.parametrize("refine", [0, 2])
def test_capacity_has_room_for_the_noise_of_both(refine):
    """The ring holds all records at their bounds plus ten σ of the noise that both openers add."""
    setup = make_setup(protection="shared", noise=NoiseFrom.AGGREGATOR, refine=refine)
    sigma = max(each.sigma for each in setup.sum.calibration.blocks)
    assert setup.sum.capacity.noise == math.ceil(10 * sigma * math.sqrt(2))


@pytest.mark.parametrize("protection", TOGETHER)
def test_clients_shares_are_as_with_masks(protection):
    """Neither opener sees a vector alone, so that a client's share is the same as under masks."""
    plan, masked = make_setup(protection=protection).plan, make_setup().plan
    assert (plan.noises, plan.min_clients_in_sum) == (masked.noises, masked.min_clients_in_sum)
    assert "the noise gives" in reported(
        check_promise, replace(plan, min_clients_in_sum=2, dropouts=2), make_roster(5, protection)[0]
    )


@pytest.mark.parametrize("protection", TOGETHER)
def test_a_lone_client_is_refused(protection):
    """The sum of one client is no sum."""
    with pytest.raises(BadInput, match="cannot be reached"):
        make_setup(protection=protection, clients=1, colluders=0, **EXACT)


def test_ciphertexts_have_an_edge():
    """Sums below 2⁵⁷ are encrypted; a plan for more is refused, though the ring has room and shares can be made."""
    wide = {**EXACT, "clients": 4}
    assert make_setup(protection="encrypted", max_records=(1 << 23) - 1, **wide).sum.capacity.largest < 1 << 57
    with pytest.raises(CapacityExceeded, match="plaintext"):
        make_setup(protection="encrypted", max_records=1 << 23, **wide)
    assert make_setup(protection="shared", max_records=1 << 23, **wide).sum.capacity.largest == 1 << 57


def test_policy_is_asked_about_the_bytes_that_leave():
    """A policy that admits the vector but not its ciphertexts refuses the encrypted plan."""
    plans = [make_setup(protection=name, dimension=400, **EXACT) for name in ("masked", "encrypted")]
    for setup, refused in zip(plans, (False, True), strict=True):
        policy = replace(
            policy_accepting(setup.plan, "own"), protections=tuple(PROTECTIONS), max_upload_mib=1, min_clients_in_sum=1
        )
        if refused:
            with pytest.raises(PlanRefused, match=f"max_upload_mib: {setup.context.upload_bytes} bytes"):
                setup.facts.check(policy)
        else:
            setup.facts.check(policy)


def test_saving_is_counted_in_ciphertexts():
    """What the coarse grid saves under encryption is the difference of whole ciphertexts."""
    setup: RoundSetup = make_setup(protection="encrypted", dimension=100)
    fine = make_setup(protection="encrypted", dimension=100, **EXACT)
    assert fine.sum.layout.length == setup.sum.layout.length
    assert setup.facts.bytes_saved_by_grid == fine.context.upload_bytes - setup.context.upload_bytes > 0


def explained(**choices: Any) -> dict[str, str]:
    """The rows of a plan, by name."""
    return dict(explain(make_setup(**choices).facts))


@pytest.mark.parametrize(
    ("protection", "opener"),
    [
        ("shared", "any of aggregator-1, aggregator-2 but not all of them together"),
        ("encrypted", "any of server, key-holder-1 but not all of them together"),
        ("masked", "server"),
    ],
)
def test_words_name_the_openers(protection, opener):
    """Whom the promise holds against, and what breaks it, name those who open the sum."""
    assert explained(protection=protection)["against"].startswith(f"{opener}, any 1 of the members")
    assert explained(protection=protection, colluders=0)["against"].startswith(f"{opener}, any one of the members")
    if protection == "encrypted":
        return
    rows = explained(protection=protection, noise=NoiseFrom.AGGREGATOR)
    assert ("is trusted to add the noise" in rows["against"]) == (protection == "masked")
    if protection == "shared":
        assert rows["promise"].endswith("It holds while at least one of 2 parties that add the whole noise is honest.")
        assert rows["against"].startswith(f"everybody, and {opener}: each adds all the noise")
        assert "when they collude or all leave their noise out" in rows["what breaks it"]
        assert "2 add theirs, 1 honest ones are enough" in rows["noise of one party"]


def test_only_clients_noise_holds_against_a_key_holder():
    """The key holder opens the sum with the clients' noise in it; before noise of others it would see the exact sum."""
    with pytest.raises(BadInput, match="the key holder would open the exact sum before an aggregator adds its noise"):
        make_setup(protection="encrypted", noise=NoiseFrom.AGGREGATOR)


def test_words_tell_what_openers_are_trusted_for():
    """The lines say who must not collude, how many clients a sum needs, and what happens when a client leaves."""
    said = {name: explained(protection=name)["who must agree"] for name in TOGETHER}
    assert "unless all aggregators collude" in said["shared"]
    assert "who has not reached every aggregator is left out" in said["shared"]
    assert "unless the server and the key holder collude" in said["encrypted"]
    for text in said.values():
        assert "the sum of fewer than" in text
        assert "speak once" in text
        assert "may leave" in text


def test_ciphertexts_are_explained():
    """An encrypted plan says which encryption it uses and how long an upload is; others have no such row."""
    setup = make_setup(protection="encrypted")
    parameters = for_capacity(setup.sum.capacity.largest, 5)
    rows = dict(explain(setup.facts))
    assert rows["ciphertexts"] == parameters.explain()
    assert rows["what leaves a client"].startswith(f"{parameters.packed_bytes(setup.sum.layout.length) + 32} bytes")
    for name in ("masked", "none", "shared"):
        assert "ciphertexts" not in explained(protection=name)
