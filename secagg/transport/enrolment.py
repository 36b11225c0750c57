"""Enrolment of members and changes of their keys: a member makes its keys, and sends out only a signed request.

Member's folder (`--tls DIR`): key.pem and identity.key (secret), request.json (to the authority), and, copied from
the authority or out of a start kit, ca.pem, cert.pem, roster.json and register.json. Keys that are to follow wait in
its next/, with their request, until there is a certificate for them. Authority's folder (`--ca DIR`): ca.key (secret),
ca.pem, consortium.json, register.json and issued/NAME/ with the four files for each member.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from secagg.agreement.roster import Roster, check_name, write_roster
from secagg.crypto.signatures import SigningKey
from secagg.errors import BadInput, describe_error
from secagg.randomness import OperatingSystem
from secagg.system.files import open_private, private_folder, write_synced
from secagg.system.printable import is_printable
from secagg.system.reading import (
    DOCUMENT_BYTES,
    GO_ON,
    NamesNoFormat,
    parse_json,
    read_document,
    read_limited,
    require_fields,
)
from secagg.transport.certificates import Authority, key_pem, new_key, read_request, signing_request
from secagg.transport.credentials import read_identity
from secagg.transport.register import (
    REGISTER_FILE,
    Register,
    Removal,
    Request,
    make_request,
    read_register,
    read_request_file,
)

FORMAT, CONSORTIUM_VERSION = "secagg-consortium", 1
NEXT = "next"
"""The folder, inside a member's folder, of new keys that are not certified yet."""
SHORTEST_PASSPHRASE = 15
"""The fewest characters of a passphrase, as NIST SP 800-63B-4 (section 3.1.1.2) asks of a single factor."""
_PEM = serialization.Encoding.PEM


def create_authority(folder: Path, consortium: str, passphrase: bytes | None = None) -> None:
    """Create an authority in a folder that has none, its key encrypted if there is a passphrase. Raises BadInput."""
    if (folder / "ca.key").exists():
        raise BadInput(f"{folder} already holds an authority", remedy="choose another folder")
    _check_consortium(consortium)
    if passphrase is not None and len(passphrase.decode()) < SHORTEST_PASSPHRASE:
        raise BadInput(f"a passphrase has {SHORTEST_PASSPHRASE} characters or more", remedy="take five random words")
    authority = Authority.create(consortium)
    private_folder(folder)
    _write_secret(folder / "ca.key", key_pem(authority.key, passphrase))
    (folder / "ca.pem").write_bytes(authority.certificate.public_bytes(_PEM))
    named = {"format": FORMAT, "version": CONSORTIUM_VERSION, "name": consortium}
    (folder / "consortium.json").write_text(json.dumps(named) + "\n", encoding="utf-8")


def renew_authority(folder: Path, passphrase: bytes | None = None) -> None:
    """Issue a new certificate for the authority's present key, before or after the old one expires. Raises BadInput."""
    pem = read_authority(folder, passphrase).renewed().certificate.public_bytes(_PEM)
    for path in (*folder.glob("issued/*/ca.pem"), folder / "ca.pem"):
        write_synced(path, pem)


def create_request(folder: Path, name: str, role: str) -> Path:
    """Create a member's keys and its signed request; return the request's path. Raises BadInput if keys exist."""
    check_name(name)
    if (folder / "key.pem").exists() or (folder / "identity.key").exists():
        problem = f"{folder} already holds the keys of a member"
        raise BadInput(problem, remedy="choose another folder; pki renew makes new TLS keys")
    identity, key = SigningKey.generate(OperatingSystem()), new_key()
    request = make_request(name, role, identity, signing_request(key, name))
    _write_keys(folder, request, key, identity)
    return folder / "request.json"


def change_keys(folder: Path, *, rotate: bool) -> Path:
    """Create a member's new TLS key, with `rotate` also an identity key, and a signed request, in folder/next.

    Nothing of the keys of now is touched: they stay in force until the authority has certified the next. Raises
    BadInput where a change is under way, or the folder does not hold the keys of its request.
    """
    if (folder / NEXT).exists():
        remedy = "send its request.json to the authority, or remove the folder to give the change up"
        raise BadInput(f"a change of keys is under way in {folder / NEXT}", remedy=remedy)
    old, identity = read_request_file(folder / "request.json"), read_identity(folder / "identity.key")
    if old.member.identity != identity.public:
        problem = f"identity.key in {folder} is not that of its request.json"
        raise BadInput(problem, remedy="bring both back from one backup")
    name, role, key = old.member.name, old.member.role, new_key()
    fresh = SigningKey.generate(OperatingSystem()) if rotate else identity
    request = make_request(name, role, fresh, signing_request(key, name), (old, identity))
    _write_keys(folder / NEXT, request, key, fresh if rotate else None)
    return folder / NEXT / "request.json"


