"""Data types of an audit: one secure sum, and the knowledge that an adversary has beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from methods.method import ZeroSums
from methods.round import Examples, Round
from secagg.agreement.plan import Plan
from secagg.encoding import full_matrix
from secagg.encoding.layout import Integers
from secagg.heads import LinearHead
from secagg.networks import Adapted, OverEncoder, SlotMeans, TrainedModel
from secagg.privacy import Claim, NoiseCalibration, OpenedNoise

Floats = NDArray[np.float64]
SOMEBODY = "a member"
"""The owner's name of a record that took part, where it is not known which member had it."""
Released = LinearHead | TrainedModel | SlotMeans
"""What the last round of a plan may release."""
OTHER = "other "
"""Prefix of a block's name that attacks would take for a block of another kind."""
Blocks = Mapping[str, NDArray[Any]]
"""Blocks of a sum or of one client's vector, by name, in units of one record's integers (multipliers divided out).

Whatever the method, `counts` (K,) and `class_sums` (K, d) are of its K *cells*: its classes, or what it divides each of
them into, class by class, such as slots.
"""


def by_class(blocks: Blocks, classes: int) -> dict[str, NDArray[Any]]:
    """Add up the rows of each class (one for each of its slots) in the counts and class sums of `blocks`."""
    summed = {"counts": (classes, -1), "class_sums": (classes, -1, np.shape(blocks["class_sums"])[-1])}
    return {
        name: np.asarray(block).reshape(summed[name]).sum(axis=1) if name in summed else block
        for name, block in blocks.items()
    }


@dataclass(frozen=True)
class Message:
    """One message that passed between two parties: their names, step, size in bytes, and place in the transcript."""

    sender: str
    receiver: str
    step: str
    size: int
    place: int


@dataclass(frozen=True)
class Provenance:
    """Results of verifying one transcript file: what it proves, and the doubts that are left.

    `consortium` is its name in the roster, which has `clients` clients; `signers` are names and identity keys (hex) of
    those who signed what is in it; `vouched_by` says on whose word plan and roster are the consortium's, and is empty
    where nobody's.
    """

    transcript: str
    verdict: str
    proves: str
    roster_sha256: str
    vouched_by: str
    signers: Mapping[str, str]
    has_doubts: bool
    consortium: str = ""
    clients: int = 0


class Encoding(StrEnum):
    """The ways to encrypt a vector: by client code, or by SEAL's code, which rounds, with masks known or unknown."""

    CLIENT = "client"
    LIBRARY = "library"
    LIBRARY_MASKED = "library, masks unknown"


@dataclass(frozen=True, eq=False)
class SplitSession:
    """One encrypted two-client session, as its key holder sees it under several keys, modulo one prime.

    `seen` are the summed ciphertexts under the key, masks taken off, (N,) by the key's name; `predicted` (N,) what that
    would be but for noise, for each of two ways to split the sum; `truth` says which it was, 0 or 1.
    """

    prime: int
    predicted: tuple[NDArray[np.uint64], NDArray[np.uint64]] = field(repr=False)
    seen: Mapping[str, NDArray[np.uint64]] = field(repr=False)
    truth: int


class RemadeSessions(Protocol):
    """A factory of encrypted sessions of two clients, which split a sum between them in one of two known ways."""

    def series(self, encoding: Encoding, rounds: int) -> tuple[SplitSession, ...]:
        """Make `rounds` sessions that all split the sum between the two clients in the same way."""


@dataclass(frozen=True, eq=False)
class ZeroSample:
    """Sums of entries of one opened block that are 0 but for noise: `values` (n,), N(0, 1) under planned noise.

    `sigma` is σ of the planned noise of all noisers together on one entry, `off_diagonal` that off the diagonal of a
    triangle. `remainder` is the most that one record leaves of an exact sum, the L2 norm in these units.
    """

    number: int
    rule: ZeroSums
    sigma: float
    off_diagonal: float
    values: Floats = field(repr=False)
    remainder: float

    @classmethod
    def of(cls, number: int, rule: ZeroSums, sigma: float, off_diagonal: float, block: NDArray[Any]) -> ZeroSample:
        """Compute a block's sums of entries that are 0 but for noise, for the plan's sum `number`."""
        values, least = _zero_sums(rule, sigma, off_diagonal, block)
        return cls(number, rule, sigma, off_diagonal, values, rule.remainder / least)

    def left_by(self, block: NDArray[Any]) -> float:
        """Compute the L2 norm of the same sums of entries in another block, in the same units (planned σ = 1)."""
        return float(np.linalg.norm(_zero_sums(self.rule, self.sigma, self.off_diagonal, block)[0]))


