"""Canaries in one run: planted into a simulated run, or by a client into its own data before a real run."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.agreement.plan import Plan
from secagg.data import Dataset
from secagg.data import Records as DataRecords
from secagg.data.records import BAD
from secagg.errors import BadInput
from secagg.experiments.features import Features
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulated_federation import SimulatedFederation
from secagg.features.pipeline import Pipeline
from secagg.plan_facts.records import LocalRecords
from secagg.system.files import private_folder, write_synced
from threat_models.estimation.canaries import Canaries, draw_canaries, fair_coins
from threat_models.evidence.simulation import main_session, records_of
from threat_models.session import AuditRecords, Session

COINS = "included"
"""Name of the array of coins in a canary file, beside `features` or `images` and `labels`."""
CANARY_FILE, DATA_FILE = "canaries.npz", "data.npz"
SEED = 20_230_515
"""Seed of the canaries' directions; their coins never come from it."""


@dataclass(frozen=True, eq=False)
class _Planted:
    """A session with canaries in it, and those records beside them that the auditor knows to have taken part."""

    session: Session
    canaries: Canaries
    known: AuditRecords | None = field(repr=False)


def plant(
    dataset: Dataset, settings: SimulationSettings, count: int, progress: Callable[[int, int], None] | None = None
) -> _Planted:
    """Simulate the plan with `count` canaries, each given to a client if a coin says so; the auditor knows the rest.

    The clients that stay take turns to hold a canary. Raises BadInput for more canaries than the plan has room for.
    """
    features = Features.of(dataset, settings, progress)
    federation = SimulatedFederation.of(features, settings)
    staying = len(federation.members) - len(federation.dropouts)
    most = max(map(len, federation.members.values())) - (-count // staying)
    if most > federation.setup.plan.max_records and settings.max_records is None:
        federation = SimulatedFederation.of(features, replace(settings, max_records=1 << (most - 1).bit_length()))
    if most > federation.setup.plan.max_records:
        raise BadInput(f"{count} canaries make a client hold {most} records", remedy="raise --max-records")
    plan = federation.setup.plan
    canaries = draw_canaries(plan, count, np.random.default_rng(SEED))
    members = {member: own for member, own in sorted(federation.members.items()) if member not in federation.dropouts}
    everyone = LocalRecords.pooled(list(members.values()))
    counted = everyone.labels != BAD
    known = AuditRecords(everyone.integers[counted], everyone.labels[counted], np.zeros((int(counted.sum()), 0)))
    for place, (member, own) in enumerate(members.items()):
        rows = (np.arange(count) % staying == place) & canaries.included
        first = np.zeros(int(rows.sum()), dtype=np.int64)  # domain, where there are any
        added = LocalRecords(canaries.integers[rows], canaries.labels[rows], first)
        members[member] = LocalRecords.pooled([own, added])
    _, session = main_session(replace(federation, members={**federation.members, **members}))
    return _Planted(session, canaries, known)


def canaries_of(plan: Plan, path: Path) -> Canaries:
    """Read a file's canaries, on the plan's grid, and their coins. Raises BadInput for an unusable file."""
    read = Pipeline.of_plan(plan).records(str(path))
    coins = read.columns.get(COINS)
    if coins is None or not set(coins.tolist()) <= {"0", "1", "False", "True"}:
        raise BadInput(f"{path} has no `{COINS}`, a coin for each canary", remedy="make it with `secagg canaries`")
    records = _on_grid(plan, read)
    if len(records) < len(read):
        raise BadInput(f"{path}: {len(read) - len(records)} canaries are longer than the plan's radius")
    return Canaries(records.integers, records.labels, np.isin(coins, ("1", "True")))


def prepare(plan: Plan, data: str, count: int, spare: str | None, folder: Path) -> None:
    """Write a file of canaries with their coins, and one of the client's data with the canaries that the coins put in.

    Canaries are records of `spare`, which nobody has; without it, where a plan takes features as they are, they are
    made, in the directions in which the member's own records are shortest. Raises BadInput for data that the plan does
    not take, too few spare records, and a `folder` that holds such files already: coins are never thrown twice.
    """
    if plan.data_kind == "table":
        raise BadInput("canaries are arrays, the plan takes tables", remedy="add spare rows by coins of your own")
    if taken := [name for name in (CANARY_FILE, DATA_FILE) if (folder / name).exists()]:
        raise BadInput(f"{folder} holds {taken[0]} already", remedy="choose another folder: coins are thrown once")
    own = Pipeline.of_plan(plan).records(data)
    if spare is None:
        if plan.data_kind != "features" or plan.backbone != "features" or plan.expand:
            problem = "canaries of this plan are records that nobody has"
            raise BadInput(problem, remedy="give a file of them with --spare")
        made = draw_canaries(plan, count, np.random.default_rng(SEED), _on_grid(plan, own))
        inside = made.integers + np.sign(made.integers) / 4  # where the grid cuts towards 0, not at the edge
        inputs, labels = inside * plan.grid.step + plan.centre, made.labels
    else:
        read = Pipeline.of_plan(plan).records(spare)
        if len(read) < count:
            raise BadInput(f"{spare} holds {len(read)} records, not {count}", remedy="plant fewer")
        rows = np.random.default_rng().permutation(len(read))[:count]
        inputs, labels = read.inputs[rows], read.labels[rows]
    coins = fair_coins(count)
    if len(own) + int(coins.sum()) > plan.max_records:
        raise BadInput(f"{len(own)} records and canaries exceed the plan's {plan.max_records}", remedy="plant fewer")
    own_inputs = own.inputs
    if own_inputs.dtype != inputs.dtype:  # 8-bit images beside others
        own_inputs, inputs = (each / 255 if each.dtype == np.uint8 else each for each in (own_inputs, inputs))
    name = "images" if plan.data_kind == "images" else "features"
    private_folder(folder)
    _save(folder / CANARY_FILE, {name: inputs, "labels": labels, COINS: coins})
    joined_labels = np.concatenate([own.labels, labels[coins]])
    _save(folder / DATA_FILE, {name: np.concatenate([own_inputs, inputs[coins]]), "labels": joined_labels})


def _on_grid(plan: Plan, read: DataRecords) -> AuditRecords:
    features = Pipeline.of_plan(plan).features(read.inputs)
    return records_of(plan, features, read, np.arange(len(read)))


def _save(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write arrays to a file that only its owner can read."""
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    write_synced(path, content.getvalue())
