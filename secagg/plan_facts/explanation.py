"""Explain a plan in plain words to those who decide whether their data goes into it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from scipy.special import ndtr

from methods.method import domains_of, effort_of
from secagg.agreement.plan import TRAINING, NoiseFrom, Plan, PlannedNoise, ResultAccess
from secagg.encoding import Kind
from secagg.plan_facts.facts import (
    KEPT_OPENINGS,
    PlanFacts,
    SumFacts,
    group_least,
    may_return,
    witnesses_in_words,
    witnesses_of,
)
from secagg.plan_facts.noise_plan import training_of
from secagg.privacy import Adjacency, Claim, NoiseCalibration, TrainingClaim, Unit
from secagg.privacy.claim import OUTRIGHT, format_epsilon, weak_delta

_COUNTED = {Kind.COUNTS: "records", Kind.CENSUS: "clients"}
"""The unit of each kind of block that holds counts."""
LIKELY = 0.95
"""A plan gets a warning if a class of all clients passes the noisy class gate with a smaller probability."""


GROUPS = (2, 5, 10)
"""Numbers of records of one person for which a plan's ε is told."""


def group_epsilons(facts: PlanFacts) -> dict[int, float]:
    """Return ε, rounded up, at the plan's δ for people with so many records each; {} without a promise for records."""
    claim = facts.claim
    return {} if claim is None or claim.unit is not Unit.RECORD else {each: claim.of_group(each) for each in GROUPS}


def explain(facts: PlanFacts) -> list[tuple[str, str]]:
    """Return rows (name, sentence) that explain the plan; rows that do not apply to it are left out."""
    plan, uploads = facts.plan, ", then ".join(str(kind.upload_bytes) for kind in facts.kinds)
    stated = f"; {plan.at_least} of all members at the least, as whoever wrote the plan states" if plan.at_least else ""
    shape = "×".join(map(str, plan.input_shape))
    expansion = f", then {plan.expand} random features" if plan.expand else ""
    length = f"joint length ≤ {plan.radius:g}, on a grid of {plan.levels} steps"
    if plan.grid.is_normalised:
        length = f"each record brought to length 1 ({plan.normalisation}), on a grid of {plan.levels} steps"
    rows = [
        ("purpose", plan.purpose or "no purpose is stated"),
        ("contact", plan.contact),
        ("retention", plan.retention),
        ("method", f"{plan.method} {plan.parameters}"),
        ("records", f"{plan.data_kind} of shape {shape}, at most {plan.max_records} per client{stated}"),
        ("classes", _classes(plan)),
        ("features", f"{plan.backbone}{expansion}: {plan.dimension} numbers of {length}"),
        ("what is summed", _sums(facts)),
        ("groups", _groups(facts) if facts.groups > 1 else ""),
        ("what members train", _training(facts)),
        ("class gate", _gate(facts) if facts.method.traits.class_threshold else ""),
        ("what leaves a client", f"{uploads} bytes whatever its records, and keys and shares"),
        ("ring", facts.kinds[0].capacity.proof()),
        *facts.protection.details(facts.kinds[0].context),
        ("protection", plan.protection),
        ("cohorts", _cohorts(facts) if plan.cohort else ""),
        ("who must agree", facts.protection.explain(facts.kinds[0].context)),
        *_promise(facts),
        ("who gets the head", f"the server {'alone' if plan.result is ResultAccess.SERVER else 'and all members'}"),
        ("when it counts", _confirmation(facts)),
        *(_rounds(facts) if facts.rounds > 1 else ()),
        ("waiting", _waiting(facts)),
        ("if it is aborted", "if the session aborts after your upload, your budget is spent"),
        ("session", plan.session.hex()),
        ("plan SHA-256", plan.digest.hex()),
    ]
    return [(name, text) for name, text in rows if text]


def _classes(plan: Plan) -> str:
    named = f"{len(plan.classes)}: {', '.join(plan.classes[:12])}{', …' if len(plan.classes) > 12 else ''}"
    schema = plan.table_schema()
    if schema is None or len(plan.classes) != 2:
        return named
    return f"{named}; {positive_class(schema.positive)}"


