"""Joining a consortium: members make their own keys, the authority certifies signed requests, or writes nothing."""

import hashlib
import json
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from secagg.agreement.roster import read_roster
from secagg.crypto.signatures import SigningKey
from secagg.errors import BadInput
from secagg.transport.certificates import new_key, signing_request
from secagg.transport.enrolment import create_authority, create_request, issue
from secagg.transport.register import make_request

P256_PREFIX = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200")
SECRETS = {"key.pem", "identity.key", "ca.key"}


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """A fresh authority."""
    create_authority(tmp_path / "ca", "test")
    return tmp_path / "ca"


def requests(folder: Path, *names: str) -> list[Path]:
    """Requests of a server and clients."""
    return [create_request(folder / name, name, "server" if name == "server" else "client") for name in names]


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files under a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_secrets_are_for_their_owner_alone(authority: Path, tmp_path: Path) -> None:
    """Secret keys can be read by their owner only, and none leaves its folder with the request."""
    requests(tmp_path, "a")
    secret = [path for path in tmp_path.rglob("*") if path.name in SECRETS]
    assert len(secret) == 3
    assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}
    request = (tmp_path / "a" / "request.json").read_text()
    assert "PRIVATE" not in request
    assert (tmp_path / "a" / "identity.key").read_text().strip() not in request


def test_folders_of_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Whatever the umask, the folders that a member and the authority keep keys in are their owners' alone."""
    before = os.umask(0)
    try:
        create_authority(tmp_path / "new" / "ca", "test")
        requests(tmp_path / "members", "server", "a")
    finally:
        os.umask(before)
    folders = [tmp_path / "new" / "ca", *(tmp_path / "members" / name for name in ("server", "a"))]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}
    secret = [path for path in tmp_path.rglob("*") if path.name in SECRETS]
    assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}


def test_everyone_gets_the_same_roster(authority: Path, tmp_path: Path) -> None:
    """All members certified so far are in one roster, which every member's folder holds."""
    issue(authority, requests(tmp_path, "server", "a"))
    roster = issue(authority, requests(tmp_path, "b"))
    assert [each.name for each in roster.members] == ["server", "a", "b"]
    for name in ("server", "a", "b"):
        assert read_roster(authority / "issued" / name / "roster.json") == roster


def test_same_request_again_renews(authority: Path, tmp_path: Path) -> None:
    """A member that hands in its request again gets a new certificate and stays who it is."""
    paths = requests(tmp_path, "server", "a")
    first = issue(authority, paths)
    before = (authority / "issued" / "a" / "cert.pem").read_bytes()
    assert issue(authority, paths) == first
    assert (authority / "issued" / "a" / "cert.pem").read_bytes() != before


def test_roster_pins_the_certified_keys(authority: Path, tmp_path: Path) -> None:
    """The pin is the SHA-256 of the DER of the certificate's public key (RFC 5480: this prefix, then the point)."""
    roster = issue(authority, requests(tmp_path, "server", "a"))
    for member in roster.members:
        certificate = x509.load_pem_x509_certificate((authority / "issued" / member.name / "cert.pem").read_bytes())
        numbers = certificate.public_key().public_numbers()
        point = b"\x04" + numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big")
        assert member.tls_spki_sha256 == hashlib.sha256(P256_PREFIX + point).digest()


def test_other_tls_key_of_a_member_is_refused(authority: Path, tmp_path: Path) -> None:
    """A request with the member's own identity but another TLS key changes no roster."""
    first = requests(tmp_path, "server", "a")
    issue(authority, first)
    before = snapshot(authority)
    home = tmp_path / "a"
    identity = SigningKey.from_bytes(bytes.fromhex((home / "identity.key").read_text()))
    request = signing_request(new_key(), "a")
    first[1].write_text(json.dumps(make_request("a", "client", identity, request).content()))
    with pytest.raises(BadInput, match="already a member with other keys"):
        issue(authority, [first[1]])
    assert snapshot(authority) == before


def test_name_taken_by_other_keys_is_refused(authority: Path, tmp_path: Path) -> None:
    """Nobody else can be certified under a member's name, and nothing is written."""
    issue(authority, requests(tmp_path, "server", "a"))
    before = snapshot(authority)
    impostor = create_request(tmp_path / "impostor", "a", "client")
    with pytest.raises(BadInput, match="already a member with other keys"):
        issue(authority, [impostor])
    assert snapshot(authority) == before


