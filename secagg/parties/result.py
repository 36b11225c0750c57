"""What comes of the opened sum: the blocks, the head, their digests, and the files that hold them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secagg.encoding import Integers
from secagg.head import LinearHead, head_digest, save_safetensors
from secagg.parties.pipeline import Pipeline
from secagg.parties.setup import SessionSetup
from secagg.protection.messages import Outcome

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


def write_result(setup: SessionSetup, result: SumResult, folder: Path) -> Outcome:
    """Write aggregate and head (with all that `predict` needs to know), and return what the members are told."""
    with (folder / AGGREGATE_FILE).open("wb") as file:
        np.savez(file, allow_pickle=False, **dict(result.blocks))
    plan = setup.plan
    belongs = {"plan": plan.digest.hex(), "method": plan.method}
    save_safetensors(result.head, folder / HEAD_FILE, Pipeline.of_plan(plan).to_metadata() | belongs)
    shown = (folder / HEAD_FILE).read_bytes() if plan.result == "members" else b""
    return Outcome(result.members, result.aggregate_sha256, result.head_sha256, shown)
