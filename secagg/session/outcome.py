"""The outcome of an opened sum (blocks, head, digests, files), and the check of the server's outcome."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from methods.round import OpenedTotal, Round
from secagg.agreement.plan import Plan, ResultAccess
from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.labels import digest
from secagg.encoding import Integers, Kind, sum_digest
from secagg.encoding.moments import sanity_failures
from secagg.errors import (
    COUNTS,
    BadInput,
    ImpossibleSum,
    MalformedMessage,
    ProtocolViolation,
    SessionAborted,
    TranscriptInvalid,
)
from secagg.heads import Artifact, to_safetensors
from secagg.plan_facts.records import FeatureRecipe
from secagg.privacy import Mechanism
from secagg.protection import SumToOpen
from secagg.protection.interface import SumToRelease
from secagg.protection.messages import Announcement, Attachment, Outcome
from secagg.session.attachments import SUM_FILE, keep_opening, read_kept, read_opening
from secagg.session.release import open_release, require_lengths_of_release, write_release
from secagg.session.round_setup import RoundSetup
from secagg.session.rounds import check_outcome_of_draw, opening_after
from secagg.session.staging import add_up, read_vector
from secagg.system.files import sync_folder, write_synced
from secagg.transcript import FrameBody, Record

HEAD_FILE = "head.safetensors"
UNCONFIRMED_HEAD_FILE = "unconfirmed-head.safetensors"
"""A client's or helper's copy of the head until enough parties have acknowledged the outcome that names it."""
RESULT_FILE = "result.json"
"""The server's report of a plan's result as JSON, in the folder of the plan's last session."""
PERSONAL_FILE = "personal-{}.safetensors"
"""A model that is only for the member that trained it; {} stands for the model's name."""
TORCH_FILE = "head.pt"
AGGREGATE_FILE = "aggregate.npz"
NO_ARTIFACT = bytes(32)
"""Stands for the digest of an artifact if there is none."""


@dataclass(frozen=True)
class SumResult:
    """An opened sum, and the trained `artifact` (such as a head) built from it; None if that takes a later sum.

    `following` is the next round, `doubts` what no honest sum shows, and of these `impossible` what breaks the bounds
    of `broken_bounds`: whoever is shown the sum refuses that. `release` are the files from which others open the sum,
    empty where they get the sum alone.
    """

    members: tuple[int, ...]
    vector: Integers = field(repr=False)
    blocks: Mapping[str, Integers] = field(repr=False)
    artifact: Artifact | None
    doubts: tuple[str, ...]
    following: Round | None = field(default=None, repr=False)
    impossible: tuple[str, ...] = ()
    release: tuple[bytes, ...] = field(default=(), repr=False)

    @cached_property
    def aggregate_sha256(self) -> bytes:
        """SHA-256 of the opened sum, its blocks in the layout's order as little-endian int64."""
        return sum_digest(self.vector)

    @cached_property
    def broadcast(self) -> bytes:
        """The broadcast that begins the next round; empty after the last round."""
        return self.following.broadcast() if self.following is not None else b""

    @property
    def opens(self) -> Attachment | None:
        """The Attachment (digest and length) that names the next round's broadcast; None after the last round."""
        return Attachment.of(self.broadcast) if self.broadcast else None

    @property
    def artifact_sha256(self) -> bytes:
        """The artifact's digest (`Artifact.digest`), 32 bytes; `NO_ARTIFACT` if there is none."""
        return bytes.fromhex(self.artifact.digest) if self.artifact is not None else NO_ARTIFACT

    def require_artifact(self) -> Artifact:
        """Return the artifact. Raises BadInput if the sum gives none; the last sum of a plan always gives one."""
        if self.artifact is None:
            raise BadInput("this sum gives no head", remedy="open the sums that follow it")
        return self.artifact


def conclude(setup: RoundSetup, members: tuple[int, ...], vector: Integers, seed: bytes | None = None) -> SumResult:
    """Compute the artifact, the next round, or both from an opened sum. Raises BadInput if neither follows.

    A sum of a single class leads to neither, for example.
    There is no step where the session's round is not known. `seed` is the step's public randomness, by default what
    plan and sum decide.
    """
    blocks = setup.sum.layout.split(vector)
    impossible = broken_bounds(setup, len(members), blocks)
    if setup.known_round is None:
        return SumResult(members, vector, blocks, None, impossible, impossible=impossible)
    step = setup.round.finalize(_opened_total(setup, members, vector, seed))
    doubts, grid = list(impossible), setup.plan.grid
    if setup.sum.calibration is None:
        doubts += sanity_failures(setup.sum.layout.blocks, blocks, grid)
        doubts += setup.round.sanity_failures(blocks, grid)
    return SumResult(members, vector, blocks, step.artifact, tuple(dict.fromkeys(doubts)), step.next_round, impossible)


