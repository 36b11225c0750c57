"""Facts of a report other than attack results: the subject, the claimed and measured ε, and the audit's limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date

from methods.own_models.local_projection import LocalProjection
from secagg.privacy import PrivacyClaim, TrainingClaim
from secagg.privacy.claim import format_epsilon
from threat_models.attacks.targets import HALF_READ, READ
from threat_models.estimation.chi_square import SHORT_LEVEL, SessionNoise
from threat_models.estimation.noise_tests import LEVEL as DRAWN_LEVEL
from threat_models.estimation.noise_tests import SharesTested
from threat_models.estimation.recomputation import (
    SecondOpinion,
    honest_shares,
    second_opinion,
    training_of,
    training_opinion,
)
from threat_models.estimation.rerelease import audit_release
from threat_models.estimation.training_rerun import TrainingBound, audit_training
from threat_models.evidence.training_noise import STEPS
from threat_models.report.content import PROTOTYPES_TELL, UPDATES_TELL, Cover, DrawnNoise, LowerBound, Promise, Subject
from threat_models.session import Session

RELEASES = 20_000
LEVEL = 0.001
"""Probability with which each of two measurements may find too little noise where there is enough noise.

They are a record's re-releases and those of one spread over features; with members' training its canaries come in place
of the latter.
"""
RESERVED = 2 * LEVEL + DRAWN_LEVEL + SHORT_LEVEL
"""Chance of false alarm of these two, and on noise drawn or held by a session: not left for the attacks' limits
(`threat_models.estimation.intervals`)."""
ONE_RUN_LEVEL = 0.01
"""Probability with which the bound from canaries in one run may exceed the true ε; reserved with canaries."""
SPREAD = 4
"""Number of features over which the second canary's record is spread."""
LIMITS = (
    "Attacks not listed here were not run; better ones may exist. A failed one proves nothing beyond its power.",
    "Who took part and who did not is the auditor's word, held against the opened sum where there is one.",
    "A transcript cannot show how noise was drawn, what an aggregator added up, or what a member kept.",
    "Side channels of machines, and what was published about the same people elsewhere, are out of scope.",
)

SIMULATED_LIMITS = (
    "A simulation draws noise and runs contributions with this machine's code: another member's code may differ.",
    "Of several aggregators the noise is seen in their sum alone, not which of them added it.",
    "Whether the generator behind noise and keys is unpredictable cannot be seen in what it drew.",
    "Of members' training the noise of each step is seen, and not what a method does with records beside these steps.",
    "Lengths of updates and other blocks are searched: a longer part than any that was tried stays unseen.",
)
"""Limits of an audit that a simulation shares with a transcript."""


def subject_of(
    sessions: Sequence[Session], known: int | None, settings: Mapping[str, str], recorded: Iterable[Session]
) -> Subject:
    """Make the report's subject; its number of records is the least in any opened sum or, without one, `known`.

    Where there is noise on it the `known` number comes first, which is public; without one it is as noisy as the sums.
    """
    opened = [session.release["counts"] for session in sessions if "counts" in session.release]
    records = min((max(0, round(float(counts.sum()))) for counts in opened), default=known)
    is_noisy = bool(opened) and any(session.noise is not None for session in sessions)
    if is_noisy and known is not None:
        records, is_noisy = known, False
    proved = [(each.provenance, each.transcript_sha256) for each in recorded if each.provenance is not None]
    return Subject(
        protection=sessions[0].plan.protection,
        records=records,
        dimension=sessions[0].plan.dimension,
        transcripts=tuple({each.transcript: digest for each, digest in proved}.items()),
        provenance=tuple(each for each, _ in proved),
        settings=settings,
        is_noisy=is_noisy,
        unread=_unread(sessions, is_half=False),
        half_read=_unread(sessions, is_half=True),
        tells=PROTOTYPES_TELL if any(isinstance(each.round, LocalProjection) for each in sessions) else UPDATES_TELL,
    )


