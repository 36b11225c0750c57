"""The tables of one-shot methods: MPFT's two measures, and which records members have."""

from __future__ import annotations

import numpy as np
import pytest

from methods.baselines.baseline import ClientData
from tests.benchmarks.oneshot import DOMAINS, MOBILENET, TOGETHER, shares
from tests.benchmarks.personalised import CLASSES, DOMINANT, MEMBERS, RECORDS, dealt


@pytest.mark.parametrize("outside", [False, True])
def test_the_two_measures_are_those_of_equation_3(outside: bool) -> None:
    """Σ acc·n over the client's own domain or over the others, divided by Σ n of these, whatever the domains' sizes."""
    draw = np.random.default_rng(1)
    domains = np.repeat(np.arange(len(DOMAINS)), [5, 11, 7, 20])
    right = draw.random((len(DOMAINS), len(domains))) < 0.6
    test = ClientData(np.zeros((len(domains), 1)), np.zeros(len(domains), dtype=np.int64), domains)
    cells = [(i, j) for i in range(len(DOMAINS)) for j in range(len(DOMAINS)) if (i != j) == outside]
    sizes = np.bincount(domains)
    correct = sum(right[i, domains == j].mean() * sizes[j] for i, j in cells)
    wanted = correct / sum(sizes[j] for _, j in cells)
    assert shares(right, test, TOGETHER[MOBILENET], outside=outside).sum() == pytest.approx(wanted)


def test_of_one_model_for_all_both_measures_are_its_accuracy() -> None:
    """A single model's answers count once for each client, so that its ind acc and its ood acc are one number."""
    domains = np.repeat(np.arange(len(DOMAINS)), [5, 11, 7, 20])
    right = np.random.default_rng(2).random((1, len(domains))) < 0.6
    test = ClientData(np.zeros((len(domains), 1)), np.zeros(len(domains), dtype=np.int64), domains)
    both = [shares(right, test, TOGETHER[MOBILENET], outside=outside).sum() for outside in (False, True)]
    assert both == pytest.approx([right.mean()] * 2)


def test_members_have_a_fifth_of_all_classes_and_no_record_twice() -> None:
    """Each member has `RECORDS` of its own, at least four fifths of them of its three dominant classes."""
    labels = np.random.default_rng(3).integers(0, CLASSES, 20_000)
    members = dealt(labels, seed=4)
    together = np.concatenate(members)
    assert len(set(together.tolist())) == len(together) == MEMBERS * RECORDS
    for number, rows in enumerate(members):
        share = np.isin(labels[rows], DOMINANT[number % len(DOMINANT)]).mean()
        assert 0.8 <= share < 0.95
