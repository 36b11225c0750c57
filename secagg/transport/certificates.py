"""X.509 certificates of a consortium, with P-256 keys and the member's name as DNS name in the SAN.

gRPC's TLS takes P-256; the Ed25519 identity keys stand in the roster and sign the protocol.
"""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from secagg.crypto.labels import labelled
from secagg.errors import BadInput

CA_DAYS = 3650
MEMBER_DAYS = 398
LOCK = "PBKDF2WithHMAC-SHA256AndAES256-CBC"
ITERATIONS = 600_000
"""Iterations of PBKDF2 with HMAC-SHA-256, after OWASP, "Password Storage Cheat Sheet" (2023)."""
_BACKDATE = datetime.timedelta(minutes=5)  # tolerates clocks that run late


@dataclass(frozen=True)
class Authority:
    """The consortium's certificate authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, consortium: str) -> Authority:
        """Create an authority with a fresh key and a self-signed certificate."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{consortium} secagg CA"[:64])])
        return cls._signed(name, new_key())

    def renewed(self) -> Authority:
        """Return the authority with a new certificate for the same name and key; earlier signatures stay valid."""
        return self._signed(self.certificate.subject, self.key)

    @classmethod
    def _signed(cls, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> Authority:
        builder = _date(name, name, key.public_key(), CA_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    def issue(self, request: x509.CertificateSigningRequest, name: str, days: int = MEMBER_DAYS) -> x509.Certificate:
        """Issue a certificate for `name` and the key of a signing request; nothing else of the request is used."""
        public = request.public_key()
        if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
            raise BadInput(f"the request of {name} has no P-256 key", remedy="have it made by pki request")
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _date(subject, self.certificate.subject, public, days)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        both = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def sign(self, label: str, *parts: bytes) -> bytes:
        """Sign a label and byte strings by ECDSA over P-256 with SHA-256 (FIPS 186-5); return the signature in DER.

        The signed bytes are `labelled(label, *parts)`.
        """
        return self.key.sign(labelled(label, *parts), ec.ECDSA(hashes.SHA256()))


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a fresh P-256 key from the operating system's randomness."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey, passphrase: bytes | None = None) -> bytes:
    """Encode a private key as PKCS #8 PEM, encrypted by PBES2 (RFC 8018) if there is a passphrase.

    `cryptography` would stretch a passphrase by 2,048 iterations alone, and has no parameter for more.
    """
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    if passphrase is None:
        return key.private_bytes(serialization.Encoding.PEM, *plain)
    from Crypto.PublicKey import ECC

    own = ECC.import_key(key.private_bytes(serialization.Encoding.DER, *plain))
    return own.export_key(
        format="PEM",
        passphrase=passphrase,
        protection=LOCK,
        prot_params={"iteration_count": ITERATIONS, "salt_size": 16},
    ).encode()


def signing_request(key: ec.EllipticCurvePrivateKey, name: str) -> bytes:
    """Return a PEM certificate request, whose signature proves possession of `key`."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def read_request(pem: bytes, name: str) -> x509.CertificateSigningRequest:
    """Parse a certificate request and check its signature. Raises BadInput."""
    try:
        request = x509.load_pem_x509_csr(pem)
        if request.is_signature_valid:
            return request
    except (ValueError, InvalidSignature, UnsupportedAlgorithm):
        pass
    raise BadInput(f"the certificate request of {name} is damaged", remedy="ask for a fresh one (pki request)")


def spki_sha256(signed: x509.Certificate | x509.CertificateSigningRequest | ec.EllipticCurvePrivateKey) -> bytes:
    """Return the SHA-256 of the SubjectPublicKeyInfo (DER) of a P-256 key. Raises BadInput for another key."""
    try:
        public = signed.public_key()
    except (ValueError, UnsupportedAlgorithm):
        public = None
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
        raise BadInput("a member's TLS key is a P-256 key, and this is none", remedy="make keys with pki request")
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(public.public_bytes(serialization.Encoding.DER, form)).digest()


def read_certificate(encoded: bytes) -> x509.Certificate:
    """Parse a certificate from PEM, or from the DER bytes that TLS delivers. Raises BadInput."""
    try:
        pem = encoded.startswith(b"-----BEGIN")
        return x509.load_pem_x509_certificate(encoded) if pem else x509.load_der_x509_certificate(encoded)
    except ValueError:
        problem = "this is no X.509 certificate"
        raise BadInput(problem, remedy="copy it again from the authority's issued/, or join by the kit") from None


def require_issued(authority: x509.Certificate, certificate: x509.Certificate, what: str) -> None:
    """Raise BadInput, naming `what`, unless the authority issued the certificate and it is valid now."""
    try:
        certificate.verify_directly_issued_by(authority)
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        raise BadInput(f"{what} was not issued by ca.pem", remedy="copy both from the same pki issue") from None
    now = datetime.datetime.now(datetime.UTC)
    if now > ends:
        raise BadInput(f"{what} expired on {ends:%Y-%m-%d}", remedy="have it issued anew")
    if now < begins:
        raise BadInput(f"{what} is valid only from {begins:%Y-%m-%d}", remedy="set this machine's clock")


def is_same_authority(one: x509.Certificate, other: x509.Certificate) -> bool:
    """Return whether two authority certificates have the same name and key, as before and after `renewed`."""
    return (one.subject, spki_sha256(one)) == (other.subject, spki_sha256(other))


def is_signed_by(authority: x509.Certificate, signature: bytes, label: str, *parts: bytes) -> bool:
    """Return whether `signature` is the authority's on this label and byte strings, as `Authority.sign` makes it."""
    try:
        public = authority.public_key()
        if isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, ec.SECP256R1):
            public.verify(signature, labelled(label, *parts), ec.ECDSA(hashes.SHA256()))
            return True
    except (InvalidSignature, ValueError, UnsupportedAlgorithm):
        pass
    return False


def certificate_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the DNS names in a certificate's SAN."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return tuple(extension.value.get_values_for_type(x509.DNSName))


def _date(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,  # the authority signs start kits, too
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
