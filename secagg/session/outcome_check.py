"""Check the server's Outcome, and the files that it names, against a recomputation from the opened sum."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from secagg.agreement.plan import Result
from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import sum_digest
from secagg.errors import BadInput, ImpossibleSum, ProtocolViolation, TranscriptInvalid
from secagg.heads import Artifact
from secagg.protection.messages import Attachment, Outcome
from secagg.session.attachments import SUM_FILE, read_kept, read_opening
from secagg.session.outcome import HEAD_FILE, NO_ARTIFACT, SumResult, conclude, head_file, metadata_of, unpack_sum
from secagg.session.round_setup import RoundSetup
from secagg.session.rounds import check_outcome_of_draw, opening_after
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


MOST_LONGER = 1 << 16


@dataclass(frozen=True)
class OutcomeContents:
    """An outcome, with the bytes in place of what names them; empty where it names none.

    `head` is a file, `broadcast` opens the next round, `release` is the opened sum in ring width.
    """

    members: tuple[int, ...]
    aggregate_sha256: bytes
    head_sha256: bytes
    head: bytes = field(default=b"", repr=False)
    broadcast: bytes = field(default=b"", repr=False)
    release: bytes = field(default=b"", repr=False)

    @cached_property
    def message(self) -> Outcome:
        """The Outcome message that the server signs."""
        named = ((Attachment.of(each),) if each else () for each in (self.head, self.broadcast, self.release))
        return Outcome(self.members, self.aggregate_sha256, self.head_sha256, *named)


@dataclass(frozen=True)
class Files:
    """Files that an outcome names, if they are in the session's `folder` or follow from the sum on this machine.

    What follows need not have the bits of the server's, but where the method's arithmetic is exact: it stands for what
    the outcome names only where it has.
    """

    setup: RoundSetup
    outcome: Outcome
    folder: Path

    @property
    def release(self) -> bytes:
        """The opened sum; empty where it is not there."""
        return self._read_named(self.folder / SUM_FILE, self.outcome.release)

    @cached_property
    def own(self) -> SumResult | None:
        """Result that follows from the sum; None without one. Raises what `recompute` raises."""
        release = self.release
        return recompute(self.setup, self.outcome, release) if release else None

    @property
    def head(self) -> bytes:
        """The head's file; empty where it is not there."""
        kept = self._read_named(self.folder / HEAD_FILE, self.outcome.head)
        if kept or not self.outcome.head or self.own is None:
            return kept
        made = head_file(self.setup, self.own)
        return made if self.outcome.head[0].names(made) else b""

    @property
    def broadcast(self) -> bytes:
        """Broadcast of the next round; empty where it is not there."""
        kept = read_opening(self.folder.parent, opening_after(self.setup, self.outcome))
        if kept or self.outcome.opens is None or self.own is None:
            return kept
        return self.own.broadcast if self.outcome.opens == self.own.opens else b""

    @property
    def contents(self) -> OutcomeContents | None:
        """All of it; None where something lacks."""
        parts = self.head, self.broadcast, self.release
        outcome = self.outcome
        if any(bool(part) < bool(named) for part, named in zip(parts, outcome.attached, strict=True)):
            return None
        return OutcomeContents(outcome.members, outcome.aggregate_sha256, outcome.head_sha256, *parts)

    def _read_named(self, path: Path, named: tuple[Attachment, ...]) -> bytes:
        """Read a named file. Raises BadInput for a file that is another one."""
        if not named or not path.exists():
            return b""
        content = read_kept(path, named[0])
        if content is None:
            raise BadInput(f"{path} is not what the outcome names", remedy="restore it")
        return content


def require_shape(setup: RoundSetup, outcome: Outcome) -> None:
    """Raise ProtocolViolation unless the outcome names what the plan says, and the sum in the plan's length."""
    if setup.is_draw:
        check_outcome_of_draw(outcome)
        return
    if bool(outcome.broadcast) != (not setup.is_last) or bool(outcome.release) != setup.shows_sum:
        raise ProtocolViolation(SERVER_INDEX, "the plan says otherwise about how many rounds there are")
    if outcome.release and outcome.release[0].length != setup.context.packed_bytes:
        raise ProtocolViolation(SERVER_INDEX, "the released sum has another length than the plan's")
    if outcome.head and setup.plan.result is not Result.MEMBERS:
        raise ProtocolViolation(SERVER_INDEX, "the plan says otherwise about who gets the head")