def personal_models(
    setup: RoundSetup, members: tuple[int, ...], vector: Integers, state: bytes
) -> Mapping[str, Artifact]:
    """Return a member's personal models by name, from the last sum and its private `state`. Raises BadInput."""
    return setup.round.personal(state, _opened_total(setup, members, vector))


def _opened_total(
    setup: RoundSetup, members: tuple[int, ...], vector: Integers, seed: bytes | None = None
) -> OpenedTotal:
    noise = setup.sum.opened_noise(len(members))
    seed = seed or digest("public randomness", setup.context.round_digest, sum_digest(vector))
    return OpenedTotal(setup.sum.layout.split(vector), setup.plan.grid, noise, len(members), seed, members)


def open_sum(
    setup: RoundSetup,
    ready: SumToOpen,
    folder: Path,
    uploads: Mapping[int, Announcement],
    frames: Mapping[int, bytes],
) -> SumResult:
    """Add up the vectors in the session's folder, open their sum, and build the artifact.

    In a round that shows the sum, build the files from which others open it too. `frames` are those that announced the
    `uploads`. Raises BadInput when a vector on the disk is not the one that its sender signed, SessionAborted when the
    sum gives no head, or nobody can be shown it.
    """

    def read(member: int) -> bytes:
        return read_vector(folder, setup.context.names[member], member, uploads[member].digest)

    total = add_up(folder, {member: uploads[member] for member in ready.vectors}, setup.context)
    try:
        result = conclude(setup, ready.members, ready.open(setup.context, total))
    except BadInput as error:
        raise SessionAborted(f"the sum was opened and leads nowhere: {error}; {COUNTS}") from None
    if not (setup.shows_sum and isinstance(ready, SumToRelease)):
        return result
    try:
        return replace(result, release=ready.release(setup.context, read, frames))
    except SessionAborted as error:
        raise SessionAborted(f"{error.reason}; {COUNTS}") from None


def write_result(setup: RoundSetup, result: SumResult, folder: Path) -> Outcome:
    """Write an opened sum, its head, and the next round's broadcast, if any; return the Outcome that names them.

    After the last round, or one whose sum is nobody else's, the sum's blocks are there by their names too.
    """
    packed, opening = pack_sum(setup, result.vector), opening_after(setup, result)
    write_synced(folder / SUM_FILE, packed)
    release = write_release(folder, result.release or (packed,)) if setup.shows_sum else ()
    if opening is not None:
        keep_opening(folder.parent, opening, result.broadcast)
    if setup.is_last or not setup.shows_sum:
        blocks = io.BytesIO()
        np.savez(blocks, allow_pickle=False, **dict(result.blocks))
        write_synced(folder / AGGREGATE_FILE, blocks.getvalue())
    head = head_file(setup, result)
    if head:
        write_synced(folder / HEAD_FILE, head)
    return Outcome(
        result.members,
        result.aggregate_sha256,
        result.artifact_sha256,
        (Attachment.of(head),) if head and setup.plan.result is ResultAccess.MEMBERS else (),
        (result.opens,) if result.opens is not None else (),
        release,
    )


def head_path(folder: Path) -> Path:
    """Return the path of the head in a session's folder; before the outcome is confirmed it has another name."""
    unconfirmed = folder / UNCONFIRMED_HEAD_FILE
    return unconfirmed if unconfirmed.exists() else folder / HEAD_FILE


def release_head(folder: Path) -> None:
    """Give the head in a session's folder its name, now that the outcome is confirmed. Raises BadInput (disk)."""
    file = folder / UNCONFIRMED_HEAD_FILE
    try:
        if file.exists():
            file.replace(folder / HEAD_FILE)
            sync_folder(folder)
    except OSError as error:
        raise BadInput(f"cannot rename {file} ({error.strerror})", remedy="free the disk and start again") from None


def pack_sum(setup: RoundSetup, vector: Integers) -> bytes:
    """Encode an opened sum as bytes in the ring's width. Raises CapacityExceeded if an entry does not fit the ring."""
    return setup.context.ring.pack(setup.context.ring.encode(vector))


def unpack_sum(setup: RoundSetup, packed: bytes) -> Integers:
    """Decode the bytes of `pack_sum`. Raises MalformedMessage if the plan's sum has another length."""
    return setup.context.ring.decode(setup.context.ring.unpack(packed, setup.context.length))


