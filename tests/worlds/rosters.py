"""Who takes part in a test's federation: rosters with their keys, and TLS folders issued by an authority."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from secagg.agreement.roster import Member, Roster
from secagg.crypto.signatures import SigningKey
from secagg.protection import protection_named
from secagg.randomness import OperatingSystem, SeededRandomness
from secagg.transport.enrolment import create_authority, create_request, issue
from secagg.unsafe_for_tests import TOKEN

SERVER = "server"


@functools.cache
def identity(member: int) -> SigningKey:
    """The identity key of a member, the same in every session."""
    return SigningKey.generate(SeededRandomness(b"identity %d" % member, TOKEN))


def fresh_identity(member: int) -> SigningKey:
    """An identity key that no other session has."""
    return SigningKey.generate(OperatingSystem())


def roles_of(clients: int, protection: str = "masked", helpers: int | None = None) -> dict[str, str]:
    """Name → role: the server, client-1 … client-n, and the protection's helpers, as few as there may be.

    Where these are aggregators there may be more, `helpers`.
    """
    roles = {SERVER: "server"} | {f"client-{number}": "client" for number in range(1, clients + 1)}
    chosen = protection_named(protection)
    if helpers is None or chosen.helper_role != "aggregator":
        return roles | chosen.helper_roles
    return roles | {f"aggregator-{number}": "aggregator" for number in range(1, helpers + 1)}


def make_roster(
    clients: int = 5,
    protection: str = "masked",
    helpers: int | None = None,
    identify: Callable[[int], SigningKey] = identity,
) -> tuple[Roster, tuple[SigningKey, ...]]:
    """A roster and its members' keys, by default the same in every test; 0 is the server, helpers are last."""
    roles = roles_of(clients, protection, helpers)
    keys = tuple(identify(member) for member in range(len(roles)))
    members = [Member(*each, key.public) for each, key in zip(roles.items(), keys, strict=True)]
    return Roster.of("in memory", members), keys


def enrol(folder: Path, *clients: str, helpers: Mapping[str, str] | None = None) -> Roster:
    """An authority (ca/) and the TLS folders of a server and these clients, each under its name.

    `helpers` are roles by name.
    """
    roles = {SERVER: "server", **dict.fromkeys(clients, "client"), **(helpers or {})}
    create_authority(folder / "ca", "test")
    roster = issue(folder / "ca", [create_request(folder / name, name, role) for name, role in roles.items()])
    for name in roles:
        shutil.copytree(folder / "ca" / "issued" / name, folder / name, dirs_exist_ok=True)
    return roster
