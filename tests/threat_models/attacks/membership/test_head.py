"""Membership from the head: LiRA and the gaps of loss and entropy."""

import math
from dataclasses import replace

import numpy as np
import pytest

from secagg.heads.linear import ABSENT_BIAS
from tests.threat_models.attacks.audited import attacked, measured, rehearsed
from tests.threat_models.attacks.sums import seen_by
from threat_models.attacks.membership.metrics import match_classes
from threat_models.attacks.of_methods.head import LOSS_ENTROPY_GAPS, MEMBERSHIP_HEAD
from threat_models.attacks.of_methods.lira import HeadRecipe, Shadows, head_scores, make_shadows, margins
from threat_models.estimation.intervals import Comparisons
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
    small = replace(session, head=HeadRecipe(session.plan).head_of(knowledge.candidates.take(behind)))
    finding = attacked(MEMBERSHIP_HEAD, "released_head_white_box", replace(rehearsal, knowledge=known), small)
    assert finding.verdict is Verdict.SUCCEEDS
    assert measured(finding, "auc.lira_online").low > 0.6


@pytest.mark.parametrize("epsilon", [math.inf, 8.0])
def test_refined_head_is_judged_by_refined_shadows(epsilon):
    """After two rounds an exact head over 300 records tells them; one at ε = 8 stays below its ceiling."""
    rehearsal = rehearsed("digits", epsilon, refine=2)
    session, knowledge = rehearsal.sessions[0], rehearsal.knowledge
    behind = np.random.default_rng(3).permutation(len(knowledge.candidates)) < 300
    known = replace(knowledge, owners=tuple("a" if each else "" for each in behind), records=300)
    if session.claim is not None:
        session = replace(session, noise=session.claim.releases.parts[1][0].opened_noise(len(session.members)))
    recipe = HeadRecipe.of(seen_by("released_head_white_box", replace(session, number=3)))
    assert (recipe.sums, len(recipe.noises)) == (3, 0 if math.isinf(epsilon) else 3)
    refined = replace(session, number=3, head=recipe.head_of(knowledge.candidates.take(behind)))
    finding = attacked(MEMBERSHIP_HEAD, "released_head_white_box", replace(rehearsal, knowledge=known), refined)
    assert (finding.verdict is Verdict.SUCCEEDS) == math.isinf(epsilon)
    assert all(control.holds for control in finding.controls)
    assert all(each.low <= each.ceiling for each in finding.measures if each.ceiling is not None)
    assert "of 300 records (the sum holds 300, as is publicly known)" in finding.sentence


@pytest.mark.parametrize("attack", [MEMBERSHIP_HEAD, LOSS_ENTROPY_GAPS])
def test_no_number_about_another_head(attack):
    """Refinement that so few records do not allow gives no heads to compare with: inconclusive."""
    rehearsal = rehearsed("digits")
    few = replace(rehearsal.knowledge, candidates=rehearsal.knowledge.candidates.take(slice(0, 60)), public=None)
    few = replace(few, owners=rehearsal.knowledge.owners[:60])
    refined = replace(rehearsed("digits", refine=2).sessions[0], number=2)
    finding = attacked(attack, "released_head_white_box", replace(rehearsal, knowledge=few), refined)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert not finding.measures


def test_heads_that_are_not_made_anew_are_tested_by_their_loss():
    """Of a method whose heads take too long to train, membership is by the loss, and what it does not tell is open."""
    rehearsal = rehearsed("digits", 1.0)
    session = rehearsal.sessions[0]
    other = replace(session, plan=replace(session.plan, method="another"))
    finding = attacked(MEMBERSHIP_HEAD, "released_head_white_box", rehearsal, other)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "Shadow heads of another take too long" in finding.sentence
    assert measured(finding, "auc.loss").ceiling < 0.6
    assert not any("lira" in each.metric.id for each in finding.measures)
    assert [(control.expected, control.holds) for control in finding.controls] == [(True, True), (False, True)]


def test_shadows_are_as_large_as_the_sum_where_that_is_known():
    """The size is that of the opened counts, else what the public was told, else unknown; never more than half."""
    rehearsal = rehearsed("digits")
    session, known = rehearsal.sessions[0], rehearsal.knowledge
    knowledge = replace(known, candidates=known.candidates.take(slice(None, None, 3)), owners=known.owners[::3])
    for adversary, records, said in (
        ("curious_server", 7, "the sum holds 1438, as its counts say"),
        ("released_head_white_box", 200, "200 records (the sum holds 200, as is publicly known)"),
        ("released_head_white_box", None, "it does not know how many the sum holds"),
    ):
        told = replace(rehearsal, knowledge=replace(knowledge, records=records))
        assert said in attacked(MEMBERSHIP_HEAD, adversary, told, session).sentence


def test_classes_that_a_gate_left_out_have_no_part():
    """Records of a class that the head does not know are neither tried nor in a shadow."""
    rehearsal = rehearsed("digits")
    session = rehearsal.sessions[0]
    bias = session.head.bias.copy()
    bias[3] = ABSENT_BIAS
    gated = replace(session, head=replace(session.head, bias=bias))
    finding = attacked(MEMBERSHIP_HEAD, "released_head_white_box", rehearsal, gated)
    labels, is_member = rehearsal.knowledge.candidates.labels, rehearsal.knowledge.is_member
    labels, is_member = labels[labels != 3], is_member[labels != 3]
    kept = int(match_classes(labels, is_member)[~is_member].sum())
    assert f"{kept} non-members" in measured(finding, "tpr_at_1e-3.lira_online").method


