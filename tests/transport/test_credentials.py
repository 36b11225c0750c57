"""A member's folder is checked before anything connects: every file, its owner, its dates."""

import datetime
from pathlib import Path

import pytest
from cryptography import x509

from secagg.agreement.roster import Roster, read_roster, write_roster
from secagg.crypto.signatures import SigningKey
from secagg.errors import BadInput
from secagg.randomness import OperatingSystem
from secagg.transport import read_credentials
from secagg.transport.certificates import Authority, certificate_names
from tests.transport.consortium import PEM, certify, certify_later, fresh_key
from tests.worlds.rosters import SERVER, enrol

FILES = ("ca.pem", "cert.pem", "key.pem", "identity.key", "roster.json")


def refused(folder: Path) -> str:
    """The line with which a folder is refused; it names the folder."""
    with pytest.raises(BadInput) as refusal:
        read_credentials(folder)
    assert str(folder) in str(refusal.value) or "roster" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_good_folder(consortium: Path) -> None:
    """A folder as the authority made it gives name and index of its member."""
    assert [read_credentials(consortium / name).index for name in (SERVER, "alice", "bob")] == [0, 1, 2]
    assert read_credentials(consortium / "bob").name == "bob"


def test_secrets_do_not_print(consortium: Path) -> None:
    """The repr of credentials shows no key."""
    credentials = read_credentials(consortium / "bob")
    assert "PRIVATE" not in repr(credentials)
    assert credentials.identity.private_bytes().hex() not in repr(credentials)


@pytest.mark.parametrize("name", FILES)
def test_missing_file_is_named(consortium: Path, name: str) -> None:
    """A file that is missing is named."""
    (consortium / "bob" / name).unlink()
    assert name in refused(consortium / "bob")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_damaged_file_is_refused(consortium: Path, name: str, content: bytes) -> None:
    """A file that is not what it should be is refused in one line."""
    (consortium / "bob" / name).write_bytes(content)
    refused(consortium / "bob")


def test_expired_certificate(consortium: Path) -> None:
    """An expired certificate is refused with its date and the remedy."""
    certify(consortium, consortium / "bob", "bob", days=-1)
    line = refused(consortium / "bob")
    assert "cert.pem" in line
    assert "expired on" in line
    assert "issued anew" in line


def test_certificate_of_the_future(consortium: Path) -> None:
    """A certificate that is not valid yet is refused with its date."""
    certify_later(consortium, consortium / "bob", "bob")
    assert "valid only from" in refused(consortium / "bob")


def test_certificate_of_another_authority(consortium: Path, tmp_path: Path) -> None:
    """A certificate that the folder's ca.pem did not issue is refused."""
    enrol(tmp_path / "other", "bob")
    for name in ("cert.pem", "key.pem"):
        (consortium / "bob" / name).write_bytes((tmp_path / "other" / "bob" / name).read_bytes())
    assert "not issued by ca.pem" in refused(consortium / "bob")


def test_certificate_of_another_key(consortium: Path) -> None:
    """Key and certificate must belong together."""
    fresh_key(consortium / "bob")
    assert "do not belong together" in refused(consortium / "bob")


def test_certificate_of_a_key_that_the_roster_lacks(consortium: Path) -> None:
    """A key that the authority certified under the member's name, but that the roster does not pin, is refused."""
    fresh_key(consortium / "bob")
    certify(consortium, consortium / "bob", "bob")
    assert "key.pem" in (line := refused(consortium / "bob"))
    assert "not the TLS key that the roster has for bob" in line


def test_certificate_issued_anew_for_the_same_key(consortium: Path) -> None:
    """A new certificate for the pinned key is the member's, whatever its dates."""
    certify(consortium, consortium / "bob", "bob", days=7)
    assert read_credentials(consortium / "bob").name == "bob"


def test_certificate_of_a_stranger(consortium: Path) -> None:
    """A certificate for a name that the roster lacks is refused with the name."""
    certify(consortium, consortium / "bob", "mallory")
    assert "mallory is not a member" in refused(consortium / "bob")


def test_certificate_of_another_member(consortium: Path) -> None:
    """A member with another's name in its certificate has not that member's identity key."""
    certify(consortium, consortium / "bob", "alice")
    assert "identity.key" in refused(consortium / "bob")


def test_identity_of_another(consortium: Path) -> None:
    """An identity key that is not the roster's is refused."""
    other = SigningKey.generate(OperatingSystem()).private_bytes().hex()
    (consortium / "bob" / "identity.key").write_text(other)
    assert "not the one that the roster has" in refused(consortium / "bob")


def test_roster_without_this_member(consortium: Path) -> None:
    """A roster that lacks the member is refused with its name."""
    path = consortium / "bob" / "roster.json"
    roster = read_roster(path)
    write_roster(Roster.of(roster.consortium, roster.members[:2]), path)
    assert "bob is not a member" in refused(consortium / "bob")


def test_authority_itself_is_no_member(consortium: Path) -> None:
    """The authority's own certificate names no member."""
    home, authority = consortium / "bob", consortium / "ca"
    (home / "cert.pem").write_bytes((authority / "ca.pem").read_bytes())
    (home / "key.pem").write_bytes((authority / "ca.key").read_bytes())
    refused(home)


def test_certificate_says_only_what_the_authority_decides(consortium: Path) -> None:
    """A member's certificate holds its one name, is no authority, and ends within 398 days."""
    certificate = x509.load_pem_x509_certificate((consortium / "bob" / "cert.pem").read_bytes())
    assert certificate_names(certificate) == ("bob",)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert not constraints.value.ca
    assert certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC) <= datetime.timedelta(days=398)


def test_authority_cannot_be_extended() -> None:
    """The authority signs members only: no authority stands under it."""
    certificate = Authority.create("x").certificate
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)
    assert certificate.public_bytes(PEM).startswith(b"-----BEGIN CERTIFICATE")
