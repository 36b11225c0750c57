"""Start kits: a member's folder gets what its own kit holds, and nothing of any other, older or changed one."""

import base64
import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from secagg.agreement.plan import write_plan
from secagg.agreement.policy import limits_text
from secagg.errors import BadInput
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.randomness import OperatingSystem
from secagg.system.reading import DOCUMENT_BYTES
from secagg.transport import certificates, read_credentials
from secagg.transport.enrolment import change_keys, create_request, issue, read_authority, remove, renew_authority
from secagg.transport.kit import join, make_kits, read_kit
from tests.transport.consortium import certify
from tests.worlds.rosters import SERVER, enrol

ADDRESSES = {SERVER: "sums.example.org:7443"}


@pytest.fixture
def members(tmp_path: Path) -> Path:
    """An authority, and folders of a server, alice and bob that hold nothing but their own keys."""
    enrol(tmp_path / "made", "alice", "bob")
    shutil.move(tmp_path / "made" / "ca", tmp_path / "ca")
    for name in (SERVER, "alice", "bob"):
        for file in ("key.pem", "identity.key", "request.json"):
            (tmp_path / name / "tls").mkdir(parents=True, exist_ok=True)
            shutil.copy2(tmp_path / "made" / name / file, tmp_path / name / "tls")
    return tmp_path


def kits(members: Path, *, plan: bool = True) -> Path:
    """The folder with everybody's newest kit."""
    roster = issue(members / "ca", [])
    path = members / "planned.json"
    choices = PlanChoices(radius=1.0, colluders=0, dropouts=0, min_clients_in_sum=1, protection="none")
    write_plan(make_plan(PublicData.of_shape((3,), ("no", "yes")), roster, choices, OperatingSystem()), path)
    (members / "limits.toml").write_text(limits_text())
    made = make_kits(members / "ca", None, path if plan else None, members / "limits.toml", ADDRESSES)
    for name, text in made.items():
        (members / f"{name}.kit").write_text(text)
    return members


def join_by(members: Path, name: str) -> Any:
    """A member joins by its kit."""
    return join(read_kit(members / f"{name}.kit"), members / name)


def content_of(folder: Path) -> dict[str, bytes]:
    """All files under a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_member_joins_by_its_kit(members: Path) -> None:
    """Keys and kit are all that a member needs: credentials, plan and limits are there, and no other file."""
    joined = join_by(kits(members), "bob")
    assert read_credentials(members / "bob" / "tls").name == "bob"
    assert joined.plan.read_text() == (members / "planned.json").read_text()
    assert joined.limits.read_text() == limits_text()
    files = {"key.pem", "identity.key", "request.json", "ca.pem", "cert.pem", "roster.json", "register.json"}
    assert set(content_of(members / "bob")) == {f"tls/{name}" for name in files} | {
        "plan.json",
        "limits.toml",
        "addresses.json",
    }


def test_same_kit_again_changes_nothing(members: Path) -> None:
    """Joining twice is joining once."""
    join_by(kits(members), "bob")
    before = content_of(members / "bob")
    assert join_by(members, "bob").changes == ()
    assert content_of(members / "bob") == before


def test_kit_holds_no_secret(members: Path) -> None:
    """No private key of anybody is in a kit, as text or as bytes."""
    text = (kits(members) / "bob.kit").read_text()
    assert "PRIVATE" not in text
    for name in (SERVER, "alice", "bob"):
        identity = (members / name / "tls" / "identity.key").read_text().strip()
        pem = (members / name / "tls" / "key.pem").read_text().splitlines()[1:-1]
        assert identity not in text
        assert base64.b64encode(bytes.fromhex(identity)).decode() not in text
        assert not any(line in text for line in pem)
    assert not any(line in text for line in (members / "ca" / "ca.key").read_text().splitlines()[1:-1])


@pytest.mark.parametrize("rotate", [False, True], ids=["renewed", "rotated"])
def test_next_keys_come_into_force(members: Path, rotate: bool) -> None:
    """The kit that certifies the next keys moves them into place; the others are told, and go on with their own."""
    for name in ("alice", "bob"):
        join_by(kits(members), name)
    old = read_credentials(members / "bob" / "tls")
    issue(members / "ca", [change_keys(members / "bob" / "tls", rotate=rotate)])
    kits(members)
    assert join_by(members, "bob").changes == join_by(members, "alice").changes
    new = read_credentials(members / "bob" / "tls")
    assert (new.identity.public != old.identity.public, new.key_pem != old.key_pem) == (rotate, True)
    assert not (members / "bob" / "tls" / "next").exists()
    (change,) = join_by_again(members, "alice", entries=3)
    assert change.startswith("bob has a new identity" if rotate else "bob has a new TLS key, signed by its identity")


def join_by_again(members: Path, name: str, entries: int) -> tuple[str, ...]:
    """What a member that knew only the first entries would be told."""
    path = members / name / "tls" / "register.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "entries": content["entries"][:entries]}))
    changes: tuple[str, ...] = join_by(members, name).changes
    return changes


def test_crash_while_joining_is_mended_by_the_same_kit(members: Path) -> None:
    """Whichever files a crash has left in next/, joining again brings all of them into force."""
    join_by(kits(members), "bob")
    issue(members / "ca", [change_keys(members / "bob" / "tls", rotate=True)])
    kits(members)
    for moved in (("key.pem",), ("key.pem", "identity.key"), ("key.pem", "identity.key", "request.json")):
        home = members / "-".join(moved)
        shutil.copytree(members / "bob", home)
        for file in moved:
            (home / "tls" / "next" / file).replace(home / "tls" / file)
        join(read_kit(members / "bob.kit"), home)
        assert read_credentials(home / "tls").name == "bob"
        assert not (home / "tls" / "next").exists()


def test_change_that_waits_is_left_alone(members: Path) -> None:
    """A kit for the keys of now leaves next keys where they are: they are still to be certified."""
    kits(members)
    change_keys(members / "bob" / "tls", rotate=True)
    join_by(members, "bob")
    assert (members / "bob" / "tls" / "next" / "identity.key").exists()


def test_plan_of_before_is_kept(members: Path) -> None:
    """A newer kit's plan takes the place of the older one, which stays under its SHA-256."""
    join_by(kits(members), "alice")
    old = (members / "alice" / "plan.json").read_bytes()
    remove(members / "ca", "bob", "left")
    assert join_by(kits(members), "alice").changes == ("bob was removed: left",)
    (kept,) = (members / "alice").glob("plan-*.json")
    assert kept.read_bytes() == old


