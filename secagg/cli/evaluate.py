"""`secagg predict` and `secagg verify`: what comes after a session."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.cli.console import JsonOption, QuietOption, Speaker, percent, read_head, refuse_unwritable, two_columns
from secagg.errors import BadInput, SecaggError, TranscriptInvalid
from secagg.head import evaluate
from secagg.head import predict as classes_of
from secagg.parties import Pipeline
from secagg.parties.verification import verify_transcript

INCONCLUSIVE = 4
"""The exit code where a transcript is consistent and no more."""


def predict(
    head: Annotated[Path, typer.Option(help="head.safetensors of a session.")],
    data: Annotated[str, typer.Option(help="Labelled records of the plan's kind.")],
    backbone: Annotated[str | None, typer.Option(help="Where the backbone's file is.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write one predicted class name per line.")] = None,
    json_to: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Apply a head to labelled records and say how often it is right."""
    speaker = Speaker(quiet=quiet, json_to=json_to)
    if out is not None:
        refuse_unwritable(out)
    linear, metadata = read_head(head)
    pipeline = Pipeline.of_metadata(metadata)
    with speaker.progress(f"predicting {data}") as progress:
        records = pipeline.records(data)
        features = pipeline.head_inputs(records.inputs, backbone, progress)
        assessed = evaluate(linear, features, records.labels)
    if out is not None:
        names = [pipeline.classes[label] for label in classes_of(linear, features)]
        out.write_text("\n".join(names) + "\n", encoding="utf-8")
        speaker.say(f"wrote {out}")
    content: dict[str, Any] = {
        "records": assessed.total,
        "correct": assessed.correct,
        "accuracy": assessed.accuracy,
        "accuracy_interval": list(assessed.interval),
    }
    speaker.result(content, two_columns("Prediction", [("accuracy", percent(assessed))]))


def verify(
    transcripts: Annotated[
        list[Path], typer.Argument(help="transcript.log of a party, with its uploads/ beside it; one for each round.")
    ],
    json_to: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Check transcripts offline: chain, signatures, and that the published sum is that of the accepted uploads.

    Every one is checked, whatever becomes of the others; the exit code is 3 if one does not verify, 4 if one is
    consistent and no more: the vectors beside it were purged.
    """
    speaker = Speaker(quiet=quiet, json_to=json_to)
    found: list[dict[str, Any]] = []
    tables = []
    failures: list[SecaggError] = []
    for path in transcripts:
        with speaker.busy(f"verifying {path}"):
            findings, failure = _verified(path)
        rows = [(name, ", ".join(value) if isinstance(value, list) else str(value)) for name, value in findings.items()]
        verdict = "is consistent, and no more" if "vectors" in findings else "verifies"
        tables.append(two_columns(f"{path}: the transcript {'does not verify' if failure else verdict}", rows))
        found.append(findings)
        failures += [failure] if failure else []
    if len(transcripts) > 1:
        files = [{"file": str(path), **findings} for path, findings in zip(transcripts, found, strict=True)]
        speaker.result({"transcripts": files}, *tables)
    elif not failures:
        speaker.result(found[0], *tables)
    if failures:
        raise max(failures, key=lambda failure: failure.exit_code)
    if any("vectors" in findings for findings in found):
        raise typer.Exit(INCONCLUSIVE)


def _verified(path: Path) -> tuple[dict[str, Any], SecaggError | None]:
    """What a transcript proves, or why it proves nothing."""
    try:
        return verify_transcript(path), None
    except TranscriptInvalid as error:
        return {"failure": str(error)}, TranscriptInvalid(error.record, error.problem, source=str(path))
    except BadInput as error:
        return {"failure": str(error)}, error
