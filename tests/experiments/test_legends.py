"""Legends of figures: they lie within the figure, however long the names are, and show short names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from secagg.experiments import figures
from secagg.experiments.comparison import compare_dataset
from secagg.experiments.results import summarise
from secagg.experiments.sweep import Contender, SweepResult, sweep_dataset
from tests.experiments.test_sweep import dataset

LONG = "fedavg[gradients=1 rate=1 clip=4 server=momentum server_rate=0.5 rounds=1 model=softmax steps=1 batch=10]"
NOISE: dict[str, Any] = {"epsilon": [2.0, 8.0], "delta": [1e-3], "adjacency": ["add-remove"]}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    """Runs of a method at two ε, to be given any name."""
    grid = {"method": ["prototypes"], "clients": [4], "reference": [False], **NOISE}
    return sweep_dataset(dataset(), grid, 1, tmp_path_factory.mktemp("swept"), workers=1)


def overhang(figure: Figure) -> float:
    """How many pixels of the figure's legend lie outside of it, or under the axes' own box; 0 for none."""
    drawn, own = figure.legends[0].get_window_extent(), figure.bbox
    return max(own.x0 - drawn.x0, drawn.x1 - own.x1, own.y0 - drawn.y0, drawn.y1 - figure.axes[0].bbox.y0, 0.0)


def drawn(monkeypatch: pytest.MonkeyPatch, plot: Any) -> Figure:
    """The figure that a function draws, as it is when it is saved."""
    found: list[Figure] = []
    monkeypatch.setattr(
        figures, "save", lambda figure, *_, **__: (FigureCanvasAgg(figure).draw(), found.append(figure))
    )
    plot()
    FigureCanvasAgg(found[0]).draw()
    return found[0]


@pytest.mark.parametrize("names", [["a", "b"], [LONG, "short"], [LONG, LONG + "2", LONG + "3", LONG + "4"]])
def test_legends_lie_within_the_figure(swept: SweepResult, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Short names stand side by side, long ones below each other and on several lines; none is cut off."""
    row = summarise(swept.runs)[0]
    rows = [replace(row, label=name) for name in names]
    figure = drawn(monkeypatch, lambda: figures.plot_accuracy(rows, [Path("unused.svg")]))
    assert overhang(figure) == 0
    assert figure.axes[0].bbox.height > 150  # pixels, of 7 cm at 100 an inch: the axes keep their height
    assert figure.legends[0]._ncols == (1 if LONG in names else 2)


def test_comparisons_show_short_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row, a figure's legend and the table for LaTeX have the short name; its parameters stand in results.json."""
    contenders = [Contender.read("near=prototypes"), Contender("fedcgs")]
    grid: dict[str, Any] = {"clients": [4], "radius": [8.0], "reference": [False]}
    result = compare_dataset(dataset(), contenders, grid, 1, tmp_path, workers=1)
    figure = drawn(monkeypatch, lambda: result.plot([Path("unused.svg")]))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["near", "fedcgs"]
    assert "near &" in (tmp_path / "table.tex").read_text()
    assert [run["settings"]["method"] for run in result.to_json()["runs"]] == ["prototypes", "fedcgs"]
