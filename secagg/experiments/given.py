"""The data of a sweep or a comparison, as Python's users give them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import Any

from secagg.data import Dataset, open_dataset
from secagg.data.memory import dataset_of
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
