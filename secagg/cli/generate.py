"""`secagg generate`: generate images from the mean vectors that a `fedbip` session released, and train a classifier."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from secagg.cli.console import Speaker, format_accuracy, refuse_existing, two_columns
from secagg.cli.options import FormatOption
from secagg.errors import BadInput
from secagg.features import backbone_digest
from secagg.features.pipeline import Pipeline
from secagg.heads import load_as, save_safetensors
from secagg.networks import program_named
from secagg.networks.exported import PREFIX, admit
from secagg.networks.slot_means import read_slot_means
from secagg.randomness import OperatingSystem
from secagg.system.plugins import warning_of

PICTURES, SHEET, CLASSIFIER = "pictures", "sheet.png", "classifier.safetensors"
SHOWN = 12
"""Number of pictures in a row of the contact sheet."""


def generate(
    speaker: Speaker,
    head: Annotated[Path, typer.Option(help="head.safetensors of a fedbip session.")],
    backbone: Annotated[str, typer.Option(help="diffusers:FOLDER, the model of the plan.")],
    out: Annotated[Path, typer.Option(help="New folder for pictures, a sheet of them and the classifier.")],
    count: Annotated[int, typer.Option(min=1, help="Pictures of each class in each domain.")] = 50,
    steps: Annotated[int, typer.Option(min=1, max=1000, help="Steps of the sampler.")] = 50,
    strength: Annotated[float, typer.Option(help="From which part of the schedule: 1 is all of it.")] = 1.0,
    guidance: Annotated[
        float,
        typer.Option(help="Weight of the prompt; 7.5: the default of Stable Diffusion; 1: no guidance."),
    ] = 7.5,
    start: Annotated[str, typer.Option(help="noised, or released: as the authors' code starts.")] = "noised",
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same pictures on one machine.")] = 0,
    classify: Annotated[bool, typer.Option(help="Train a classifier on the pictures.")] = True,
    model: Annotated[
        Path | None, typer.Option(help="An exported network to fine-tune as the classifier: code.", metavar="FILE.pt2")
    ] = None,
    test: Annotated[str | None, typer.Option(help="Labelled pictures to try the classifier on.")] = None,
    formats: FormatOption = None,
) -> None:
    """Make pictures from a session's slot means with a diffusion model, and train a classifier on them.

    All of it is derived from what the session opened, and keeps its promise. A picture is of no one record; without a
    finite epsilon a mean of few records still tells of each.
    """
    from secagg import generation

    if not classify and (test is not None or model is not None):
        raise BadInput("there is no classifier to train or to try", remedy="leave --no-classify out")
    refuse_existing(out)
    means, metadata = load_as(head, read_slot_means)
    pipeline = Pipeline.of_metadata(metadata)
    settings = generation.GenerationSettings(count, steps, strength, guidance, start=start, seed=seed)
    generation.require_names(pipeline.classes)
    named = "cnn" if model is None else admit(model)
    if model is not None:
        speaker.say(warning_of(model, named.removeprefix(PREFIX)))
    program = program_named(named, math.prod(pipeline.input_shape), len(pipeline.classes))
    latents = pipeline.feature_map(backbone).latents
    means.require_fit(len(pipeline.classes), latents.dimension)
    with speaker.progress("generating") as progress:
        pictures = generation.generate(latents, means, settings, progress)
    generation.write_pictures(pictures, pipeline.classes, out / PICTURES)
    cells = np.unique(np.column_stack([pictures.domains, pictures.labels]), axis=0)
    rows = [pictures.pixels[(pictures.domains == d) & (pictures.labels == c)][:SHOWN] for d, c in cells]
    generation.contact_sheet(rows, out / SHEET)
    speaker.say(f"wrote {len(pictures.labels)} pictures to {out / PICTURES}, and {out / SHEET}")
    content: dict[str, Any] = {"pictures": len(pictures.labels), "cells": len(cells)}
    said = [("pictures", str(len(pictures.labels)))]
    if classify:
        shape = pipeline.input_shape
        trained = generation.train_classifier(pictures, shape, program, OperatingSystem())
        digest, grid = backbone_digest("pixels", shape), generation.pictures.GRID
        of_pixels = replace(pipeline, backbone="pixels", backbone_digest=digest, expand=0, grid=grid)
        save_safetensors(trained, out / CLASSIFIER, {**of_pixels.to_metadata(), "method": "generated"})
        speaker.say(f"wrote {out / CLASSIFIER}")
        if test is not None:
            records = of_pixels.records(test)
            assessed = trained.evaluate(of_pixels.head_inputs(records.inputs), records.labels)
            content |= {"accuracy": assessed.accuracy, "accuracy_interval": list(assessed.interval)}
            said.append(("accuracy of the classifier", format_accuracy(assessed)))
    speaker.result(content, two_columns("Generation", said))
