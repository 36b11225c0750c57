"""Summarise a plan on one page in plain words, for those who answer for the data and know no cryptography.

The page follows from the plan and its roster alone: the same plan has the same page, to the byte, in one release of
secagg. Who signs the plan's digest (`countersigning`) has therefore signed its page.

*How (ε, δ) is put into words.* Every (ε, δ) mechanism does no more for an observer than one that gives the answer away
with probability δ, and otherwise changes odds by e^ε at most: the latter can simulate the former (Kairouz, Oh &
Viswanath 2015, *The Composition Theorem for Differential Privacy*). It would be false to say that odds change by e^ε at
most but for a chance of δ: of Gaussian noise that chance is larger.
*How strength is put into words.* The words are this project's own scale, no standard: up to ε = 1 a promise is strong;
up to 2 a suspicion of one in ten stays less likely than not (moderate); up to 10 weak; above, almost no protection.
They are of ε alone, so that a promise whose δ is not small (`outright_delta`) has none of them.
*What the author of a plan states* stands in quotation marks, and holds none itself: it cannot end them, and go on as if
the software spoke.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from methods.method import effort_of
from secagg.agreement.plan import NoiseFrom, ResultAccess
from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Kind
from secagg.encoding.layout import Block
from secagg.plan_facts.explanation import group_epsilons, outright_delta
from secagg.plan_facts.facts import PlanFacts
from secagg.plan_facts.planning import MOST_BY_DEFAULT
from secagg.privacy import Claim, Mechanism, PrivacyClaim, Unit
from secagg.privacy.claim import NEIGHBOURS, format_epsilon

MOST_NAMES = 40
"""The most names of members, columns or classes in one sentence."""
STRENGTHS = ((1.0, "strong", "good"), (2.0, "moderate", "unclear"), (10.0, "weak", "bad"))
"""Upper bounds of ε with the word for them, and the tone of the page's first box (see the module's text)."""
BEYOND = "almost no protection"
"""The word for a larger ε."""
SUSPICION = 0.1
"""The certainty, before the results are seen, of the page's example."""
_MARKS = str.maketrans(dict.fromkeys('"“”„‟″‶«»＂〝〞〟❝❞ʺ˝‘’‚‛', "'"))
"""What looks like a quotation mark, and is replaced in the texts of a plan's author."""


@dataclass(frozen=True)
class Section:
    """A heading of the page and its sentences, with the tone (`good`, `unclear`, `bad`) of a highlighted one."""

    title: str
    lines: tuple[str, ...]
    tone: str = ""


@dataclass(frozen=True)
class PlanPage:
    """The page: its title, its sections, the parties that sign as (name, role), and the plan's SHA-256 in hex."""

    title: str
    sections: tuple[Section, ...]
    signers: tuple[tuple[str, str], ...]
    digest: str


def page_of(facts: PlanFacts) -> PlanPage:
    """Return the page of a plan, a function of the plan and its roster alone."""
    plan, roster = facts.plan, facts.roster
    contact = _stated("The contact for questions", plan.contact)
    sections = (
        Section("Parties", tuple(_parties(facts))),
        Section("Purpose", tuple(_purpose(plan.purpose))),
        Section("Data that leave your organisation", tuple(_leaving(facts))),
        Section("The promise", *_promise(facts)),
        Section("Persons and organisations with less protection", tuple(_weaker(facts))),
        Section("Trust in others", tuple(_trust(facts))),
        Section("Results", tuple(_results(facts))),
        Section("Withdrawing, and aborted sessions", tuple(_abort(facts))),
        Section("Storage and deletion", tuple(_storage(facts))),
        Section("Contact", (contact if plan.contact else "No contact is stated: ask the author of the plan for one.",)),
        Section("Small consortia", tuple(_small(facts))),
    )
    signers = tuple((member.name, member.role.replace("-", " ")) for member in roster.members)
    title = f"{roster.consortium}: a plan to sign"
    return PlanPage(title, tuple(each for each in sections if each.lines), signers, plan.digest.hex())


def strength(epsilon: float) -> str:
    """Return the word for the strength of a promise of ε > 0."""
    return next((word for most, word, _ in STRENGTHS if epsilon <= most), BEYOND)


