"""What an audit knows of one secure sum, and what it may suppose that an adversary knows beside: plain values alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.encoding.layout import Integers
from secagg.head import LinearHead
from secagg.plan import Plan
from secagg.privacy import Calibration, OpenedNoise, PrivacyClaim

Blocks = Mapping[str, NDArray[Any]]
"""Blocks of a sum or of one client's vector, by name, in units of one record's integers (multipliers divided out)."""


@dataclass(frozen=True)
class Message:
    """One frame that passed between two parties: names, step, bytes in all, and its place in the transcript."""

    sender: str
    receiver: str
    step: str
    size: int
    place: int


@dataclass(frozen=True, eq=False)
class Session:
    """One secure sum as its transcript shows it, or as it was simulated.

    `contributions` are clients' own blocks in clear: those that a transcript holds in clear (protection none), or all
    of them in a simulation; which adversary sees which is decided by `threat_models.views`. `uploads` are the protected
    bytes. `claim` is recomputed from the plan by the auditor, `calibration` the noise behind this sum; None without.
    `noise` is what is known of the noise on the opened blocks. `is_shown`: members are shown the opened sum. `number`
    says which of the plan's sums this is, from 1; `role` whose transcript shows it, "" where everything is at hand.
    """

    plan: Plan
    clients: tuple[str, ...]
    members: tuple[str, ...]
    release: Blocks = field(repr=False)
    noise: Mapping[str, OpenedNoise] | None
    claim: PrivacyClaim | None
    calibration: Calibration | None
    head: LinearHead | None = field(repr=False)
    messages: tuple[Message, ...] = field(repr=False)
    uploads: Mapping[str, bytes] = field(repr=False)
    contributions: Mapping[str, Blocks] = field(repr=False)
    is_shown: bool = False
    number: int = 1
    role: str = ""
    transcript_sha256: str = ""


@dataclass(frozen=True, eq=False)
class Records:
    """Records that the audit works with: integers (n, d) on the plan's grid, labels (n,), images (n, h, w, c) or None.

    `features` are what the integers were made of (n, d), before centring and normalisation.
    """

    integers: Integers = field(repr=False)
    labels: Integers = field(repr=False)
    features: NDArray[np.float64] = field(repr=False)
    images: NDArray[np.uint8] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Any) -> Records:
        """The records at `rows`."""
        images = None if self.images is None else self.images[rows]
        return Records(self.integers[rows], self.labels[rows], self.features[rows], images)


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What the adversary is supposed to know beside its view, and the truth by which it is scored.

    `candidates` are records of which it wants to know whether they took part; `owners` names the client that had each,
    empty for one that nobody had. `public` are records of the same kind that nobody had: for decoders and for the
    chance level. `backbone` maps images (n, c, h, w) in [0, 1] to features (n, d), as a torch module or function with
    gradients, where the adversary knows it. `records` is how many were summed, as the public was told; None where it
    was not.
    """

    candidates: Records
    owners: tuple[str, ...]
    public: Records | None = None
    backbone: Callable[[Any], Any] | None = field(default=None, repr=False)
    records: int | None = None

    @property
    def is_member(self) -> NDArray[np.bool_]:
        """Which candidates took part, (n,)."""
        return np.array([bool(owner) for owner in self.owners])
