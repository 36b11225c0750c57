"""HTML pages of commands, in the audit's style: one file each, without scripts or requests, every name escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib import resources
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from secagg.experiments.tables import ResultTable
from secagg.plan_facts.plan_page import PlanPage
from secagg.scoring.metrics import INTERVALS, Metrics, ScoreInterval, calibration_bins
from secagg.scoring.predictor import Calibration, Predictions, Predictor
from secagg.system.printable import escaped
from threat_models.findings import Curve, Series
from threat_models.report.svg import curve_svg


def render(template: str, style: str, **values: object) -> str:
    """Return the HTML page of a template of this package; `style` is CSS added to the audit's."""
    whole = (resources.files("threat_models.report") / "page.css").read_text(encoding="utf-8") + style
    environment = Environment(
        loader=PackageLoader("secagg.cli", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else escaped(str(value)),
    )
    return environment.get_template(template).render(
        style=Markup(whole),  # noqa: S704 (our own files)
        style_sha256=b64encode(sha256(whole.encode()).digest()).decode(),
        **values,
    )


_COMPARISON_STYLE = """
.results td, .results thead th + th { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.figure { max-width: 100%; height: auto; }
"""


def comparison_page(title: str, tables: Sequence[ResultTable], notes: Sequence[str], figure: Path) -> str:
    """Return the HTML page of a comparison; `figure` is an SVG file whose content the tables show too."""
    drawn = b64encode(figure.read_bytes()).decode()
    return render("comparison.html", _COMPARISON_STYLE, title=title, tables=tables, notes=notes, figure=drawn)


CURVES = 6
"""Most ROC curves in one figure; of more classes those with the smallest areas are drawn."""
POINTS = 200
"""Most points of one ROC curve."""
CALIBRATION = "Calibration: the nearer to the dotted line, the better"


def page_of(predictor: Predictor, found: Predictions, scored: Metrics, calibration: Calibration | None) -> str:
    """Return the HTML page of a predictor's metrics. Names in it come from others, and are escaped."""
    probabilities, labels = found.labelled
    _, sure, right = zip(*calibration_bins(probabilities, labels), strict=True)
    right_by_confidence = Series("fraction right, by confidence", sure, right)
    stated = Series("chance it states", (0.0, 1.0), (0.0, 1.0))
    shares = scored.confusion / np.maximum(scored.confusion.sum(axis=1, keepdims=True), 1)
    return render(
        "scores.html",
        _SCORES_STYLE,
        shown=_show_measure,
        scored=scored,
        found=found,
        head_sha256=predictor.model.digest,
        plan_sha256=predictor.metadata.get("plan", "–"),
        method=predictor.metadata.get("method", "–"),
        calibration=calibration,
        roc=curve_svg(_roc(scored, probabilities, labels)),
        reliability=curve_svg(Curve(CALIBRATION, "confidence", "fraction right", (right_by_confidence, stated))),
        shades=np.ceil(4 * shares).astype(int).tolist(),  # from 0 to 4, by a cell's share of its row
        intervals=INTERVALS,
    )


_SCORES_STYLE = """
.confusion { width: auto; } .confusion td { text-align: right; font-variant-numeric: tabular-nums; }
.confusion thead th { text-align: right; }
.d1 { background: #eaf3f9; } .d2 { background: #cfe4f1; } .d3 { background: #a9cfe6; } .d4 { background: #7db8da; }
.own { outline: 2px solid #1c2024; outline-offset: -2px; }
@media (max-width: 640px) { .wide th[scope="row"] { min-width: 0; } }
@media print { .confusion td { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


_PLAN_STYLE = """
.plain { columns: 2; column-gap: 32px; } .plain section { break-inside: avoid; margin: 0 0 16px; }
.plain h2 { font-size: 16px; margin: 0 0 4px; padding: 0; border: 0; } .plain p { margin: 2px 0 4px; }
.plain .banner { padding: 8px 14px; } .danger { color: var(--bad); font-weight: 600; }
.signatures { break-inside: avoid; } .signatures table { table-layout: fixed; }
.signatures td { height: 34px; border-left: 1px solid var(--line); }
@media (max-width: 640px) { .plain { columns: 1; } }
@media print {
  .plain { column-gap: 7mm; } .plain section { margin: 0 0 2.5mm; } .plain .banner { padding: 1.5mm 3mm; }
  .plain p { font-size: 9.5px; line-height: 1.35; margin: 0 0 1px; } .plain h2 { font-size: 11.5px; margin: 0 0 1px; }
  .signatures td { height: 7mm; } .signatures h2 { margin: 0; padding-top: 1.5mm; }
  header code, .signatures code { font-size: 8.5px; } header p, .signatures p { margin: 2px 0 6px; max-width: none; }
}
"""


def plan_document(page: PlanPage, technical: Sequence[tuple[str, str]]) -> str:
    """Return the HTML page of a plan, with places to sign, and the rows (name, text) of its technical part."""
    return render("plan.html", _PLAN_STYLE, page=page, rows=technical)


def _show_measure(measure: ScoreInterval | None) -> str:
    if measure is None:
        return "–"
    return f"{100 * measure.value:.1f} % ({100 * measure.low:.1f} to {100 * measure.high:.1f})"


def _roc(scored: Metrics, probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> Curve:
    areas = [(own["auc"], place) for place, own in enumerate(scored.by_class)]
    known = [(area.value, place) for area, place in areas if area is not None]
    if scored.positive is not None:
        known = [each for each in known if scored.classes[each[1]] == scored.positive]
    chosen = sorted(sorted(known)[:CURVES], key=lambda each: each[1])
    lines = [_line(scored.classes[place], area, probabilities[:, place], labels == place) for area, place in chosen]
    of = f"class {scored.positive}" if scored.positive else "each class against the others"
    of += f", the {CURVES} smallest areas" if len(known) > CURVES else ""
    chance = Series("chance", (0.0, 1.0), (0.0, 1.0))
    return Curve(f"ROC: {of}", "1 − specificity", "sensitivity", (*lines, chance))


def _line(name: str, area: float, scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> Series:
    """Return a ROC curve: sensitivity over 1 − specificity, with a threshold at each score that occurs."""
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    hits, said = np.cumsum(positive[order])[last], last + 1
    x, y = (said - hits) / (~positive).sum(), hits / positive.sum()
    kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).round().astype(np.int64))
    return Series(f"{name}, AUC {area:.3f}", (0.0, *x[kept].tolist()), (0.0, *y[kept].tolist()))
