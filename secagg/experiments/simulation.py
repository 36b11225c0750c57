"""`simulate`: a whole session in one process, from a data set to an evaluated head.

The plan, the ring, the thresholds and the state machines are those of a real federation; only sockets, disks and the
signed frames around the messages are missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.crypto.signatures import SigningKey
from secagg.data import Dataset, Origin, Records, partition
from secagg.errors import BadInput
from secagg.experiments.in_memory import STEPS, InMemorySession
from secagg.features import Expansion, FeatureMap, open_backbone, radius_of, round_up
from secagg.head import Evaluation, LinearHead, evaluate
from secagg.parties import Progress, SessionSetup, SumResult, conclude
from secagg.parties.planning import PlanChoices, PublicData, make_plan
from secagg.protection.masking.quorum import most_dropouts
from secagg.randomness import OperatingSystem
from secagg.roster import Member, Roster
from secagg.statistics import quantise

DEFAULT_CLIENTS = 5


@dataclass(frozen=True)
class SimulationSettings:
    """Everything that `simulate` can vary; the names are those of the command line.

    `clients` None: one per table of a folder, one per value of column:NAME, else 5.

    `epsilon` is math.inf: a finite one is refused, as there is no noise yet. `seed` moves the partition and the choice
    of dropouts, nothing else.
    """

    method: str = "fedcgs"
    clients: int | None = None
    partition: str = "iid"
    protection: str = "masked"
    epsilon: float = math.inf
    delta: float | None = None
    adjacency: str | None = None
    unit: str = "record"
    covariance: str = "within"
    ridge: float | None = None
    backbone: str | None = None
    expand: int = 0
    centre: float = 0.0
    radius: float | None = None
    dropouts: int = 0
    colluders: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epsilon != math.inf:
            raise BadInput(f"epsilon {self.epsilon} asks for noise, which this version cannot add", remedy="use inf")
        if self.unit not in ("record", "silo") or self.adjacency not in (None, "add-remove", "replace-one"):
            raise BadInput(f"no such unit or adjacency: {self.unit}, {self.adjacency}", remedy="see --help")
        if self.delta is not None and not 0 <= self.delta < 1:
            raise BadInput(f"delta cannot be {self.delta}", remedy="give a small probability")
        if (self.clients is not None and self.clients < 1) or self.dropouts < 0 or self.colluders < 0:
            raise BadInput("give at least one client, and no negative number of dropouts or colluders")


@dataclass(frozen=True)
class SimulationResult:
    """One run. `to_json` has the keys of the command-line contract."""

    settings: SimulationSettings
    dataset: str
    clients: int
    result: SumResult
    evaluation: Evaluation | None
    reference: Evaluation | None
    ring_bits: int
    upload_bytes: int
    radius: float
    notes: tuple[str, ...]
    seconds: Mapping[str, float] = field(repr=False)

    @property
    def head(self) -> LinearHead:
        """The head that the federation built."""
        return self.result.head

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        s, test = self.settings, self.evaluation
        return {
            "method": s.method,
            "dataset": self.dataset,
            "clients": self.clients,
            "survivors": len(self.result.members),
            "partition": s.partition,
            "seed": s.seed,
            "protection": s.protection,
            "epsilon": "inf" if math.isinf(s.epsilon) else s.epsilon,
            "delta": s.delta,
            "adjacency": s.adjacency,
            "unit": s.unit,
            "covariance": s.covariance,
            "expand": s.expand,
            "radius": self.radius,
            "accuracy": test.accuracy if test else None,
            "accuracy_interval": list(test.interval) if test else None,
            "accuracy_reference": self.reference.accuracy if self.reference else None,
            "head_sha256": self.result.head_sha256.hex(),
            "aggregate_sha256": self.result.aggregate_sha256.hex(),
            "ring": self.ring_bits,
            "vector_length": len(self.result.vector),
            "upload_bytes_per_client": self.upload_bytes,
            "seconds": dict(self.seconds),
            "notes": list(self.notes),
        }


def simulate_dataset(
    dataset: Dataset, settings: SimulationSettings, progress: Progress | None = None
) -> SimulationResult:
    """Run one simulated session over a data set. Raises BadInput, or SessionAborted below a threshold.

    `progress` is called while a backbone's program extracts features.
    """
    clock = _Clock()
    features = _feature_map(dataset, settings, progress)
    train = features.extract(dataset.train.inputs)
    test = features.extract(dataset.test.inputs) if dataset.test is not None else None
    clock.lap("features")
    radius, notes = _radius(dataset, settings, features, train)
    split = _split(dataset, settings)
    setup, keys = _set_up(dataset, settings, radius, [len(rows) for rows in split])
    integers = quantise(train, setup.plan.grid, dataset.train.origin)
    labels = dataset.train.labels
    clock.lap("quantise")

    def contribution(chosen: Any) -> NDArray[np.int64]:
        tensors = setup.method.contribute(integers[chosen], labels[chosen], len(dataset.classes), setup.plan.levels)
        return setup.layout.flatten(tensors)

    vectors = {member: contribution(rows) for member, rows in enumerate(split, start=1)}
    clock.lap("statistics")
    leaves = _leaves(settings, len(split))
    session = InMemorySession(setup.context, setup.protection, keys, vectors.__getitem__, OperatingSystem(), leaves)
    opened = session.run()
    clock.lap("secure_sum")
    result = conclude(setup, opened.members, opened.total)
    clock.lap("head")
    pooled = conclude(setup, opened.members, contribution(slice(None)))
    held_out = None if dataset.test is None or test is None else (test, dataset.test.labels)
    return SimulationResult(
        settings=settings,
        dataset=dataset.name,
        clients=len(split),
        result=result,
        evaluation=evaluate(result.head, *held_out) if held_out else None,
        reference=evaluate(pooled.head, *held_out) if held_out else None,
        ring_bits=setup.context.ring.bits,
        upload_bytes=max(opened.measured.client_bytes[member] for member in opened.members),
        radius=radius,
        notes=(*notes, *result.doubts),
        seconds=clock.laps,
    )


def simulate(
    features: NDArray[Any],
    labels: NDArray[Any],
    *,
    test_features: NDArray[Any] | None = None,
    test_labels: NDArray[Any] | None = None,
    classes: Sequence[str] | None = None,
    **settings: Any,
) -> SimulationResult:
    """Simulate a federation over feature vectors (n, d) with labels (n,) in 0…C−1.

    Keyword arguments are the fields of `SimulationSettings`, with the command line's names and defaults.
    Raises BadInput, or SessionAborted below a threshold.

    >>> simulate(x, y, clients=10, partition="dirichlet:0.1").result.aggregate_sha256  # doctest: +SKIP
    """
    train = _records("features", features, labels)
    test = None if test_features is None else _records("test_features", test_features, test_labels)
    names = tuple(classes) if classes is not None else tuple(str(label) for label in range(int(train.labels.max()) + 1))
    for records in filter(None, (train, test)):
        if len(records) and int(records.labels.max()) >= len(names):
            raise BadInput(f"a label is {int(records.labels.max())}, but there are {len(names)} classes")
    dataset = Dataset("arrays", "features", train, test, names, schema=None, bound=None, parts=None)
    try:
        chosen = SimulationSettings(**settings)
    except TypeError as error:
        raise BadInput(f"unknown setting ({error})") from None
    return simulate_dataset(dataset, chosen)


def _records(name: str, inputs: NDArray[Any], labels: NDArray[Any] | None) -> Records:
    inputs, given = np.asarray(inputs, dtype=np.float64), np.asarray(labels)
    if inputs.ndim != 2 or given.shape != (len(inputs),) or not len(inputs) or given.dtype.kind not in "iu":
        raise BadInput(f"{name} must be (n, d) with n ≥ 1 integer labels")
    if given.min() < 0:
        raise BadInput(f"{name}: labels count from 0")
    return Records(inputs, given.astype(np.int64), {}, Origin.of(name, np.arange(1, len(inputs) + 1)))


def _feature_map(dataset: Dataset, settings: SimulationSettings, progress: Progress | None) -> FeatureMap:
    spec = settings.backbone or ("pixels" if dataset.kind == "images" else "features")
    backbone = open_backbone(spec, dataset.train.inputs.shape[1:], progress=progress)
    return FeatureMap(backbone, Expansion(settings.expand) if settings.expand else None)


def _radius(
    dataset: Dataset, settings: SimulationSettings, features: FeatureMap, train: NDArray[np.float64]
) -> tuple[float, list[str]]:
    """The given radius, the public bound, or the pooled maximum; the last is said."""
    if settings.radius is not None:
        return settings.radius, []
    bound = features.bound(dataset.bound)
    if bound is not None and settings.centre == 0.0:
        return round_up(bound), []
    radius = radius_of(train, settings.centre)
    return radius, [f"the radius {radius:g} is the pooled maximum; a real plan needs a public one (--radius)"]


def _split(dataset: Dataset, settings: SimulationSettings) -> tuple[NDArray[np.int64], ...]:
    """Each client's training rows. Raises BadInput unless there are more clients than dropouts."""
    train, clients = dataset.train, settings.clients
    if dataset.parts is not None:
        if clients not in (None, len(dataset.parts)):
            raise BadInput(
                f"{dataset.name} holds {len(dataset.parts)} tables, one client each", remedy="leave out --clients"
            )
        split = tuple(rows for _, rows in dataset.parts)
    else:
        wanted = clients if settings.partition.startswith("column:") else clients or DEFAULT_CLIENTS
        split = partition(train.labels, train.columns, settings.partition, wanted, settings.seed)
    if settings.dropouts >= len(split):
        raise BadInput(f"{settings.dropouts} of {len(split)} clients cannot drop out", remedy="lower --dropouts")
    return split