def positive_class(name: str) -> str:
    """Return a phrase that names the positive class, or one that says there is none, for an empty `name`."""
    declared = f"the positive class is {name}"
    return declared if name else "no positive class is declared, so that there is no sensitivity (schema: positive)"


def _cohorts(facts: PlanFacts) -> str:
    clients, size = len(facts.roster.clients), facts.plan.cohort
    present = (clients + facts.plan.colluders) // 2 + 1
    return (
        f"{size} of {clients} members are drawn for each of {facts.rounds} rounds, nobody for more than "
        f"{facts.draws(facts.rounds)}, before the first by nonces that at least {present} members commit to and then "
        "reveal; a member that does not reveal ends the plan. Thresholds and noise are those of a cohort with all "
        f"colluders in it; no promise rests on the draw, and none counts on being left out of it. Who is not drawn "
        f"returns with the signatures of {witnesses_in_words(facts)} of the round before, and needs no connection "
        "until then"
    )


def _groups(facts: PlanFacts) -> str:
    fewest = min(facts.group_sizes)
    who = f"{facts.groups} groups of {fewest} clients or more, always the same, are each opened a sum of their own"
    if fewest == 1:
        who = "every client's own part is opened, by itself"
    least, clients = group_least(facts.plan), len(facts.roster.clients)
    most = f"; a group takes {least}, so that {clients} clients allow {clients // least}" if fewest > 1 else ""
    return f"{who}: client i of the roster is of group i modulo {facts.groups}{most}"


def _confirmation(facts: PlanFacts) -> str:
    """Return a sentence that says who confirms a result, and what that does not show."""
    confirmers, enough = facts.protection.confirmers(facts.kinds[0].context)
    role = facts.roster.role(min(confirmers)).replace("-", " ")
    said = (
        f"once {enough} of {len(confirmers)} {role}{'s' * (len(confirmers) > 1)} have signed that they hold it, so "
        "that all have the same result; before that it is unconfirmed, and the next round does not begin"
    )
    if facts.method.traits.shows_last_sum:
        return said
    return f"{said}; that it follows from the {'last ' * (facts.rounds > 1)}sum is the server's word"


def _rounds(facts: PlanFacts) -> list[tuple[str, str]]:
    others, needed = facts.cohort_size - 1, witnesses_of(facts)
    said = "is in no later round"
    if may_return(facts):
        said = f"may return in a later round, shown what opened it by the signatures of {witnesses_in_words(facts)}"
    elif facts.opens_alone:
        said += f": {needed} other clients would have to sign what opened it, and there are {others}"
    rows = [("who was away", said), ("kept on disk", _disk_use(facts))]
    if not facts.plan.has_noise and facts.record_sums > 1:
        liar = (
            f"{facts.protection.sum_trust.capitalize()} can hold the model still by false sums; what follows from the "
            "model alone it then reads exactly, one client in every round. "
        )
        told = (
            "a client that drops out of a round, or comes back, changes its sum: the difference of two such sums is "
            f"nearly that client's part. {liar if facts.protection.sum_trust else ''}A policy refuses such a plan "
            "unless it says refinement_without_noise"
        )
        rows.append(("several exact sums", told))
    return rows


def _disk_use(facts: PlanFacts) -> str:
    sums = sum(kind.spec.times * kind.context.packed_bytes for kind in facts.kinds)
    uploads = sum(kind.spec.times * kind.upload_bytes for kind in facts.kinds)
    clients = len(facts.roster.clients)
    opening = f"the {KEPT_OPENINGS} newest and those it has returned by" if facts.opens_alone else "all"
    shown = "all" if facts.method.traits.shows_last_sum else "all but the last"
    return (
        f"the opened sums, {sums} bytes in all, at the server, at every other party those that it is shown ({shown}), "
        f"and what opened the rounds: {opening}; "
        f"at those who collect them {clients} clients' uploads, {clients} × {uploads} bytes; all until it is purged"
    )