def head_file(setup: RoundSetup, result: SumResult) -> bytes:
    """Return the bytes of a safetensors file with the head and all that `predict` needs; empty without a head."""
    return to_safetensors(result.artifact, metadata_of(setup.plan)) if result.artifact is not None else b""


def metadata_of(plan: Plan) -> dict[str, str]:
    """Return the metadata of a head's file: the plan's digest, the method, and the recipe of the features."""
    return FeatureRecipe.of_plan(plan).to_metadata() | {"plan": plan.digest.hex(), "method": plan.method}


def write_personal(setup: RoundSetup, outcome: Outcome, state: bytes, folder: Path) -> dict[str, Path]:
    """Write a member's personal models to `folder`; return their paths by name.

    They follow from the last sum and the member's private `state`.
    They are trained on its records and for nobody else. `outcome` is the last one's, and checked; what it names lies in
    the session's `folder`. Raises BadInput for a state that is not that round's.
    """
    if not outcome.release:
        return {}
    paths = {}
    total = unpack_sum(setup, (folder / SUM_FILE).read_bytes())
    for name, model in personal_models(setup, outcome.members, total, state).items():
        paths[name] = folder / PERSONAL_FILE.format(name)
        write_synced(paths[name], to_safetensors(model, metadata_of(setup.plan)))
    return paths


FALSE_ALARM_BITS = 40
"""Honest sums break a bound with probability at most 2⁻⁴⁰, over all blocks and rounds of a plan."""
SLACK = 1e-9
"""Relative tolerance for the float64 rounding of a length."""


def broken_bounds(setup: RoundSetup, clients: int, blocks: Mapping[str, Integers]) -> tuple[str, ...]:
    """Describe each bound on the sum of honest clients that the opened `blocks` exceed; () if they exceed none.

    One unit (a client, or each of its at most max_records records) adds at most `bound` to an entry of a block, and to
    an update at most the L2 length l2 that its sensitivity states. So with K units |X_j| ≤ K·bound, 0 ≤ X_j for counts,
    and ‖X‖ ≤ K·l2 by the triangle inequality, times the multiplier and plus the noise of `noise_tails`.
    All of it follows from the plan and the opened sum, so that each party which is shown the sum refuses the same ones.
    A sum beyond was made by a client that sent more than it may, or by whoever opened it: nobody can tell which.
    """
    failures = []
    lengths, opened = setup.sum.spec.unit_lengths, setup.sum.opened_noise(clients) or {}
    noise = setup.sum.calibration
    rounded = noise.parties if noise is not None and noise.mechanism is Mechanism.GAUSSIAN else 0
    for block in setup.sum.layout.blocks:
        values, units = blocks[block.name], block.multiplier * clients * setup.sum.capacity.records
        sigma = opened[block.name].sigma if block.name in opened else 0.0
        entry, length = noise_tails(sigma, block.size, 2 * len(setup.sum.layout.blocks) * setup.rounds, rounded)
        most = math.floor(units * block.bound + entry)
        least = -math.floor(entry) if block.kind in (Kind.CENSUS, Kind.COUNTS) else -most
        if int(values.max()) > most or int(values.min()) < least:
            failures.append(
                f"an entry of {block.name} is outside {least} to {most}, which {clients} honest clients cannot reach"
            )
        longest = (units * lengths.get(block.name, math.inf) + length) * (1 + SLACK)
        if block.kind is Kind.UPDATE and (found := float(np.linalg.norm(values.astype(np.float64)))) > longest:
            failures.append(
                f"{block.name} has length {found:.6g}, above {longest:.6g}, which {clients} honest clients cannot reach"
            )
    return tuple(failures)


def noise_tails(sigma: float, size: int, tests: int, rounded: int) -> tuple[float, float]:
    """Return bounds on max |E_j| and ‖E‖₂ of noise E on `size` entries, each broken with probability ≤ 2⁻⁴⁰/`tests`.

    Entries are independent with E e^(λE_j) ≤ e^(λ²σ²/2): so is a discrete Gaussian (Canonne, Kamath & Steinke 2020,
    arXiv 2004.00010), hence the sum of shares with total `sigma`. With t = ln(tests·2⁴⁰):
    P(max |E_j| > σ√(2(t + ln 2d))) ≤ e^(−t) (Chernoff, union over d entries), and P(‖E‖² > σ²(d + 2√(dt) + 2t)) ≤
    e^(−t) (Laurent & Massart 2000, lemma 1, for the chi-square; Hsu, Kakade & Zhang 2012, theorem 2.1, for every
    sub-Gaussian E). Rounding a Gaussian moves an entry by at most ½ for each of the `rounded` parties that add one.
    """
    t = math.log(tests) + FALSE_ALARM_BITS * math.log(2)
    entry = sigma * math.sqrt(2 * (t + math.log(2 * size))) + rounded / 2
    return entry, sigma * math.sqrt(size + 2 * math.sqrt(size * t) + 2 * t) + rounded / 2 * math.sqrt(size)


