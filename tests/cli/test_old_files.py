"""A file that does not name its format, as none did before, is refused by the command that reads it: exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from secagg.agreement.plan import read_plan
from secagg.heads import LinearHead, save_safetensors
from secagg.session.attachments import folder_name
from tests.cli.command import NEW_PLAN, SERVER, Command


def without_format(path: Path) -> None:
    """Make a JSON file one of before: all its fields but the name of its format."""
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content.pop("format").startswith("secagg-")
    path.write_text(json.dumps(content), encoding="utf-8")


def test_old_request_is_not_certified(secagg: Command, federation: Path) -> None:
    """`pki issue` asks for a fresh one."""
    path = federation / "alice" / "request.json"
    without_format(path)
    said = secagg("pki", "issue", path, "--ca", federation / "ca")
    assert said.code == 2
    assert (
        "no enrolment request (it does not name the format secagg-request); go on with the secagg that wrote it"
        in said.complaint
    )


def test_old_register_is_not_gone_on_from(secagg: Command, federation: Path) -> None:
    """Neither by the authority nor beside a roster that a plan is made of."""
    request = federation / "alice" / "request.json"
    without_format(federation / "ca" / "register.json")
    without_format(federation / SERVER / "register.json")
    chosen = ("--shape", "3", "--classes", "no,yes", "--radius", "1", "--out", federation / "new.json")
    for words in (
        ("pki", "issue", request, "--ca", federation / "ca"),
        (*NEW_PLAN, "--roster", federation / SERVER / "roster.json", *chosen),
    ):
        said = secagg(*words)
        assert said.code == 2
        assert (
            "register.json is no register (it does not name the format secagg-register); go on with the secagg"
            in said.complaint
        )


def test_old_authority_is_not_used(secagg: Command, federation: Path) -> None:
    """Where its folder, in which no register says it, does not say of which format the consortium's name is."""
    (federation / "ca" / "register.json").unlink()
    without_format(federation / "ca" / "consortium.json")
    said = secagg("pki", "issue", federation / "alice" / "request.json", "--ca", federation / "ca")
    assert said.code == 2
    assert "no usable authority (it does not name the format secagg-consortium); go on with" in said.complaint


def test_nobody_joins_by_an_old_kit(secagg: Command, federation: Path) -> None:
    """`join` refuses it, and changes nothing."""
    assert secagg("pki", "kit", "--ca", federation / "ca", "--out", federation / "kits").code == 0
    without_format(federation / "kits" / "alice.kit")
    home = federation / "home"
    said = secagg("join", federation / "kits" / "alice.kit", "--home", home)
    assert said.code == 2
    assert "alice.kit is no start kit (it does not name the format secagg-kit); go on with" in said.complaint
    assert not home.exists()


def test_old_approval_does_not_count(secagg: Command, federation: Path) -> None:
    """It is named, with what to do, and the others count."""
    plan, out = federation / "plan.json", federation / "approvals"
    for name in ("alice", "bob"):
        assert secagg("plan", "sign", "--plan", plan, "--tls", federation / name, "--out", out).code == 0
    without_format(out / "alice.approval")
    told = ("--plan", plan, "--roster", federation / "alice" / "roster.json", "--json", "-")
    said = secagg("plan", "approvals", out, *told)
    assert (said.code, said.json["approved_by"]) == (0, ["bob"])
    assert said.json["refused"]["alice.approval"] == (
        "it is no approval (it does not name the format secagg-approval); have it signed again with plan sign"
    )


def test_old_session_is_not_gone_on_with(secagg: Command, federation: Path) -> None:
    """A client whose remembered session is of another format says by what it goes on."""
    plan, home = federation / "plan.json", federation / "alice"
    folder = home / "state" / folder_name(read_plan(plan).digest)
    folder.mkdir(parents=True)
    (folder / "session.state").write_bytes((1).to_bytes(8, "big") + bytes(100))
    (folder / "session-1.key").write_bytes(bytes(32))
    words = ("--plan", plan, "--policy", home / "policy.toml", "--data", home / "records.npz", "--tls", home)
    said = secagg("client", *words, "--state", home / "state", "--server", "127.0.0.1:9", "--wait", "1", "--quiet")
    assert said.code == 2
    assert "is of another format, or damaged; go on with the secagg that began the plan" in said.complaint


@pytest.mark.parametrize("metadata", [{}, {"plan": "00" * 32, "method": "fedcgs"}])
def test_head_of_another_origin_predicts_nothing(
    secagg: Command, federation: Path, tmp_path: Path, metadata: dict[str, str]
) -> None:
    """A head says by its features' fields that it is of this program, and has no other name of a format."""
    head = LinearHead(np.zeros((2, 3), np.float32), np.zeros(2, np.float32))
    save_safetensors(head, tmp_path / "head.safetensors", metadata)
    said = secagg(
        "predict", "--head", tmp_path / "head.safetensors", "--data", federation / "alice" / "records.npz", "--quiet"
    )
    assert said.code == 2
    assert "does not say which features it takes; use one that secagg wrote" in said.complaint
