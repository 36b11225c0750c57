"""A start kit: the file with which one member joins a consortium, or goes on after a change of the roster.

It holds the member's certificate, the authority's, the register (and so the roster), and where they are given the plan,
addresses and the consortium's limits for policies; it holds no secret. JSON of fixed fields, signed by the authority's
key (ECDSA over P-256 with SHA-256, FIPS 186-5). Who knows an authority and a register takes kits of that authority
alone, whose register goes on from its own; its first kit must hold its own request, and it compares roster and plan by
telephone.

A member joins by its kit (`join`): once the kit is checked against what the member's folder knows, the folder gets what
it holds.

The folder holds the keys in tls/ (`secagg.transport.enrolment`); beside it come plan.json, limits.toml and
addresses.json. The same kit again changes nothing, and goes on where a crash has stopped the first time: every file is
replaced in one step.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from secagg.agreement.plan import Plan, read_plan
from secagg.agreement.policy import parse_limits
from secagg.agreement.roster import Roster, check_name
from secagg.errors import BadInput, describe_error
from secagg.system.files import write_synced
from secagg.system.reading import (
    DOCUMENT_BYTES,
    each_field_once,
    naming,
    parse_json,
    read_document,
    read_limited,
    require_fields,
)
from secagg.transport.certificates import (
    Authority,
    certificate_names,
    is_same_authority,
    is_signed_by,
    read_certificate,
    require_issued,
    spki_sha256,
)
from secagg.transport.credentials import read_identity, read_secret
from secagg.transport.enrolment import NEXT, read_authority, read_members
from secagg.transport.register import REGISTER_FILE, Register, parse_register, read_register, read_request_file
from secagg.wire import from_json, to_json

FORMAT, KIT_VERSION = "secagg-kit", 1
_LABEL = "start kit"


@dataclass(frozen=True)
class _Kit:
    """The signed content of a kit: texts of files ("" for an absent one), and `addresses` as HOST:PORT by name."""

    member: str
    ca: str
    cert: str
    register: str
    plan: str
    limits: str
    addresses: Mapping[str, str]

    def to_json(self, authority: Authority) -> str:
        named = {"format": FORMAT, "version": KIT_VERSION}
        content = named | {each.name: getattr(self, each.name) for each in fields(self)}
        return json.dumps({**content, "signature": authority.sign(_LABEL, _canonical(content)).hex()}, indent=1) + "\n"


@dataclass(frozen=True)
class OpenedKit:
    """The content of a checked start kit: a member's certificates and addresses, the register, roster and plan."""

    kit: _Kit
    register: Register
    roster: Roster
    plan: Plan | None


def make_kits(
    folder: Path, passphrase: bytes | None, plan: Path | None, limits: Path | None, addresses: Mapping[str, str]
) -> dict[str, str]:
    """Make the file by which each member joins (kit): roster, certificates, addresses; return the contents by name.

    Raises BadInput for what no member could join by: a plan of another roster, addresses of strangers, limits that are
    none, a certificate that has expired or is not for the keys of now.
    """
    authority, register = read_authority(folder, passphrase), read_members(folder)
    require_issued(authority.certificate, authority.certificate, "the authority's certificate")
    ca, said = authority.certificate.public_bytes(serialization.Encoding.PEM).decode(), register.to_json()
    shared = {"plan": to_json(read_plan(plan)) if plan else "", "limits": _text(limits) if limits else ""}
    roster, kits = register.roster(), dict[str, str]()
    _read_shared(shared["plan"], shared["limits"], addresses, roster)
    for member in register.members:
        cert = _text(folder / "issued" / member.name / "cert.pem")
        kit = _Kit(member.name, ca, cert, said, **shared, addresses=dict(addresses))
        _require_member(kit, authority.certificate, roster)
        kits[member.name] = kit.to_json(authority)
    return kits


def _text(path: Path) -> str:
    try:
        return read_document(path)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"cannot read {path} ({describe_error(error)})", remedy="name a text file that you may read"
        ) from None


