"""What `secagg/running` ships: units that systemd takes, a compose file, and the loop that starts a party again."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.errors import ExitCode
from tests.architecture.source import ROOT
from tests.cli.command import Command
from tests.cli.test_guides import write_hospitals
from tests.worlds.homes import PROMISE, SERVER, enrol_homes, free_address, hand_out

RUNNING = ROOT / "secagg" / "running"
HOSPITALS = ("cleveland", "hungarian", "switzerland")
ROLES = {SERVER: "server", **dict.fromkeys(HOSPITALS, "client")}
SESSIONS = 10
PATIENCE = 120.0


def unit() -> dict[str, str]:
    """The settings of the unit, by name."""
    lines = (RUNNING / "secagg@.service").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))


def services() -> dict[str, Any]:
    """The services of the compose file, as a parser of YAML reads them."""
    yaml = pytest.importorskip("yaml")
    found: dict[str, Any] = yaml.safe_load((RUNNING / "compose.yaml").read_text())["services"]
    return found


def test_unit_starts_again_after_75_and_kills_alone() -> None:
    """Of the exit codes 75 alone starts the party again; a signal does so too, and no number of tries ends that."""
    found = unit()
    assert found["RestartForceExitStatus"] == str(int(ExitCode.NOT_NOW))
    assert found["Restart"] == "on-abnormal"
    assert found["StartLimitIntervalSec"] == "0"


def test_settings_of_memory_are_lines_of_an_environment() -> None:
    """`server.env` holds settings of malloc that systemd and compose files read, and no party has them unasked."""
    lines = [line for line in (RUNNING / "server.env").read_text().splitlines() if not line.startswith("#")]
    assert lines
    assert all(re.fullmatch(r"MALLOC_[A-Z_]+=\d+", line) for line in lines)
    assert unit()["EnvironmentFile"] == "-/etc/secagg/%i.env"
    assert not any("MALLOC" in (RUNNING / name).read_text() for name in ("compose.yaml", "Containerfile"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """systemd-analyze finds nothing to complain of, and does complain of a setting that is none."""
    text = (RUNNING / "secagg@.service").read_text().replace("/opt/secagg/bin/secagg", "/bin/true")

    def complaint(content: str) -> str:
        (tmp_path / "secagg@server.service").write_text(content)
        command = ["systemd-analyze", "verify", "./secagg@server.service"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stderr

    assert complaint(text) == ""
    assert "RestartForcedExitStatus" in complaint(text.replace("RestartForceExitStatus", "RestartForcedExitStatus"))


def test_compose_file_is_of_one_server_and_three_hospitals() -> None:
    """The compose file parses; each service runs its own folder, without rights, and listens where its port is."""
    found = services()
    assert list(found) == [SERVER, *HOSPITALS]
    for name, service in found.items():
        assert service["command"][:3] == ["server" if name == SERVER else "client", "--home", "/party"]
        assert f"./{name}:/party" in service["volumes"]
        assert (service["read_only"], service["cap_drop"], service["restart"]) == (True, ["ALL"], "on-failure:3")
    assert found[SERVER]["ports"] == ["7443:7443", "127.0.0.1:9464:9464"]


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A folder with a `secagg` that ends with the codes in a file, one at each start; `wait` waits for SIGTERM."""
    script = tmp_path / "secagg"
    script.write_text(
        f"#!/bin/sh\ncode=$(head -n 1 {tmp_path}/codes); sed -i 1d {tmp_path}/codes; echo start $* >> {tmp_path}/log\n"
        "[ $code = wait ] || exit $code\ntrap 'exit 75' TERM\nwhile :; do sleep 0.05; done\n"
    )
    script.chmod(0o755)
    return tmp_path


def again(fake: Path, codes: str) -> subprocess.Popen[bytes]:
    """The loop, with a `secagg` that ends with these codes."""
    (fake / "codes").write_text(codes)
    environment = {"PATH": f"{fake}:{os.environ['PATH']}", "SECAGG_AGAIN_SECONDS": "0"}
    return subprocess.Popen([RUNNING / "again.sh", "client", "a b"], env=environment)


@pytest.mark.parametrize(("codes", "code", "starts"), [("75\n75\n0\n", 0, 3), ("75\n5\n", 5, 2), ("2\n", 2, 1)])
def test_loop_starts_again_after_75_alone(fake: Path, codes: str, code: int, starts: int) -> None:
    """75 starts the command again with its arguments; any other code ends the loop, and is the loop's own."""
    assert again(fake, codes).wait(PATIENCE) == code
    assert (fake / "log").read_text() == "start client a b\n" * starts


