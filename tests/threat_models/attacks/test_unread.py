"""No label decides a verdict: blocks that no attack reads leave it open, and the best test weighs them all."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import methods
from methods.closed_form.fedcgs import FedCGS
from methods.method import SumSpec
from methods.round import Contribution, Local
from secagg.data import Dataset
from secagg.data import Records as DataRecords
from secagg.encoding import Kind
from secagg.encoding.grid import Origin
from secagg.experiments.settings import SimulationSettings
from secagg.plan_facts import planning
from secagg.privacy import Adjacency, BlockwiseSensitivity, Unit
from tests.threat_models.attacks.audited import attacked
from tests.worlds.chance import repeatable
from threat_models.adversary import adversary_named
from threat_models.attacks.gaussian_likelihood import squared_mu
from threat_models.attacks.membership.aggregate import MEMBERSHIP_RELEASE, contribute_to, squares_by
from threat_models.attacks.targets import unread_in, withhold
from threat_models.evidence.simulation import Rehearsal, rehearse
from threat_models.examination import examine
from threat_models.findings import Finding, Verdict
from threat_models.views import view_of

SERVER = adversary_named("curious_server")


@dataclass(frozen=True)
class Labelled(FedCGS):
    """FedCGS whose second moment has the kind `label`, by name, and where not `triangle` the same noise everywhere."""

    name: ClassVar[str] = "labelled"
    label: str = "OTHER"
    triangle: int = 1
    factor: int = 1

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """Those of FedCGS, block by block."""
        (kind,) = super().sums(dimension, classes, levels)
        blocks = tuple(
            replace(block, kind=Kind[self.label]) if block.kind is Kind.SECOND_MOMENT else block
            for block in kind.blocks
        )
        stated = kind.sensitivity(Unit.RECORD, Adjacency.ADD_REMOVE, 1).blocks
        moved = tuple(replace(each, triangle=bool(self.triangle) and each.triangle) for each in stated)
        told = tuple(BlockwiseSensitivity(Unit.RECORD, each, moved) for each in Adjacency)
        return (replace(kind, blocks=blocks, sensitivities=told, shares="equal"),)

    def contribute(self, local: Local) -> Contribution:
        """The sums of FedCGS, that of classes `factor` times."""
        blocks = dict(super().contribute(local).blocks)
        return Contribution({**blocks, "class_sums": self.factor * blocks["class_sums"]})


def few(dimension: int) -> Dataset:
    """80 records in four classes, half of them members'."""
    generator, labels = np.random.default_rng(0), np.arange(80) % 4
    features = generator.normal(size=(4, dimension))[labels] / 2 + generator.normal(size=(80, dimension))
    whole = DataRecords(features, labels, {}, Origin.of("few", np.arange(1, 81)))
    inside, outside = whole.take(np.arange(40)), whole.take(np.arange(40, 80))
    return Dataset("few", "features", inside, outside, tuple("abcd"), None, None, None)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What rehearses the method on 40 records of members: with noise of 12 features, else of more than records."""
    monkeypatch.setitem(methods.METHODS, Labelled.name, Labelled)
    monkeypatch.setattr(planning, "check_declaration", lambda *arguments: None)  # it would be refused

    def play(epsilon: float = math.inf, **parameters: Any) -> Rehearsal:
        promise = {} if math.isinf(epsilon) else {"epsilon": epsilon, "delta": 1e-5, "adjacency": "add-remove"}
        dataset = few(48 if math.isinf(epsilon) else 12)
        settings = SimulationSettings(clients=4, method="labelled", parameters=parameters, refine=0, **promise)
        with repeatable("few"):
            return rehearse(dataset, settings)

    return play


def found_in(rehearsal: Rehearsal) -> dict[str, Finding]:
    """What each attack of a curious server finds."""
    examined = examine(SERVER, rehearsal.sessions, rehearsal.knowledge, lambda *_: None)
    return {finding.attack: finding for finding in examined.findings}


@pytest.mark.parametrize("triangle", [1, 0])
def test_best_test_is_the_same_under_any_label(played: Any, triangle: int) -> None:
    """With noise the second moment counts in full, whatever its kind is called and however its noise lies."""
    areas = {}
    for label in ("SECOND_MOMENT", "OTHER"):
        finding = attacked(MEMBERSHIP_RELEASE, "curious_server", played(20.0, label=label, triangle=triangle))
        assert "The noise in each of its blocks was measured." in finding.sentence
        areas[label] = next(each.value for each in finding.measures if each.metric.id == "auc.informed")
    assert len({round(area, 9) for area in areas.values()}) == 1, areas


@pytest.mark.parametrize("label", ["OTHER", "UPDATE", "SCORE"])
def test_no_attack_vouches_for_blocks_that_it_does_not_read(played: Any, label: str) -> None:
    """An exact second moment under another label leaves every attack on sums open, by the block's name."""
    found = found_in(played(label=label))
    sees_no_sums = {"label_counts", "linkage", "changing_cohorts", "feature_inversion", "masked_uploads"}
    apart = {"membership_head", "loss_entropy_gaps", "sizes_and_timing"}
    for name in set(found) - sees_no_sums - apart:
        assert found[name].verdict is Verdict.INCONCLUSIVE, name
        assert "these blocks of the sum hold: other second moment." in found[name].sentence, name
    assert {found[name].verdict for name in sees_no_sums} == {Verdict.NOT_APPLICABLE}


