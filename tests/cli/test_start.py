"""What a process loads: `--help` no command, a member that sends masked sums no library that it does not need."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

from secagg.cli.main import COMMANDS, app
from tests.architecture.source import ROOT
from tests.cli.command import NEW_PLAN, Command

OF_EXTRAS = {
    "matplotlib",
    "prometheus_client",
    "sklearn",
    "opacus",
    "jinja2",
    "markupsafe",
    "tenseal",
    "transformers",
    "diffusers",
    "pyarrow",
}
SESSION = """
import asyncio, pathlib, sys
from tests.worlds.session import SessionRun, make_session

ending = asyncio.run(SessionRun(make_session(pathlib.Path(sys.argv[1]))).run())
assert all(type(client).__name__ == "Outcome" for client in ending.clients.values()), ending
"""
DP_SGD = "--method dp-sgd --protection none --epsilon 1 --delta 1e-5 --adjacency add-remove"
COMMAND = """
import sys
from secagg.cli import main

try:
    main()
except SystemExit as end:
    assert end.code == 0, end.code
"""


def loaded(program: str, *arguments: object) -> set[str]:
    """The modules in memory after a program in a fresh interpreter, which must succeed."""
    words = [sys.executable, "-c", f"{program}\nprint('loaded', *sys.modules)", *map(str, arguments)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_every_sentence_is_the_commands_own() -> None:
    """What `--help` says of a command is how the command's own help begins."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert list(commands) == list(COMMANDS)
    for name, (_, sentence) in COMMANDS.items():
        assert sentence.endswith(".")
        assert commands[name].help.startswith(sentence), name


def test_help_loads_no_command(secagg: Command) -> None:
    """`secagg --help` names every command, and loads neither its module nor numpy, torch or gRPC."""
    found = loaded(COMMAND, "--help")
    assert "secagg.cli.main" in found
    assert not {"numpy", "torch", "grpc", "scipy"} & found
    assert not {f"secagg.cli.{place.partition(':')[0]}" for place, _ in COMMANDS.values()} & found
    said = secagg("--help").out
    assert all(f"\n  {name} " in said for name in COMMANDS)


def test_certificates_load_no_arrays(tmp_path: Path) -> None:
    """A command of `secagg pki` loads neither heads nor models nor what they compute with."""
    found = loaded(COMMAND, "pki", "request", "alice", "--tls", tmp_path / "tls")
    assert not {"scipy", "torch", "secagg.heads", "secagg.networks", "methods"} & found


@pytest.mark.parametrize("kind", ["features", "table"])
def test_member_with_features_loads_neither_torch_nor_extras(secagg: Command, federation: Path, kind: str) -> None:
    """A member's dry run, up to the door of the session, loads no torch and no library of an extra."""
    home, plan, data = federation / "alice", federation / "plan.json", federation / "alice" / "records.npz"
    if kind == "table":
        plan, data = tabular(secagg, federation)
    words = ["client", "--plan", plan, "--server", "127.0.0.1:1", "--data", data, "--dry-run",
             "--policy", home / "policy.toml", "--state", home / "state", "--tls", home]  # fmt: skip
    found = loaded(COMMAND, *words)
    assert {"secagg.protection.masking", "grpc"} <= found
    assert not (OF_EXTRAS | {"torch", "secagg.experiments", "threat_models"}) & found


def tabular(secagg: Command, folder: Path) -> tuple[Path, Path]:
    """A plan over tables of one column, which alice's policy accepts, and a table."""
    schema, plan, policy = folder / "schema.toml", folder / "table.json", folder / "alice" / "policy.toml"
    schema.write_text(
        'label = "y"\nclasses = ["no", "yes"]\n[label_values]\n0 = "no"\n1 = "yes"\n'
        '[[columns]]\nname = "x"\nkind = "numeric"\nlow = 0\nhigh = 1\n'
    )
    policy.unlink()
    roster = folder / "alice" / "roster.json"
    assert secagg(*NEW_PLAN, "--roster", roster, "--schema", schema, "--out", plan).code == 0
    assert secagg("plan", "policy", "--plan", plan, "--data-name", "alice", "--out", policy).code == 0
    table = folder / "records.csv"
    table.write_text("x,y\n0.5,1\n0.25,0\n")
    return plan, table


def test_masked_session_loads_neither_torch_nor_extras(tmp_path: Path) -> None:
    """From the first key to the opened sum, checked by every member, masks take no torch and no library of an extra."""
    found = loaded(SESSION, tmp_path)
    assert "secagg.protection.masking" in found
    assert not (OF_EXTRAS | {"torch", "threat_models"}) & found


@pytest.mark.parametrize(
    ("missing", "extra", "words"),
    [
        ("sklearn", "experiments", "simulate --dataset digits"),
        ("opacus", "experiments", f"simulate --dataset {{data}} {DP_SGD}"),
        ("matplotlib", "experiments", "sweep --dataset {data} --out {out}"),
        ("matplotlib", "experiments", "compare --methods fedcgs --dataset {data} --out {out}"),
        ("tenseal", "encrypted", "simulate --dataset {data} --protection encrypted --clients 3"),
        ("jinja2", "audit", "attacks"),
        ("jinja2", "audit", "audit --simulate --dataset {data}"),
        ("pyarrow", "tables", "simulate --dataset {out}.parquet --label y"),
        ("transformers", "hf", "backbone export transformers:x --out {out}.pt2"),
    ],
)  # fmt: skip
def test_missing_extra_is_one_line(
    secagg: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str, extra: str, words: str
) -> None:
    """A command whose library is not installed says so in one line with what to install, and ends with 2."""
    features = np.random.default_rng(0).uniform(-0.5, 0.5, (40, 3))
    np.savez(tmp_path / "data.npz", features=features, labels=np.arange(40) % 2)
    (tmp_path / "out.parquet").touch()
    for name in [missing, *(each for each in sys.modules if each.startswith(f"{missing}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("threat_models.audit", "threat_models.report.html"):  # which other tests may have loaded
        monkeypatch.delitem(sys.modules, name, raising=False)
    said = secagg(*words.format(data=tmp_path / "data.npz", out=tmp_path / "out").split(), "--quiet")
    assert said.code == 2
    assert missing in said.complaint
    assert f"pip install 'secagg[{extra}]'" in said.complaint
