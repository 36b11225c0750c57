"""Run membership tests on matched candidates, and compare them with a classifier that sees the records but no sum.

Records that took part and records that did not are often of two populations, such as two hospitals or two years, and a
membership test tells the populations. Das, Zhang & Tramèr 2024 ("Blind baselines beat membership inference attacks for
foundation models"): a test counts where it does better than one that never saw what is attacked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from threat_models.attacks.attack import Progress, Run
from threat_models.attacks.membership import metrics
from threat_models.attacks.membership.metrics import Figures, Flags, Scores
from threat_models.estimation.intervals import current_level
from threat_models.findings import Control, Finding, Measure, Metric, Verdict, decide
from threat_models.session import AuditRecords, Floats, Knowledge
from threat_models.views import View

T = TypeVar("T")
BLIND = Metric(
    "blind_auc", "blind AUC, from the records alone", good="0.5: without the session they are not told apart"
)
SEED = 20_240_601
FOLDS = 5
FEWEST = 2 * FOLDS
"""Least number of members, and of others, for a blind guess; with fewer, no interval of a test says anything either."""
LEVEL = 1e-3
"""Highest probability with which records of one population are taken for two, which costs an attack's verdict."""
SHRINKAGE = 0.1
"""Share of a standardised feature's variance that the ridge classifier adds to it."""


@dataclass(frozen=True, eq=False)
class Blind:
    """The blind baseline: a classifier's scores for records without any sum; None if there are too few records."""

    scores: Scores | None = field(repr=False)

    @classmethod
    def of(cls, records: AuditRecords, is_member: Flags) -> Blind:
        """Score the records, without a sum, by a cross-validated ridge classifier on features and squared features.

        `records` are those that the test compares, with members and others of one proportion in every class.
        """
        if min(int(is_member.sum()), int((~is_member).sum())) < FEWEST:
            return cls(None)
        model = make_pipeline(
            StandardScaler(),
            FunctionTransformer(lambda rows: np.hstack([rows, rows**2])),  # differences of spread, too
            StandardScaler(),
            RidgeClassifier(alpha=SHRINKAGE * len(records), class_weight="balanced"),
        )
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED)
        rows = records.integers.astype(np.float64)
        return cls(Scores(cross_val_predict(model, rows, is_member, cv=folds, method="decision_function"), is_member))

    @property
    def area(self) -> Measure | None:
        """Area under the ROC curve of the blind baseline (a classifier without a sum); None if it has no scores."""
        return None if self.scores is None else replace(self.scores.area(min(LEVEL, current_level())), metric=BLIND)

    @property
    def tells(self) -> bool:
        """Whether the blind baseline (a classifier without a sum) separates members from others, with confidence."""
        return self.area is not None and self.area.low > metrics.CHANCE

    def allows(self, scores: Scores) -> bool:
        """Return whether a membership test counts: the blind baseline fails, or the test is better with confidence."""
        if self.scores is None or self.area is None or not self.tells:
            return True
        low, least = metrics.RATES[0], self.area.high
        is_better = scores.area().low > max(metrics.NOTABLE_AREA, least)
        rates = scores.rate(low), self.scores.rate(low)
        return is_better or (scores.supports(low) and rates[0].low > max(metrics.NOTABLE_FACTOR * low, rates[1].high))

    def lets_succeed(self, scores: Scores) -> bool:
        """Return whether a membership test succeeds, and does better than the blind baseline."""
        return metrics.succeeds(scores) and self.allows(scores)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The blind baseline's area under the ROC curve, as a tuple for a finding; empty if it has no scores."""
        return () if self.area is None else (self.area,)

    @property
    def sentence(self) -> str:
        """Warning for the report, led by a space, if the blind baseline separates members from others; else empty."""
        if self.area is None or not self.tells:
            return ""
        return (
            " But a classifier that sees these records and nothing of the session tells them apart, too, with an area "
            f"of {self.area.value:.3f} ({self.area.low:.3f} to {self.area.high:.3f}): only more than that would be "
            "membership, and less of it is no sign of protection. Give members and others of one population."
        )


