"""`simulate`: run a whole plan in one process, from a data set to an evaluated head.

The plan, the ring, the thresholds and the state machines are those of a real federation; only sockets, disks and the
signed frames around the messages are missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.data import Dataset
from secagg.data.records import BAD
from secagg.encoding import Integers
from secagg.errors import BadInput
from secagg.experiments.baselines import is_baseline, run_baseline
from secagg.experiments.checkpoints import Checkpoint, CheckpointFolder
from secagg.experiments.client_accuracy import adapt_clients, measure_personal
from secagg.experiments.features import Clock, Features
from secagg.experiments.input_data import given_data
from secagg.experiments.outcome import Federated, SimulationResult
from secagg.experiments.provenance import data_sha256
from secagg.experiments.reference import References, is_own_reference, is_pooled, pooled_result, reference_key
from secagg.experiments.rounds import RoundListener, RoundLog, Watcher, watcher_for
from secagg.experiments.seeding import REPRODUCIBLE, Randomness
from secagg.experiments.session import SessionCost, run_session
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulated_federation import SimulatedFederation
from secagg.features import Progress
from secagg.features.accelerator import Accelerator
from secagg.heads import Evaluation, LinearHead
from secagg.networks import TrainedModel
from secagg.plan_facts.explanation import doubts_of_updates
from secagg.plan_facts.records import LocalRecords
from secagg.privacy import Unit
from secagg.privacy.claim import weak_delta
from secagg.randomness import OperatingSystem
from secagg.session import Rounds, RoundSetup, SumResult, conclude, contribution_of
from secagg.system.engines import Engine
from secagg.system.threads import one_blas_thread


@dataclass(frozen=True)
class Callbacks:
    """Functions that are called with the progress of a simulation, one for each of its phases.

    `extracting` counts records while a backbone's program extracts features, `playing` sees each round as it ends,
    `referring` counts the rounds of the reference, and `adapting` the clients that have adapted the head.
    """

    extracting: Progress | None = None
    playing: Watcher | None = None
    referring: Progress | None = None
    adapting: Progress | None = None


NO_CALLBACKS = Callbacks()


def simulate_dataset(
    dataset: Dataset,
    settings: SimulationSettings,
    callbacks: Callbacks = NO_CALLBACKS,
    engine: Engine | Accelerator | None = None,
    keep: Path | None = None,
) -> SimulationResult:
    """Simulate a plan with all its rounds, or a baseline, over a data set.

    A backbone's program extracts features in the processes of `engine`, if there is one, or on a graphics card: then
    without noise, as no promise about records can rest on what a batch computes. Rounds that have ended are
    kept in the folder `keep`, and not repeated by another call of the same. Raises BadInput, or SessionAborted below a
    threshold.
    """
    refuse_records(dataset, settings)  # before features are extracted
    if isinstance(engine, Accelerator) and math.isfinite(settings.epsilon):
        problem = f"features that {engine.device} computes in batches carry no promise of epsilon {settings.epsilon:g}"
        raise BadInput(problem, remedy="leave out --device, or take --epsilon inf")
    if isinstance(engine, Accelerator) and keep is not None:
        raise BadInput("a device's features cannot go on from kept rounds", remedy="leave out --device or --keep")
    clock = Clock()
    features = Features.of(dataset, settings, callbacks.extracting, engine)
    clock.lap("features")
    kept = CheckpointFolder(keep, settings, data_sha256(dataset)) if keep is not None else None
    result = simulate_features(features, settings, clock, callbacks, kept=kept)
    if kept is not None:
        kept.forget()
    return result


def simulate_features(
    features: Features,
    settings: SimulationSettings,
    clock: Clock,
    callbacks: Callbacks = NO_CALLBACKS,
    references: References | None = None,
    kept: CheckpointFolder | None = None,
) -> SimulationResult:
    """Simulate a plan or a baseline over features extracted before.

    Runs over the same data may share `references`, a cache of reference accuracies.
    """
    refuse_records(features.dataset, settings)
    federate = partial(_federate, callbacks=callbacks, references=references, kept=kept)
    run = run_baseline if is_baseline(settings.method) else federate
    return with_notes(run(features, settings, clock), features)


def _federate(
    features: Features,
    settings: SimulationSettings,
    clock: Clock,
    callbacks: Callbacks,
    references: References | None,
    kept: CheckpointFolder | None,
) -> SimulationResult:
    """Run every round of the plan, evaluate the head that results, and compute its reference over pooled records."""
    federation = SimulatedFederation.of(features, settings)
    setup, members, notes = federation.setup, federation.members, federation.notes
    clock.lap("quantise")
    log = RoundLog(features, setup, settings.every, callbacks.playing)
    last, result, measured = _play(federation, settings, clock, log, kept)
    head, evaluation = result.require_artifact(), log.points[-1].evaluation
    reference = _reference(federation, settings, last, result, evaluation, references, callbacks.referring)
    clock.lap("reference")
    adapted = None
    if settings.adaptation is not None:
        if not isinstance(head, LinearHead):
            raise BadInput(f"method {settings.method} gives no head that could be adapted")
        how = (head, settings.method, setup.plan.grid, settings.adaptation, callbacks.adapting)
        adapted = adapt_clients(features, tuple(federation.rows.values()), *how)
    clock.lap("adaptation")
    return SimulationResult(
        settings=settings,
        dataset=features.dataset.name,
        clients=len(members),
        head=head,
        evaluation=evaluation,
        reference=reference,
        by_domain=features.by_domain(head.evaluate, setup.plan.grid) if head.predicts else (),
        metrics=features.score(head, setup.plan.grid) if head.predicts else None,
        promise=setup.facts.claim.sentence() if setup.facts.claim is not None else None,
        bad_records=sum(each.bad for each in members.values()),
        federated=Federated(last, result, log.points[-1].upload_bytes),
        notes=(*notes, *result.doubts),
        seconds=clock.laps,
        client_seconds=sum(measured.client_cpu.values()) / len(members),
        server_seconds=sum(measured.server_seconds.values()),
        adapted=adapted,
        personal=log.points[-1].personal,
        rounds=tuple(log.points) if setup.rounds > 1 else (),
    )


def _play(
    federation: SimulatedFederation,
    settings: SimulationSettings,
    clock: Clock,
    log: RoundLog,
    kept: CheckpointFolder | None,
) -> tuple[RoundSetup, SumResult, SessionCost]:
    """Play the rounds after the last checkpoint; return the last round's setup and result, and the cost of all."""
    checkpoint = kept.recall() if kept is not None else Checkpoint()
    measured, openings = checkpoint.measured, checkpoint.openings
    log.points += checkpoint.points
    clock.add(checkpoint.seconds)
    prepare_seeded = partial(_prepare, federation.randomness)
    for played in play_rounds(federation, federation.dropouts, prepare_seeded, clock.lap, checkpoint):
        setup, result = played.setup, played.result
        measured.add(played.measured)
        personal = partial(measure_personal, federation.features, setup, result, played.states, federation.rows)
        log.end(setup, result, measured.client_bytes, personal)
        clock.lap("evaluation")
        if kept is not None and not setup.is_last:
            openings = replace(checkpoint, openings=openings).after(setup, result)
            kept.keep(setup.number, Checkpoint(openings, played.states, tuple(log.points), measured, clock.laps))
    return played.setup, played.result, measured


