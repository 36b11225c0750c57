"""The table of further measures: which rows it has, and what stands in them."""

import math

import pytest

from secagg.experiments.results import Run, student_interval
from secagg.experiments.tables import by_epsilon, measures_table

VALUES = (0.7, 0.8)


def run(value: float | None, epsilon: float, positive: str | None = None) -> Run:
    """A run of which every measure but the AUC, which it has not, is `value`; refused where this is None."""
    settings = {"method": "fedcgs", "epsilon": epsilon}
    if value is None:
        return Run(settings, None, "refused")
    measure = {"value": value, "low": value - 0.1, "high": value + 0.05}
    known = dict.fromkeys(("balanced_accuracy", "f1", "calibration_error"), measure)
    return Run(settings, {"metrics": {**known, "auc": None, "positive_class": positive}})


def test_several_seeds_have_a_mean_and_its_interval() -> None:
    """The mean over seeds with half the width of Student's interval; a dash for what no record tells."""
    table = measures_table("d", "ε", by_epsilon("fedcgs", [run(value, 1.0) for value in VALUES]))
    low, _ = student_interval(VALUES)
    half = 100 * (0.75 - max(0.0, low))
    assert table is not None
    assert table.rows == (("fedcgs", "1", f"75.00 ± {half:.2f}", "–", f"75.00 ± {half:.2f}", f"75.00 ± {half:.2f}"),)


def test_one_seed_has_its_own_interval_and_refusals_are_counted() -> None:
    """In brackets the run's own interval; a row by growing ε; none for an ε of which every run was refused."""
    runs = [run(0.8, math.inf), run(None, math.inf), run(None, 1.0)]
    table = measures_table("d", "ε", by_epsilon("fedcgs", runs))
    assert table is not None
    (row,) = table.rows
    assert row[1:3] == ("∞", "80.00 (70.00–85.00) (n = 1)")


@pytest.mark.parametrize(("positive", "said"), [("ill", "of class ill"), (None, "means over the classes")])
def test_the_caption_says_of_what(positive: str | None, said: str) -> None:
    """AUC and F1 are those of the positive class where there are two, and means of more."""
    table = measures_table("d", "ε", by_epsilon("fedcgs", [run(0.8, 1.0, positive)]))
    assert table is not None
    assert said in table.caption


def test_no_table_without_measures() -> None:
    """Baselines without one head are measured by accuracy alone."""
    assert measures_table("d", "ε", by_epsilon("x", [Run({"epsilon": 1.0}, {"metrics": None})])) is None