def _waiting(facts: PlanFacts) -> str:
    """Return how many seconds the server waits for members: to join, at a step, and in later rounds."""
    plan = facts.plan
    said = f"{plan.join_seconds} s for members to join, {plan.step_seconds} s at every later step"
    if facts.rounds > 1 and not facts.protection.speaks_once:
        said += f", {plan.round_seconds} s for them to compute for a later round and join it"
    return f"{said}; once more where too few have answered and others are connected"


def _sums(facts: PlanFacts) -> str:
    """Return a phrase that lists the plan's sums in order, with the kinds and shapes of their blocks."""
    said, is_again = [], False
    for spec in facts.sums:
        names = (str(block.kind) if block.kind is not Kind.OTHER else block.name for block in spec.blocks)
        shapes = ("×".join(map(str, block.shape)) for block in spec.blocks)
        blocks = ", ".join(" ".join(pair) for pair in zip(names, shapes, strict=True))
        times = f"{spec.times} times " if spec.times > 1 else ""
        again = ", over the same records" if is_again or spec.times > 1 else ""
        said.append(f"{times}{blocks}: {sum(block.size for block in spec.blocks)} integers{again}")
        is_again |= spec.is_about_records
    return ", then ".join(said)


def _training(facts: PlanFacts) -> str:
    """Return a phrase with the parameters, epochs and steps that members train; "" without training."""
    effort = effort_of(facts.sums)
    if not effort.parameters:
        return ""
    epochs = f"{effort.epochs} epoch{'s' if effort.epochs > 1 else ''} at most"
    steps = f", in {effort.steps} steps of DP-SGD" if effort.steps else ""
    return f"{effort.parameters} parameters, {epochs} in each of {effort.rounds} rounds{steps}"


def _gate(facts: PlanFacts) -> str:
    plan, least, clients = facts.plan, facts.method.traits.class_threshold, facts.cohort_size
    honest = least - plan.dropouts - plan.colluders
    domains, parts = len(domains_of(plan.method_parameters)) or 1, facts.method.traits.cells_per_class
    by = [name for name, several in (("domain by domain", domains > 1), ("slot by slot", parts > domains)) if several]
    what = f"classes, {' and '.join(by)}," if by else "classes"
    said = (
        f"{what} of which fewer than {least} clients have a record are left out of the sums after the census, and of "
        f"the head: {honest} honest, {plan.dropouts} that may vanish, {plan.colluders} that may collude"
    )
    sigma = _census_sigma(facts)
    alone = "; where one honest client is left in a class's sum, colluders know its part: a gate of 2 hides it"
    alone = alone if honest == 1 and plan.colluders else ""
    if sigma is None:
        if (context := facts.kinds[0].context).proves_bits:
            return (
                f"{said}. Each client proves that its entries are 0 or 1, and checks the proofs of all (in up to "
                f"{context.proof_seconds} s) and that the opened census is their sum, so that a class passes only if "
                f"{least} clients state that they have it. A client can state a class that it lacks, and keep back one "
                f"that it has{alone}"
            )
        return (
            f"{said}. This rests on the word of every client and of {facts.protection.sum_trust}: no census entry is "
            f"proven, and one of them that adds {least - 1} opens the sum of a class that one client alone has"
        )
    one, all_ = (f"{ndtr((holders - least) / sigma):.2g}" for holders in (1, clients))
    return (
        f"{said}; under the census's noise one that m clients hold passes with probability "
        f"Φ((m - {least})/{sigma:.3g}), {one} where one holds it and {all_} where all do; so the gate is about "
        "accuracy, and epsilon alone hides a client"
    )


def doubts_of(facts: PlanFacts) -> list[str]:
    """Return a sentence for each reason why the plan is likely to fail, or why its privacy guarantee is too weak."""
    plan, clients = facts.plan, len(facts.roster.clients)
    # A δ of 1/n or more lets one unit in n be published outright; n is what is stated, else all of one client's.
    units, name = (clients, "clients") if plan.unit == Unit.CLIENT else (plan.at_least or plan.max_records, "records")
    weak = weak_delta(plan.delta, units, name)
    return [*filter(None, (weak,)), *_doubts_of_gate(facts), *doubts_of_updates(facts, facts.kinds[0])]


