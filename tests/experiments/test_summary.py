"""Means, intervals, series, tables and plots of runs whose accuracies are known."""

import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy import stats

from secagg.experiments.figures import plot_accuracy, save
from secagg.experiments.results import Run, student_interval, summarise
from secagg.experiments.tables import ResultTable, accuracy_table

ACCURACIES = (0.8, 0.85, 0.87)


def run(accuracy: float | None, seed: int, epsilon: float = math.inf, **settings: Any) -> Run:
    """A run with this accuracy, refused where it is None."""
    chosen = {"method": "fedcgs", "epsilon": epsilon, "refine": 0, **settings, "seed": seed}
    if accuracy is None:
        return Run(chosen, None, "refused")
    rounds = chosen["refine"] if chosen["refine"] is not None else 0 if math.isinf(epsilon) else 16
    result = {
        "accuracy": accuracy,
        "refine": rounds if chosen["method"] == "fedcgs" else 0,
        "accuracy_interval": [accuracy - 0.1, accuracy + 0.02],
        "protection": "none" if chosen["method"] == "dp-sgd" else "masked",
        "aggregate_sha256": None if chosen["method"] == "dp-sgd" else "00",
        "clients": 1 if chosen["method"] == "dp-sgd" else 5,
        "partition": "iid",
        "leave_out": None,
        "expand": 0,
        "epsilon": "inf" if math.isinf(epsilon) else epsilon,
        "delta": 1e-5,
        "adjacency": "add-remove",
        "unit": "record",
        "notes": [],
        "reproducible_noise": None,
        "normalisation": "none",
        "validate": 0.0,
        "diverged": False,
        "metrics": None,
        "not_private": [] if math.isinf(epsilon) else ["accuracy"],
    }
    return Run(chosen, result)


def grid(**settings: Any) -> list[Run]:
    """Three seeds at each of three ε, the accuracy growing with ε."""
    return [
        run(accuracy - 0.1 / epsilon, seed, epsilon, **settings)
        for epsilon in (4.0, math.inf, 1.0)
        for seed, accuracy in enumerate(ACCURACIES)
    ]


COMPARED = [
    *grid(),
    *grid(refine=16),
    *grid(method="dp-sgd"),
    *(run(None, seed, epsilon, method="dp-sgd", refine=16) for seed in range(3) for epsilon in (1.0, 4.0, math.inf)),
]


def test_a_table_says_where_normalisation_differs() -> None:
    """By default records are normalised under noise alone: then the column of ε = ∞ is no limit of the others."""
    runs = grid()
    assert "no limit of the others" not in accuracy_table("d", runs).text()
    for run in runs:
        run.result["normalisation"] = "none" if math.isinf(run.settings["epsilon"]) else "centred-unit"
    assert "under noise (centred-unit) and at ε = ∞ not so (none)" in accuracy_table("d", runs).text()


@pytest.mark.parametrize("settings", [{"method": "dp-sgd"}, {"normalise": "unit"}])
def test_a_table_compares_pipelines_by_rule_alone(settings: dict[str, str]) -> None:
    """A baseline, which has no plan, and a normalisation that somebody chose make no second pipeline."""
    runs = [run(0.5, 0), run(0.5, 0, 1.0, **settings)]
    runs[1].result["normalisation"] = "unit"
    assert "no limit of the others" not in accuracy_table("d", runs).text()


def test_student_interval() -> None:
    """The interval is the one that scipy's t distribution gives."""
    expected = stats.t.interval(0.95, 2, loc=np.mean(ACCURACIES), scale=stats.sem(ACCURACIES))
    assert student_interval(ACCURACIES) == pytest.approx(expected)


def test_student_interval_covers() -> None:
    """Of 2,000 means of four normal values 95 % lie in their intervals (false failure: 4 σ, 1 in 15,000)."""
    values = np.random.default_rng(0).normal(size=(2000, 4))
    covered = sum(low <= 0 <= high for low, high in map(student_interval, values))
    assert abs(covered - 1900) < 4 * math.sqrt(2000 * 0.95 * 0.05)


def test_cells_by_growing_epsilon() -> None:
    """A series has one cell per ε, in order, with the mean over the seeds."""
    (series,) = summarise(grid())
    assert [cell.epsilon for cell in series.cells] == [1.0, 4.0, math.inf]
    assert series.cells[2].accuracy == pytest.approx(np.mean(ACCURACIES))
    assert [cell.seeds for cell in series.cells] == [3, 3, 3]


