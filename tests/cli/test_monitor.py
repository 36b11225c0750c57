"""What an operator sees of a running party: metrics, health, JSON logs, hooks, and how it stops on SIGTERM."""

import asyncio
import json
import logging
import os
import signal
import socket
import stat
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from secagg.agreement.plan import read_plan
from secagg.cli import hook as hooks
from secagg.cli.console import Speaker
from secagg.cli.hook import Hook
from secagg.cli.metrics import MetricsAddress, metrics_served
from secagg.cli.monitor import Monitor, Position, run_until_stopped
from secagg.errors import BadInput
from secagg.transport import read_credentials
from tests.cli.command import Command
from tests.worlds.homes import CLIENTS, SERVER, found_homes, free_address, roles_of, words_of
from tests.worlds.processes import PATIENCE, Party

needs_prometheus = pytest.mark.skipif(
    find_spec("prometheus_client") is None, reason="the extra metrics is not installed"
)


class World:
    """The homes of a federation and its running parties."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, Party] = {}

    def start(self, name: str, *more: str) -> None:
        """Start a party by its folder, with further options."""
        words = [*words_of(self.folder, name, roles_of("masked")[name]), *more]
        self.running[name] = Party.start(words, self.folder / f"{name}.txt")

    def said(self, name: str) -> str:
        """What a party has said so far."""
        file = self.folder / f"{name}.txt"
        return file.read_text() if file.exists() else ""

    def stop(self, *names: str) -> None:
        """SIGTERM; each party then ends with 75."""
        for name in names:
            process = self.running[name].process
            assert process.pid is not None
            os.kill(process.pid, signal.SIGTERM)
            assert self.running[name].wait(PATIENCE) == 75

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Look until there is a true value; return it."""
        deadline = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < deadline, f"never: {what}\n" + "\n".join(map(self.said, self.running))
            time.sleep(0.02)
        return found


@pytest.fixture(scope="module")
def _founded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the homes that the tests copy are made."""
    return tmp_path_factory.mktemp("founded") / "homes"


@pytest.fixture
def world(secagg: Command, tmp_path: Path) -> Iterator[World]:
    """A server and three clients; nobody runs yet, all are gone at the end."""
    found_homes(secagg, tmp_path)
    found = World(tmp_path)
    yield found
    for party in found.running.values():
        party.kill()


def recorder(folder: Path, then: str = "") -> tuple[str, Path]:
    """A hook that appends each event to a file, and the file."""
    script, file = folder / "hook.sh", folder / "events"
    script.write_text(f"#!/bin/sh\ncat >> {file}\n{then}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return f"{script} 'an argument'", file


def events(file: Path) -> list[dict[str, Any]]:
    """The events that a hook has recorded."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def got(address: str, path: str) -> tuple[int, str]:
    """Status and content of a page."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def secrets_of(home: Path) -> set[str]:
    """A party's secrets as text: its identity key, and the lines of its TLS key."""
    lines = (home / "tls" / "key.pem").read_text().splitlines()[1:-1]
    return {(home / "tls" / "identity.key").read_text().strip(), *lines}


@needs_prometheus
def test_metrics_logs_and_hook_show_a_session(world: World) -> None:
    """Health and metrics show step, awaited, time and certificates, logs plan, round and step; no secret is in them."""
    command, file = recorder(world.folder)
    address = free_address()
    world.start(SERVER, "--metrics", address, "--log-format", "json", "--hook", command, "--debug")
    world.until(lambda: "metrics on" in world.said(SERVER), "the metrics are served")

    def health() -> dict[str, Any]:
        content: dict[str, Any] = json.loads(got(address, "/healthz")[1])
        return content

    world.until(lambda: health()["seconds_left"], "the step has a deadline")
    shown, metrics = health(), got(address, "/metrics")[1]
    assert (shown["ok"], shown["party"], shown["round"], shown["rounds"]) == (True, SERVER, 1, 1)
    assert shown["waiting_for"] == list(CLIENTS)
    assert 0 < shown["seconds_left"] <= 60
    assert shown["last_end"] is None
    assert set(shown["certificate_days"]) == {"cert.pem", "ca.pem"}
    for line in (
        'secagg_step{step="KeyAdvertisement"} 1.0',
        "secagg_awaited 3.0",
        "secagg_round 1.0",
        'secagg_certificate_days{file="cert.pem"} ',
    ):
        assert line in metrics
    assert f'plan="{shown["plan"]}"' in metrics
    assert got(address, "/")[0] == 404
    world.start("alice", "--log-format", "json", "--debug")
    world.until(lambda: "KeyAdvertisement from alice" in world.said(SERVER), "alice has joined")
    world.until(lambda: health()["awaited"] == 2, "two are waited for")
    world.stop(SERVER, "alice")
    (end,) = events(file)
    assert (end["event"], end["party"], end["plan"], end["awaited"]) == ("stopped", SERVER, shown["plan"], 2)
    assert json.loads((world.folder / SERVER / "state" / "last-end.json").read_text())["end"] == "stopped"
    everything = world.said(SERVER) + world.said("alice") + metrics + json.dumps(shown) + file.read_text()
    for name in (SERVER, *CLIENTS):
        assert not any(secret in everything for secret in secrets_of(world.folder / name))
    lines = [json.loads(line) for line in world.said(SERVER).splitlines() if line.startswith('{"time')]
    assert {"time", "level", "logger", "message", "party", "plan", "round", "step"} <= set(lines[-1])
    assert "stopped by SIGTERM" in lines[-1]["message"]
    assert lines[-1]["plan"] == shown["plan"]


