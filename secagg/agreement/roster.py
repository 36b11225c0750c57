"""The roster: the parties of a consortium with their identity and TLS keys. Every plan holds its digest."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from secagg.errors import BadInput, ProtocolViolation, SecaggError
from secagg.wire import Items, Length, Range, Text, encode, message, read_json, to_json

Error = TypeVar("Error", bound=SecaggError)

ROSTER_VERSION = 2
SERVER_INDEX = 0
MAX_CLIENTS = 4096
MAX_AGGREGATORS = 16
MAX_INDEX = MAX_CLIENTS + MAX_AGGREGATORS + 1
ROLES = ("server", "client", "aggregator", "key-holder")
"""The roles in roster order: members are sorted by role, then by name, and indexed in this order."""
NO_TLS_KEY = bytes(32)
"""The pin of a party without a TLS key, as in a simulation; no certificate has this digest."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@message("Member")
@dataclass(frozen=True)
class Member:
    """One party of a roster: DNS-safe name, role, Ed25519 identity key (32 bytes), pin of the TLS key (SHA-256).

    `tls_spki_sha256` is the SHA-256 of the key's SubjectPublicKeyInfo (32 bytes; a pin as in RFC 7469, section 2.4). It
    outlives the certificate: one that is issued anew for the same key is the same member's.
    """

    name: Annotated[str, Length(1, 63)]
    role: Annotated[str, Length(1, 10)]
    identity: Annotated[bytes, Length(32)]
    tls_spki_sha256: Annotated[bytes, Length(32)] = NO_TLS_KEY

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.role not in ROLES:
            raise BadInput(f"member {self.name} has the role {self.role!r}", remedy=f"use one of {', '.join(ROLES)}")


@message("Roster")
@dataclass(frozen=True)
class Roster:
    """All parties of a consortium. Index 0 is the server, 1…n are the clients, then aggregators, then the key holder.

    Members of one role are sorted by name. Aggregators and a key holder open sums for protections that need them.
    """

    version: Annotated[int, Range(ROSTER_VERSION, ROSTER_VERSION)]
    consortium: Annotated[str, Text(1, 100)]
    members: Annotated[tuple[Member, ...], Items(2, MAX_INDEX + 1)]

    def __post_init__(self) -> None:
        roles = [member.role for member in self.members]
        if roles.count("server") != 1 or "client" not in roles:
            problem = "a roster needs exactly one server and at least one client"
            raise BadInput(problem, remedy="certify requests of these roles (pki request --role)")
        if roles.count("key-holder") > 1:
            raise BadInput("a roster has at most one key holder", remedy="remove the other (pki remove)")
        if roles.count("client") > MAX_CLIENTS or roles.count("aggregator") > MAX_AGGREGATORS:
            problem = f"a roster has at most {MAX_CLIENTS} clients and {MAX_AGGREGATORS} aggregators"
            raise BadInput(problem, remedy="certify fewer")
        if list(self.members) != sorted(self.members, key=_order):
            problem = "a roster is sorted by role and name, the server first"
            raise BadInput(problem, remedy="have the authority issue it again with pki issue")
        if len({member.name for member in self.members}) != len(self.members):
            raise BadInput("two members of the roster share a name", remedy="certify another name for one of them")
        if len({member.identity for member in self.members}) != len(self.members):
            problem = "two members of the roster share an identity key"
            raise BadInput(problem, remedy="have one of them make keys of its own (pki request)")
        pins = [member.tls_spki_sha256 for member in self.members if member.tls_spki_sha256 != NO_TLS_KEY]
        if len(set(pins)) != len(pins):
            problem = "two members of the roster share a TLS key"
            raise BadInput(problem, remedy="have one of them make keys of its own (pki request)")

    @classmethod
    def of(cls, consortium: str, members: Iterable[Member]) -> Roster:
        """Build a roster from members in any order. Raises BadInput for members that cannot form one."""
        return cls(ROSTER_VERSION, consortium, tuple(sorted(members, key=_order)))

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients' indices, 1…n."""
        return self.with_role("client")

    def with_role(self, role: str) -> tuple[int, ...]:
        """Return the indices of the members with this role, in order."""
        return tuple(index for index, member in enumerate(self.members) if member.role == role)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the roster's canonical bytes."""
        return hashlib.sha256(encode(self)).digest()

    def name(self, index: int) -> str:
        """Return the name of the member with this index."""
        return self.members[index].name

    def role(self, index: int) -> str:
        """Return the role of the member with this index."""
        return self.members[index].role

    def identity(self, index: int) -> bytes:
        """Return the Ed25519 public key (32 bytes) of the member with this index."""
        return self.members[index].identity

    def tls_spki_sha256(self, index: int) -> bytes:
        """Return the pin (SHA-256) of the TLS key of the member with this index."""
        return self.members[index].tls_spki_sha256

    def name_culprit(self, error: Error) -> Error:
        """Add the culprit's name to a ProtocolViolation by a member of the roster; return the error."""
        if isinstance(error, ProtocolViolation) and error.culprit < len(self.members):
            error.name = self.name(error.culprit)
        return error

    def index(self, name: str) -> int:
        """Return the index of the member with this name. Raises BadInput when there is none."""
        for index, member in enumerate(self.members):
            if member.name == name:
                return index
        problem = f"{name} is not a member of the roster of {self.consortium}"
        raise BadInput(problem, remedy="see pki show for the names of members")


def _order(member: Member) -> tuple[int, str]:
    return ROLES.index(member.role), member.name


def check_name(name: str) -> None:
    """Raise BadInput unless `name` is a DNS label, as it is used in certificates and file names."""
    if not _NAME.fullmatch(name):
        plain = unicodedata.normalize("NFKD", name.casefold()).encode("ascii", "ignore").decode()
        like = re.sub(r"[^a-z0-9]+", "-", plain)[:63].strip("-")
        remedy = "use 1 to 63 of a-z, 0-9 and hyphen, no hyphen at either end" + (f": {like}, say" if like else "")
        raise BadInput(f"{name!r} cannot name a member", remedy=remedy)


def read_roster(path: Path) -> Roster:
    """Read a roster file. Raises BadInput when it is missing, malformed or of another version."""
    return read_json(Roster, path, "roster", "have the authority issue it again with pki issue")


def write_roster(roster: Roster, path: Path) -> None:
    """Write a roster as a readable JSON file."""
    path.write_text(to_json(roster), encoding="utf-8")
