"""The noise that members of a simulated plan draw for each step of their own training, and beside the steps.

Members run their own code. In their contributions the noise of each step is seen as `dp_sgd` drew it. Contributions
without records are made as well: there a step's whole sum is noise, as is each further number that a member measures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from methods.method import SampledTraining
from methods.round import Contribution, Local, OpenedTotal, Round, SimpleRound, Step
from secagg.agreement.plan import Plan
from secagg.encoding.layout import Integers
from secagg.experiments.simulation import prepare
from secagg.networks import DpSgdSettings
from secagg.networks.private_training import StepWatch
from secagg.plan_facts.records import LocalRecords
from secagg.session import RoundSetup
from threat_models.estimation.chi_square import NoisePart
from threat_models.estimation.noise_tests import Share, Variance
from threat_models.session import Floats

STEPS = "members' training steps"
"""Name of all steps together in a report."""
ENTRIES = 2_000
"""Least number of values of noise to see at each place, or of each further number; it is drawn again until then."""
MOST_DRAWN = 20_000_000
"""Most entries of noise that training draws again for that."""
KEPT = 1_000
"""Number of entries of a step's noise, from its first, that are compared with those of other steps."""
MOST_COMPARED = 400
"""Most steps whose noise is compared; the variance of every step is tested."""
NOTHING = np.zeros(0, dtype=np.int64)
Prepare = Callable[[RoundSetup, LocalRecords, int, bytes], tuple[Integers, bytes]]


@dataclass(frozen=True, eq=False)
class _WatchedTraining(SimpleRound):
    """A wrapper of the round `inner` that lets a `TrainingWatch` see the contributions of `who`."""

    inner: Round
    seen_by: TrainingWatch
    who: str

    def contribute(self, local: Local) -> Contribution:
        """Return the inner round's contribution, while each step of its training is watched."""
        is_empty = not len(local.examples)
        found = self.inner.contribute(replace(local, watch=self.seen_by.begin(self.who, is_empty=is_empty)))
        if is_empty:
            self.seen_by.note_further(found)
        return found

    def finalize(self, opened: OpenedTotal) -> Step:
        """Return the result that the inner round makes of the opened sum."""
        return self.inner.finalize(opened)


class TrainingWatch:
    """Watches the noise that members draw in training, by contributions that `prepare` makes for the simulation.

    `steps` are the variances of each step of each contribution over the plan's, `shares` the noise of some of them,
    `flaws` the steps that are more than planned, or take records more often or less clipped.
    """

    def __init__(self, plan: Plan, training: SampledTraining, clients: int, prepare: Prepare = prepare) -> None:
        self._plan, self._training, self._prepare = plan, training, prepare
        self._again = self._redraws(clients * training.times)
        self._squares, self._entries = 0.0, 0
        self._further: dict[str, list[float]] = {block.name: [] for block in training.further}
        self.steps: list[Variance] = []
        self.shares: list[Share] = []
        self.flaws: list[str] = []

    def prepare(self, setup: RoundSetup, records: LocalRecords, member: int, state: bytes) -> tuple[Integers, bytes]:
        """Make a member's contribution by its own code, and others without records, and note the noise of both."""
        name = f"{setup.context.names[member]} in sum {setup.number}"
        made = self._prepare(self._watched(setup, name), records, member, state)
        for _ in range(self._again):
            prepare(self._watched(setup, f"{name}, without records"), records.take(NOTHING), member, state)
        return made

    def begin(self, who: str, *, is_empty: bool) -> StepWatch:
        """Return the watch of one contribution by `who`; of one that `is_empty` it notes the steps' whole sums."""
        taken, planned = 0, self._training

        def watch(settings: DpSgdSettings, noise: Integers, total: Integers) -> None:
            nonlocal taken
            taken += 1
            if taken == planned.steps + 1:
                self.flaws.append(f"The training of {who} takes more than the plan's {planned.steps} steps.")
            if settings.sampling_rate > planned.rate or settings.levels > planned.levels:
                found = f"the sampling rate {settings.sampling_rate:g} and a clip of {settings.levels} grid units"
                self.flaws.append(f"Step {taken} of {who} has {found}: more than {planned.rate:g} or {planned.levels}.")
            scaled = (total if is_empty else noise) / self._plan.training_sigma
            self._note(f"step {taken} of {who}", scaled)

        return watch

    def note_further(self, made: Contribution) -> None:
        """Note the numbers beside the steps in a contribution without records, which are noise alone."""
        for name, sigma in self._plan.further_sigmas.items():
            self._further[name].append(float(made.blocks[name].sum()) / sigma)

    @property
    def places(self) -> tuple[Variance, ...]:
        """The variance of all steps together, and of each further number, over the plan's."""
        found = [Variance(STEPS, self._squares / self._entries, self._entries)] if self._entries else []
        further = {name: np.array(values) for name, values in self._further.items() if values}
        return (*found, *(Variance(_name(name), float(np.mean(e**2)), len(e)) for name, e in further.items()))

    @property
    def parts(self) -> tuple[NoisePart, ...]:
        """The noise of steps and of each further number, whose variance is measured; empty where one was not seen."""
        if not self.shares or not all(self._further.values()):
            return ()
        steps = NoisePart(STEPS, np.concatenate([share.scaled for share in self.shares]))
        return (steps, *(NoisePart(_name(name), np.array(values)) for name, values in self._further.items()))

    def _watched(self, setup: RoundSetup, who: str) -> RoundSetup:
        return replace(setup, known_round=_WatchedTraining(setup.round, self, who))

    def _redraws(self, contributions: int) -> int:
        """Return how often each contribution is made without records: once, or until further numbers were seen enough.

        As far as `MOST_DRAWN` allows.
        """
        wanted = math.ceil(ENTRIES / contributions) if self._training.further else 1
        allowed = MOST_DRAWN // (contributions * self._training.steps * self._training.size)
        return max(1, min(wanted, allowed))

    def _note(self, name: str, scaled: Floats) -> None:
        found = Variance(name, float(np.mean(scaled**2)), len(scaled))
        self._squares, self._entries = self._squares + found.mean_square * found.entries, self._entries + found.entries
        self.steps.append(found)
        if len(self.shares) < MOST_COMPARED:
            self.shares.append(Share(name, scaled[:KEPT]))


def _name(block: str) -> str:
    return f"{block.replace('_', ' ')} beside members' training"