def _reference(
    federation: SimulatedFederation,
    settings: SimulationSettings,
    last: RoundSetup,
    result: SumResult,
    own: Evaluation | None,
    references: References | None,
    progress: Progress | None,
) -> Evaluation | None:
    setup = federation.setup
    if not settings.reference or not result.require_artifact().predicts:
        return None
    if not federation.dropouts and is_own_reference(last, result.members):
        return own

    def compute() -> Evaluation | None:
        pooled = pooled_result(setup, federation.members, federation.randomness.source("reference"), progress)
        return federation.features.measure(pooled.require_artifact().evaluate, setup.plan.grid)

    if references is None or not is_pooled(setup):
        return compute()
    return references.recall(reference_key(setup, repr((settings.leave_out, settings.validate))), compute)


def simulate(
    features: Any,
    labels: Any = None,
    *,
    test_features: NDArray[Any] | None = None,
    test_labels: NDArray[Any] | None = None,
    classes: Sequence[str] | None = None,
    on_round: RoundListener | None = None,
    **settings: Any,
) -> SimulationResult:
    """Simulate a federation over feature vectors (n, d) with labels (n,), class numbers or names (see `dataset_of`).

    `features` may also be a data set (`open_dataset`), its name or its path, which brings the other arrays. Keyword
    arguments are the fields of `SimulationSettings`, with the command line's names and defaults; `clients` may also be
    an id for each record, or for each client an array of its rows, and features and labels lists with an array for each
    client. `sweep`, `compare`, `tune` and `audit` take the same. `on_round`, which they do not take, is called with an
    `EndedRound` after each round of a plan. Raises BadInput, or SessionAborted below a threshold, or what it raises.

    >>> simulate(x, y, clients=10, partition="dirichlet:0.1").evaluation  # doctest: +SKIP
    """
    if on_round is not None and not callable(on_round):
        raise BadInput(f"on_round cannot be of type {type(on_round).__name__}", remedy="give a function, or None")
    dataset, settings = given_data(features, (labels, test_features, test_labels, classes), settings)
    chosen = SimulationSettings.from_values(settings)
    with one_blas_thread():
        watcher = None if on_round is None else watcher_for(on_round)
        return simulate_dataset(dataset, chosen, Callbacks(playing=watcher))