def times_as_sure(epsilon: float) -> str:
    """Return e^ε, the largest change of odds, rounded up, as text; beyond a million it is no longer a number."""
    factor = math.exp(min(epsilon, 50.0))
    if factor > 1e6:
        return "more than a million times"
    return f"at most {math.ceil(factor):,} times" if factor > 10 else f"at most {math.ceil(factor * 10) / 10:g} times"


def _listed(names: Sequence[str], last: str = " and ") -> str:
    """Return names as one phrase, joined by commas and `last`: all of them, or the first and how many more."""
    if len(names) > MOST_NAMES:
        return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    return last.join(filter(None, (", ".join(names[:-1]), names[-1])))


def _stated(what: str, text: str) -> str:
    """Return a sentence that quotes a text of the plan's author, without quotation marks of its own."""
    return f"{what}, as the author of the plan states it: “{text.translate(_MARKS)}”."


def _members(count: int) -> str:
    return f"{count} member{'s' if count != 1 else ''}"


def _parties(facts: PlanFacts) -> list[str]:
    roster, clients, size = facts.roster, facts.roster.clients, facts.plan.cohort
    names = [roster.name(index) for index in facts.kinds[0].context.helpers]
    role = facts.protection.helper_role.replace("-", " ")
    lines = [
        f"{_members(len(clients))} give records: {_listed([roster.name(index) for index in clients])}.",
        f"{roster.name(SERVER_INDEX)} runs the server.",
    ]
    if names:
        lines.append(f"{_listed(names)} {'are' if len(names) > 1 else 'is'} the {role}{'s' * (len(names) > 1)}.")
    if size:
        drawn = f"{size} of the {len(clients)} members take part in each of {facts.rounds} rounds"
        lines.append(f"Chance decides which {drawn}. Count on taking part, as no promise rests on being left out.")
    return lines


def _purpose(purpose: str) -> list[str]:
    if not purpose:
        return ["No purpose is stated: do not sign before one is."]
    return [
        _stated("The purpose", purpose),
        "The software does not enforce the purpose: your agreement with the other members has to.",
    ]


def _leaving(facts: PlanFacts) -> list[str]:
    plan, schema = facts.plan, facts.plan.table_schema()
    used = f"The {plan.data_kind} of your data set are used, {plan.dimension} numbers for each record."
    if schema is not None:
        columns = [column.name for column in schema.columns]
        used = f"These columns are used: {_listed(columns, ', ')}; and the label {schema.label}."
    phrases = [
        f"{_statistic(facts, block)}{f', in each of {spec.times} rounds' if spec.times > 1 else ''}"
        for spec in facts.sums
        for block in spec.blocks
    ]
    opened = f"Totals of these over the members that take part are opened: {'; '.join(dict.fromkeys(phrases))}."
    if facts.groups > 1:
        opened += f" {facts.groups} groups of members have totals of their own."
    return ["No record leaves your organisation.", used, opened, _confidential(facts), *_noise(facts)]


def _statistic(facts: PlanFacts, block: Block) -> str:
    """Return a phrase that names a block's statistic in words."""
    plan = facts.plan
    return {
        Kind.COUNTS: f"the number of records of each class ({_listed(plan.classes, ', ')})",
        Kind.CLASS_SUMS: f"for each class the sum of each of the {plan.dimension} numbers that describe a record",
        Kind.SECOND_MOMENT: "the sums of the products of every two of these numbers",
        Kind.CENSUS: "the number of members that have each class",
        Kind.UPDATE: f"changes to the {effort_of(facts.sums).parameters or block.size} parameters of a model, "
        "computed from the records",
        Kind.SCORE: "how well a model does on members' records",
        Kind.OTHER: f"the method's own {block.name.replace('_', ' ')}, {block.size} number{'s' * (block.size > 1)}",
    }[block.kind]


def _confidential(facts: PlanFacts) -> str:
    """Return a sentence on the parties that would have to collude to read one member's numbers."""
    colluders, openers, server = facts.plan.colluders, facts.openers, facts.roster.name(SERVER_INDEX)
    if not facts.protection.hides_vectors:
        return f"Danger: your organisation's own numbers are not hidden: {server} sees them, one member at a time."
    most = f"at most {_members(colluders)} work{'s' * (colluders == 1)}" if colluders else "no member works"
    alone = f"{most} together with {server}"
    if len(openers) > 1:
        alone = f"{_listed(openers)} do not all work together, and {most} with them"
    return f"No message shows your organisation's own numbers to anybody as long as {alone}."


