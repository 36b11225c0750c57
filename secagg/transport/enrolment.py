"""How a member joins a consortium: it makes its own keys, and only a signed request leaves it.

Member's folder (`--tls DIR`): key.pem and identity.key (secret), request.json (to the authority), and, copied from
the authority, ca.pem, cert.pem and roster.json. Authority's folder (`--ca DIR`): ca.key (secret), ca.pem,
consortium.json, requests/NAME.json and issued/NAME/ with the three files for each member.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from secagg.crypto.signatures import SigningKey, is_signed
from secagg.errors import BadInput, why
from secagg.files import open_private, private_folder
from secagg.printable import is_printable
from secagg.randomness import OperatingSystem
from secagg.reading import DOCUMENT_BYTES, parse_json, read_document, read_limited
from secagg.roster import Member, Roster, check_name, write_roster
from secagg.transport.certificates import Authority, key_pem, new_key, read_request, signing_request, spki_sha256

_PEM = serialization.Encoding.PEM
_REQUEST_FIELDS = {"version", "name", "role", "identity", "certificate_request", "identity_signature"}


def create_authority(folder: Path, consortium: str) -> None:
    """Make the consortium's authority in an empty or new folder. Raises BadInput when one is there already."""
    if (folder / "ca.key").exists():
        raise BadInput(f"{folder} already holds an authority", remedy="choose another folder")
    _check_consortium(consortium)
    authority = Authority.create(consortium)
    private_folder(folder)
    _write_secret(folder / "ca.key", key_pem(authority.key))
    (folder / "ca.pem").write_bytes(authority.certificate.public_bytes(_PEM))
    (folder / "consortium.json").write_text(json.dumps({"version": 1, "name": consortium}) + "\n", encoding="utf-8")


def create_request(folder: Path, name: str, role: str) -> Path:
    """Make a member's keys and its signed request. Raises BadInput when the folder already holds keys."""
    check_name(name)
    if (folder / "key.pem").exists() or (folder / "identity.key").exists():
        raise BadInput(f"{folder} already holds the keys of a member", remedy="choose another folder")
    identity = SigningKey.generate(OperatingSystem())
    member = Member(name, role, identity.public)
    key = new_key()
    request = signing_request(key, name)
    private_folder(folder)
    _write_secret(folder / "key.pem", key_pem(key))
    _write_secret(folder / "identity.key", identity.private_bytes().hex().encode() + b"\n")
    content = {
        "version": 1,
        "name": member.name,
        "role": member.role,
        "identity": member.identity.hex(),
        "certificate_request": request.decode(),
        "identity_signature": identity.sign("enrolment", *_request_parts(member, request)).hex(),
    }
    path = folder / "request.json"
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def issue(folder: Path, requests: Iterable[Path]) -> Roster:
    """Certify every request and write the roster of all members certified so far.

    All requests are checked before anything is written. Raises BadInput for a damaged request, a name that was
    certified for other keys, or a roster that is not yet one (it needs one server and one client).
    """
    authority, consortium = read_authority(folder)
    fresh = [_read_request(path) for path in requests]
    members = {member.name: member for member, _ in map(_read_request, sorted((folder / "requests").glob("*.json")))}
    for member, _ in fresh:
        if members.setdefault(member.name, member) != member:
            raise BadInput(f"{member.name} is already a member with other keys", remedy="choose another name")
    roster = Roster.of(consortium, members.values())
    for member, request in fresh:
        home = folder / "issued" / member.name
        home.mkdir(parents=True, exist_ok=True)
        certificate = authority.issue(read_request(request, member.name), member.name)
        (home / "cert.pem").write_bytes(certificate.public_bytes(_PEM))
        (home / "ca.pem").write_bytes(authority.certificate.public_bytes(_PEM))
    for path, (member, _) in zip(requests, fresh, strict=True):
        kept = folder / "requests" / f"{member.name}.json"
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(Path(path).read_bytes())
    for name in members:
        write_roster(roster, folder / "issued" / name / "roster.json")
    return roster


def _check_consortium(name: object) -> None:
    if not (isinstance(name, str) and 1 <= len(name) <= 100 and is_printable(name)):
        raise BadInput("a consortium's name has 1 to 100 characters, all of which can be shown")


def read_authority(folder: Path) -> tuple[Authority, str]:
    """The authority of a folder and its consortium's name. Raises BadInput."""
    try:
        certificate = x509.load_pem_x509_certificate(read_limited(folder / "ca.pem", DOCUMENT_BYTES))
        key = serialization.load_pem_private_key(read_limited(folder / "ca.key", DOCUMENT_BYTES), None)
        certificate.verify_directly_issued_by(certificate)
        consortium = parse_json(read_document(folder / "consortium.json"))["name"]
        _check_consortium(consortium)
    except (OSError, ValueError, KeyError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
        raise BadInput(f"{folder} holds no usable authority ({why(error)})", remedy="make one with pki init") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise BadInput(f"the authority's key in {folder} is not that of its certificate")
    return Authority(certificate, key), consortium


def _read_request(path: Path) -> tuple[Member, bytes]:
    """The member and its PEM request, both signatures checked."""
    try:
        content: dict[str, Any] = parse_json(read_document(Path(path)))
        if set(content) != _REQUEST_FIELDS or content["version"] != 1:
            raise ValueError("fields missing or unknown")
        name, request = content["name"], content["certificate_request"].encode()
        check_name(name)
        pin = spki_sha256(read_request(request, name))
        member = Member(name, content["role"], bytes.fromhex(content["identity"]), pin)
        signature = bytes.fromhex(content["identity_signature"])
    except OSError as error:
        raise BadInput(f"cannot read the request {path} ({error.strerror})") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} is no enrolment request ({error})") from None
    if not is_signed(member.identity, signature, "enrolment", *_request_parts(member, request)):
        raise BadInput(f"{path} is not signed by the identity that it names", remedy="ask for a fresh one")
    return member, request


def _request_parts(member: Member, request: bytes) -> tuple[bytes, ...]:
    return (member.name.encode(), member.role.encode(), member.identity, request)


def _write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from the first byte on."""
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_EXCL), "wb") as file:
        file.write(content)
