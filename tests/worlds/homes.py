"""A consortium whose parties have joined by their kits: one folder for each, and everything else is in it."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

SERVER = "coordinator"
CLIENTS = ("alice", "bob", "carol")
HELPERS = {"shared": {"north": "aggregator", "south": "aggregator"}, "encrypted": {"holder": "key-holder"}}
PROMISE = ("--epsilon", "1", "--delta", "1e-5", "--adjacency", "add-remove", "--refine", "0")
SHAPE = ("--shape", "3", "--classes", "no,yes", "--max-records", "100", "--join-seconds", "60", "--step-seconds", "20")


def free_address() -> str:
    """An address of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def roles_of(protection: str) -> dict[str, str]:
    """The role of each party by name: the server, three clients, and the protection's helpers."""
    return {SERVER: "server", **dict.fromkeys(CLIENTS, "client"), **HELPERS.get(protection, {})}


def found_homes(
    run: Callable[..., Any], folder: Path, protection: str = "masked", choices: tuple[str, ...] = PROMISE
) -> None:
    """Enrol the parties of a protection, write a plan by `choices`, and have all join: each in folder/NAME.

    `run` runs one command. The clients' records are NAME/records.npz.
    """
    roles = roles_of(protection)
    enrol_homes(run, folder, roles, protection)
    listening = [name for name, role in roles.items() if role in ("server", "aggregator")]
    addresses = {name: free_address() for name in listening}
    hand_out(run, folder, roles, addresses, ("--protection", protection, *SHAPE, *choices))
    for number, name in enumerate(CLIENTS):
        features = np.random.default_rng(number).uniform(-0.5, 0.5, size=(20, 3))
        np.savez(folder / name / "records.npz", features=features, labels=np.arange(20) % 2)


def enrol_homes(run: Callable[..., Any], folder: Path, roles: Mapping[str, str], protection: str) -> None:
    """Make an authority and each party's keys, and the limits of a consortium that takes this protection."""
    ca, limits = folder / "ca", folder / "limits.toml"
    _done(run, "pki", "init", "--ca", ca, "--consortium", "homes")
    for name, role in roles.items():
        _done(run, "pki", "request", name, "--role", role, "--tls", folder / name / "tls")
    _done(run, "pki", "issue", "--ca", ca, *(folder / name / "tls" / "request.json" for name in roles))
    _done(run, "plan", "limits", "--out", limits)
    conceded = {"max_epsilon": "8.0", "max_epsilon_total": "60.0", "methods": '["fedcgs", "fedavg"]'}
    for key, value in {**conceded, "protections": f'["{protection}"]'}.items():
        text = re.sub(rf"^{key} = .*$", f"{key} = {value}", limits.read_text(), flags=re.MULTILINE)
        limits.write_text(text)


def hand_out(
    run: Callable[..., Any],
    folder: Path,
    roles: Mapping[str, str],
    addresses: Mapping[str, str],
    choices: tuple[str, ...],
) -> None:
    """Write a new plan and kits, and have every party join by its own; clients that have a policy keep it."""
    roster, plan, kits = folder / "ca" / "issued" / SERVER / "roster.json", folder / "plan.json", folder / "kits"
    plan.unlink(missing_ok=True)
    shutil.rmtree(kits, ignore_errors=True)
    _done(run, "plan", "new", "--purpose", "tests", "--roster", roster, "--out", plan, *choices)
    given = [word for name, address in addresses.items() for word in ("--address", f"{name}={address}")]
    limits = ("--plan", plan, "--limits", folder / "limits.toml")
    _done(run, "pki", "kit", "--ca", folder / "ca", *limits, *given, "--out", kits)
    for name, role in roles.items():
        named = ("--data-name", name) if role == "client" else ()
        _done(run, "join", kits / f"{name}.kit", "--home", folder / name, *named)


def words_of(folder: Path, name: str, role: str) -> list[str]:
    """The whole command of a party, by its folder alone."""
    data = ["--data", str(folder / name / "records.npz")] if role == "client" else []
    return [role, "--home", str(folder / name), *data]


def _done(run: Callable[..., Any], *words: object) -> None:
    said = run(*words)
    assert said.code == 0, f"{words}: {said.err}"
