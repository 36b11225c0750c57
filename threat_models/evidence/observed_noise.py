"""The noise that the parties of a simulated plan really draw, in every block of every sum, a census included.

Members run their own code (`contribution_of`); a witness stands where the round is and keeps what it contributed, so
that the rest of a member's vector is its noise. Of helpers, whose noise leaves in the sum alone, it is the
opened sum less all contributions. Nothing of a calibration is used: σ of each entry is read from the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from methods.method import SumSpec, domain_count
from methods.round import Blocks, Contribution, Examples, Local, Opened, Round, SimpleRound, Step
from secagg.agreement.plan import NoiseFrom, Plan, PlannedNoise
from secagg.encoding import Integers
from secagg.experiments.session import run_session
from secagg.experiments.simulated_federation import SimulatedFederation
from secagg.experiments.simulation import PlayedRound, prepare
from secagg.plan_facts.records import LocalRecords
from secagg.privacy import Unit
from secagg.session import RoundSetup
from threat_models.estimation.empirical_sensitivity import Found, longest_of, longest_parts
from threat_models.estimation.noise_tests import Share, SharesTested, Variance, examine_shares
from threat_models.evidence.blocks import flaws_of
from threat_models.session import Floats

ENTRIES = 2_000
"""Entries of noise that are wanted of each place; small blocks are drawn again until there are so many."""
MOST_DRAWN = 1_000_000
"""Entries of one kind of sum that are drawn again at most, by clients."""
MOST_SESSIONS = 8
"""Sessions of one kind of sum that are run again at most, for the noise of helpers."""
ROUNDED = 1 / 12
"""What rounding adds to the variance of a Gaussian."""


@dataclass(frozen=True, eq=False)
class Watched(SimpleRound):
    """A round that keeps what it contributed."""

    inner: Round
    made: list[Blocks] = field(default_factory=list, repr=False)

    def contribute(self, local: Local) -> Contribution:
        """The round's own."""
        found = self.inner.contribute(local)
        self.made.append(found.blocks)
        return found

    def finalize(self, opened: Opened) -> Step:
        """The round's own."""
        return self.inner.finalize(opened)