def refuse(members: Path, name: str, home: str, words: str) -> None:
    """A kit is refused with these words, and the folder stays as it is."""
    before = content_of(members / home)
    with pytest.raises(BadInput, match=words) as refusal:
        join(read_kit(members / f"{name}.kit"), members / home)
    assert "\n" not in str(refusal.value)
    assert content_of(members / home) == before


def test_kit_of_another_member_is_refused(members: Path) -> None:
    """Alice's kit does not fit bob's keys."""
    refuse(kits(members), "alice", "bob", "for other keys of alice")


def test_removed_member_cannot_join(members: Path) -> None:
    """No kit is made for it, that of another does not fit it, and a plan of the newer roster is refused by its own."""
    join_by(kits(members), "bob")
    remove(members / "ca", "bob")
    (members / "bob.kit").unlink()
    kits(members)
    assert not (members / "bob.kit").exists()
    refuse(members, "alice", "bob", "for other keys of alice")
    content = json.loads((members / "alice.kit").read_text())
    content["member"] = "bob"
    content.pop("signature")
    signature = read_authority(members / "ca").sign("start kit", canonical(content))
    (members / "bob.kit").write_text(json.dumps({**content, "signature": signature.hex()}))
    refuse(members, "bob", "bob", "bob is not a member of the roster")


def canonical(content: dict[str, Any]) -> bytes:
    """What the authority signs of a kit's content."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def test_older_kit_is_refused(members: Path) -> None:
    """A kit from before a rotation or a removal does not bring a member back to that roster."""
    shutil.copy(kits(members) / "alice.kit", members / "old.kit")
    remove(members / "ca", "bob")
    join_by(kits(members), "alice")
    refuse(members, "old", "alice", "does not begin with")


def test_kit_of_another_authority_is_refused(members: Path) -> None:
    """Who has joined takes no kit of another authority, though that one has certified the same request."""
    join_by(kits(members), "alice")
    enrol(members / "other", "carol")
    issue(members / "other" / "ca", [members / "alice" / "tls" / "request.json"])
    text = make_kits(members / "other" / "ca", None, None, None, {})["alice"]
    (members / "other.kit").write_text(text)
    refuse(members, "other", "alice", "of another authority")


def test_kit_of_the_renewed_authority_is_taken(members: Path) -> None:
    """The authority's next certificate is of the same key: its kit replaces ca.pem, members' certificates stay."""
    join_by(kits(members), "alice")
    tls = members / "alice" / "tls"
    before = (tls / "ca.pem").read_bytes(), (tls / "cert.pem").read_bytes()
    expire_authority(members / "ca")
    with pytest.raises(BadInput, match="expired on"):
        kits(members)
    renew_authority(members / "ca")
    join_by(kits(members), "alice")
    after = (tls / "ca.pem").read_bytes(), (tls / "cert.pem").read_bytes()
    assert (after[0] != before[0], after[1]) == (True, before[1])
    assert read_credentials(tls).ends()[1].days > 3600


def expire_authority(folder: Path) -> None:
    """Put a certificate in the folder that ended yesterday, of the same key."""
    with (
        mock.patch.object(certificates, "CA_DAYS", -1),
        mock.patch.object(certificates, "_BACKDATE", timedelta(days=9)),
    ):
        renew_authority(folder)


def test_kit_with_an_expired_certificate_is_refused(members: Path) -> None:
    """Nobody joins by a certificate that has ended, and no kit is made with one."""
    kits(members)
    (members / "old").mkdir()
    shutil.copy(members / "bob" / "tls" / "key.pem", members / "old" / "key.pem")
    certify(members, members / "old", "bob", days=-1)
    shutil.copy(members / "old" / "cert.pem", members / "ca" / "issued" / "bob" / "cert.pem")
    with pytest.raises(BadInput, match="certificate of bob expired on"):
        make_kits(members / "ca", None, None, None, {})


def signed_again(members: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Bob's kit, changed by the authority itself."""
    path = members / "bob.kit"
    content = json.loads(path.read_text())
    content.pop("signature")
    change(content)
    signature = read_authority(members / "ca").sign("start kit", canonical(content))
    path.write_text(json.dumps({**content, "signature": signature.hex()}))


