"""Class shares out of FedPop's scores: members' own and cohorts' without noise; nobody's where all are alike."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from secagg.data import open_dataset
from secagg.experiments.settings import SimulationSettings
from tests.threat_models.attacks.audited import attacked, measured
from tests.worlds.chance import repeatable
from threat_models.attacks.of_methods.score_inference import SCORE_INFERENCE, Equation, shares_from
from threat_models.evidence.simulation import Rehearsal, rehearse
from threat_models.findings import Finding, Verdict

EXACT = "population=4 fixed=clip=10"
GRADIENTS = "population=4 fixed=gradients=1;clip=4 space=rate=log:0.1:3"


@cache
def searched(
    partition: str = "dirichlet:0.1", epsilon: float = math.inf, protection: str = "shared", exact: str = EXACT
) -> Rehearsal:
    """Ten rounds of four settings among twelve members with digits, with the same noise in every run."""
    promise = {} if math.isinf(epsilon) else {"epsilon": epsilon, "delta": 1e-5, "adjacency": "add-remove"}
    settings = SimulationSettings(
        method="fedpop",
        parameters=exact if math.isinf(epsilon) else GRADIENTS,
        rounds=10,
        clients=12,
        partition=partition,
        protection=protection,
        **promise,  # type: ignore[arg-type]
    )
    with repeatable(str(settings)):
        return rehearse(open_dataset("digits"), settings)


def found_in(rehearsal: Rehearsal, adversary: str = "curious_server") -> Finding:
    """What the attack finds, with controls that behaved."""
    finding = attacked(SCORE_INFERENCE, adversary, rehearsal, rehearsal.sessions[0])
    assert [control.holds for control in finding.controls] == [True, True]
    return finding


@pytest.mark.parametrize(
    ("protection", "whose"), [("none", "the class shares of a member than"), ("shared", "a cohort of 3 members")]
)
def test_scores_tell_class_shares(protection: str, whose: str) -> None:
    """Where members differ in their classes, exact scores give these better than public records do."""
    finding = found_in(searched(protection=protection))
    assert finding.verdict is Verdict.SUCCEEDS
    assert whose in finding.sentence
    error = measured(finding, "class_shares.scores")
    assert error.high < error.baseline
    assert measured(finding, "scored_rounds").value == 10


def test_members_that_are_alike_tell_nothing() -> None:
    """Where all have the same classes, scores are worse than a guess by public records."""
    assert found_in(searched("iid")).verdict is Verdict.FAILS


def test_noise_hides_class_shares() -> None:
    """At ε = 1 the scores of cohorts tell less than public records do, or nothing that could be told from that."""
    finding = found_in(searched(epsilon=1.0))
    assert finding.verdict is not Verdict.SUCCEEDS
    exact, noisy = (measured(each, "class_shares.scores") for each in (found_in(searched()), finding))
    assert noisy.value > 1.3 * exact.value


def test_few_rounds_tell_less() -> None:
    """One round is one equation: ten tell more."""
    first = searched().sessions[0].earlier[0]
    finding = attacked(SCORE_INFERENCE, "curious_server", searched(), replace(first, earlier=()))
    one, ten = (measured(each, "class_shares.scores").value for each in (finding, found_in(searched())))
    assert ten < one
    assert measured(finding, "scored_rounds").value == 1
    alike = searched("iid")
    finding = attacked(SCORE_INFERENCE, "curious_server", alike, replace(alike.sessions[0].earlier[0], earlier=()))
    assert "1 of 10 rounds" in finding.sentence
    assert finding.verdict is Verdict.INCONCLUSIVE


def test_models_that_members_moved_are_not_the_attacks() -> None:
    """Beside each other cohorts are judged at models of which the attack knows nothing: it cannot say that it fails."""
    beside = searched("iid", exact="population=1 local=4 fixed=clip=10")
    assert found_in(beside).verdict is Verdict.INCONCLUSIVE


def test_shares_are_solved_for() -> None:
    """As many models as classes determine the shares, to the scores' error; no scores leave the public ones."""
    generator = np.random.default_rng(2)
    true, prior = np.array([0.7, 0.2, 0.1, 0.0]), np.full(4, 0.25)
    means = generator.uniform(0, 1, size=(12, 4))
    equations = [Equation(float(row @ true), 1e-4, row) for row in means]
    assert np.abs(shares_from(equations, prior) - true).max() < 1e-3
    assert np.allclose(shares_from([], prior), prior, atol=1e-3)
    vague = [replace(each, error=1e3) for each in equations]
    assert np.allclose(shares_from(vague, prior), prior, atol=1e-3)
