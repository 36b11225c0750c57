"""What a run's report must say beside its numbers, and which records no run may take."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from methods.method import effort_of
from secagg.data import Dataset
from secagg.data.records import BAD
from secagg.errors import BadInput
from secagg.experiments.features import Features
from secagg.experiments.outcome import SimulationResult
from secagg.experiments.seeding import REPRODUCIBLE
from secagg.experiments.settings import SimulationSettings
from secagg.networks import TrainedModel
from secagg.privacy import Unit
from secagg.privacy.claim import weak_delta
from secagg.session.explanation import doubts_of_updates

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
    diverged = _of_divergence(run, features)
    noted = (*noted, *diverged, *_of_repetition(run))
    run = replace(run, diverged=bool(diverged))
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
    units, name = (run.clients, "clients") if settings.unit == Unit.CLIENT else (records, "records")
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


def _of_divergence(run: SimulationResult, features: Features) -> tuple[str, ...]:
    """Training that ended no better than a guess that knows nothing, whose loss is log C, on the records trained on.

    Models begin near that loss, and steps that are not too large go down from it; members send nothing where their
    training leaves the numbers. Noise can make a good model sure of its few errors too: where it is right more than
    half way from the most frequent class's share to 1, a large loss is no divergence.
    """
    if run.federated is None or not isinstance(run.head, TrainedModel) or not run.head.predicts:
        return ()
    plan = run.federated.setup.plan
    (loss, right, most), blind = features.training_fit(run.head, plan.grid), math.log(len(plan.classes))
    if loss < blind or (right > (1 + most) / 2 and not math.isnan(loss)):
        return ()
    noise = ", or less noise" if math.isfinite(run.settings.epsilon) else ""
    said = f"a loss of {loss:.3g} on training records, not below {blind:.3g} of a guess that knows nothing"
    return (f"training diverged: {said}; take a smaller rate{noise}",)


def _of_repetition(run: SimulationResult) -> tuple[str, ...]:
    """Exact runs of methods that train differ from time to time, whatever --seed says."""
    settings = run.settings
    if run.federated is None or math.isfinite(settings.epsilon) or settings.noise_seed is not None:
        return ()
    if not effort_of(run.federated.setup.sums).parameters:
        return ()
    return ("seed does not fix what members draw to train: give a noise seed (--noise-seed) for the same bits again",)


def _of_classes(dataset: Dataset) -> tuple[str, ...]:
    absent = np.setdiff1d(np.arange(len(dataset.classes)), dataset.train.labels)
    if not len(absent):
        return ()
    named = ", ".join(dataset.classes[index] for index in absent[:NAMED]) + (", …" if len(absent) > NAMED else "")
    numbered = dataset.classes == tuple(map(str, range(len(dataset.classes))))
    hint = "; labels count from 0, and numbers without a record are classes too" if numbered else ""
    return (f"{len(absent)} of {len(dataset.classes)} classes have no training record ({named}){hint}",)
