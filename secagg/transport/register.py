"""The register of a consortium: an append-only list of certified members, changes of keys, and removals.

The roster follows from it. Entries are only ever added, each checked against those before it, so that one register can
be held against another: who holds an older one takes a newer one only if it begins with all of the older one's entries
(the consistency of append-only logs, RFC 6962, section 2.1.2, here by comparing them). No key changes without the
signature of the identity before it, and no name, identity or TLS key that was removed or replaced comes back.

# A member's request to be certified: its name, role, identity and TLS key, signed

The TLS key's own request is PKCS #10 (RFC 2986), whose signature proves that the member has the key; the identity signs
that and everything else. A request for other keys *follows* the one before it, names it by digest, and is also signed
by the identity that was there until then: the key update of RFC 4210 (section 5.3.5: a request protected by the key
that it replaces; section 4.4: the new key signed with the old). As it names the one before, no old one counts again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secagg.agreement.roster import MAX_INDEX, Member, Roster, check_name, read_roster
from secagg.crypto.labels import digest
from secagg.crypto.signatures import SigningKey, is_signed
from secagg.errors import BadInput
from secagg.system.printable import is_printable
from secagg.system.reading import each_field_once, naming, parse_json, read_document, require_fields
from secagg.transport.certificates import read_request, spki_sha256

REQUEST_FORMAT, REQUEST_VERSION = "secagg-request", 2
_FRESH = "ask for a fresh one (pki request)"
_FIELDS = {
    *("name", "role", "identity", "certificate_request", "follows"),
    *("identity_signature", "previous_signature"),
}


@dataclass(frozen=True)
class Request:
    """A member's request for a certificate, its own signatures checked; `certificate_request` is PEM.

    `follows` is the digest of the request that it takes the place of, and `previous_signature` by the identity in that
    one; both are empty in a member's first. Who reads a register checks these (`secagg.transport.register`).
    """

    member: Member
    certificate_request: bytes
    follows: bytes
    identity_signature: bytes
    previous_signature: bytes

    @property
    def digest(self) -> bytes:
        """The digest of all but the signatures, 32 bytes, by which the member's next request names this one."""
        return digest("enrolment request", *_parts(self.member, self.certificate_request, self.follows))

    def follows_on(self, old: Request) -> bool:
        """Return whether this request replaces `old`: it names `old`, and the identity in `old` has signed it."""
        parts = _parts(self.member, self.certificate_request, self.follows)
        is_same = (self.member.name, self.member.role) == (old.member.name, old.member.role)
        named = is_same and self.follows == old.digest
        return named and is_signed(old.member.identity, self.previous_signature, "key change", *parts)

    def content(self) -> dict[str, Any]:
        """Return the fields of the request's file by name: strings, except the version."""
        return {
            "format": REQUEST_FORMAT,
            "version": REQUEST_VERSION,
            "name": self.member.name,
            "role": self.member.role,
            "identity": self.member.identity.hex(),
            "certificate_request": self.certificate_request.decode(),
            "follows": self.follows.hex(),
            "identity_signature": self.identity_signature.hex(),
            "previous_signature": self.previous_signature.hex(),
        }


def make_request(
    name: str,
    role: str,
    identity: SigningKey,
    certificate_request: bytes,
    previous: tuple[Request, SigningKey] | None = None,
) -> Request:
    """Build a member's signed request; for new keys the `previous` identity signs too. Raises BadInput."""
    pin = spki_sha256(read_request(certificate_request, name))
    member = Member(name, role, identity.public, pin)
    follows = previous[0].digest if previous else b""
    parts = _parts(member, certificate_request, follows)
    by_previous = previous[1].sign("key change", *parts) if previous else b""
    return Request(member, certificate_request, follows, identity.sign("enrolment", *parts), by_previous)


def parse_request(content: Any) -> Request:
    """Parse a member's request from decoded JSON. Raises ValueError for another format, BadInput for a bad request."""
    found = require_fields(content, REQUEST_FORMAT, REQUEST_VERSION, _FIELDS)
    texts = {name: found[name] for name in _FIELDS}
    if not all(isinstance(value, str) for value in texts.values()):
        raise ValueError("a field is no text")
    return _checked(texts)


def _checked(texts: Mapping[str, str]) -> Request:
    name, request = texts["name"], texts["certificate_request"].encode()
    check_name(name)
    pin = spki_sha256(read_request(request, name))
    member = Member(name, texts["role"], _bytes(texts["identity"], 32), pin)
    follows = _bytes(texts["follows"], 0, 32)
    signature, previous = _bytes(texts["identity_signature"], 64), _bytes(texts["previous_signature"], 0, 64)
    if bool(follows) != bool(previous):
        raise ValueError("it follows another one without its signature, or none with one")
    if not is_signed(member.identity, signature, "enrolment", *_parts(member, request, follows)):
        raise BadInput(f"the request of {name} is not signed by the identity that it names", remedy=_FRESH)
    return Request(member, request, follows, signature, previous)


