"""The likelihood ratio attack on a head (Carlini et al. 2022), with shadow heads that cost almost nothing.

Each shadow is a head over records that the adversary has. For the exact discriminant every candidate's margin with and
without itself follows from the shadow by a rank-one update (`leave_one_out`), for exact prototypes from a changed sum.
Noisy heads, those that further rounds have refined, and trained models go through all their sums anew, with the
candidates at random inside or outside; a model as if one member had all of the records.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import logsumexp

from methods import Method, method_of, sums_of
from methods.closed_form.fedcgs import FedCGS
from methods.closed_form.prototypes import Prototypes
from methods.gate import without_gate
from methods.round import Examples, Local, OpenedTotal, Round
from methods.slots.mpft import MPFT
from secagg.agreement.plan import NoiseFrom, Plan
from secagg.encoding import Grid
from secagg.errors import BadInput
from secagg.heads import LinearHead
from secagg.heads.discriminant import Covariance
from secagg.heads.linear import ABSENT_BIAS
from secagg.networks import SlotMeans, TrainedModel
from secagg.privacy import PrivacyClaim
from threat_models.attacks.attack import Progress
from threat_models.attacks.gaussian_likelihood import Noise, draw_noise, total
from threat_models.session import AuditRecords, Floats, Released, join_records
from threat_models.views import View

FARTHEST = 100.0
"""Largest absolute margin; larger ones are clipped, as those of a class without records."""


def margins(scores: Floats, labels: NDArray[np.int64]) -> Floats:
    """Compute the log odds of each record's own class (n,) from scores (n, C), clipped to −100 to 100."""
    rows = np.arange(len(labels))
    others = scores.copy()
    others[rows, labels] = -np.inf
    return np.asarray(np.clip(scores[rows, labels] - logsumexp(others, axis=1), -FARTHEST, FARTHEST))


@dataclass(frozen=True, eq=False)
class Discriminant:
    """The class statistics of a discriminant head, in the basis of the eigenvectors of its scatter matrix (d, d).

    With scatter S = Σ (q − μ_y)(q − μ_y)ᵀ within classes, or about the mean m for covariance "total", and f degrees of
    freedom, `secagg.heads.discriminant` scores class j by (q − (μ_j + m)/2)ᵀ P (μ_j − m) + log(N_j/n), where
    P = f·(S + ρI)⁻¹ and ρ = γ·tr(S)/d. Adding (s = 1) or removing (s = −1) a record (q, y) gives S' = S + k·u·uᵀ with
    u = q − μ_y and k = s·N_y/(N_y + s) within, u = q − m and k = s·n/(n + s) in total, so that in the eigenbasis of S
    the changed ridge is diagonal and what is left is the update of Sherman & Morrison 1950.
    """

    counts: Floats
    means: Floats = field(repr=False)
    values: Floats = field(repr=False)
    vectors: Floats = field(repr=False)
    covariance: Covariance
    ridge: float

    @classmethod
    def of(cls, records: AuditRecords, classes: int, covariance: Covariance, ridge: float) -> Discriminant:
        """Compute the class statistics of the head that records (n, d) give; `ridge` is the factor γ of its ridge."""
        rows, labels = records.integers.astype(np.float64), records.labels
        counts = np.bincount(labels, minlength=classes).astype(np.float64)
        members = (labels == np.arange(classes)[:, None]).astype(np.float64)
        means = members @ rows / np.maximum(counts, 1)[:, None]
        centred = rows - (means[labels] if covariance == "within" else rows.mean(axis=0))
        values, vectors = eigh(centred.T @ centred)
        return cls(counts, means @ vectors, np.maximum(values, 0), vectors, covariance, ridge)

    @property
    def total(self) -> float:
        """The number of records from which the head is made."""
        return float(self.counts.sum())

    def margins(self, records: AuditRecords, steps: NDArray[np.int64]) -> Floats:
        """Compute each record's margin (n,) under the head after adding it (step 1), removing it (−1) or neither."""
        turned: Floats = records.integers.astype(np.float64) @ self.vectors
        rows, labels, step = turned - self.counts @ self.means / self.total, records.labels, steps.astype(np.float64)
        means, every = self.means - self.counts @ self.means / self.total, np.arange(len(rows))
        own, total = self.counts[labels] + step, self.total + step
        if self.covariance == "within":
            away, among, present = rows - means[labels], self.counts[labels], self.counts > 0
            freedom = total - (present.sum() - present[labels] + (own > 0))
        else:
            away, among, freedom = rows, np.full(len(rows), self.total), total - 1
        factor = np.where(among + step > 0, step * among / np.maximum(among + step, 1), 0.0)
        trace = self.values.sum() + factor * np.einsum("nd,nd->n", away, away)
        inverse = 1 / (self.values + (self.ridge * trace / len(self.values))[:, None])
        moved = means[labels] + (rows - means[labels]) * (step / np.maximum(own, 1))[:, None]
        centre, weighted = rows * (step / total)[:, None], inverse * away
        # (q − (μ_j + m)/2)ᵀ (Λ + ρI + k·u·uᵀ)⁻¹ (μ_j − m), (n, C), k being `factor`, u `away` and μ_y `moved`
        plain = (inverse * rows) @ means.T - inverse @ (means * means).T / 2
        plain[every, labels] = (inverse * (rows - moved / 2) * moved).sum(axis=1)
        plain -= (inverse * (rows - centre / 2) * centre).sum(axis=1)[:, None]
        along = weighted @ means.T
        along[every, labels] = (weighted * moved).sum(axis=1)
        left = (weighted * (rows - centre / 2)).sum(axis=1)[:, None] - along / 2
        right = along - (weighted * centre).sum(axis=1)[:, None]
        update = factor / (1 + factor * (weighted * away).sum(axis=1))
        scores = plain - update[:, None] * left * right
        counts = np.tile(self.counts, (len(rows), 1))
        counts[every, labels] = own
        with np.errstate(divide="ignore"):
            return margins(freedom[:, None] * scores + np.log(counts / total[:, None]), labels)


