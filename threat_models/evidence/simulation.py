"""Simulated sessions of a plan, with everything that an auditor may look at, and the records behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from methods.method import SumSpec, domain_count, domains_of
from methods.round import Contribution, Examples, Local, OpenedTotal, Round, SimpleRound, Step
from secagg.agreement.plan import NoiseFrom, Plan, PlannedNoise
from secagg.data import Dataset
from secagg.data import Records as DataRecords
from secagg.data.records import BAD
from secagg.encoding import Integers, Kind
from secagg.errors import BadInput, PlanRefused
from secagg.experiments.features import Features
from secagg.experiments.session import run_session
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulated_federation import SimulatedFederation
from secagg.experiments.simulation import PlayedRound, play_rounds, prepare
from secagg.features import Encoder, FeatureMap, Latents
from secagg.features.local_records import quantised_records
from secagg.features.program import FrozenNetwork
from secagg.generation import GenerationSettings, generate
from secagg.heads import LinearHead
from secagg.networks import SlotMeans, TrainedModel
from secagg.plan_facts.noise_plan import training_of
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.plan_facts.records import LocalRecords
from secagg.privacy import Adjacency, Unit, discrete_gaussian
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from threat_models.attacks.gaussian_likelihood import MOMENTS
from threat_models.attacks.gaussian_likelihood import total as summed
from threat_models.estimation.chi_square import NoisePart
from threat_models.estimation.empirical_sensitivity import longest_of, longest_parts
from threat_models.estimation.noise_tests import Share, SharesTested, Variance, examine_shares
from threat_models.estimation.recomputation import SecondOpinion, honest_shares, second_opinion, share_left
from threat_models.evidence.blocks import assign_cells, blocks_of, flaws_of, keep_counted, noisy_sum_of, session_of
from threat_models.evidence.training_noise import ENTRIES, NOTHING, TrainingWatch
from threat_models.session import AuditRecords, Blocks, Knowledge, Message, NoisySum, Released, Session, join_records

CANDIDATES = 2000
"""Number of members' records, and of others, whose membership is tested: half as many hardly bound a rate of 1 %."""
PUBLIC = 4000


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """A simulated plan: the audited sum, the same sum without the last client, and the adversary's knowledge.

    `drawn` is what was seen of the noise of all sums and of members' own training, `opinion` the auditor's ε by the
    longest parts of sums that were found; None without noise, or without noise in the sums. `trained` is the noise of
    members' training, empty where there is none or not all of it was seen.
    `refusals` are lines of the policy with which a member begins that the plan breaks.
    """

    sessions: tuple[Session, Session]
    knowledge: Knowledge
    notes: tuple[str, ...]
    drawn: SharesTested | None = None
    opinion: SecondOpinion | None = None
    trained: tuple[NoisePart, ...] = ()
    refusals: tuple[str, ...] = ()


def rehearse(
    dataset: Dataset, settings: SimulationSettings, progress: Callable[[int, int], None] | None = None
) -> Rehearsal:
    """Simulate the plan once, for an audit. Raises SessionAborted if too few parties remain.

    Where noise is added to the sums, all of them are simulated; else those up to the audited one.
    """
    features = Features.of(dataset, settings, progress)
    federation = SimulatedFederation.of(features, settings)
    plan = federation.setup.plan
    watch = _NoiseWatch(federation) if plan.has_noise and plan.noise != NoiseFrom.MEMBER else None
    training = training_of(federation.setup.facts.sums) if plan.has_training_noise else None
    clients = len(federation.members)
    make = prepare if watch is None else watch.prepare
    trained = TrainingWatch(plan, training, clients, make) if training is not None else None
    setup, first = main_session(federation, watch, trained)
    known = _knowledge(federation, setup, first, settings, with_gradients(features.map))
    known = replace(known, parts={each.number: each.exact for each in (*first.earlier, first)})
    # The second session holds all clients but the last, with fresh noise, and no head. The protocol is not run again:
    # its sum is that of the vectors, with the removable noise that stays, whatever the protection.
    *members, _ = sorted(set(setup.context.clients) - set(federation.dropouts))
    vectors = {member: prepare(setup, federation.members[member], member, b"")[0] for member in members}
    total = np.sum(list(vectors.values()), axis=0) + _noise_that_stays(setup, members)
    sessions = (first, _session(setup, tuple(members), total, vectors, {}))
    found = Rehearsal(sessions, known, federation.notes)
    try:  # the defaults of a member's policy, but for what reading a plan concedes
        setup.facts.check(policy_accepting(plan, "records"))
    except PlanRefused as refused:
        found = replace(found, refusals=tuple(refused.violations))
    if trained is not None:
        found = replace(found, trained=trained.parts)
    watches = [each for each in (watch, trained) if each is not None]
    if any(each.places for each in watches):
        found = replace(found, drawn=_test(watches))
    if watch is None:
        return found
    return replace(found, opinion=second_opinion(plan, honest_shares(plan, clients), watch.found, consortium=clients))


