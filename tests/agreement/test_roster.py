"""The roster: who may take part, read strictly, in one order."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from secagg.agreement.plan import PLAN_VERSION, Plan
from secagg.agreement.roster import NO_TLS_KEY, Member, Roster, check_name, read_roster, write_roster
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.wire import decode, to_json
from tests.agreement.federation_files import member, small_roster
from tests.vectors.protobuf import canonical

ROSTER = small_roster()


def test_file_gives_the_roster_back(tmp_path: Path) -> None:
    """The readable form is read back to the same roster and digest."""
    write_roster(ROSTER, tmp_path / "roster.json")
    again = read_roster(tmp_path / "roster.json")
    assert again == ROSTER
    assert again.digest == ROSTER.digest


def test_order_of_members_does_not_matter() -> None:
    """The same members give the same roster in whatever order they are listed: server first, clients by name."""
    assert Roster.of("small", reversed(ROSTER.members)) == ROSTER
    assert [each.name for each in ROSTER.members] == ["server", "client-1", "client-2", "client-3", "client-4"]
    assert ROSTER.clients == (1, 2, 3, 4)


def test_members_are_found_by_name_and_index() -> None:
    """Index, name and identity belong together; a stranger is named in the refusal."""
    assert [ROSTER.index(ROSTER.name(index)) for index in range(5)] == [0, 1, 2, 3, 4]
    assert ROSTER.identity(2) == ROSTER.members[2].identity
    with pytest.raises(BadInput, match="mallory"):
        ROSTER.index("mallory")


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a b", "ä", "a/b", "..", "a" * 64, "a\n"])
def test_name_that_is_no_dns_label_is_refused(name: str) -> None:
    """Names stand in certificates and paths: anything but a DNS label is refused."""
    with pytest.raises(BadInput, match="cannot name a member"):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "0", "a-b", "a" * 63, "clinic-1"])
def test_dns_label_is_accepted(name: str) -> None:
    """Every DNS label in lower case can name a member."""
    check_name(name)


@pytest.mark.parametrize(
    "members",
    [
        [],
        [member("s", "server")],
        [member("a"), member("b")],
        [member("s", "server"), member("t", "server"), member("a")],
        [member("s", "server"), member("a"), member("a")],
        [member("a", "server"), member("a")],
    ],
    ids=["empty", "no client", "no server", "two servers", "name twice", "server's name"],
)
def test_members_that_are_no_roster_are_refused(members: list[Member]) -> None:
    """A roster has exactly one server, at least one client, and no name twice."""
    with pytest.raises(BadInput):
        Roster.of("x", members)


def test_shared_identity_is_refused() -> None:
    """Two members never share an identity key."""
    first = member("a")
    with pytest.raises(BadInput, match="share an identity"):
        Roster.of("x", [member("s", "server"), first, replace(first, name="b")])


def test_shared_tls_key_is_refused() -> None:
    """Two members never share a TLS key: each would pass for the other. Parties without a network have none."""
    first, second = (replace(member(name), tls_spki_sha256=bytes([7]) * 32) for name in "ab")
    with pytest.raises(BadInput, match="share a TLS key"):
        Roster.of("x", [member("s", "server"), first, second])
    assert {each.tls_spki_sha256 for each in ROSTER.members} == {NO_TLS_KEY}


def test_tls_key_is_in_the_digest() -> None:
    """A plan is for a roster with these TLS keys and no others."""
    changed = replace(ROSTER.members[1], tls_spki_sha256=bytes([7]) * 32)
    assert Roster.of(ROSTER.consortium, [changed, *ROSTER.members[2:], ROSTER.members[0]]).digest != ROSTER.digest


def test_older_roster_is_refused_by_its_version(tmp_path: Path) -> None:
    """A roster that an older release wrote, without TLS keys, is refused with its version, as a file and as bytes."""
    content = json.loads(to_json(ROSTER))
    older = {**content, "version": 1, "members": [_without_pin(each) for each in content["members"]]}
    (tmp_path / "roster.json").write_text(json.dumps(older))
    with pytest.raises(BadInput, match="of version 1, this program reads version 2"):
        read_roster(tmp_path / "roster.json")
    data = canonical("Roster", {**older, "members": [{**each, "tls_spki_sha256": ""} for each in older["members"]]})
    with pytest.raises(MalformedMessage, match="of version 1, this program reads version 2"):
        decode(Roster, data)


def _without_pin(each: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in each.items() if name != "tls_spki_sha256"}


def test_unknown_role_is_refused() -> None:
    """There are clients and servers only."""
    with pytest.raises(BadInput, match="role"):
        member("a", "auditor")


def shuffled(content: dict[str, Any]) -> dict[str, Any]:
    """The clients in another order."""
    return {**content, "members": [content["members"][0], *content["members"][:0:-1]]}


@pytest.mark.parametrize(
    "change",
    [
        shuffled,
        lambda content: {**content, "members": content["members"][1:]},
        lambda content: {**content, "version": 3},
        lambda content: {**content, "extra": 1},
        lambda content: {key: value for key, value in content.items() if key != "consortium"},
        lambda content: {**content, "members": "all"},
        lambda content: {**content, "members": [{**content["members"][0], "identity": "00"}, *content["members"][1:]]},
        lambda content: {**content, "members": [{**content["members"][0], "age": 3}, *content["members"][1:]]},
        lambda content: {**content, "members": [_without_pin(content["members"][0]), *content["members"][1:]]},
        lambda content: [content],
    ],
)
def test_file_that_is_no_roster_is_refused(tmp_path: Path, change: Any) -> None:
    """A roster's file is read strictly: order, fields, lengths and types."""
    path = tmp_path / "roster.json"
    write_roster(ROSTER, path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(BadInput):
        read_roster(path)


def test_roster_of_another_version_is_refused_by_its_version(tmp_path: Path) -> None:
    """One line names both versions and the way to a new roster."""
    path = tmp_path / "roster.json"
    path.write_text(json.dumps({"version": 7, "unknown": 1}))
    with pytest.raises(BadInput, match=r"roster\.json is a roster of version 7, this program reads version \d+; "):
        read_roster(path)


def test_plan_is_no_roster_of_another_version(tmp_path: Path) -> None:
    """A plan given as a roster is called a file of another kind; a newer program would not help."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**dict.fromkeys((field.name for field in fields(Plan)), 0), "version": PLAN_VERSION}))
    with pytest.raises(BadInput, match=r"is no roster: .* a file of another kind: Plan$"):
        read_roster(path)


@pytest.mark.parametrize("odd", ["\x1b[8m", "c1\x9b", "\u202eevil", "hid\u200bden", "two\nlines"], ids=ascii)
def test_consortium_that_cannot_be_shown_is_refused(tmp_path: Path, odd: str) -> None:
    """The name of a consortium is read by people: one that hides or forges is in no roster, read or signed for."""
    path = tmp_path / "roster.json"
    write_roster(ROSTER, path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "consortium": odd}))
    with pytest.raises(BadInput, match=r"consortium: it holds the character U.*, which cannot be shown"):
        read_roster(path)
    with pytest.raises(MalformedMessage):
        _ = replace(ROSTER, consortium=odd).digest


def test_missing_and_binary_files_are_named(tmp_path: Path) -> None:
    """A file that is missing, a folder, or not text is named."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for wrong in (tmp_path / "none", tmp_path, tmp_path / "binary"):
        with pytest.raises(BadInput, match=str(wrong)):
            read_roster(wrong)


def test_culprit_is_named_as_the_roster_calls_it() -> None:
    """A violation tells the place in the roster, and once named the name there; a stranger stays a number."""
    named = [str(ROSTER.name_culprit(ProtocolViolation(index, "lies"))) for index in (0, 2, 99)]
    assert named == ["server: lies", "client-2: lies", "party 99: lies"]
    assert str(ROSTER.name_culprit(BadInput("full"))) == "full"
