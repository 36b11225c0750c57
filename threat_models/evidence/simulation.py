"""Sessions of a simulated plan, with everything that an auditor may look at, and the records behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from methods.method import domains_of
from methods.round import Local
from secagg.agreement.plan import NoiseFrom, Plan
from secagg.data import Dataset
from secagg.data import Records as DataRecords
from secagg.data.records import BAD
from secagg.encoding import Integers, Kind
from secagg.errors import BadInput, PlanRefused
from secagg.experiments.features import Features
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulated_federation import SimulatedFederation
from secagg.experiments.simulation import play_rounds, prepare
from secagg.features import Encoder, FeatureMap, Latents
from secagg.features.local_records import quantised_records
from secagg.features.program import Program
from secagg.generation import GenerationSettings, generate
from secagg.heads import LinearHead
from secagg.networks import SlotMeans, TrainedModel
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.plan_facts.records import LocalRecords
from secagg.privacy import Adjacency
from secagg.session import RoundSetup
from threat_models.attacks.gaussian_likelihood import MOMENTS
from threat_models.attacks.gaussian_likelihood import total as summed
from threat_models.estimation.noise_tests import SharesTested
from threat_models.estimation.recomputation import SecondOpinion, honest_shares, second_opinion
from threat_models.evidence.blocks import assign_cells, blocks_of, keep_counted, noisy_sum_of, session_of
from threat_models.evidence.observed_noise import NoiseWatch
from threat_models.session import AuditRecords, Blocks, Knowledge, Message, NoisySum, Released, Session, join_records

CANDIDATES = 2000
"""Records of members, and as many of nobody, whose membership is tested: half of them hardly bound a rate of 1 %."""
PUBLIC = 4000


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """A simulated plan: the sum that is audited, the same over all clients but the last, and who knows what.

    `drawn` is what was seen of the noise of all sums, `opinion` the auditor's ε of it; both are None without noise in
    the sums, as where each member's own training has it.
    `refusals` are lines of the policy with which a member begins that the plan breaks.
    """

    sessions: tuple[Session, Session]
    knowledge: Knowledge
    notes: tuple[str, ...]
    drawn: SharesTested | None = None
    opinion: SecondOpinion | None = None
    refusals: tuple[str, ...] = ()


def rehearse(
    dataset: Dataset, settings: SimulationSettings, progress: Callable[[int, int], None] | None = None
) -> Rehearsal:
    """Run the plan once, with all its sums where they have noise. Raises SessionAborted below a threshold."""
    features = Features.of(dataset, settings, progress)
    federation = SimulatedFederation.of(features, settings)
    plan = federation.setup.plan
    watch = NoiseWatch(federation) if plan.has_noise and plan.noise != NoiseFrom.MEMBER else None
    setup, first = main_session(federation, watch)
    known = _knowledge(federation, setup, first, settings, with_gradients(features.map))
    known = replace(known, parts={each.number: each.exact for each in (*first.earlier, first)})
    # The second session holds all clients but the last, with fresh noise, and no head. The protocol is not run again:
    # its sum is that of the vectors, bit for bit, whatever the protection.
    *members, _ = sorted(set(setup.context.clients) - set(federation.dropouts))
    vectors = {member: prepare(setup, federation.members[member], member, b"").vector for member in members}
    total = np.sum(list(vectors.values()), axis=0)
    sessions = (first, _session(setup, tuple(members), total, vectors, {}))
    if watch is None:
        return Rehearsal(sessions, known, federation.notes, refusals=_refusals(setup))
    clients = len(federation.members)
    opinion = second_opinion(plan, honest_shares(plan, clients), watch.found, consortium=clients)
    return Rehearsal(sessions, known, federation.notes, watch.tested(), opinion, _refusals(setup))


def _refusals(setup: RoundSetup) -> tuple[str, ...]:
    """Which lines of a member's policy the plan breaks: the defaults, but for what reading a plan concedes."""
    try:
        setup.facts.check(policy_accepting(setup.plan, "records"))
    except PlanRefused as refused:
        return tuple(refused.violations)
    return ()


