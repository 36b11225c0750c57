"""Who takes part in a shared session, and how few uploads may be summed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from secagg.crypto.labels import digest
from secagg.encoding import Residues
from secagg.errors import BadInput
from secagg.protection.seam import LocalParty, SessionContext

FIRST = 1
"""The aggregator whose share is a whole vector; every other one's is a seed."""
FEWEST_AGGREGATORS, MOST_AGGREGATORS = 2, 16
LARGEST_VECTOR = 2**31 - 17
"""Bytes of a packed vector that one call of ChaCha20-Poly1305 seals here."""


@dataclass(frozen=True)
class SharedContext:
    """A session and its aggregators: number (1…m) → Ed25519 identity key, number → name.

    The sum stays secret as long as one aggregator is honest. Raises BadInput unless there are 2 to 16 of them, each
    with an identity of its own that is no client's.
    """

    session: SessionContext
    aggregators: Mapping[int, bytes]
    names: Mapping[int, str]

    def __post_init__(self) -> None:
        m = len(self.aggregators)
        if not FEWEST_AGGREGATORS <= m <= MOST_AGGREGATORS or self.numbers != tuple(range(1, m + 1)):
            raise BadInput(f"a shared sum has aggregators 1 to m with 2 ≤ m ≤ 16, not {list(self.aggregators)}")
        if set(self.names) != set(self.aggregators):
            raise BadInput("every aggregator needs a name")
        if len({*self.aggregators.values(), *self.session.identities.values()}) != m + len(self.session.identities):
            raise BadInput("an aggregator shares its identity key", remedy="give every party a key of its own")
        if self.session.packed_bytes > LARGEST_VECTOR:
            raise BadInput(f"a vector of {self.session.packed_bytes} bytes is too long to be sealed in one piece")

    @property
    def numbers(self) -> tuple[int, ...]:
        """The aggregators' numbers in order."""
        return tuple(self.aggregators)

    @cached_property
    def binding(self) -> bytes:
        """What every key, hash and signature of the session starts from: plan, session, roster and aggregators."""
        session = self.session
        return digest("shared session", session.plan, session.session, session.roster, *self.aggregators.values())

    def check_aggregator(self, me: LocalParty) -> None:
        """Raise BadInput unless this machine's key is that of the aggregator it says it is."""
        if self.aggregators.get(me.member) != me.identity.public:
            raise BadInput(f"this identity key is not that of aggregator {me.member}")

    def check_vector(self, residues: Residues) -> None:
        """Raise BadInput unless `residues` are this session's `length` words of the ring."""
        length, word = self.session.length, self.session.ring.word
        if residues.shape != (length,) or residues.dtype != word:
            raise BadInput(f"the session sums {length} {word}, not {residues.dtype} of shape {residues.shape}")


def fewest(context: SessionContext) -> int:
    """The smallest number of uploads that is summed: the minimum cohort, and 2 more than the colluders.

    Raises BadInput when the tolerated dropouts leave fewer.
    """
    needed, present = max(context.minimum_cohort, context.colluders + 2), len(context.clients) - context.dropouts
    if needed > present:
        raise BadInput(
            f"a minimum of {needed} uploads cannot be reached when {context.dropouts} of "
            f"{len(context.clients)} clients stay away",
            remedy="lower dropouts, colluders or minimum_cohort",
        )
    return needed


def explain(context: SessionContext) -> str:
    """What holds, in words."""
    needed, c = fewest(context), context.colluders
    lines = [
        "a vector stays secret unless all aggregators collude; clients speak once, to each of them, and may leave",
        "who has not reached every aggregator is left out; they fix one set and one sum in two rounds of commitments",
        f"the sum of fewer than {needed} clients is never opened: the minimum cohort, and 2 more than c = {c}",
        "every aggregator must stay until the sum is opened; one that errs in its own addition spoils the sum unseen",
    ]
    return "\n".join(lines)
