"""What is promised, in numbers that anybody can recompute and in plain words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from secagg.errors import BadInput
from secagg.privacy.allocation import Calibration, Mechanism
from secagg.privacy.sensitivity import Adjacency, Unit

NEIGHBOURS = {
    (Unit.RECORD, Adjacency.ADD_REMOVE): "whether any one record was among the data or not",
    (Unit.RECORD, Adjacency.REPLACE_ONE): "whether any one record was as it is or any other in its place",
    (Unit.SILO, Adjacency.ADD_REMOVE): "whether any one client's records were among the data or not",
    (
        Unit.SILO,
        Adjacency.REPLACE_ONE,
    ): "whether any one client's records were as they are or any others in their place",
}


@dataclass(frozen=True)
class PrivacyClaim:
    """(ε, δ) of `sessions` releases with one calibration, for its unit and adjacency.

    A claim below what the noise gives cannot be made: it raises BadInput.
    """

    calibration: Calibration
    epsilon: float
    delta: float
    sessions: int = 1

    def __post_init__(self) -> None:
        least = self.calibration.epsilon(self.delta, sessions=self.sessions)
        if not least <= self.epsilon < math.inf:
            raise BadInput(
                f"epsilon {self.epsilon:.6g} at delta {self.delta:g} is claimed, but the noise gives {least:.6g}",
                remedy="claim no less than the noise gives, or add more noise",
            )

    @classmethod
    def of(cls, calibration: Calibration, *, delta: float, sessions: int = 1) -> PrivacyClaim:
        """Return the strongest claim that the noise supports at `delta`."""
        return cls(calibration, calibration.epsilon(delta, sessions=sessions), delta, sessions)

    @property
    def unit(self) -> Unit:
        """Whose contribution is hidden."""
        return self.calibration.sensitivity.unit

    @property
    def adjacency(self) -> Adjacency:
        """Which two data sets are neighbours."""
        return self.calibration.sensitivity.adjacency

    def what_if(self, *, dropped: int = 0, colluding: int = 0) -> float:
        """Return ε, rounded up, if that many noise shares never arrive or are known to the adversary.

        math.inf when no honest share is left. With the gaussian mechanism one honest party keeps the whole promise.
        Raises BadInput for counts below 0 or above the number of parties.
        """
        parties = self.calibration.parties
        if min(dropped, colluding) < 0 or dropped + colluding > parties:
            raise BadInput(f"{dropped} dropped and {colluding} colluding of {parties} parties")
        honest = parties - dropped - colluding
        return self.calibration.epsilon(self.delta, sessions=self.sessions, honest=honest) if honest else math.inf

    def sentence(self) -> str:
        """Return the promise in plain words: who is protected, how much, by whose noise, and what breaks it."""
        times = "" if self.sessions == 1 else f", over {self.sessions} sessions about the same data together"
        return (
            f"Nobody can tell from what is opened {NEIGHBOURS[self.unit, self.adjacency]}: that changes the chance of "
            f"any outcome by a factor of at most e^{shown(self.epsilon)}, but for a chance of {self.delta:g}{times} "
            f"(epsilon {shown(self.epsilon)}, {self.adjacency}, {self.unit} level). {self._noise()}"
        )

    def _noise(self) -> str:
        parties, fewest = self.calibration.parties, self.calibration.fewest
        if self.calibration.mechanism is Mechanism.GAUSSIAN:
            return f"It holds while at least one of {parties} parties that add the whole noise is honest."
        held = f"It holds while at least {fewest} of {parties} clients add their share of the noise and keep it secret"
        if fewest == 1:
            return f"{held}."
        fewer = self.calibration.epsilon(self.delta, sessions=self.sessions, honest=fewest - 1)
        return f"{held}; with one fewer, epsilon would be {shown(fewer)}."


def shown(epsilon: float) -> str:
    """Return ε with at most four decimals, rounded up, never down."""
    return f"{math.ceil(epsilon * 10_000) / 10_000:.4f}".rstrip("0").rstrip(".")