def _doubts_of_gate(facts: PlanFacts) -> list[str]:
    least, clients, sigma = facts.method.traits.class_threshold, facts.cohort_size, _census_sigma(facts)
    if not least or sigma is None:
        return []
    passes = float(ndtr((clients - least) / sigma))
    if passes >= LIKELY:
        return []
    doubt = (
        f"a class that all {clients} clients have passes the class gate with probability {passes:.2g} only, such is "
        "the census's noise; a census that leaves fewer than two classes ends the plan, and is charged for itself: "
        "take more clients, a larger epsilon, a lower gate or none"
    )
    return [doubt]


def doubts_of_updates(facts: PlanFacts, kind: SumFacts) -> list[str]:
    """Return a warning for each named array of model updates whose noise has a larger L2 norm than any possible sum."""
    return [
        f"the noise on {name} is {ratio:.2g} times as long as the longest sum of it that {facts.cohort_size} "
        "clients can send: training follows the noise; take more clients, a larger epsilon, fewer rounds or a smaller "
        "model"
        for name, ratio in noise_to_signal(facts, kind).items()
        if ratio > 1
    ]


def noise_to_signal(facts: PlanFacts, kind: SumFacts) -> dict[str, float]:
    """Return, for each named array of model updates, its noise's L2 norm divided by that of the longest possible sum.

    √entries·σ of the opened sum of all clients, over as many lengths as there are clients, all in one direction. Empty
    for sums without noise, and for those whose bound is about records, whose number no plan knows.
    """
    clients, spec, noise = facts.cohort_size, kind.spec, kind.opened_noise(facts.cohort_size)
    if noise is None or spec.per is not Unit.CLIENT:
        return {}
    lengths = {each.name: each.l2 for each in spec.sensitivity(Unit.CLIENT, Adjacency.ADD_REMOVE, 1).blocks}
    return {
        block.name: math.sqrt(block.size) * noise[block.name].of_record.sigma / (clients * lengths[block.name])
        for block in spec.blocks
        if block.kind is Kind.UPDATE
    }


def noise_in_records(facts: PlanFacts) -> dict[str, float]:
    """Return how many records (or gradients) in one direction sum to the noise's length; {} without noisy training.

    Of "training": √size·σ of a step in lengths of the longest gradient; of a class's sum in the first round: √width·σ
    of the opened sum of all clients in lengths of the longest record. A plan does not know how many records there are.
    """
    training = training_of(facts.sums)
    if training is None or not facts.plan.has_training_noise:
        return {}
    found = {TRAINING: math.sqrt(training.size) * facts.plan.training_sigma / training.levels}
    first = facts.kinds[0]
    noise, spec = first.opened_noise(len(facts.roster.clients)), first.spec
    if noise is None or not spec.has(Kind.CLASS_SUMS):
        return found
    lengths = {each.name: each.l2 for each in spec.sensitivity(Unit.RECORD, Adjacency.ADD_REMOVE, 1).blocks}
    return found | {
        block.name: math.sqrt(block.size / block.shape[0]) * noise[block.name].of_record.sigma / lengths[block.name]
        for block in spec.blocks
        if block.kind is Kind.CLASS_SUMS
    }


def _round_noise(facts: PlanFacts) -> str:
    """Return a phrase that compares the noise with updates, or with records where members train with noise; else ""."""
    ratios = [
        f"on {name} {ratio:.3g} times as long as the longest sum there can be, of full updates in one direction"
        for name, ratio in noise_to_signal(facts, facts.kinds[0]).items()
    ]
    stated = facts.plan.at_least / len(facts.plan.classes)
    for name, records in noise_in_records(facts).items():
        what = "a step of training" if name == TRAINING else f"{name} of a class"
        ratio = f", {records / stated:.3g} times those stated" if stated and name != TRAINING else ""
        ratios.append(f"on {what} as long as {records:.3g} records that all point in one direction{ratio}")
    return "; ".join(ratios)


