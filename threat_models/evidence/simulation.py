"""Sessions of a simulated plan, with everything that an auditor may look at, and the records behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.data import Dataset
from secagg.data import Records as DataRecords
from secagg.data.records import BAD
from secagg.encoding import Integers
from secagg.errors import BadInput
from secagg.experiments.features import Features
from secagg.experiments.sessions import run_session
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import Cast
from secagg.features import FeatureMap
from secagg.features.program import Program
from secagg.parties import LocalRecords, SessionSetup, SumResult, conclude, contribution_of
from secagg.plan import Plan
from secagg.protection.messages import RoundOpening
from secagg.randomness import OperatingSystem
from threat_models.evidence.blocks import blocks_of, noise_of
from threat_models.session import Knowledge, Message, Records, Session

MAIN = "counts"
"""A block of the sum that is audited; the census before it and the rounds after it are counted, not attacked."""
CANDIDATES = 1000
"""Records of members, and as many of nobody, whose membership is tested."""
PUBLIC = 4000


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """A simulated plan: the sum that is audited, the same over all clients but the last, and who knows what."""

    sessions: tuple[Session, Session]
    knowledge: Knowledge
    notes: tuple[str, ...]


def rehearse(
    dataset: Dataset,
    settings: SimulationSettings,
    progress: Callable[[int, int], None] | None = None,
) -> Rehearsal:
    """Run the plan once. Raises BadInput for a method that sums no class counts, or a protocol's abort."""
    features = Features.of(dataset, settings, progress)
    cast = Cast.of(features, settings)
    setup, first = main_session(cast)
    known = _knowledge(cast, settings, with_gradients(features.map))
    return Rehearsal((first, _without_last(cast, setup)), known, cast.notes)


def main_session(cast: Cast) -> tuple[SessionSetup, Session]:
    """The session of a simulated plan that is audited. Raises BadInput for a method that sums no class counts."""
    for setup, result, vectors, sent in _rounds(cast):
        if MAIN in result.blocks:
            return setup, _session(setup, result, vectors, sent)
    raise BadInput(f"the method {cast.setup.plan.method} sums no {MAIN}", remedy="audit fedcgs or prototypes")


def _rounds(cast: Cast) -> Iterator[tuple[SessionSetup, SumResult, dict[int, Integers], dict[int, int]]]:
    """Every session of the plan: what it was, what came of it, each client's vector, and the bytes that it sent."""
    setup = cast.setup
    while True:
        source = OperatingSystem()
        vectors = {member: contribution_of(setup, own, source) for member, own in cast.members.items()}
        opened = run_session(setup, cast.keys, vectors.__getitem__, {})
        result = conclude(setup, opened.members, opened.total)
        yield setup, result, vectors, dict(opened.measured.client_bytes)
        if result.following is None:
            return
        setup = setup.following(RoundOpening(result.aggregate_sha256, result.next_broadcast))


def _session(setup: SessionSetup, result: SumResult, vectors: dict[int, Integers], sent: dict[int, int]) -> Session:
    names = setup.context.names
    return Session(
        plan=setup.plan,
        clients=tuple(names[member] for member in setup.context.clients),
        members=tuple(names[member] for member in result.members),
        release=blocks_of(setup, result.vector),
        noise=noise_of(setup, len(result.members)),
        claim=setup.claim,
        calibration=setup.calibration,
        head=result.head,
        messages=tuple(
            Message(names[member], "server", "all that it sends", size, place)
            for place, (member, size) in enumerate(sorted(sent.items()))
        ),
        uploads={},
        contributions={names[member]: blocks_of(setup, vector) for member, vector in vectors.items()},
        is_shown=setup.shows_sum,
        number=len(setup.openings) + 1,
    )


def _without_last(cast: Cast, setup: SessionSetup) -> Session:
    """The sum of all clients but the last, with fresh noise: a second session over the same data.

    The protocol is not run again: its sum is that of the vectors, bit for bit, whatever the protection.
    """
    *members, _ = sorted(cast.members)
    vectors = {member: contribution_of(setup, cast.members[member], OperatingSystem()) for member in members}
    total = np.sum(list(vectors.values()), axis=0)
    return _session(setup, conclude(setup, tuple(members), total), vectors, {})


def _knowledge(cast: Cast, settings: SimulationSettings, backbone: Callable[[Any], Any] | None) -> Knowledge:
    """Some members' records, as many of nobody, and public ones: the test part of the data is nobody's.

    How many records there are in all is supposed to be public, as the size of a cohort mostly is.
    """
    dataset, plan = cast.features.dataset, cast.setup.plan
    generator = np.random.default_rng([settings.seed, 1])  # not the stream that made the partition
    names = cast.setup.context.names
    owner_of = np.empty(len(dataset.train), dtype=object)
    owner_of[:] = ""
    for member, rows in cast.rows.items():
        owner_of[rows] = names[member]
    inside = generator.permutation(np.flatnonzero((owner_of != "") & (dataset.train.labels != BAD)))[:CANDIDATES]
    members = records_of(plan, cast.features.train, dataset.train, inside)  # none was refused: all are in the sum
    total = sum(len(own) - own.bad for own in cast.members.values())
    if dataset.test is None or cast.features.test is None:
        return Knowledge(members, tuple(owner_of[inside]), None, backbone, total)
    free = generator.permutation(np.flatnonzero(dataset.test.labels != BAD))
    outside, public = free[: min(CANDIDATES, len(free) // 2)], free[len(free) // 2 :][:PUBLIC]
    strangers = records_of(plan, cast.features.test, dataset.test, outside)
    candidates = joined(members, strangers)
    owners = (*owner_of[inside], *[""] * len(strangers))
    chosen = records_of(plan, cast.features.test, dataset.test, public)
    return Knowledge(candidates, owners, chosen, backbone, total)


def records_of(plan: Plan, features: NDArray[np.float64], records: DataRecords, rows: NDArray[np.int64]) -> Records:
    """The chosen records; those that the plan would refuse for their length are left out."""
    if not plan.grid.is_normalised:
        lengths = np.linalg.norm(features[rows] - plan.centre, axis=1)
        rows = rows[lengths < plan.radius * (1 - 1e-9)]
    local = LocalRecords.of(plan, features[rows], records.take(rows))
    images = images_of(records.inputs[rows]) if plan.data_kind == "images" else None
    return Records(local.integers, local.labels, features[rows], images)


def with_gradients(features: FeatureMap) -> Callable[[Any], Any] | None:
    """An exported program as a function of image tensors (n, c, h, w) with gradients; None for other feature maps."""
    program = features.backbone
    if not isinstance(program, Program) or features.expansion is not None or len(program.input_shape) != 3:
        return None

    def apply(images: Any) -> Any:
        import torch

        colours = images.expand(-1, program.input_shape[0], -1, -1)
        return torch.cat([program.module(image[None]).reshape(1, -1) for image in colours])

    return apply


def images_of(inputs: NDArray[Any]) -> NDArray[np.uint8]:
    """Images (n, h, w, c) uint8 of inputs (n, h, w) or (n, h, w, c), uint8 or in [0, 1]."""
    pixels = inputs if inputs.dtype == np.uint8 else np.rint(255 * np.clip(inputs, 0, 1)).astype(np.uint8)
    return pixels[..., None] if pixels.ndim == 3 else pixels


def joined(*parts: Records) -> Records:
    """Records of several sources, one after the other."""
    images = [part.images for part in parts if part.images is not None]
    return Records(
        np.concatenate([part.integers for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.features for part in parts]),
        np.concatenate(images) if len(images) == len(parts) else None,
    )