def test_json_log_is_json_to_the_last_line(world: World) -> None:
    """An abort is a JSON line, too, and the hook and the next start learn of it."""
    command, file = recorder(world.folder)
    home = world.folder / "alice"
    world.start("alice", "--log-format", "json", "--wait", "0", "--hook", command)
    assert world.running["alice"].wait(PATIENCE) == 75
    lines = [json.loads(line) for line in world.said("alice").splitlines()]
    assert lines[-1]["level"] == "error"
    assert "run the same command again" in lines[-1]["message"]
    (end,) = events(file)
    assert (end["event"], end["text"]) == ("not-now", lines[-1]["message"])
    assert json.loads((home / "state" / "last-end.json").read_text())["end"] == "not-now"


async def test_end_of_a_finished_party_waits_for_nobody(secagg: Command, tmp_path: Path) -> None:
    """The event `done` of a server names its last round, and no step, as nobody is awaited."""
    found_homes(secagg, tmp_path)
    command, file = recorder(tmp_path)
    home = tmp_path / SERVER
    where = Position(3, 3, "Outcome", CLIENTS, time.time() + 60, 0, 0)

    async def look() -> Position:
        return where

    speaker = Speaker(quiet=True)
    plan, credentials = read_plan(tmp_path / "plan.json"), read_credentials(home / "tls")
    monitor = Monitor(speaker, credentials, plan, tmp_path, None, Hook(command))
    async with monitor.watch(look):
        while monitor.facts()["round"] is None:  # noqa: ASYNC110 (it looks by itself)
            await asyncio.sleep(0.01)
        assert monitor.facts()["awaited"] == len(CLIENTS)
    end = events(file)[-1]
    assert (end["event"], end["text"], end["round"], end["step"]) == ("done", "ended without an error", 3, "")
    assert (end["awaited"], end["seconds_left"]) == (0, None)


@pytest.mark.parametrize("name", [SERVER, "alice"])
def test_every_json_line_names_party_and_plan(world: World, name: str) -> None:
    """A log in JSON has the party and the plan from its first line on, at the server and at a client."""
    world.start(name, "--log-format", "json", *(["--wait", "0"] * (name == "alice")))
    if name == SERVER:
        world.until(lambda: "listening on" in world.said(SERVER), "the server listens")
        world.stop(SERVER)
    world.running[name].wait(PATIENCE)
    plan = read_plan(world.folder / "plan.json").digest.hex()
    lines = [json.loads(line) for line in world.said(name).splitlines()]
    assert len(lines) > 1
    assert {(each.get("party"), each.get("plan")) for each in lines} == {(name, plan)}


def test_json_line_of_a_refusal_names_what_can_be_read(world: World) -> None:
    """A client without a policy logs one line, with its party and plan; one without a plan logs its party alone."""
    (world.folder / "alice" / "policy.toml").unlink()
    found = []
    for more in ((), ("--plan", str(world.folder / "nowhere"))):
        world.start("alice", "--log-format", "json", *more)
        assert world.running["alice"].wait(PATIENCE) == 2
        found.append(json.loads(world.said("alice").splitlines()[-1]))
    assert [(each.get("party"), "plan" in each) for each in found] == [("alice", True), ("alice", False)]