def _noise_that_stays(setup: RoundSetup, members: Sequence[int]) -> Integers:
    """Draw the removable noise of all members that is not removed from their sum, beside that in their vectors."""
    missing = len(setup.context.clients) - len(members)
    stays = (each.segments for each in setup.sum.context.removable if missing > each.missing for _ in members)
    noise = (discrete_gaussian(segments, OperatingSystem()) for segments in stays)
    return sum(noise, np.zeros(setup.sum.layout.length, dtype=np.int64))


def _test(watches: Sequence[_NoiseWatch | TrainingWatch]) -> SharesTested:
    """Test all the noise that was seen."""
    places = [each for watch in watches for each in watch.places]
    shares = [each for watch in watches for each in watch.shares]
    found = examine_shares(places, shares, [each for watch in watches for each in watch.steps])
    return replace(found, flaws=(*(each for watch in watches for each in watch.flaws), *found.flaws))


def main_session(
    federation: SimulatedFederation, watch: _NoiseWatch | None = None, trained: TrainingWatch | None = None
) -> tuple[RoundSetup, Session]:
    """Simulate a plan and return the session to audit: the last that sums counts of classes, or of their slots.

    Where there is none, the last that is about records. Those before it are its `earlier` sums; a census and what comes
    after are not attacked, though all are played where noise is watched: by `watch` in the sums, by `trained`, which
    makes contributions as `watch` does, in members' training. Who drops out is in none of the sums, whose
    noise is then the least that the plan allows.
    """
    sums = [kind for kind in federation.setup.facts.sums for _ in range(kind.times)]
    counted = [place for place, kind in enumerate(sums) if kind.has(Kind.COUNTS)]
    found = counted or [place for place, kind in enumerate(sums) if kind.is_about_records]
    sessions: list[Session] = []
    noisy_sums: list[NoisySum] = []
    main = federation.setup
    absent = dict.fromkeys(federation.dropouts, federation.setup.protection.leaving[0])
    watches = [each for each in (trained, watch) if each is not None]
    for place, played in enumerate(play_rounds(federation, absent, watches[0].prepare if watches else prepare)):
        if watch is not None:
            watch.ended(played)
        noisy_sums.append(noisy_sum_of(played.setup, played.result.vector, len(played.result.members)))
        if place in found:
            main, result, sent = played.setup, played.result, played.measured.client_bytes
            head = result.artifact if isinstance(result.artifact, LinearHead | TrainedModel | SlotMeans) else None
            session = _session(main, result.members, result.vector, played.vectors, sent, head)
            exact = {}
            for member in result.members:
                own = played.vectors[member] if watch is None else watch.exact_of(main, member)
                exact[main.context.names[member]] = blocks_of(main, own)
            sessions.append(replace(session, exact=exact))
        if len(sessions) == len(found) and not watches:
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
    messages = tuple(
        Message(names[member], "server", "all that it sends", size, place)
        for place, (member, size) in enumerate(sorted(sent.items()))
        if member in members
    )
    own = {names[member]: blocks_of(setup, vectors[member]) for member in members}
    return session_of(setup, members, total, head=head, messages=messages, uploads={}, contributions=own)


