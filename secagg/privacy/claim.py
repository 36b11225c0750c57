"""The privacy claim of a plan, in numbers that anybody can recompute and in plain words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from secagg.errors import BadInput
from secagg.privacy.calibration import Mechanism, Releases
from secagg.privacy.sensitivity import Adjacency, Unit
from secagg.privacy.subsampled import TrainingCost

SMALLEST_DELTA = 1e-15
"""The least δ: below it, chances that the noise's law leaves out are not small beside δ."""
LARGEST_DELTA = 0.5
"""The largest δ of a plan; a larger one means next to nothing."""
OUTRIGHT = "whoever publishes one of them outright, chosen at random, keeps such a promise too"
"""A text on what a δ of 1/n allows, with n records or clients."""
NEIGHBOURS = {
    (Unit.RECORD, Adjacency.ADD_REMOVE): "whether any one record was among the data or not",
    (Unit.RECORD, Adjacency.REPLACE_ONE): "whether any one record was as it is or any other in its place",
    (Unit.CLIENT, Adjacency.ADD_REMOVE): "whether any one client's records were among the data or not",
    (
        Unit.CLIENT,
        Adjacency.REPLACE_ONE,
    ): "whether any one client's records were as they are or any others in their place",
}


@dataclass(frozen=True)
class PrivacyClaim:
    """The (ε, δ) guarantee for everything that a plan releases, for its privacy unit and adjacency.

    `holds_against_members`: whether a client, which knows its own share of the noise, is among those against whom it
    holds. `each_alone`: uploads are in clear, so that each client's own share must be enough for it. `among`: how many
    sums there are in all, where one client's data are in no more of them than the releases; else 0. A claim below what
    the noise gives cannot be made, nor one with δ below `SMALLEST_DELTA`: it raises BadInput.
    """

    releases: Releases
    epsilon: float
    delta: float
    holds_against_members: bool = True
    each_alone: bool = False
    among: int = 0

    def __post_init__(self) -> None:
        refuse_small_delta(self.delta)
        _refuse_less(self.releases.epsilon(self.delta), self.epsilon, self.delta)

    @classmethod
    def of(cls, releases: Releases, *, delta: float) -> PrivacyClaim:
        """Return the strongest claim (the least ε) that the noise supports at `delta`."""
        return cls(releases, releases.epsilon(delta), delta)

    @property
    def unit(self) -> Unit:
        """The privacy unit that the claim protects: one record or one client."""
        return self.releases.first.unit

    @property
    def adjacency(self) -> Adjacency:
        """The relation between neighbouring data sets: add-remove or replace-one."""
        return self.releases.first.adjacency

    def after(self, sums: int, of: int) -> float:
        """Return the ε, rounded up, of the first `sums` sums alone, out of the plan's `of` sums."""
        return self.releases.until(sums).epsilon(self.delta)

    def of_group(self, records: int) -> float:
        """Return ε, rounded up, of `records` ≥ 1 units together (README.md, *People with several records*)."""
        return max(self.epsilon, self.releases.whole().group_epsilon(records, self.delta))

    def what_if(self, *, dropped: int = 0, colluding: int = 0) -> float:
        """Return ε, rounded up, if `dropped` noise shares never arrive and the adversary knows `colluding` more.

        math.inf when no honest share is left. With the gaussian mechanism one honest party keeps the whole promise.
        Raises BadInput for counts below 0 or above the number of parties.
        """
        parties = self.releases.first.parties
        if min(dropped, colluding) < 0 or dropped + colluding > parties:
            raise BadInput(f"{dropped} dropped and {colluding} colluding of {parties} parties")
        honest = parties - dropped - colluding
        return self.releases.epsilon(self.delta, honest=honest, missing=dropped) if honest else math.inf

    @property
    def against_member(self) -> float:
        """The ε, rounded up, against a client that knows its own noise share besides the shares assumed known."""
        honest = self.releases.first.fewest - 1
        return self.releases.epsilon(self.delta, honest=honest) if honest else math.inf

    def sentence(self) -> str:
        """Return the claim in plain words: who is protected, how much, by whose noise, and what breaks it."""
        sums = sum(times for _, times in self.releases.parts)
        times = "" if sums == 1 else f", over all {sums} sums together"
        if self.among:
            times = f", over all {self.among} sums together, no client being in more than {sums} of them"
        training = self.releases.training
        trained = f" It rests on the noise of members' own training, too ({_sampled(training)})." if training else ""
        return f"What is opened {_promised(self, times)}. {self._noise()}{trained}"

    def _noise(self) -> str:
        first = self.releases.first
        parties, fewest = first.parties, first.fewest
        if first.mechanism is Mechanism.GAUSSIAN:
            if parties == 1:
                return "It holds while the party that adds the noise is honest."
            return f"It holds while at least one of {parties} parties that add the whole noise is honest."
        whose = f"at least {fewest} of {parties} clients"
        if first.lower:  # what surplus there is has been removed: each client that is present counts
            whose = f"all but {first.known} of the clients in a sum" if first.known else "all clients in a sum"
        held = f"It holds while {whose} add their share of the noise and keep it secret"
        if parties == 1:
            return "It rests on the one client's own share of the noise."
        if self.each_alone:
            return "For each client it rests on its own share of the noise."
        if not self.holds_against_members:
            member = format_epsilon(self.against_member)
            return f"{held}; not against a client, which knows its own share: against one, epsilon is {member}."
        if fewest == 1:
            return f"{held}."
        fewer = format_epsilon(self.releases.epsilon(self.delta, honest=fewest - 1))
        return f"{held}; with one fewer, epsilon would be {fewer}."


