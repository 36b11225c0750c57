"""`secagg pki renew | rotate | remove | expiry`, and an authority's key under a passphrase."""

import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from secagg.cli.pki import VARIABLE
from secagg.transport.certificates import key_pem
from tests.cli.command import NEW_PLAN, SERVER, Command
from tests.transport.consortium import certify

WORDS = "correct horse battery staple"


def test_renewed_and_rotated_members_are_certified(secagg: Command, federation: Path) -> None:
    """The command says where the next keys are; what it asks for is certified and shown in the roster."""
    before = secagg("pki", "show", federation / "alice" / "roster.json", "--json", "-").json["members"]
    said = secagg("pki", "renew", "--tls", federation / "alice")
    assert (said.code, said.out) == (0, "")
    assert "send" in said.err
    assert "identity key" in said.err
    assert secagg("pki", "rotate", "--tls", federation / "bob").code == 0
    requests = [federation / name / "next" / "request.json" for name in ("alice", "bob")]
    after = secagg("pki", "issue", *requests, "--ca", federation / "ca", "--json", "-").json["members"]
    changed = {
        old["name"]: {key for key in ("identity", "tls_spki_sha256") if old[key] != new[key]}
        for old, new in zip(before, after, strict=True)
    }
    assert changed == {
        SERVER: set(),
        "alice": {"tls_spki_sha256"},
        "bob": {"identity", "tls_spki_sha256"},
        "carol": set(),
    }
    again = secagg("pki", "rotate", "--tls", federation / "bob")
    assert (again.code, "a change of keys is under way" in again.complaint) == (2, True)


def test_the_authority_renews_its_own_certificate(secagg: Command, federation: Path) -> None:
    """`pki renew --ca` says when the next one ends; one folder is asked for, not both or none."""
    before = (federation / "ca" / "ca.pem").read_bytes()
    said = secagg("pki", "renew", "--ca", federation / "ca")
    assert (said.code, "ca.pem ends on" in said.err) == (0, True)
    after = (federation / "ca" / "ca.pem").read_bytes()
    assert after == (federation / "ca" / "issued" / "alice" / "ca.pem").read_bytes() != before
    for options in ((), ("--tls", federation / "alice", "--ca", federation / "ca")):
        assert secagg("pki", "renew", *options).code == 2


def test_removed_member_is_out(secagg: Command, federation: Path) -> None:
    """The roster lacks it, its request is refused, a plan of the roster of before is refused where the new one is."""
    removed = secagg("pki", "remove", "carol", "--ca", federation / "ca", "--reason", "left", "--json", "-")
    assert [member["name"] for member in removed.json["members"]] == [SERVER, "alice", "bob"]
    said = secagg("pki", "issue", federation / "carol" / "request.json", "--ca", federation / "ca")
    assert (said.code, "carol was removed (left)" in said.complaint) == (2, True)
    home = federation / SERVER
    shutil.copy(federation / "ca" / "issued" / SERVER / "register.json", home)
    chosen = ("--shape", "3", "--classes", "no,yes", "--radius", "1", "--out", federation / "new.json")
    said = secagg(*NEW_PLAN, "--roster", home / "roster.json", *chosen)
    assert (said.code, "lists carol, who was removed" in said.complaint) == (2, True)
    shutil.copy(federation / "ca" / "issued" / SERVER / "roster.json", home)
    assert secagg(*NEW_PLAN, "--roster", home / "roster.json", *chosen, "--min-clients-in-sum", "1").code == 0


def test_ends_are_shown_and_warned_of(secagg: Command, federation: Path) -> None:
    """`pki expiry` lists the certificates of a member or of all, the first end first, and warns of near ones."""
    certify(federation, federation / "bob", "bob", days=3)
    said = secagg("pki", "expiry", "--tls", federation / "bob")
    assert (said.code, "WARNING" in said.err, "2 days left" in said.out) == (0, True, True)
    ends = secagg("pki", "expiry", "--ca", federation / "ca", "--json", "-")
    assert ends.err == ""
    days = [each["days_left"] for each in ends.json["certificates"]]
    assert (len(days), days, days[-1] > 3000) == (5, sorted(days), True)
    for options in ((), ("--tls", federation / "bob", "--ca", federation / "ca"), ("--tls", federation / "none")):
        assert secagg("pki", "expiry", *options).code == 2


@pytest.mark.parametrize(("days", "warned"), [(3, True), (60, False)])
def test_dry_run_warns_of_an_end(secagg: Command, federation: Path, days: int, warned: bool) -> None:
    """A client whose certificate ends within 30 days is told at its start, and goes on."""
    certify(federation, federation / "bob", "bob", days)
    home = federation / "bob"
    said = secagg(
        *("client", "--plan", federation / "plan.json", "--server", "localhost:1", "--data", home / "records.npz"),
        *("--policy", home / "policy.toml", "--state", home / "state", "--tls", home, "--dry-run"),
    )
    assert said.code == 0
    assert ("cert.pem ends on" in said.err and "secagg pki renew" in said.err) == warned


@pytest.mark.parametrize("source", ["file", "environment"])
def test_passphrase_of_the_authority(
    secagg: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """From a file or the environment it opens the key; none, an empty, a wrong one and a missing file are refused."""
    (tmp_path / "right").write_text(f"{WORDS}\nand a second line\n")
    (tmp_path / "wrong").write_text("another passphrase\n")
    (tmp_path / "empty").write_text("\n")
    given = ["--passphrase-file", tmp_path / "right"] if source == "file" else []
    if source == "environment":
        monkeypatch.setenv(VARIABLE, WORDS)
    ca = ("--ca", tmp_path / "ca")
    assert secagg("pki", "init", *ca, "--consortium", "locked", "--protect", *given).code == 0
    monkeypatch.delenv(VARIABLE, raising=False)
    for name, role in ((SERVER, "server"), ("a", "client")):
        assert secagg("pki", "request", name, "--tls", tmp_path / name, "--role", role).code == 0
    requests = [tmp_path / name / "request.json" for name in (SERVER, "a")]
    for options, words in (
        ([], "nobody to ask"),
        (["--passphrase-file", tmp_path / "wrong"], "does not open with this passphrase"),
        (["--passphrase-file", tmp_path / "empty"], "is empty"),
        (["--passphrase-file", tmp_path / "none"], "cannot read the passphrase"),
    ):
        said = secagg("pki", "issue", *requests, *ca, *options)
        assert (said.code, words in said.complaint, "another passphrase" in said.err) == (2, True, False)
    assert secagg("pki", "issue", *requests, *ca, "--passphrase-file", tmp_path / "right").code == 0


def test_only_the_authority_removes_a_member(secagg: Command, federation: Path, tmp_path: Path) -> None:
    """Without the passphrase of a protected authority its register stays as it is."""
    (tmp_path / "right").write_text(WORDS)
    (tmp_path / "wrong").write_text("another passphrase")
    key = federation / "ca" / "ca.key"
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(key_pem(loaded, WORDS.encode()))  # type: ignore[arg-type]
    before = (federation / "ca" / "register.json").read_bytes()
    given = ("pki", "remove", "carol", "--ca", federation / "ca")
    for options, words in (
        ([], "nobody to ask"),
        (["--passphrase-file", tmp_path / "wrong"], "does not open with this passphrase"),
    ):
        said = secagg(*given, *options)
        assert (said.code, words in said.complaint) == (2, True)
        assert (federation / "ca" / "register.json").read_bytes() == before
    assert secagg(*given, "--passphrase-file", tmp_path / "right").code == 0
    assert (federation / "ca" / "register.json").read_bytes() != before
