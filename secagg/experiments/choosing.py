"""Compare all protections for one plan: who must be trusted, the bytes that a client uploads, and its seconds."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from secagg.agreement.roster import Member, Roster
from secagg.crypto.signatures import SigningKey
from secagg.errors import BadInput
from secagg.experiments.session import SessionCost, run_session
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.protection import PROTECTIONS, Protection
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup

MOST_MEASURED = 12
"""Most clients in the session that is measured; a client's work under `masked` grows with their number."""


@dataclass(frozen=True)
class ProtectionOffer:
    """A protection for a plan, with a client's costs: `upload` bytes to each receiver, CPU `seconds` on this machine.

    Both are of the first of the `kinds` of sum that the plan has. `refused` says why the plan cannot have it; then the
    numbers are empty.
    """

    protection: str
    trust: str
    visits: str
    leaving: str
    upload: dict[str, int]
    seconds: float
    refused: str = ""
    kinds: int = 1

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the offer as (heading, text) pairs for display."""
        yield "trusted for it", self.trust
        yield "a client is", self.visits
        yield "who leaves", self.leaving
        if self.refused:
            yield "this plan", f"cannot have it: {self.refused}"
            return
        first = f", in the first of {self.kinds} kinds of sum" if self.kinds > 1 else ""
        yield "a client uploads", ", ".join(f"{size} bytes to {name}" for name, size in self.upload.items()) + first
        yield "a client computes", f"{self.seconds:.3f} s here{first}"


def compare(data: PublicData, roster: Roster, choices: PlanChoices) -> list[ProtectionOffer]:
    """Return, for each protection of the plan of `choices`, who must be trusted and what a client uploads and computes.

    Helpers that the roster lacks are made up.
    """
    return [_choice(each, data, roster, replace(choices, protection=each.name)) for each in PROTECTIONS.values()]


def _choice(protection: Protection, data: PublicData, roster: Roster, choices: PlanChoices) -> ProtectionOffer:
    words = (protection.name, protection.trust, protection.visits, protection.absence)
    role = protection.helper_role
    lacking = protection.fewest_helpers - len(roster.with_role(role))
    keys = [SigningKey.generate(OperatingSystem()) for _ in range(max(0, lacking))]
    added = [Member(f"supposed-{role}-{number}", role, key.public) for number, key in enumerate(keys, start=1)]
    supposed = Roster.of(roster.consortium, (*roster.members, *added))
    try:
        setup = RoundSetup.of(make_plan(data, supposed, choices, OperatingSystem()), supposed)
    except BadInput as error:
        return ProtectionOffer(*words, {}, 0.0, str(error))
    parts = protection.deliveries(setup.facts.kinds[0].context)
    upload = {setup.roster.name(part.receiver): part.size for part in parts}
    return ProtectionOffer(*words, upload, _client_seconds(data, supposed, choices), kinds=len(setup.facts.kinds))


def _client_seconds(data: PublicData, roster: Roster, choices: PlanChoices) -> float:
    """Return a client's CPU seconds: the median of a session in memory, scaled to all clients if it grows with them."""
    clients = choices.cohort or len(roster.clients)
    measured = min(clients, MOST_MEASURED)
    members = [member for index, member in enumerate(roster.members) if index not in roster.clients[measured:]]
    keys = {member.name: SigningKey.generate(OperatingSystem()) for member in members}
    few = Roster.of(roster.consortium, [replace(member, identity=keys[member.name].public) for member in members])
    gate = min(choices.class_gate, measured)
    fewer = replace(choices, colluders=0, dropouts=0, min_clients_in_sum=1, class_gate=gate, cohort=0)
    setup = RoundSetup.of(make_plan(data, few, fewer, OperatingSystem()), few)
    vector = np.zeros(setup.sum.layout.length, dtype=np.int64)
    identities = {index: keys[member.name] for index, member in enumerate(few.members)}
    found: SessionCost = run_session(setup, identities, lambda _: vector.copy(), {}).measured
    seconds = statistics.median(found.client_cpu.values())
    return seconds * clients / measured if setup.protection.grows_with_clients else seconds
