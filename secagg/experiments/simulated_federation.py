"""A simulated federation: the plan, throw-away identities, and each client's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from methods import method_named
from methods.method import DOMAINS
from secagg.agreement.roster import Member, Roster
from secagg.crypto.labels import digest
from secagg.crypto.signatures import SigningKey
from secagg.data import Dataset, partition
from secagg.data.records import DOMAIN
from secagg.encoding import Grid, Normalisation
from secagg.encoding.grid import round_up
from secagg.errors import BadInput
from secagg.experiments.features import Features
from secagg.experiments.seeding import Randomness
from secagg.experiments.settings import DEFAULT_CLIENTS, SimulationSettings
from secagg.features import radius_of
from secagg.features.feature_map import lengths_of
from secagg.features.local_records import quantised_records
from secagg.plan_facts.planning import PublicData, make_plan, normalisation_for
from secagg.plan_facts.records import LocalRecords
from secagg.privacy import Unit
from secagg.protection import protection_named
from secagg.session import RoundSetup


def split(dataset: Dataset, settings: SimulationSettings) -> tuple[NDArray[np.int64], ...]:
    """Return the indices of each client's training records. Raises BadInput if the data do not have so many clients."""
    train, clients = dataset.train, settings.clients
    if dataset.parts is not None:
        if clients not in (None, len(dataset.parts)):
            problem = f"{dataset.name} holds {len(dataset.parts)} tables, one client each"
            raise BadInput(problem, remedy="leave out the number of clients")
        return tuple(rows for _, rows in dataset.parts)
    wanted = clients if settings.partition.startswith("column:") else clients or DEFAULT_CLIENTS
    return partition(train.labels, train.columns, settings.partition, wanted, settings.seed)


FEWEST_STEPS = 1 << 8
"""Fewest grid steps in the length of the median record; with fewer, a note says that the grid is too coarse."""


@dataclass(frozen=True, eq=False)
class SimulatedFederation:
    """A simulated plan and its parties: throw-away keys, and each client's records with their indices `rows`.

    Cohorts are drawn by the settings' seed, so that runs can be compared; `setup` is the first round's.
    `dropouts` says who drops out of the first sum, and at which step.
    """

    features: Features
    setup: RoundSetup
    keys: Mapping[int, SigningKey] = field(repr=False)
    members: Mapping[int, LocalRecords] = field(repr=False)
    rows: Mapping[int, NDArray[np.int64]] = field(repr=False)
    dropouts: Mapping[int, str]
    notes: tuple[str, ...]
    randomness: Randomness

    @classmethod
    def of(cls, features: Features, settings: SimulationSettings) -> SimulatedFederation:
        """Make the plan and assign the records to clients. Raises BadInput for settings that exclude each other."""
        rows = dict(enumerate(split(features.dataset, settings), start=1))
        setup, keys, notes = _set_up(features, settings, [len(own) for own in rows.values()])
        records = quantised_records(setup.plan, features.train, features.dataset.train, features.map)
        members = {member: records.take(own) for member, own in rows.items()}
        chosen = np.random.default_rng(settings.seed).permutation(len(members))[: settings.dropouts] + 1
        steps = protection_named(settings.protection).leaving
        dropouts = {int(member): steps[(2 + place) % len(steps)] for place, member in enumerate(chosen)}
        return cls(features, setup, keys, members, rows, dropouts, tuple(notes), settings.randomness)


def _radius(features: Features, settings: SimulationSettings) -> tuple[float | None, list[str]]:
    """Return the radius: the given one, the public bound, or the pooled maximum with a note; None if normalised."""
    if settings.radius is not None or normalisation_for(settings) is not Normalisation.NONE:
        return settings.radius, []
    bound = features.map.bound(features.dataset.bound)
    if bound is not None and settings.centre == 0.0:
        return round_up(bound), []
    radius = radius_of(features.train, settings.centre)
    return radius, [f"the radius {radius:g} is the pooled maximum; a real plan needs a public radius"]


def _of_grid(features: NDArray[np.float64], grid: Grid) -> list[str]:
    """Return a note where most records are almost zero on the grid, because a few are far longer."""
    if grid.is_normalised:
        return []
    median = float(np.median(lengths_of(features, grid.centre))) / grid.step
    if median >= min(FEWEST_STEPS, grid.levels / FEWEST_STEPS):
        return []
    small = f"the median record is {median:.3g} of the grid's {grid.levels} steps long and mostly rounded off"
    return [f"{small}; remove the records that are far longer than others, give a smaller radius, or normalise"]


def _set_up(
    features: Features, settings: SimulationSettings, sizes: Sequence[int]
) -> tuple[RoundSetup, dict[int, SigningKey], list[str]]:
    """Return the setup of a plan for clients with so many records each, throw-away keys, and notes."""
    names = [("server", "server"), *((f"client-{number + 1:04}", "client") for number in range(len(sizes)))]
    protection = protection_named(settings.protection)
    names += protection.helper_roles.items()
    source = settings.randomness.source("identities")
    keys = {index: SigningKey.generate(source) for index in range(len(names))}
    roster = Roster.of("simulation", [Member(*each, keys[index].public) for index, each in enumerate(names)])
    dataset = features.dataset
    data = PublicData(dataset.kind, dataset.train.inputs.shape[1:], dataset.classes, dataset.schema, dataset.bound)
    radius, notes = _radius(features, settings)
    records = settings.max_records or 1 << max(0, (max(sizes) - 1).bit_length())
    if max(sizes) > records:
        raise BadInput(f"a client has {max(sizes)} records, more than {records}", remedy="raise max_records")
    if settings.max_records is None and settings.unit == Unit.CLIENT:
        notes.append(f"one client is bounded by {records} records, read off the data; a real plan fixes max_records")
    clients = settings.cohort or len(sizes)
    dropouts = min(settings.tolerated, protection.most_dropouts(clients, settings.colluders_of(clients)))
    choices = settings.plan_choices(radius, records, dropouts)
    given = choices.method_parameters
    if DOMAINS in method_named(choices.method).parameters and not given.get(DOMAINS):  # those of the training records
        found = np.unique(dataset.train.columns.get(DOMAIN, np.zeros(0, dtype=np.str_)))
        choices = replace(choices, parameters=tuple({**given, DOMAINS: "+".join(found.tolist())}.items()))
    plan = make_plan(data, roster, choices, source)
    digest_of_features = bytes.fromhex(features.map.backbone.digest)  # where a device extracted them, another one
    setup = RoundSetup.of(replace(plan, backbone_digest=digest_of_features), roster)
    settings.refuse_dropouts(clients, clients - setup.facts.fewest)
    drawn = setup.seeded(digest("simulated draw", settings.seed.to_bytes(8, "big")))
    return drawn, keys, [*notes, *_of_grid(features.train, setup.plan.grid)]
