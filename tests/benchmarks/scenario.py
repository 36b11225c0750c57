"""The session that is measured, and the members that take part in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from methods import Method
from secagg.agreement.roster import Roster
from secagg.encoding import Layout, Ring
from secagg.encoding.moments import Integers
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.protection import LocalParty, SessionContext, protection_named
from secagg.randomness import OperatingSystem
from secagg.session import MemberSession, RoundSetup, begin_transcript
from secagg.transcript import FILE_NAME, Journal
from secagg.transport import Credentials, read_credentials
from secagg.transport.enrolment import create_authority, create_request, issue

CLIENTS = 100
DROPOUTS = 10
LENGTH = 267_274  # counts, class sums and the whole second moment of 512 features in 10 classes
TRIANGLE = 136_458  # with the upper triangle of the second moment alone
RING = Ring(32)
DIMENSION = 512
CLASSES = 10
REPEATS = 3
STEP_SECONDS = 600
_FILES_OF_THE_AUTHORITY = ("ca.pem", "cert.pem", "roster.json")


@dataclass(frozen=True)
class Members:
    """Everyone's credentials, each in its own folder, and what they derive from one plan."""

    server: Credentials
    clients: tuple[Credentials, ...]
    seconds: tuple[Credentials, ...]
    setup: RoundSetup


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def roles(count: int, protection: str) -> dict[str, str]:
    """Name → role of everyone: one server, `count` clients, and the helpers of the protection."""
    clients = {f"client-{number:03}": "client" for number in range(1, count + 1)}
    return {"server": "server"} | clients | protection_named(protection).helper_roles


def enrol(folder: Path, count: int, protection: str = "masked", **choices: Any) -> Members:
    """A consortium of `count` clients with everybody else, and the plan that `setup_of` makes of the choices."""
    authority = folder / "authority"
    create_authority(authority, "benchmark")
    everyone = roles(count, protection)
    homes = {name: folder / name / "tls" for name in everyone}
    issue(authority, [create_request(homes[name], name, role) for name, role in everyone.items()])
    for name, home in homes.items():
        for file in _FILES_OF_THE_AUTHORITY:
            (home / file).write_bytes((authority / "issued" / name / file).read_bytes())
    server, *others = (read_credentials(home) for home in homes.values())
    setup = setup_of(server.roster, protection=protection, **choices)
    return Members(server, tuple(others[:count]), tuple(others[count:]), setup)


def setup_of(roster: Roster, dimension: int = DIMENSION, **choices: Any) -> RoundSetup:
    """The first session of a plan of 10 classes, and of 512 features unless another `dimension` is chosen."""
    data = PublicData.of_shape((dimension,), tuple(str(label) for label in range(CLASSES)))
    chosen = PlanChoices(radius=1.0, join_seconds=STEP_SECONDS, step_seconds=STEP_SECONDS, **choices)
    return RoundSetup.of(make_plan(data, roster, chosen, OperatingSystem()), roster)


def random_vectors(length: int = LENGTH) -> Mapping[int, Integers]:
    """A vector for each of the 100 clients, the same in every run; their sum fills the ring and fits into it."""
    generator = np.random.default_rng(0)
    half = 2 ** (RING.bits - 1) // (CLIENTS + 1)
    return {member: generator.integers(-half, half, size=length) for member in range(1, CLIENTS + 1)}


def placed(context: SessionContext, length: int) -> SessionContext:
    """The same session over vectors of this length in the measured ring, which their sum may fill."""
    return replace(context, ring=RING, length=length, largest=2 ** (RING.bits - 1) - 1)


def resized(setup: RoundSetup, method: Method) -> RoundSetup:
    """The same session over the vector of another method, in the measured ring."""
    spec = method.sums(DIMENSION, CLASSES, setup.plan.levels)[0]
    layout = Layout(spec.blocks)
    context = placed(setup.context, layout.length)
    kind = replace(setup.sum, spec=spec, layout=layout, context=context)
    return replace(setup, facts=replace(setup.facts, method=method, kinds=(kind,)), known_round=method, context=context)


@dataclass(frozen=True)
class Computed:
    """A client's contributor that has nothing to do but to compute its vector."""

    vector: Callable[[], Integers]

    def before_upload(self) -> None:
        """Nothing is charged."""


@contextmanager
def client_session(
    setup: RoundSetup, credentials: Credentials, folder: Path, vector: Callable[[], Integers]
) -> Iterator[MemberSession]:
    """One client as `secagg client` runs it, with its transcript and memory in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with closing(Journal(folder / FILE_NAME)) as journal:
        begin_transcript(journal, setup)
        me = LocalParty(credentials.index, credentials.identity, OperatingSystem())
        yield MemberSession(setup, me, folder, journal, lambda _: None, Computed(vector))