def main_session(federation: SimulatedFederation, watch: NoiseWatch | None = None) -> tuple[RoundSetup, Session]:
    """The session of a simulated plan that is audited: the last that sums counts of classes, or of their slots.

    Where there is none, the last that is about records. Those before it are its `earlier` sums; a census and what comes
    after are not attacked, though all are played where there is a `watch`. Who drops out is in none of the sums, whose
    noise is then the least that the plan allows.
    """
    sums = [kind for kind in federation.setup.facts.sums for _ in range(kind.times)]
    counted = [place for place, kind in enumerate(sums) if kind.has(Kind.COUNTS)]
    found = counted or [place for place, kind in enumerate(sums) if kind.is_about_records]
    sessions: list[Session] = []
    noisy_sums: list[NoisySum] = []
    main = federation.setup
    absent = dict.fromkeys(federation.dropouts, federation.setup.protection.leaving[0])
    for place, played in enumerate(play_rounds(federation, absent, prepare if watch is None else watch.prepare)):
        if watch is not None:
            watch.ended(played)
        noisy_sums.append(noisy_sum_of(played.setup, played.result.vector, len(played.result.members)))
        if place in found:
            main, result, sent = played.setup, played.result, played.measured.client_bytes
            head = result.artifact if isinstance(result.artifact, LinearHead | TrainedModel | SlotMeans) else None
            session = _session(main, result.members, result.vector, played.vectors, sent, head)
            setup, names = played.setup, played.setup.context.names
            vectors = {
                member: played.vectors[member] if watch is None else watch.exact_of(setup, member)
                for member in played.result.members
            }
            sessions.append(
                replace(session, exact={names[member]: blocks_of(setup, vector) for member, vector in vectors.items()})
            )
        if len(sessions) == len(found) and watch is None:
            break
    if len(sessions) < len(found):
        raise BadInput(f"the method {federation.setup.plan.method} ended before sum {found[-1] + 1}")
    *earlier, last = sessions
    return main, replace(last, earlier=tuple(earlier), noisy_sums=tuple(noisy_sums))


def _session(
    setup: RoundSetup,
    members: tuple[int, ...],
    total: Integers,
    vectors: Mapping[int, Integers],
    sent: Mapping[int, int],
    head: Released | None = None,
) -> Session:
    names = setup.context.names
    return session_of(
        setup,
        members,
        total,
        head=head,
        messages=tuple(
            Message(names[member], "server", "all that it sends", size, place)
            for place, (member, size) in enumerate(sorted(sent.items()))
            if member in members
        ),
        uploads={},
        contributions={names[member]: blocks_of(setup, vectors[member]) for member in members},
    )


