"""Thresholds and graph degree of the masked protection, derived from n clients, c colluders and D drop-outs alone.

Over all clients: t is the smallest integer with 2t > n + c, and the plan is refused unless t ≤ n − D.
2t > n + c means that no two survivor sets can both gather t signatures when c clients sign anything (Bonawitz et
al. 2017, section 6.2, malicious server), and, since shares are opened only with such a quorum, that nobody can
collect both kinds of shares of one client.

Below `SPARSE_FROM` clients every client deals to every other. From there on a client deals to k neighbours, k/2 on
each side of a random ring (a Harary graph, Bell et al. 2020, section 4). With c_k the most colluders in a closed
neighbourhood of k + 1 holders and D_k the most dropouts in it, k is the smallest even degree with

    t_k = k/2 + 2 + c_k  and  t_k ≤ k − D_k.

The first is for privacy, whoever the server lets drop out after it has seen the ring. Were the survivors to fall apart
into groups without a common neighbour, some survivor would have no survivor among its k/2 neighbours on one side: at
most k/2 + 1 honest holders and c_k colluders could open its seed, one short of t_k, so that no group's sum comes out.
It also gives 2·t_k > k + 1 + c_k: nobody can collect both kinds of shares of one client. The second is for liveness.
c_k holds except with probability 2⁻⁴⁰ even for a server that tries 2⁶⁴ directories offline and admits as few as t
clients; D_k except with probability 2⁻⁴⁰.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from secagg.crypto.labels import digest, number
from secagg.crypto.shared_work import once
from secagg.errors import BadInput

SPARSE_FROM = 300
STATISTICAL_BITS = 40
GRINDING_BITS = 64
SMALLEST_DEGREE = 64


@dataclass(frozen=True)
class Thresholds:
    """The thresholds and graph degree for n clients, c colluders and D drop-outs.

    `signatures` is t, counted over all clients. `degree` is the number of other holders of a client's shares
    (n − 1 on the complete graph) and `shares` how many of the degree + 1 holders recover a secret.
    `survivors` = n − D is the smallest |U3| that may be opened.
    """

    clients: int
    colluders: int
    dropouts: int
    signatures: int
    degree: int
    shares: int
    survivors: int

    @property
    def is_complete(self) -> bool:
        """Whether every client deals shares to every other."""
        return self.degree == self.clients - 1

    def explain(self) -> str:
        """Return a text for people: the reason of each threshold, in one line each."""
        n, c, d, t = self.clients, self.colluders, self.dropouts, self.signatures
        lines = [
            f"a vector stays secret unless the server and more than c = {c} clients collude",
            f"t = {t} of n = {n} clients must sign one survivor set: the least with 2t > n + c = {n + c}",
            f"t ≤ n − D = {n - d}: up to D = {d} clients may vanish at any moment",
            f"the sum of fewer than {self.survivors} clients is never opened: all but D = {d} of n = {n}",
        ]
        graph = "complete graph" if self.is_complete else f"{self.degree} neighbours"
        lines.append(f"{graph}: {self.shares} of {self.degree + 1} holders recover a client's masks")
        if self.survivors - c == 2:
            lines.append("with two honest survivors only, each learns the other's sum by subtracting its own")
        return "\n".join(lines)


def most_dropouts(clients: int, colluders: int) -> int:
    """Return the most drop-outs that leave enough clients to sign, and two more than the colluders; 0 if none do."""
    return max(0, clients - max((clients + colluders) // 2 + 1, colluders + 2))


@lru_cache(maxsize=64)
def derive_thresholds(clients: int, colluders: int, dropouts: int, min_clients_in_sum: int) -> Thresholds:
    """Return the thresholds of a masked sum. Raises BadInput, with the figures, if the numbers do not fit together."""
    n, c, d = clients, colluders, dropouts
    if n < 2:
        raise BadInput("a masked sum needs at least 2 clients", remedy="add clients to the roster")
    t = (n + c) // 2 + 1
    if t > n - d:
        raise BadInput(
            f"{n} clients cannot tolerate {c} colluders and {d} dropouts: {t} signatures are needed, {n - d} remain",
            remedy=f"at most {most_dropouts(n, c)} dropouts with {c} colluders",
        )
    least = max(t, c + 2, min_clients_in_sum)
    if least > n - d:
        raise BadInput(
            f"a minimum of {least} survivors cannot be reached when {d} of {n} clients drop out",
            remedy="lower dropouts, colluders or min_clients_in_sum",
        )
    degree, shares = _sparse_degree(n, c, d) if n >= SPARSE_FROM else (n - 1, t)
    return Thresholds(n, c, d, t, degree, shares, n - d)


def _sparse_degree(n: int, c: int, d: int) -> tuple[int, int]:
    """Return the smallest even degree k < n − 1 with its share threshold t_k, or the complete graph."""
    complete = (n + c) // 2 + 1
    every = math.ceil(math.log2(n)) + 1  # union over all clients' neighbourhoods, halved
    for k in range(SMALLEST_DEGREE, n - 1, 2):
        colluding = _tail(complete - 1, c, k, STATISTICAL_BITS + GRINDING_BITS + every)
        dropped = _tail(n - 1, d, k, STATISTICAL_BITS + every)
        if k // 2 + 2 + colluding <= k - dropped:
            return k, k // 2 + 2 + colluding
    return n - 1, complete


def _tail(population: int, marked: int, drawn: int, bits: int) -> int:
    """Return the smallest m with P[more than m of `drawn` are marked] ≤ 2^−bits, drawing without replacement."""
    from scipy.stats import hypergeom

    law = hypergeom(population, marked, min(drawn, population))
    low, high = 0, min(marked, drawn)
    while low < high:
        middle = (low + high) // 2
        if law.logsf(middle) <= -bits * math.log(2):
            high = middle
        else:
            low = middle + 1
    return low


class NeighbourGraph:
    """The graph of the joined clients, in which neighbours hold shares of each other's secrets, and each of its own."""

    def __init__(self, members: tuple[int, ...], directory: bytes, thresholds: Thresholds) -> None:
        self._members = members
        self._reach = 0 if thresholds.degree >= len(members) - 1 else thresholds.degree // 2
        if self._reach:
            self._ring = once(("ring", directory, members), lambda: _ring(members, directory))
            self._place = once(("places", directory, members), lambda: {each: k for k, each in enumerate(self._ring)})

    def holders(self, dealer: int) -> tuple[int, ...]:
        """Return the clients that hold shares of `dealer`'s secrets, in order, itself included; holding is mutual."""
        if not self._reach:
            return self._members
        place, size = self._place[dealer], len(self._ring)
        return tuple(sorted(self._ring[(place + step) % size] for step in range(-self._reach, self._reach + 1)))


def _ring(members: tuple[int, ...], directory: bytes) -> list[int]:
    return sorted(members, key=lambda member: digest("ring", directory, number(member)))
