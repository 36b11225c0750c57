"""Membership over time: keys change only under the signature of those before, and who was removed stays so."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from secagg.agreement.roster import Roster, read_roster
from secagg.crypto.signatures import SigningKey
from secagg.errors import BadInput
from secagg.randomness import OperatingSystem
from secagg.transport import read_credentials
from secagg.transport.certificates import new_key, signing_request
from secagg.transport.enrolment import (
    change_keys,
    create_authority,
    create_request,
    issue,
    read_authority,
    read_members,
    remove,
)
from secagg.transport.register import (
    Register,
    Removal,
    Request,
    make_request,
    parse_register,
    read_register,
    read_request_file,
)
from tests.transport.consortium import certify
from tests.worlds.rosters import SERVER, enrol


@pytest.fixture
def members(tmp_path: Path) -> Path:
    """An authority and the folders of a server, alice and bob."""
    enrol(tmp_path, "alice", "bob")
    return tmp_path


def take(folder: Path, name: str) -> None:
    """A member's own part once its next keys are certified: it moves them, and copies what was issued."""
    shutil.copytree(folder / name / "next", folder / name, dirs_exist_ok=True)
    shutil.rmtree(folder / name / "next")
    shutil.copytree(folder / "ca" / "issued" / name, folder / name, dirs_exist_ok=True)


def pinned(roster: Roster, name: str) -> tuple[bytes, bytes]:
    """A member's identity and the pin of its TLS key."""
    index = roster.index(name)
    return roster.identity(index), roster.tls_spki_sha256(index)


@pytest.mark.parametrize("rotate", [False, True], ids=["renewed", "rotated"])
def test_member_with_next_keys_goes_on(members: Path, rotate: bool) -> None:
    """A renewal changes the TLS key alone, a rotation the identity too; nobody else's entry changes, and both work."""
    before = read_roster(members / "alice" / "roster.json")
    request = change_keys(members / "bob", rotate=rotate)
    assert read_credentials(members / "bob").roster == before
    after = issue(members / "ca", [request])
    take(members, "bob")
    (old_identity, old_pin), (identity, pin) = pinned(before, "bob"), pinned(after, "bob")
    assert (pin != old_pin, identity != old_identity) == (True, rotate)
    assert pinned(after, "alice") == pinned(before, "alice")
    assert read_credentials(members / "bob").identity.public == identity
    again = issue(members / "ca", [change_keys(members / "bob", rotate=not rotate)])
    assert pinned(again, "bob")[1] not in (pin, old_pin)


def test_next_keys_are_for_their_owner_alone(members: Path) -> None:
    """The next keys lie in a private folder, and none is in the request."""
    request = change_keys(members / "bob", rotate=True)
    files = [request.parent / name for name in ("key.pem", "identity.key")]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert request.parent.stat().st_mode & 0o777 == 0o700
    assert files[1].read_text().strip() not in request.read_text()
    assert "PRIVATE" not in request.read_text()


def test_one_change_at_a_time(members: Path) -> None:
    """While a change waits for its certificate there is no second one, which would overwrite its keys."""
    change_keys(members / "bob", rotate=False)
    with pytest.raises(BadInput, match="under way"):
        change_keys(members / "bob", rotate=True)


def test_same_request_again_renews_the_certificate(members: Path) -> None:
    """The request in force gives a new certificate and changes neither register nor roster."""
    request = change_keys(members / "bob", rotate=True)
    roster = issue(members / "ca", [request])
    before = (members / "ca" / "issued" / "bob" / "cert.pem").read_bytes(), read_members(members / "ca").entries
    assert issue(members / "ca", [request]) == roster
    assert (members / "ca" / "issued" / "bob" / "cert.pem").read_bytes() != before[0]
    assert read_members(members / "ca").entries == before[1]


def test_old_rotation_does_not_count_again(members: Path) -> None:
    """A rotation that another one has followed is refused, and so is the first request: nobody gets old keys back."""
    first = Path(shutil.copy(members / "bob" / "request.json", members / "first.json"))
    old = Path(shutil.copy(change_keys(members / "bob", rotate=True), members / "old.json"))
    issue(members / "ca", [old])
    take(members, "bob")
    issue(members / "ca", [change_keys(members / "bob", rotate=True)])
    before = read_members(members / "ca").entries
    with pytest.raises(BadInput, match="does not follow the keys that it has now"):
        issue(members / "ca", [old])
    with pytest.raises(BadInput, match="already a member with other keys"):
        issue(members / "ca", [first])
    assert read_members(members / "ca").entries == before


def forged(members: Path, signer: str, follows: str = "bob") -> Request:
    """A change of bob's keys that somebody else has signed, or that follows somebody else's."""
    old = read_request_file(members / follows / "request.json")
    key = SigningKey.from_bytes(bytes.fromhex((members / signer / "identity.key").read_text()))
    fresh = SigningKey.generate(OperatingSystem())
    return make_request("bob", "client", fresh, signing_request(new_key(), "bob"), (old, key))


