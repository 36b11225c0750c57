"""What a run's report must say beside its numbers, and which records no run may take."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from secagg.data import Dataset
from secagg.data.records import BAD
from secagg.errors import BadInput
from secagg.experiments.features import Features
from secagg.experiments.outcome import SimulationResult
from secagg.experiments.seeding import REPRODUCIBLE
from secagg.experiments.settings import SimulationSettings
from secagg.parties.explanation import doubts_of_updates
from secagg.privacy import Unit
from secagg.privacy.claim import weak_delta

MOST_CLASSES = 10_000
"""Of a plan."""
VALIDATED = "accuracies are measured on the clients' own records: in a federation a release that no epsilon covers"
NAMED = 5
"""Classes without a record that a note names."""


def refuse_records(dataset: Dataset, settings: SimulationSettings) -> None:
    """Raise BadRecord for a bad record where no noise hides that it was left out, BadInput for labels far apart.

    With a finite ε a bad record counts as zero and no other record can tell: a refusal would tell of it.
    """
    for records in filter(None, (dataset.train, dataset.test)):
        if math.isinf(settings.epsilon) and records.bad:
            index = int(np.argmax(records.labels == BAD))
            problem = "it cannot be used, and only noise lets a record be left out"
            raise records.origin.refusal(index, problem, "mend or remove it, or give a finite epsilon")
    if len(dataset.classes) > MOST_CLASSES:
        found = len(np.unique(dataset.train.labels[dataset.train.labels != BAD]))
        problem = f"labels that go up to {len(dataset.classes) - 1}, of which {found} occur, make too many classes"
        raise BadInput(problem, remedy=f"number the classes from 0; {MOST_CLASSES} are the most")


def remarked(run: SimulationResult, features: Features) -> SimulationResult:
    """The run, whose report also says what was asked for in vain, and what to know of data, backbone and δ."""
    dataset, settings = features.dataset, run.settings
    held_out = dataset.test.bad if dataset.test is not None else 0
    noted = (*run.notes, *settings.remarks, *_of_validation(settings.validate, dataset), *features.map.notes)
    noted = (
        *noted,
        *_of_noise(run),
        *_of_delta(run, len(dataset.train)),
        *_of_statement(settings.at_least, len(dataset.train)),
    )
    noted = (*noted, *_of_bad_records(run.bad_records, held_out, dataset), *_of_classes(dataset), *_of_chance(run))
    if not settings.has_known_noise:
        return replace(run, bad_held_out=held_out, notes=noted)
    promise = f"{REPRODUCIBLE}; drawn afresh: {run.promise}" if run.promise is not None else None
    noted = (f"{REPRODUCIBLE}: whoever knows the seed {settings.noise_seed} takes the noise off again", *noted)
    return replace(run, bad_held_out=held_out, notes=noted, promise=promise)


def _of_validation(share: float, dataset: Dataset) -> tuple[str, ...]:
    """How many training records nobody holds, as they are measured on, and what that would be in a federation."""
    if not share or dataset.test is None:
        return ()
    whole = len(dataset.train) + len(dataset.test)
    return (f"{len(dataset.test)} of {whole} training records are set aside for validation; {VALIDATED}",)


def _of_noise(run: SimulationResult) -> list[str]:
    """A noise that drowns what it is added to."""
    return doubts_of_updates(run.federated.setup) if run.federated else []


def _of_delta(run: SimulationResult, records: int) -> tuple[str, ...]:
    """A δ of 1/n or more lets one unit in n be published outright."""
    settings = run.settings
    units, name = (run.clients, "clients") if settings.unit == Unit.SILO else (records, "records")
    if math.isinf(settings.epsilon) or settings.delta is None:
        return ()
    weak = weak_delta(settings.delta, units, name)
    return (weak,) if weak else ()


def _of_statement(stated: int, records: int) -> tuple[str, ...]:
    return (f"at least {stated} records are stated, but the clients have {records}",) if stated > records else ()


def _of_bad_records(train: int, held_out: int, dataset: Dataset) -> tuple[str, ...]:
    if not train and not held_out:
        return ()
    tested = len(dataset.test) if dataset.test is not None else 0
    trained = f"{train} of {len(dataset.train)} training records are bad and count as zero"
    return (f"{trained}; {held_out} of {tested} held-out records are bad and are not scored",)


def _of_chance(run: SimulationResult) -> tuple[str, ...]:
    """A head that is no better on the held-out records than always naming their most frequent class."""
    if run.metrics is None or run.evaluation is None:
        return ()
    share = int(run.metrics.confusion.sum(axis=1).max()) / run.evaluation.total
    if run.evaluation.accuracy > share:
        return ()
    return (f"the head is no better than always naming the most frequent class ({100 * share:.2f} %)",)


def _of_classes(dataset: Dataset) -> tuple[str, ...]:
    absent = np.setdiff1d(np.arange(len(dataset.classes)), dataset.train.labels)
    if not len(absent):
        return ()
    named = ", ".join(dataset.classes[index] for index in absent[:NAMED]) + (", …" if len(absent) > NAMED else "")
    hint = "; labels count from 0" if dataset.classes[0] == "0" and absent[0] == 0 else ""
    return (f"{len(absent)} of {len(dataset.classes)} classes have no training record ({named}){hint}",)