def _census_sigma(facts: PlanFacts) -> float | None:
    """Return σ of the noise on each count of a class gate's census; None without noise or gate."""
    noise = facts.kinds[0].opened_noise(facts.cohort_size)
    census = [block.name for block in facts.kinds[0].layout.blocks if block.kind is Kind.CENSUS]
    return noise[census[0]].of_record.sigma if noise is not None and census else None


def _against(facts: PlanFacts) -> str:
    plan, protection, claim = facts.plan, facts.protection, facts.sum_claim
    openers, several = facts.openers, len(facts.openers) > 1
    opener = f"any of {', '.join(openers)} but not all of them together" if several else openers[0]
    if plan.noise == NoiseFrom.MEMBER:
        return "everybody: what leaves a member is private before anyone adds it up, under any protection"
    if plan.noise == NoiseFrom.AGGREGATOR and several:
        return f"everybody, and {opener}: each adds all the noise before anyone sees the sum"
    if plan.noise == NoiseFrom.AGGREGATOR:
        return "everybody but the aggregator, which opens the exact sum and is trusted to add the noise"
    if not protection.hides_vectors:
        return "everybody, though the server sees every vector: each client's own share of the noise is enough"
    if claim is not None and not claim.holds_against_members:
        lone = f"each knows its own share: against one, epsilon is {format_epsilon(claim.against_member)}"
        return f"{opener} and everybody who sees what it publishes, but not the members ({lone})"
    members = f"any {plan.colluders}" if plan.colluders else "any one"
    return f"{opener}, {members} of the members, and everybody who sees what they publish"


def _promise(facts: PlanFacts) -> list[tuple[str, str]]:
    claim, plan = facts.claim, facts.plan
    if claim is None:
        return [("promise", "no differential privacy: exact sums are opened (ε = ∞)")]
    noise = "; ".join(f"{each.block}: {_deviation(each, facts)}" for each in plan.noises)
    fewer = facts.bytes_saved_by_grid
    saved = f": {fewer} bytes fewer than a plan without noise has" if fewer else ""
    return [
        ("promise", claim.sentence()),
        ("several records", _several_records(facts)),
        ("delta", outright_delta(facts)),
        ("against", _against(facts)),
        ("noise of one party", f"{noise}. {_enough(claim)}"),
        ("surplus noise", surplus_noise(facts)),
        ("noise of a round", _round_noise(facts)),
        ("what breaks it", _breaks(facts)),
        ("a bad record", "counts as zero, by a rule that looks at it alone; each member sees how many it has"),
        ("grid", f"{plan.levels} steps in a record's length{saved}"),
    ]


def surplus_noise(facts: PlanFacts) -> str:
    """Return a text on noise that is removed when few clients are missing, with σ of each level; "" if nobody adds any.

    The σ are those of the noise that is left in a sum which that many clients are not in.
    """
    claim, plan = facts.sum_claim, facts.plan
    if claim is None or plan.noise is not NoiseFrom.CLIENT or claim.each_alone:
        return ""
    most = facts.cohort_size - facts.fewest
    if not most:
        return "there is none to remove: no client may be missing from a sum"
    last = plan.noise_levels[-1] if plan.noise_levels else most - 1
    few = f"fewer than {last + 1} clients are" if last else "no client is"
    reason = f"if {few} missing, a sum has more noise than the promise needs"
    if not plan.noise_levels:
        return f"it is kept: {reason}"
    levels = (*plan.noise_levels, most)
    least = {missing: before + 1 for before, missing in pairwise((-1, *levels))}
    said = []
    for missing in levels:
        noise = "; ".join(
            f"{each.block}: {_deviation(_left(each, claim.releases.first, facts.cohort_size, missing), facts)}"
            for each in plan.sum_noises
        )
        some = f"{least[missing]} to {missing}" if least[missing] < missing else str(missing)
        said.append(f"Left in a sum with {some} missing: {noise}")
    how = "clients then open seeds from which the surplus follows, and it is taken off"
    return f"{reason}: {how}. {'. '.join(said)}. The promise holds for each of these numbers"