def _noise(facts: PlanFacts) -> list[str]:
    """Return sentences on the noise: the party that adds it, and by how much it blurs a number of records."""
    plan, kind = facts.plan, facts.kinds[0]
    if not plan.has_noise:
        return ["The totals are opened exactly as they are."]
    lines = ["Each member trains with random noise."] if plan.has_training_noise else []
    if plan.noise == NoiseFrom.CLIENT:
        lines.append("Each member adds random noise to its numbers before they leave.")
    elif plan.noise == NoiseFrom.AGGREGATOR:
        lines.append(f"Random noise is added to the totals by {_listed(facts.openers)}.")
    counts = [block.name for block in kind.layout.blocks if block.kind is Kind.COUNTS]
    totals = [kind.opened_noise(present) for present in range(facts.fewest, facts.cohort_size + 1)]
    sigmas = [noise[counts[0]].of_record.sigma for noise in totals if noise is not None and counts]
    if sigmas:
        off = f"at most about ±{math.ceil(max(sigmas))}"
        lines.append(f"The number of records of a class is then off by {off} in two of three cases, else by more.")
    return lines


def _promise(facts: PlanFacts) -> tuple[tuple[str, ...], str]:
    """Return the sentences on the promise, and the tone of their box."""
    claim = facts.claim
    if claim is None:
        return (
            "Nothing is promised about any person.",
            "From the totals, or together with what others know, facts about single records can be found.",
            "Sign only if everybody who receives the totals or the result may know such facts.",
        ), "bad"
    odds = math.exp(min(claim.epsilon, 50.0)) * SUSPICION / (1 - SUSPICION)
    cases = math.floor(1 / claim.delta * (1 + 1e-9))
    neighbours = NEIGHBOURS[claim.unit, claim.adjacency].replace("client", "member")
    bound = (
        f"The results tell nobody more about {neighbours} than this would: "
        f"in 1 of {cases:,} cases they give it away; "
        f"in all others somebody who suspects it can become {times_as_sure(claim.epsilon)} as sure, in odds."
    )
    lines = [
        bound,
        f"Somebody who was {100 * SUSPICION:.0f} % sure can so become {_percent(odds / (1 + odds))} sure.",
        _in_a_word(facts, claim),
    ]
    if facts.rounds > 1:
        most = f"; a member is in at most {facts.draws(facts.rounds)} of them" if facts.plan.cohort else ""
        lines.append(f"It covers all {facts.rounds} rounds together{most}.")
    tone = next((tone for most, _, tone in STRENGTHS if claim.epsilon <= most), "bad")
    if outright := outright_delta(facts):
        lines.append(f"Danger: {outright}.")
        tone = "bad"
    return tuple(lines), tone


def _in_a_word(facts: PlanFacts, claim: Claim) -> str:
    """Return the sentence on the strength of the promise: of ε, but for a δ that is not small."""
    word, epsilon = strength(claim.epsilon), f"ε = {format_epsilon(claim.epsilon)}"
    if outright_delta(facts):
        return f"Do not count on this promise: δ = {claim.delta:g} is not small, whatever ε is ({epsilon})."
    return f"This is {word if word == BEYOND else f'a {word} promise'} ({epsilon})."


def _percent(share: float) -> str:
    """Return a share of 1, rounded up, as text: to whole per cents, above 99 to tenths."""
    steps = 1000 if share > 0.99 else 100
    return f"{math.ceil(steps * share) / steps * 100:g} %"


def _weaker(facts: PlanFacts) -> list[str]:
    """Return sentences on those for whom the promise is weaker than stated; none without a promise."""
    claim = facts.claim
    if claim is None:
        return []
    if claim.unit is Unit.CLIENT:
        both = claim.of_group(2)
        less = f"{times_as_sure(both)} as sure (ε = {format_epsilon(both)})"
        return [f"A person with records at 2 members is protected less: {less}."]
    has_words = not outright_delta(facts)
    rows = [
        f"A person with {records} records: {times_as_sure(each)} as sure{f'; {strength(each)}' * has_words} "
        f"(ε = {format_epsilon(each)})."
        for records, each in group_epsilons(facts).items()
    ]
    whole = "Your organisation's records as a whole are not protected by this promise."
    return [*rows, "Have one record for each person.", whole]


