"""A member's keys and certificates, read from its folder and checked before any connection is made."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from secagg.agreement.roster import Roster, read_roster
from secagg.crypto.signatures import SigningKey
from secagg.errors import BadInput
from secagg.system.reading import DOCUMENT_BYTES, read_limited
from secagg.transport.certificates import certificate_names, read_certificate, require_issued, spki_sha256
from secagg.transport.register import REGISTER_FILE, read_register

WARNING_DAYS = 30


@dataclass(frozen=True)
class Credentials:
    """The keys and certificates of this process's member, from the PEM files in `folder`; `repr` shows no secret."""

    folder: Path
    roster: Roster
    index: int
    identity: SigningKey
    ca_pem: bytes = field(repr=False)
    cert_pem: bytes = field(repr=False)
    key_pem: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """The member's name."""
        return self.roster.name(self.index)

    def ends(self) -> tuple[End, End]:
        """Return the expiry (`End`) of this member's certificate and that of the authority's certificate."""
        return end_of(self.folder / "cert.pem"), end_of(self.folder / "ca.pem")

    def for_server(self) -> grpc.ServerCredentials:
        """Return TLS credentials for a server that accepts only clients with a certificate of the consortium."""
        return grpc.ssl_server_credentials([(self.key_pem, self.cert_pem)], self.ca_pem, require_client_auth=True)

    def for_channel(self, peer_pem: bytes) -> grpc.ChannelCredentials:
        """Return TLS credentials that show this member's certificate, and trust that of one peer only (`peer_pem`)."""
        return grpc.ssl_channel_credentials(peer_pem, self.key_pem, self.cert_pem)


def read_credentials(folder: Path) -> Credentials:
    """Read and cross-check ca.pem, cert.pem, key.pem, identity.key and roster.json.

    Raises BadInput naming the file when one is missing or unreadable, when the certificate is expired, not issued by
    the authority, or for another key, when name, identity or TLS key are not those of the roster, or when the roster is
    not the one that follows from the register beside it.
    """
    roster = read_roster(folder / "roster.json")
    ca_pem, cert_pem, key_pem = _read(folder / "ca.pem"), _read(folder / "cert.pem"), read_secret(folder / "key.pem")
    try:
        authority = x509.load_pem_x509_certificate(ca_pem)
        certificate = x509.load_pem_x509_certificate(cert_pem)
        key = serialization.load_pem_private_key(key_pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadInput(f"a certificate or key in {folder} is damaged", remedy="enrol again with pki request") from None
    require_issued(authority, authority, f"ca.pem in {folder}")
    require_issued(authority, certificate, f"cert.pem in {folder}")
    if key.public_key() != certificate.public_key():
        raise BadInput(f"key.pem and cert.pem in {folder} do not belong together", remedy="copy your own cert.pem")
    identity = read_identity(folder / "identity.key")
    names = certificate_names(certificate)
    if len(names) != 1:
        problem = f"cert.pem in {folder} does not name exactly one member"
        raise BadInput(problem, remedy="copy your own cert.pem from the authority's issued/")
    index = roster.index(names[0])
    if roster.identity(index) != identity.public:
        problem = f"identity.key in {folder} is not the one that the roster has for {names[0]}"
        raise BadInput(problem, remedy="copy cert.pem and roster.json from the same pki issue")
    if roster.tls_spki_sha256(index) != spki_sha256(certificate):
        problem = f"key.pem in {folder} is not the TLS key that the roster has for {names[0]}"
        raise BadInput(problem, remedy="copy cert.pem and roster.json from the same pki issue")
    if (folder / REGISTER_FILE).exists():
        read_register(folder / REGISTER_FILE).require_current(roster, folder / "roster.json")
    return Credentials(folder, roster, index, identity, ca_pem, cert_pem, key_pem)


@dataclass(frozen=True)
class End:
    """The expiry of a certificate; `days` are the whole days left, negative once it has expired."""

    file: Path
    on: datetime.date
    days: int

    @property
    def is_near(self) -> bool:
        """Whether the certificate has expired, or will in less than WARNING_DAYS days."""
        return self.days < WARNING_DAYS

    def warning(self) -> str:
        """Return the warning that a certificate will soon expire or has expired, with the remedy."""
        ends = f"ends on {self.on}, in {self.days} day{'s' * (self.days != 1)}"
        own = "secagg pki renew --tls, then have it issued"
        remedy = "join by a kit made after secagg pki renew --ca" if self.file.name == "ca.pem" else own
        return f"WARNING: {self.file} {ends if self.days >= 0 else f'expired on {self.on}'}: {remedy}"


def end_of(file: Path) -> End:
    """Read the expiry of the certificate in a file. Raises BadInput for a file that is not a certificate."""
    try:
        ends = read_certificate(_read(file)).not_valid_after_utc
    except BadInput as error:
        raise BadInput(f"{file}: {error.problem}", remedy=error.remedy) from None
    left = ends - datetime.datetime.now(datetime.UTC)
    return End(file, ends.date(), left // datetime.timedelta(days=1))


def _read(path: Path) -> bytes:
    try:
        return read_limited(path, DOCUMENT_BYTES)
    except OSError as error:
        problem = f"cannot read {path} ({error.strerror})"
        raise BadInput(problem, remedy="secagg/cli/README.md shows how a member gets its files (pki)") from None


def read_secret(path: Path) -> bytes:
    """Read a secret file. Raises BadInput if it cannot be read, or if others than its owner can read it."""
    content = _read(path)
    if path.stat().st_mode & 0o077:
        raise BadInput(f"{path} can be read by others", remedy=f"chmod 600 {path}")
    return content


def read_identity(path: Path) -> SigningKey:
    """Read a member's identity key. Raises BadInput for an invalid key, or a file that others can read."""
    try:
        return SigningKey.from_bytes(bytes.fromhex(read_secret(path).decode().strip()))
    except ValueError:
        raise BadInput(f"{path} is no identity key", remedy="enrol again with pki request") from None
