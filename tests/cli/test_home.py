"""A party's folder: what `secagg join` puts there is all that its commands need, beside the data."""

import json
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.worlds.homes import CLIENTS, PROMISE, SERVER, found_homes, free_address, roles_of, words_of
from tests.worlds.processes import PATIENCE, Party

ROUNDS = ("--method", "fedavg", "--rounds", "2", "--epsilon", "8", "--delta", "1e-5", "--adjacency", "add-remove",
          "--parameters", "gradients=1 rate=1 clip=4")  # fmt: skip


@pytest.fixture(scope="module")
def _founded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the homes that the tests copy are made, by whichever test needs them first."""
    return tmp_path_factory.mktemp("founded") / "homes"


@pytest.fixture
def homes(_founded: Path, secagg: Command, tmp_path: Path) -> Path:
    """A server's and three clients' folders under `masked`, to be damaged."""
    if not _founded.exists():
        found_homes(secagg, _founded)
    return Path(shutil.copytree(_founded, tmp_path / "homes"))


@pytest.mark.parametrize(
    ("protection", "choices"),
    [
        ("masked", ROUNDS),
        pytest.param("shared", PROMISE, marks=pytest.mark.long),
        pytest.param("encrypted", PROMISE, marks=pytest.mark.long),
    ],
)
def test_home_and_data_are_a_whole_command(
    secagg: Command, tmp_path: Path, protection: str, choices: tuple[str, ...]
) -> None:
    """Under every protection, and in rounds, all parties end a plan with no option but --home and a client's --data."""
    found_homes(secagg, tmp_path, protection, choices)
    roles = roles_of(protection)
    running = {}
    for name, role in roles.items():
        stay = ["--stay"] if role == "client" and protection != "masked" else []
        running[name] = Party.start([*words_of(tmp_path, name, role), *stay], tmp_path / f"{name}.txt")
    try:
        ends = {name: party.wait(PATIENCE) for name, party in running.items()}
    finally:
        for party in running.values():
            party.kill()
    assert ends == dict.fromkeys(roles, 0), "\n".join(path.read_text() for path in tmp_path.glob("*.txt"))
    for name in (SERVER, CLIENTS[0]):
        assert secagg("verify", "--home", tmp_path / name).code == 0
    (*_, last) = secagg("status", "--home", tmp_path / SERVER, "--json", "-").json["sessions"]
    assert last["state"] == "over"
    again = secagg("server", "--home", tmp_path / SERVER, "--check")
    assert (again.code, "the plan's session is over" in again.complaint) == (2, True)
    assert secagg("purge", "--home", tmp_path / SERVER).code == 0


def test_dry_run_takes_all_from_home_and_sends_nothing(secagg: Command, homes: Path) -> None:
    """A dry run by the folder is that of the long form: the same plan, member and ledger."""
    home = homes / "alice"
    data = ("--data", home / "records.npz", "--dry-run", "--json", "-")
    files = ("--plan", home / "plan.json", "--policy", home / "policy.toml", "--state", home / "state")
    long = secagg("client", *files, "--tls", home / "tls", "--server", "127.0.0.1:1", *data)
    short = secagg("client", "--home", home, *data)
    assert short.code == long.code == 0
    assert short.json == long.json


def test_given_options_come_before_the_folder(secagg: Command, homes: Path) -> None:
    """An option that is given counts, and not what the folder holds."""
    strict = homes / "strict.toml"
    own = homes / "alice" / "policy.toml"
    strict.write_text(own.read_text().replace("max_epsilon = 8.0", "max_epsilon = 0.5"))
    data = ("--data", homes / "alice" / "records.npz", "--dry-run")
    assert secagg("client", "--home", homes / "alice", *data).code == 0
    said = secagg("client", "--home", homes / "alice", "--policy", strict, *data)
    assert (said.code, "max_epsilon" in said.complaint) == (2, True)