simulate.__doc__ = f"{simulate.__doc__}\n{SimulationSettings.listed()}"


@dataclass(frozen=True, eq=False)
class PlayedRound:
    """One simulated round: each client's vector and the private state that it keeps, the result, and the cost."""

    setup: RoundSetup
    vectors: Mapping[int, Integers] = field(repr=False)
    result: SumResult
    measured: SessionCost
    states: Mapping[int, bytes] = field(repr=False)


def play_rounds(
    federation: SimulatedFederation,
    dropouts: Mapping[int, str],
    prepare: Callable[[RoundSetup, LocalRecords, int, bytes], tuple[Integers, bytes]],
    lap: Callable[[str], None] = lambda name: None,
    checkpoint: Checkpoint | None = None,
) -> Iterator[PlayedRound]:
    """Simulate every round of the plan and yield each; a client that drops out stays away.

    `lap` is called with the name of each phase. With cohorts only those that are drawn contribute. `prepare` makes a
    member's vector from its records, its index and its state after the round before. Rounds before the `checkpoint` are
    not played again.
    """
    rounds: Rounds[SumResult] = Rounds(federation.setup)
    states = dict.fromkeys(federation.members, b"")
    if checkpoint is not None and checkpoint.openings:
        rounds.go_on_at(checkpoint.session_at(federation.setup))
        states |= checkpoint.states
        dropouts = dict.fromkeys(dropouts, federation.setup.protection.leaving[0])
    for setup in rounds:
        measured, vectors = SessionCost(), {}
        for member in setup.context.clients:
            with measured.client(member):
                own = prepare(setup, federation.members[member], member, states[member])
            vectors[member], states[member] = own
        lap("statistics")
        source = federation.randomness.source("opening", setup.number)
        opened = run_session(setup, federation.keys, vectors.__getitem__, dropouts, source)
        measured.add(opened.measured)
        lap("secure_sum")
        with measured.server("head"):
            result = conclude(setup, opened.members, opened.total)
        lap("head")
        yield PlayedRound(setup, vectors, result, measured, dict(states))
        dropouts = dict.fromkeys(dropouts, setup.protection.leaving[0])
        rounds.ended(result, result.broadcast)


