"""Input data of every experiment in Python: data sets, paths or arrays, with the client of each record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.agreement.schema import GUIDE as SCHEMA_GUIDE
from secagg.agreement.schema import load_schema
from secagg.data import Dataset, open_dataset
from secagg.data.arrays import dataset_of
from secagg.data.sources import open_with_test
from secagg.errors import BadInput


def open_simulated(
    say: Callable[[str], None],
    name: str,
    epsilon: float,
    label: str | None,
    schema: str | None,
    image_size: int | None,
    test: str | None = None,
) -> Dataset:
    """Open a data set to simulate with; bad records are refused if the smallest `epsilon` is infinite, else marked."""
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


CLIENT = "client"
"""The column that names the client of each record."""
BY_CLIENT = f"column:{CLIENT}"
REMEDY = "give a number, an id for each record, or for each client an array of its rows"


def given_data(
    features: Any, arrays: Sequence[Any], settings: Mapping[str, Any], *, listed: bool = False
) -> tuple[Dataset, dict[str, Any]]:
    """Return the data set that an experiment's arguments give, and its settings without ids of clients.

    `features`: a `Dataset`, a name or path (`open_dataset`), or features (`dataset_of`) with the four `arrays`: labels,
    test features, test labels and classes. The setting `clients` may also assign the records, see `ids_of`; with
    `listed`, where a setting may have several values, a list of numbers is those. A bad record is no reason to refuse
    yet where any epsilon is finite. Raises BadInput.
    """
    clients = settings.get("clients")
    if listed and isinstance(clients, list | tuple | range) and all(isinstance(each, Integral) for each in clients):
        clients = None
    features, labels, clients = joined(features, arrays[0], clients)
    tolerant = any(each != math.inf for each in values_of(settings.get("epsilon", math.inf)))
    dataset = _open(features, (labels, *arrays[1:]), tolerant)
    ids = ids_of(clients, len(dataset.train))
    if ids is None:
        return dataset, dict(settings)
    if settings.get("partition", BY_CLIENT) not in (BY_CLIENT, "iid"):
        raise BadInput("clients say who holds which record", remedy="leave out partition")
    train = replace(dataset.train, columns={**dataset.train.columns, CLIENT: ids})
    return replace(dataset, train=train, parts=None), {**settings, "clients": None, "partition": BY_CLIENT}


def values_of(value: Any) -> tuple[Any, ...]:
    """Return a setting's values to try: those of a list or array, or the value alone."""
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | Mapping) else (value,)


def _open(features: Any, arrays: Sequence[Any], tolerant: bool) -> Dataset:
    is_path = isinstance(features, str | PathLike)
    if (is_path or isinstance(features, Dataset)) and any(each is not None for each in arrays):
        raise BadInput("features is a data set, which has its own labels and classes", remedy="leave out the others")
    if is_path:
        return open_dataset(fspath(features), tolerant=tolerant)
    return features if isinstance(features, Dataset) else dataset_of(features, *arrays, tolerant=tolerant)


def joined(features: Any, labels: Any, clients: Any) -> tuple[Any, Any, Any]:
    """Join features and labels given as lists of arrays, one per client; return features, labels and clients.

    The clients are then ids. Raises BadInput for lists of different lengths, and where clients are given twice.
    """
    given = features if isinstance(features, list | tuple) else ()
    if not (bool(given) and all(isinstance(each, np.ndarray) and each.ndim == 2 for each in given)):
        return features, labels, clients
    if clients is not None:
        raise BadInput("features are one array for each client already", remedy="leave out clients")
    if not isinstance(labels, Sequence) or [len(each) for each in labels] != [len(each) for each in features]:
        raise BadInput("labels do not fit features", remedy="give as many labels for each client as it has records")
    ids = np.repeat(np.arange(len(features)), [len(each) for each in features])
    widths = {each.shape[1] for each in features}
    if len(widths) > 1:
        raise BadInput(f"features have {sorted(widths)} columns", remedy="give every client's records the same columns")
    return np.concatenate(features), np.concatenate([np.asarray(each) for each in labels]), ids


def ids_of(clients: Any, records: int) -> NDArray[np.str_] | None:
    """Return each record's client (n,) as text in the ids' sort order; None if `clients` does not assign records.

    Raises BadInput, naming `clients`, for another number of ids, and for rows that leave a record out or give it twice.
    """
    if clients is None or isinstance(clients, Integral | str | float):
        return None
    if isinstance(clients, list | tuple) and all(isinstance(each, np.ndarray | list | tuple) for each in clients):
        rows = [np.asarray(each) for each in clients]
        given = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
        if given.dtype.kind not in "iu" or not np.array_equal(np.sort(given), np.arange(records)):
            problem = f"clients hold {len(given)} rows for {records} records"
            raise BadInput(problem, remedy="give every row from 0 to exactly one client")
        count, places = len(rows), np.empty(records, dtype=np.int64)
        places[given] = np.repeat(np.arange(count), [len(own) for own in rows])
    else:
        ids = np.asarray(clients)
        if ids.shape != (records,) or ids.dtype.kind not in "biuUO":
            raise BadInput(f"clients has shape {ids.shape} for {records} records", remedy=REMEDY)
        known, places = np.unique(ids.astype(np.str_) if ids.dtype.kind == "O" else ids, return_inverse=True)
        count = len(known)
    width = len(str(count))
    return np.array([f"{place:0{width}d}" for place in places.tolist()], dtype=np.str_)
