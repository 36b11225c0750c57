"""Membership from the head: LiRA and the gaps of loss and entropy."""

from dataclasses import replace

import numpy as np
import pytest

from tests.threat_models.attacks.audited import attacked, measured, rehearsed
from threat_models.attacks.head import LOSS_ENTROPY_GAPS, MEMBERSHIP_HEAD
from threat_models.attacks.leave_one_out import margins
from threat_models.attacks.lira import Shadows, head_scores, shadows_of, trained
from threat_models.findings import Verdict
from threat_models.session import Knowledge


def test_ratios_of_known_gaussians():
    """Golden: margins 0 ± 1 without and 2 ± 1 with the record score 2·seen − 2 online, and seen offline."""
    shadows = Shadows(np.array([[1.0], [3.0]]), np.array([[-1.0], [1.0]]))
    assert shadows.ratios(np.array([1.5]), "online")[0] == pytest.approx(2 * 1.5 - 2)
    assert shadows.ratios(np.array([1.5]), "offline")[0] == pytest.approx(1.5)


def test_head_over_few_records_tells_them():
    """LiRA succeeds against a head over as many records as features: its members stand out beyond the margin."""
    rehearsal = rehearsed("digits")
    session, knowledge = rehearsal.sessions[0], rehearsal.knowledge
    behind = np.random.default_rng(2).permutation(len(knowledge.candidates)) < session.plan.dimension
    known = Knowledge(knowledge.candidates, tuple("a" if each else "" for each in behind), knowledge.public)
    small = replace(session, head=trained(session.plan, knowledge.candidates.take(behind)))
    finding = attacked(MEMBERSHIP_HEAD, "released_head_white_box", replace(rehearsal, knowledge=known), small)
    assert finding.verdict is Verdict.SUCCEEDS
    assert measured(finding, "AUC, LiRA online").low > 0.6


@pytest.mark.parametrize("attack", [MEMBERSHIP_HEAD, LOSS_ENTROPY_GAPS])
@pytest.mark.parametrize("method", ["fedcgs", "prototypes"])
def test_controls_hold_for_any_method(attack, method):
    """Heads over few records with labels at random are told, others are not, whatever the method."""
    finding = attacked(attack, "released_head_white_box", rehearsed("digits", method=method))
    assert [control.expected for control in finding.controls] == [True, False]
    assert all(control.holds for control in finding.controls)


def test_remade_shadows_are_heads_with_one_record_more_or_less():
    """A method without rank-one updates has the margins that training with and without each record gives."""
    rehearsal = rehearsed(method="prototypes")
    plan, candidates = rehearsal.sessions[0].plan, rehearsal.knowledge.candidates.take(slice(0, 40))
    nobody = candidates.take(slice(0, 0))
    shadows = shadows_of(plan, None, candidates, nobody, 30, lambda *_: None, shadows=1, seed=4)
    rows = np.random.default_rng(4).permutation(40)[:30]
    for row in (rows[0], next(row for row in range(40) if row not in rows)):
        inside, outside = np.union1d(rows, [row]), np.setdiff1d(rows, [row])
        for found, behind in ((shadows.inside, inside), (shadows.outside, outside)):
            scores = head_scores(trained(plan, candidates.take(behind)), candidates.take([row]), plan.grid)
            assert found[0, row] == pytest.approx(margins(scores, candidates.labels[[row]])[0], rel=1e-6)


@pytest.mark.parametrize("attack", [MEMBERSHIP_HEAD, LOSS_ENTROPY_GAPS])
def test_noisy_head_stays_below_its_ceiling(attack):
    """At ε = 1 the head tells no more than the claim allows, and the attack could have noticed."""
    finding = attacked(attack, "released_head_white_box", rehearsed("digits", 1.0))
    assert finding.verdict is Verdict.FAILS
    assert all(each.low <= each.ceiling for each in finding.measures if each.ceiling is not None)


def test_shadows_with_noise_are_inside_or_outside():
    """Noisy shadows are trained anew: each has a margin with or without a candidate, never both."""
    rehearsal = rehearsed(epsilon=1.0)
    session, candidates = rehearsal.sessions[0], rehearsal.knowledge.candidates
    shadows = shadows_of(
        session.plan, session.noise, candidates, rehearsal.knowledge.public, 100, lambda *_: None, shadows=4
    )
    assert np.array_equal(np.isnan(shadows.inside), ~np.isnan(shadows.outside))


def test_trained_head_is_the_session_head():
    """Over all members' records the shadow's training gives the head of the session, where nothing is noisy."""
    rehearsal = rehearsed()
    session, knowledge = rehearsal.sessions[0], rehearsal.knowledge
    head = trained(session.plan, knowledge.candidates.take(knowledge.is_member))
    assert np.allclose(head.weight, session.head.weight, rtol=1e-4, atol=1e-6)
    scores = head_scores(session.head, knowledge.candidates, session.plan.grid)
    assert (scores.argmax(axis=1) == knowledge.candidates.labels).mean() > 0.9
