"""A member that refuses, or is interrupted, at the command line: the server learns of it, and goes on."""

import json
import os
import signal
from pathlib import Path

import pytest

from secagg.protection.messages import Decline
from secagg.transcript import payload_of, peek, read_transcript
from tests.cli.command import Command, nothing_sent
from tests.worlds.processes import Processes, processes
from tests.worlds.rosters import SERVER

NAMES = ("a", "b", "c", "d", "e", "f")


def declined(federation: Processes) -> dict[int, str]:
    """The reasons of those whose decline the server has recorded, by roster index."""
    bodies = [peek(each.content) for each in read_transcript(federation.transcript(SERVER)) if each.kind == "received"]
    return {body.sender: payload_of(body, Decline).reason for body in bodies if body.step == "Decline"}


def test_refusal_and_interrupt_reach_the_server(tmp_path: Path, secagg: Command) -> None:
    """Four of six finish at once after one member's policy refused the plan and another was interrupted.

    SIGTERM before that ended it with 75, declined nothing, and it went on.

    The coordinator cannot go on before; the result names both; nothing of theirs was sent. A dry run, a wrong path and
    a second start beside a running client tell nobody.
    """
    waits = {"dropouts": 2, "colluders": 1, "join_seconds": 3600, "step_seconds": 3600}

    def said_by(name: str) -> str:
        return (tmp_path / name / "said.txt").read_text()

    with processes(tmp_path, 4, names=NAMES, **waits) as federation:
        federation.start(SERVER)
        typo = list(federation.command("a", "--quiet"))
        typo[typo.index("--data") + 1] = tmp_path / "none.npz"
        assert secagg(*typo).code == 2
        policy = tmp_path / "a" / "policy.toml"
        policy.write_text(policy.read_text().replace('"masked"', '"shared"'))
        assert secagg(*federation.command("a", "--dry-run", "--quiet")).code == 2
        assert declined(federation) == {}
        federation.start("b")
        federation.until_has(SERVER, "received", "KeyAdvertisement")
        own = tmp_path / "b" / "policy.toml"
        accepts = own.read_text()
        own.write_text(accepts.replace('"masked"', '"shared"'))
        assert secagg(*federation.command("b")).code == 2
        own.write_text(accepts)
        assert declined(federation) == {}
        refused = secagg("control", "go-on", "--state", tmp_path / SERVER / "state")
        assert refused.code == 2
        assert "too few have answered step 1 of 5 for a sum: b" in refused.complaint
        assert secagg("control", "extend", "60", "--state", tmp_path / SERVER / "state").code == 0
        said = secagg(*federation.command("a", "--decline-reason", "not like this"))
        assert said.code == 2
        assert said.err.splitlines()[0] == f"declined: {SERVER} will not wait for this client"
        assert nothing_sent(tmp_path / "a" / "state")
        os.kill(federation.running["b"].process.pid or 0, signal.SIGTERM)
        assert federation.running.pop("b").wait(60) == 75
        assert declined(federation) == {1: "not like this"}
        federation.start("b")
        federation.until(lambda: said_by("b").count("waiting for the server's") == 2, "b waits again")
        os.kill(federation.running["b"].process.pid or 0, signal.SIGINT)
        assert federation.running.pop("b").wait(60) == 130
        assert declined(federation) == {1: "not like this", 2: ""}
        for name in ("c", "d", "e", "f"):
            federation.start(name)
        federation.finish()
        result = json.loads((federation.session(SERVER) / "result.json").read_text())
    assert (result["members"], result["missing"], result["declined"]) == (["c", "d", "e", "f"], ["a", "b"], ["a", "b"])
    server_said = (tmp_path / SERVER / "said.txt").read_text()
    assert "a declined: not like this; waiting for c, d, e, f" in server_said
    assert "missing" in server_said


@pytest.mark.parametrize("reason", ["x" * 201, "two\nlines"])
def test_reason_that_cannot_be_sent_is_refused(secagg: Command, federation: Path, reason: str) -> None:
    """A reason that is too long or cannot be shown is refused before anything is read or sent."""
    arguments = ["--plan", "p", "--data", "d", "--policy", "q", "--state", federation / "s", "--tls", "t"]
    said = secagg("client", *arguments, "--server", "127.0.0.1:1", "--decline-reason", reason)
    assert said.code == 2
    assert "--decline-reason: " in said.complaint
    assert not (federation / "s").exists()
