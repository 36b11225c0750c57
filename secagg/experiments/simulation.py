"""`simulate`: a whole plan in one process, from a data set to an evaluated head.

The plan, the ring, the thresholds and the state machines are those of a real federation; only sockets, disks and the
signed frames around the messages are missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from methods import method_named
from methods.baselines.paper_noise import PaperNoise
from methods.method import DOMAINS
from secagg.crypto.signatures import SigningKey
from secagg.data import Dataset
from secagg.data.records import DOMAIN
from secagg.encoding import Integers
from secagg.engines import Engine
from secagg.errors import BadInput
from secagg.experiments.adaptation import AdaptedClients, adapt_clients
from secagg.experiments.arrays import dataset_of
from secagg.experiments.baselines import BASELINES, run_baseline
from secagg.experiments.clients import split
from secagg.experiments.features import Clock, Features
from secagg.experiments.outcome import Federated, SimulationResult
from secagg.experiments.personal import measure_personal
from secagg.experiments.prototype_noise import amounts_to, noisy_contribution
from secagg.experiments.references import References
from secagg.experiments.remarks import refuse_records, remarked
from secagg.experiments.seeding import Randomness
from secagg.experiments.session import Measured, run_session
from secagg.experiments.settings import SimulationSettings, as_setting
from secagg.features import Progress, lengths_of, radius_of, round_up
from secagg.head import Artifact, Evaluation, LinearHead
from secagg.parties import LocalRecords, Prepared, Rounds, SessionSetup, SumResult, conclude, contribution_of
from secagg.parties.planning import PlanChoices, PublicData, make_plan, normalisation_for
from secagg.parties.reference import is_own_reference, is_pooled, pooled_result, reference_key
from secagg.privacy import Unit
from secagg.protection import protection_named
from secagg.randomness import OperatingSystem
from secagg.roster import Member, Roster
from secagg.statistics import Grid, Normalisation
from secagg.threads import one_blas_thread

FEWEST_STEPS = 1 << 8
"""Grid steps in the length of the median record below which a grid is said to be too coarse."""


@dataclass(frozen=True, eq=False)
class Cast:
    """A simulated plan and who takes part: throw-away keys by index, and each client's records; `rows` of the data.

    `leaves` says who drops out of the first sum, and at which step.
    """

    features: Features
    setup: SessionSetup
    keys: Mapping[int, SigningKey] = field(repr=False)
    members: Mapping[int, LocalRecords] = field(repr=False)
    rows: Mapping[int, NDArray[np.int64]] = field(repr=False)
    leaves: Mapping[int, str]
    notes: tuple[str, ...]
    randomness: Randomness

    @classmethod
    def of(cls, features: Features, settings: SimulationSettings) -> Cast:
        """Make the plan and hand out the records. Raises BadInput for settings that do not go together."""
        rows = dict(enumerate(split(features.dataset, settings), start=1))
        setup, keys, notes = _set_up(features, settings, [len(own) for own in rows.values()])
        records = LocalRecords.of(setup.plan, features.train, features.dataset.train, features.map)
        members = {member: records.take(own) for member, own in rows.items()}
        leaves = _leaves(settings, len(members))
        return cls(features, setup, keys, members, rows, leaves, tuple(notes), settings.randomness)


def simulate_dataset(
    dataset: Dataset,
    settings: SimulationSettings,
    progress: Progress | None = None,
    adapting: Progress | None = None,
    engine: Engine | None = None,
) -> SimulationResult:
    """Run one simulated plan, with all its rounds, over a data set; or a baseline.

    Raises BadInput, or SessionAborted below a threshold. `progress` is called while a backbone's program extracts
    features (in the processes of `engine`, if there is one), `adapting` while clients adapt the head, one after
    another.
    """
    refuse_records(dataset, settings)  # before features are extracted
    clock = Clock()
    features = Features.of(dataset, settings, progress, engine)
    clock.lap("features")
    return simulate_features(features, settings, clock, adapting)


def simulate_features(
    features: Features,
    settings: SimulationSettings,
    clock: Clock,
    adapting: Progress | None = None,
    references: References | None = None,
) -> SimulationResult:
    """The same over features that were extracted before, as the settings say; references may be those of other runs."""
    refuse_records(features.dataset, settings)
    federate = partial(_federate, adapting=adapting, references=references)
    run = run_baseline if settings.method in BASELINES else federate
    return remarked(run(features, settings, clock), features)


def _federate(
    features: Features,
    settings: SimulationSettings,
    clock: Clock,
    adapting: Progress | None,
    references: References | None,
) -> SimulationResult:
    """Every session of the plan, its head, and the head that the pooled records would give."""
    cast = Cast.of(features, settings)
    setup, members, notes = cast.setup, cast.members, cast.notes
    clock.lap("quantise")
    measured = Measured()
    for played in play_rounds(cast, cast.leaves, partial(_prepare, cast.randomness, settings.paper_noise), clock.lap):
        measured.add(played.measured)
    last, result = played.setup, played.result
    personal = measure_personal(cast.features, last, result, played.states, cast.rows)
    head = result.require_artifact()
    evaluation = features.evaluate(head, setup.plan.grid)
    reference = _reference(cast, settings, result, evaluation, references)
    clock.lap("reference")
    adapted = _adapt(cast, settings, head, adapting)
    clock.lap("adaptation")
    sent = max(measured.client_bytes[member] for member in result.members)
    return SimulationResult(
        settings=settings,
        dataset=features.dataset.name,
        clients=len(members),
        head=head,
        evaluation=evaluation,
        reference=reference,
        by_domain=features.by_domain(head.evaluate, setup.plan.grid),
        promise=_promise(setup, settings, list(members.values())),
        bad_records=sum(each.bad for each in members.values()),
        federated=Federated(last, result, sent),
        notes=(*notes, *result.doubts),
        seconds=clock.laps,
        client_seconds=sum(measured.client_cpu.values()) / len(members),
        server_seconds=sum(measured.server_seconds.values()),
        adapted=adapted,
        personal=personal,
    )


def _reference(
    cast: Cast, settings: SimulationSettings, result: SumResult, own: Evaluation | None, references: References | None
) -> Evaluation | None:
    """How good the same is without noise, where the settings ask for it."""
    setup = cast.setup
    if not settings.reference:
        return None
    if settings.paper_noise is None and is_own_reference(setup, result.members):
        return own

    def compute() -> Evaluation | None:
        pooled = pooled_result(setup, cast.members, cast.randomness.source("reference"))
        return cast.features.evaluate(pooled.require_artifact(), setup.plan.grid)

    if references is None or not is_pooled(setup):
        return compute()
    return references.recall(reference_key(setup, repr((settings.leave_out, settings.validate))), compute)


def _adapt(
    cast: Cast, settings: SimulationSettings, head: Artifact, progress: Progress | None
) -> AdaptedClients | None:
    if settings.adaptation is None:
        return None
    if not isinstance(head, LinearHead):
        raise BadInput(f"method {settings.method} gives no head that could be adapted")
    rows = tuple(cast.rows.values())
    grid = cast.setup.plan.grid
    return adapt_clients(cast.features, rows, head, settings.method, grid, settings.adaptation, progress)


def simulate(
    features: NDArray[Any],
    labels: NDArray[Any],
    *,
    test_features: NDArray[Any] | None = None,
    test_labels: NDArray[Any] | None = None,
    classes: Sequence[str] | None = None,
    **settings: Any,
) -> SimulationResult:
    """Simulate a federation over feature vectors (n, d) with labels (n,), numbers in 0…C−1 or names (`dataset_of`).

    Keyword arguments are the fields of `SimulationSettings`, with the command line's names and defaults.
    Raises BadInput, or SessionAborted below a threshold.

    >>> simulate(x, y, clients=10, partition="dirichlet:0.1").evaluation  # doctest: +SKIP
    """
    chosen = SimulationSettings(**{name: as_setting(name, value) for name, value in settings.items()})
    tolerant = math.isfinite(chosen.epsilon)
    dataset = dataset_of(features, labels, test_features, test_labels, classes, tolerant=tolerant)
    with one_blas_thread():
        return simulate_dataset(dataset, chosen)


simulate.__doc__ = f"{simulate.__doc__}\n{SimulationSettings.listed()}"


def _radius(features: Features, settings: SimulationSettings) -> tuple[float | None, list[str]]:
    """The given radius, the public bound, or the pooled maximum; the last is said. None: records are normalised."""
    if settings.radius is not None or normalisation_for(settings.choices(None, 1, 0)) is not Normalisation.NONE:
        return settings.radius, []
    bound = features.map.bound(features.dataset.bound)
    if bound is not None and settings.centre == 0.0:
        return round_up(bound), []
    radius = radius_of(features.train, settings.centre)
    return radius, [f"the radius {radius:g} is the pooled maximum; a real plan needs a public radius"]


def _of_grid(features: NDArray[np.float64], grid: Grid) -> list[str]:
    """What to note of a grid on which most records are next to nothing: a few that are far longer take it up."""
    if grid.is_normalised:
        return []
    median = float(np.median(lengths_of(features, grid.centre))) / grid.step
    if median >= min(FEWEST_STEPS, grid.levels / FEWEST_STEPS):
        return []
    small = f"the median record is {median:.3g} of the grid's {grid.levels} steps long and mostly rounded off"
    return [f"{small}; remove the records that are far longer than others, give a smaller radius, or normalise"]


def _set_up(
    features: Features, settings: SimulationSettings, sizes: Sequence[int]
) -> tuple[SessionSetup, dict[int, SigningKey], list[str]]:
    """A plan and a roster of throw-away identities, for clients with these numbers of records; and what to note."""
    names = [("server", "server"), *((f"client-{number + 1:04}", "client") for number in range(len(sizes)))]
    protection = protection_named(settings.protection)
    names += protection.second_roles.items()
    source = settings.randomness.source("identities")
    keys = {index: SigningKey.generate(source) for index in range(len(names))}
    roster = Roster.of("simulation", [Member(*each, keys[index].public) for index, each in enumerate(names)])
    dataset = features.dataset
    data = PublicData(dataset.kind, dataset.train.inputs.shape[1:], dataset.classes, dataset.schema, dataset.bound)
    radius, notes = _radius(features, settings)
    records = settings.max_records or 1 << max(0, (max(sizes) - 1).bit_length())
    if max(sizes) > records:
        raise BadInput(f"a client has {max(sizes)} records, more than {records}", remedy="raise max_records")
    if settings.max_records is None and settings.unit == Unit.SILO:
        notes.append(f"one client is bounded by {records} records, read off the data; a real plan fixes max_records")
    dropouts = min(settings.dropouts, protection.most_dropouts(len(sizes), settings.colluders_of(len(sizes))))
    choices = _with_domains(settings.choices(radius, records, dropouts), dataset)
    setup = SessionSetup.of(make_plan(data, roster, choices, source), roster)
    settings.refuse_dropouts(len(sizes), len(sizes) - setup.fewest)
    return setup, keys, [*notes, *_of_grid(features.train, setup.plan.grid)]


def _with_domains(choices: PlanChoices, dataset: Dataset) -> PlanChoices:
    """The choices; where the method tells domains apart and none are named, those of the training records."""
    given = dict(choices.parameters)
    if DOMAINS not in method_named(choices.method).parameters or given.get(DOMAINS):
        return choices
    names = np.unique(dataset.train.columns.get(DOMAIN, np.zeros(0, dtype=np.str_)))
    return replace(choices, parameters=tuple({**given, DOMAINS: "+".join(names.tolist())}.items()))


@dataclass(frozen=True, eq=False)
class PlayedRound:
    """One session of a simulated plan: each client's vector, what was opened, what came of it, what each keeps."""

    setup: SessionSetup
    vectors: Mapping[int, Integers] = field(repr=False)
    result: SumResult
    measured: Measured
    states: Mapping[int, bytes] = field(repr=False)