REMADE = (FedCGS.name, Prototypes.name, MPFT.name)
"""Methods whose heads are made as shadow heads: in far less than the seconds that training an adapter by SGD takes."""
MOST_WORK, LEAST_SIZE = 10**8, 20_000
"""Most records × sums × parameters of a model that is made as a shadow, in some half a second. A smaller model takes as
long as one of `LEAST_SIZE` parameters."""
SHADOWS = 64
NARROWEST = 0.05
"""Least standard deviation of a candidate's margin, in units of the mean over all candidates."""


@dataclass(frozen=True, eq=False)
class Shadows:
    """Candidates' margins (shadows, n) under shadow heads: `inside` made with the candidate, `outside` without it.

    NaN where a shadow has no such margin.
    """

    inside: Floats = field(repr=False)
    outside: Floats = field(repr=False)

    def ratios(self, seen: Floats, mode: Literal["online", "offline"] = "online") -> Floats:
        """Score candidates (n,), larger for members, by their margins `seen` under the attacked head.

        Online: log N(seen; inside) − log N(seen; outside), each with the mean and variance of the candidate's margins.
        Offline: how many standard deviations above the margins without it.
        """
        outside, wide = _moments(self.outside)
        above: Floats = (seen - outside) / wide
        if mode == "offline":
            return above
        inside, narrow = _moments(self.inside)
        ratio = (above**2 - ((seen - inside) / narrow) ** 2) / 2 + np.log(wide / narrow)
        return np.where(np.isfinite(ratio), ratio, above)


def _moments(margins_: Floats) -> tuple[Floats, Floats]:
    """Compute the mean and standard deviation of margins over shadows, (n,); NaN where a candidate has no margin."""
    seen = np.ma.masked_invalid(margins_)
    spread = seen.std(axis=0)
    least = max(NARROWEST * float(spread.mean()), 1e-9)
    return seen.mean(axis=0).filled(np.nan), np.maximum(spread.filled(np.nan), least)


