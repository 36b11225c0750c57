"""Re-identification from latents: found where one is published or stands nearly alone, not where many are summed."""

import math
from functools import cache

import numpy as np
import pytest

from secagg.experiments.settings import SimulationSettings
from tests.threat_models.attacks.audited import attacked, measured, plenty, rehearsed
from tests.threat_models.attacks.trained import few
from tests.worlds.chance import repeatable
from threat_models.attacks.membership import metrics
from threat_models.attacks.membership.metrics import Scores
from threat_models.attacks.of_methods.latents import REIDENTIFICATION_LATENTS, Published, score_pictures, score_slots
from threat_models.evidence.simulation import rehearse
from threat_models.findings import Verdict
from threat_models.session import AuditRecords


@cache
def summed(dataset, parameters="slots=2", epsilon=math.inf):
    """A rehearsal of slot sums over few records, or plenty; exact ones of a plan that hides nobody, without a gate."""
    promise = (
        {"protection": "none"}
        if math.isinf(epsilon)
        else {"epsilon": epsilon, "delta": 1e-5, "adjacency": "add-remove"}
    )
    settings = SimulationSettings(clients=6, method="fedbip", parameters=parameters, **promise)
    with repeatable(f"{dataset} {settings}"):
        return rehearse(few() if dataset == "few" else plenty(), settings)


def some_records(count, dimension, seed):
    """Records of one class, around nothing."""
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(count, dimension))
    integers = np.rint(features * 1000).astype(np.int64)
    return AuditRecords(integers, np.zeros(count, np.int64), features)


def test_published_latents_of_stable_diffusion_are_matched():
    """16,384 numbers, γ = ½, the schedule's ᾱ_T: nine in ten are found at one false alarm in a thousand."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(1200, 16_384)).astype(np.float32)
    form = Published()
    published = form.publish(z[:100], rng)
    own = [float(p @ each / np.linalg.norm(each)) for p, each in zip(published, z[:100], strict=True)]
    strangers = z[200:] @ published[0] / np.linalg.norm(z[200:], axis=1)
    found = np.mean(np.array(own) > np.quantile(strangers, 0.999))
    assert found > 0.8
    expected = form.kept * form.mixed * 128 / math.sqrt(1 - form.kept**2)
    assert np.mean(own) == pytest.approx(expected, rel=0.1)


def test_a_small_slot_gives_its_records_away():
    """Of a slot of twenty in 200 dimensions members are told from strangers; of 3,000 in few they are not."""
    for count, dimension, told in ((20, 200, True), (3000, 2, False)):
        inside, outside, public = (some_records(300, dimension, seed) for seed in (1, 2, 3))
        summed_ = np.concatenate([inside.integers[:count], some_records(max(0, count - 300), dimension, 4).integers])
        release = {"counts": np.array([len(summed_)]), "class_sums": summed_.sum(axis=0)[None]}
        members = min(count, 300)
        both = np.concatenate([score_slots(release, each, public) for each in (inside.take(slice(members)), outside)])
        assert metrics.succeeds(Scores(both, np.arange(len(both)) < members)) == told


def test_nearest_pictures_point_at_what_was_copied():
    """A generator that copies its members' latents is found out; one that makes others' is not."""
    members, strangers = (some_records(100, 20, seed) for seed in (1, 2))
    copies = members.features + 0.1
    for made, told in ((copies, True), (some_records(100, 20, 5).features, False)):
        scores = [score_pictures((made, np.zeros(100, np.int64)), each) for each in (members, strangers)]
        assert metrics.succeeds(Scores(np.concatenate(scores), np.arange(200) < 100)) == told


def test_slots_of_a_few_records_succeed():
    """Two dozen records in four cells, a hundred features: members' records are pointed at."""
    finding = attacked(REIDENTIFICATION_LATENTS, "curious_server", summed("few"))
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.SUCCEEDS
    pointed = measured(finding, "reidentified.slots")
    assert pointed.low > pointed.baseline


@pytest.mark.parametrize("epsilon", [1.0])
def test_noise_withstands(epsilon):
    """Of 9,000 records under ε = 1 no more than chance is told."""
    finding = attacked(REIDENTIFICATION_LATENTS, "curious_server", summed("plenty", "slots=1", epsilon))
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.FAILS


def test_other_sums_are_nothing_to_attack():
    """FedCGS sums no slots, whatever records an audit is given."""
    found = rehearsed()
    assert attacked(REIDENTIFICATION_LATENTS, "curious_server", found).verdict is Verdict.NOT_APPLICABLE
    assert REIDENTIFICATION_LATENTS.lacks(found.sessions[0]) == "Its sums hold no slots of latents."
    assert REIDENTIFICATION_LATENTS.lacks(summed("few").sessions[0]) == ""
