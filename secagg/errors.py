"""The package's exceptions, one for each kind of failure, with their exit codes of the command line.

Messages are one line, name what was wrong and end with a remedy where there is one.
No exception carries a secret: only public names, sizes, digests and limits.
"""

from __future__ import annotations

import reprlib
from enum import IntEnum
from typing import Any, ClassVar, Self

COUNTS = "count this as a release"
"""Suffix of an abort's reason when somebody may know the sum all the same: members then charge it as a release."""


class ExitCode(IntEnum):
    """Exit codes of commands, for scripts; `meaning` is the description in the help and the guide."""

    meaning: str

    DONE = 0, "done, or the gate passes"
    GATE_FAILED = 1, "the gate fails"
    BAD_INPUT = 2, "bad input or usage"
    TRANSCRIPT_INVALID = 3, "a transcript does not verify"
    INCONCLUSIVE = 4, "inconclusive: the gate of an audit, or a transcript that nobody vouched for"
    ABORTED = 5, "session aborted for good"
    INTERNAL_ERROR = 70, "internal error"
    NOT_NOW = 75, "not now: run the same command again"
    INTERRUPTED = 130, "interrupted"

    def __new__(cls, code: int, meaning: str) -> Self:
        """Make the enum member of the number `code`, with its `meaning`."""
        self = int.__new__(cls, code)
        self._value_, self.meaning = code, meaning
        return self

    @classmethod
    def explain(cls) -> str:
        """Return a sentence that lists all exit codes with their meanings."""
        return f"Exit codes: {'; '.join(f'{code.value} {code.meaning}' for code in cls)}."


class SecaggError(Exception):
    """Base class of all exceptions that this package raises on purpose."""

    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL_ERROR


class BadInput(SecaggError):
    """The user's input cannot be used: a file, a column, a value, an option, a full disk."""

    exit_code = ExitCode.BAD_INPUT

    def __init__(self, problem: str, *, remedy: str = "") -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem}; {remedy}" if remedy else problem)


class BadRecord(BadInput):
    """One record of a data file cannot be used. `row` counts from 1, as editors do; 0 stands for the whole file."""

    def __init__(self, source: str, row: int, problem: str, *, remedy: str = "") -> None:
        self.source = source
        self.row = row
        self.fault = problem
        place = f"{source}, row {row}" if row else source
        super().__init__(f"{place}: {problem}", remedy=remedy)


def require_type(name: str, value: Any, taken: type | tuple[type, ...], wanted: str) -> None:
    """Raise BadInput, naming the argument, for a value of another type than those `taken`, and for True and False.

    `wanted` says in words what to give.
    """
    if isinstance(value, bool) or not isinstance(value, taken):
        raise BadInput(f"{name} cannot be {reprlib.repr(value)}", remedy=f"give {wanted}")


def describe_error(error: Exception) -> str:
    """Return the message of another library's error on one line; for an OSError, the operating system's words alone."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__


class PlanRefused(BadInput):
    """The plan breaks this client's policy; `violations` has a sentence for each broken limit, `listed` joins them."""

    def __init__(self, violations: tuple[str, ...]) -> None:
        self.violations = violations
        self.listed = "; ".join(f"({number}) {line}" for number, line in enumerate(violations, start=1))
        super().__init__(f"the plan is refused: {self.listed}", remedy="of your records nothing was sent")


class CapacityExceeded(BadInput):
    """An exact integer result would not fit: a sum could wrap around in its ring, or a float64 product could round."""

    def __init__(self, what: str, needed: int, available: int, *, remedy: str = "") -> None:
        self.needed = needed
        self.available = available
        super().__init__(f"{what}: needs {needed}, has room for {available}", remedy=remedy)


class MalformedMessage(SecaggError):
    """Received bytes are not the canonical encoding of an allowed message."""

    exit_code = ExitCode.ABORTED

    def __init__(self, message: str, problem: str) -> None:
        self.message = message
        self.problem = problem
        super().__init__(f"malformed {message}: {problem}")