def issue(folder: Path, requests: Iterable[Path], passphrase: bytes | None = None) -> Roster:
    """Certify every request, enter it into the register, and write the roster that follows from the register.

    All requests are checked before anything is written. Raises BadInput for a damaged request, one that the register
    refuses, or a roster that is not yet one (it needs one server and one client).
    """
    authority, register = read_authority(folder, passphrase), read_members(folder)
    fresh = [read_request_file(Path(path)) for path in requests]
    for request in fresh:
        register.enter(request)
    register.roster()
    for request in fresh:
        name = request.member.name
        home = folder / "issued" / name
        home.mkdir(parents=True, exist_ok=True)
        certificate = authority.issue(read_request(request.certificate_request, name), name)
        (home / "cert.pem").write_bytes(certificate.public_bytes(_PEM))
        (home / "ca.pem").write_bytes(authority.certificate.public_bytes(_PEM))
    return _publish(folder, register)


def remove(folder: Path, name: str, reason: str = "", passphrase: bytes | None = None) -> Roster:
    """Remove a member from the register for good, and write the roster without it.

    Only the authority may: its key is opened. Raises BadInput as `read_authority` does, for who is no member, and
    where those left make no roster.
    """
    read_authority(folder, passphrase)
    register = read_members(folder)
    register.remove(Removal(name, reason))
    roster = register.roster()
    shutil.rmtree(folder / "issued" / name, ignore_errors=True)
    _publish(folder, register)
    return roster


def read_members(folder: Path) -> Register:
    """Read the register of members in an authority's folder; empty before the first `issue`. Raises BadInput."""
    if (folder / REGISTER_FILE).exists():
        return read_register(folder / REGISTER_FILE)
    return Register(read_consortium(folder))


def _publish(folder: Path, register: Register) -> Roster:
    """Write the register, and for each member the roster that follows from it."""
    write_synced(folder / REGISTER_FILE, (text := register.to_json()).encode())
    roster = register.roster()
    for member in roster.members:
        home = folder / "issued" / member.name
        write_roster(roster, home / "roster.json")
        (home / REGISTER_FILE).write_text(text, encoding="utf-8")
    return roster


def _check_consortium(name: object) -> None:
    if not (isinstance(name, str) and 1 <= len(name) <= 100 and is_printable(name)):
        problem = "a consortium's name has 1 to 100 characters, all of which can be shown"
        raise BadInput(problem, remedy="give another --consortium")


def is_locked(folder: Path) -> bool:
    """Return whether a folder's authority key is encrypted under a passphrase. Raises BadInput without a key."""
    try:
        return read_limited(folder / "ca.key", DOCUMENT_BYTES).startswith(b"-----BEGIN ENCRYPTED")
    except OSError as error:
        raise _unusable(folder, error) from None


def read_consortium(folder: Path) -> str:
    """Read the name of an authority's consortium from its folder. Raises BadInput."""
    try:
        content = parse_json(read_document(folder / "consortium.json"))
        consortium = require_fields(content, FORMAT, CONSORTIUM_VERSION, ("name",))["name"]
    except (OSError, ValueError) as error:
        raise _unusable(folder, error) from None
    _check_consortium(consortium)
    return str(consortium)


def read_authority(folder: Path, passphrase: bytes | None = None) -> Authority:
    """Read the certificate authority from its folder. Raises BadInput, also for a wrong passphrase."""
    try:
        certificate = x509.load_pem_x509_certificate(read_limited(folder / "ca.pem", DOCUMENT_BYTES))
        certificate.verify_directly_issued_by(certificate)
        encrypted = read_limited(folder / "ca.key", DOCUMENT_BYTES)
    except (OSError, ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise _unusable(folder, error) from None
    key = _unlocked(folder, encrypted, passphrase if is_locked(folder) else None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        problem = f"the authority's key in {folder} is not that of its certificate"
        raise BadInput(problem, remedy="bring ca.key and ca.pem back from one backup")
    return Authority(certificate, key)


def _unlocked(folder: Path, pem: bytes, passphrase: bytes | None) -> object:
    """Decrypt the key in a PEM file's content. Raises BadInput, without the library's message on a wrong passphrase."""
    try:
        return serialization.load_pem_private_key(pem, passphrase)
    except TypeError:
        problem = f"the authority's key in {folder} is under a passphrase"
        raise BadInput(problem, remedy="give it by --passphrase-file") from None
    except (ValueError, UnsupportedAlgorithm) as error:
        if passphrase is None:
            raise _unusable(folder, error) from None
        problem = f"the authority's key in {folder} does not open with this passphrase"
        raise BadInput(problem, remedy="give the passphrase of pki init") from None


def _unusable(folder: Path, error: Exception) -> BadInput:
    remedy = GO_ON if isinstance(error, NamesNoFormat) else "make one with pki init"
    return BadInput(f"{folder} holds no usable authority ({describe_error(error)})", remedy=remedy)


def _write_keys(folder: Path, request: Request, key: ec.EllipticCurvePrivateKey, identity: SigningKey | None) -> None:
    """Write a member's secret keys and its request; without `identity` the present identity key stays."""
    private_folder(folder)
    _write_secret(folder / "key.pem", key_pem(key))
    if identity is not None:
        _write_secret(folder / "identity.key", identity.private_bytes().hex().encode() + b"\n")
    (folder / "request.json").write_text(json.dumps(request.content(), indent=2) + "\n", encoding="utf-8")


def _write_secret(path: Path, content: bytes) -> None:
    """Create a file that only its owner can read, with that mode before the first byte is written."""
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_EXCL), "wb") as file:
        file.write(content)
