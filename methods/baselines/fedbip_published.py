"""FedBiP as published: every picture's latent leaves, half of it another's, with the noise of the schedule's last step.

Chen et al. 2024, Eq. 3 and 6: z(T) = √ᾱ_T·(γ·z_i + (1 − γ)·z_π(i)) + √(1 − ᾱ_T)·ε, π a permutation within a class of a
member. With the members' numbers of pictures of each class known, this is a Gaussian mechanism for one record replaced
by another of its class (`FedBiPPublished.epsilon`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from methods.baselines.baseline import NUMBER, ClientData, Fitted, holders
from secagg.errors import BadInput
from secagg.networks import SlotMeans
from secagg.privacy.claim import shown
from secagg.privacy.gaussian import epsilon_of

DELTA = 1e-5
SLACK = 1e-6
"""By which a length may differ from R, relatively."""


@dataclass(frozen=True)
class FedBiPPublished:
    """One z(T) for each picture; the nearest of them predicts (`methods.slots.fedbip` has the form with a secure sum).

    `kept` is √ᾱ_T, 0.0683 for Stable Diffusion 1; `mixed` is γ. Features are a diffusion model's (`Latents`): d + 1
    numbers, whose length is R = √d for every picture.
    """

    name: ClassVar[str] = "fedbip-published"
    leaves: ClassVar[str] = "a latent of each of its pictures, mixed with another's and noised"
    protections: ClassVar[str] = "none: each picture's latent leaves by itself; fedbip is the form with a secure sum"
    kept: float = 0.0683
    mixed: float = 0.5

    def __post_init__(self) -> None:
        if not (0 < self.kept < 1 and 0 <= self.mixed <= 1):
            raise BadInput(f"kept {self.kept} and mixed {self.mixed}", remedy="kept is in (0, 1), mixed in [0, 1]")

    def publish(self, latents: NDArray[np.float64], labels: NDArray[np.int64], rng: np.random.Generator) -> SlotMeans:
        """z(T) of one member's latents (n, d), each with a partner of its class, as means of slots of one record."""
        partners = np.arange(len(labels))
        for label in np.unique(labels):
            own = rng.permutation(np.flatnonzero(labels == label))
            partners[own] = np.roll(own, 1)
        z = self.kept * (self.mixed * latents + (1 - self.mixed) * latents[partners])
        z = z + math.sqrt(1 - self.kept**2) * rng.normal(size=latents.shape)
        cells = np.column_stack([labels, np.zeros_like(labels), np.arange(len(labels))])
        counts = np.ones(len(labels), dtype=np.float32)
        return SlotMeans(int(labels.max()) + 1, (), False, z.astype(np.float32), cells, counts)

    def fit(self, clients: Sequence[ClientData], classes: int, seed: int) -> Fitted:
        """The nearest published latent, put back to the length of a latent. Raises BadInput for other features."""
        rng, held = np.random.default_rng(seed), holders(clients)
        radius = _public_length(held)
        sent = [self.publish(each.features, each.labels, rng) for each in held]
        means = (np.concatenate([each.means for each in sent]) / self.kept).astype(np.float32)
        cells = np.concatenate([each.cells for each in sent])
        whole = SlotMeans(classes, (), False, means, cells, np.ones(len(cells), dtype=np.float32))
        most = max(len(each) for each in held)
        worst, usual = shown(self.epsilon(radius)), shown(self.epsilon(radius, alone=False))
        note = (
            f"the noise amounts to ε = {worst} at δ = {DELTA:g} for one record replaced by another of its class, "
            f"{usual} where no member has one picture alone in a class; members' class counts are told"
        )
        return Fitted((whole,), most * NUMBER * held[0].features.shape[1], note=note)

    def epsilon(self, radius: float, *, alone: bool = True, delta: float = DELTA) -> float:
        """ε of a member's release for one record replaced by another of the same class, rounded up.

        Both are no longer than R, and the member's number of records of each class stays, which anybody may know: for a
        record added, removed or moved to another class there is no ε, since the latents' classes tell. π is one cycle
        through a class and looks at no latent, so that, π being known, a record is in two latents: γ of it in its own
        and 1 − γ of it in that of which it is the partner (mixtures are of records, not of mixtures). `alone`: also in
        a class of one record, where both are the same latent, and all of the record is in it.
        μ = 2R·√ᾱ_T·w/√(1 − ᾱ_T), w = √(γ² + (1 − γ)²), or 1 alone, which is never less (Balle & Wang 2018 gives ε,
        for noise that is a real number).
        """
        moved = 2 * radius * self.kept * (1.0 if alone else math.hypot(self.mixed, 1 - self.mixed))
        exact = epsilon_of(moved / math.sqrt(1 - self.kept**2), delta)
        return math.ceil(exact * 1000) / 1000


def _public_length(held: Sequence[ClientData]) -> float:
    """R = √d, rounded up, of features (n, d + 1) that all have this length. Raises BadInput where they do not."""
    radius = math.sqrt(held[0].features.shape[1] - 1)
    lengths = np.concatenate([np.linalg.norm(each.features, axis=1) for each in held])
    if not np.all(np.abs(lengths - radius) <= SLACK * radius):
        problem = f"fedbip-published takes latents, which have length √d = {radius:.4g}; these features have not"
        raise BadInput(problem, remedy="give --backbone diffusers:FOLDER, and leave out --normalise and --expand")
    return radius * (1 + SLACK)
