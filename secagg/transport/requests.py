"""A member's request to be certified: its name, role, identity and TLS key, signed; the first one, or one that follows.

The TLS key's own request is PKCS #10 (RFC 2986), whose signature proves that the member has the key; the identity signs
that and everything else. A request for other keys *follows* the one before it, names it by digest, and is also signed
by the identity that was there until then: the key update of RFC 4210 (section 5.3.5: a request protected by the key
that it replaces; section 4.4: the new key signed with the old). As it names the one before, no old one counts again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secagg.agreement.roster import Member, check_name
from secagg.crypto.labels import digest
from secagg.crypto.signatures import SigningKey, is_signed
from secagg.errors import BadInput
from secagg.system.reading import each_field_once, parse_json, read_document
from secagg.transport.certificates import read_request, spki_sha256

REQUEST_VERSION = 2
_FRESH = "ask for a fresh one (pki request)"
_FIELDS = {
    *("version", "name", "role", "identity", "certificate_request", "follows"),
    *("identity_signature", "previous_signature"),
}


@dataclass(frozen=True)
class Request:
    """A request whose signatures hold, as far as it can be checked alone. `certificate_request` is PEM.

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
        """The digest that the next request names, 32 bytes: everything in it but the signatures."""
        return digest("enrolment request", *_parts(self.member, self.certificate_request, self.follows))

    def follows_on(self, old: Request) -> bool:
        """Whether this takes the place of `old`: it names it, and its identity has signed this."""
        parts = _parts(self.member, self.certificate_request, self.follows)
        is_same = (self.member.name, self.member.role) == (old.member.name, old.member.role)
        named = is_same and self.follows == old.digest
        return named and is_signed(old.member.identity, self.previous_signature, "key change", *parts)

    def content(self) -> dict[str, Any]:
        """The fields of its file, all of them texts but the version."""
        return {
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
    """Sign a request; one for other keys by the identity of the `previous` one too. Raises BadInput."""
    pin = spki_sha256(read_request(certificate_request, name))
    member = Member(name, role, identity.public, pin)
    follows = previous[0].digest if previous else b""
    parts = _parts(member, certificate_request, follows)
    by_previous = previous[1].sign("key change", *parts) if previous else b""
    return Request(member, certificate_request, follows, identity.sign("enrolment", *parts), by_previous)


def parse_request(content: Any) -> Request:
    """The request of parsed JSON. Raises ValueError (BadInput, where a person can do something) for what is none."""
    if not isinstance(content, dict) or set(content) != _FIELDS:
        raise ValueError("fields missing or unknown")
    if type(content["version"]) is not int or content["version"] != REQUEST_VERSION:
        raise ValueError(f"it is not of version {REQUEST_VERSION}")
    texts = {name: value for name, value in content.items() if name != "version"}
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
    try:
        return parse_request(parse_json(read_document(path), object_pairs_hook=each_field_once))
    except OSError as error:
        raise BadInput(
            f"cannot read the request {path} ({error.strerror})", remedy="name a member's request.json (pki request)"
        ) from None
    except ValueError as error:
        raise BadInput(f"{path} is no enrolment request ({error})", remedy=_FRESH) from None
    except BadInput as error:
        raise BadInput(f"{path}: {error.problem}", remedy=error.remedy) from None


def _bytes(text: str, *lengths: int) -> bytes:
    """Of canonical hexadecimal: one text for the same bytes."""
    value = bytes.fromhex(text)
    if value.hex() != text or len(value) not in lengths:
        raise ValueError("a field is not hexadecimal of its length")
    return value


def _parts(member: Member, request: bytes, follows: bytes) -> tuple[bytes, ...]:
    return (member.name.encode(), member.role.encode(), member.identity, request, follows)
