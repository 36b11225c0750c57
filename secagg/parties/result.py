"""What comes of the opened sum: the blocks, the head, their digests, and the files that hold them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secagg.encoding import Integers
from secagg.errors import BadInput, ProtocolViolation, SessionAborted
from secagg.head import LinearHead, head_digest, parse_safetensors, to_safetensors
from secagg.parties.memory import write_synced
from secagg.parties.pipeline import Pipeline
from secagg.parties.setup import SessionSetup
from secagg.parties.staging import add_up
from secagg.plan import Plan
from secagg.protection import SumToOpen
from secagg.protection.messages import Outcome, UploadHeader

HEAD_FILE = "head.safetensors"
TORCH_FILE = "head.pt"
AGGREGATE_FILE = "aggregate.npz"


@dataclass(frozen=True)
class SumResult:
    """The opened sum and the head built from it. `doubts` lists what no honest sum would show."""

    members: tuple[int, ...]
    vector: Integers = field(repr=False)
    blocks: Mapping[str, NDArray[np.int64]] = field(repr=False)
    head: LinearHead
    doubts: tuple[str, ...]

    @property
    def aggregate_sha256(self) -> bytes:
        """SHA-256 of the opened blocks as little-endian int64 in layout order."""
        return hashlib.sha256(self.vector.astype("<i8").tobytes()).digest()

    @property
    def head_sha256(self) -> bytes:
        """SHA-256 of the float32 weights, then the biases."""
        return bytes.fromhex(head_digest(self.head))


def conclude(setup: SessionSetup, members: tuple[int, ...], vector: Integers) -> SumResult:
    """Build the head. Raises BadInput when the sum gives none (a single class, say)."""
    blocks = setup.layout.split(vector)
    grid = setup.plan.grid
    doubts = tuple(setup.method.implausibilities(blocks, grid))
    return SumResult(members, vector, blocks, setup.method.head(blocks, grid), doubts)


def open_sum(setup: SessionSetup, ready: SumToOpen, folder: Path, uploads: Mapping[int, UploadHeader]) -> SumResult:
    """Add the members' vectors in the session's folder up, take the masks off, and build the head.

    Raises BadInput when a vector on the disk is not the one that its sender signed, SessionAborted when the sum gives
    no head.
    """
    total = add_up(folder, {member: uploads[member] for member in ready.members}, setup.context)
    try:
        return conclude(setup, ready.members, ready.open(setup.context, total))
    except BadInput as error:
        raise SessionAborted(
            f"the opened sum gives no head ({error.problem}): a member's statistics are false"
        ) from None


def write_result(setup: SessionSetup, result: SumResult, folder: Path) -> Outcome:
    """Write aggregate and head (with all that `predict` needs to know), and return what the members are told."""
    blocks = io.BytesIO()
    np.savez(blocks, allow_pickle=False, **dict(result.blocks))
    write_synced(folder / AGGREGATE_FILE, blocks.getvalue())
    plan = setup.plan
    belongs = {"plan": plan.digest.hex(), "method": plan.method}
    content = to_safetensors(result.head, Pipeline.of_plan(plan).to_metadata() | belongs)
    write_synced(folder / HEAD_FILE, content)
    shown = content if plan.result == "members" else b""
    return Outcome(result.members, result.aggregate_sha256, result.head_sha256, shown)


def check_head(plan: Plan, outcome: Outcome) -> None:
    """Raise ProtocolViolation unless the outcome shows the head that it names, exactly when the plan says so."""
    if bool(outcome.head) != (plan.result == "members"):
        raise ProtocolViolation("server", "the plan says otherwise about who gets the head")
    if outcome.head:
        try:
            digest = head_digest(parse_safetensors(outcome.head)[0])
        except BadInput as error:
            raise ProtocolViolation("server", f"the head is none: {error.problem}") from None
        if bytes.fromhex(digest) != outcome.head_sha256:
            raise ProtocolViolation("server", "the head is not the one that the outcome names")