def read_request_file(path: Path) -> Request:
    """Read a member's request. Raises BadInput naming the file."""
    missing = "name a member's request.json (pki request)"
    with naming(path, "request", "enrolment request", missing=missing, damaged=_FRESH):
        return parse_request(parse_json(read_document(path), object_pairs_hook=each_field_once))


def _bytes(text: str, *lengths: int) -> bytes:
    """Decode lower-case hexadecimal, the one text for these bytes. Raises ValueError for another form or length."""
    value = bytes.fromhex(text)
    if value.hex() != text or len(value) not in lengths:
        raise ValueError("a field is not hexadecimal of its length")
    return value


def _parts(member: Member, request: bytes, follows: bytes) -> tuple[bytes, ...]:
    return (member.name.encode(), member.role.encode(), member.identity, request, follows)


REGISTER_FORMAT, REGISTER_VERSION = "secagg-register", 1
REGISTER_FILE = "register.json"
LONGEST_REASON = 200
MOST_ENTRIES = 4 * MAX_INDEX


@dataclass(frozen=True)
class Removal:
    """The removal of a member, with a reason for people to read."""

    name: str
    reason: str

    def __post_init__(self) -> None:
        check_name(self.name)
        if not (len(self.reason) <= LONGEST_REASON and is_printable(self.reason)):
            problem = f"a reason has at most {LONGEST_REASON} characters, all of which can be shown"
            raise BadInput(problem, remedy="shorten it to plain words")

    def content(self) -> dict[str, Any]:
        """Return the fields of the removal's entry in the register's file."""
        return {"removed": self.name, "reason": self.reason}


Entry = Request | Removal