@dataclass(frozen=True)
class TrainingClaim:
    """The (ε, δ) guarantee of clients' own noisy training, for one record added or removed, against everybody.

    The noise is the member's own and in what leaves it: nobody else's honesty or presence matters, and who adds what up
    learns nothing more. Raises BadInput for a claim below what the noise gives.
    """

    unit = Unit.RECORD
    adjacency = Adjacency.ADD_REMOVE  # sampling amplifies for these neighbours alone
    cost: TrainingCost
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        refuse_small_delta(self.delta)
        _refuse_less(_epsilon(self.cost, self.delta), self.epsilon, self.delta)

    def after(self, sums: int, of: int) -> float:
        """Return ε, rounded up, of the clients' training for the first `sums` of the plan's `of` sums alone."""
        return _epsilon(self.cost if sums == of else self.cost.after(sums, of), self.delta)

    def of_group(self, records: int) -> float:
        """Return ε, rounded up, of `records` ≥ 1 records together (README.md, *People with several records*)."""
        return max(self.epsilon, self.cost.group_epsilon(records, self.delta))

    def sentence(self) -> str:
        """Return the claim in plain words: the (ε, δ) of what leaves a client, and the noise that it rests on."""
        return (
            f"What leaves a member {_promised(self, '')}. For each member it rests on the noise of its own training "
            f"({_sampled(self.cost)}), whoever else takes part."
        )


Claim = PrivacyClaim | TrainingClaim


@lru_cache(maxsize=256)
def _epsilon(cost: TrainingCost, delta: float) -> float:
    """Return the ε of a cost, cached: it takes a second, and every party and seed would compute it again."""
    return cost.epsilon(delta)


def _sampled(cost: TrainingCost) -> str:
    """Return the steps of members' training, in words."""
    return f"{cost.steps.steps} steps, a record in each with probability {cost.steps.rate:g}"


def _promised(claim: Claim, times: str) -> str:
    """Return what those who see the release learn, in words and numbers."""
    tells = "hardly tells" if claim.epsilon <= 1 else "tells to a limited degree"
    factor = f" (at most {math.ceil(math.exp(claim.epsilon) * 10) / 10:.1f})" if claim.epsilon <= 10 else ""
    return (
        f"{tells} {NEIGHBOURS[claim.unit, claim.adjacency]}: this changes the chance of any "
        f"outcome by a factor of at most e^{format_epsilon(claim.epsilon)}{factor}, but for a chance of "
        f"{claim.delta:g}{times} (epsilon {format_epsilon(claim.epsilon)}, {claim.adjacency}, {claim.unit} level)"
    )


def _refuse_less(least: float, epsilon: float, delta: float) -> None:
    if not least <= epsilon < math.inf:
        raise BadInput(
            f"epsilon {epsilon:.6g} at delta {delta:g} is claimed, but the noise gives {least:.6g}",
            remedy="claim no less than the noise gives, or add more noise",
        )


def refuse_delta(delta: float) -> None:
    """Raise BadInput for a δ outside `SMALLEST_DELTA` to `LARGEST_DELTA`, the range for sums with noise."""
    if not SMALLEST_DELTA <= delta <= LARGEST_DELTA:
        remedy = f"sums with noise keep a delta from {SMALLEST_DELTA:g} to {LARGEST_DELTA:g}"
        raise BadInput(f"delta cannot be {delta:g}", remedy=remedy)


def refuse_small_delta(delta: float) -> None:
    """Raise BadInput for a δ below `SMALLEST_DELTA`, too small for any sum with noise."""
    if delta < SMALLEST_DELTA:
        raise BadInput(
            f"delta {delta:g} is claimed, but with a chance of up to {SMALLEST_DELTA:g} (2⁻⁷⁰ an entry) noise "
            "does not fit into the ring, which ends the session",
            remedy=f"choose a delta of at least {SMALLEST_DELTA:g}",
        )


def weak_delta(delta: float, units: int, name: str) -> str:
    """Return a warning if δ is not below 1/`units`, else an empty text; `name` names the units, as "records"."""
    if delta * units < 1:
        return ""
    return f"delta {delta:g} is not below 1 in {units} {name}: {OUTRIGHT}"


def format_epsilon(epsilon: float) -> str:
    """Format ε with at most four decimals, rounded up; "inf" for an unbounded ε."""
    if math.isinf(epsilon):
        return "inf"
    return f"{math.ceil(epsilon * 10_000) / 10_000:.4f}".rstrip("0").rstrip(".")
