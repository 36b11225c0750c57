"""The public data sets that come with scikit-learn, by name."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from secagg.data.derivation import derive_schema
from secagg.data.encoding import encode_table
from secagg.data.records import Dataset, Records
from secagg.data.split import Split
from secagg.data.table import Table
from secagg.encoding.grid import Origin
from secagg.system.extras import extra

NAMES = ("breast-cancer", "digits", "wine")
POSITIVE = {"breast-cancer": "malignant"}
"""The class to be recognised, where there is one."""


def open_named(name: str, cut: Split) -> Dataset:
    """Open one of `NAMES`, divided by `cut`.

    The tables' schemas are derived from the data sets themselves, which are public.
    """
    if name == "digits":
        return _digits(cut)
    with extra("experiments"):
        from sklearn import datasets

    return _table(name, datasets.load_wine() if name == "wine" else datasets.load_breast_cancer(), cut)


def _digits(cut: Split) -> Dataset:
    """1,797 grey 8×8 digits with values 0 to 16 (Alpaydin & Kaynak 1998), divided by 16; the label comes last."""
    rows = np.loadtxt(_file_of_sklearn("digits.csv.gz"), delimiter=",")
    images, labels = rows[:, :-1].reshape(-1, 8, 8) / 16.0, rows[:, -1].astype(np.int64)
    records = Records(images, labels, {}, Origin.of("digits", np.arange(1, len(labels) + 1)))
    train, test = cut(records)
    classes = tuple(str(digit) for digit in range(10))
    return Dataset("digits", "images", train, test, classes, None, math.sqrt(64), None)


def _file_of_sklearn(name: str) -> Path:
    """A file of scikit-learn's data sets; loading the library itself would take longer than all that is done here."""
    with extra("experiments"):
        found = find_spec("sklearn")
        if found is None or found.origin is None:
            raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    return Path(found.origin).parent / "datasets" / "data" / name


def _table(name: str, bunch: Any, cut: Split) -> Dataset:
    label = "class"
    names = np.array([str(target) for target in bunch.target_names])
    columns = {
        str(key): np.array([repr(float(cell)) for cell in bunch.data[:, i]])
        for i, key in enumerate(bunch.feature_names)
    }
    columns[label] = names[bunch.target]
    n = len(bunch.target)
    table = Table(name, columns, Origin.of(name, np.arange(1, n + 1)), np.zeros(n, dtype=np.bool_))
    schema = replace(derive_schema([table], label), positive=POSITIVE.get(name, ""))
    train, test = cut(encode_table(table, schema))
    return Dataset(name, "table", train, test, schema.classes, schema, schema.bound, None)