@pytest.mark.long
def test_sigterm_stops_with_75_and_the_session_goes_on(world: World) -> None:
    """A server and a client stopped by SIGTERM in the middle end with 75, and end the session when started again."""
    world.start(SERVER)
    world.start("alice")
    world.until(lambda: "KeyAdvertisement from alice" in world.said(SERVER), "alice has joined")
    world.stop(SERVER, "alice")
    assert all("stopped by SIGTERM" in world.said(name).splitlines()[-1] for name in (SERVER, "alice"))
    for name in (SERVER, *CLIENTS):
        world.start(name)
    assert [party.wait(PATIENCE) for party in world.running.values()] == [0] * 4


def test_sigterm_after_the_session_is_the_callers() -> None:
    """The handler of before is in place again when a party has ended."""

    def note(*_: object) -> None: ...

    async def party() -> None: ...

    before = signal.signal(signal.SIGTERM, note)
    try:
        run_until_stopped(party())
        assert signal.getsignal(signal.SIGTERM) is note
    finally:
        signal.signal(signal.SIGTERM, before)


@needs_prometheus
def test_clients_that_hang_up_leave_no_traceback(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A request that is torn is logged at debug level, and nothing is on stderr."""
    caplog.set_level(logging.DEBUG, "secagg.metrics")
    address = MetricsAddress.read(free_address())
    with metrics_served(address, dict):
        with socket.create_connection((address.host, address.port)) as client:
            client.send(b"G")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close by a reset
        deadline = time.monotonic() + PATIENCE
        while "a request for metrics failed" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "a request for metrics failed" in caplog.text
    assert capfd.readouterr().err == ""


def test_port_of_thousands_of_digits_is_refused() -> None:
    """A number that Python does not parse is bad input, too."""
    with pytest.raises(BadInput, match="--metrics cannot be"):
        MetricsAddress.read("9" * 5000)


def test_hook_cannot_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that hangs is killed with its children after its limit; one that fails is logged; neither raises."""
    command, file = recorder(tmp_path, "sleep 600")
    monkeypatch.setattr(hooks, "LIMIT_SECONDS", 0.3)
    hanging = Hook(command)
    hanging.run({"event": "waiting"})
    hanging.finish()
    assert [each["event"] for each in events(file)] == ["waiting"]
    assert hanging._running == {}
    failing = Hook("false")
    failing.run({"event": "waiting"})
    failing.finish()
    assert failing._running == {}


def test_hook_runs_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Events that come while MOST_AT_A_TIME runs go on are dropped, and the log says so."""
    monkeypatch.setattr(hooks, "FAREWELL_SECONDS", 0.1)
    command, _ = recorder(tmp_path, "sleep 600")
    hook = Hook(command)
    for number in range(hooks.MOST_AT_A_TIME + 1):
        hook.run({"event": str(number)})
    hook.finish()
    assert f"the event {hooks.MOST_AT_A_TIME} is dropped" in caplog.text
    assert len(hook._running) == hooks.MOST_AT_A_TIME
    for child in hook._running:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def test_hook_runs_without_a_shell(tmp_path: Path) -> None:
    """What a shell would expand or run reaches the command as it stands."""
    out = tmp_path / "out"
    hook = Hook(f"cp /dev/stdin '{out}; touch {tmp_path}/never'")
    hook.run({"event": "x"})
    hook.finish()
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("command", ["", "no-such-command-anywhere --x", "'open", "true \0"])
def test_hook_that_cannot_run_is_refused(command: str) -> None:
    """A command that does not parse, or is not there, is refused before a session."""
    with pytest.raises(BadInput, match="hook"):
        Hook(command)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--metrics", "x"], "--metrics cannot be 'x'"),
        (["--metrics", "70000"], "--metrics cannot be '70000'"),
        (["--log-format", "xml"], "--log-format cannot be 'xml'"),
        (["--hook", "no-such-command-anywhere"], "there is no such command"),
    ],
)
def test_bad_options_start_nothing(secagg: Command, world: World, options: list[str], words: str) -> None:
    """Options that cannot be used end the command with 2 before it listens."""
    said = secagg("server", "--home", world.folder / SERVER, *options)
    assert said.code == 2
    assert words in said.err
    assert "listening on" not in said.err
