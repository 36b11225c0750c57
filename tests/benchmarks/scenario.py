"""The session that is measured, and the members that take part in it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from methods import Method
from secagg.encoding import Layout, Ring
from secagg.parties import ClientHooks, ClientSession, SessionSetup, begin_transcript
from secagg.parties.planning import PlanChoices, PublicData, make_plan
from secagg.protection import LocalParty
from secagg.randomness import OperatingSystem
from secagg.statistics.moments import Integers
from secagg.transcript import FILE_NAME, Journal
from secagg.transport import Credentials, read_credentials
from secagg.transport.enrolment import create_authority, create_request, issue

CLIENTS = 100
DROPOUTS = 10
LENGTH = 267_274
RING = Ring(32)
DIMENSION = 512
CLASSES = 10
REPEATS = 3
_STEP_SECONDS = 600
_FILES_OF_THE_AUTHORITY = ("ca.pem", "cert.pem", "roster.json")


@dataclass(frozen=True)
class Members:
    """Everyone's credentials, each in its own folder, and what they derive from one plan."""

    server: Credentials
    clients: tuple[Credentials, ...]
    setup: SessionSetup


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def enrol(folder: Path, count: int, **choices: Any) -> Members:
    """A consortium of one server and `count` clients, and a plan of 512 features in 10 classes."""
    authority = folder / "authority"
    create_authority(authority, "benchmark")
    roles = {"server": "server"} | {f"client-{number:03}": "client" for number in range(1, count + 1)}
    homes = {name: folder / name / "tls" for name in roles}
    issue(authority, [create_request(homes[name], name, role) for name, role in roles.items()])
    for name, home in homes.items():
        for file in _FILES_OF_THE_AUTHORITY:
            (home / file).write_bytes((authority / "issued" / name / file).read_bytes())
    server, *clients = (read_credentials(home) for home in homes.values())
    data = PublicData.of_shape((DIMENSION,), tuple(str(label) for label in range(CLASSES)))
    chosen = PlanChoices(radius=1.0, join_seconds=_STEP_SECONDS, step_seconds=_STEP_SECONDS, **choices)
    plan = make_plan(data, server.roster, chosen, OperatingSystem())
    return Members(server, tuple(clients), SessionSetup.of(plan, server.roster))


def resized(setup: SessionSetup, method: Method) -> SessionSetup:
    """The same session over the vector of another method, of the measured length and ring."""
    layout = Layout(method.sums(DIMENSION, CLASSES, setup.plan.levels)[0].blocks)
    context = replace(setup.context, ring=RING, length=layout.length)
    return replace(setup, method=method, round=method, layout=layout, context=context)


def client_session(
    setup: SessionSetup, credentials: Credentials, folder: Path, vector: Callable[[], Integers]
) -> ClientSession:
    """One client as `secagg client` runs it, with its transcript and memory in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / FILE_NAME)
    begin_transcript(journal, setup)
    hooks = ClientHooks(vector, before_upload=lambda: None, progress=lambda _: None)
    me = LocalParty(credentials.index, credentials.identity, OperatingSystem())
    return ClientSession(setup, me, folder, journal, hooks)
