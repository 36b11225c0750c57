"""Compute the ε that an amount of noise gives, or the noise that an ε needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar

from secagg.errors import BadInput
from secagg.privacy.calibration import Mechanism
from secagg.privacy.claim import refuse_small_delta
from secagg.privacy.gaussian import LARGEST_MU, largest, noise_multiplier_of
from secagg.privacy.sensitivity import Adjacency
from secagg.privacy.shares import GaussianCost, gap_of, variance_of
from secagg.privacy.subsampled import CHANCE, TRAININGS, SampledSteps, TrainingCost, multiplier_for

USUAL_SIGMA = 100.0
"""The default σ in grid units; class sums and second moments have far more."""
E = TypeVar("E", Mechanism, Adjacency)
MOST_SHARES = 1 << 20
MOST_TIMES = 1 << 40
"""The most coordinates, and sessions: more than any plan has."""


def promised(
    delta: float,
    *,
    noise_multiplier: float | None = None,
    target_epsilon: float | None = None,
    adjacency: str | None = None,
    mechanism: str = Mechanism.GAUSSIAN,
    shares: int = 1,
    grid_sigma: float = USUAL_SIGMA,
    coordinates: int = 1,
    dropped: int = 0,
    colluding: int = 0,
    sessions: int = 1,
    sampling: float | None = None,
    steps: int = 1,
    rounds: int = 1,
) -> dict[str, Any]:
    """Compute the ε, never too small, that an amount of noise gives, or the noise that an ε needs.

    The arguments are the options of `secagg epsilon`: `noise_multiplier` is σ/Δ of the whole sum, `mechanism`
    "gaussian" (one party's noise) or "discrete-shares" (a share from each client). With `sampling` it is of members'
    own training: in each round so many steps, a record in each with that probability. Raises BadInput.
    """
    kind = _one_of(Mechanism, "mechanism", mechanism)
    meant = _one_of(Adjacency, "adjacency", adjacency) if adjacency else None
    if sampling is not None or (steps, rounds) != (1, 1):
        if sampling is None or kind is not Mechanism.GAUSSIAN or (shares, dropped, colluding) != (1, 0, 0):
            problem = "steps and rounds are of training on sampled records, whose noise one member adds"
            raise BadInput(problem, remedy="give the sampling rate, and no other mechanism")
        if meant is Adjacency.REPLACE_ONE:
            raise BadInput("sampling promises nothing for a replaced record", remedy="choose add-remove")
        promise = _of_training(delta, noise_multiplier, target_epsilon, sampling, steps * rounds, sessions)
        drawn = {"sampling": sampling, "steps": steps, "rounds": rounds}
        return (
            promise | {"adjacency": Adjacency.ADD_REMOVE.value, "mechanism": kind.value, "sessions": sessions} | drawn
        )
    release = _Release(kind, delta, shares, dropped, colluding, grid_sigma, coordinates, sessions)
    multiplier = _multiplier(release, noise_multiplier, target_epsilon)
    reached = release.epsilon(multiplier)
    if math.isinf(reached):
        raise BadInput(
            f"sessions·(Δ/σ)² is above {LARGEST_MU**2:g}: that promises nothing",
            remedy="give a larger noise multiplier, or fewer sessions",
        )
    content: dict[str, Any] = {
        "epsilon": reached,
        "delta": delta,
        "noise_multiplier": multiplier,
        "adjacency": meant.value if meant else None,
        "mechanism": kind.value,
        "sessions": sessions,
    }
    if kind is Mechanism.DISCRETE_SHARES:
        content |= {"shares": shares, "honest_shares": release.honest, "grid_sigma": grid_sigma}
        content["coordinates"] = coordinates
    return content


def _of_training(
    delta: float, given: float | None, target: float | None, rate: float, steps: int, sessions: int
) -> dict[str, Any]:
    """Return ε at δ of as many equal trainings as a ledger adds them up, and their noise multiplier."""
    if (given is None) == (target is None):
        raise BadInput("the noise or the promise is asked for", remedy="give a noise multiplier, or a target epsilon")
    if target is not None and sessions > 1:
        raise BadInput("the noise of several trainings is not computed", remedy="give a noise multiplier, or 1 session")
    refuse_small_delta(delta)
    multiplier = given if given is not None else multiplier_for(rate, steps, epsilon=target or 0.0, delta=delta)
    cost = TrainingCost(SampledSteps(rate, multiplier, steps))
    failing = sessions if rate < 1 else 0
    if sessions == 1:
        reached = cost.epsilon(delta)
    elif failing <= TRAININGS:
        reached = cost.row(delta * CHANCE).times(sessions).epsilon(delta * (1 - failing * CHANCE))
    else:
        raise BadInput(
            f"{sessions} trainings are more than a ledger takes", remedy=f"give at most {TRAININGS} sessions"
        )
    if math.isinf(reached):
        raise BadInput("so little noise promises nothing", remedy="give a larger noise multiplier")
    return {"epsilon": reached, "delta": delta, "noise_multiplier": multiplier}


def _one_of(kinds: type[E], name: str, value: str) -> E:
    try:
        return kinds(value)
    except ValueError:
        raise BadInput(f"{name} cannot be {value!r}", remedy=f"choose among {', '.join(kinds)}") from None


@dataclass(frozen=True)
class _Release:
    """The facts of a release, except for the amount of noise."""

    mechanism: Mechanism
    delta: float
    shares: int
    dropped: int
    colluding: int
    grid_sigma: float
    coordinates: int
    sessions: int

    def __post_init__(self) -> None:
        if self.mechanism is Mechanism.GAUSSIAN and (self.shares, self.dropped, self.colluding) != (1, 0, 0):
            raise BadInput("the gaussian mechanism has no noise shares", remedy="choose the mechanism discrete-shares")
        if self.honest < 1:
            raise BadInput(
                f"none of {self.shares} noise shares is honest and arrives: there is no promise",
                remedy="let fewer be dropped or colluding",
            )
        if self.mechanism is Mechanism.DISCRETE_SHARES:
            # Of one party's noise every δ is exact: it is added where the sum has left the ring.
            refuse_small_delta(self.delta)
            if math.isinf(GaussianCost(1.0, self.gap * self.sessions).epsilon(self.delta)):
                raise self._too_coarse("any epsilon")

    @property
    def honest(self) -> int:
        """The number of shares of the noise that arrive and are not known to the adversary."""
        return self.shares - self.dropped - self.colluding

    @property
    def lost(self) -> float:
        """The ratio of σ of all shares to σ of the Gaussian noise that the honest ones count as."""
        if self.mechanism is Mechanism.GAUSSIAN:
            return 1.0
        counted = variance_of(self.grid_sigma, self.honest)
        return math.sqrt(self.shares * self.grid_sigma**2 / counted) * (1 + 2.0**-48)

    @property
    def gap(self) -> float:
        """The gap T between one sum and a Gaussian release."""
        if self.mechanism is Mechanism.GAUSSIAN:
            return 0.0
        return gap_of([(self.grid_sigma, self.coordinates)], self.shares)

    def epsilon(self, multiplier: float) -> float:
        """Return ε of all sessions, rounded up; math.inf where it is too large to be computed."""
        mu = self.lost / multiplier
        if mu > LARGEST_MU:  # its square may have no float
            return math.inf
        squared_mu = max(mu**2 * (1 + 2.0**-48), math.ulp(0.0))
        return GaussianCost(squared_mu, self.gap).times(self.sessions).epsilon(self.delta)

    def multiplier(self, epsilon: float) -> float:
        """Return the least σ/Δ with this ε, rounded up."""
        if not 0 < epsilon < math.inf:
            raise BadInput(f"epsilon cannot be {epsilon}", remedy="give a finite number above 0")
        if 2 * self.gap * self.sessions >= epsilon:
            raise self._too_coarse(f"epsilon {epsilon:g}")
        mu = largest(lambda mu: mu < LARGEST_MU and self.epsilon(self.lost / mu) <= epsilon)
        multiplier = self.lost * noise_multiplier_of(mu)
        while self.epsilon(multiplier) > epsilon:  # at the smallest ε rounding weighs more than one step of μ
            multiplier *= 1 + 2.0**-30
        return multiplier

    def _too_coarse(self, promise: str) -> BadInput:
        return BadInput(
            f"shares of sigma {self.grid_sigma:g} grid units are too far from Gaussian to keep {promise} over "
            f"{self.coordinates} coordinates in {self.sessions} session(s)",
            remedy="give a larger grid sigma, or fewer coordinates or sessions",
        )


def _multiplier(release: _Release, given: float | None, target: float | None) -> float:
    if target is not None and given is None:
        return release.multiplier(target)
    if given is None or target is not None:
        raise BadInput("the noise or the promise is asked for", remedy="give a noise multiplier, or a target epsilon")
    if not 0 < given < math.inf:
        raise BadInput(f"the noise multiplier cannot be {given}", remedy="give a finite number above 0")
    return given