def _zero_sums(rule: ZeroSums, sigma: float, off_diagonal: float, block: NDArray[Any]) -> tuple[Floats, float]:
    """Compute a block's zero sums over the σ of their noise, made independent; and the least σ among the divisors.

    The rows of a symmetric matrix of independent noise, σ on the diagonal and σ' off it, have sums with the covariance
    a·I + b·1·1ᵀ, a = σ² + (d − 2)σ'² and b = σ'²: with the eigenvalue a + d·b along 1, and a elsewhere.
    """
    if rule.axis is not None:
        scale = sigma * math.sqrt(block.shape[rule.axis])
        return block.sum(axis=rule.axis, dtype=np.float64).ravel() / scale, scale
    found = []
    dimension = (math.isqrt(8 * block.shape[-1] + 1) - 1) // 2
    across = math.sqrt(sigma**2 + (dimension - 2) * off_diagonal**2)
    along = math.sqrt(across**2 + dimension * off_diagonal**2)
    for triangle in block.reshape(-1, block.shape[-1]):
        rows = full_matrix(triangle, dimension).sum(axis=1, dtype=np.float64)
        found.append((rows - rows.mean()) / across + rows.mean() / along)
    return np.concatenate(found), across


@dataclass(frozen=True, eq=False)
class NoisySum:
    """The noise measured in the plan's sum `number`, from sums of entries that are 0 in an exact sum.

    `unseen` names the blocks without such `samples`.
    """

    number: int
    round: Round | None = field(repr=False)
    samples: tuple[ZeroSample, ...]
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Session:
    """One secure sum, as its transcript shows it or as it was simulated.

    `contributions` are clients' own blocks in clear: those that a transcript holds in clear (protection none), or all
    of them in a simulation; which adversary sees which is decided by `threat_models.views`. `uploads` are the protected
    bytes. `claim` is recomputed from the plan by the auditor, `calibration` the noise behind this sum; None without.
    `noise` is what is known of the noise on the opened blocks. `is_shown`: members are shown the opened sum. `number`
    says which of the plan's sums this is, from 1; `role` whose transcript shows it, "" where everything is at hand.
    `round` is what was summed, which says in which of the `cells`, by name, a record is. `earlier` are the plan's sums
    before this one, those that hold class sums, as far as they are at hand. `provenance` is None in a simulation.
    `ciphertexts` makes sessions of two members anew, as a key holder sees them; None where nothing is encrypted.
    `flaws` say in words what shows in the opened integers themselves that the planned noise would not leave. `exact`
    are all clients' blocks without noise, as a simulation has them and nobody else. `clients` are those that could be
    in this sum, `consortium` how many the plan has in all. `noisy_sums` are those of the plan's sums at hand, this one
    among them, and `sums` is how many the plan has; 0 where all are at hand.
    """

    plan: Plan
    clients: tuple[str, ...]
    members: tuple[str, ...]
    release: Blocks = field(repr=False)
    noise: Mapping[str, OpenedNoise] | None
    claim: Claim | None
    calibration: NoiseCalibration | None
    head: Released | None = field(repr=False)
    messages: tuple[Message, ...] = field(repr=False)
    uploads: Mapping[str, bytes] = field(repr=False)
    contributions: Mapping[str, Blocks] = field(repr=False)
    round: Round | None = field(default=None, repr=False)
    cells: tuple[str, ...] = ()
    is_shown: bool = False
    number: int = 1
    role: str = ""
    transcript_sha256: str = ""
    provenance: Provenance | None = None
    earlier: tuple[Session, ...] = field(default=(), repr=False)
    ciphertexts: RemadeSessions | None = field(default=None, repr=False)
    flaws: tuple[str, ...] = ()
    exact: Mapping[str, Blocks] = field(default_factory=dict, repr=False)
    consortium: int = 0
    noisy_sums: tuple[NoisySum, ...] = field(default=(), repr=False)
    sums: int = 0


