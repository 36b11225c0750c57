"""Plug-ins on the command line: who decides, what is said of them, an attack beside ours, runs of changed code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from secagg import Client, Server
from secagg.errors import BadInput
from secagg.system import plugins
from tests.cli.command import MEMBERS, SERVER, Command, command, found, nothing_sent
from tests.system.sources import FORMAT, leaving, write_method
from tests.worlds.forks import fork_workers
from threat_models.attacks import ATTACKS

ATTACK = """
from threat_models.attacks import Attack
from threat_models.findings import Finding, Metric, Verdict

SEEN = Metric("seen", "classes in the sum", "classes", leads=True)

def run(views, knowledge, progress):
    {body}

OWN = Attack("{name}", "Own", "nobody", ("release",), run, (SEEN,), tries_records=False)
"""
FINDS = "return Finding('own_attack', '', Verdict.SUCCEEDS, 'Seen.', (SEEN.exact(10.0),))"


@pytest.fixture
def secagg(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Runs a command in this process, which remembers no file and no attack that earlier commands were given."""
    run, ours = command(monkeypatch, capsys), set(ATTACKS)

    def forget() -> None:
        plugins._admitted.clear()
        for name in set(ATTACKS) - ours:
            del ATTACKS[name]

    def alone(*arguments: object):
        forget()
        return run(*arguments)

    fork_workers(monkeypatch)
    yield alone
    forget()


@pytest.fixture
def consortium(secagg: Command, tmp_path: Path) -> Path:
    """Three members, and a plan for a method of one's own that leaves a mark where it runs."""
    folder = tmp_path / "c"
    found(secagg, folder)
    write_method(folder / "mine.py", leaving(folder / "ran"))
    chosen = ["--shape", "3", "--classes", "no,yes", "--radius", "1", "--max-records", "100"]
    made = secagg(
        "plan", "new", "--purpose", "tests", "--roster", folder / SERVER / "roster.json", *chosen,
        "--method", f"{folder / 'mine.py'}:Mine", "--out", folder / "own.json",
    )  # fmt: skip
    assert made.code == 0, made.err
    assert f"mine.py is code, which runs now with your rights; its SHA-256 is {digest(folder)}" in made.err
    (folder / "ran").unlink()
    return folder


def digest(folder: Path) -> str:
    """What the plan knows the method by."""
    return hashlib.sha256((folder / "mine.py").read_bytes()).hexdigest()


def dry_run(secagg: Command, folder: Path, policy: Path, *more: object):
    """What the first member's client says."""
    home = folder / MEMBERS[0]
    return secagg(
        "client", "--plan", folder / "own.json", "--server", "127.0.0.1:1", "--data", home / "records.npz",
        "--policy", policy, "--state", home / "state", "--tls", home, "--dry-run", "-q", *more,
    )  # fmt: skip


def test_a_member_approves_code_or_refuses_it(secagg: Command, consortium: Path) -> None:
    """A policy of another plan refuses before the code runs; one that lists its digest accepts; nothing is sent."""
    home = consortium / MEMBERS[0]
    given = ("--plugin", consortium / "mine.py")
    said = dry_run(secagg, consortium, home / "policy.toml", *given)
    assert said.code == 2
    assert f"(1) methods: the plan runs code of others, Mine@{digest(consortium)}" in said.complaint
    assert not (consortium / "ran").exists()
    written = secagg(
        "plan", "policy", "--plan", consortium / "own.json", "--data-name", "own", "--out", home / "own.toml"
    )
    assert "read it first" in written.err
    assert not (consortium / "ran").exists()
    assert dry_run(secagg, consortium, home / "own.toml", *given).code == 0
    assert nothing_sent(home / "state")


async def test_embedded_parties_are_given_the_code(secagg: Command, consortium: Path) -> None:
    """`Server` and `Client` find a plan's method in the files that they are given, and nowhere else."""
    plan, home, own = consortium / "own.json", consortium / MEMBERS[0], consortium / SERVER
    policy = home / "own.toml"
    assert secagg("plan", "policy", "--plan", plan, "--data-name", "own", "--out", policy).code == 0
    plugins._admitted.clear()
    told = {"data": home / "records.npz", "policy": policy, "state": home / "own", "tls": home}
    with pytest.raises(BadInput, match="which is not here"):
        Client(plan, server="127.0.0.1:1", **told)
    client = Client(plan, server="127.0.0.1:1", **told, plugins=[consortium / "mine.py"])
    assert client.setup.plan.method == f"Mine@{digest(consortium)}"
    plugins._admitted.clear()
    async with Server(plan, state=own / "own", tls=own, plugins=[str(consortium / "mine.py")]) as server:
        assert server.federation.stages[0].setup.plan == client.setup.plan


