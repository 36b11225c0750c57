"""A coordinator that only remembers, and certificates that are wrong in one way."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

from cryptography.hazmat.primitives import serialization

from secagg.transport import Credentials, certificates, read_credentials
from secagg.transport.certificates import new_key, read_request, signing_request
from secagg.transport.enrolment import read_authority

PEM = serialization.Encoding.PEM


def certify(folder: Path, home: Path, name: str, days: int = 30) -> None:
    """Give the key in `home` a certificate of the folder's authority for any name and time; days < 0 has expired."""
    authority = read_authority(folder / "ca")
    key = serialization.load_pem_private_key((home / "key.pem").read_bytes(), None)
    request = read_request(signing_request(key, name), name)  # type: ignore[arg-type]
    with mock.patch.object(certificates, "_BACKDATE", datetime.timedelta(days=10)):
        certificate = authority.issue(request, name, days)
    (home / "cert.pem").write_bytes(certificate.public_bytes(PEM))


def certify_later(folder: Path, home: Path, name: str) -> None:
    """A certificate that is valid only from tomorrow."""
    with mock.patch.object(datetime, "timedelta", datetime.timedelta):
        authority = read_authority(folder / "ca")
        key = serialization.load_pem_private_key((home / "key.pem").read_bytes(), None)
        request = read_request(signing_request(key, name), name)  # type: ignore[arg-type]
        with mock.patch.object(certificates, "_BACKDATE", datetime.timedelta(days=-1)):
            certificate = authority.issue(request, name, 30)
    (home / "cert.pem").write_bytes(certificate.public_bytes(PEM))


def fresh_key(home: Path) -> None:
    """Replace the TLS key."""
    (home / "key.pem").write_bytes(certificates.key_pem(new_key()))


def impostor(folder: Path, name: str) -> Credentials:
    """A member's credentials, but for a TLS key that the member never made and that the authority certified."""
    genuine = read_credentials(folder / name)
    home = folder / f"impostor of {name}"
    shutil.copytree(folder / name, home)
    fresh_key(home)
    certify(folder, home, name)
    key_pem, cert_pem = ((home / file).read_bytes() for file in ("key.pem", "cert.pem"))
    return replace(genuine, folder=home, key_pem=key_pem, cert_pem=cert_pem)


@dataclass
class Remembering:
    """A coordinator that keeps what it is given and answers what it is told to."""

    answer: bytes = b""
    frame: bytes | None = b"due"
    failures: list[Exception] = field(default_factory=list)
    submitted: list[tuple[int, bytes]] = field(default_factory=list)
    uploaded: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    asked: list[tuple[int, bytes, str]] = field(default_factory=list)
    file: Path = Path()
    read_by: list[tuple[int, bytes, bytes]] = field(default_factory=list)

    async def submit(self, member: int, frame: bytes) -> bytes:
        """Remember a frame."""
        self._fail()
        self.submitted.append((member, frame))
        return self.answer

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Remember a frame and its vector."""
        content = b"".join([part async for part in parts])
        self._fail()
        self.uploaded.append((member, frame, content))
        return self.answer

    async def read(self, member: int, round_digest: bytes, digest: bytes) -> Path:
        """Show a file."""
        self._fail()
        self.read_by.append((member, round_digest, digest))
        return self.file

    async def fetch(self, member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
        """Remember the question."""
        self._fail()
        self.asked.append((member, round_digest, step))
        return self.frame

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)
