"""What `audit --simulate` must see: faults that planner, parties and accounting have in common, each planted alone.

Each audit is run as the code is, where it finds nothing, and with the fault, where the promise does not hold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy import stats

from methods import method as declared
from methods.closed_form import refinement
from secagg.data import Dataset
from secagg.data import Records as DataRecords
from secagg.encoding import softmax_gradient
from secagg.encoding.grid import Origin
from secagg.experiments import session
from secagg.experiments.settings import SimulationSettings
from secagg.plan_facts import noise_plan, planning
from secagg.privacy import BlockNoise, Sensitivity, Unit, discrete_gaussian, rounded_gaussian
from secagg.privacy.calibration import of_client
from secagg.privacy.sensitivity import BlockwiseSensitivity
from secagg.protection.masking import removal
from secagg.protection.sharing.aggregator import SetAgreed
from secagg.randomness import SeededRandomness
from secagg.session import round_setup as contribution
from secagg.unsafe_for_tests import TOKEN
from threat_models.evidence.simulation import Rehearsal, rehearse
from threat_models.report import summary_facts
from threat_models.report.content import Promise
from threat_models.report.summary_facts import add_drawn, measure_promise

pytestmark = pytest.mark.usefixtures("repeatable_chance")
Plant = Callable[[pytest.MonkeyPatch], None]
CLASSES, DIMENSION = 10, 24


@cache
def dataset() -> Dataset:
    """Ten classes of 24 features, with records of their own for tests."""
    generator = np.random.default_rng(5)
    labels = np.arange(800) % CLASSES
    features = generator.normal(size=(800, DIMENSION)) + 3 * np.eye(DIMENSION)[labels]
    whole = DataRecords(features, labels, {}, Origin.of("made up", np.arange(1, 801)))
    parts = whole.take(np.arange(600)), whole.take(np.arange(600, 800))
    return Dataset("made up", "features", *parts, tuple(map(str, range(CLASSES))), None, None, None)


def audited(**choices: Any) -> tuple[Promise, Rehearsal]:
    """The promise of a simulated plan, with all that the audit finds of it."""
    fixed = {"epsilon": 4.0, "delta": 1e-5, "adjacency": "add-remove", "clients": 6, "colluders": 1, "dropouts": 1}
    found = rehearse(dataset(), SimulationSettings(**{**fixed, **choices}))
    with mock.patch.object(summary_facts, "RELEASES", 2_000):  # what they find is tested where they are made
        measured = measure_promise(found.sessions[:1], lambda *_: None)
    return add_drawn(measured, found.drawn, found.opinion), found


def share_for(counted: Callable[[Any, int], int]) -> Plant:
    """Noise calibrated for another number of honest shares, by all parties alike."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        honest = noise_plan.NoiseParties.of.__func__  # type: ignore[attr-defined]

        def wrong(cls: Any, plan: Any, *arguments: Any) -> Any:
            found = honest(cls, plan, *arguments)
            return replace(found, fewest=counted(found, plan.colluders))

        patch.setattr(noise_plan.NoiseParties, "of", classmethod(wrong))

    return plant


def blind(patch: pytest.MonkeyPatch) -> None:
    """Nobody thinks of the members, who see the sum and know a share each."""
    patch.setattr(noise_plan, "members_see", lambda plan: False)


def drawn(change: Callable[[Sequence[Any], Any], Any]) -> Plant:
    """Members draw their noise otherwise."""
    return lambda patch: patch.setattr(contribution, "discrete_gaussian", change)


def same_noise(segments: Sequence[Any], source: Any) -> Any:
    """Everybody's noise from one seed."""
    return discrete_gaussian(segments, SeededRandomness(b"the same for all", TOKEN))