@dataclass(frozen=True, eq=False)
class Trial:
    """The candidate records that a membership attack compares, with the same proportion of members in every class.

    `public` are records that nobody had, of the same classes; `rows` says which of the candidates are `records`.
    """

    attack: str
    view: View
    knowledge: Knowledge
    progress: Progress
    public: AuditRecords = field(repr=False)
    rows: Flags = field(repr=False)
    records: AuditRecords = field(repr=False)
    is_member: Flags = field(repr=False)

    @classmethod
    def of(cls, attack: str, view: View, knowledge: Knowledge, progress: Progress) -> Trial:
        """Make a trial of an attack on candidates chosen so that all classes have the same proportion of members."""
        known, public = knowledge.candidates, knowledge.public
        rows = metrics.match_classes(known.labels, knowledge.is_member)
        public = known.take(slice(0)) if public is None else public
        return cls(attack, view, knowledge, progress, public, rows, known.take(rows), knowledge.is_member[rows])

    @property
    def outside(self) -> AuditRecords:
        """The trial's records that belong to no member."""
        return self.records.take(~self.is_member)

    @cached_property
    def blind(self) -> Blind:
        """The blind baseline for the trial's records: scores by a classifier without a sum."""
        return Blind.of(self.records, self.is_member)

    def scored(self, values: Floats) -> Scores:
        """Return a test's scores `values` (n,) for the trial's records, together with the true memberships."""
        return Scores(values, self.is_member)

    def say(self, sentence: str) -> Finding:
        """Return an inconclusive finding of the attack, with `sentence` as the reason."""
        return Finding(self.attack, "", Verdict.INCONCLUSIVE, sentence)

    def find(
        self,
        tests: Mapping[Figures, Scores],
        controls: tuple[Control, ...],
        sentence: str,
        curve: str,
        *,
        lines: tuple[str, ...] = (),
        succeeded: bool = False,
        withstood: bool = True,
        worst: tuple[Measure, ...] = (),
        beside: tuple[Measure, ...] = (),
        pointed: tuple[Measure, ...] = (),
    ) -> Finding:
        """Judge membership tests against the blind baseline and the plan's claimed ε, and return the finding.

        The claim is compared only with tests that the blind baseline `allows`. `sentence` holds each test's success as
        {words}, or that of the first without its name as {word}, and {blind}. The attack succeeds where a test surely
        tells members better than the claim allows, or than the records alone do, or members of the `worst` class, or
        where something `beside` the tests did; it is withstood where all tests surely fail on records that are not told
        apart anyway, but without `withstood` they say nothing of protection. Measures `beside` them stand before those
        of the blind baseline, those of what they `pointed` at after. `lines` are the names of the tests' ROC curves,
        where these are not the figures' words.
        """
        blind, claim, found = self.blind, self.view.claim, list[Measure]()
        for figures, scores in tests.items():
            found += metrics.measure(scores, figures, claim if blind.allows(scores) else None)
        told = [f"members are {metrics.describe(scores)}" for scores in tests.values()]
        words = "; ".join(f"{figures.words}, {each}" for figures, each in zip(tests, told, strict=True))
        succeeded = succeeded or metrics.crosses(found) or any(map(blind.lets_succeed, tests.values()))
        succeeded = succeeded or (metrics.tells_class(worst) and not blind.tells)
        withstood = withstood and all(map(metrics.withstands, tests.values())) and not blind.tells
        curves = dict(zip(lines or [figures.words for figures in tests], tests.values(), strict=True))
        return Finding(
            self.attack,
            "",
            decide(succeeded, withstood, controls),
            sentence.format(words=words, word=told[0], blind=metrics.describe_class(worst) + blind.sentence),
            (*found, *worst, *beside, *blind.measures, *pointed),
            (metrics.roc(curve, curves, claim),),
            controls=controls,
        )


def try_candidates(
    attack: str, nothing: str, material_of: Callable[[View], T | None], score: Callable[[T, Trial], Finding]
) -> Run:
    """Make the `run` function of a membership attack that compares candidates with public records of their class.

    `material_of` takes from a view what it works on: None, with `nothing` as the reason, where it does not apply.
    """

    def run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
        material = material_of(views[0])
        if material is None:
            return Finding(attack, "", Verdict.NOT_APPLICABLE, nothing)
        trial = Trial.of(attack, views[0], knowledge, progress)
        if not len(trial.public):
            return trial.say("It takes public records to compare with, which were not given.")
        return score(material, trial)

    return run


def make_controls(names: tuple[str, str], draws: Iterable[Floats], few: int) -> tuple[Control, Control]:
    """Make two controls from a test's scores (n,) in several draws: the first `few` as members, and false members.

    These must be told from the others, and as many of the others, called members, must not.
    """
    drawn = tuple(draws)
    true = [Scores(each, np.arange(len(each)) < few) for each in drawn]
    false = [Scores(each[few:], np.arange(len(each) - few) < few) for each in drawn]
    return (
        Control(names[0], True, metrics.succeeds(metrics.pool_scores(true))),
        Control(names[1], False, metrics.succeeds(metrics.pool_scores(false))),
    )