def cover_of(sessions: Sequence[Session], auditor: str, today: date) -> Cover:
    """Collect the facts on the report's cover from recorded sessions; for a simulation, only auditor and date."""
    shown = [session for session in sessions if session.provenance is not None]
    plans = {session.plan.digest.hex(): session.plan for session in shown}
    return Cover(
        consortium=", ".join(dict.fromkeys(each.provenance.consortium for each in shown if each.provenance)),
        purpose="; ".join(dict.fromkeys(plan.purpose for plan in plans.values() if plan.purpose)),
        plans=tuple(plans),
        sessions=tuple(plan.session.hex() for plan in plans.values()),
        members=tuple(dict.fromkeys(member for session in shown for member in session.members)),
        clients=max((each.provenance.clients for each in shown if each.provenance), default=0),
        auditor=auditor,
        date=today.isoformat(),
    )


def _unread(sessions: Sequence[Session], *, is_half: bool) -> tuple[str, ...]:
    """Return the names of blocks that no attack reads; `is_half`: of updates and projections, which are half read."""
    chosen = (session for session in sessions if isinstance(session.round, HALF_READ) is is_half)
    return tuple(sorted({name for session in chosen for name in session.release} - READ))


IN_TRAINING = (
    "The plan's promise (epsilon {}, {}, {} level) rests on the noise of members' own training. Its epsilon is "
    "recomputed from the plan; attacks look at the sums as if they were exact."
)
UNSEEN = " No transcript shows whether members' training drew that noise."
BESIDE_TRAINING = (
    " Nothing here shows whether members' training drew its noise: what is measured is that of the sums alone, which "
    "are part of the promise."
)
OF_TRAININGS = (
    "This is of trainings that this audit ran itself with the plan's noise: they say nothing about the build that a "
    "member runs."
)


OF_RERELEASES = (
    "This is of re-releases that this audit drew itself with the planned noise: it checks the accounting, and says "
    "nothing about the noise that this session drew."
)


def measure_promise(
    sessions: Sequence[Session], progress: Callable[[int, int], None], *, sees_training: bool = False
) -> Promise:
    """Recompute the plan's ε, and measure it on repeated releases with the plan's own noise.

    In a simulation that `sees_training`, members' noisy training is run again, too. Of several sessions the result is a
    claim that does not hold, else the one with the largest ε.
    """
    promises = [_measure_one(session, progress, sees_training=sees_training) for session in sessions]
    return max(promises, key=lambda each: (each.disproved or not each.agrees, each.claimed))


def _measure_one(session: Session, progress: Callable[[int, int], None], *, sees_training: bool) -> Promise:
    plan, claim = session.plan, session.claim
    trained = _run_training(session, progress) if sees_training else None
    if isinstance(claim, TrainingClaim):
        return _of_training(session, trained)
    if claim is None:
        sentence = "No differential privacy: exact sums are opened."
        return Promise(sentence, math.inf, math.inf, "nothing to recompute", 0.0, plan.unit, "")
    opinion = second_opinion(plan, honest_shares(plan, len(session.clients)), consortium=session.consortium)
    bound = audit_release(claim, releases=RELEASES, level=LEVEL, progress=progress)
    has_moments = "second_moment" in session.release and plan.dimension >= SPREAD and trained is None
    wider = audit_release(claim, releases=RELEASES, level=LEVEL, spread=SPREAD) if has_moments else bound
    # Combine the bound by the worst record with one spread over features, which meets noise off B's diagonal.
    telling = wider if wider.refuted and not bound.refuted else bound
    measured = LowerBound(
        lower=bound.lower,
        method=bound.epsilon.method,
        sentence=f"{telling.sentence} {OF_RERELEASES}",
        power=bound.power if wider is bound else f"{bound.power} Of a record over {SPREAD} features: {wider.power}",
        refuted=bound.refuted or wider.refuted,
        curve=bound.curve,
    )
    return Promise(
        sentence=claim.sentence() + (BESIDE_TRAINING if plan.has_training_noise and not sees_training else ""),
        claimed=claim.epsilon,
        recomputed=max(bound.recomputed, opinion.epsilon),
        recomputed_by="the auditor's own accounting of the plan's noise",
        delta=claim.delta,
        unit=plan.unit,
        adjacency=plan.adjacency,
        measured=measured if trained is None else _bound_by(trained, measured),
    )