def test_loop_passes_sigterm_on(fake: Path) -> None:
    """SIGTERM reaches the command; the loop ends with the command's code and starts nothing again."""
    loop = again(fake, "wait\n0\n")
    while not (fake / "log").exists():
        time.sleep(0.01)
    time.sleep(0.1)  # its trap is set
    loop.send_signal(signal.SIGTERM)
    assert loop.wait(PATIENCE) == 75
    assert (fake / "log").read_text().count("start") == 1


class Supervised:
    """The services of the compose file as processes of this machine, by the command lines that stand there."""

    def __init__(self, folder: Path, commands: Path, address: str) -> None:
        self.folder, self.address = folder, address
        self._path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._places = {"/party": "", "/data": str(folder / "heart"), "0.0.0.0:7443": address, "0.0.0.0:9464": ""}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start a service, or start it again."""
        words = [self._placed(name, word) for word in services()[name]["command"]]
        if "" in words:  # the metrics, for which a rehearsal has no port
            del words[words.index("") - 1 : words.index("") + 1]
        environment = {**os.environ, "PATH": self._path, "PYTHONPATH": str(ROOT), "SECAGG_AGAIN_SECONDS": "0.2"}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [RUNNING / "again.sh", *words], env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def _placed(self, name: str, word: str) -> str:
        for place, here in {**self._places, "/party": str(self.folder / name)}.items():
            word = word.replace(place, here)
        return word

    def kill(self, name: str) -> None:
        """SIGKILL to the loop and to its command."""
        os.killpg(self.running[name].pid, signal.SIGKILL)
        self.running[name].wait()

    def run(self, generator: np.random.Generator) -> list[str]:
        """Run one session, in which one party is killed at a random moment and one is stopped; return whom it hit."""
        names = [SERVER, *HOSPITALS]
        for name in names:
            self.start(name)
        hit = [str(each) for each in generator.choice(names, 2, replace=False)]
        time.sleep(float(generator.uniform(0.0, 4.0)))
        self.kill(hit[0])
        self.running[hit[1]].send_signal(signal.SIGTERM)
        assert self.running[hit[1]].wait(PATIENCE) in (0, 75, 128 + signal.SIGTERM)
        for name in hit:
            self.start(name)
        ends = {name: self.running[name].wait(PATIENCE) for name in names}
        assert ends == dict.fromkeys(names, 0), [(self.folder / f"{name}.log").read_text()[-3000:] for name in names]
        return hit


@pytest.fixture
def supervised(secagg: Command, commands: Path, tmp_path: Path) -> Iterator[Supervised]:
    """The homes of the compose file's parties, with stand-ins for their data; all are gone at the end."""
    enrol_homes(secagg, tmp_path, ROLES, "masked")
    write_hospitals(tmp_path / "heart")
    found = Supervised(tmp_path, commands, free_address())
    yield found
    for party in found.running.values():
        if party.poll() is None:
            os.killpg(party.pid, signal.SIGKILL)
            party.wait()


@pytest.mark.long
def test_ten_sessions_with_kills_end_by_the_shipped_command_lines(
    secagg: Command, supervised: Supervised, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten plans, in each of which one party is killed and one stopped at random: all end, every transcript verifies."""
    generator = np.random.default_rng(7)
    chosen = ("--schema", "heart-disease", "--max-records", "1024", "--step-seconds", "20", "--join-seconds", "60")
    for number in range(1, SESSIONS + 1):
        hand_out(secagg, supervised.folder, ROLES, {SERVER: supervised.address}, (*chosen, *PROMISE))
        begun = time.monotonic()
        killed, stopped = supervised.run(generator)
        with capsys.disabled():
            took = time.monotonic() - begun
            print(f"session {number}: killed {killed}, stopped {stopped}, ended after {took:.1f} s")
    for name in ROLES:
        said = secagg("verify", "--home", supervised.folder / name, "--json", "-")
        assert said.code == 0
        assert len(said.json["transcripts"]) == SESSIONS
    policy, state = (supervised.folder / "cleveland" / part for part in ("policy.toml", "state"))
    (ledger,) = secagg("ledger", "show", "--state", state, "--policy", policy, "--json", "-").json["data_sets"]
    assert len(ledger["releases"]) == SESSIONS