@dataclass(frozen=True, eq=False)
class AuditRecords:
    """Records that an audit works with: integers (n, d) on the plan's grid, labels (n,), images (n, h, w, c) or None.

    `features` are what the integers were made of (n, d), before centring and normalisation; `prepared` what an encoder
    takes of the records (n, p), where the plan's method trains inside one. `domains` (n,) are None
    where the plan tells none apart, `in_cells` (n,) where the sum divides no class.
    """

    integers: Integers = field(repr=False)
    labels: Integers = field(repr=False)
    features: Floats = field(repr=False)
    images: NDArray[np.uint8] | None = field(default=None, repr=False)
    domains: Integers | None = field(default=None, repr=False)
    in_cells: Integers | None = field(default=None, repr=False)
    prepared: NDArray[np.float32] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def cells(self) -> Integers:
        """Index (n,) of the class or slot in which the sum counts, or would count, each record."""
        return self.labels if self.in_cells is None else self.in_cells

    @property
    def examples(self) -> Examples:
        """The same records as `Examples`, the type that methods take."""
        if self.domains is None:
            return Examples.of(self.integers, self.labels)
        return Examples(self.integers, self.labels, self.domains)

    def take(self, rows: Any) -> AuditRecords:
        """Return the records at the indices `rows`."""
        taken: dict[str, Any] = {name: None if each is None else each[rows] for name, each in vars(self).items()}
        return AuditRecords(**taken)


def join_records(*parts: AuditRecords) -> AuditRecords:
    """Concatenate records of several sources; images, domains and slots are kept only if all sources have them."""
    joined: dict[str, Any] = {}
    for name in vars(parts[0]):
        found = [getattr(part, name) for part in parts]
        joined[name] = None if any(each is None for each in found) else np.concatenate(found)
    return AuditRecords(**joined)


@dataclass(frozen=True, eq=False)
class Knowledge:
    """The knowledge of an adversary beside its view, and the truth by which its attacks are scored.

    `candidates` are records of which it wants to know whether they took part; `owners` names the client that had each,
    `SOMEBODY` for one of any client, empty for one that nobody had. `public` are records of the same kind that nobody
    had: for decoders and for the chance level. `backbone` maps images (n, c, h, w) in [0, 1] to features (n, d), as a
    torch module or function with gradients, where the adversary knows it; `within` puts a program of adapters into the
    frozen encoder that a method trains inside, which everybody has; `generated` makes pictures of opened means with the
    plan's diffusion model, and tells their features (m, d) and classes (m,). `records` is how many were summed, as the
    public was told; None where it was not. `held` is truth that a simulation has and no adversary: how many records
    each member has in each cell (K,) of the sum. `others` is the exact sum of the members' records that are no
    candidates, where the auditor has it, so that the noise in the sum can be measured. `parts` is what each member put
    into each of the plan's sums, by the sum's number: again truth of a simulation alone. `doubts` say why the
    candidates may not be what their owners say.
    """

    candidates: AuditRecords
    owners: tuple[str, ...]
    public: AuditRecords | None = None
    backbone: Callable[[Any], Any] | None = field(default=None, repr=False)
    records: int | None = None
    held: Mapping[str, Integers] = field(default_factory=dict, repr=False)
    others: Blocks | None = field(default=None, repr=False)
    parts: Mapping[int, Mapping[str, Blocks]] = field(default_factory=dict, repr=False)
    doubts: tuple[str, ...] = ()
    within: Callable[[Adapted], OverEncoder] | None = field(default=None, repr=False)
    generated: Callable[[SlotMeans], tuple[Floats, Integers]] | None = field(default=None, repr=False)

    @property
    def is_member(self) -> NDArray[np.bool_]:
        """True for each candidate record that took part, (n,)."""
        return np.array([bool(owner) for owner in self.owners], dtype=np.bool_)

    @property
    def by_class(self) -> Knowledge:
        """The same knowledge with records assigned to whole classes: none is divided into slots."""
        public = None if self.public is None else replace(self.public, in_cells=None)
        return replace(self, candidates=replace(self.candidates, in_cells=None), public=public)
