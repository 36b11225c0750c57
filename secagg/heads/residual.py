"""MPFT's classifier: class means as a frozen head, behind a residual adapter that is trained on prototypes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.heads.adapter import Adapter
from secagg.heads.linear import ABSENT_BIAS, LinearHead
from secagg.heads.training import Recipe, fresh_layers, train

WIDTH = 128
"""Of the adapter's middle."""
LOGIT_SCALE = 100.0
"""What CLIP multiplies cosines by (the limit of its learnt exp(logit_scale)), whose text head the paper freezes."""
BATCH = 10
MOST_BATCHES = 100
"""An epoch has no more: above 1,000 prototypes batches grow."""


def adapted_head(
    prototypes: NDArray[np.float64],
    labels: NDArray[np.int64],
    counts: NDArray[np.float64],
    classes: int,
    epochs: int = 200,
) -> LinearHead:
    """Return the head for prototypes (k, d) with `labels` (k,) and the numbers of records that they stand for (k,).

    Scores are 100 times the cosine of x + adapter(x) with the classes' means; the adapter, d-128-d without biases, is
    trained as the paper's code does it: AdamW with rate 10⁻³, 10 epochs of warm-up, a cosine to `epochs`, gradients
    clipped at 1, batches of 10 prototypes that count alike, and the end once the standard deviation (the paper says
    variance) of the last 20 batch losses is below 0.001. Other than there, batches are drawn anew in each epoch and
    none is left out. The paper's head comes from CLIP's text encoder; no backbone here has one, and so the counted
    means of the prototypes stand in. Classes without prototypes are absent. Raises BadInput when all are.
    """
    if not len(prototypes):
        raise BadInput("the sum gives no prototype", remedy="use fewer slots, or a larger epsilon")
    sums = np.zeros((classes, prototypes.shape[1]))
    np.add.at(sums, labels, prototypes * counts[:, None])
    present = np.bincount(labels, minlength=classes) > 0
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    start = LinearHead(
        (LOGIT_SCALE * sums / np.where(lengths > 0, lengths, 1.0)).astype(np.float32),
        np.where(present, np.float32(0), ABSENT_BIAS),
        Adapter("residual", fresh_layers((prototypes.shape[1], WIDTH, prototypes.shape[1]), biased=False)),
    )
    recipe = Recipe(
        "adamw",
        rate=1e-3,
        epochs=epochs,
        batch=max(BATCH, math.ceil(len(prototypes) / MOST_BATCHES)),
        clip=1.0,
        warm_up=min(10, epochs),
        cosine=True,
        settled=1e-3,
    )
    return train(start, prototypes, labels, np.ones(len(labels)), recipe, frozen=True)
