"""What a shared adapter tells: questions by members' own updates, never by sums; membership with its controls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from secagg.data import open_dataset
from secagg.experiments.settings import SimulationSettings
from tests.threat_models.attacks.audited import attacked, measured, rehearsed
from tests.worlds.chance import repeatable
from tests.worlds.encoders import save_encoder, save_triplets
from threat_models.attacks.of_methods.adapters import ADAPTERS
from threat_models.evidence.simulation import rehearse
from threat_models.findings import Verdict

PARAMETERS = "places=2x16 rank=3 rounds=2 rate=0.02 batch=8 clip=10"


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Eight members, four for each of two questions."""
    folder = tmp_path_factory.mktemp("adapters")
    data = open_dataset(str(save_triplets(folder / "two.triplets", 120)))
    settings = SimulationSettings(
        method="feddat",
        parameters=PARAMETERS,
        partition="column:domain:4",
        backbone=f"transformers:{save_encoder(folder / 'vilt')}",
    )
    with repeatable("adapters"):
        return rehearse(data, settings)


def test_updates_in_clear_name_the_questions(rehearsal: Any) -> None:
    """Without protection every member's question is named, and the controls behave; the verdict is a success."""
    with repeatable("attack"):
        finding = attacked(ADAPTERS, "no_protection", rehearsal)
    assert all(control.holds for control in finding.controls), (finding.controls, finding.sentence)
    named = measured(finding, "question_type")
    assert named.value == 1.0
    assert named.low > named.baseline == 0.5
    assert finding.verdict is Verdict.SUCCEEDS


def test_a_sum_does_not_say_who_asks(rehearsal: Any) -> None:
    """Of the sum alone nothing is named; membership is measured with intervals, by both tests."""
    with repeatable("attack"):
        finding = attacked(ADAPTERS, "curious_server", rehearsal)
    assert all(each.metric.id != "question_type" for each in finding.measures)
    assert "the sum does not say who asks what" in finding.sentence
    for name in ("auc.adapter", "auc.adapter_moves"):
        area = measured(finding, name)
        assert 0 <= area.low < area.value < area.high <= 1


def test_without_pictures_nothing_can_be_said(rehearsal: Any) -> None:
    """No public pictures, no verdict; rounds of a model of features are another attack's."""
    knowledge = replace(rehearsal.knowledge, public=None)
    assert attacked(ADAPTERS, "curious_server", replace(rehearsal, knowledge=knowledge)).verdict is Verdict.INCONCLUSIVE
    assert attacked(ADAPTERS, "curious_server", rehearsed()).verdict is Verdict.NOT_APPLICABLE
