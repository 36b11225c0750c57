"""`secagg adapt`: train a received head further on a member's own records; nothing leaves the member."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from methods import METHODS, method_named
from secagg.cli.console import (
    Speaker,
    format_accuracy,
    refuse_torch_file,
    refuse_unwritable,
    two_columns,
)
from secagg.cli.options import BackboneFileOption, FormatOption
from secagg.data.partition import held_out
from secagg.errors import BadInput
from secagg.features.pipeline import Pipeline
from secagg.heads import save_safetensors
from secagg.heads.adaptation import Adaptation, class_means
from secagg.heads.adaptation import adapt as adapt_head
from secagg.heads.export import load_safetensors

ADAPTED = "adapted"
"""Metadata key of an adapted head's file; the value is the settings of the adaptation."""


def adapt(
    speaker: Speaker,
    head: Annotated[Path, typer.Option(help="head.safetensors of a session.")],
    data: Annotated[str, typer.Option(help="The member's own labelled records, of the plan's kind.")],
    out: Annotated[Path, typer.Option(help="Where to write the adapted head, which `predict` takes.")],
    align: Annotated[
        float | None, typer.Option(help="Weight that holds features at class means (FedCGS).", metavar="LAMBDA")
    ] = None,
    distil: Annotated[
        float | None, typer.Option(help="Weight that holds predictions at the head's (MPFT).", metavar="BETA")
    ] = None,
    shots: Annotated[int, typer.Option(min=0, help="Records of each class to train on; 0: all.")] = 0,
    backbone: BackboneFileOption = None,
    formats: FormatOption = None,
) -> None:
    """Train a received head on the member's own records; nothing leaves.

    Says how good it was and is on a fifth of the records, left out of the training: the received head is flattered
    where that fifth was in the session's sum.
    """
    if align is not None and distil is not None:
        raise BadInput("one thing holds the training", remedy="give --align LAMBDA or --distil BETA, not both")
    if align is None and distil is None:
        raise BadInput("say what holds the training", remedy="give --align LAMBDA or --distil BETA")
    adaptation = Adaptation("align", align, shots) if align is not None else Adaptation("distil", distil or 0.0, shots)
    refuse_unwritable(out, new=True)
    refuse_torch_file(head)
    received, metadata = load_safetensors(head)
    if ADAPTED in metadata:
        raise BadInput(f"{head} was adapted already, by {metadata[ADAPTED]}", remedy="start from the session's head")
    pipeline = Pipeline.of_metadata(metadata)
    means = None
    if align is not None:
        method = metadata.get("method", "")
        weights = method_named(method).traits.weights if method in METHODS else "other"
        means = class_means(received, weights, pipeline.grid)
    with speaker.progress(f"adapting to {data}") as progress:
        records = pipeline.records(data)
        features, labels = pipeline.head_inputs(records.inputs, backbone, progress), records.labels
        test = held_out(labels)
        if not test.any():
            raise BadInput(f"{data} holds too few records to leave a fifth out", remedy="give at least 3 of a class")
        adapted = adapt_head(received, features[~test], labels[~test], adaptation, means)
    save_safetensors(adapted, out, metadata | {ADAPTED: str(adaptation)})
    speaker.say(f"wrote {out}")
    before, after = (each.evaluate(features[test], labels[test]) for each in (received, adapted))
    content: dict[str, Any] = {
        "adaptation": str(adaptation),
        "records": len(labels),
        "held_out": before.total,
        "accuracy_before": before.accuracy,
        "accuracy_before_interval": list(before.interval),
        "accuracy_after": after.accuracy,
        "accuracy_after_interval": list(after.interval),
    }
    rows = [("accuracy before", format_accuracy(before)), ("accuracy after", format_accuracy(after))]
    speaker.result(content, two_columns("Adaptation, on a held-out fifth of these records", rows))