SIGNED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a name that leads elsewhere": (lambda kit: kit.update(member="../alice"), "cannot name a member"),
    "alice's name": (lambda kit: kit.update(member="alice"), "not for the key that the roster has for alice"),
    "an address of a stranger": (lambda kit: kit["addresses"].update(mallory="x:1"), "no server or aggregator"),
    "an address that is a command": (lambda kit: kit["addresses"].update(server="$(id):1"), "is no address"),
    "a port beyond all": (lambda kit: kit["addresses"].update(server="host:70000"), "is no address"),
    "limits of other words": (lambda kit: kit.update(limits="[accept]\nmax_epsilom = 1"), "max_epsilon"),
    "limits that are none": (lambda kit: kit.update(limits="x" * 10), "not TOML"),
    "no plan": (lambda kit: kit.update(plan="{}"), "no start kit"),
    "no certificate": (lambda kit: kit.update(cert=""), "no X.509"),
    "no register": (lambda kit: kit.update(register="{}"), "no start kit"),
    "a number for a text": (lambda kit: kit.update(cert=7), "another type"),
    "a list of addresses": (lambda kit: kit.update(addresses=[]), "another type"),
    "a version to come": (lambda kit: kit.update(version=2), "not of version 1"),
    "a file more": (lambda kit: kit.update(**{"../.bashrc": "x"}), "missing or unknown"),
    "a field less": (lambda kit: kit.pop("limits"), "missing or unknown"),
}


@pytest.mark.parametrize(("change", "words"), SIGNED.values(), ids=SIGNED.keys())
def test_kit_that_contradicts_itself_is_refused(
    members: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    """Even what the authority signs is taken only where every part fits the others."""
    signed_again(kits(members), change)
    refuse(members, "bob", "bob", words)


@pytest.mark.parametrize("field", ["member", "ca", "cert", "register", "plan", "limits", "addresses", "signature"])
def test_tampered_kit_is_refused(members: Path, field: str) -> None:
    """A change of any field after the authority has signed is noticed."""
    content = json.loads((kits(members) / "bob.kit").read_text())
    content[field] = {"server": "elsewhere:7443"} if field == "addresses" else flipped(content[field])
    (members / "bob.kit").write_text(json.dumps(content))
    refuse(members, "bob", "bob", r"bob\.kit")


def flipped(text: str) -> str:
    """One character of a text turned into another."""
    place = len(text) // 2
    return text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :]


def test_truncated_kit_is_refused(members: Path) -> None:
    """A kit that lacks its end, at any length, is no kit."""
    text = (kits(members) / "bob.kit").read_text()
    for length in range(0, len(text) - 2, 997):
        (members / "bob.kit").write_text(text[:length])
        refuse(members, "bob", "bob", "no start kit")


def test_kit_without_end_is_refused(members: Path) -> None:
    """More than a document's bytes are not read, nor a field that stands twice, nor what is nested without end."""
    text = (kits(members) / "bob.kit").read_text()
    twice = text.replace("{", '{"version": 1, ', 1)
    for content in (text + " " * DOCUMENT_BYTES, twice, "[" * 100_000, "", "\x00"):
        (members / "bob.kit").write_text(content)
        refuse(members, "bob", "bob", r"bob\.kit")
    (members / "bob.kit").unlink()
    refuse(members, "bob", "bob", "cannot read the kit")


def test_kit_for_keys_that_are_gone_is_refused(members: Path) -> None:
    """A folder without the keys, or with fresh ones of the same name, is told so."""
    kits(members)
    (members / "empty").mkdir()
    refuse(members, "bob", "empty", "for other keys of bob")
    create_request(members / "again" / "tls", "bob", "client")
    refuse(members, "bob", "again", "for other keys of bob")


def test_no_kits_for_a_plan_of_another_roster(members: Path) -> None:
    """The plan of a kit is one that its members can run."""
    kits(members)
    remove(members / "ca", "bob")
    with pytest.raises(BadInput, match="for another roster"):
        make_kits(members / "ca", None, members / "planned.json", None, {})