def _knowledge(
    federation: SimulatedFederation,
    setup: RoundSetup,
    session: Session,
    settings: SimulationSettings,
    backbone: Callable[[Any], Any] | None,
) -> Knowledge:
    """Some members' records, as many of others, and public ones: all but the members' are of the test part.

    Who is left out of the sum is neither. How many records there are in all is supposed to be public, as the size of a
    cohort mostly is, unless that is protected: add-remove hides whether any one record is there.
    """
    dataset, plan = federation.features.dataset, federation.setup.plan
    generator = np.random.default_rng([settings.seed, 1])  # not the stream that made the partition
    owner_of, cells = _owners(federation, session)
    held = {
        name: np.bincount(cells[(owner_of == name) & (cells >= 0)], minlength=len(session.cells))
        for name in session.members
    }
    inside = generator.permutation(np.flatnonzero(cells >= 0))[:CANDIDATES]
    reads = setup.method.traits.reads_inputs and isinstance(federation.features.map.backbone, Encoder)
    encoder = federation.features.map.encoder if reads else None
    members = records_of(plan, federation.features.train, dataset.train, inside, encoder)
    members = keep_counted(session, replace(members, in_cells=cells[inside]))
    is_hidden = session.noise is not None and plan.adjacency == Adjacency.ADD_REMOVE
    total = None if is_hidden else int((cells >= 0).sum())
    others = None if session.noise is None else _others(federation, setup, session, members)
    if dataset.test is None or federation.features.test is None:
        return Knowledge(members, tuple(owner_of[inside]), None, backbone, total, held, others)
    free = generator.permutation(np.flatnonzero(dataset.test.labels != BAD))
    outside, public = free[: min(CANDIDATES, len(free) // 2)], free[len(free) // 2 :][:PUBLIC]
    strangers, chosen = (
        keep_counted(
            session, assign_cells(session, records_of(plan, federation.features.test, dataset.test, rows, encoder))
        )
        for rows in (outside, public)
    )
    owners = (*owner_of[inside], *[""] * len(strangers))
    known = Knowledge(join_records(members, strangers), owners, chosen, backbone, total, held, others)
    known = replace(known, generated=generating(federation.features.map))
    return known if encoder is None else replace(known, within=lambda adapted: adapted.over(encoder))


def _others(
    federation: SimulatedFederation, setup: RoundSetup, session: Session, members: AuditRecords
) -> Blocks | None:
    """The exact sum of the records that were summed and are not among `members`; None where it is not one of records.

    Moments by cell are the audit's own sums, so that a client's rule of which records count may be of all its records;
    other blocks are the method's `contribute`.
    """
    clients = [own for index, own in federation.members.items() if setup.context.names[index] in session.members]
    if set(session.release) <= MOMENTS:
        found: dict[str, Any] = dict.fromkeys(session.release, 0.0)
        for own in clients:
            found = _added(found, keep_counted(session, _placed_of(session, own)), session, 1)
        return _added(found, members, session, -1)
    if not setup.sum.spec.is_additive or setup.method.traits.reads_inputs:
        return None
    grid, classes = setup.plan.grid, len(setup.plan.classes)
    parts = [(own.counted, 1) for own in clients] + [(members.examples, -1)]
    total = np.zeros(setup.sum.layout.length, dtype=np.int64)
    for examples, sign in parts:
        total += sign * setup.sum.layout.flatten(setup.round.contribute(Local(examples, classes, grid)).blocks)
    return blocks_of(setup, total)


def _added(blocks: Blocks, records: AuditRecords, session: Session, sign: int) -> dict[str, Any]:
    own = summed(records, len(session.cells), frozenset(blocks))
    return {name: block + sign * own[name] for name, block in blocks.items()}


def _owners(federation: SimulatedFederation, session: Session) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Which member has each training record, and its cell, −1 for none: as each client's own rule has it."""
    size = len(federation.features.dataset.train)
    owner_of, cells = np.full(size, "", dtype=object), np.full(size, -1, dtype=np.int64)
    for member, rows in federation.rows.items():
        if federation.setup.context.names[member] not in session.members:
            continue
        own = federation.members[member]
        owner_of[rows] = federation.setup.context.names[member]
        cells[rows[own.labels != BAD]] = _placed_of(session, own).cells
    return owner_of, cells


def _placed_of(session: Session, own: LocalRecords) -> AuditRecords:
    """A client's records that count, without features, in the cells of a session's sum."""
    kept = own.take(np.flatnonzero(own.labels != BAD))
    return assign_cells(session, _of_local(kept, np.zeros((len(kept), 0)), session.plan))


def _of_local(local: LocalRecords, features: NDArray[np.float64], plan: Plan, images: Any = None) -> AuditRecords:
    domains = local.domains if domains_of(plan.method_parameters) else None
    return AuditRecords(local.integers, local.labels, features, images, domains)


def records_of(
    plan: Plan,
    features: NDArray[np.float64],
    records: DataRecords,
    rows: NDArray[np.int64],
    encoder: Encoder | None = None,
) -> AuditRecords:
    """The chosen records, with an encoder also as it takes them; those too long for the plan are left out."""
    if not plan.grid.is_normalised:
        lengths = np.linalg.norm(features[rows] - plan.centre, axis=1)
        rows = rows[lengths < plan.radius * (1 - 1e-9)]
    local = quantised_records(plan, features[rows], records.take(rows))
    images = images_of(records.inputs[rows]) if plan.data_kind == "images" else None
    found = _of_local(local, features[rows], plan, images)
    return found if encoder is None else replace(found, prepared=encoder.prepare(records.inputs[rows]))


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


SETTINGS = GenerationSettings(count=20, steps=20, strength=0.5)
"""From the middle of the schedule, where more of the means is left than the server may start with."""


def generating(features: FeatureMap) -> Callable[[SlotMeans], tuple[NDArray[np.float64], Integers]] | None:
    """A function from means to features (m, d) and classes (m,) of pictures; None for other backbones."""
    latents = features.backbone
    if not isinstance(latents, Latents) or features.expansion is not None:
        return None

    def apply(means: SlotMeans) -> tuple[NDArray[np.float64], Integers]:
        made = generate(latents, means, SETTINGS)
        grey = made.pixels.mean(axis=3).round().astype(np.uint8)
        pixels = made.pixels if latents.input_shape[2:] == (3,) else grey.reshape(-1, *latents.input_shape)
        return latents.extract(pixels), made.labels

    return apply