@dataclass(frozen=True)
class Caveat:
    """A point that a transcript leaves unproven (`words`), the `condition` under which the rest holds, and a remedy."""

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
UNCONFIRMED = Caveat(
    "too few have acknowledged its outcome, as far as it shows",
    "if the others were given the same outcome",
    "fetch the confirmation, or gather it from other parties' transcripts (secagg confirm)",
)
IMPOSSIBLE_SUM = Caveat(
    "its sum is beyond what honest clients' vectors and noise add up to",
    "whoever sent a vector beyond the plan's bounds",
    "start a new plan: its members refuse this sum",
)


def require(holds: bool, record: Record, problem: str) -> None:
    """Raise TranscriptInvalid, naming the transcript's record and the problem, unless `holds` is true."""
    if not holds:
        raise TranscriptInvalid(record.index, problem)


MOST_LONGER = 1 << 16


@dataclass(frozen=True)
class OutcomeContents:
    """A round's outcome with the bytes of its files; empty for a file that the Outcome message does not name.

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
    """The files that an outcome names, read from the session's `folder` or computed again from the sum.

    Unless the method's arithmetic is exact, a file computed here may differ from the server's in some bits; it counts
    only if it does not.
    """

    setup: RoundSetup
    outcome: Outcome
    folder: Path

    @property
    def release(self) -> bytes:
        """Packed bytes of the opened sum; empty if its file is absent."""
        path, outcome = self.folder / SUM_FILE, self.outcome
        if len(outcome.release) <= 1 or not path.exists():
            return self._read_named(path, outcome.release)
        packed = path.read_bytes()
        with contextlib.suppress(MalformedMessage):
            if sum_digest(unpack_sum(self.setup, packed)) == outcome.aggregate_sha256:
                return packed
        raise BadInput(f"{path} is not what the outcome names", remedy="restore it")

    @cached_property
    def own(self) -> SumResult | None:
        """The result that this party computes from the opened sum; None without the sum. Raises as `recompute` does."""
        release = self.release
        return recompute(self.setup, self.outcome, release) if release else None

    @property
    def head(self) -> bytes:
        """Bytes of the head's file, read or computed again; empty if neither is possible."""
        kept = self._read_named(head_path(self.folder), self.outcome.head)
        if kept or not self.outcome.head or self.own is None:
            return kept
        made = head_file(self.setup, self.own)
        return made if self.outcome.head[0].names(made) else b""

    @property
    def broadcast(self) -> bytes:
        """The broadcast that begins the next round, read or computed again; empty if neither is possible."""
        kept = read_opening(self.folder.parent, opening_after(self.setup, self.outcome))
        if kept or self.outcome.opens is None or self.own is None:
            return kept
        return self.own.broadcast if self.outcome.opens == self.own.opens else b""

    @property
    def contents(self) -> OutcomeContents | None:
        """The outcome with the bytes of all files that it names; None if one is missing."""
        parts = self.head, self.broadcast, self.release
        outcome = self.outcome
        if any(bool(part) < bool(named) for part, named in zip(parts, outcome.attached, strict=True)):
            return None
        return OutcomeContents(outcome.members, outcome.aggregate_sha256, outcome.head_sha256, *parts)

    def _read_named(self, path: Path, named: tuple[Attachment, ...]) -> bytes:
        if not named or not path.exists():
            return b""
        content = read_kept(path, named[0])
        if content is None:
            raise BadInput(f"{path} is not what the outcome names", remedy="restore it")
        return content


def require_shape(setup: RoundSetup, outcome: Outcome) -> None:
    """Raise ProtocolViolation unless an outcome names clients of the round and the plan's files, of a sum's lengths."""
    if not set(outcome.members) <= set(setup.context.clients):
        raise ProtocolViolation(SERVER_INDEX, "names clients in the sum that are not in the round")
    _require_files(setup, outcome)
    if outcome.release:
        require_lengths_of_release(setup, outcome)


