"""Enrolment of a member and change of its keys: it makes them itself, and only a signed request leaves it.

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
from secagg.errors import BadInput, why
from secagg.randomness import OperatingSystem
from secagg.system.files import open_private, private_folder, write_synced
from secagg.system.printable import is_printable
from secagg.system.reading import DOCUMENT_BYTES, parse_json, read_document, read_limited
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

NEXT = "next"
"""The folder, in a member's, of keys that are to follow."""
SHORTEST_PASSPHRASE = 15
"""Characters, as NIST SP 800-63B-4 (section 3.1.1.2) asks of a password that stands alone."""
_PEM = serialization.Encoding.PEM


def create_authority(folder: Path, consortium: str, passphrase: bytes | None = None) -> None:
    """Make the consortium's authority in an empty or new folder, its key under a passphrase where one is given.

    Raises BadInput when there is an authority already, or the passphrase is short.
    """
    if (folder / "ca.key").exists():
        raise BadInput(f"{folder} already holds an authority", remedy="choose another folder")
    _check_consortium(consortium)
    if passphrase is not None and len(passphrase.decode()) < SHORTEST_PASSPHRASE:
        raise BadInput(f"a passphrase has {SHORTEST_PASSPHRASE} characters or more", remedy="take five random words")
    authority = Authority.create(consortium)
    private_folder(folder)
    _write_secret(folder / "ca.key", key_pem(authority.key, passphrase))
    (folder / "ca.pem").write_bytes(authority.certificate.public_bytes(_PEM))
    (folder / "consortium.json").write_text(json.dumps({"version": 1, "name": consortium}) + "\n", encoding="utf-8")


def renew_authority(folder: Path, passphrase: bytes | None = None) -> None:
    """Give the authority's key a new certificate, before the one of now ends or after. Raises BadInput."""
    pem = read_authority(folder, passphrase).renewed().certificate.public_bytes(_PEM)
    for path in (*folder.glob("issued/*/ca.pem"), folder / "ca.pem"):
        write_synced(path, pem)


def create_request(folder: Path, name: str, role: str) -> Path:
    """Make a member's keys and its signed request. Raises BadInput when the folder already holds keys."""
    check_name(name)
    if (folder / "key.pem").exists() or (folder / "identity.key").exists():
        raise BadInput(
            f"{folder} already holds the keys of a member", remedy="choose another folder; pki renew makes new TLS keys"
        )
    identity, key = SigningKey.generate(OperatingSystem()), new_key()
    request = make_request(name, role, identity, signing_request(key, name))
    _write_keys(folder, request, key, identity)
    return folder / "request.json"


def change_keys(folder: Path, *, rotate: bool) -> Path:
    """Make a member's next TLS key, to `rotate` a new identity too, and the request, in folder/next.

    Nothing of the keys of now is touched: they stay in force until the authority has certified the next. Raises
    BadInput where a change is under way, or the folder does not hold the keys of its request.
    """
    if (folder / NEXT).exists():
        raise BadInput(
            f"a change of keys is under way in {folder / NEXT}",
            remedy="send its request.json to the authority, or remove the folder to give the change up",
        )
    old, identity = read_request_file(folder / "request.json"), read_identity(folder / "identity.key")
    if old.member.identity != identity.public:
        raise BadInput(
            f"identity.key in {folder} is not that of its request.json", remedy="bring both back from one backup"
        )
    name, role, key = old.member.name, old.member.role, new_key()
    fresh = SigningKey.generate(OperatingSystem()) if rotate else identity
    request = make_request(name, role, fresh, signing_request(key, name), (old, identity))
    _write_keys(folder / NEXT, request, key, fresh if rotate else None)
    return folder / NEXT / "request.json"


def issue(folder: Path, requests: Iterable[Path], passphrase: bytes | None = None) -> Roster:
    """Certify every request, enter them into the register, and write the roster that follows from it.

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
    """Take a member out of the register, for good, and write the roster without it.

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
    """The register of an authority's folder; an empty one before the first issue. Raises BadInput."""
    if (folder / REGISTER_FILE).exists():
        return read_register(folder / REGISTER_FILE)
    return Register(read_consortium(folder))


def _publish(folder: Path, register: Register) -> Roster:
    """Write the register, then what follows from it for each member."""
    write_synced(folder / REGISTER_FILE, (text := register.to_json()).encode())
    roster = register.roster()
    for member in roster.members:
        home = folder / "issued" / member.name
        write_roster(roster, home / "roster.json")
        (home / REGISTER_FILE).write_text(text, encoding="utf-8")
    return roster


def _check_consortium(name: object) -> None:
    if not (isinstance(name, str) and 1 <= len(name) <= 100 and is_printable(name)):
        raise BadInput(
            "a consortium's name has 1 to 100 characters, all of which can be shown", remedy="give another --consortium"
        )


def is_locked(folder: Path) -> bool:
    """Whether the authority's key is under a passphrase. Raises BadInput without a key."""
    try:
        return read_limited(folder / "ca.key", DOCUMENT_BYTES).startswith(b"-----BEGIN ENCRYPTED")
    except OSError as error:
        raise _unusable(folder, error) from None


def read_consortium(folder: Path) -> str:
    """The name of the consortium of an authority's folder. Raises BadInput."""
    try:
        consortium = parse_json(read_document(folder / "consortium.json"))["name"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unusable(folder, error) from None
    _check_consortium(consortium)
    return str(consortium)


def read_authority(folder: Path, passphrase: bytes | None = None) -> Authority:
    """The authority of a folder. Raises BadInput, for a key under another passphrase too."""
    try:
        certificate = x509.load_pem_x509_certificate(read_limited(folder / "ca.pem", DOCUMENT_BYTES))
        certificate.verify_directly_issued_by(certificate)
        encrypted = read_limited(folder / "ca.key", DOCUMENT_BYTES)
    except (OSError, ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise _unusable(folder, error) from None
    key = _unlocked(folder, encrypted, passphrase if is_locked(folder) else None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise BadInput(
            f"the authority's key in {folder} is not that of its certificate",
            remedy="bring ca.key and ca.pem back from one backup",
        )
    return Authority(certificate, key)


def _unlocked(folder: Path, pem: bytes, passphrase: bytes | None) -> object:
    """The key in a PEM. What the library says of a wrong passphrase is not repeated."""
    try:
        return serialization.load_pem_private_key(pem, passphrase)
    except TypeError:
        problem = f"the authority's key in {folder} is under a passphrase"
        raise BadInput(problem, remedy="give it by --passphrase-file") from None
    except (ValueError, UnsupportedAlgorithm) as error:
        if passphrase is None:
            raise _unusable(folder, error) from None
        raise BadInput(
            f"the authority's key in {folder} does not open with this passphrase",
            remedy="give the passphrase of pki init",
        ) from None


def _unusable(folder: Path, error: Exception) -> BadInput:
    return BadInput(f"{folder} holds no usable authority ({why(error)})", remedy="make one with pki init")


def _write_keys(folder: Path, request: Request, key: ec.EllipticCurvePrivateKey, identity: SigningKey | None) -> None:
    """A member's secret keys and its request; no identity where it stays."""
    private_folder(folder)
    _write_secret(folder / "key.pem", key_pem(key))
    if identity is not None:
        _write_secret(folder / "identity.key", identity.private_bytes().hex().encode() + b"\n")
    (folder / "request.json").write_text(json.dumps(request.content(), indent=2) + "\n", encoding="utf-8")


def _write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from the first byte on."""
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_EXCL), "wb") as file:
        file.write(content)