@pytest.mark.parametrize("given", [True, False])
def test_a_file_that_changed_is_refused(secagg: Command, consortium: Path, given: bool) -> None:
    """After the plan the file is another: neither it nor no file at all is run, and nothing is sent."""
    home, agreed = consortium / MEMBERS[0], digest(consortium)
    policy = ("--plan", consortium / "own.json", "--data-name", "own", "--out", home / "own.toml")
    assert secagg("plan", "policy", *policy).code == 0
    write_method(consortium / "mine.py", leaving(consortium / "ran") + "  # mended")
    plugins._modules.pop(agreed, None)
    said = dry_run(secagg, consortium, home / "own.toml", *(["--plugin", consortium / "mine.py"] if given else []))
    assert said.code == 2
    assert f"Mine is code with the SHA-256 {agreed}, which is not here" in said.complaint
    assert ("it is other code" in said.complaint) == given
    assert not (consortium / "ran").exists()
    assert nothing_sent(home / "state")


def test_parties_without_a_policy_are_given_the_code(secagg: Command, consortium: Path) -> None:
    """`plan show` explains the plan with the file, and names what is lacking without it."""
    words = ("plan", "show", "--plan", consortium / "own.json", "--roster", consortium / SERVER / "roster.json")
    assert f"Mine@{digest(consortium)}" in secagg(*words, "--plugin", consortium / "mine.py").out
    lacking = secagg(*words)
    assert (lacking.code, "--plugin FILE.py" in lacking.complaint) == (2, True)


def test_a_sweep_repeats_what_changed_code_had_made(secagg: Command, tmp_path: Path) -> None:
    """Kept runs are those of the file's digest: another file is run again."""
    np.savez(tmp_path / "own.npz", features=np.random.default_rng(0).normal(size=(60, 3)), labels=np.arange(60) % 2)
    file = write_method(tmp_path / "mine.py")
    words = ("sweep", "--dataset", tmp_path / "own.npz", "--method", f"{file}:Mine", "--seeds", 1, "--workers", 1)
    words += ("--epsilon", "1,8", "--delta", "1e-5", "--adjacency", "add-remove")
    for effect, runs in (("", 2), ("", 2), ("# changed", 4)):
        write_method(file, effect)
        said = secagg(*words, "--out", tmp_path / "out")
        assert said.code == 0, said.err
        assert len(list((tmp_path / "out" / "runs").glob("*.json"))) == runs


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("small_cells", FINDS, "called small_cells, like an attack that there is"),
        ("own_attack", "return 3", "returns no Finding of own_attack"),
        ("own_attack", "return views[0].contributions", "failed (AttributeError"),
    ],
)
def test_an_attack_that_is_none_is_refused(secagg: Command, tmp_path: Path, name: str, body: str, words: str) -> None:
    """A name of ours, another value than a finding, and code that fails: bad input with the attack's name."""
    (tmp_path / "own.py").write_text(ATTACK.format(name=name, body=body))
    said = secagg(
        "audit", "--simulate", "--dataset", "wine", "--threat-model", "curious_server",
        "--attack", f"{tmp_path / 'own.py'}:OWN", "-q",
    )  # fmt: skip
    assert said.code == 2
    assert words in said.complaint


def test_a_format_is_given_on_the_command_line(secagg: Command, tmp_path: Path) -> None:
    """`--format` has a file read that would be refused, and says which code runs; what is no format is refused."""
    (tmp_path / "bars.py").write_text(FORMAT.format(end=".bars2"))
    rows = "".join(f"{number}|{number % 2}\n" for number in range(40))
    (tmp_path / "own.bars2").write_text(f"a|y\n{rows}")
    words = ("simulate", "--dataset", tmp_path / "own.bars2", "--label", "y", "--clients", 2, "-q")
    assert secagg(*words).code == 2
    said = secagg(*words, "--format", f"{tmp_path / 'bars.py'}:BARS")
    assert said.code == 0
    digest = hashlib.sha256((tmp_path / "bars.py").read_bytes()).hexdigest()
    assert f"bars.py is code, which runs now with your rights; its SHA-256 is {digest}" in said.err
    assert secagg(*words, "--format", f"{tmp_path / 'bars.py'}:lines").code == 2