def _require_files(setup: RoundSetup, outcome: Outcome) -> None:
    if setup.is_draw:
        check_outcome_of_draw(outcome)
        return
    if bool(outcome.broadcast) != (not setup.is_last) or bool(outcome.release) != setup.shows_sum:
        raise ProtocolViolation(SERVER_INDEX, "the plan says otherwise about how many rounds there are")
    if outcome.head and setup.plan.result is not ResultAccess.MEMBERS:
        raise ProtocolViolation(SERVER_INDEX, "the plan says otherwise about who gets the head")


def require_lengths(setup: RoundSetup, outcome: Outcome, own: SumResult) -> None:
    """Raise ProtocolViolation if a file that an outcome names is much longer than the one computed from the sum.

    To be called before such a file is downloaded.
    What is as long is compared once it is there (`check_outcome`); numbers of other machines may be written longer.
    """
    for named, made in ((outcome.head, head_file(setup, own)), (outcome.broadcast, own.broadcast)):
        if named and named[0].length > len(made) + MOST_LONGER:
            problem = f"names {named[0].length} bytes where {len(made)} follow from the released sum"
            raise ProtocolViolation(SERVER_INDEX, problem)


def check_outcome(setup: RoundSetup, told: OutcomeContents, own: SumResult | None = None) -> None:
    """Raise ProtocolViolation unless the server's outcome (`told`) is complete, and its sum, head and files agree.

    Where the plan has several rounds, the head and the next round are recomputed from the released sum, if the round
    is known; `own` is what that gives, where it is at hand.
    """
    _require_files(setup, told.message)
    if setup.is_draw:
        return
    if told.release and len(told.release) != setup.context.packed_bytes:
        raise ProtocolViolation(SERVER_INDEX, "the released sum has another length than the plan's")
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
        if own is not None and not _is_own(setup, told, artifact, own):
            raise ProtocolViolation(SERVER_INDEX, "the head does not follow from the released sum")
    if own is not None and own.following is not None and own.broadcast != told.broadcast:
        own.following.require_equal(setup.round.decode_broadcast(told.broadcast, setup.plan.grid))


def require_possible(own: SumResult | None) -> None:
    """Raise ImpossibleSum if honest clients' vectors cannot add up to this opened sum (see `broken_bounds`)."""
    if own is not None and own.impossible:
        raise ImpossibleSum(f"the opened sum is refused: {'; '.join(own.impossible)}")


def follows(
    setup: RoundSetup, outcome: Outcome, folder: Path, bodies: Iterable[FrameBody] = (), own: SumResult | None = None
) -> tuple[Caveat, ...]:
    """Check an outcome against the files in its session's folder; return a caveat for each point left unproven.

    `bodies` are those of the server's frames before, `own` is what the uploads lead to, for a verifier that has them.
    Raises ProtocolViolation or MalformedMessage for an outcome that does not agree, BadInput for files that are others.
    """
    require_shape(setup, outcome)
    files = Files(setup, outcome, folder)
    told = files.contents
    if told is not None and told.release and open_release(setup, outcome, folder, bodies) is None:
        told = None
    is_exact = setup.known_round is not None and setup.round.is_exact  # other arithmetic may give other bits
    if told is not None:
        own = own or files.own
        check_outcome(setup, told, own)
    elif own is not None and is_exact and own.artifact_sha256 != outcome.head_sha256:
        raise ProtocolViolation(SERVER_INDEX, "the head does not follow from the uploads")
    impossible = (IMPOSSIBLE_SUM,) if own is not None and own.impossible else ()
    return impossible if told is not None else (SUM_GONE, *impossible)


def recompute(setup: RoundSetup, outcome: Outcome, release: bytes) -> SumResult:
    """Compute head and next round from an opened sum's bytes. Raises ProtocolViolation if the outcome names others."""
    vector = unpack_sum(setup, release)
    if sum_digest(vector) != outcome.aggregate_sha256:
        raise ProtocolViolation(SERVER_INDEX, "the released sum is not the one that the outcome names")
    try:
        return conclude(setup, outcome.members, vector)
    except BadInput as error:
        raise ProtocolViolation(SERVER_INDEX, f"the released sum leads nowhere: {error.problem}") from None


def _is_own(setup: RoundSetup, told: OutcomeContents, artifact: Artifact | None, own: SumResult) -> bool:
    """Return whether the server's artifact is this party's own; but for rounding where the round is not exact."""
    if setup.round.is_exact:
        return told.head_sha256 == own.artifact_sha256
    return artifact is None or artifact.is_close_to(own.require_artifact())


def _told_artifact(setup: RoundSetup, told: OutcomeContents) -> Artifact | None:
    """Read the artifact in an outcome; None if the plan gives members none. Raises ProtocolViolation if it is wrong."""
    if bool(told.head) != (setup.plan.result is ResultAccess.MEMBERS):
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