def require_lengths(setup: RoundSetup, outcome: Outcome, own: SumResult) -> None:
    """Raise ProtocolViolation where what an outcome names is longer than what follows from the sum, before it is read.

    What is as long is compared once it is there (`check_outcome`); numbers of other machines may be written longer.
    """
    for named, made in ((outcome.head, head_file(setup, own)), (outcome.broadcast, own.broadcast)):
        if named and named[0].length > len(made) + MOST_LONGER:
            problem = f"names {named[0].length} bytes where {len(made)} follow from the released sum"
            raise ProtocolViolation(SERVER_INDEX, problem)


def check_outcome(setup: RoundSetup, told: OutcomeContents, own: SumResult | None = None) -> None:
    """Raise ProtocolViolation unless the outcome shows what it must, and what it shows agrees with itself.

    Where the plan has several rounds, the head and the next round are recomputed from the released sum, if the round
    is known; `own` is what that gives, where it is at hand.
    """
    require_shape(setup, told.message)
    if setup.is_draw:
        return
    if own is None and told.release:
        own = recompute(setup, told.message, told.release)
    if setup.known_round is None:  # what the sum leads to stays open
        if told.head:
            _told_artifact(setup, told)
        return
    if own is not None and own.artifact is None:
        if told.head or told.head_sha256 != NO_ARTIFACT:
            raise ProtocolViolation(SERVER_INDEX, "announces a head after a sum that gives none")
    else:
        artifact = _told_artifact(setup, told)
        if own is not None and artifact is not None and not artifact.is_close_to(own.require_artifact()):
            raise ProtocolViolation(SERVER_INDEX, "the head does not follow from the released sum")
    if own is not None and own.following is not None and own.broadcast != told.broadcast:
        own.following.require_equal(setup.round.decode_broadcast(told.broadcast, setup.plan.grid))


def require_possible(own: SumResult | None) -> None:
    """Raise ImpossibleSum for an opened sum beyond the bounds of honest vectors (`broken_bounds`)."""
    if own is not None and own.impossible:
        raise ImpossibleSum(f"the opened sum is refused: {'; '.join(own.impossible)}")


def follows(setup: RoundSetup, outcome: Outcome, folder: Path) -> tuple[Caveat, ...]:
    """Check an outcome against what lies in its session's folder; return what that leaves open.

    Raises ProtocolViolation or MalformedMessage for an outcome that does not agree, BadInput for files that are others.
    """
    require_shape(setup, outcome)
    files = Files(setup, outcome, folder)
    told = files.contents
    if told is None:
        return (SUM_GONE,)
    check_outcome(setup, told, files.own)
    return (IMPOSSIBLE_SUM,) if files.own is not None and files.own.impossible else ()


def recompute(setup: RoundSetup, outcome: Outcome, release: bytes) -> SumResult:
    """Compute the result of the released sum. Raises ProtocolViolation unless it is the one that the outcome names."""
    vector = unpack_sum(setup, release)
    if sum_digest(vector) != outcome.aggregate_sha256:
        raise ProtocolViolation(SERVER_INDEX, "the released sum is not the one that the outcome names")
    try:
        return conclude(setup, outcome.members, vector)
    except BadInput as error:
        raise ProtocolViolation(SERVER_INDEX, f"the released sum leads nowhere: {error.problem}") from None


def _told_artifact(setup: RoundSetup, told: OutcomeContents) -> Artifact | None:
    """The artifact in the outcome; None where the plan gives members none. Raises ProtocolViolation for another."""
    if bool(told.head) != (setup.plan.result is Result.MEMBERS):
        raise ProtocolViolation(SERVER_INDEX, "the plan says otherwise about who gets the head")
    if not told.head:
        return None
    try:
        artifact, metadata = setup.method.read_artifact(told.head)
        artifact.require_fit(len(setup.plan.classes), setup.plan.dimension)
    except BadInput as error:
        raise ProtocolViolation(SERVER_INDEX, f"the head is not the plan's: {error.problem}") from None
    if bytes.fromhex(artifact.digest) != told.head_sha256:
        raise ProtocolViolation(SERVER_INDEX, "the head is not the one that the outcome names")
    if metadata != {**metadata_of(setup.plan), **artifact.texts}:
        raise ProtocolViolation(SERVER_INDEX, "the head says that it belongs to something else than the plan")
    return artifact
