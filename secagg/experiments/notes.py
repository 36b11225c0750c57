"""Notes for a run's report, and checks of its data before it starts."""

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
from secagg.plan_facts.explanation import doubts_of_updates
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


def with_notes(run: SimulationResult, features: Features) -> SimulationResult:
    """The run with notes on what was asked for in vain, and on its data, backbone, noise, δ and training."""
    dataset, settings = features.dataset, run.settings
    train, test = dataset.train, dataset.test
    held_out = test.bad if test is not None else 0
    noted = [*run.notes, *settings.remarks]
    if settings.validate and test is not None:
        noted.append(
            f"{len(test)} of {len(train) + len(test)} training records are set aside for validation; {VALIDATED}"
        )
    noted += features.map.notes
    if run.federated is not None:
        noted += doubts_of_updates(run.federated.setup.facts, run.federated.setup.sum)
    noted += _of_delta(run, len(train))
    if settings.at_least > len(train):
        noted.append(f"at least {settings.at_least} records are stated, but the clients have {len(train)}")
    if run.bad_records or held_out:
        noted.append(
            f"{run.bad_records} of {len(train)} training records are bad and count as zero; {held_out} of "
            f"{len(test) if test is not None else 0} held-out records are bad and are not scored"
        )
    diverged = _of_divergence(run, features)
    noted += (*_of_classes(dataset), *_of_chance(run), *diverged, *_of_repetition(run))
    promise = run.promise
    if settings.has_known_noise:
        noted.insert(0, f"{REPRODUCIBLE}: whoever knows the seed {settings.noise_seed} takes the noise off again")
        promise = promise and f"{REPRODUCIBLE}; drawn afresh: {promise}"
    return replace(run, diverged=bool(diverged), bad_held_out=held_out, notes=tuple(noted), promise=promise)


def _of_delta(run: SimulationResult, records: int) -> list[str]:
    """A δ of 1/n or more lets one unit in n be published outright."""
    settings = run.settings
    if math.isinf(settings.epsilon) or settings.delta is None:
        return []
    units, name = (run.clients, "clients") if settings.unit == Unit.SILO else (records, "records")
    return list(filter(None, [weak_delta(settings.delta, units, name)]))


def _of_chance(run: SimulationResult) -> tuple[str, ...]:
    """Whether a head is not better on the held-out records than always naming their most frequent class."""
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
    if not effort_of(run.federated.setup.facts.sums).parameters:
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
