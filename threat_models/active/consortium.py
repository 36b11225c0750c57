"""A small consortium on this machine: parties with certificates, a plan, a policy and made-up records."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from secagg.agreement.plan import Plan
from secagg.agreement.policy import Policy
from secagg.agreement.roster import Roster
from secagg.data import Records
from secagg.encoding import Normalisation
from secagg.encoding.grid import Origin
from secagg.features.local_records import quantised_records
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.plan_facts.records import LocalRecords
from secagg.privacy import Adjacency
from secagg.protection import LocalParty, protection_named
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from secagg.transport import Credentials, read_credentials
from secagg.transport.enrolment import create_authority, create_request, issue

DATA = PublicData("features", (6,), ("a", "b", "c"), None, None)
NOISY: Mapping[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE, "normalise": None}
"""Choices that give a plan noise, with ε = 8."""


@dataclass(frozen=True)
class Consortium:
    """A test consortium: its folder, its roster, the server's plan, and the policy by which clients accept plans.

    `folder` holds each party's keys (NAME/tls) and its state (NAME/state).
    """

    folder: Path
    roster: Roster
    plan: Plan
    policy: Policy

    @classmethod
    def enrol(cls, folder: Path, protection: str, *, clients: int = 4, **choices: Any) -> Consortium:
        """Make certificates, a roster, a plan and a policy that accepts only this plan.

        One client may drop out and one may collude.
        """
        roles = {"server": "server", **{f"client-{number}": "client" for number in range(1, clients + 1)}}
        roles |= protection_named(protection).helper_roles
        create_authority(folder / "authority", "probes")
        roster = issue(folder / "authority", [create_request(folder / n / "tls", n, role) for n, role in roles.items()])
        for name in roles:
            shutil.copytree(folder / "authority" / "issued" / name, folder / name / "tls", dirs_exist_ok=True)
        plan = plan_for(roster, protection=protection, **choices)
        return cls(folder, roster, plan, policy_accepting(plan, "records"))

    @property
    def setup(self) -> RoundSetup:
        """Settings of the plan's first round, from plan and roster. Raises BadInput for an invalid plan."""
        return RoundSetup.of(self.plan, self.roster)

    def again(self, **choices: Any) -> Consortium:
        """Return a consortium of the same members with a new plan, made with the options `choices`."""
        return replace(self, plan=plan_for(self.roster, protection=self.plan.protection, **choices))

    def home(self, member: int) -> Path:
        """Return the folder that holds a party's keys and its state."""
        return self.folder / self.roster.name(member)

    def state(self, member: int) -> Path:
        """Return the folder in which a party keeps its state between runs, and create it if necessary."""
        path = self.home(member) / "state"
        path.mkdir(exist_ok=True)
        return path

    def credentials(self, member: int) -> Credentials:
        """Read a party's keys and certificates."""
        return read_credentials(self.home(member) / "tls")

    def party(self, member: int) -> LocalParty:
        """Return a party (client or helper) with its identity key and the operating system's randomness."""
        return LocalParty(member, self.credentials(member).identity, OperatingSystem())

    def records(self, member: int) -> LocalRecords:
        """Return a client's made-up records, the same each time; only client 1 has any of the last class."""
        generator = np.random.default_rng(member)
        classes = len(self.plan.classes) - (member > 1)
        labels = np.arange(40) % classes
        features = generator.normal(size=(len(labels), self.plan.dimension)) + 3 * np.eye(self.plan.dimension)[labels]
        origin = Origin.of("made up", np.arange(1, len(labels) + 1))
        return quantised_records(self.plan, features, Records(features, labels.astype(np.int64), {}, origin))

    @property
    def clients(self) -> tuple[int, ...]:
        """Roster indices of the clients that have a folder on this machine; the roster may name more."""
        return tuple(member for member in self.roster.clients if self.home(member).exists())

    @property
    def helpers(self) -> tuple[int, ...]:
        """Roster indices of the plan's helpers: its aggregators, or its key holder."""
        return tuple(self.setup.context.helpers)


def plan_for(roster: Roster, **choices: Any) -> Plan:
    """Make a plan for made-up records, with a new session identifier; by default without noise."""
    fixed: dict[str, Any] = {
        "normalise": Normalisation.CENTRED_UNIT,
        "max_records": 64,
        "dropouts": int(len(roster.clients) > 3),
        "join_seconds": 10,
        "step_seconds": 10,
    }
    return make_plan(DATA, roster, PlanChoices(**{**fixed, **choices}), OperatingSystem())
