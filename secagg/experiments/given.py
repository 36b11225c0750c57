"""The data of simulations, sweeps and comparisons, as users give them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from os import PathLike, fspath
from typing import Any

from secagg.agreement.schema import GUIDE as SCHEMA_GUIDE
from secagg.agreement.schema import load_schema
from secagg.data import Dataset, open_dataset
from secagg.data.memory import dataset_of
from secagg.data.sources import open_with_test
from secagg.errors import BadInput

ARRAYS = ("features", "labels", "test_features", "test_labels")


def given_dataset(dataset: Any, grid: Mapping[str, Any]) -> Dataset:
    """The data set itself, that of a name or path (`open_dataset`), or that of four arrays (`dataset_of`).

    Where the grid has a finite ε a bad record is no reason to refuse yet. Raises BadInput, naming `dataset`, for
    anything else, for arrays without held-out ones as well.
    """
    if isinstance(dataset, Dataset):
        return dataset
    epsilons = grid.get("epsilon", ())
    tolerant = isinstance(epsilons, Iterable) and any(each != math.inf for each in epsilons)
    if isinstance(dataset, str | PathLike):
        return open_dataset(fspath(dataset), tolerant=tolerant)
    if isinstance(dataset, tuple | list) and len(dataset) == len(ARRAYS):
        return dataset_of(*dataset, tolerant=tolerant)
    many = f" of {len(dataset)}" if isinstance(dataset, tuple | list) else ""
    raise BadInput(
        f"dataset is a {type(dataset).__name__}{many}, no data with held-out records",
        remedy=f"give a data set (open_dataset), a name or path, or arrays: ({', '.join(ARRAYS)})",
    )


def open_simulated(
    say: Callable[[str], None],
    name: str,
    epsilon: float,
    label: str | None,
    schema: str | None,
    image_size: int | None,
    test: str | None = None,
) -> Dataset:
    """The data of simulations whose smallest epsilon this is; with noise a bad record is no reason to refuse."""
    known = load_schema(schema) if schema else None
    size = (image_size,) if image_size else None
    how: dict[str, Any] = {"label": label, "schema": known, "tolerant": math.isfinite(epsilon), "image_size": size}
    data = open_with_test(name, test, **how) if test is not None else open_dataset(name, **how)
    if data.schema is not None and schema is None and label is not None:
        say("the schema was derived from the pooled data; a real plan needs a public one (--schema)")
        say(f"how to write it: {SCHEMA_GUIDE}")
    for note in data.notes:
        say(f"note: {note}")
    return data