def test_the_kind_lets_attacks_read(played: Any) -> None:
    """The same sum under its own label is unmixed, and nothing is said of blocks that are not known."""
    found = found_in(played(label="SECOND_MOMENT"))
    assert found["unmixing"].verdict is Verdict.SUCCEEDS
    assert found["gradient_inversion"].verdict is Verdict.NOT_APPLICABLE
    assert not any("these blocks" in finding.sentence for finding in found.values())


def test_label_of_moments_is_no_proof_of_them(played: Any) -> None:
    """Class sums that are three times what their kind says are weighed as contributed, not by the closed form."""
    rehearsal = played(20.0, label="SECOND_MOMENT", factor=3)
    view, records = view_of(rehearsal.sessions[0], SERVER), rehearsal.knowledge.candidates
    contribute = contribute_to(view)
    squares_of = squares_by(contribute, records, view.noise)
    more = 8 * np.sum(records.integers.astype(float) ** 2, axis=1) / view.noise["class_sums"].sigma ** 2
    assert np.allclose(squares_of(records, view.noise), squared_mu(records, view.noise) + more)
    honest = played(20.0, label="SECOND_MOMENT")
    seen = view_of(honest.sessions[0], SERVER)
    assert squares_by(contribute_to(seen), records, seen.noise) is squared_mu


def test_records_of_clients_have_no_part_of_their_own(played: Any) -> None:
    """Where a sum is of clients' contributions, or its round is not shown, nothing is computed of one record."""
    rehearsal = played(20.0)
    hidden = view_of(replace(rehearsal.sessions[0], round=None), SERVER)
    assert contribute_to(hidden) is None
    assert squares_by(None, rehearsal.knowledge.candidates, hidden.noise) is None


def test_unread_blocks_are_those_of_sums_that_are_seen(played: Any) -> None:
    """Who sees no sum has no block before it that it cannot read; who sees one has, of earlier sums too."""
    session = played().sessions[0]
    assert unread_in(view_of(session, adversary_named("network_observer"))) == ()
    assert unread_in(view_of(session, SERVER)) == ("other second_moment",)
    first = replace(session, release={**session.release, "gram": np.zeros(3)})
    assert unread_in(view_of(replace(session, earlier=(first,)), SERVER)) == ("gram", "other second_moment")


@pytest.mark.parametrize("verdict", list(Verdict))
def test_withholding_is_never_greener(verdict: Verdict) -> None:
    """A success stays one, all else is open where blocks are unread, and nothing changes where none is."""
    finding = Finding("unmixing", "", verdict, "So.")
    assert withhold(finding, ()) is finding
    expected = verdict if verdict is Verdict.SUCCEEDS else Verdict.INCONCLUSIVE
    assert withhold(finding, ("my_gram",)).verdict is expected


def test_blocks_of_other_sums_withhold_the_best_test(played: Any) -> None:
    """The best test weighs all blocks of its own sum, and knows nothing of a block in an earlier one."""
    rehearsal = played(0.5)
    (session, *_) = rehearsal.sessions
    first = replace(session, release={**session.release, "gram": np.zeros(3)})
    found = [
        attacked(MEMBERSHIP_RELEASE, "curious_server", replace(rehearsal, sessions=(each,)))
        for each in (session, replace(session, earlier=(first,)))
    ]
    assert ["these blocks of the sum hold" in each.sentence for each in found] == [False, True]
    assert found[1].sentence.endswith("hold: gram.")
    assert found[1].verdict is Verdict.INCONCLUSIVE


def test_unread_blocks_of_any_session_leave_verdicts_open(played: Any) -> None:
    """Of two sessions that one adversary sees each may hold the block that attacks cannot read."""
    rehearsal = played(label="SECOND_MOMENT")
    (session, *_) = rehearsal.sessions
    other = replace(session, release={**session.release, "gram": np.zeros(3)})
    twice = adversary_named("rerunning_server")
    for given in ((session, other), (other, session)):
        found = examine(twice, given, rehearsal.knowledge, lambda *_: None).findings
        assert any(each.sentence.endswith("these blocks of the sum hold: gram.") for each in found), given
