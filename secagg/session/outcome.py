"""Outcome of an opened sum: its blocks, the head, their digests, and the files that hold them."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from methods.round import Opened, Round
from secagg.agreement.plan import Plan, Result
from secagg.crypto.labels import digest
from secagg.encoding import Integers, Kind, sanity_failures, sum_digest
from secagg.errors import COUNTS, BadInput, SessionAborted
from secagg.heads import Artifact, to_safetensors
from secagg.plan_facts.records import FeatureRecipe
from secagg.privacy import Mechanism
from secagg.protection import SumToOpen
from secagg.protection.messages import Announcement, Attachment, Outcome
from secagg.session.attachments import SUM_FILE, keep_opening
from secagg.session.round_setup import RoundSetup
from secagg.session.rounds import opening_after
from secagg.session.staging import add_up
from secagg.system.files import write_synced

HEAD_FILE = "head.safetensors"
RESULT_FILE = "result.json"
"""What a server says at the end of a plan, in the folder of its last session."""
PERSONAL_FILE = "personal-{}.safetensors"
"""A model that is a member's own, by its name."""
TORCH_FILE = "head.pt"
AGGREGATE_FILE = "aggregate.npz"
NO_ARTIFACT = bytes(32)
"""Stands for the digest of an artifact where there is none."""


@dataclass(frozen=True)
class SumResult:
    """The opened sum and the artifact built from it, None where another sum must come first.

    `following` is the next round, `doubts` what no honest sum shows, and of these `impossible` what breaks the bounds
    of `broken_bounds`: whoever is shown the sum refuses that.
    """

    members: tuple[int, ...]
    vector: Integers = field(repr=False)
    blocks: Mapping[str, Integers] = field(repr=False)
    artifact: Artifact | None
    doubts: tuple[str, ...]
    following: Round | None = field(default=None, repr=False)
    impossible: tuple[str, ...] = ()

    @cached_property
    def aggregate_sha256(self) -> bytes:
        """SHA-256 of the opened blocks as little-endian int64 in layout order."""
        return sum_digest(self.vector)

    @cached_property
    def broadcast(self) -> bytes:
        """Broadcast that opens the next round; empty after the last."""
        return self.following.broadcast() if self.following is not None else b""

    @property
    def opens(self) -> Attachment | None:
        """Attachment that names the broadcast; None after the last."""
        return Attachment.of(self.broadcast) if self.broadcast else None

    @property
    def artifact_sha256(self) -> bytes:
        """The artifact's digest (`Artifact.digest`); zero bytes where there is none."""
        return bytes.fromhex(self.artifact.digest) if self.artifact is not None else NO_ARTIFACT

    def require_artifact(self) -> Artifact:
        """The artifact. Raises BadInput after a sum that gives none, which no last one is."""
        if self.artifact is None:
            raise BadInput("this sum gives no head", remedy="open the sums that follow it")
        return self.artifact


def conclude(setup: RoundSetup, members: tuple[int, ...], vector: Integers, seed: bytes | None = None) -> SumResult:
    """Take the step that follows from a sum. Raises BadInput when it gives none (a single class, say).

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
    """The models, by name, that the last sum and its private `state` leave a member for itself; mostly none.

    Raises BadInput for a state that is not that round's.
    """
    return setup.round.personal(state, _opened_total(setup, members, vector))


def _opened_total(setup: RoundSetup, members: tuple[int, ...], vector: Integers, seed: bytes | None = None) -> Opened:
    noise = setup.sum.opened_noise(len(members))
    seed = seed or digest("public randomness", setup.context.round_digest, sum_digest(vector))
    return Opened(setup.sum.layout.split(vector), setup.plan.grid, noise, len(members), seed, members)


def open_sum(setup: RoundSetup, ready: SumToOpen, folder: Path, uploads: Mapping[int, Announcement]) -> SumResult:
    """Add the vectors in the session's folder up, open their sum, and build the head.

    Raises BadInput when a vector on the disk is not the one that its sender signed, SessionAborted when the sum gives
    no head.
    """
    total = add_up(folder, {member: uploads[member] for member in ready.vectors}, setup.context)
    try:
        return conclude(setup, ready.members, ready.open(setup.context, total))
    except BadInput as error:
        raise SessionAborted(f"the sum was opened and leads nowhere: {error}; {COUNTS}") from None


def write_result(setup: RoundSetup, result: SumResult, folder: Path) -> Outcome:
    """Write the sum, the head if any, and what opens the next round, if any; return the outcome message.

    After the last round, or one whose sum is nobody else's, the sum's blocks are there by their names too.
    """
    release, opening = pack_sum(setup, result.vector), opening_after(setup, result)
    write_synced(folder / SUM_FILE, release)
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
        (Attachment.of(head),) if head and setup.plan.result is Result.MEMBERS else (),
        (result.opens,) if result.opens is not None else (),
        (Attachment.of(release),) if setup.shows_sum else (),
    )


def pack_sum(setup: RoundSetup, vector: Integers) -> bytes:
    """An opened sum in ring width. Raises CapacityExceeded for one that the ring does not hold."""
    return setup.context.ring.pack(setup.context.ring.encode(vector))


def unpack_sum(setup: RoundSetup, packed: bytes) -> Integers:
    """Undo `pack_sum`. Raises MalformedMessage for another length than the plan's."""
    return setup.context.ring.decode(setup.context.ring.unpack(packed, setup.context.length))


def head_file(setup: RoundSetup, result: SumResult) -> bytes:
    """The head's file, with all that `predict` needs to know; empty where the sum gives no head."""
    return to_safetensors(result.artifact, metadata_of(setup.plan)) if result.artifact is not None else b""


def metadata_of(plan: Plan) -> dict[str, str]:
    """Metadata of the head's file: plan, method, features."""
    return FeatureRecipe.of_plan(plan).to_metadata() | {"plan": plan.digest.hex(), "method": plan.method}


def write_personal(setup: RoundSetup, outcome: Outcome, state: bytes, folder: Path) -> dict[str, Path]:
    """Write the models that the plan leaves a member for itself, from its private `state`; return where, by name.

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
"""Relative room for the float64 rounding of a length."""


def broken_bounds(setup: RoundSetup, clients: int, blocks: Mapping[str, Integers]) -> tuple[str, ...]:
    """Complaints about the opened int64 `blocks` of so many clients, multipliers and noise included; none if honest.

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
    """Largest |E_j| and ‖E‖₂ of the noise E on `size` entries; each exceeded with probability ≤ 2⁻⁴⁰/`tests`.

    Entries are independent with E e^(λE_j) ≤ e^(λ²σ²/2): so is a discrete Gaussian (Canonne, Kamath & Steinke 2020,
    arXiv 2004.00010), hence the sum of shares with total `sigma`. With t = ln(tests·2⁴⁰):
    P(max |E_j| > σ√(2(t + ln 2d))) ≤ e^(−t) (Chernoff, union over d entries), and P(‖E‖² > σ²(d + 2√(dt) + 2t)) ≤
    e^(−t) (Laurent & Massart 2000, lemma 1, for the chi-square; Hsu, Kakade & Zhang 2012, theorem 2.1, for every
    sub-Gaussian E). Rounding a Gaussian moves an entry by at most ½ for each of the `rounded` parties that add one.
    """
    t = math.log(tests) + FALSE_ALARM_BITS * math.log(2)
    entry = sigma * math.sqrt(2 * (t + math.log(2 * size))) + rounded / 2
    return entry, sigma * math.sqrt(size + 2 * math.sqrt(size * t) + 2 * t) + rounded / 2 * math.sqrt(size)
