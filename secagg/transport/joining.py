"""A member joins by its kit: its folder gets what the kit holds, once the kit is checked against what the folder knows.

The folder holds the keys in tls/ (`secagg.transport.enrolment`); beside it come plan.json and limits.toml. The same kit
again changes nothing, and goes on where a crash has stopped the first time: every file is replaced in one step.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from secagg.errors import BadInput
from secagg.system.files import write_synced
from secagg.system.reading import DOCUMENT_BYTES, read_limited
from secagg.transport.certificates import is_same_authority, read_certificate, spki_sha256
from secagg.transport.credentials import read_identity, read_secret
from secagg.transport.enrolment import NEXT
from secagg.transport.kit import Opened
from secagg.transport.register import REGISTER_FILE, read_register
from secagg.transport.requests import read_request_file
from secagg.wire import to_json

TLS = "tls"
PLAN_FILE, LIMITS_FILE = "plan.json", "limits.toml"


@dataclass(frozen=True)
class Joined:
    """What a folder has got: the plan and the limits where the kit holds them, and what is new in the register."""

    plan: Path | None
    limits: Path | None
    changes: tuple[str, ...]


def join(opened: Opened, home: Path) -> Joined:
    """Bring a member's folder to what its kit says.

    Raises BadInput, before anything is changed, for a kit of another authority than the one known here, with a register
    that does not go on from the one here, for another member, or for keys that this folder does not have.
    """
    tls = home / TLS
    _require_same_authority(tls, opened)
    known = read_register(tls / REGISTER_FILE) if (tls / REGISTER_FILE).exists() else None
    if known is not None:
        opened.register.require_extends(known)
    moves = _keys_in_force(tls, opened)
    for path in moves:
        path.replace(tls / path.name)
    files = {"ca.pem": opened.kit.ca, "cert.pem": opened.kit.cert, "roster.json": to_json(opened.roster)}
    for name, text in (files | {REGISTER_FILE: opened.register.to_json()}).items():
        write_synced(tls / name, text.encode())
    if moves or _is_empty(tls / NEXT):
        shutil.rmtree(tls / NEXT, ignore_errors=True)
    plan = _place(home / PLAN_FILE, opened.kit.plan)
    limits = _place(home / LIMITS_FILE, opened.kit.limits)
    return Joined(plan, limits, opened.register.changes_since(known))


def _require_same_authority(tls: Path, opened: Opened) -> None:
    known = tls / "ca.pem"
    if not known.exists():
        return
    own, given = read_certificate(read_limited(known, DOCUMENT_BYTES)), read_certificate(opened.kit.ca.encode())
    if not is_same_authority(own, given):
        raise BadInput(
            f"the kit is of another authority than {known}",
            remedy="join another consortium with keys of their own, in another folder",
        )


def _keys_in_force(tls: Path, opened: Opened) -> list[Path]:
    """The files of next/ that the kit's certificate brings into force.

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
            raise BadInput(
                f"the kit is for other keys of {name} than {tls} holds ({file})",
                remedy="is it your own kit, and made after your last request was certified?",
            )
        if found[0].parent != tls:
            moves.append(found[0])
    return moves


def _pin(path: Path) -> bytes:
    try:
        key = serialization.load_pem_private_key(read_secret(path), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadInput(
            f"{path} is damaged", remedy="bring it back from a backup, or enrol again with pki request"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadInput(
            f"{path} is no TLS key of a member", remedy="bring it back from a backup, or enrol again with pki request"
        )
    return spki_sha256(key)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _place(path: Path, text: str) -> Path | None:
    """Write a file of the kit beside tls/, and keep another one that was there before under its SHA-256."""
    if not text:
        return None
    if path.exists() and (old := read_limited(path, DOCUMENT_BYTES)) != text.encode():
        path.rename(path.with_stem(f"{path.stem}-{hashlib.sha256(old).hexdigest()[:12]}"))
    write_synced(path, text.encode())
    return path