def _lose(*parts: str) -> Callable[[Path], None]:
    return lambda homes: homes.joinpath(*parts).unlink()


def _write(text: str, *parts: str) -> Callable[[Path], object]:
    return lambda homes: homes.joinpath(*parts).write_text(text)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_lose("alice", "plan.json"), "plan.json"),
        (_lose("alice", "policy.toml"), "policy.toml"),
        (_lose("alice", "addresses.json"), "give --server HOST:PORT"),
        (_lose("alice", "tls", "roster.json"), "roster.json"),
        (_write("[]", "alice", "addresses.json"), "no list of addresses"),
        (_write('{"coordinator": 1}', "alice", "addresses.json"), "no list of addresses"),
        (_write('{"mallory": "a:1"}', "alice", "addresses.json"), "'mallory' is no server"),
        (_write('{"coordinator": "a:1", "coordinator": "b:1"}', "alice", "addresses.json"), "stands twice"),
        (_write('{"coordinator": "-host:1"}', "alice", "addresses.json"), "'-host:1' is no address"),
        (_write("{" * 1000, "alice", "addresses.json"), "no list of addresses"),
    ],
)
def test_incomplete_folder_is_refused_by_name(
    secagg: Command, homes: Path, damage: Callable[[Path], object], words: str
) -> None:
    """A folder that lacks a file, or whose addresses are damaged or of strangers, is refused in one line."""
    damage(homes)
    said = secagg("client", "--home", homes / "alice", "--data", homes / "alice" / "records.npz")
    assert (said.code, words in said.complaint) == (2, True), said.err
    assert not list((homes / "alice").glob("state/*/transcript.log"))


def test_command_without_home_names_what_is_missing(secagg: Command, homes: Path) -> None:
    """Without --home every required option is named, and --home with them."""
    said = secagg("server", "--plan", homes / "plan.json")
    assert said.code == 2
    assert "not given: --state, --tls, --listen; give them, or --home DIR" in said.complaint
    assert secagg("verify").code == secagg("status").code == 2


def test_wrong_role_is_refused(secagg: Command, homes: Path) -> None:
    """A client's folder does not start a server."""
    said = secagg("server", "--home", homes / "alice", "--listen", "127.0.0.1:0")
    assert (said.code, "alice is no server" in said.complaint) == (2, True)


def test_confirm_needs_transcripts_of_others(secagg: Command, homes: Path) -> None:
    """`confirm --home` takes the own state from the folder, but the transcripts must be named."""
    assert "Missing argument" in secagg("confirm", "--home", homes / "alice").complaint


def test_join_keeps_a_policy_and_shows_how_to_carry_it_over(secagg: Command, homes: Path) -> None:
    """A policy that is there stays to the byte; one for another roster is followed by the commands that renew it."""
    kit, home = homes / "kits" / "alice.kit", homes / "alice"
    policy = home / "policy.toml"
    before = policy.read_text()
    said = secagg("join", kit, "--home", home, "--data-name", "other")
    assert (said.code, policy.read_text()) == (0, before)
    assert "plan policy" not in said.out
    digest = secagg("pki", "show", home / "tls" / "roster.json", "--json", "-").json["roster_sha256"]
    policy.write_text(before.replace(digest, "ab" * 32))
    *_, move, carry, client = (line.strip() for line in secagg("join", kit, "--home", home).out.splitlines())
    assert move == f"mv {policy} {home / 'policy-before.toml'}"
    policy.rename(home / "policy-before.toml")
    assert secagg(*carry.split()[1:]).code == 0
    assert "max_epsilon_total = 60.0" in policy.read_text()
    assert secagg(*client.replace("DATA", str(home / "records.npz")).split()[1:]).code == 0


