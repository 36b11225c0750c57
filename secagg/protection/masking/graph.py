"""The neighbour graph of share holders over U1, drawn from the signed directory.

No single party chooses the directory: every client's nonce is in it. The ring order is the order of
SHA-256(directory ‖ member); neighbours are the k/2 next ones on each side (a Harary graph, Bell et al. 2020).
"""

from __future__ import annotations

from secagg.crypto.labels import digest, number
from secagg.crypto.shared_work import once
from secagg.protection.masking.quorum import Thresholds


class NeighbourGraph:
    """Closed neighbourhoods over the members of U1."""

    def __init__(self, members: tuple[int, ...], directory: bytes, thresholds: Thresholds) -> None:
        self._members = members
        self._reach = 0 if thresholds.degree >= len(members) - 1 else thresholds.degree // 2
        if self._reach:
            self._ring = once(("ring", directory, members), lambda: _ring(members, directory))
            self._place = once(("places", directory, members), lambda: {each: k for k, each in enumerate(self._ring)})

    def holders(self, dealer: int) -> tuple[int, ...]:
        """The holders of `dealer`'s shares, itself included, in order. The relation is symmetric."""
        if not self._reach:
            return self._members
        place, size = self._place[dealer], len(self._ring)
        return tuple(sorted(self._ring[(place + step) % size] for step in range(-self._reach, self._reach + 1)))


def _ring(members: tuple[int, ...], directory: bytes) -> list[int]:
    return sorted(members, key=lambda member: digest("ring", directory, number(member)))