def less_from_seeds(patch: pytest.MonkeyPatch) -> None:
    """Half of the noise that follows from members' seeds, by all parties alike."""
    patch.setattr(removal, "discrete_gaussian", lambda segments, source: discrete_gaussian(segments, source) // 2)


def swapped(patch: pytest.MonkeyPatch) -> None:
    """σ of the diagonal off it, and the reverse."""
    honest = BlockNoise.segments_of

    def wrong(self: BlockNoise, of: Callable[[float], float]) -> Any:
        found = honest(self, of)
        if self.off_diagonal is None:
            return found
        on, off = of(self.sigma), of(self.off_diagonal)
        return tuple(({on: off, off: on}[sigma], count) for sigma, count in found)

    patch.setattr(BlockNoise, "segments_of", wrong)


def silent_census(segments: Sequence[Any], source: Any) -> Any:
    """No noise on the sum that is no longer than the classes."""
    noise = discrete_gaussian(segments, source)
    return noise * (len(noise) > CLASSES)


def root_of_records(patch: pytest.MonkeyPatch) -> None:
    """A client taken to move a sum by √records of one record's length."""

    def wrong(sensitivity: Sensitivity, records: int) -> Sensitivity:
        full = of_client(sensitivity, records)
        blocks = tuple(replace(block, l2=block.l2 / math.sqrt(records)) for block in full.blocks)
        return BlockwiseSensitivity(Unit.CLIENT, full.adjacency, blocks)

    patch.setattr(declared, "of_client", wrong)


def unclipped(patch: pytest.MonkeyPatch) -> None:
    """Residuals that nobody clips, in the same units."""
    scale = softmax_gradient._scale_rows

    def wrong(rows: Any, length: int, full: float | None) -> Any:
        if full != 0.5 * 2**softmax_gradient.ROW_BITS:
            return scale(rows, length, full)
        return np.trunc(rows * (length / full)).astype(np.int64)

    patch.setattr(softmax_gradient, "_scale_rows", wrong)
    untried(patch)


def half_gradient(patch: pytest.MonkeyPatch) -> None:
    """A record taken to move a gradient by half of what it does."""
    honest = refinement.gradient_sum

    def wrong(*arguments: int) -> Any:
        spec = honest(*arguments)
        halves = tuple(
            replace(each, blocks=tuple(replace(block, l2=block.l2 / 2) for block in each.blocks))
            for each in spec.sensitivities
        )
        return replace(spec, sensitivities=halves)

    patch.setattr("methods.closed_form.fedcgs.gradient_sum", wrong)
    untried(patch)


def untried(patch: pytest.MonkeyPatch) -> None:
    """A planner who does not try the method, which would refuse its declaration."""
    patch.setattr(planning, "check_declaration", lambda *arguments: None)


def shared_out(segments: Sequence[Any], source: Any) -> Any:
    """Each of two aggregators adds noise of σ/√2."""
    return rounded_gaussian([(sigma / math.sqrt(2), count) for sigma, count in segments], source)


def first_alone(patch: pytest.MonkeyPatch) -> None:
    """Only the first aggregator adds noise."""
    honest = SetAgreed.work

    def wrong(self: Any, context: Any, me: Any, kept: Any, noise: Any) -> Any:
        return honest(self, context, me, kept, noise if me.member == min(context.helpers) else None)

    patch.setattr(SetAgreed, "work", wrong)


AGGREGATORS = {"protection": "shared", "noise": "aggregator", "colluders": 0, "dropouts": 0}
CLIENT = {"unit": "client", "method": "prototypes", "epsilon": 50.0, "max_records": 400}


@dataclass(frozen=True)
class Common:
    """A fault, the plan in which it shows, and part of what the audit says of it; "": its own ε is above the claim."""

    name: str
    plant: Plant
    says: str
    choices: dict[str, Any] = field(default_factory=dict)


FAULTS = (
    Common("noise for all clients", share_for(lambda found, colluders: found.parties), ""),
    Common("noise for a member who looks on too", blind, "", {"colluders": 0}),
    Common("noise for colluders too", share_for(lambda found, colluders: found.fewest + colluders), ""),
    Common("the same noise for all", drawn(same_noise), "are the same", {"refine": 1}),
    Common("less noise from seeds", less_from_seeds, "the noise that stays in sum 1"),
    Common("diagonal and rest swapped", swapped, ", diagonal"),
    Common("census without noise", drawn(silent_census), "census", {"class_gate": 1, "epsilon": 30.0}),
    Common("client by √records", root_of_records, "", CLIENT),
    Common("unclipped residuals", unclipped, "", {"refine": 1}),
    Common("half a gradient", half_gradient, "", {"refine": 1}),
    Common(
        "aggregators share the noise",
        lambda patch: patch.setattr(contribution, "rounded_gaussian", shared_out),
        "class sums",
        AGGREGATORS,
    ),
    Common("first aggregator alone", first_alone, "class sums", AGGREGATORS),
    Common(
        "no aggregator adds any",
        lambda patch: patch.setattr(session, "opening_noise_of", lambda *arguments: None),
        "class sums",
        AGGREGATORS,
    ),
)
PLANS = {str(each.choices): each.choices for each in FAULTS}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_flagged(fault: Common, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fault planted the promise does not hold, and the audit says where."""
    fault.plant(monkeypatch)
    found, _ = audited(**fault.choices)
    assert found.drawn is not None
    if fault.says:
        assert found.disproved
        assert any(fault.says in flaw for flaw in found.drawn.flaws), found.drawn.flaws
    else:
        assert not found.agrees
        assert found.recomputed > 1.02 * found.claimed


@pytest.mark.parametrize("choices", PLANS.values(), ids=str)
def test_the_code_as_it_is_keeps_its_promise(choices: dict[str, Any]) -> None:
    """Without a fault the same audits find noise as planned, and ε as claimed (10⁻² of false alarms, at most)."""
    found, rehearsal = audited(**choices)
    assert found.drawn is not None
    assert (found.drawn.flaws, found.agrees, found.disproved) == ((), True, False)
    assert rehearsal.opinion is not None
    assert rehearsal.opinion.epsilon == pytest.approx(found.claimed, rel=2e-3)


def test_sum_without_the_last_client_has_the_noise_that_stays() -> None:
    """Beside its members' vectors, which hold a part of their noise, it has the rest; false failures: 10⁻⁹."""
    _, rehearsal = audited()
    second = rehearsal.sessions[1]
    assert second.noise is not None
    assert second.calibration is not None
    rest = second.release["class_sums"] - sum(own["class_sums"] for own in second.contributions.values())
    own = math.sqrt(len(second.members)) * second.calibration.parts[0][1][0]
    planned = second.noise["class_sums"].sigma ** 2 - own**2
    low, high = stats.chi2.ppf([5e-10, 1 - 5e-10], np.size(rest))
    assert low <= np.sum(np.square(rest)) / planned <= high


def test_every_block_of_every_sum_is_measured() -> None:
    """Census, moments (the diagonal apart) and gradients are measured, and with which power is said."""
    found, _ = audited(class_gate=1, refine=1, epsilon=30.0)
    assert found.drawn is not None
    words = {re.sub(r" of the sums of kind \d", "", name) for name, *_ in found.drawn.places}
    moments = {"counts", "class sums", "second moment, diagonal", "second moment, off the diagonal"}
    assert words == {"census", "gradient", *moments}
    assert all(entries >= 2_000 for *_, entries in found.drawn.places)
    assert "probability 95 %" in found.drawn.power


def test_opened_census_of_whole_clients_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The opened integers show it alone, as in a transcript: multiples of the multiplier, which noise would not be."""
    monkeypatch.setattr(contribution, "discrete_gaussian", silent_census)
    found, _ = audited(class_gate=1, epsilon=30.0, dropouts=0)
    assert found.drawn is not None
    assert any("are multiples of" in flaw for flaw in found.drawn.flaws), found.drawn.flaws