@pytest.mark.parametrize("attack", [MEMBERSHIP_HEAD, LOSS_ENTROPY_GAPS])
@pytest.mark.parametrize("method", ["fedcgs", "prototypes", "mpft"])
def test_controls_hold_for_any_method(attack, method):
    """Heads over few records with labels at random are told, others are not, whatever the method."""
    rehearsal = rehearsed("digits", method=method)
    known = rehearsal.knowledge
    fewer = replace(known, candidates=known.candidates.take(slice(None, None, 9)), owners=known.owners[::9])
    finding = attacked(attack, "released_head_white_box", replace(rehearsal, knowledge=fewer))
    assert [control.expected for control in finding.controls] == [True, False]
    assert all(control.holds for control in finding.controls)


def test_remade_shadows_are_heads_with_one_record_more_or_less():
    """A method without rank-one updates has the margins that training with and without each record gives."""
    rehearsal = rehearsed(method="prototypes")
    plan, candidates = rehearsal.sessions[0].plan, rehearsal.knowledge.candidates.take(slice(0, 40))
    nobody = candidates.take(slice(0, 0))
    shadows = make_shadows(HeadRecipe(plan), candidates, nobody, 30, lambda *_: None, shadows=1, seed=4)
    rows = np.random.default_rng(4).permutation(40)[:30]
    for row in (rows[0], next(row for row in range(40) if row not in rows)):
        inside, outside = np.union1d(rows, [row]), np.setdiff1d(rows, [row])
        for found, behind in ((shadows.inside, inside), (shadows.outside, outside)):
            scores = head_scores(HeadRecipe(plan).head_of(candidates.take(behind)), candidates.take([row]), plan.grid)
            assert found[0, row] == pytest.approx(margins(scores, candidates.labels[[row]])[0], rel=1e-6)


@pytest.mark.parametrize("attack", [MEMBERSHIP_HEAD, LOSS_ENTROPY_GAPS])
def test_noisy_head_stays_below_its_ceiling(attack):
    """At ε = 1 the head tells no more than the claim allows, which 180 others are too few to call a failure."""
    finding = attacked(attack, "released_head_white_box", rehearsed("digits", 1.0))
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert all(each.low <= each.ceiling for each in finding.measures if each.ceiling is not None)


@pytest.mark.parametrize("attack", [MEMBERSHIP_HEAD, LOSS_ENTROPY_GAPS])
@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
def test_head_over_thousands_withstands(attack, epsilon):
    """With two thousand members and others to tell apart, a head over 9,000 alike is shown to tell none."""
    with Comparisons(40).apply():
        finding = attacked(attack, "released_head_white_box", rehearsed("plenty", epsilon))
    assert finding.verdict is Verdict.FAILS
    judged = [each for each in finding.measures if each.metric.id.startswith(("auc.l", "tpr_at_1e-2."))]
    assert all(each.high <= (0.6 if each.metric.id.startswith("auc") else 0.05) for each in judged)


@pytest.mark.parametrize("attack", [MEMBERSHIP_HEAD, LOSS_ENTROPY_GAPS])
@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
def test_others_of_another_population_are_no_sign_of_membership(attack, epsilon):
    """Where the records alone say who is called a member, no number counts, against the head or for it."""
    rehearsal = rehearsed("digits", epsilon)
    known = rehearsal.knowledge
    lighter = known.candidates.integers.copy()
    lighter[~known.is_member] //= 2
    moved = replace(known, candidates=replace(known.candidates, integers=lighter))
    finding = attacked(attack, "released_head_white_box", replace(rehearsal, knowledge=moved))
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert measured(finding, "blind_auc").low > 0.9
    assert "a classifier that sees these records and nothing of the session" in finding.sentence
    assert not any(each.ceiling for each in finding.measures)


def test_shadows_with_noise_are_inside_or_outside():
    """Noisy shadows are trained anew: each has a margin with or without a candidate, never both."""
    rehearsal = rehearsed(epsilon=1.0)
    session, candidates = rehearsal.sessions[0], rehearsal.knowledge.candidates
    shadows = make_shadows(
        HeadRecipe(session.plan, noises=(session.noise,)),
        candidates,
        rehearsal.knowledge.public,
        100,
        lambda *_: None,
        shadows=4,
    )
    assert np.array_equal(np.isnan(shadows.inside), ~np.isnan(shadows.outside))


def test_trained_head_is_the_session_head():
    """Over all members' records the shadow's training gives the head of the session, where nothing is noisy."""
    rehearsal = rehearsed()
    session, knowledge = rehearsal.sessions[0], rehearsal.knowledge
    head = HeadRecipe(session.plan).head_of(knowledge.candidates.take(knowledge.is_member))
    assert np.allclose(head.weight, session.head.weight, rtol=1e-4, atol=1e-6)
    scores = head_scores(session.head, knowledge.candidates, session.plan.grid)
    assert (scores.argmax(axis=1) == knowledge.candidates.labels).mean() > 0.9