@pytest.mark.parametrize(
    "change",
    [
        {"name": "b"},
        {"role": "server"},
        {"identity": "00" * 32},
        {"identity": "zz"},
        {"identity_signature": "00" * 64},
        {"certificate_request": "damaged"},
        {"version": 1},
        {"version": True},
        {"extra": 1},
        {"follows": "00" * 32},
        {"previous_signature": "00" * 64},
        {"name": 5},
        {"certificate_request": None},
    ],
    ids=str,
)
def test_tampered_request_is_refused(authority: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    """A request changed in any field is refused before anything is written, for all requests together."""
    before = snapshot(authority)
    paths = requests(tmp_path, "server", "a")
    content = json.loads(paths[1].read_text())
    paths[1].write_text(json.dumps({**content, **change}))
    with pytest.raises(BadInput):
        issue(authority, paths)
    assert snapshot(authority) == before


def test_certificate_request_of_another_key_is_refused(authority: Path, tmp_path: Path) -> None:
    """The identity key signs the TLS key's request: another request under it is refused."""
    server, first, second = requests(tmp_path, "server", "a", "b")
    content = json.loads(first.read_text())
    content["certificate_request"] = json.loads(second.read_text())["certificate_request"]
    first.write_text(json.dumps(content))
    with pytest.raises(BadInput, match="not signed by the identity"):
        issue(authority, [server, first])


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '"x"', "\x00"])
def test_file_that_is_no_request_is_refused(authority: Path, tmp_path: Path, content: str) -> None:
    """A file that is no request is named."""
    (tmp_path / "request.json").write_text(content)
    with pytest.raises(BadInput, match=r"request\.json"):
        issue(authority, [tmp_path / "request.json"])


def test_missing_request_is_named(authority: Path, tmp_path: Path) -> None:
    """A request that is not there is named."""
    with pytest.raises(BadInput, match="cannot read the request"):
        issue(authority, [tmp_path / "none.json"])


@pytest.mark.parametrize("names", [("a", "b"), ("server",)])
def test_members_that_make_no_roster_are_refused(authority: Path, tmp_path: Path, names: tuple[str, ...]) -> None:
    """Without one server and a client there is no roster, and nothing is written."""
    before = snapshot(authority)
    with pytest.raises(BadInput):
        issue(authority, requests(tmp_path, *names))
    assert snapshot(authority) == before


def test_existing_keys_are_never_overwritten(authority: Path, tmp_path: Path) -> None:
    """Neither an authority's nor a member's keys are replaced by a second call."""
    requests(tmp_path, "a")
    before = snapshot(tmp_path)
    with pytest.raises(BadInput, match="already holds"):
        create_request(tmp_path / "a", "a", "client")
    with pytest.raises(BadInput, match="already holds"):
        create_authority(authority, "again")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(("name", "role"), [("A", "client"), ("../x", "client"), ("", "client"), ("a", "auditor")])
def test_bad_name_or_role_makes_no_keys(tmp_path: Path, name: str, role: str) -> None:
    """A name that is no DNS label, or an unknown role, leaves no folder behind."""
    with pytest.raises(BadInput):
        create_request(tmp_path / "new", name, role)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("damage", ["ca.key", "ca.pem", "consortium.json"])
def test_damaged_authority_is_refused(authority: Path, tmp_path: Path, damage: str) -> None:
    """An authority that cannot be read is named with the remedy."""
    (authority / damage).write_text("damaged")
    with pytest.raises(BadInput, match="holds no usable authority"):
        issue(authority, requests(tmp_path, "server", "a"))


def test_authority_of_other_parts_is_refused(authority: Path, tmp_path: Path) -> None:
    """A certificate with one bit flipped, one of another authority, and a name that is none are refused."""
    create_authority(tmp_path / "other", "other")
    whole = x509.load_pem_x509_certificate((authority / "ca.pem").read_bytes()).public_bytes(serialization.Encoding.DER)
    asked = requests(tmp_path, "server", "a")
    flipped = [bytes([*whole[:at], whole[at] ^ 1, *whole[at + 1 :]]) for at in range(4, len(whole), 7)]
    damaged = [ssl.DER_cert_to_PEM_cert(each).encode() for each in flipped]
    for content in (*damaged, (tmp_path / "other" / "ca.pem").read_bytes()):
        (authority / "ca.pem").write_bytes(content)
        with pytest.raises(BadInput, match=r"no usable authority|not that of its certificate"):
            issue(authority, asked)
    (authority / "ca.pem").write_text(ssl.DER_cert_to_PEM_cert(whole))
    for name in ("7", '""', "null", f'"{"x" * 101}"', "[" * 5000):
        (authority / "consortium.json").write_text(f'{{"version": 1, "name": {name}}}')
        with pytest.raises(BadInput, match=r"authority|1 to 100 characters"):
            issue(authority, asked)


@pytest.mark.parametrize("name", ["", "x" * 101])
def test_consortium_needs_a_name(tmp_path: Path, name: str) -> None:
    """A consortium's name has 1 to 100 characters; otherwise nothing is made."""
    with pytest.raises(BadInput):
        create_authority(tmp_path / "new", name)
    assert not (tmp_path / "new").exists()