def read_kit(path: Path) -> OpenedKit:
    """Read a kit and check its signature and all its parts against each other. Raises BadInput naming the file.

    So for one that is too long or no kit, that the authority in it did not sign, whose certificate is not for the keys
    that the register has for its member, whose plan is for another roster, or that names addresses of strangers.
    """
    missing = "name the .kit file that the authority has sent"
    with naming(path, "kit", "start kit", missing=missing, damaged="have it sent again"):
        kit = _parse(parse_json(read_document(path), object_pairs_hook=each_field_once))
        check_name(kit.member)
        authority = read_certificate(kit.ca.encode())
        require_issued(authority, authority, "the authority's certificate in the kit")
        register = parse_register(kit.register)
        roster = register.roster()
        _require_member(kit, authority, roster)
        return OpenedKit(kit, register, roster, _read_shared(kit.plan, kit.limits, kit.addresses, roster))


def _parse(content: Any) -> _Kit:
    """Parse a kit and check the authority's signature on it. Raises BadInput, or ValueError for damage."""
    names = {each.name for each in fields(_Kit)}
    require_fields(content, FORMAT, KIT_VERSION, names | {"signature"})
    addresses = content["addresses"]
    texts = [content[name] for name in sorted(names - {"addresses"})] + [content["signature"]]
    if not isinstance(addresses, dict) or not all(isinstance(each, str) for each in [*texts, *addresses.values()]):
        raise ValueError("a field has another type")
    signature = bytes.fromhex(content.pop("signature"))
    if not is_signed_by(read_certificate(content["ca"].encode()), signature, _LABEL, _canonical(content)):
        raise BadInput("the authority has not signed this kit: it was changed", remedy="have it sent again")
    return _Kit(**{name: content[name] for name in names})


def _require_member(kit: _Kit, authority: x509.Certificate, roster: Roster) -> None:
    certificate = read_certificate(kit.cert.encode())
    require_issued(authority, certificate, f"the certificate of {kit.member}")
    pin = roster.tls_spki_sha256(roster.index(kit.member))
    if certificate_names(certificate) != (kit.member,) or spki_sha256(certificate) != pin:
        problem = f"the certificate of {kit.member} is not for the key that the roster has for {kit.member}"
        raise BadInput(problem, remedy="have the authority run pki issue, then pki kit again")


def _read_shared(plan: str, limits: str, addresses: Mapping[str, str], roster: Roster) -> Plan | None:
    """Check the parts that all members' kits share; return the plan, or None if there is none."""
    check_addresses(roster, addresses)
    if limits:
        parse_limits(limits)
    if not plan:
        return None
    agreed = from_json(Plan, plan)
    if agreed.roster != roster.digest:
        raise BadInput("the plan is for another roster", remedy="make it with the newest one, then pki kit again")
    return agreed