def test_one_seed_has_its_own_interval() -> None:
    """With a single seed the interval is that of its test records."""
    (series,) = summarise([run(0.8, 0)])
    assert series.cells[0].interval == pytest.approx((0.7, 0.82))


def test_intervals_are_cut() -> None:
    """An interval of accuracies does not leave [0, 1]."""
    (series,) = summarise([run(0.0, 0), run(1.0, 1)])
    assert series.cells[0].interval == (0.0, 1.0)


def test_refused_seeds_are_counted() -> None:
    """A refused seed is left out of the mean, and the table says how many are in it."""
    runs = [run(0.5, 0), run(None, 1), run(0.6, 2)]
    (series,) = summarise(runs)
    assert (series.cells[0].seeds, series.cells[0].refused) == (2, 1)
    assert accuracy_table("data", runs).rows[0][1].endswith("(n = 2)¹")


def test_labels_say_what_varies() -> None:
    """A label names what varies among the series of its method; a series without any result is left out."""
    series = summarise(COMPARED)
    assert [each.label for each in series] == ["fedcgs, refine 0", "fedcgs, refine 16", "dp-sgd"]
    assert [each.unprotected for each in series] == [False, False, True]


def test_table() -> None:
    """Rows are series and columns are ε; a dash stands where there is no result."""
    table = accuracy_table("data", [*COMPARED, run(0.5, 0, 8.0), run(0.5, 1, 8.0), run(0.5, 2, 8.0)])
    assert table.header == ("ε", "1", "4", "8", "∞")
    assert table.rows[0][3] == "50.00"
    assert table.rows[1][3] == "–"
    low, high = student_interval(ACCURACIES)
    assert table.rows[0][4] == f"84.00 ± {50 * (high - low):.2f}"
    assert "Student-t interval" in table.caption
    assert "(clients 5, partition iid, delta 1e-5, adjacency add-remove, unit record" in table.caption
    assert table.rows[3] == ("dp-sgd, refine 16", "–¹", "–¹", "–", "–¹")
    refused, note = table.notes
    assert refused == "¹ Refused: refused."
    assert note.startswith("Not private: accuracies are counted on held-out records without noise")
    assert note in table.text()


def test_diverged_training_is_marked() -> None:
    """A cell with a run whose training diverged says so in a note, the others do not."""
    runs = [run(0.5, seed, epsilon) for seed in range(2) for epsilon in (1.0, 4.0)]
    runs[1].result["diverged"] = True
    table = accuracy_table("data", runs)
    assert [cell[-1] for cell in table.rows[0][1:]] == ["0", "¹"]
    assert table.notes[0] == "¹ Training diverged."


def test_table_of_one_seed() -> None:
    """With one seed the cells and the caption show the Clopper–Pearson interval; without noise no δ is stated."""
    table = accuracy_table("data", [run(0.8, 0)])
    assert table.rows == (("fedcgs", "80.00 (70.00–82.00)"),)
    assert "Clopper–Pearson" in table.caption
    assert "delta" not in table.caption
    assert table.notes == ()


def test_table_of_mixed_seeds() -> None:
    """Where refusals leave one seed in some cells, the caption explains both kinds of interval."""
    table = accuracy_table("data", [*grid(), run(0.8, 0, 8.0), run(None, 1, 8.0), run(None, 2, 8.0)])
    assert table.rows[0][3] == "80.00 (70.00–82.00) (n = 1)¹"
    assert "¹ Refused: refused." in table.notes
    assert "Student-t" in table.caption
    assert "Clopper–Pearson" in table.caption


@pytest.mark.parametrize(
    ("refused", "said"), [(0, "mean over 3 seeds ±"), (1, "mean over up to 3 seeds ±"), (2, "mean over 3 seeds ±")]
)
def test_caption_claims_no_seed_that_was_refused(refused: int, said: str) -> None:
    """Where some means are over fewer seeds than others, the caption says so; one seed's number is no mean."""
    fewer = [run(None if seed < refused else 0.8, seed, 8.0) for seed in range(3)]
    assert said in accuracy_table("data", [*grid(), *fewer]).caption
    alone = accuracy_table("data", [run(0.8, 0), run(0.9, 1), run(None, 2)])
    assert "mean over 2 seeds ±" in alone.caption


