"""Run membership tests on matched candidates, and hold them against a classifier that sees the records and no sum.

Records that took part and records that did not are often of two populations, such as two hospitals or two years, and a
membership test tells the populations. Das, Zhang & Tramèr 2024 ("Blind baselines beat membership inference attacks for
foundation models"): a test counts where it does better than one that never saw what is attacked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TypeVar

import numpy as np
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from secagg.privacy import PrivacyClaim
from threat_models.attacks.attack import Progress, Run
from threat_models.attacks.membership.metrics import (
    CHANCE,
    NOTABLE_AREA,
    NOTABLE_FACTOR,
    RATES,
    Figures,
    Flags,
    Scores,
    crosses,
    describe,
    match_classes,
    measure,
    pool_scores,
    roc,
    succeeds,
    withstands,
)
from threat_models.estimation.intervals import current_level
from threat_models.findings import Control, Curve, Finding, Measure, Metric, Verdict, decide
from threat_models.session import AuditRecords, Floats, Knowledge
from threat_models.views import View

T = TypeVar("T")
BLIND = Metric(
    "blind_auc", "blind AUC, from the records alone", good="0.5: without the session they are not told apart"
)
SEED = 20_240_601
FOLDS = 5
FEWEST = 2 * FOLDS
"""Of either kind: with fewer there is no blind guess, and no interval of a test that says anything."""
LEVEL = 1e-3
"""How often records of one population may seem to be of two, at most: it costs a verdict, and proves nothing."""
SHRINKAGE = 0.1
"""Of a standardised feature's variance, which the classifier adds to it."""


@dataclass(frozen=True, eq=False)
class Blind:
    """The scores of a classifier that saw the records of a membership test and no sum; None where they are too few."""

    scores: Scores | None = field(repr=False)

    @classmethod
    def of(cls, records: AuditRecords, is_member: Flags) -> Blind:
        """Scores out of five folds by a ridge classifier on standardised features and their squares.

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
        """The area under its ROC curve; None without a guess."""
        return None if self.scores is None else replace(self.scores.area(min(LEVEL, current_level())), metric=BLIND)

    @property
    def tells(self) -> bool:
        """Whether the records are surely told apart without the sum."""
        return self.area is not None and self.area.low > CHANCE

    def allows(self, scores: Scores) -> bool:
        """Whether a test's numbers may count: the classifier tells nothing, or the test surely does better."""
        if self.scores is None or self.area is None or not self.tells:
            return True
        low, least = RATES[0], self.area.high
        is_better = scores.area().low > max(NOTABLE_AREA, least)
        rates = scores.rate(low), self.scores.rate(low)
        return is_better or (scores.supports(low) and rates[0].low > max(NOTABLE_FACTOR * low, rates[1].high))

    def lets_succeed(self, scores: Scores) -> bool:
        """Whether a test succeeds by more than what the records alone tell."""
        return succeeds(scores) and self.allows(scores)

    def measure(self, scores: Scores, figures: Figures, claim: PrivacyClaim | None) -> tuple[Measure, ...]:
        """Measure a test, beside what a claim allows where its numbers may count."""
        return measure(scores, figures, claim if self.allows(scores) else None)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The area, as a finding holds it."""
        return () if self.area is None else (self.area,)

    @property
    def sentence(self) -> str:
        """The consequence for a test, after a space; empty where the classifier does not separate the records."""
        if self.area is None or not self.tells:
            return ""
        return (
            " But a classifier that sees these records and nothing of the session tells them apart, too, with an area "
            f"of {self.area.value:.3f} ({self.area.low:.3f} to {self.area.high:.3f}): only more than that would be "
            "membership, and less of it is no sign of protection. Give members and others of one population."
        )


@dataclass(frozen=True, eq=False)
class TestResults:
    """Membership `tests` of the same candidates, each by its figures, beside what tells these apart without a sum."""

    tests: Mapping[Figures, Scores]
    blind: Blind
    claim: PrivacyClaim | None

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """Of the tests, not of the blind guess."""
        each = (self.blind.measure(scores, figures, self.claim) for figures, scores in self.tests.items())
        return tuple(chain.from_iterable(each))

    @property
    def succeeded(self) -> bool:
        """Whether a test surely tells members better than the claim allows, or than the records alone do."""
        return crosses(self.measures) or any(map(self.blind.lets_succeed, self.tests.values()))

    @property
    def withstood(self) -> bool:
        """Whether all tests surely fail on records that are not told apart anyway."""
        return all(map(withstands, self.tests.values())) and not self.blind.tells

    @property
    def words(self) -> str:
        """Each test's success, as part of a sentence."""
        return "; ".join(f"{figures.words}, members are {describe(scores)}" for figures, scores in self.tests.items())

    @property
    def word(self) -> str:
        """The same of the first test alone, without its name."""
        return f"members are {describe(next(iter(self.tests.values())))}"

    def roc(self, title: str) -> Curve:
        """The tests' curves."""
        return roc(title, {figures.words: scores for figures, scores in self.tests.items()}, self.claim)