def _knowledge(
    federation: SimulatedFederation,
    setup: RoundSetup,
    session: Session,
    settings: SimulationSettings,
    backbone: Callable[[Any], Any] | None,
) -> Knowledge:
    """Choose members' records, as many others and public ones; all but the members' are from the test data.

    Records of clients left out of the sum are none of these. How many records there are in all is supposed to be
    public, as the size of a cohort mostly is, unless that is protected: add-remove hides whether a record is there.
    """
    features, dataset, plan = federation.features, federation.features.dataset, federation.setup.plan
    generator = np.random.default_rng([settings.seed, 1])  # not the stream that made the partition
    # Which member has each training record, and its cell, −1 for none: as each client's own rule has it.
    size = len(dataset.train)
    owner_of, cells = np.full(size, "", dtype=object), np.full(size, -1, dtype=np.int64)
    for member, rows in federation.rows.items():
        name, own = federation.setup.context.names[member], federation.members[member]
        if name in session.members:
            owner_of[rows] = name
            cells[rows[own.labels != BAD]] = _placed_of(session, own).cells
    held = {
        name: np.bincount(cells[(owner_of == name) & (cells >= 0)], minlength=len(session.cells))
        for name in session.members
    }
    inside = generator.permutation(np.flatnonzero(cells >= 0))[:CANDIDATES]
    reads = setup.method.traits.reads_inputs and isinstance(features.map.backbone, Encoder)
    encoder = features.map.encoder if reads else None
    members = records_of(plan, features.train, dataset.train, inside, encoder)
    members = keep_counted(session, replace(members, in_cells=cells[inside]))
    is_hidden = session.noise is not None and plan.adjacency == Adjacency.ADD_REMOVE
    total = None if is_hidden else int((cells >= 0).sum())
    others = None if session.noise is None else _others(federation, setup, session, members)
    if dataset.test is None or features.test is None:
        return Knowledge(members, tuple(owner_of[inside]), None, backbone, total, held, others)
    free = generator.permutation(np.flatnonzero(dataset.test.labels != BAD))
    outside, public = free[: min(CANDIDATES, len(free) // 2)], free[len(free) // 2 :][:PUBLIC]
    found = (records_of(plan, features.test, dataset.test, rows, encoder) for rows in (outside, public))
    strangers, chosen = (keep_counted(session, assign_cells(session, each)) for each in found)
    owners = (*owner_of[inside], *[""] * len(strangers))
    known = Knowledge(join_records(members, strangers), owners, chosen, backbone, total, held, others)
    known = replace(known, generated=generating(features.map))
    return known if encoder is None else replace(known, within=lambda adapted: adapted.over(encoder))


def _others(
    federation: SimulatedFederation, setup: RoundSetup, session: Session, members: AuditRecords
) -> Blocks | None:
    """Return the exact sum of the summed records that are not among `members`; None if it is not a sum of records.

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


def _placed_of(session: Session, own: LocalRecords) -> AuditRecords:
    """Return a client's counted records, without features, in the cells of a session's sum."""
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
    """Return the records at `rows` on the plan's grid without too long ones, prepared for an `encoder` if given."""
    if not plan.grid.is_normalised:
        lengths = np.linalg.norm(features[rows] - plan.centre, axis=1)
        rows = rows[lengths < plan.radius * (1 - 1e-9)]
    local = quantised_records(plan, features[rows], records.take(rows))
    images = images_of(records.inputs[rows]) if plan.data_kind == "images" else None
    found = _of_local(local, features[rows], plan, images)
    return found if encoder is None else replace(found, prepared=encoder.prepare(records.inputs[rows]))


def with_gradients(features: FeatureMap) -> Callable[[Any], Any] | None:
    """Return the backbone as a differentiable function of image tensors (n, c, h, w); None if it is not exported."""
    program = features.backbone
    if not isinstance(program, FrozenNetwork) or features.expansion is not None or len(program.input_shape) != 3:
        return None

    def apply(images: Any) -> Any:
        import torch

        colours = images.expand(-1, program.input_shape[0], -1, -1)
        return torch.cat([program.module(image[None]).reshape(1, -1) for image in colours])

    return apply


def images_of(inputs: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert inputs (n, h, w) or (n, h, w, c), uint8 or in [0, 1], to uint8 images (n, h, w, c)."""
    pixels = inputs if inputs.dtype == np.uint8 else np.rint(255 * np.clip(inputs, 0, 1)).astype(np.uint8)
    return pixels[..., None] if pixels.ndim == 3 else pixels


SETTINGS = GenerationSettings(count=20, steps=20, strength=0.5, guidance=1.0)
"""Start from the middle of the diffusion schedule, where more of the means is left than the server may start with."""


def generating(features: FeatureMap) -> Callable[[SlotMeans], tuple[NDArray[np.float64], Integers]] | None:
    """Make a function from means to generated pictures' features (m, d), classes (m,); None without diffusion model."""
    latents = features.backbone
    if not isinstance(latents, Latents) or features.expansion is not None:
        return None

    def apply(means: SlotMeans) -> tuple[NDArray[np.float64], Integers]:
        made = generate(latents, means, SETTINGS)
        grey = made.pixels.mean(axis=3).round().astype(np.uint8)
        pixels = made.pixels if latents.input_shape[2:] == (3,) else grey.reshape(-1, *latents.input_shape)
        return latents.extract(pixels), made.labels

    return apply


MOST_DRAWN = 1_000_000
"""Most entries of one kind of sum that are drawn again where clients draw the noise."""
MOST_SESSIONS = 8
"""Most sessions of one kind of sum that are run again where helpers draw the noise."""
ROUNDED = 1 / 12
"""Variance that rounding adds to a Gaussian."""


@dataclass(frozen=True, eq=False)
class Watched(SimpleRound):
    """A wrapper of the round `inner` that also stores the blocks (named arrays) of each contribution."""

    inner: Round
    made: list[Blocks] = field(default_factory=list, repr=False)

    def contribute(self, local: Local) -> Contribution:
        """Return the inner round's contribution, and store its blocks (named arrays)."""
        found = self.inner.contribute(local)
        self.made.append(found.blocks)
        return found

    def finalize(self, opened: OpenedTotal) -> Step:
        """Return the result that the inner round makes of the opened sum."""
        return self.inner.finalize(opened)


class _NoiseWatch:
    """Watches the noise that a simulated plan's parties really draw, in every block of every sum, also of a census.

    Members run their own code (`contribution_of`); a witness stands where the round is and keeps what it contributed,
    so that the rest of a member's vector is its noise. Of helpers, whose noise leaves in the sum alone, it is
    the opened sum less all contributions; so is what stays of noise that members could have removed. Nothing of a
    calibration is used: σ of each entry is read from the plan.
    `found` are the longest parts, by kind of sum and block.
    """

    def __init__(self, federation: SimulatedFederation) -> None:
        plan = federation.setup.plan
        self._cast = federation
        self._plan = plan
        self._by_clients = plan.noise == NoiseFrom.CLIENT
        self._exact: dict[tuple[int, int], Blocks] = {}
        self.shares: list[Share] = []
        self.steps: tuple[Variance, ...] = ()
        self._squares: dict[str, tuple[float, int]] = {}
        self.found: dict[tuple[int, str], float] = {}
        self.flaws: list[str] = []

    def prepare(self, setup: RoundSetup, records: LocalRecords, member: int, state: bytes) -> tuple[Integers, bytes]:
        """Make a member's noisy contribution by its own code; note its noise, and that of draws without records."""
        watched = Watched(setup.round)
        vector, kept = prepare(replace(setup, known_round=watched), records, member, state)
        self._exact[setup.number, member] = watched.made[-1]
        if self._by_clients:
            name = f"{setup.context.names[member]} in sum {setup.number}"
            self._note(setup, name, vector - setup.sum.layout.flatten(watched.made[-1]))
            for _ in range(self._redraws(setup, len(self._cast.members), MOST_DRAWN)):
                empty, _ = prepare(replace(setup, known_round=watched), records.take(NOTHING), member, state)
                self._add(setup, empty - setup.sum.layout.flatten(watched.made[-1]))
        return vector, kept

    def exact_of(self, setup: RoundSetup, member: int) -> Integers:
        """Return a member's contribution to a session, without noise."""
        return setup.sum.layout.flatten(self._exact[setup.number, member])

    def ended(self, played: PlayedRound) -> None:
        """Note what a session opened, and look for parts longer than the sensitivity for which its noise is made."""
        setup, opened = played.setup, played.result.vector
        members = played.result.members
        exact = np.sum([self.exact_of(setup, member) for member in members], axis=0)
        if not self._by_clients:
            self._note(setup, f"sum {setup.number}", opened - exact)
            nothing = np.zeros(setup.sum.layout.length, dtype=np.int64)
            for _ in range(self._redraws(setup, 1, MOST_SESSIONS * setup.sum.layout.length)):
                self._add(setup, run_session(setup, self._cast.keys, lambda member: nothing, {}).total)
        else:
            self._compare(setup, opened - np.sum([played.vectors[member] for member in members], axis=0), len(members))
        self.flaws += flaws_of(setup, opened, len(members))
        self._search(setup)

    @property
    def places(self) -> tuple[Variance, ...]:
        """The variance of the noise at each place of a sum, of all parties together, over the plan's."""
        return tuple(Variance(name, squares / count, count) for name, (squares, count) in self._squares.items())

    def _compare(self, setup: RoundSetup, rest: Integers, members: int) -> None:
        """Note what a sum of clients' noisy vectors has beside these: removable noise that stays, or nothing."""
        clients = len(setup.roster.clients)
        left, own = (share_left(self._plan, clients, each) for each in (len(setup.context.clients) - members, 0))
        if left > own:
            self._note(setup, f"the noise that stays in sum {setup.number}", rest, members * (left - own))
        elif rest.any():
            self.flaws.append(f"Sum {setup.number} is not the sum of what its members contributed.")

    def _note(self, setup: RoundSetup, name: str, noise: Integers, noisers: float | None = None) -> None:
        self.shares.append(Share(name, self._add(setup, noise, noisers)))

    def _add(self, setup: RoundSetup, noise: Integers, noisers: float | None = None) -> NDArray[np.float64]:
        """Add noise to the squares seen at each place; return it in units of the plan's σ.

        It has the variance of so many planned shares; None: of what one client draws itself, or all helpers.
        """
        if noisers is None and self._by_clients:
            noisers = share_left(self._plan, len(setup.roster.clients), 0)
        noisers = noisers or max(1, len(setup.context.helpers))
        extra = 0.0 if self._by_clients else ROUNDED
        kind = setup.facts.kind_of(setup.number)
        sigmas = np.sqrt(noisers * (sigmas_of(self._plan, setup.facts.sums, kind) ** 2 + extra))
        scaled: NDArray[np.float64] = noise / sigmas
        for name, where in places_of(setup.facts.sums, self._plan, kind):
            squares, count = self._squares.get(name, (0.0, 0))
            self._squares[name] = squares + float(np.sum(scaled[where] ** 2)), count + int(where.sum())
        return scaled

    def _redraws(self, setup: RoundSetup, parties: int, most: int) -> int:
        """Return how often each of `parties` repeats its draw in this session, so that small places have enough."""
        kind = setup.facts.kind_of(setup.number)
        least = min(int(where.sum()) for _, where in places_of(setup.facts.sums, self._plan, kind))
        each = parties * setup.facts.sums[kind].times
        return max(0, min(math.ceil(ENTRIES / (least * each)) - 1, most // (setup.sum.layout.length * each)))

    def _search(self, setup: RoundSetup) -> None:
        """Look for long parts in a round: of single records, or of the clients at hand."""
        kind, plan, spec = setup.facts.kind_of(setup.number), self._plan, setup.sum.spec
        made = [blocks for (number, _), blocks in self._exact.items() if number == setup.number]
        found = longest_of(made if spec.per is Unit.CLIENT else (), spec)
        is_new = all(place != kind for place, _ in self.found)
        if not setup.method.traits.reads_inputs and (setup.number == 1 or setup.is_last or is_new):
            domains = domain_count(plan.method_parameters)
            at_hand: list[Examples] = [own.counted for own in self._cast.members.values()]
            tried = longest_parts(setup.round, spec, plan.grid, len(plan.classes), domains, at_hand)
            found = {name: max(length, tried[name]) for name, length in found.items()}
        for name, length in found.items():
            self.found[kind, name] = max(length, self.found.get((kind, name), 0.0))


def _noises(plan: Plan, sums: Sequence[SumSpec], kind: int) -> tuple[PlannedNoise, ...]:
    """Return the plan's noise for the blocks of one kind of sum."""
    start = sum(len(spec.blocks) for spec in sums[:kind])
    return plan.sum_noises[start : start + len(sums[kind].blocks)]


def _diagonal(size: int) -> np.ndarray:
    """Return a mask of the diagonal's entries in an upper triangle, row by row."""
    upper, right = np.triu_indices((math.isqrt(8 * size + 1) - 1) // 2)
    found: np.ndarray = upper == right
    return found


def sigmas_of(plan: Plan, sums: Sequence[SumSpec], kind: int) -> NDArray[np.float64]:
    """Return the planned σ of one party's noise on each entry of a sum of the given kind, (n,)."""
    parts = []
    for block, noise in zip(sums[kind].blocks, _noises(plan, sums, kind), strict=True):
        sigmas = np.full(block.size, noise.sigma)
        if noise.off_diagonal:
            sigmas[~_diagonal(block.size)] = noise.off_diagonal
        parts.append(sigmas)
    return np.concatenate(parts)


def places_of(sums: Sequence[SumSpec], plan: Plan, kind: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield a name and boolean flags (n,) of entries for each block of a sum; a matrix's diagonal is separate."""
    ends = np.cumsum([0, *(block.size for block in sums[kind].blocks)])
    several = f" of the sums of kind {kind + 1}" if len(sums) > 1 else ""
    for start, block, noise in zip(ends, sums[kind].blocks, _noises(plan, sums, kind), strict=False):
        parts = {"": np.ones(block.size, dtype=np.bool_)}
        if noise.off_diagonal:
            diagonal = _diagonal(block.size)
            parts = {", diagonal": diagonal, ", off the diagonal": ~diagonal}
        for name, entries in parts.items():
            where = np.zeros(ends[-1], dtype=np.bool_)
            where[start : start + block.size] = entries
            if where.any():
                yield f"{block.name.replace('_', ' ')}{several}{name}", where
