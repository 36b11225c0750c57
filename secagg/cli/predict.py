"""`secagg predict`: predict records' classes by a head or a trained model, and score it on labelled records."""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.cli.console import Speaker, refuse_torch_file, refuse_unwritable, two_columns
from secagg.cli.options import BackboneFileOption, FormatOption, ModelOption
from secagg.errors import BadInput, BadRecord
from secagg.heads import Evaluation
from secagg.scoring.metrics import Metrics
from secagg.scoring.predictor import Calibration, Predictions, Predictor, read_head
from secagg.scoring.program import export_program
from secagg.system.extras import extra
from secagg.system.printable import as_cell

DASH = "–"
SHOWN = 10
"""Largest number of predictions, and of classes, that a terminal shows; files hold all."""


def predict(
    speaker: Speaker,
    head: Annotated[Path, typer.Option(help="head.safetensors of a session; a trained model too.")],
    data: Annotated[str, typer.Option(help="Records of the plan's kind, with labels or without.")],
    backbone: BackboneFileOption = None,
    _: ModelOption = None,
    formats: FormatOption = None,
    calibrate: Annotated[
        str | None,
        typer.Option(
            help="Labelled records of your own, to fit the probabilities to (one temperature).", metavar="FILE"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the predictions: FILE.csv with probabilities, else one class name per line."),
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option(help="Write the measures and their intervals as CSV.", metavar="FILE")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write the measures as one page, with ROC curves.", metavar="FILE")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Write backbone and head as one PyTorch program, for use without secagg.", metavar="FILE.pt2"
        ),
    ] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave rows of a table that cannot be used empty, with the reason.")
    ] = False,
) -> None:
    """Say each record's class and probabilities, and how good they are on records that have labels."""
    for path in filter(None, (out, metrics, html, export)):
        refuse_unwritable(path)
    refuse_torch_file(head)
    read = read_head(head)
    with speaker.progress(f"predicting {data}") as progress:
        predictor = Predictor.of(*read, backbone, progress)
        calibration = predictor.calibrate(calibrate) if calibrate is not None else None
        try:
            found = predictor.predict(data, calibration, skip_bad_rows=skip_bad_rows)
        except BadRecord as refusal:
            can_skip = predictor.pipeline.schema is not None and not skip_bad_rows
            remedy = f"{refusal.remedy}, or give --skip-bad-rows" if can_skip else refusal.remedy
            raise BadRecord(refusal.source, refusal.row, refusal.fault, remedy=remedy) from None
    if found.skipped:
        index, reason = next(iter(found.skipped.items()))
        first = f"row {found.records.origin.row[index]}, {reason}"
        speaker.say(f"WARNING: {len(found.skipped)} of {len(found)} rows were skipped; the first: {first}")
    if calibrate is not None and Path(calibrate).resolve() == Path(data).resolve():
        speaker.say("note: scored on the records that the temperature was fitted to, which flatters it")
    scored = found.metrics
    if scored is None and (metrics is not None or html is not None):
        raise BadInput(f"{data} has no labels to measure by", remedy="leave out --metrics and --html")
    if out is not None:
        _write_predictions(found, out)
    if scored is not None and metrics is not None:
        with metrics.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["measure", "class", "value", "low", "high"])
            writer.writerows([name, as_cell(of), each.value, each.low, each.high] for name, of, each in scored.rows())
    if scored is not None and html is not None:
        with extra("audit", "the page"):
            from secagg.cli.page import page_of

        html.write_text(page_of(predictor, found, scored, calibration), encoding="utf-8")
    if export is not None:
        export_program(predictor, export, calibration.temperature if calibration is not None else 1.0)
    for path in filter(None, (out, metrics, html, export)):
        speaker.say(f"wrote {path}")
    speaker.result(_content(predictor, found, scored, calibration), *_tables(found, scored, calibration))


