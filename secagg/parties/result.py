"""What comes of the opened sum: the blocks, the head, their digests, and the files that hold them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from methods.fedcgs import PERSONALISE
from methods.method import Round
from secagg.encoding import Integers, sum_digest
from secagg.errors import COUNTS, BadInput, ProtocolViolation, SessionAborted
from secagg.head import LinearHead, head_digest, parse_safetensors, to_safetensors
from secagg.parties.memory import write_synced
from secagg.parties.pipeline import Pipeline
from secagg.parties.setup import SessionSetup
from secagg.parties.staging import add_up
from secagg.plan import Plan
from secagg.protection import SumToOpen
from secagg.protection.messages import Announcement, Outcome, RoundOpening
from secagg.roster import SERVER_INDEX

HEAD_FILE = "head.safetensors"
TORCH_FILE = "head.pt"
AGGREGATE_FILE = "aggregate.npz"
NO_HEAD = bytes(32)
"""Stands for the digest of a head where there is none."""


@dataclass(frozen=True)
class SumResult:
    """The opened sum and the head built from it, None after a census.

    `following` is the next round, `doubts` what no honest sum shows.
    """

    members: tuple[int, ...]
    vector: Integers = field(repr=False)
    blocks: Mapping[str, NDArray[np.int64]] = field(repr=False)
    head: LinearHead | None
    doubts: tuple[str, ...]
    following: Round | None = field(default=None, repr=False)

    @property
    def release(self) -> bytes:
        """The opened blocks as little-endian int64 in layout order."""
        return self.vector.astype("<i8").tobytes()

    @property
    def aggregate_sha256(self) -> bytes:
        """SHA-256 of the opened blocks as little-endian int64 in layout order."""
        return sum_digest(self.vector)

    @property
    def next_broadcast(self) -> bytes:
        """What opens the next round; empty after the last."""
        return self.following.broadcast() if self.following is not None else b""

    @property
    def head_sha256(self) -> bytes:
        """SHA-256 of the float32 weights, then the biases; zero bytes where there is no head."""
        return bytes.fromhex(head_digest(self.head)) if self.head is not None else NO_HEAD

    def require_head(self) -> LinearHead:
        """The head. Raises BadInput after a sum that gives none, which no last one is."""
        if self.head is None:
            raise BadInput("this sum gives no head", remedy="open the sums that follow it")
        return self.head


def conclude(setup: SessionSetup, members: tuple[int, ...], vector: Integers) -> SumResult:
    """Build the head, and the round that follows. Raises BadInput when the sum gives none (a single class, say)."""
    blocks = setup.layout.split(vector)
    grid, noise = setup.plan.grid, setup.opened_noise(len(members))
    head = setup.round.head(blocks, grid, noise)
    return SumResult(members, vector, blocks, head, _doubts(setup, blocks), setup.round.following(blocks, grid, noise))


def _doubts(setup: SessionSetup, blocks: Mapping[str, Integers]) -> tuple[str, ...]:
    """What no honest sum would show; under noise only entries that neither records nor noise can explain."""
    if setup.calibration is None:
        return tuple(setup.round.implausibilities(blocks, setup.plan.grid))
    limits = {
        block.name: setup.capacity.clients * setup.capacity.records * block.bound * block.multiplier
        + setup.calibration.largest
        for block in setup.layout.blocks
    }
    return tuple(
        f"an entry of {name} is beyond {limit}, which records and noise cannot reach"
        for name, limit in limits.items()
        if np.abs(blocks[name]).max() > limit
    )


def open_sum(setup: SessionSetup, ready: SumToOpen, folder: Path, uploads: Mapping[int, Announcement]) -> SumResult:
    """Add the vectors in the session's folder up, open their sum, and build the head.

    Raises BadInput when a vector on the disk is not the one that its sender signed, SessionAborted when the sum gives
    no head.
    """
    total = add_up(folder, {member: uploads[member] for member in ready.vectors}, setup.context)
    try:
        return conclude(setup, ready.members, ready.open(setup.context, total))
    except BadInput as error:
        raise SessionAborted(f"the sum was opened and leads nowhere: {error}; {COUNTS}") from None


def write_result(setup: SessionSetup, result: SumResult, folder: Path) -> Outcome:
    """Write aggregate and head (with all that `predict` needs to know), if any; return what the members are told."""
    blocks = io.BytesIO()
    np.savez(blocks, allow_pickle=False, **dict(result.blocks))
    write_synced(folder / AGGREGATE_FILE, blocks.getvalue())
    plan = setup.plan
    shown = b""
    if result.head is not None:
        content = to_safetensors(result.head, _metadata(plan))
        write_synced(folder / HEAD_FILE, content)
        shown = content if plan.result == "members" else b""
    release = result.release if setup.shows_sum else b""
    return Outcome(result.members, result.aggregate_sha256, result.head_sha256, shown, result.next_broadcast, release)


def _metadata(plan: Plan) -> dict[str, str]:
    """What the head's file says of where it belongs."""
    return Pipeline.of_plan(plan).to_metadata() | {"plan": plan.digest.hex(), "method": plan.method}