def _trust(facts: PlanFacts) -> list[str]:
    lines = []
    if facts.claim is not None:
        lines = [*_honest(facts, facts.claim), _against(facts)]
    if facts.protection.hides_vectors and _fewest_in_total(facts) - facts.plan.colluders <= 2:
        left = ""
        if facts.plan.noise == NoiseFrom.CLIENT:  # without colluders a plan counts on one share that another one knows
            left = " Then the weaker promise holds." if facts.plan.colluders else " The promise holds all the same."
        lines.append(
            "Danger: if only you and one other member in a total are honest, the others may tell that member their "
            f"numbers. It can subtract these and its own from the total, and your organisation's numbers remain.{left} "
            "A plan with more members, or with fewer that may be missing, can be without it."
        )
    if facts.claim is None and facts.record_sums > 1:
        nearly = "Where a member misses one, the difference of two totals is nearly that member's numbers."
        lines.append(f"Danger: totals of the same records are opened several times. {nearly}")
    return lines


def _fewest_in_total(facts: PlanFacts) -> int:
    return min(facts.fewest, min(facts.group_sizes) - facts.plan.dropouts) if facts.groups > 1 else facts.fewest


def _honest(facts: PlanFacts, claim: Claim) -> list[str]:
    """Return sentences on the parties whose honesty the promise needs, and on what is left with one fewer."""
    if not isinstance(claim, PrivacyClaim) or claim.each_alone:
        return ["For each member the promise rests on its own noise alone, whoever else takes part."]
    first = claim.releases.first
    if first.mechanism is Mechanism.GAUSSIAN:
        names = _listed(facts.openers)
        alone = f"at least one of {names} is" if first.parties > 1 else f"{names} is"
        return [f"The promise holds while {alone} honest and adds its noise. Otherwise nothing is promised."]
    whose = f"at least {first.fewest} of the {first.parties} members"
    if first.lower:
        whose = f"all but {first.known} of the members in a total" if first.known else "all members in a total"
    lines = [f"The promise holds while {whose} are honest: they add their noise and keep it secret."]
    if first.fewest == 1:
        return [*lines, "With one honest member fewer nothing is promised."]
    fewer = claim.releases.epsilon(claim.delta, honest=first.fewest - 1)
    times = f"{times_as_sure(fewer)} instead of {times_as_sure(claim.epsilon)}"
    return [*lines, f"With one honest member fewer it is {times} (ε = {format_epsilon(fewer)})."]


def _against(facts: PlanFacts) -> str:
    """Return a sentence that names the parties against whom the promise holds, and those against whom it does not."""
    plan, claim, openers = facts.plan, facts.sum_claim, facts.openers
    if plan.noise == NoiseFrom.AGGREGATOR:
        exact = "" if len(openers) > 1 else f" but {openers[0]}, which sees the exact totals"
        return f"It protects from everybody{exact}."
    if plan.noise == NoiseFrom.MEMBER or not facts.protection.hides_vectors:
        return "It protects from everybody, the server and the other members included."
    several, known = len(openers) > 1, max(plan.colluders, 1)
    opener = f"{_listed(openers)} unless all of them work together" if several else openers[0]
    if claim is not None and not claim.holds_against_members:
        against = f"Against a member ε is {format_epsilon(claim.against_member)}."
        return f"It protects from {opener}, and from everybody who sees what it publishes. {against}"
    them, work = "them" if several else "it", f"work{'s' * (known == 1)}"
    return (
        f"It protects from {opener}, from any {_members(known)} that {work} with {them}, and from everybody who sees "
        f"the results. It does not protect from {_members(known + 1)} that work together with {them}."
    )