def prepare(setup: RoundSetup, records: LocalRecords, member: int, state: bytes) -> tuple[Integers, bytes]:
    """Return a member's contribution to a round, its share of the noise included, and its next private state."""
    return contribution_of(setup, records, OperatingSystem(), member, state)


def _prepare(
    randomness: Randomness, setup: RoundSetup, records: LocalRecords, member: int, state: bytes
) -> tuple[Integers, bytes]:
    source = randomness.source("contribution", setup.number, member)
    return contribution_of(setup, records, source, member, state)


MOST_CLASSES = 10_000
"""Most classes of a simulated plan."""
VALIDATED = "accuracies are measured on the clients' own records: in a federation a release that no epsilon covers"
DRAWN = "seed does not fix what members draw to train: give a noise seed (--noise-seed) for the same bits again"
NAMED = 5
"""Most classes without a record that a note names."""


def refuse_records(dataset: Dataset, settings: SimulationSettings) -> None:
    """Raise BadRecord for a bad record if ε is infinite, and BadInput for labels of too many classes.

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
    """Add notes to a result: on settings without effect, and on its data, backbone, noise, δ and training."""
    dataset, settings = features.dataset, run.settings
    train, test = dataset.train, dataset.test
    held_out = test.bad if test is not None else 0
    noted = [*run.notes, *settings.remarks]
    if settings.validate and test is not None:
        aside = f"{len(test)} of {len(train) + len(test)} training records"
        noted.append(f"{aside} are set aside for validation; {VALIDATED}")
    noted += features.map.notes
    if run.federated is not None:
        noted += doubts_of_updates(run.federated.setup.facts, run.federated.setup.sum)
    if math.isfinite(settings.epsilon) and settings.delta is not None:
        units = (run.clients, "clients") if settings.unit == Unit.CLIENT else (len(train), "records")
        noted += filter(None, [weak_delta(settings.delta, *units)])
    if settings.at_least > len(train):
        noted.append(f"at least {settings.at_least} records are stated, but the clients have {len(train)}")
    if run.bad_records or held_out:
        noted.append(
            f"{run.bad_records} of {len(train)} training records are bad and count as zero; {held_out} of "
            f"{len(test) if test is not None else 0} held-out records are bad and are not scored"
        )
    diverged = _of_divergence(run, features)
    noted += _of_classes(dataset)
    if run.metrics is not None and run.evaluation is not None:
        share = int(run.metrics.confusion.sum(axis=1).max()) / run.evaluation.total
        if run.evaluation.accuracy <= share:
            always = f"always naming the most frequent class ({100 * share:.2f} %)"
            noted.append(f"the head is no better than {always}")
    noted += diverged
    if run.federated is not None and math.isinf(settings.epsilon) and settings.noise_seed is None:
        trains = [kind for kind in run.federated.setup.facts.sums if kind.effort.parameters]
        noted += [] if all(kind.is_additive for kind in trains) else [DRAWN]  # records' gradients draw nothing
    promise = run.promise
    if settings.has_known_noise:
        noted.insert(0, f"{REPRODUCIBLE}: whoever knows the seed {settings.noise_seed} takes the noise off again")
        promise = promise and f"{REPRODUCIBLE}; drawn afresh: {promise}"
    return replace(run, diverged=bool(diverged), bad_held_out=held_out, notes=tuple(noted), promise=promise)


def _of_divergence(run: SimulationResult, features: Features) -> tuple[str, ...]:
    """Return a note where the loss on training records ended no lower than log C, the loss of a uniform guess.

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


def _of_classes(dataset: Dataset) -> tuple[str, ...]:
    absent = np.setdiff1d(np.arange(len(dataset.classes)), dataset.train.labels)
    if not len(absent):
        return ()
    named = ", ".join(dataset.classes[index] for index in absent[:NAMED]) + (", …" if len(absent) > NAMED else "")
    numbered = dataset.classes == tuple(map(str, range(len(dataset.classes))))
    hint = "; labels count from 0, and numbers without a record are classes too" if numbered else ""
    return (f"{len(absent)} of {len(dataset.classes)} classes have no training record ({named}){hint}",)