def _left(noise: PlannedNoise, calibration: NoiseCalibration, clients: int, missing: int) -> PlannedNoise:
    """Return what is left of all clients' noise on a block of a sum, as a `PlannedNoise`."""
    on, off = (
        calibration.left_of(sigma, missing) * math.sqrt(clients - missing) if sigma else 0.0
        for sigma in (noise.sigma, noise.off_diagonal)
    )
    return replace(noise, sigma=on, off_diagonal=off)


def _several_records(facts: PlanFacts) -> str:
    """Return a sentence on the ε of people with several records; "" without a promise for records."""
    told = ", ".join(f"{format_epsilon(each)} with {records}" for records, each in group_epsilons(facts).items())
    return told and f"epsilon of people with more than one record, at the same delta: {told}"


def _deviation(noise: PlannedNoise, facts: PlanFacts) -> str:
    """Return a phrase with a noise's σ, in records or clients, in longest gradients, or in steps of the grid."""
    training = training_of(facts.sums)
    further = {block.name: block.l2 for block in training.further} if training is not None else {}
    if noise.block in further:
        return f"σ {noise.sigma / further[noise.block]:.6g} of what one record adds, in each round"
    if training is not None and noise.block == TRAINING:
        return f"σ {noise.sigma / training.levels:.6g} longest gradients at each step"
    kind = next(block.kind for sums in facts.sums for block in sums.blocks if block.name == noise.block)
    if kind in _COUNTED:
        return f"σ {noise.sigma / noise.multiplier:.6g} {_COUNTED[kind]}"
    steps = "grid steps" if kind is not Kind.SECOND_MOMENT else "grid steps squared"
    beside = f", {noise.off_diagonal:.6g} off the diagonal" if noise.off_diagonal else ""
    return f"σ {noise.sigma:.6g} {steps}{beside}"


def _enough(claim: Claim) -> str:
    if isinstance(claim, TrainingClaim):
        return "Each member's own is what hides its records."
    first = claim.releases.first
    if claim.each_alone:
        return "Each client's own is what hides it."
    if first.lower:
        return f"{first.parties} add theirs, and in each sum all but {first.known} must be honest"
    return f"{first.parties} add theirs, {first.fewest} honest ones are enough"


def outright_delta(facts: PlanFacts) -> str:
    """Return a warning with the number n of records (or clients) at which δ ≥ 1/n; "" if the plan allows fewer."""
    plan, clients = facts.plan, len(facts.roster.clients)
    units, name = (clients, "clients") if plan.unit == Unit.CLIENT else (clients * plan.max_records, "records")
    if plan.delta * units < 1:
        return ""
    return f"with {math.ceil(1 / plan.delta)} {name} or more, {plan.delta:g} is not below 1 in n: {OUTRIGHT}"


def _breaks(facts: PlanFacts) -> str:
    """Return a phrase on what breaks the privacy guarantee; threat_models/README.md has the rest."""
    broken = "members that leave their noise out or tell it to others beyond the colluders allowed for"
    openers = facts.openers
    if facts.plan.noise == NoiseFrom.MEMBER:
        broken = "a member whose training leaves its noise out or tells it to others, for its own records"
    elif facts.sum_claim is not None and facts.sum_claim.each_alone:
        broken = "a member that leaves its noise out or tells it to others, for its own records"
    elif facts.plan.noise == NoiseFrom.AGGREGATOR and len(openers) > 1:
        broken = f"{' and '.join(openers)}, when they collude or all leave their noise out"
    elif facts.plan.noise == NoiseFrom.AGGREGATOR:
        broken = "an aggregator that leaves its noise out or keeps the exact sum"
    if facts.sum_claim is not None and facts.plan.has_training_noise:
        broken += "; and a member whose training leaves its noise out, for its own records"
    several = "; another plan over the same data adds to it, which each member's ledger counts"
    unit = "; a client's records as a whole, or people with many records, are protected far less"
    return broken + several + (unit if facts.plan.unit == Unit.RECORD else "")