class Register:
    """A consortium's ordered list of members' key requests and removals, each checked against earlier entries.

    A refused entry (BadInput) is not added.
    """

    def __init__(self, consortium: str, entries: Iterable[Entry] = ()) -> None:
        """Build a register of these entries. Raises BadInput for the first that cannot follow the entries before it."""
        self.consortium = consortium
        self._entries: list[Entry] = []
        self._current: dict[str, Request] = {}
        self._removed: dict[str, Removal] = {}
        self._used: set[bytes] = set()
        for entry in entries:
            if isinstance(entry, Removal):
                self.remove(entry)
            elif not self.enter(entry):
                problem = f"a request of {entry.member.name} stands in the register twice"
                raise BadInput(problem, remedy="copy it again from the authority's issued/")

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries of the register, in order."""
        return tuple(self._entries)

    @property
    def members(self) -> tuple[Member, ...]:
        """The present members of the consortium, with their present keys."""
        return tuple(request.member for request in self._current.values())

    @property
    def removed(self) -> tuple[Removal, ...]:
        """The removals of former members."""
        return tuple(self._removed.values())

    def request_of(self, name: str) -> Request | None:
        """Return the certificate request with a member's present keys; None for a name that is not a member's."""
        return self._current.get(name)

    def roster(self) -> Roster:
        """Return the roster of the present members. Raises BadInput if they cannot form one."""
        return Roster.of(self.consortium, self.members)

    def enter(self, request: Request) -> bool:
        """Add a request, for a new member or a member's new keys; return False if it is the member's present one."""
        member = request.member
        if removal := self._removed.get(member.name):
            raise BadInput(
                f"{member.name} was removed{removal.reason and f' ({removal.reason})'}, and is not certified again",
                remedy="who comes back takes another name, and keys of its own",
            )
        old = self._current.get(member.name)
        if old is not None and old.digest == request.digest:
            return False
        if old is None and request.follows:
            problem = f"{member.name} is no member, and its request follows one that is not here"
            raise BadInput(problem, remedy="have it enrol anew with pki request")
        if old is not None and not request.follows:
            remedy = "choose another name; the member itself asks for other keys by pki renew or pki rotate"
            raise BadInput(f"{member.name} is already a member with other keys", remedy=remedy)
        if old is not None and not request.follows_on(old):
            raise BadInput(
                f"the request of {member.name} does not follow the keys that it has now: it is an older one, or is not "
                "signed by them",
                remedy="have it made again, where the keys of now are (pki renew or pki rotate)",
            )
        fresh = self._fresh_keys(request, old)
        self._used |= fresh
        self._current[member.name] = request
        self._entries.append(request)
        return True

    def remove(self, removal: Removal) -> None:
        """Remove a member for good."""
        if removal.name not in self._current:
            problem = f"{removal.name} is not a member of {self.consortium}"
            raise BadInput(problem, remedy="see pki show for the names of members")
        del self._current[removal.name]
        self._removed[removal.name] = removal
        self._entries.append(removal)

    def _fresh_keys(self, request: Request, old: Request | None) -> set[bytes]:
        """Return the keys that are new in a request. Raises BadInput if one of them was used before."""
        member = request.member
        keys = {member.identity, member.tls_spki_sha256}
        if old is not None:
            keys -= {old.member.identity}  # a renewal keeps it
        if keys & self._used:
            remedy = "have it made with fresh keys: those of a removed member, or replaced ones, do not come back"
            raise BadInput(f"the request of {member.name} is for keys that were used before", remedy=remedy)
        return keys

    def require_extends(self, earlier: Register) -> None:
        """Raise BadInput unless this register begins with all entries of an `earlier` one, unchanged."""
        known = earlier.entries
        if self.consortium != earlier.consortium or self.entries[: len(known)] != known:
            raise BadInput(
                f"the register of {len(self._entries)} entries does not begin with the {len(known)} known here: it is "
                "an older one, or was changed",
                remedy="ask the authority, and other members, which digest their roster has",
            )

    def changes_since(self, earlier: Register | None) -> tuple[str, ...]:
        """Return a sentence for each entry added since an `earlier` register; empty without an earlier one."""
        if earlier is None:
            return ()
        return tuple(self._describe(entry) for entry in self._entries[len(earlier.entries) :])

    def _describe(self, entry: Entry) -> str:
        if isinstance(entry, Removal):
            return f"{entry.name} was removed{entry.reason and f': {entry.reason}'}"
        name = entry.member.name
        if not entry.follows:
            return f"{name} is a new {entry.member.role}, with the identity {entry.member.identity.hex()}"
        before = next(each for each in self._entries if isinstance(each, Request) and each.digest == entry.follows)
        if before.member.identity == entry.member.identity:
            return f"{name} has a new TLS key, signed by its identity"
        return f"{name} has a new identity, {entry.member.identity.hex()}, signed by the one before"

    def require_current(self, roster: Roster, where: Path) -> None:
        """Raise BadInput, naming removed members that are still listed, unless `roster` follows from this register."""
        if roster != self.roster():
            gone = [each.name for each in self.removed if each.name in {member.name for member in roster.members}]
            listed = f", and lists {', '.join(gone)}, who was removed" if gone else ""
            problem = f"{where} is not the roster that follows from {REGISTER_FILE} beside it{listed}"
            remedy = "join by the newest kit (secagg join), or copy both files from the same pki issue"
            raise BadInput(problem, remedy=remedy)

    def to_json(self) -> str:
        """Return the text of the register's file."""
        entries = [entry.content() for entry in self._entries]
        named = {"format": REGISTER_FORMAT, "version": REGISTER_VERSION}
        return json.dumps({**named, "consortium": self.consortium, "entries": entries}, indent=1) + "\n"


def parse_register(text: str) -> Register:
    """Parse a register, a consortium's list of members, and check every entry.

    Raises ValueError for another format, BadInput for a bad entry.
    """
    content = parse_json(text, object_pairs_hook=each_field_once)
    require_fields(content, REGISTER_FORMAT, REGISTER_VERSION, ("consortium", "entries"))
    consortium, entries = content["consortium"], content["entries"]
    if not isinstance(consortium, str) or not isinstance(entries, list):
        raise ValueError("a field has another type")
    if len(entries) > MOST_ENTRIES:
        raise ValueError(f"it has more than {MOST_ENTRIES} entries")
    return Register(consortium, map(_parse_entry, entries))


def read_register(path: Path) -> Register:
    """Read a register, a consortium's list of members, from its file. Raises BadInput naming the file."""
    again = "copy it again from the authority's issued/"
    with naming(path, "register", "register", missing=again, damaged=again):
        return parse_register(read_document(path))


def read_current_roster(path: Path) -> Roster:
    """Read a roster for a new plan. Raises BadInput, also if a register beside the roster gives another one."""
    roster = read_roster(path)
    if (beside := path.parent / REGISTER_FILE).exists():
        read_register(beside).require_current(roster, path)
    return roster


def _parse_entry(content: Any) -> Entry:
    if isinstance(content, dict) and set(content) == {"removed", "reason"}:
        if not all(isinstance(value, str) for value in content.values()):
            raise ValueError("a removal holds no texts")
        return Removal(content["removed"], content["reason"])
    return parse_request(content)