class OtherVersion(MalformedMessage):
    """A message whose format has another version than the one that this program reads (`known`)."""

    def __init__(self, message: str, version: int, known: int) -> None:
        self.version = version
        self.known = known
        super().__init__(message, f"it is of version {version}, this program reads version {known}")


class ProtocolViolation(SecaggError):
    """A party broke the protocol; `culprit` is its index in the roster.

    Whoever has the roster fills in the `name` that it has there (`Roster.name_culprit`), before anybody reads or is
    told of it.
    """

    exit_code = ExitCode.ABORTED

    def __init__(self, culprit: int, problem: str) -> None:
        self.culprit = culprit
        self.problem = problem
        self.name = ""
        super().__init__(culprit, problem)

    def __str__(self) -> str:
        return f"{self.name or f'party {self.culprit}'}: {self.problem}"


class ImpossibleSum(SecaggError):
    """An opened sum is impossible for honest vectors: some client, or a party that opened the sum, lied."""

    exit_code = ExitCode.ABORTED


class SessionAborted(SecaggError):
    """The session ended without a published sum.

    Somebody may know the sum all the same once its protection was opened: `reason` then ends with `COUNTS`. `remedy`
    says what to do next; it is this machine's own advice, and in no transcript.
    """

    exit_code = ExitCode.ABORTED

    def __init__(self, reason: str, *, remedy: str = "") -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"session aborted: {reason}; {remedy}" if remedy else f"session aborted: {reason}")


class LeftBehind(SessionAborted):
    """The session goes on without this party, which was away for too long or has lost data that it needs.

    Where rounds follow it may return in one of them.
    """


class NotConfirmed(SecaggError):
    """A round has an outcome that too few parties acknowledged in time: nobody may call it a result yet.

    `missing` are the names of the parties that may still acknowledge it: started again, the server waits for them.
    There are none if too many have left the session for good.
    """

    exit_code = ExitCode.ABORTED

    def __init__(self, missing: tuple[str, ...], heard: int, enough: int, number: int) -> None:
        self.missing = missing
        who = f"{', '.join(missing)} did not acknowledge the outcome" if missing else "too many have left for good"
        remedy = "; start the server again while they fetch the outcome" if missing else ""
        counted = f"{heard} of the {enough} acknowledgements of round {number}"
        super().__init__(f"not confirmed: {counted}; {who}; ledgers stay charged{remedy}")


class NotNow(SecaggError):
    """The work cannot go on at present; nothing is lost, and running the same command again may continue it."""

    exit_code = ExitCode.NOT_NOW

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}; run the same command again to go on")


class Unconfirmed(NotNow):
    """A party holds an outcome that too few have acknowledged, as far as it knows: it is not a result yet.

    `transcript` is the file of its round in each party's state folder.
    """

    def __init__(self, cause: str, transcript: str) -> None:
        remedy = f"other parties' {transcript} can confirm it, too (secagg confirm)"
        super().__init__(f"unconfirmed, no result yet: {cause}; {remedy}")


class OtherPlan(NotNow):
    """A request names a plan (SHA-256 `asked`) that is not the one which its recipient runs (SHA-256 `runs`)."""

    def __init__(self, runs: bytes, asked: bytes) -> None:
        super().__init__(f"the server runs another plan: its SHA-256 is {runs.hex()}, you asked about {asked.hex()}")


class ServerAway(NotNow):
    """The server (or another `peer`) has not given a valid answer for `seconds`.

    `said` is what came instead: nobody signed it, so it ends nothing.
    """

    def __init__(self, seconds: float, peer: str = "the server", said: str = "") -> None:
        self.said = said
        for_long = f"for {seconds:.0f} s"
        super().__init__(
            f"{peer} has given no valid answer {for_long} ({said})" if said else f"{peer} has been away {for_long}"
        )


class TranscriptInvalid(SecaggError):
    """The transcript in the file `source` does not verify; `record` is the index of the first record at fault."""

    exit_code = ExitCode.TRANSCRIPT_INVALID

    def __init__(self, record: int, problem: str, *, source: str = "") -> None:
        self.record = record
        self.problem = problem
        super().__init__(f"{source}: transcript record {record}: {problem}".removeprefix(": "))