def play_rounds(
    cast: Cast,
    leaves: Mapping[int, str],
    prepare: Callable[[SessionSetup, LocalRecords, int, bytes], Prepared],
    lap: Callable[[str], None] = lambda name: None,
) -> Iterator[PlayedRound]:
    """Every session of the plan; who left one is in no later one. `lap` is told what has just been done.

    `prepare` makes a member's vector from its records, its index and what the round before left it.
    """
    rounds: Rounds[SumResult] = Rounds(cast.setup)
    states = dict.fromkeys(cast.members, b"")
    for setup in rounds:
        measured, vectors = Measured(), {}
        for member, records in cast.members.items():
            with measured.client(member):
                prepared = prepare(setup, records, member, states[member])
            vectors[member], states[member] = prepared.vector, prepared.state
        lap("statistics")
        opened = run_session(
            setup, cast.keys, vectors.__getitem__, leaves, cast.randomness.source("opening", setup.number)
        )
        measured.add(opened.measured)
        lap("secure_sum")
        with measured.server("head"):
            result = conclude(setup, opened.members, opened.total)
        lap("head")
        yield PlayedRound(setup, vectors, result, measured, dict(states))
        leaves = dict.fromkeys(leaves, setup.protection.leaving[0])
        rounds.ended(result)


def prepare(setup: SessionSetup, records: LocalRecords, member: int, state: bytes) -> Prepared:
    """What a member contributes to a round, with its own noise where the plan has clients add it."""
    return contribution_of(setup, records, OperatingSystem(), member, state)


def _prepare(
    randomness: Randomness,
    paper: PaperNoise | None,
    setup: SessionSetup,
    records: LocalRecords,
    member: int,
    state: bytes,
) -> Prepared:
    source = randomness.source("contribution", setup.number, member)
    if paper is not None:
        return Prepared(noisy_contribution(setup, records, paper, source))
    return contribution_of(setup, records, source, member, state)


def _promise(setup: SessionSetup, settings: SimulationSettings, members: list[LocalRecords]) -> str | None:
    if settings.paper_noise is not None:
        return amounts_to(setup, members, settings.paper_noise, settings.delta)
    return setup.claim.sentence() if setup.claim is not None else None


def _leaves(settings: SimulationSettings, clients: int) -> dict[int, str]:
    """Who leaves, chosen by the seed, and when: spread over the steps of the protocol."""
    chosen = np.random.default_rng(settings.seed).permutation(clients)[: settings.dropouts] + 1
    steps = protection_named(settings.protection).leaving
    return {int(member): steps[(2 + place) % len(steps)] for place, member in enumerate(chosen)}
