"""The parties of a session under the shared protection, and the fewest uploads that may be summed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from secagg.agreement.roster import MAX_AGGREGATORS, SERVER_INDEX
from secagg.crypto.envelopes import ENVELOPE_BYTES
from secagg.crypto.labels import digest
from secagg.encoding import Residues
from secagg.errors import BadInput
from secagg.protection.interface import SessionContext
from secagg.protection.sharing.messages import FEWEST_AGGREGATORS

FIRST = 1
"""The number of the aggregator whose share is a whole vector; the share of every other one is a seed."""
SEED_BYTES = 32
LARGEST_VECTOR = 2**31 - 17
"""The most bytes of a packed vector, which one call of ChaCha20-Poly1305 seals here."""


@dataclass(frozen=True)
class SharedContext(SessionContext):
    """The facts of a session with aggregators as helpers; they are numbered from 1 on, in the order of the roster.

    The sum stays secret as long as one aggregator is honest. Raises BadInput unless there are 2 to 16 of them, whose
    indices follow one another after the clients' (of whom only a cohort may be there), each with a name and with an
    identity of its own that is no other party's.
    """

    def __post_init__(self) -> None:
        m, n = len(self.helpers), len(self.identities)
        if not FEWEST_AGGREGATORS <= m <= MAX_AGGREGATORS:
            remedy = "add members with the role aggregator to the roster" if m < FEWEST_AGGREGATORS else ""
            bounds = f"{FEWEST_AGGREGATORS} to {MAX_AGGREGATORS}"
            raise BadInput(f"a shared sum has {bounds} aggregators, not {m}", remedy=remedy)
        first = self.index_of(FIRST)
        if first <= max(self.identities, default=SERVER_INDEX) or tuple(self.helpers) != tuple(range(first, first + m)):
            raise BadInput(f"the aggregators' indices {list(self.helpers)} do not follow those of the clients")
        if not {SERVER_INDEX, *self.helpers} <= set(self.names):
            raise BadInput("the server and every aggregator need a name")
        if len({self.server, *self.helpers.values(), *self.identities.values()}) != 1 + m + n:
            raise BadInput("an aggregator shares its identity key", remedy="give every party a key of its own")
        if self.packed_bytes > LARGEST_VECTOR:
            raise BadInput(f"a vector of {self.packed_bytes} bytes is too long to be sealed in one piece")

    @cached_property
    def aggregators(self) -> Mapping[int, bytes]:
        """The aggregators' Ed25519 identity keys, by their numbers from 1 on."""
        return dict(enumerate(self.helpers.values(), start=1))

    @property
    def numbers(self) -> tuple[int, ...]:
        """The aggregators' numbers in order."""
        return tuple(self.aggregators)

    def index_of(self, number: int) -> int:
        """Return the roster index of the aggregator with this number, or an unused index if there is none."""
        return min(self.helpers) - FIRST + number

    def number_of(self, index: int) -> int:
        """Return the number of the aggregator with this roster index."""
        return 1 + tuple(self.helpers).index(index)

    def name_of(self, number: int) -> str:
        """Return the name of the aggregator with this number, or a description of the number if there is none."""
        return self.names[self.index_of(number)] if number in self.aggregators else f"aggregator {number}"

    @cached_property
    def binding(self) -> bytes:
        """The digest of round, session, roster and aggregators that every key, hash and signature is bound to."""
        return digest("shared session", self.round_digest, self.session_id, self.roster, *self.helpers.values())

    @property
    def upload_bytes(self) -> int:
        return sum(sealed_bytes(self, number) for number in self.numbers)

    def check_vector(self, residues: Residues) -> None:
        """Raise BadInput unless `residues` has the length and data type of this session's ring vectors."""
        if residues.shape != (self.length,) or residues.dtype != self.ring.word:
            raise BadInput(f"the session sums {self.length} {self.ring.word}, not {residues.dtype} {residues.shape}")


def sealed_bytes(context: SharedContext, aggregator: int) -> int:
    """Return the size in bytes of a sealed share for the aggregator with this number.

    In a census the first aggregator's holds a seed of blindings, and the client's proofs, after the vector.
    """
    proven = (SEED_BYTES + context.proof_bytes) * context.proves_bits
    return (context.packed_bytes + proven if aggregator == FIRST else SEED_BYTES) + ENVELOPE_BYTES


def sum_share_bytes(context: SharedContext, aggregator: int, clients: int) -> int:
    """Return the size in bytes of an aggregator's share of a sum of so many clients.

    In a census the share of the blindings' sum follows the vector, and in the first aggregator's all proofs that.
    """
    proofs = clients * context.proof_bytes if aggregator == FIRST else 0
    return context.packed_bytes + context.blinding_bytes + proofs


def fewest(context: SessionContext) -> int:
    """Return the smallest number of uploads that may be summed: all clients but the tolerated drop-outs.

    Raises BadInput when these are fewer than the minimum of clients, or than 2 more than the colluders.
    """
    needed, present = max(context.min_clients_in_sum, context.colluders + 2), len(context.clients) - context.dropouts
    if needed > present:
        raise BadInput(
            f"a minimum of {needed} uploads cannot be reached when {context.dropouts} of "
            f"{len(context.clients)} clients stay away",
            remedy="lower dropouts, colluders or min_clients_in_sum",
        )
    return present


def explain(context: SessionContext) -> str:
    """Return a text for people: the conditions under which vectors stay secret and the sum can be opened."""
    n, d, c = len(context.clients), context.dropouts, context.colluders
    needed = f"all but D = {d} of n = {n} must have uploaded, and at least 2 more than c = {c}"
    lines = [
        "a vector stays secret unless all aggregators collude; clients speak once, to each of them, and may leave",
        "who has not reached every aggregator is left out; they fix one set and one sum in two rounds of commitments",
        f"the sum of fewer than {fewest(context)} clients is never opened: {needed}",
        "every aggregator must stay until the sum is opened; one that errs in its own addition spoils the sum unseen",
    ]
    return "\n".join(lines)
