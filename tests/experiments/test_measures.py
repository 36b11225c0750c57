"""The table of further measures: which rows it has, and what stands in them."""

import math
from typing import Any

import pytest

from secagg.experiments.comparison import Comparison
from secagg.experiments.results import Run, student_interval
from secagg.experiments.sweep import SweepResult
from secagg.experiments.tables import by_epsilon, measures_table
from tests.experiments.test_comparison import run as finished

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


def measured(method: str, seed: int, records: tuple[int, ...], value: float | None = 0.6, **settings: Any) -> Run:
    """A finished run of accuracy 0.9 on so many held-out records of each class; `value`: balanced accuracy and AUC."""
    done = finished(0.9, seed, method=method, **settings)
    assert done.result is not None
    if value is not None:
        each = {"value": value + seed / 10, "low": 0.5, "high": 0.75}
        done.result["metrics"] = {
            **dict.fromkeys(("accuracy", "balanced_accuracy", "auc", "f1", "calibration_error"), each),
            "positive_class": None,
            "classes": [{"records": count} for count in records],
        }
    return done


@pytest.mark.parametrize("records", [(151, 100), (100, 300, 200), (5, 0)])
def test_unequal_classes_have_their_measures_beside_accuracy(records: tuple[int, ...]) -> None:
    """A row of balanced accuracy and one of AUC below each method's accuracy, a dash where a baseline has neither."""
    runs = (*(measured("fedcgs", seed, records) for seed in (0, 1)), measured("dp-sgd", 0, records, None))
    low, high = (100 * end for end in student_interval([0.6, 0.7]))
    text = f"65.00 ± {max(65 - max(0, low), min(100, high) - 65):.2f}"
    swept, compared = SweepResult("d", runs).table, Comparison("d", "masked", runs).table
    assert [row[0] for row in swept.rows] == [row[0] for row in compared.rows]
    for table in (swept, compared):
        found = {row[0]: row[1] for row in table.rows}
        names = [f"{method}{what}" for method in ("fedcgs", "dp-sgd") for what in ("", ", balanced accuracy", ", AUC")]
        assert list(found) == names
        assert found["fedcgs"].startswith("90.00")
        assert found["fedcgs, balanced accuracy"] == found["fedcgs, AUC"] == text
        assert found["dp-sgd, balanced accuracy"] == found["dp-sgd, AUC"] == "–"
        assert (
            sum("Classes are unequal (the largest class has more than 1.5 times" in note for note in table.notes) == 1
        )
    assert all(table.latex() and table.markdown() and table.text() for table in (swept, compared))


@pytest.mark.parametrize(("records", "value"), [((150, 100), 0.6), ((100, 100, 149), 0.6), ((151, 100), None)])
def test_equal_or_unknown_classes_leave_the_table_as_it_is(records: tuple[int, ...], value: float | None) -> None:
    """Up to 1.5 times as many, or where no run says how many, there is accuracy alone and no note."""
    runs = (measured("fedcgs", 0, records, value),)
    for table in (SweepResult("d", runs).table, Comparison("d", "masked", runs).table):
        assert [row[0] for row in table.rows] == ["fedcgs"]
        assert not any("unequal" in note for note in table.notes)


def test_single_seed_has_the_measure_and_its_own_interval() -> None:
    """In brackets the interval of the measure, not that of the accuracy."""
    (_, balanced, area) = SweepResult("d", (measured("fedcgs", 0, (9, 1)),)).table.rows
    assert balanced[1] == area[1] == "60.00 (50.00–75.00)"


def test_domains_have_accuracy_alone() -> None:
    """Columns of single domains, and means over them, have a dash: the measures are of all held-out records."""
    run = measured("fedcgs", 0, (9, 1))
    assert run.result is not None
    domains = {name: {"accuracy": 0.9, "correct": 9, "total": 10, "left_out": False} for name in ("art", "photo")}
    run.result["by_domain"] = {"domains": domains, "in_domain": 0.9, "out_of_domain": None}
    _, balanced, _ = Comparison("d", "masked", (run,)).table.rows
    assert balanced[1:5] == ("60.00 (50.00–75.00)", "–", "–", "–")