def check_addresses(roster: Roster, addresses: Mapping[str, str]) -> None:
    """Raise BadInput unless each address is HOST:PORT of a server or aggregator of the roster."""
    listening = {member.name for member in roster.members if member.role in ("server", "aggregator")}
    for name, address in addresses.items():
        host, _, port = address.rpartition(":")
        if name not in listening:
            problem = f"{name!r} is no server or aggregator of the roster, and has no address"
            raise BadInput(problem, remedy="give addresses of these alone")
        if not (_is_host(host) and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise BadInput(f"{address!r} is no address of {name}", remedy="write HOST:PORT")


def _is_host(text: str) -> bool:
    """Return whether a text can be a command's host: a name, an IPv4 address, or an IPv6 address in brackets."""
    plain = text.isascii() and all(each.isalnum() or each in ".-:[]" for each in text)
    return plain and 0 < len(text) <= 255 and not text.startswith("-")  # which would be an option


def _canonical(content: Mapping[str, Any]) -> bytes:
    """Return the canonical JSON of the fields, which is signed, whatever the file's own spaces and order are."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


TLS = "tls"
PLAN_FILE, LIMITS_FILE, ADDRESSES_FILE = "plan.json", "limits.toml", "addresses.json"


@dataclass(frozen=True)
class Joined:
    """Result of joining by a kit: paths of plan and limits (None if not in it), and changes of the member list."""

    plan: Path | None
    limits: Path | None
    changes: tuple[str, ...]


def join(opened: OpenedKit, home: Path) -> Joined:
    """Write a kit's files into the member's folder, in place of older ones.

    Raises BadInput, before anything is changed, for a kit of another authority than the one known here, with a register
    that does not go on from the one here, for another member, or for keys that this folder does not have.
    """
    tls = home / TLS
    if (own := tls / "ca.pem").exists():
        before, given = read_certificate(read_limited(own, DOCUMENT_BYTES)), read_certificate(opened.kit.ca.encode())
        if not is_same_authority(before, given):
            remedy = "join another consortium with keys of their own, in another folder"
            raise BadInput(f"the kit is of another authority than {own}", remedy=remedy)
    known = read_register(tls / REGISTER_FILE) if (tls / REGISTER_FILE).exists() else None
    if known is not None:
        opened.register.require_extends(known)
    moves = _keys_in_force(tls, opened)
    for path in moves:
        path.replace(tls / path.name)
    files = {"ca.pem": opened.kit.ca, "cert.pem": opened.kit.cert, "roster.json": to_json(opened.roster)}
    for name, text in (files | {REGISTER_FILE: opened.register.to_json()}).items():
        write_synced(tls / name, text.encode())
    if moves or ((tls / NEXT).is_dir() and not any((tls / NEXT).iterdir())):
        shutil.rmtree(tls / NEXT, ignore_errors=True)
    plan = _place(home / PLAN_FILE, opened.kit.plan)
    limits = _place(home / LIMITS_FILE, opened.kit.limits)
    addresses = opened.kit.addresses
    _place(home / ADDRESSES_FILE, json.dumps(addresses, indent=1, sort_keys=True) + "\n" if addresses else "")
    return Joined(plan, limits, opened.register.changes_since(known))


def _keys_in_force(tls: Path, opened: OpenedKit) -> list[Path]:
    """Return the files of next/ that the kit's certificate puts in the place of the present keys.

    Raises BadInput unless the folder has every key that the register has for the member, under a request of its own.
    """
    name, roster = opened.kit.member, opened.roster
    index = roster.index(name)
    request = opened.register.request_of(name)
    wanted: dict[str, Callable[[Path], bool]] = {
        "identity.key": lambda path: read_identity(path).public == roster.identity(index),
        "key.pem": lambda path: _pin(path) == roster.tls_spki_sha256(index),
        "request.json": lambda path: read_request_file(path) == request,
    }
    moves = []
    for file, fits in wanted.items():
        found = [path for path in (tls / file, tls / NEXT / file) if path.exists() and fits(path)]
        if not found:
            problem = f"the kit is for other keys of {name} than {tls} holds ({file})"
            raise BadInput(problem, remedy="is it your own kit, and made after your last request was certified?")
        if found[0].parent != tls:
            moves.append(found[0])
    return moves


def _pin(path: Path) -> bytes:
    try:
        key = serialization.load_pem_private_key(read_secret(path), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        problem = f"{path} is damaged"
        raise BadInput(problem, remedy="bring it back from a backup, or enrol again with pki request") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        problem = f"{path} is no TLS key of a member"
        raise BadInput(problem, remedy="bring it back from a backup, or enrol again with pki request")
    return spki_sha256(key)


def _place(path: Path, text: str) -> Path | None:
    """Write a file of the kit beside tls/; a different file already there is renamed by its SHA-256."""
    if not text:
        return None
    if path.exists() and (old := read_limited(path, DOCUMENT_BYTES)) != text.encode():
        path.rename(path.with_stem(f"{path.stem}-{hashlib.sha256(old).hexdigest()[:12]}"))
    write_synced(path, text.encode())
    return path