def check_outcome(setup: SessionSetup, outcome: Outcome) -> None:
    """Raise ProtocolViolation unless the outcome shows what it must, and what it shows agrees with itself.

    Where the plan has several rounds, the head and the next round are recomputed from the released sum.
    """
    if bool(outcome.broadcast) != (not setup.is_last) or bool(outcome.release) != (setup.shows_sum):
        raise ProtocolViolation(SERVER_INDEX, "the plan says otherwise about how many rounds there are")
    own = _recomputed(setup, outcome) if outcome.release else None
    if own is not None and own.head is None:
        if outcome.head or outcome.head_sha256 != NO_HEAD:
            raise ProtocolViolation(SERVER_INDEX, "announces a head after a sum that gives none")
    else:
        head = _shown_head(setup, outcome)
        if own is not None and head is not None and not _agree(head, own.require_head()):
            raise ProtocolViolation(SERVER_INDEX, "the head does not follow from the released sum")
    if own is not None and own.following is not None:
        own.following.check(setup.round.announced(outcome.broadcast, setup.plan.grid))


def _recomputed(setup: SessionSetup, outcome: Outcome) -> SumResult:
    """What the released sum gives. Raises ProtocolViolation unless it is the one that the outcome names."""
    if hashlib.sha256(outcome.release).digest() != outcome.aggregate_sha256:
        raise ProtocolViolation(SERVER_INDEX, "the released sum is not the one that the outcome names")
    if len(outcome.release) != 8 * setup.layout.length:
        raise ProtocolViolation(SERVER_INDEX, "the released sum has another length than the plan's")
    vector = np.frombuffer(outcome.release, dtype="<i8").astype(np.int64)
    try:
        return conclude(setup, outcome.members, vector)
    except BadInput as error:
        raise ProtocolViolation(SERVER_INDEX, f"the released sum leads nowhere: {error.problem}") from None


def following_setup(setup: SessionSetup, outcome: Outcome) -> SessionSetup | None:
    """The session that follows an outcome; None after the last."""
    if not outcome.broadcast:
        return None
    return setup.following(RoundOpening(outcome.aggregate_sha256, outcome.broadcast))


def _agree(told: LinearHead, own: LinearHead) -> bool:
    """Whether two heads differ by no more than rounding does."""
    mine, theirs = own.arrays, told.arrays
    kinds = [(type(head.before), getattr(head.before, "kind", None)) for head in (told, own)]
    return (
        kinds[0] == kinds[1]
        and [each.shape for each in mine] == [each.shape for each in theirs]
        and all(
            np.allclose(one, other, rtol=1e-3, atol=1e-3 * float(np.abs(other).max()))
            for one, other in zip(theirs, mine, strict=True)
        )
    )


def _shown_head(setup: SessionSetup, outcome: Outcome) -> LinearHead | None:
    if bool(outcome.head) != (setup.plan.result == "members"):
        raise ProtocolViolation(SERVER_INDEX, "the plan says otherwise about who gets the head")
    if not outcome.head:
        return None
    try:
        head, metadata = parse_safetensors(outcome.head)
    except BadInput as error:
        raise ProtocolViolation(SERVER_INDEX, f"the head is none: {error.problem}") from None
    if bytes.fromhex(head_digest(head)) != outcome.head_sha256:
        raise ProtocolViolation(SERVER_INDEX, "the head is not the one that the outcome names")
    if metadata != _metadata(setup.plan):
        raise ProtocolViolation(SERVER_INDEX, "the head says that it belongs to something else than the plan")
    if (len(head.bias), head.inputs) != (len(setup.plan.classes), setup.plan.dimension):
        raise ProtocolViolation(SERVER_INDEX, "the head is for other classes or features than the plan's")
    if (head.means is not None) != bool(setup.plan.method_parameters.get(PERSONALISE)):
        raise ProtocolViolation(SERVER_INDEX, "the plan says otherwise about class means beside the head")
    return head