def _set_up(
    dataset: Dataset, settings: SimulationSettings, radius: float, sizes: Sequence[int]
) -> tuple[SessionSetup, dict[int, SigningKey]]:
    """A plan and a roster of throw-away identities, for clients with these numbers of records."""
    keys = {member: SigningKey.generate(OperatingSystem()) for member in range(1, len(sizes) + 1)}
    server = SigningKey.generate(OperatingSystem())
    members = [Member("server", "server", server.public)]
    members += [Member(f"client-{member:04}", "client", key.public) for member, key in keys.items()]
    roster = Roster.of("simulation", members)
    parameters: list[tuple[str, Any]] = [("covariance", settings.covariance)]
    if settings.ridge is not None:
        parameters.append(("ridge", settings.ridge))
    data = PublicData(dataset.kind, dataset.train.inputs.shape[1:], dataset.classes, dataset.schema, dataset.bound)
    choices = PlanChoices(
        method=settings.method,
        parameters=tuple(parameters),
        backbone=settings.backbone,
        expand=settings.expand,
        radius=radius,
        centre=settings.centre,
        max_records=1 << max(0, (max(sizes) - 1).bit_length()),
        protection=settings.protection,
        colluders=settings.colluders,
        dropouts=min(settings.dropouts, most_dropouts(len(sizes), settings.colluders)),
        result="server",
    )
    return SessionSetup.of(make_plan(data, roster, choices, OperatingSystem()), roster), keys


def _leaves(settings: SimulationSettings, clients: int) -> dict[int, str]:
    """Who leaves, chosen by the seed, and when: spread over the steps of the protocol."""
    chosen = np.random.default_rng(settings.seed).permutation(clients)[: settings.dropouts] + 1
    steps = STEPS if settings.protection == "masked" else ("UploadHeader",)
    return {int(member): steps[(2 + place) % len(steps)] for place, member in enumerate(chosen)}


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now
