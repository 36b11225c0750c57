"""`secagg predict`: what a head, or a trained model, says of labelled records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from numpy.typing import NDArray

from secagg.cli.console import (
    JsonOption,
    QuietOption,
    Speaker,
    percent,
    refuse_torch_file,
    refuse_unwritable,
    two_columns,
)
from secagg.cli.options import BackboneFileOption, FormatOption, ModelOption
from secagg.head import load_as
from secagg.models import TrainedModel, parse_artifact
from secagg.parties import Pipeline


def predict(
    head: Annotated[Path, typer.Option(help="head.safetensors of a session; a trained model too.")],
    data: Annotated[str, typer.Option(help="Labelled records of the plan's kind.")],
    backbone: BackboneFileOption = None,
    _: ModelOption = None,
    formats: FormatOption = None,
    out: Annotated[Path | None, typer.Option(help="Write one predicted class name per line.")] = None,
    json_to: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Apply a head to labelled records and say how often it is right."""
    speaker = Speaker(quiet=quiet, json_to=json_to)
    if out is not None:
        refuse_unwritable(out)
    refuse_torch_file(head)
    model, metadata = load_as(head, parse_artifact)
    pipeline = Pipeline.of_metadata(metadata)
    with speaker.progress(f"predicting {data}") as progress:
        records = pipeline.records(data)
        if isinstance(model, TrainedModel) and model.reads_inputs:
            feature_map = pipeline.feature_map(backbone, progress)
            model = model.over(feature_map)
            features: NDArray[Any] = feature_map.encoder.prepare(records.inputs)
        else:
            features = pipeline.head_inputs(records.inputs, backbone, progress)
        assessed = model.evaluate(features, records.labels)
    if out is not None:
        names = [pipeline.classes[label] for label in model.predict(features)]
        out.write_text("\n".join(names) + "\n", encoding="utf-8")
        speaker.say(f"wrote {out}")
    content: dict[str, Any] = {
        "records": assessed.total,
        "correct": assessed.correct,
        "accuracy": assessed.accuracy,
        "accuracy_interval": list(assessed.interval),
    }
    speaker.result(content, two_columns("Prediction", [("accuracy", percent(assessed))]))