@pytest.mark.parametrize(("signer", "follows"), [("alice", "bob"), ("alice", "alice")])
def test_keys_change_under_no_other_signature(members: Path, signer: str, follows: str) -> None:
    """Another member cannot rotate bob's identity, whatever request its own follows."""
    path = members / "forged.json"
    path.write_text(json.dumps(forged(members, signer, follows).content()))
    before = (members / "ca" / "register.json").read_bytes()
    with pytest.raises(BadInput, match="does not follow"):
        issue(members / "ca", [path])
    assert (members / "ca" / "register.json").read_bytes() == before


def test_keys_that_were_used_do_not_come_back(members: Path) -> None:
    """Bob cannot rotate to alice's TLS key, nor anybody enrol under the identity of another."""
    old = read_request_file(members / "bob" / "request.json")
    key = SigningKey.from_bytes(bytes.fromhex((members / "bob" / "identity.key").read_text()))
    register = read_members(members / "ca")
    fresh = SigningKey.generate(OperatingSystem())
    stolen = read_request_file(members / "alice" / "request.json").certificate_request
    for request in (
        make_request("bob", "client", fresh, stolen, (old, key)),
        make_request("carol", "client", key, signing_request(new_key(), "carol")),
    ):
        with pytest.raises(BadInput, match="used before"):
            register.enter(request)


@pytest.mark.parametrize("rotate", [False, True], ids=["renewed", "rotated"])
def test_no_change_of_keys_keeps_a_tls_key(members: Path, rotate: bool) -> None:
    """Neither a renewal nor a rotation is for the TLS key in force, or for one that was in force before it."""
    register = read_members(members / "ca")
    key = SigningKey.from_bytes(bytes.fromhex((members / "bob" / "identity.key").read_text()))
    first = read_request_file(members / "bob" / "request.json")
    second = make_request("bob", "client", key, signing_request(new_key(), "bob"), (first, key))
    for old, following in ((first, second), (second, None)):
        identity = SigningKey.generate(OperatingSystem()) if rotate else key
        for tls in (first.certificate_request, old.certificate_request):
            with pytest.raises(BadInput, match="used before"):
                register.enter(make_request("bob", "client", identity, tls, (old, key)))
        if following is not None:
            assert register.enter(following)
    assert register.request_of("bob") == second


def test_role_stays(members: Path) -> None:
    """A member's own signature does not make an aggregator of it."""
    old = read_request_file(members / "bob" / "request.json")
    key = SigningKey.from_bytes(bytes.fromhex((members / "bob" / "identity.key").read_text()))
    fresh = make_request("bob", "aggregator", key, signing_request(new_key(), "bob"), (old, key))
    with pytest.raises(BadInput, match="does not follow"):
        read_members(members / "ca").enter(fresh)


def test_removed_member_is_not_certified_again(members: Path) -> None:
    """Not by its request, not by a rotation, not by its keys under another name, and not along with the others."""
    requests = [members / name / "request.json" for name in (SERVER, "alice", "bob")]
    rotation = Path(shutil.copy(change_keys(members / "bob", rotate=True), members / "rotation.json"))
    roster = remove(members / "ca", "bob", "left the study")
    assert [member.name for member in roster.members] == [SERVER, "alice"]
    assert not (members / "ca" / "issued" / "bob").exists()
    fresh = create_request(members / "again", "bob", "client")
    for paths in (requests, [rotation], [fresh]):
        with pytest.raises(BadInput, match=r"bob was removed \(left the study\), and is not certified again"):
            issue(members / "ca", paths)
    key = SigningKey.from_bytes(bytes.fromhex((members / "bob" / "identity.key").read_text()))
    renamed = make_request("bobby", "client", key, signing_request(new_key(), "bobby"))
    (members / "renamed.json").write_text(json.dumps(renamed.content()))
    with pytest.raises(BadInput, match="used before"):
        issue(members / "ca", [members / "renamed.json"])
    assert issue(members / "ca", requests[:2]) == roster


def test_removal_is_refused_where_it_cannot_be(members: Path) -> None:
    """Who is no member, and who is needed for a roster, are not removed; nothing is written then."""
    before = (members / "ca" / "register.json").read_bytes()
    for name, words in (("carol", "not a member"), (SERVER, "exactly one server"), ("Bob", "cannot name")):
        with pytest.raises(BadInput, match=words):
            remove(members / "ca", name)
    with pytest.raises(BadInput, match="can be shown"):
        remove(members / "ca", "bob", "\x1b[8m")
    assert (members / "ca" / "register.json").read_bytes() == before


def test_roster_of_before_is_void(members: Path) -> None:
    """A folder whose register has gone on does not take the roster of before, and says who was removed since."""
    old = (members / "alice" / "roster.json").read_bytes()
    remove(members / "ca", "bob")
    shutil.copytree(members / "ca" / "issued" / "alice", members / "alice", dirs_exist_ok=True)
    assert len(read_credentials(members / "alice").roster.members) == 2
    (members / "alice" / "roster.json").write_bytes(old)
    with pytest.raises(BadInput, match="lists bob, who was removed"):
        read_credentials(members / "alice")


