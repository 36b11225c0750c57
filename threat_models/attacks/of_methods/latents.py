"""Re-identify pictures from sums of their latents (FedBiP) by matched filters, and by the nearest generated picture.

Three traces of a record's latent z: the published one, z(T) = √ᾱ_T·(γz + (1 − γ)z') + √(1 − ᾱ_T)·ε, of which the
correlation with z has d' = √(ᾱ_T/(1 − ᾱ_T))·γ·‖z‖; the opened mean of the slot that the record's hash names, of which
it is one of n; and pictures generated from such means. The first two are linear, so that a matched filter is the best
test where all else is noise; the third is asked by nearest neighbours, with records that nobody had as its control.
The published form has no plan. It is this attack's positive control, and what it finds there is measured too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from methods.gate import GatedRound
from methods.slots.fedbip import FedBiP, LatentRound
from secagg.encoding.layout import Integers
from secagg.networks import SlotMeans
from threat_models.attacks.attack import Attack
from threat_models.attacks.membership import metrics
from threat_models.attacks.membership.blind_baseline import BLIND, Trial, try_candidates
from threat_models.attacks.membership.metrics import Figures, Scores, measure_pointed
from threat_models.findings import Control, Finding, Measure
from threat_models.session import AuditRecords, Blocks, Floats
from threat_models.views import View

SLOTS = Figures("slots", "by a matched filter on slot sums")
POINTED = {
    name: metrics.metric_pointed(name, f"{what} point")
    for name, what in (("slots", "slot sums"), ("generated", "generated pictures"), ("published", "published latents"))
}
KEPT = 0.0683
"""√ᾱ_T, the factor of the latent after the last noising step of Stable Diffusion 1, which is not noise alone."""
MIXED = 0.5
"""γ, the weight of a record's own latent in the form that FedBiP publishes."""
PUBLISHED = 200
"""Most records whose latents the control publishes, and as many whose latents it does not publish."""
SEED = 20_241_108


@dataclass(frozen=True)
class Published:
    """Constants by which FedBiP mixes a latent with another one, and this mixture with noise, before publishing it.

    γ is `mixed`, √ᾱ_T is `kept`.
    """

    kept: float = KEPT
    mixed: float = MIXED

    def publish(self, latents: Floats, rng: np.random.Generator) -> Floats:
        """Return latents (n, d) as FedBiP publishes them, z(T): each mixed with the one in the row before and noise."""
        mixed = self.mixed * latents + (1 - self.mixed) * np.roll(latents, 1, axis=0)
        return self.kept * mixed + math.sqrt(1 - self.kept**2) * rng.normal(size=latents.shape)

    def match(self, published: Floats, latents: Floats) -> Floats:
        """Score latents (m, d) by a matched filter: the largest correlation of each with any published latent."""
        lengths = np.maximum(np.linalg.norm(latents, axis=1), np.finfo(np.float64).tiny)
        return np.asarray((latents @ published.T).max(axis=1) / lengths)


def score_slots(release: Blocks, records: AuditRecords, public: AuditRecords) -> Floats:
    """Score records q (n,) by the cosine of q − p and m − p (hash slot's mean m, public mean p).

    p is of public records of the class in the domain, of all where there are none: what a domain's pictures have in
    common tells nobody apart. Times √n of the slot's n records: what the other ones add is smaller, the more there are.
    """
    counts = np.maximum(np.asarray(release["counts"], dtype=np.float64), 1.0)
    means = np.asarray(release["class_sums"], dtype=np.float64) / counts[:, None]
    found, kinds, usual = np.zeros(len(records)), _kinds(records), _kinds(public)
    for kind in np.unique(kinds, axis=0):
        alike = (usual == kind).all(axis=1)
        rows = np.flatnonzero((kinds == kind).all(axis=1))
        centre, cells = public.integers[alike if alike.any() else slice(None)].mean(axis=0), records.cells[rows]
        own, slot = records.integers[rows] - centre, means[cells] - centre
        lengths = np.linalg.norm(own, axis=1) * np.linalg.norm(slot, axis=1)
        found[rows] = np.sqrt(counts[cells]) * (own * slot).sum(axis=1) / np.maximum(lengths, 1e-12)
    return found