@dataclass(frozen=True, eq=False)
class Trial:
    """Candidates for an attack's tests of membership: members and others of one proportion in every class.

    `public` are records that nobody had, of the same classes.
    """

    attack: str
    view: View
    knowledge: Knowledge
    progress: Progress
    public: AuditRecords = field(repr=False)
    records: AuditRecords = field(repr=False)
    is_member: Flags = field(repr=False)

    @property
    def outside(self) -> AuditRecords:
        """The candidates that took no part."""
        return self.records.take(~self.is_member)

    def scored(self, values: Floats) -> Scores:
        """Scores from a test's values of the candidates (n,)."""
        return Scores(values, self.is_member)

    def say(self, sentence: str) -> Finding:
        """Find that the attack is inconclusive, and why."""
        return Finding(self.attack, "", Verdict.INCONCLUSIVE, sentence)

    def find(
        self,
        tests: Mapping[Figures, Scores],
        controls: tuple[Control, ...],
        sentence: str,
        curve: str,
        *,
        succeeded: bool = False,
        withstood: bool = True,
        beside: tuple[Measure, ...] = (),
        pointed: tuple[Measure, ...] = (),
    ) -> Finding:
        """Judge the tests beside a blind guess. `sentence` holds their {words} or {word} (`TestResults`), and {blind}.

        The attack succeeded too where something `beside` the tests did; without `withstood` they say nothing of
        protection. Measures `beside` them stand before those of the blind guess, those of what they `pointed` at after.
        """
        blind = Blind.of(self.records, self.is_member)
        judged = TestResults(tests, blind, self.view.claim)
        return Finding(
            self.attack,
            "",
            decide(succeeded or judged.succeeded, withstood and judged.withstood, controls),
            sentence.format(words=judged.words, word=judged.word, blind=blind.sentence),
            (*judged.measures, *beside, *blind.measures, *pointed),
            (judged.roc(curve),),
            controls=controls,
        )


def try_candidates(
    attack: str, nothing: str, material_of: Callable[[View], T | None], score: Callable[[T, Trial], Finding]
) -> Run:
    """Make the run of an attack that tells members from others of their class, by public records.

    `material_of` takes from a view what it works on: None, with `nothing` as the reason, where it does not apply.
    """

    def run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
        material, public = material_of(views[0]), knowledge.public
        if material is None:
            return Finding(attack, "", Verdict.NOT_APPLICABLE, nothing)
        if public is None or not len(public):
            why = "It takes public records to compare with, which were not given."
            return Finding(attack, "", Verdict.INCONCLUSIVE, why)
        rows = match_classes(knowledge.candidates.labels, knowledge.is_member)
        records, is_member = knowledge.candidates.take(rows), knowledge.is_member[rows]
        return score(material, Trial(attack, views[0], knowledge, progress, public, records, is_member))

    return run


def make_controls(names: tuple[str, str], draws: Iterable[Floats], few: int) -> tuple[Control, Control]:
    """Judge the scores (n,) of several draws, in each of which the first `few` records are members.

    These must be told from the others, and as many of the others, called members, must not.
    """
    drawn = tuple(draws)
    true = [Scores(each, np.arange(len(each)) < few) for each in drawn]
    false = [Scores(each[few:], np.arange(len(each) - few) < few) for each in drawn]
    return (
        Control(names[0], True, succeeds(pool_scores(true))),
        Control(names[1], False, succeeds(pool_scores(false))),
    )