class NoiseWatch:
    """Watches every session of a simulated plan with noise."""

    def __init__(self, federation: SimulatedFederation) -> None:
        plan = federation.setup.plan
        self._cast = federation
        self._plan = plan
        self._by_clients = plan.noise == NoiseFrom.CLIENT
        self._exact: dict[tuple[int, int], Blocks] = {}
        self._shares: list[Share] = []
        self._squares: dict[str, tuple[float, int]] = {}
        self._found: dict[tuple[int, str], float] = {}
        self._flaws: list[str] = []

    def prepare(self, setup: RoundSetup, records: LocalRecords, member: int, state: bytes) -> tuple[Integers, bytes]:
        """Make a member's contribution, by its own code, noise included; and more noise, of parts of nothing."""
        watched = Watched(setup.round)
        vector, kept = prepare(replace(setup, known_round=watched), records, member, state)
        self._exact[setup.number, member] = watched.made[-1]
        if self._by_clients:
            name = f"{setup.context.names[member]} in sum {setup.number}"
            self._note(setup, name, vector - setup.sum.layout.flatten(watched.made[-1]))
            for _ in range(self._redraws(setup, len(self._cast.members), MOST_DRAWN)):
                empty, _ = prepare(replace(setup, known_round=watched), records.take(NOTHING), member, state)
                self._add(setup, empty - setup.sum.layout.flatten(watched.made[-1]))
        return vector, kept

    def exact_of(self, setup: RoundSetup, member: int) -> Integers:
        """A member's contribution to a session, without noise."""
        return setup.sum.layout.flatten(self._exact[setup.number, member])

    def ended(self, played: PlayedRound) -> None:
        """Note what a session opened, and look for parts that are longer than its noise is for."""
        setup, opened = played.setup, played.result.vector
        members = played.result.members
        exact = np.sum([self.exact_of(setup, member) for member in members], axis=0)
        if not self._by_clients:
            self._note(setup, f"sum {setup.number}", opened - exact)
            nothing = np.zeros(setup.sum.layout.length, dtype=np.int64)
            for _ in range(self._redraws(setup, 1, MOST_SESSIONS * setup.sum.layout.length)):
                self._add(setup, run_session(setup, self._cast.keys, lambda member: nothing, {}).total)
        elif not np.array_equal(opened, np.sum([played.vectors[member] for member in members], axis=0)):
            self._flaws.append(f"Sum {setup.number} is not the sum of what its members contributed.")
        self._flaws += flaws_of(setup, opened, len(members))
        self._search(setup)

    def tested(self) -> SharesTested:
        """Test all that was drawn."""
        places = [Variance(name, squares / count, count) for name, (squares, count) in self._squares.items()]
        found = examine_shares(places, self._shares)
        return replace(found, flaws=(*self._flaws, *found.flaws))

    @property
    def found(self) -> Found:
        """The longest parts that were found, by kind of sum and block."""
        return self._found

    def _note(self, setup: RoundSetup, name: str, noise: Integers) -> None:
        self._shares.append(Share(name, self._add(setup, noise)))

    def _add(self, setup: RoundSetup, noise: Integers) -> Floats:
        """Add noise to what was seen of each place; in units of the plan's σ."""
        noisers = 1 if self._by_clients else max(1, len(setup.context.helpers))
        extra = 0.0 if self._by_clients else ROUNDED
        kind = setup.facts.kind_of(setup.number)
        sigmas = np.sqrt(noisers * (sigmas_of(self._plan, setup.facts.sums, kind) ** 2 + extra))
        scaled: Floats = noise / sigmas
        for name, where in places_of(setup.facts.sums, self._plan, kind):
            squares, count = self._squares.get(name, (0.0, 0))
            self._squares[name] = squares + float(np.sum(scaled[where] ** 2)), count + int(where.sum())
        return scaled

    def _redraws(self, setup: RoundSetup, parties: int, most: int) -> int:
        """Count the draws that each of so many parties repeats in this session, for places with few entries."""
        kind = setup.facts.kind_of(setup.number)
        least = min(int(where.sum()) for _, where in places_of(setup.facts.sums, self._plan, kind))
        each = parties * setup.facts.sums[kind].times
        return max(0, min(math.ceil(ENTRIES / (least * each)) - 1, most // (setup.sum.layout.length * each)))

    def _search(self, setup: RoundSetup) -> None:
        """Look for long parts in a round: of records, or of clients, whose own parts are at hand."""
        kind, plan = setup.facts.kind_of(setup.number), self._plan
        made = [blocks for (number, _), blocks in self._exact.items() if number == setup.number]
        spec = setup.sum.spec
        found = dict.fromkeys((block.name for block in spec.blocks), 0.0)
        if spec.per is Unit.CLIENT:
            found = longest_of(made, spec)
        is_new = all(place != kind for place, _ in self._found)
        if not setup.method.traits.reads_inputs and (setup.number == 1 or setup.is_last or is_new):
            domains = domain_count(plan.method_parameters)
            at_hand: list[Examples] = [own.counted for own in self._cast.members.values()]
            tried = longest_parts(setup.round, spec, plan.grid, len(plan.classes), domains, at_hand)
            found = {name: max(length, tried[name]) for name, length in found.items()}
        for name, length in found.items():
            self._found[kind, name] = max(length, self._found.get((kind, name), 0.0))


NOTHING = np.zeros(0, dtype=np.int64)


def _noises(plan: Plan, sums: Sequence[SumSpec], kind: int) -> tuple[PlannedNoise, ...]:
    """The plan's noise for the blocks of one kind of sum."""
    start = sum(len(spec.blocks) for spec in sums[:kind])
    return plan.sum_noises[start : start + len(sums[kind].blocks)]


def _diagonal(size: int) -> np.ndarray:
    """Which of the entries of an upper triangle, row by row, are on the diagonal."""
    upper, right = np.triu_indices((math.isqrt(8 * size + 1) - 1) // 2)
    found: np.ndarray = upper == right
    return found


def sigmas_of(plan: Plan, sums: Sequence[SumSpec], kind: int) -> Floats:
    """σ of one party's noise on each entry of a sum of this kind, (n,), as the plan has it."""
    parts = []
    for block, noise in zip(sums[kind].blocks, _noises(plan, sums, kind), strict=True):
        sigmas = np.full(block.size, noise.sigma)
        if noise.off_diagonal:
            sigmas[~_diagonal(block.size)] = noise.off_diagonal
        parts.append(sigmas)
    return np.concatenate(parts)


def places_of(sums: Sequence[SumSpec], plan: Plan, kind: int) -> Iterator[tuple[str, np.ndarray]]:
    """The places of a sum of a kind, each with its entries (n,): blocks; of a triangle the diagonal, and the rest."""
    ends = np.cumsum([0, *(block.size for block in sums[kind].blocks)])
    several = f" of the sums of kind {kind + 1}" if len(sums) > 1 else ""
    for start, block, noise in zip(ends, sums[kind].blocks, _noises(plan, sums, kind), strict=False):
        diagonal = _diagonal(block.size) if noise.off_diagonal else np.ones(block.size, dtype=np.bool_)
        parts: Mapping[str, np.ndarray] = {"": diagonal}
        if noise.off_diagonal:
            parts = {", diagonal": diagonal, ", off the diagonal": ~diagonal}
        for name, entries in parts.items():
            where = np.zeros(ends[-1], dtype=np.bool_)
            where[start : start + block.size] = entries
            if where.any():
                yield f"{block.name.replace('_', ' ')}{several}{name}", where