def _content(
    predictor: Predictor, found: Predictions, scored: Metrics | None, calibration: Calibration | None
) -> dict[str, Any]:
    assessed = Evaluation.counted(int(scored.confusion.trace()), int(scored.confusion.sum())) if scored else None
    return {
        "head_sha256": predictor.model.digest,
        "records": len(found),
        "labelled": int(found.known.sum()),
        "skipped": len(found.skipped),
        "never_predicted": list(found.never_predicted),
        "correct": assessed.correct if assessed else None,
        "accuracy": assessed.accuracy if assessed else None,
        "accuracy_interval": list(assessed.interval) if assessed else None,
        "metrics": scored.to_json() if scored else None,
        "calibration": asdict(calibration) if calibration else None,
        "predictions": found.rows(),
    }


def _write_predictions(found: Predictions, path: Path) -> None:
    rows = found.rows()
    if path.suffix.lower() != ".csv":
        path.write_text("".join(f"{row['class'] or ''}\n" for row in rows), encoding="utf-8")
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        reason = ["skipped"] if found.skipped else []
        writer.writerow(["file", "row", "label", "predicted", *(f"p({name})" for name in found.classes), *reason])
        for row in rows:
            chances = [f"{chance:.6g}" for chance in row["probabilities"].values()] if row["class"] else []
            texts = (as_cell(row["file"]), row["row"], as_cell(row["label"] or ""), as_cell(row["class"] or ""))
            told = [as_cell(row["skipped"] or "")] if reason else []
            writer.writerow([*texts, *(chances or [""] * len(found.classes)), *told])


def _tables(found: Predictions, scored: Metrics | None, calibration: Calibration | None) -> list[str]:
    left_out = f", {len(found.skipped)} skipped" if found.skipped else ""
    rows = [("records", f"{len(found)}, {int(found.known.sum())} with a label{left_out}")]
    if found.never_predicted:
        why = "a class gate left them out, or no member had a record"
        rows.append(("never predicted", f"{', '.join(found.never_predicted)}: {why}"))
    if calibration is not None:
        fitted = f"{calibration.temperature:.3g}, fitted to {calibration.records} records"
        rows.append(("temperature", f"{fitted}: loss {calibration.before:.4f} before, {calibration.after:.4f} after"))
    if scored is None:
        return [two_columns("Prediction", rows), _first_predictions(found)]
    known = {name: each for name, each in scored.overall.items() if each is not None}
    rows += [(scored.called(name), each.to_text()) for name, each in known.items()]
    if len(scored.classes) == 2 and scored.positive is None:
        rows.append(("sensitivity", "none: the head's schema declares no positive class; each class has its own below"))
    rows.append(("in brackets", "95 % intervals; --json says of which kind"))
    if len(scored.classes) > SHOWN:
        return [two_columns("Prediction", rows)]
    header = ["class", "records", "sensitivity", "specificity", "auc", "f1", *(f"→ {name}" for name in scored.classes)]
    by_class = []
    for name, own, counts in zip(scored.classes, scored.by_class, scored.confusion.tolist(), strict=True):
        measures = (f"{100 * each.value:.2f}" if (each := own[measure]) else "–" for measure in header[2:6])
        by_class.append([name, str(sum(counts)), *measures, *map(str, counts)])
    return [two_columns("Prediction", rows), _aligned(header, by_class)]


def _first_predictions(found: Predictions) -> str:
    """Return text with the first records' predicted classes and their probabilities in per cent."""
    several = len(found.records.origin.files) > 1
    rows = []
    for row in found.rows()[:SHOWN]:
        sure = f"{100 * row['probabilities'][row['class']]:.1f}" if row["class"] else DASH
        rows.append([f"{row['file']} " * several + str(row["row"]), row["class"] or DASH, sure])
    more = f"\n  … and {len(found) - SHOWN} more: --out FILE.csv" if len(found) > SHOWN else ""
    return _aligned(["row", "class", "probability, %"], rows) + more


def _aligned(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in (header, *rows)]
    return "\n".join(f"  {'  '.join(line)}" for line in lines)
