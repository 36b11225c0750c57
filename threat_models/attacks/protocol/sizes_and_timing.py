"""Test whether sizes and order of messages depend on how many records clients have."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import permutations

import numpy as np
from scipy import stats

from threat_models.attacks.attack import Attack, Progress
from threat_models.estimation.intervals import current_level, holm
from threat_models.findings import Control, Finding, Metric, decide
from threat_models.session import Floats, Knowledge, Message
from threat_models.views import View

_NOTHING = "0 bits, of the {ceiling} that would name the client"
BITS = Metric("bits_of_a_size", "bits that a size tells, at most", "bits", _NOTHING, leads=True)
DIFFERING = Metric("differing_steps", "steps whose sizes differ", "steps", "0 steps")
P_VALUE = Metric("p_value", "p-value of sizes or order against records", good="not small")
SEED = 2_012
SIGNIFICANT = 0.01
EXACT = 7
"""Largest number of clients for which all orders of them are compared."""
DRAWS = 20_000
CONTROL_CLIENTS = 12


def sizes_by_step(messages: Sequence[Message], clients: Sequence[str]) -> dict[tuple[str, bool], dict[str, int]]:
    """Add up the bytes of each client's messages, by protocol step, separately for sent and received ones."""
    known, found = set(clients), defaultdict[tuple[str, bool], Counter[str]](Counter)
    for message in messages:
        for client, sent in ((message.sender, True), (message.receiver, False)):
            if client in known:
                found[message.step, sent][client] += message.size
    return {step: dict(sizes) for step, sizes in found.items()}


def bits(sizes: Mapping[str, int]) -> float:
    """Compute the entropy of clients' message sizes: the most bits that one reveals of its sender; 0 if all equal."""
    shares = np.array(list(Counter(sizes.values()).values())) / len(sizes)
    return max(0.0, float(-(shares * np.log2(shares)).sum()))


def association(values: Floats, records: Floats) -> float:
    """Compute the p-value, by permutation, of Spearman's rank correlation of clients' values and numbers of records.

    All orders of up to 7 clients, 20,000 random ones of more; 1 where either does not vary.
    """
    if np.ptp(values) == 0 or np.ptp(records) == 0 or len(values) < 3:
        return 1.0
    one, other = stats.rankdata(values), stats.rankdata(records)
    one, other = one - one.mean(), other - other.mean()
    seen = abs(one @ other)
    if len(values) <= EXACT:
        orders = np.array(list(permutations(range(len(values)))))
        return float((np.abs(other[orders] @ one) >= seen * (1 - 1e-12)).mean())
    generator = np.random.default_rng(SEED)
    drawn = np.array([other[generator.permutation(len(other))] for _ in range(DRAWS)])
    return float((1 + (np.abs(drawn @ one) >= seen * (1 - 1e-12)).sum()) / (1 + DRAWS))


def _tests(messages: Sequence[Message], clients: Sequence[str], records: Mapping[str, float]) -> list[float]:
    """Compute p-values: one for each step whose sizes differ, and one for the order of the clients' first messages."""
    tried = [sizes for sizes in sizes_by_step(messages, clients).values() if bits(sizes) > 0]
    places: dict[str, int] = {}
    for message in messages:
        if message.sender in set(clients):
            places.setdefault(message.sender, message.place)
    tried += [places] if len(places) > 1 else []
    found = []
    for values in tried:
        pairs = np.array([(values[name], records.get(name, 0.0)) for name in sorted(values)], dtype=np.float64)
        found.append(association(pairs[:, 0], pairs[:, 1]))
    return found


def _succeeds(p_values: Sequence[float]) -> bool:
    """Return whether sizes or order surely correlate with numbers of records, corrected for testing every step."""
    return bool(p_values) and min(holm(p_values)) < min(SIGNIFICANT, current_level())


def _make_controls() -> tuple[Control, Control]:
    """Run the test on messages as long as their senders' data, where it must succeed, and on messages of one length."""
    clients = [f"client {number}" for number in range(CONTROL_CLIENTS)]
    records = {client: 10.0 + 3 * number for number, client in enumerate(clients)}
    order = np.random.default_rng(SEED).permutation(CONTROL_CLIENTS)
    found = []
    for padded in (False, True):
        sizes = {client: 4_096 if padded else 8 * int(count) for client, count in records.items()}
        sent = [Message(clients[each], "server", "upload", sizes[clients[each]], at) for at, each in enumerate(order)]
        found.append(_succeeds(_tests(sent, clients, records)))
    return Control("messages as long as the data", True, found[0]), Control("messages of one length", False, found[1])


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view = views[0]
    records = {client: float(sum(owner == client for owner in knowledge.owners)) for client in view.clients}
    p_values = _tests(view.messages, view.clients, records)
    entropies = {step: bits(sizes) for step, sizes in sizes_by_step(view.messages, view.clients).items()}
    widest = max(entropies.values(), default=0.0)
    limit = math.log2(max(len(view.clients), 2))
    differing = sorted({step for (step, _), each in entropies.items() if each > 0})
    found = (
        BITS.exact(widest, "entropy of the sizes in a step", baseline=0.0, ceiling=limit),
        DIFFERING.exact(float(len(differing)), "count", baseline=0.0),
        *((P_VALUE.exact(min(holm(p_values)), "permutations, Holm"),) if p_values else ()),
    )
    controls, succeeded = _make_controls(), _succeeds(p_values)
    order = _describe_order(succeeded, view.clients, records)
    progress(1, 1)
    differ = f"Sizes differ between clients in {', '.join(differing)}"
    sizes = differ if differing else "All clients' sizes are the same"
    sentence = f"{sizes}. {order} A transcript holds the order of messages, not their times."
    outcome = decide(succeeded, not differing, controls)
    return Finding("sizes_and_timing", "", outcome, sentence, found, controls=controls)


def _describe_order(succeeded: bool, clients: Sequence[str], records: Mapping[str, float]) -> str:
    """Describe whether sizes or order correlate with numbers of records, and whether so few clients could show it.

    It could have been where the strongest association of so many clients would be significant. That none
    shows bounds none: the order of messages is only ever held against a session.
    """
    if succeeded:
        return "Sizes or order go with their numbers of records."
    if len(set(records.values())) < 2:
        return "Whether order goes with their numbers of records is not known, nor are these."
    if 2 / math.factorial(min(len(clients), 20)) >= min(SIGNIFICANT, current_level()):
        return f"Whether order goes with their numbers of records {len(clients)} clients are too few to tell."
    return "Nothing is seen to go with their numbers of records."


SIZES_AND_TIMING = Attack(
    "sizes_and_timing",
    "Sizes and order of messages",
    "Dyer, Coull, Ristenpart & Shrimpton 2012",
    ("messages",),
    _run,
    (BITS, DIFFERING, P_VALUE),
    tries_records=False,
    weighs_all=True,
    meaning="Sizes or the order of messages tell something of a member's data.",
    remedy="Sizes must depend on the plan alone: report it as SECURITY.md says. Let members join at set times.",
)