def test_register_is_read_as_it_was_written(members: Path) -> None:
    """Enrolments, a rotation, a renewal and a removal come back, and give the same roster."""
    issue(members / "ca", [change_keys(members / "bob", rotate=True), change_keys(members / "alice", rotate=False)])
    roster = remove(members / "ca", "bob", "left")
    register = read_register(members / "ca" / "register.json")
    assert register.roster() == roster
    assert len(register.entries) == 6
    assert register.to_json() == (members / "ca" / "register.json").read_text()
    register.require_extends(Register("test", register.entries[:4]))


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "an entry left out that another follows": lambda content: content["entries"].pop(2),
    "two entries turned round": lambda content: content["entries"].reverse(),
    "an entry twice": lambda content: content["entries"].append(content["entries"][0]),
    "another identity": lambda content: content["entries"][3].update(identity="11" * 32),
    "no signature of the one before": lambda content: content["entries"][3].update(previous_signature="22" * 64),
    "no follower": lambda content: content["entries"][3].update(follows="", previous_signature=""),
    "a number for a name": lambda content: content["entries"][0].update(name=7),
    "a removal of nobody": lambda content: content["entries"].append({"removed": "carol", "reason": ""}),
    "a removal without a reason": lambda content: content["entries"].append({"removed": "bob"}),
    "another version": lambda content: content.update(version=2),
    "a version that is true": lambda content: content.update(version=True),
    "another field": lambda content: content.update(note="x"),
    "no list": lambda content: content.update(entries={}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_tampered_register_is_refused(members: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """A register changed in any way that its signatures can tell is refused with its file."""
    issue(members / "ca", [change_keys(members / "bob", rotate=True)])
    path = members / "ca" / "register.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(BadInput, match=r"register\.json"):
        read_register(path)


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1, "version": 1, "consortium": "x", "entries": []}', "[" * 99])
def test_text_that_is_no_register_is_refused(text: str) -> None:
    """What is no JSON, of another shape, or has a field twice is no register."""
    with pytest.raises(ValueError, match=r".+"):
        parse_register(text)


def test_register_that_goes_back_is_noticed(members: Path) -> None:
    """Who holds a register takes none that is shorter, of another consortium, or differs in what is known."""
    short = read_members(members / "ca")
    issue(members / "ca", [change_keys(members / "bob", rotate=True)])
    longer = read_members(members / "ca")
    longer.require_extends(short)
    with pytest.raises(BadInput, match="does not begin with"):
        short.require_extends(longer)
    without = Register("test", [*short.entries, Removal("bob", "")])
    with pytest.raises(BadInput, match="does not begin with"):
        without.require_extends(longer)
    with pytest.raises(BadInput, match="does not begin with"):
        Register("other", short.entries).require_extends(short)


def test_authority_under_a_passphrase(tmp_path: Path) -> None:
    """Its key is encrypted PKCS #8; it opens with the passphrase, and with no other or none, which is not repeated."""
    right, wrong = b"five words drawn at random", b"five words of somebody else"
    create_authority(tmp_path / "ca", "locked", right)
    assert (tmp_path / "ca" / "ca.key").read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    requests = [create_request(tmp_path / name, name, role) for name, role in ((SERVER, "server"), ("a", "client"))]
    for passphrase, words in ((wrong, "does not open with this passphrase"), (None, "is under a passphrase")):
        with pytest.raises(BadInput, match=words) as refusal:
            issue(tmp_path / "ca", requests, passphrase)
        assert "somebody" not in str(refusal.value)
    assert not (tmp_path / "ca" / "register.json").exists()
    assert len(issue(tmp_path / "ca", requests, right).members) == 2
    assert "PRIVATE" not in repr(read_authority(tmp_path / "ca", right))


def test_short_passphrase_makes_no_authority(tmp_path: Path) -> None:
    """Fourteen characters are too few, and nothing is made."""
    with pytest.raises(BadInput, match="15 characters"):
        create_authority(tmp_path / "ca", "locked", b"x" * 14)
    assert not (tmp_path / "ca").exists()


@pytest.mark.parametrize(("days", "near", "words"), [(3, True, "in 2 days"), (31, False, "in 30 days"), (-1, True, "")])
def test_end_of_a_certificate(members: Path, days: int, near: bool, words: str) -> None:
    """An end within 30 days is near, and said with its date; one that is past has no days left."""
    home = members / "bob"
    certify(members, home, "bob", days)
    if days < 0:
        with pytest.raises(BadInput, match="expired on"):
            read_credentials(home)
        return
    own, authority = read_credentials(home).ends()
    assert (own.is_near, authority.is_near) == (near, False)
    assert words in own.warning()
