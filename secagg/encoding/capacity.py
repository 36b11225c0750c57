"""How wide the ring of a plan is, and the proof, from the plan alone, that no sum can wrap around it."""

from __future__ import annotations

from dataclasses import dataclass

from secagg.encoding.ring import Ring
from secagg.errors import CapacityExceeded

LARGEST_RING = 64


@dataclass(frozen=True)
class Capacity:
    """The largest absolute value that any entry of the sum can take.

    `clients` × `records` (per client) × `bound` (per record and entry) + `noise` (0 without noise).
    """

    clients: int
    records: int
    bound: int
    noise: int = 0

    @property
    def largest(self) -> int:
        """clients · records · bound + noise."""
        return self.clients * self.records * self.bound + self.noise

    def ring(self) -> Ring:
        """The smallest byte-aligned ring with largest < 2^(bits−1).

        Raises CapacityExceeded when 64 bits are not enough.
        """
        needed = self.largest.bit_length() + 1
        if needed > LARGEST_RING:
            raise CapacityExceeded(
                "the ring of the sum (bits)", needed, LARGEST_RING, remedy="lower max_records, clients or levels"
            )
        return Ring(-(-needed // 8) * 8)

    def proof(self) -> str:
        """One line that a reader can check by hand."""
        bits = self.ring().bits
        terms = f"{self.clients} clients × {self.records} records × {self.bound} per record and entry"
        noise = f" + {self.noise} noise" if self.noise else ""
        return f"|sum| ≤ {terms}{noise} = {self.largest} < 2^{bits - 1}: a ring of {bits} bits cannot wrap"