def head_scores(head: Released, records: AuditRecords, grid: Grid) -> Floats:
    """Compute the class scores (n, C) that a head or model gives to quantised records."""
    inputs = records.integers.astype(np.float64)
    if isinstance(head, TrainedModel):
        return head.scores(inputs / grid.unit(inputs.shape[1]))
    inputs = inputs / grid.unit(inputs.shape[1]) if grid.is_normalised else inputs * grid.step + grid.centre
    if isinstance(head, SlotMeans):
        return head.scores(inputs)
    inputs = inputs if head.before is None else head.before.apply(inputs)
    return inputs @ head.weight.T.astype(np.float64) + head.bias


def losses(scores: Floats, labels: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Compute each record's cross-entropy (n,), and the entropy (n,) of its prediction, in nats."""
    logarithms = scores - logsumexp(scores, axis=1, keepdims=True)
    entropy: Floats = -(np.exp(logarithms) * np.maximum(logarithms, -1e3)).sum(axis=1)
    return -logarithms[np.arange(len(labels)), labels], entropy


@dataclass(frozen=True, eq=False)
class HeadRecipe:
    """A recipe for making a head from any records: the plan's method, with `sums` successive sums.

    The census of a class gate is not among these sums. `noises` is what is known of the noise on each of them, empty
    for exact ones. Classes that are not `present` have no part in the head; None: all are.
    """

    plan: Plan
    sums: int = 1
    noises: tuple[Noise, ...] = ()
    present: NDArray[np.bool_] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, view: View) -> HeadRecipe:
        """Return the recipe by which the head that an adversary sees was made: plan, sums, noise and classes."""
        census = sum(not kind.is_about_records for kind in sums_of(view.plan))
        present = view.head.present if isinstance(view.head, LinearHead) else None
        noises: list[Noise] = []  # on every sum of the plan, in the units of one record
        parts = view.claim.releases.parts if isinstance(view.claim, PrivacyClaim) and view.noise is not None else ()
        for (calibration, _), kind in zip(parts, sums_of(view.plan), strict=False):
            noisers = len(view.members) if view.plan.noise == NoiseFrom.CLIENT else calibration.parties
            opened = calibration.opened_noise(noisers)
            noises += [{name: each.of_record for name, each in opened.items()}] * kind.times
        return cls(view.plan, view.number - census, tuple(noises[census : view.number]), present)

    @property
    def method(self) -> Method:
        """The plan's method without the class gate, which leaves out the classes of too few clients."""
        return without_gate(method_of(self.plan))

    @property
    def is_changed_by_record(self) -> bool:
        """Whether the head with one record more or less follows from the exact sum and that record alone."""
        return not self.noises and self.sums == 1 and self.plan.method in (FedCGS.name, Prototypes.name)

    @property
    def first(self) -> Round:
        """The first round of the plan's method without the class gate, which leaves out classes of too few clients."""
        return self.method.begin(self.plan.dimension, len(self.plan.classes), self.plan.levels)

    def head_of(self, records: AuditRecords, seed: int = 0) -> Released:
        """Make the head or model of these records, with noise like the plan's (`noises`), drawn from `seed`.

        Raises BadInput as the method does, for too few records say.
        """
        plan, examples = self.plan, records.examples
        round_, state = self.first, b""
        for turn in range(1, self.sums):
            opened, state = self._sum(round_, examples, state, turn, seed)
            following = round_.finalize(opened).next_round
            if following is None:
                raise BadInput(f"the method {plan.method} has no sum after {turn}")
            round_ = following
        return self.make(self._sum(round_, examples, state, self.sums, seed)[0], round_)

    def _sum(self, round_: Round, examples: Examples, state: bytes, turn: int, seed: int) -> tuple[OpenedTotal, bytes]:
        """Compute the opened sum of a round over examples, with its known noise, and the private state that is kept."""
        plan, noise = self.plan, self.noises[turn - 1] if self.noises else None
        made = round_.contribute(Local(examples, len(plan.classes), plan.grid, state=state, sigma=plan.training_sigma))
        blocks: dict[str, Any] = dict(made.blocks)
        if noise is not None:
            extra = draw_noise(blocks, noise, [seed, turn])
            blocks = {name: block + extra[name] for name, block in blocks.items()}
        return OpenedTotal(blocks, plan.grid, noise), made.state

    def make(self, opened: OpenedTotal, round_: Round) -> Released:
        """Make the head or model that a round gives from its opened sum. Raises BadInput if it gives none."""
        made = round_.finalize(opened).artifact
        if isinstance(made, TrainedModel):
            return made
        if not isinstance(made, LinearHead):
            raise BadInput(f"this sum of {self.plan.method} gives no head")
        return made if self.present is None else replace(made, bias=np.where(self.present, made.bias, ABSENT_BIAS))