def test_text_formats() -> None:
    """Markdown and LaTeX hold every cell, with what is special to them escaped; text is aligned."""
    table = ResultTable("50 % of a_b", ("ε", "∞"), (("x|y", "1 ± 2"), ("column:A_B & C", "3–4")), ("¹² a & b",))
    assert "| x\\|y | 1 ± 2 |" in table.markdown()
    latex = table.latex()
    assert "\\caption{50 \\% of a\\_b}" in latex
    assert "    $\\varepsilon$ & $\\infty$ \\\\\n    \\midrule" in latex
    assert "    column:A\\_B \\& C & 3--4 \\\\\n    \\bottomrule" in latex
    assert "\n\n¹² a & b\n" in table.markdown()
    assert "\\end{tabular}\n  \\par\\footnotesize $^{1}$$^{2}$ a \\& b\n" in latex
    lines = table.text().splitlines()
    assert lines[-2:] == ["50 % of a_b", "¹² a & b"]
    assert len({len(line) for line in lines[:4]}) == 1


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        (grid(refine=None), True),
        ([*grid(refine=None), *grid(refine=16)], True),
        (grid(refine=16), False),
        ([each for each in grid(refine=None) if math.isfinite(each.settings["epsilon"])], False),
        (grid(method="dp-sgd", refine=None), False),
    ],
    ids=["auto", "auto and 16", "16", "noise alone", "no rounds"],
)
def test_rounds_that_only_noise_has_are_said(runs: list[Run], says: bool, tmp_path: Path) -> None:
    """Where the rule gives noisy runs rounds and those at ε = ∞ none, table and plot say so in one sentence."""
    notes = [note for note in accuracy_table("data", runs).notes if note.startswith("By refine auto there are 16")]
    assert len(notes) == says
    plot_accuracy(summarise(runs), [tmp_path / "plot.svg"])
    assert ("(ε = ∞; auto: one sum)" in (tmp_path / "plot.svg").read_text()) == says


def test_notes_of_a_figure_do_not_lie_on_its_legend(tmp_path: Path) -> None:
    """Of the notes and the legend below a plot neither covers the other: no two texts of the figure overlap."""
    figure = Figure(figsize=(5, 3), layout="constrained")
    figure.add_subplot().plot([0, 1], label="fedcgs")
    figure.legend(loc="outside lower center")
    save(figure, [tmp_path / "plot.svg"], known_noise=False, notes=["By refine auto there are 16 rounds. " * 6])
    texts = [each for each in figure.findobj(Text) if "fedcgs" in each.get_text() or "refine" in each.get_text()]
    first, second = (each.get_window_extent() for each in texts)
    assert not first.overlaps(second)


def test_baseline_with_an_epsilon_is_not_called_unprotected(tmp_path: Path) -> None:
    """DP-SGD makes no secure sum, and is called without protection only where it has no finite ε either."""
    for runs, label in (
        (grid(method="dp-sgd"), "ε alone, no secure sum"),
        ([run(0.8, 0, method="dp-sgd")], "no protection"),
    ):
        plot_accuracy(summarise(runs), [tmp_path / "plot.svg"])
        assert f"<!-- dp-sgd ({label}) -->" in (tmp_path / "plot.svg").read_text()


@pytest.mark.parametrize(
    "runs", [COMPARED, [run(0.8, 0), run(0.9, 0, refine=4)], grid()[:3]], ids=["ε", "inf", "one ε"]
)
def test_plot(runs: list[Run], tmp_path: Path) -> None:
    """The plot is 12 cm wide in both formats, the same bytes each time, and names every series that has a result."""
    files = [tmp_path / "plot.png", tmp_path / "plot.svg"]
    plot_accuracy(summarise(runs), files)
    before = [file.read_bytes() for file in files]
    plot_accuracy(summarise(runs), files)
    assert [file.read_bytes() for file in files] == before
    assert int.from_bytes(before[0][16:20], "big") == pytest.approx(12 / 2.54 * 300, abs=1)
    ElementTree.parse(files[1])  # noqa: S314 (written above)
    text = files[1].read_text()
    for series in summarise(runs):
        assert f"<!-- {series.label}" in text
