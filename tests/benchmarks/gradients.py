"""Single records' gradients in closed form beside torch's backward pass: CPU time of one record, on one thread.

`python -m tests.benchmarks.gradients`

Both ways take turns in one process, and the least of the turns counts. "Clipped and added" is what training with noise
does: the gradients, clipped, made integers and added up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from secagg.encoding.updates import sum_of_records
from secagg.experiments.tables import ResultTable
from secagg.networks import Program, program_named, record_gradients, training
from secagg.system.threads import one_blas_thread

NETWORKS = (("softmax", 784), ("softmax", 512), ("mlp:128", 784), ("mlp:128", 512))
CLASSES, RECORDS, TURNS = 10, 500, 9
CLIP, LEVELS = 1.0, 1 << 16
Gradients = Callable[[], Iterator[NDArray[np.float32]]]


def gradients_of(program: Program) -> Gradients:
    """What makes the gradients of as many random records, at random parameters."""
    source = np.random.default_rng(0)
    flat = source.normal(size=program.size) / np.sqrt(program.dimension)
    x = source.normal(size=(RECORDS, program.dimension)).astype(np.float32)
    labels = source.integers(0, CLASSES, RECORDS)
    return lambda: record_gradients(program, flat, x, labels)


def milliseconds(gradients: Gradients, *, added: bool) -> float:
    """CPU milliseconds of one record, with its clip and sum if they are to be `added`."""
    begun = time.process_time()
    for chunk in gradients():
        if added:
            sum_of_records(chunk, CLIP, LEVELS)
    return 1000 * (time.process_time() - begun) / RECORDS


def row_of(name: str, dimension: int) -> tuple[str, ...]:
    """A network's row: by torch, in closed form and how many times as fast, without and with clip and sum."""
    gradients = gradients_of(program_named(name, dimension, CLASSES))
    cells = []
    for added in (False, True):
        before, now = [], []
        for _ in range(TURNS):
            with patch.object(training, "LAYERED", frozenset()):
                before.append(milliseconds(gradients, added=added))
            now.append(milliseconds(gradients, added=added))
        cells += [f"{min(before):.3f}", f"{min(now):.3f}", f"{min(before) / min(now):.1f}"]
    return (f"`{name}`, {dimension} numbers", *cells)


def main() -> None:
    """Measure all networks and print the table."""
    columns = ("", "torch", "closed form", "times as fast", "torch, clipped and added", "closed form", "times as fast")
    caption = f"CPU milliseconds of one record, {CLASSES} classes, one thread, the least of {TURNS} turns."
    with one_blas_thread():
        print(ResultTable(caption, columns, tuple(row_of(*each) for each in NETWORKS)).markdown())


if __name__ == "__main__":
    main()