def is_remade(view: View, records: int) -> bool:
    """Return whether this attack can recompute the plan's head, or afford to recompute a model of so many records."""
    if isinstance(view.head, TrainedModel):
        return records * view.number * max(view.head.program.size, LEAST_SIZE) <= MOST_WORK
    return view.plan.method in REMADE


def make_shadows(
    recipe: HeadRecipe,
    candidates: AuditRecords,
    pool: AuditRecords,
    size: int,
    progress: Progress,
    *,
    shadows: int = SHADOWS,
    seed: int = 0,
) -> Shadows:
    """Make shadow heads, each of `size` random candidates and `pool` records. Raises BadInput if most fail."""
    everything = join_records(candidates, pool)
    generator = np.random.default_rng(seed)
    pairs = []
    for number in range(shadows):
        order = generator.permutation(len(everything))
        if not recipe.is_changed_by_record:
            # Half of the candidates, which stand first, or as many as there is room for.
            inside = order[order < len(candidates)][: min(size, (len(candidates) + 1) // 2)]
            rows = np.concatenate([inside, order[order >= len(candidates)][: size - len(inside)]])
            with suppress(BadInput):  # such records would have given no head: it was not over them
                head = recipe.head_of(everything.take(rows), number)
                found = margins(head_scores(head, candidates, recipe.plan.grid), candidates.labels)
                there = np.isin(np.arange(len(candidates)), rows)
                pairs.append((np.where(there, found, np.nan), np.where(there, np.nan, found)))
        else:
            exact = _update_margins if recipe.plan.method == FedCGS.name else _remake_margins
            there = np.isin(np.arange(len(candidates)), order[:size])
            as_is, other = exact(recipe, candidates, everything.take(order[:size]), there)
            pairs.append((np.where(there, as_is, other), np.where(there, other, as_is)))
        progress(number + 1, shadows)
    if len(pairs) < shadows / 2:
        raise BadInput(f"only {len(pairs)} of {shadows} times do {size} of the records that are known give a head")
    return Shadows(np.array([one for one, _ in pairs]), np.array([other for _, other in pairs]))


def _update_margins(
    recipe: HeadRecipe, candidates: AuditRecords, behind: AuditRecords, there: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Compute candidates' margins under a head, and with each added to it (or removed from it), by rank-one updates."""
    parameters: dict[str, Any] = recipe.method.parameters
    covariance, ridge = parameters["covariance"], float(parameters["ridge"])
    shadow = Discriminant.of(behind, len(recipe.plan.classes), covariance, ridge)
    changes = np.zeros(len(candidates), dtype=np.int64), np.where(there, -1, 1)
    return shadow.margins(candidates, changes[0]), shadow.margins(candidates, changes[1])


def _remake_margins(
    recipe: HeadRecipe, candidates: AuditRecords, behind: AuditRecords, there: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Compute candidates' margins like `_update_margins`, but make the changed heads anew from the changed sums."""
    plan, classes, first = recipe.plan, len(recipe.plan.classes), recipe.first
    spec = recipe.method.sums(plan.dimension, classes, plan.levels)[0]

    def margins_of(blocks: dict[str, Floats], records: AuditRecords) -> Floats:
        head = recipe.make(OpenedTotal(blocks, plan.grid), first)
        return margins(head_scores(head, records, plan.grid), records.labels)

    blocks = total(behind, classes, frozenset(each.name for each in spec.blocks))
    as_is = margins_of(blocks, candidates)
    other = np.empty_like(as_is)
    for row in range(len(candidates)):
        one = candidates.take([row])
        own = total(one, classes, frozenset(blocks))
        changed = {name: block + (-1 if there[row] else 1) * own[name] for name, block in blocks.items()}
        other[row] = margins_of(changed, one)[0]
    return as_is, other
