"""Members countersign a plan: only their own signature of this very plan counts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from secagg.errors import BadInput
from secagg.plan_facts.countersigning import approve, gather_approvals
from tests.worlds.rosters import identity
from tests.worlds.setups import make_setup

SETUP = make_setup(clients=3)
PLAN, ROSTER = SETUP.plan, SETUP.roster


def write(folder: Path, name: str, text: str) -> None:
    """An approval as it was received."""
    (folder / f"{name}.approval").write_text(text)


def test_who_has_countersigned_is_known(tmp_path: Path) -> None:
    """Members that signed are given, the others missing, the server not asked."""
    for member in (1, 3):
        write(tmp_path, ROSTER.name(member), approve(PLAN, ROSTER.name(member), identity(member)))
    found = gather_approvals(PLAN, ROSTER, tmp_path)
    assert (found.given, found.missing, found.refused) == (("client-1", "client-3"), ("client-2",), {})
    assert found.lines() == ["the plan is approved by client-1, client-3; not by client-2"]
    write(tmp_path, "second", approve(PLAN, "client-2", identity(2)))
    assert gather_approvals(PLAN, ROSTER, tmp_path).lines()[0].endswith("client-3: by all")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (approve(PLAN, "client-2", identity(1)), "not signed by client-2"),
        (approve(replace(PLAN, purpose="another"), "client-2", identity(2)), "of another plan"),
        (approve(PLAN, "mallory", identity(2)), "mallory is not a member"),
        (approve(PLAN, "client-2", identity(2))[:-20], "no approval"),
        (approve(PLAN, "client-2", identity(2)).replace('"name"', '"plan"'), "no approval"),
        (json.dumps({**json.loads(approve(PLAN, "client-2", identity(2))), "signature": "zz"}), "no approval"),
        (json.dumps({**json.loads(approve(PLAN, "client-2", identity(2))), "version": True}), "not of version"),
        (json.dumps({**json.loads(approve(PLAN, "client-2", identity(2))), "plan": 5}), "no approval"),
        ("[" * 3000, "no approval"),
        ("", "no approval"),
    ],
)
def test_what_is_no_approval_does_not_count(tmp_path: Path, text: str, words: str) -> None:
    """Another's signature, another plan, a stranger, damage: the file is named with why, and the others count."""
    write(tmp_path, "bad", text)
    write(tmp_path, "good", approve(PLAN, "client-1", identity(1)))
    found = gather_approvals(PLAN, ROSTER, tmp_path)
    assert found.given == ("client-1",)
    assert words in found.refused["bad.approval"]


def test_long_file_and_missing_folder(tmp_path: Path) -> None:
    """A file without end is not read; a folder that is not there is said."""
    write(tmp_path, "long", " " * 5000)
    assert "holds more than" in gather_approvals(PLAN, ROSTER, tmp_path).refused["long.approval"]
    with pytest.raises(BadInput, match="no folder"):
        gather_approvals(PLAN, ROSTER, tmp_path / "none")