def test_data_name_is_for_clients_with_a_plan(secagg: Command, homes: Path) -> None:
    """A server's kit takes no --data-name, and nothing is changed."""
    shutil.rmtree(homes / SERVER / "state", ignore_errors=True)
    (homes / SERVER / "plan.json").unlink()
    said = secagg("join", homes / "kits" / f"{SERVER}.kit", "--home", homes / SERVER, "--data-name", "x")
    assert (said.code, "--data-name is for a client" in said.complaint) == (2, True)
    assert not (homes / SERVER / "plan.json").exists()


def test_addresses_are_those_of_the_kit(secagg: Command, homes: Path) -> None:
    """The folder's addresses are the kit's, which the authority has signed."""
    kit = json.loads((homes / "kits" / "alice.kit").read_text())
    assert json.loads((homes / "alice" / "addresses.json").read_text()) == kit["addresses"]


def test_check_tells_that_a_server_may_start_and_starts_nothing(secagg: Command, homes: Path) -> None:
    """With all in order it is exit 0, with the days of both certificates, and no file is made."""
    before = sorted(homes.rglob("*"))
    said = secagg("server", "--home", homes / SERVER, "--check", "--json", "-")
    assert said.code == 0
    assert set(said.json["certificate_days"]) == {"cert.pem", "ca.pem"}
    assert said.json["plan_sha256"] == json.loads(secagg(
        "plan", "show", "--plan", homes / "plan.json", "--roster", homes / SERVER / "tls" / "roster.json", "--json", "-"
    ).out)["plan_sha256"]  # fmt: skip
    assert sorted(homes.rglob("*")) == before


def test_approval_that_does_not_count_stops_no_server(secagg: Command, homes: Path) -> None:
    """A check warns, with one remedy, of a file that is no approval of the plan, and ends with 0: the server starts."""
    approvals = homes / "approvals"
    approvals.mkdir()
    (approvals / "alice.approval").write_text("[]")
    said = secagg("server", "--home", homes / SERVER, "--check", "--approvals", approvals, "--json", "-")
    assert (said.code, list(said.json["approvals"]["refused"])) == (0, ["alice.approval"])
    warned = [line for line in said.err.splitlines() if "alice.approval" in line]
    assert [line.count("plan sign") for line in warned] == [1]


def test_check_beside_a_running_server_says_that_one_runs(secagg: Command, homes: Path, tmp_path: Path) -> None:
    """Over a running server's state folder, or on its port, a check ends with 2 and says that a server runs there."""
    check = ("server", "--home", homes / SERVER, "--check")
    running = Party.start(words_of(homes, SERVER, "server"), tmp_path / "said.txt")
    try:
        deadline = time.monotonic() + PATIENCE
        while not ((said := tmp_path / "said.txt").exists() and "listening on" in said.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        state = f"a server already runs over {homes / SERVER / 'state'}; leave it running, or stop it (SIGTERM)"
        for more in ((), ("--listen", free_address())):
            found = secagg(*check, *more)
            assert (found.code, state in found.complaint) == (2, True), found.complaint
        found = secagg(*check, "--state", tmp_path / "other")
        assert found.code == 2
        assert "a process already listens there, such as a running server; stop it, or give a free" in found.complaint
    finally:
        running.kill()
    assert secagg(*check).code == 0


def test_check_finds_what_would_stop_a_server(secagg: Command, homes: Path) -> None:
    """A taken port, a state folder that is a file, a readable key: exit 2, named."""
    listening = json.loads((homes / SERVER / "addresses.json").read_text())[SERVER]
    with socket.create_server(("127.0.0.1", int(listening.rpartition(":")[2]))):
        assert f"cannot listen on {listening}" in secagg("server", "--home", homes / SERVER, "--check").complaint
    state = homes / SERVER / "state"
    state.write_text("")
    assert f"cannot write to {state}" in secagg("server", "--home", homes / SERVER, "--check").complaint
    state.unlink()
    (homes / SERVER / "tls" / "key.pem").chmod(0o644)
    assert "can be read by others" in secagg("server", "--home", homes / SERVER, "--check").complaint
