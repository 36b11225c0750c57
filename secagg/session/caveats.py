"""Caveats of a consistent transcript; `require` rejects an invalid one."""

from __future__ import annotations

from dataclasses import dataclass

from secagg.errors import TranscriptInvalid
from secagg.transcript import Record


@dataclass(frozen=True)
class Caveat:
    """One point that a consistent transcript leaves open ("consistent, but …"), and the condition for the rest.

    `remedy` is what a verifier can do about it; empty: nothing.
    """

    words: str
    condition: str
    remedy: str = ""


SILENT = Caveat("its author has sent nothing yet", "as far as it goes")
UNSIGNED_END = Caveat("nobody has signed its end", "if it ended there")
UNSIGNED_REASON = Caveat("nobody has signed the reason that it states for its end", "if it ended for that reason")
PURGED = Caveat(
    "the vectors beside it were purged: digests only",
    "if the purged vectors lead to it",
    "bring its uploads/ folder, where somebody still has it",
)

SUM_GONE = Caveat(
    "what its outcome names was purged, or is not all there: digests only",
    "if the sum that it names leads to what it says",
    "bring its whole folder, and those of the rounds beside it, where somebody still has them",
)

IMPOSSIBLE_SUM = Caveat(
    "its sum is beyond what honest clients' vectors and noise add up to",
    "whoever sent a vector beyond the plan's bounds",
    "start a new plan: its members refuse this sum",
)


def require(holds: bool, record: Record, problem: str) -> None:
    """Raise TranscriptInvalid for the record unless it holds."""
    if not holds:
        raise TranscriptInvalid(record.index, problem)