def _of_training(session: Session, trained: TrainingBound | None) -> Promise:
    """Recompute ε of a plan whose only noise is in members' training, `trained` being what running it again found."""
    plan = session.plan
    opinion = training_opinion(plan, session.consortium)
    sentence = IN_TRAINING.format(format_epsilon(opinion.claimed), plan.adjacency, plan.unit)
    return Promise(
        sentence=sentence + (UNSEEN if trained is None else ""),
        claimed=opinion.claimed,
        # A difference that rounding explains is not a disagreement.
        recomputed=opinion.epsilon if not opinion.agrees else min(opinion.epsilon, opinion.claimed),
        recomputed_by="the auditor's own composition of privacy losses of the plan's training steps",
        delta=plan.delta,
        unit=plan.unit,
        adjacency=plan.adjacency,
        measured=None if trained is None else _bound_by(trained),
    )


def _run_training(session: Session, progress: Callable[[int, int], None]) -> TrainingBound | None:
    """Run the noisy training of one of the plan's members again, with worst-case records; None without any."""
    plan, claim, training = session.plan, session.claim, training_of(session.plan)
    cost = claim.releases.training if isinstance(claim, PrivacyClaim) else claim.cost if claim is not None else None
    if cost is None or training is None:
        return None
    return audit_training(
        cost,
        plan.training_sigma,
        training.levels,
        epsilon=plan.epsilon,
        delta=plan.delta,
        level=LEVEL,
        progress=progress,
    )


def _bound_by(trained: TrainingBound, released: LowerBound | None = None) -> LowerBound:
    """Return the bound by trainings, with that by re-releases of the same plan's sums where there is one."""
    found = LowerBound(
        trained.epsilon.low,
        trained.epsilon.method,
        f"{trained.sentence} {OF_TRAININGS}",
        trained.power,
        refuted=trained.refuted,
        is_enough=trained.is_enough,
    )
    if released is None:
        return found
    return replace(
        found,
        lower=max(found.lower, released.lower),
        sentence=f"{released.sentence} {found.sentence}",
        power=f"{released.power} {found.power}",
        refuted=released.refuted or found.refuted,
        curve=released.curve,
    )


def add_drawn(promise: Promise, drawn: SharesTested | None, opinion: SecondOpinion | None) -> Promise:
    """Add to the plan's privacy promise tests of simulated parties' noise, and ε by the longest contributions found."""
    if drawn is None:
        return promise
    found = "not as planned" if drawn.flaws else "as planned"
    is_trained = any(place.name == STEPS for place in drawn.places)
    where = ["every block of every sum"] * (opinion is not None) + ["every step of members' training"] * is_trained
    sentence = (
        f"The noise that simulated parties drew for {' and '.join(where)} is {found}, by {drawn.tests} tests of its "
        f"variance and of shares in pairs (false alarms: {DRAWN_LEVEL:g} in all)."
    )
    places = tuple((place.name, place.mean_square, place.entries) for place in drawn.places)
    by = f"{promise.recomputed_by}, and its own search for long parts of a sum"
    promise = replace(promise, drawn=DrawnNoise(sentence, drawn.power, places, drawn.flaws))
    if opinion is None:
        return promise
    return replace(promise, recomputed=max(promise.recomputed, opinion.epsilon), recomputed_by=by)


def add_recorded(promise: Promise, noise: SessionNoise | None, recorded: Sequence[Session]) -> Promise:
    """Add to the plan's privacy promise the session's measured noise, and the recorded sums that lack planned noise.

    A block of a sum lacks noise if its entries are all multiples of its multiplier. Where the session's noise is not
    known, the power of the measurement is dropped.
    """
    if flaws := tuple(flaw for session in recorded for flaw in session.flaws):
        drawn = DrawnNoise("Opened sums lack the noise that the plan has.", "", (), flaws)
        promise = replace(promise, drawn=drawn)
    if promise.measured is not None and not (noise is not None and noise.is_known):
        promise = replace(promise, measured=replace(promise.measured, power=""))
    return replace(promise, session_noise=noise)


def limits_of(subject: Subject, refusals: Sequence[str] | None) -> tuple[str, ...]:
    """Return the audit's limits in words, with a policy's reasons against a simulated plan (`refusals`, else None)."""
    found = []
    if unread := ", ".join(subject.unread):
        found.append(f"Of {unread} only noise, epsilon and lengths were audited: no attack here reads such blocks.")
    if half := ", ".join(subject.half_read):
        found.append(f"Of {half} attacks here read {subject.tells}; searching for records that fit them was not tried.")
    found += [f"A member's policy, as it begins, refuses this plan: {each}." for each in refusals or ()]
    return (*found, *LIMITS, *(() if refusals is None else SIMULATED_LIMITS))