def _results(facts: PlanFacts) -> list[str]:
    roster, context = facts.roster, facts.kinds[0].context
    receivers = [roster.name(SERVER_INDEX)]
    if facts.plan.result is ResultAccess.MEMBERS:
        receivers += ["all members", *(roster.name(index) for index in context.helpers)]
    receive = f"{_listed(receivers)} receive" if len(receivers) > 1 else f"{receivers[0]} alone receives"
    confirmers, enough = facts.protection.confirmers(context)
    role = "members" if confirmers <= set(roster.clients) else f"{roster.role(min(confirmers)).replace('-', ' ')}s"
    signed = f"{enough} of the {len(confirmers)} {role} have signed that they hold the same one"
    if len(confirmers) == 1:
        signed = f"{roster.name(min(confirmers))} has signed for it"
    return [
        f"{receive} the result, a trained model. Treat the totals as known to all parties.",
        f"A total of fewer than {_members(_fewest_in_total(facts))} is never opened.",
        f"A result counts once {signed}.",
    ]


def _abort(facts: PlanFacts) -> list[str]:
    spent = ". Exact totals spend all of it"
    if facts.claim is not None:
        spent = f": ε = {format_epsilon(facts.claim.epsilon)} counts, with or without a result"
    needed = f"if one of the {_members(facts.cohort_size)} of a round does not upload, the round ends for all of them"
    return [
        *[f"Everybody is needed: {needed}, without a result."] * (facts.fewest == facts.cohort_size),
        "You can withdraw until your upload: decline, or start no client. Afterwards nothing can be taken back.",
        f"If the session aborts after your upload, your budget is spent{spent}.",
        "Further plans about the same data tell more; your ledger counts them, and your policy limits them.",
    ]


def _storage(facts: PlanFacts) -> list[str]:
    roster, retention = facts.roster, facts.plan.retention
    names = [roster.name(index) for index in sorted(facts.protection.receivers(facts.kinds[0].context))]
    upload = f"{'protected ' * facts.protection.hides_vectors}upload"
    kept = (
        f"{roster.name(SERVER_INDEX)} keeps the opened totals, the result and a signed transcript. "
        f"{_listed(names)} also keep{'s' * (len(names) == 1)} every member's {upload}. {_kept_by_others(facts)}"
    )
    return [
        _stated("Retention", retention) if retention else "No retention period is stated.",
        "Uploads, results and transcripts are not deleted by themselves.",
        kept,
        "secagg purge deletes the uploads; it leaves the last totals, the results and the transcripts.",
    ]


def _kept_by_others(facts: PlanFacts) -> str:
    """Return a sentence on what members and helpers keep: the server shows helpers what it shows members."""
    helpers = [facts.roster.name(index) for index in facts.kinds[0].context.helpers]
    kept = ["a signed transcript"]
    if facts.plan.result is ResultAccess.MEMBERS:
        kept.append("the result")
    if facts.rounds > 1 or facts.method.traits.shows_last_sum:
        kept.append("the opened totals that the server shows")
    keeper = f"{_listed(['Each member', *helpers])} keep" if helpers else "Each member keeps"
    return f"{keeper} {_listed(kept)}, {'each ' * bool(helpers)}on its own machine."


def _small(facts: PlanFacts) -> list[str]:
    """Return sentences on how much less noise a small consortium would have if no member could be missing.

    Shares are made for the h honest ones in the smallest total, so that a whole one has σ √(n/h) times the least; with
    all D others there it would be √(n/(h + D)).
    """
    claim, missing = facts.sum_claim, facts.cohort_size - facts.fewest
    if claim is None or claim.each_alone or facts.plan.noise != NoiseFrom.CLIENT:
        return []
    if not missing or facts.cohort_size > MOST_BY_DEFAULT:
        return []
    fewest, levels = claim.releases.first.fewest, claim.releases.first.lower
    honest = levels[0].fewest if levels else fewest + missing
    less = f"{100 * (1 - math.sqrt(fewest / honest)):.0f} %"
    made = f"The noise is made for totals in which {_members(missing)} may be missing."
    if levels:
        return [f"{made} What is too much is taken off again: about {less} of it where nobody is missing."]
    none = "If none might (plan new --dropouts 0)"
    lines = [f"{made} {none}, there would be about {less} less noise; then a member that is away ends the session."]
    if not facts.protection.keeps_noise:
        lines.append("With --surplus-noise remove there would be as much less whenever nobody is missing.")
    return lines
