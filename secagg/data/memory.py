"""A data set from arrays in memory, as `secagg.simulate` and `secagg.Client` take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.data.arrays import MAX_CLASSES
from secagg.data.faults import Faults
from secagg.data.records import BAD, Dataset, Records
from secagg.encoding.grid import Origin
from secagg.errors import BadInput

KINDS = "integers from 0, or the classes' names"
REMEDY = "mend or remove the record"


def dataset_of(
    features: Any,
    labels: Any,
    test_features: Any = None,
    test_labels: Any = None,
    classes: Sequence[str] | None = None,
    *,
    tolerant: bool = False,
) -> Dataset:
    """A data set of feature vectors (n, d) with labels (n,), and of held-out ones (m, d) with labels (m,) if given.

    Labels are integers in 0…C−1 (floats and booleans that are), or names. `classes` names the C classes in order;
    without it they are the training labels' names, sorted, or the numbers up to the largest. Raises BadInput for arrays
    of other shapes or types, and BadRecord, unless `tolerant`, for a feature that is NaN or infinite and for a label
    that is of no class; with it such a record is bad (see `Records`).
    """
    if (test_features is None) != (test_labels is None):
        raise BadInput("test_features and test_labels go together", remedy="give both, or none")
    given = _labels_of("labels", labels)
    names = tuple(map(str, classes)) if classes is not None else _names(given)
    train = _records("features", features, "labels", given, names, tolerant)
    test = None
    if test_features is not None:
        held_out = _labels_of("test_labels", test_labels)
        test = _records("test_features", test_features, "test_labels", held_out, names, tolerant)
        if test.inputs.shape[1] != train.inputs.shape[1]:
            raise BadInput(
                f"test_features has {test.inputs.shape[1]} features per record, features has {train.inputs.shape[1]}"
            )
    return Dataset("arrays", "features", train, test, names, schema=None, bound=None, parts=None)


def _labels_of(name: str, labels: Any) -> NDArray[Any]:
    """Labels as floats or as text. Raises BadInput for anything else, and for none."""
    given = np.asarray(labels)
    if given.dtype.kind == "O" and all(isinstance(each, str) for each in given.flat):
        given = given.astype(np.str_)
    if given.dtype.kind not in "biufU":
        raise BadInput(f"{name} are of type {given.dtype}", remedy=f"give {KINDS}")
    if given.ndim != 1 or not len(given):
        raise BadInput(
            f"{name} has shape {given.shape}", remedy="give one label for each record, and one record or more"
        )
    return given if given.dtype.kind == "U" else given.astype(np.float64)


def _names(labels: NDArray[Any]) -> tuple[str, ...]:
    if labels.dtype.kind == "U":
        return tuple(np.unique(labels).tolist())
    whole = _whole(labels)
    return tuple(str(label) for label in range(int(labels[whole].max(initial=-1)) + 1))


def _whole(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Where numeric labels are integers from 0 to 65,535."""
    return np.asarray((labels >= 0) & (labels < MAX_CLASSES) & (labels == np.floor(labels)))


def _records(
    name: str, inputs: Any, label_name: str, labels: NDArray[Any], names: tuple[str, ...], tolerant: bool
) -> Records:
    try:
        features = np.asarray(inputs, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"{name} are no numbers", remedy="give an array (n, d) of numbers") from None
    if features.ndim != 2:
        raise BadInput(f"{name} has shape {features.shape}", remedy="give a row of d numbers for each of n records")
    if len(features) != len(labels):
        raise BadInput(f"{name} holds {len(features)} records, {label_name} {len(labels)} labels")
    faults = Faults(Origin.of(name, np.arange(1, len(features) + 1)), tolerant=tolerant)
    finite: NDArray[np.bool_] = np.all(np.isfinite(features), axis=1)
    faults.add(~finite, "a feature is NaN or infinite", REMEDY)
    classes = np.full(len(labels), BAD, dtype=np.int64)
    if labels.dtype.kind == "U":
        places = {each: place for place, each in enumerate(names)}
        classes[:] = [places.get(label, BAD) for label in labels.tolist()]
    else:
        whole = _whole(labels)
        faults.add(~whole, f"the label is no integer from 0 to {MAX_CLASSES - 1}", f"labels count from 0; {REMEDY}")
        classes[whole] = np.where(labels[whole] < len(names), labels[whole], BAD)
    unknown = f"the label is none of the {len(names)} classes"
    faults.add(classes == BAD, unknown, f"name every class in `classes`, or {REMEDY}")
    return Records(features, classes, {}, faults.origin).discard(faults.bad)