def _kinds(records: AuditRecords) -> Integers:
    """Return the class and the domain of each record, (n, 2); the domain is 0 where there is only one."""
    domains = np.zeros_like(records.labels) if records.domains is None else records.domains
    return np.column_stack([records.labels, domains])


def score_pictures(generated: tuple[Floats, NDArray[np.int64]], records: AuditRecords) -> Floats:
    """Score records (n,) by minus the squared distance to the nearest generated picture's latent of their class."""
    features, labels = generated
    found = np.full(len(records), -np.inf)
    for label in np.unique(records.labels):
        rows, made = records.labels == label, features[labels == label]
        if len(made):
            squares = (made * made).sum(axis=1) - 2 * records.features[rows] @ made.T
            found[rows] = -(squares.min(axis=1) + (records.features[rows] ** 2).sum(axis=1))
    return np.where(np.isfinite(found), found, found[np.isfinite(found)].min(initial=0.0))


def _score(release: Blocks, trial: Trial) -> Finding:
    known, public, view, generated = trial.records, trial.public, trial.view, trial.knowledge.generated
    tested = trial.scored(score_slots(release, known, public))
    trial.progress(1, 3)
    pointed, without = measure_pointed(tested, POINTED["slots"]), " Without the diffusion model it generates nothing."
    means = view.head if "head" in view.sees else None
    if isinstance(means, SlotMeans) and generated is not None:
        pointed += measure_pointed(trial.scored(score_pictures(generated(means), known)), POINTED["generated"])
        without = ""
    trial.progress(2, 3)
    controls, published = _make_controls(public)
    trial.progress(3, 3)
    sentence, curve = f"From slot sums {{word}}.{{blind}}{without}", "Re-identification, from slot sums"
    return trial.find({SLOTS: tested}, controls, sentence, curve, pointed=(*pointed, *published))


def _slots_in(view: View) -> Blocks | None:
    """Return the opened sum of a view whose round sums latents by slots; None for other rounds."""
    inner = view.round.round if isinstance(view.round, GatedRound) else view.round
    is_of_slots = isinstance(inner, LatentRound) or (isinstance(inner, FedBiP) and not inner.concepts)
    return view.release if is_of_slots and "release" in view.sees else None


def _make_controls(public: AuditRecords) -> tuple[tuple[Control, Control], tuple[Measure, ...]]:
    """Make the controls: the filter must find the public records whose latents were published, and no other records.

    Latents are brought to the length √d of a record, as the published form has them.
    """
    rng = np.random.default_rng(SEED)
    rows = rng.permutation(len(public))[: 2 * PUBLISHED]
    z = public.integers[rows].astype(np.float64)
    z -= z.mean(axis=0)  # what all share tells nobody apart
    z *= math.sqrt(z.shape[1]) / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
    # d' is 20 or more in this form, however few numbers a latent has
    half, form = len(z) // 2, Published(kept=max(KEPT, 1 / math.sqrt(1 + z.shape[1] / 1600)))
    strong, honest = (
        Scores(each.match(each.publish(z[:half], rng), z), np.arange(len(z)) < half) for each in (form, Published())
    )
    outside = Scores(strong.values[half:], np.arange(len(z) - half) % 2 == 0)
    true = Control("latents published with more of them than noise", True, metrics.succeeds(strong))
    false = Control("records that were not published, half of them called so", False, metrics.succeeds(outside))
    return (true, false), measure_pointed(honest, POINTED["published"])


REIDENTIFICATION_LATENTS = Attack(
    "reidentification_latents",
    "Re-identification of pictures, from sums of latents and what is generated of them",
    "matched filters: Homer et al. 2008, of means; nearest neighbours: Chen et al. 2024, Section 5.5",
    (),
    try_candidates("reidentification_latents", "No sums of slots of latents are seen.", _slots_in, _score),
    (*SLOTS.metrics, BLIND, *POINTED.values()),
    tells_members=True,
    limits=10,
    meaning="Whether a member held a picture, or which it held, shows in sums of latents or in what is made of them.",
    remedy="Plan with a finite epsilon, fewer slots, or more members in each domain.",
    lacks=lambda session: "" if session.plan.method == FedBiP.name else "Its sums hold no slots of latents.",
)
