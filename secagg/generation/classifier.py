"""A classifier trained on generated pictures alone: post-processing of what was opened."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from secagg.crypto.labels import digest
from secagg.encoding import Grid, Normalisation, inputs_of
from secagg.generation.pictures import Pictures
from secagg.networks import TrainedModel, TrainingSettings, program_named, train
from secagg.randomness import RandomSource

GRID = Grid(1.0, 1 << 16, normalisation=Normalisation.CENTRED_UNIT)
"""Pictures are brought to mean 0 and length 1, as plans of `fedavg` have them."""
TRAINING = TrainingSettings(epochs=50, rate=0.01, batch=64, momentum=0.9)
"""Epochs, rate, batch and momentum of the paper's classifier."""


def train_classifier(
    pictures: Pictures, input_shape: tuple[int, ...], classes: int, randomness: RandomSource
) -> TrainedModel:
    """Return the program `cnn` trained on generated pictures as pictures of `input_shape`. Raises BadInput.

    All of its layers: the released code builds the optimiser before it replaces the last, which stays at random.
    """
    rows = as_inputs(pictures.pixels, input_shape)
    program = program_named("cnn", rows.shape[1], classes)
    x = (inputs_of(rows, GRID) * program.scale).astype(np.float32)
    start = program.start(digest("public start", b"generated"))
    trained = train(program, start, x, pictures.labels, TRAINING, randomness)
    first = next(iter(program.shapes.values()))
    trained[: math.prod(first)] *= program.scale  # what multiplies inputs: the model takes them as they are
    return TrainedModel.of(program, trained)


def as_inputs(pixels: NDArray[np.uint8], input_shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Pictures (n, h, w, 3) uint8 as rows in [0, 1] of records of `input_shape`: grey where these have no colours."""
    scaled = pixels.astype(np.float64) / 255.0
    if input_shape[2:] in ((), (1,)):
        scaled = scaled.mean(axis=3)
    return scaled.reshape(len(pixels), -1)
