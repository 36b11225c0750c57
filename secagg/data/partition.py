"""Partitions of the training records over simulated clients.

iid             a random permutation, cut into parts whose sizes differ by at most one
dirichlet:ALPHA for each class, shares over clients drawn from Dirichlet(ALPHA, …, ALPHA) (Hsu, Qi & Brown
                2019); a small ALPHA gives each class to few clients, and clients may stay empty
shards:K        every client holds K classes, every class is held, and a class is cut evenly among its
                holders (after McMahan et al. 2017; no client sees more than K classes)
column:NAME     one client per distinct value of a raw column, in sorted order; the seed plays no part
column:NAME:K   K clients per value, in that order: a random permutation of its records, cut as iid is
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from secagg.data.records import BAD, columns_of
from secagg.errors import BadInput

Parts = tuple[NDArray[np.int64], ...]
FORMS = "iid, dirichlet:ALPHA, shards:K, column:NAME or column:NAME:K"


def partition(
    labels: NDArray[np.int64], columns: Mapping[str, NDArray[np.str_]], spec: str, clients: int | None, seed: int
) -> Parts:
    """Assign every record to exactly one client; return each client's indices, ascending. Parts may be empty.

    `clients` ≥ 1; `column:…` also takes None, as the column fixes it. `seed` ≥ 0. Bad records (label -1)
    are of no class: dirichlet and shards deal them evenly.
    Raises BadInput for an unknown form, an impossible parameter or another number of clients.
    """
    if seed < 0:
        raise BadInput(f"the seed is {seed}", remedy="give a seed of 0 or more")
    form, _, parameter = spec.partition(":")
    generator = np.random.default_rng(seed)
    if form == "column":
        return _by_column(columns, parameter, clients, generator)
    if clients is None or clients < 1:
        raise BadInput(f"cannot divide the records over {clients} clients", remedy="give 1 client or more")
    if spec == "iid":
        parts = np.array_split(generator.permutation(len(labels)), clients)
    elif form == "dirichlet":
        parts = _dirichlet(labels, clients, _alpha(spec, parameter), generator)
    elif form == "shards":
        parts = _shards(
            labels,
            clients,
            _number(
                parameter,
                f"partition {spec!r}: K is a number of classes, 1 or more",
                "for example shards:2",
            ),
            generator,
        )
    else:
        raise BadInput(f"unknown partition {spec!r}", remedy=f"give {FORMS}")
    return tuple(np.sort(part).astype(np.int64) for part in parts)


def _dirichlet(
    labels: NDArray[np.int64], clients: int, alpha: float, generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    pieces = _bad_records(labels, clients)
    for label in _present(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        shares = generator.dirichlet(np.full(clients, alpha))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for client, piece in enumerate(np.split(members, cuts)):
            pieces[client].append(piece)
    return [np.concatenate(piece) for piece in pieces]


def _shards(
    labels: NDArray[np.int64], clients: int, each: int, generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Deal the classes, in random order, round and round: client i gets places i·K … i·K + K − 1."""
    classes = generator.permutation(_present(labels))
    if each > len(classes) or clients * each < len(classes):
        needed = math.ceil(len(classes) / clients)
        remedy = f"give shards:K with K from {needed} to {len(classes)}"
        raise BadInput(f"{clients} clients with {each} classes each cannot hold {len(classes)} classes", remedy=remedy)
    pieces = _bad_records(labels, clients)
    for place, label in enumerate(classes):
        holders = np.arange(place, clients * each, len(classes)) // each
        members = generator.permutation(np.flatnonzero(labels == label))
        for holder, piece in zip(holders, np.array_split(members, len(holders)), strict=True):
            pieces[holder].append(piece)
    return [np.concatenate(piece) for piece in pieces]


def _present(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(labels[labels != BAD])


def _bad_records(labels: NDArray[np.int64], clients: int) -> list[list[NDArray[np.int64]]]:
    """Start every client's list of pieces with its even share of the bad records, mostly none."""
    return [[part] for part in np.array_split(np.flatnonzero(labels == BAD), clients)]


def _by_column(
    columns: Mapping[str, NDArray[np.str_]], parameter: str, clients: int | None, generator: np.random.Generator
) -> Parts:
    name, _, each = parameter.partition(":") if parameter not in columns else (parameter, "", "")
    if name not in columns:
        raise BadInput(f"the data set has no column {name!r}", remedy=columns_of(columns))
    values, owner = np.unique(columns[name], return_inverse=True)
    parts = [np.flatnonzero(owner == index) for index in range(len(values))]
    if each:
        number = _number(
            each, f"partition 'column:{parameter}': K is a number of clients, 1 or more", "for example column:domain:3"
        )
        parts = [np.sort(piece) for part in parts for piece in np.array_split(generator.permutation(part), number)]
    if clients not in (None, len(parts)):
        remedy = f"leave out the number of clients or give {len(parts)}"
        raise BadInput(f"column {name!r} gives {len(parts)} clients but {clients} were asked for", remedy=remedy)
    return tuple(parts)


def _alpha(spec: str, text: str) -> float:
    try:
        alpha = float(text)
    except ValueError:
        alpha = math.nan
    if not (math.isfinite(alpha) and alpha >= 1e-3):
        raise BadInput(f"partition {spec!r}: ALPHA is a number of 0.001 or more", remedy="for example dirichlet:0.05")
    return alpha


def _number(text: str, problem: str, remedy: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise BadInput(problem, remedy=remedy)
    return int(text)
