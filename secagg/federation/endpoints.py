"""The server and the client of a plan as classes for an asyncio program; the commands use the same two classes.

>>> async with Server("plan.json", state="state", tls="tls", listen="0.0.0.0:7443") as server:  # doctest: +SKIP
...     result = await server.run()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import grpc

from secagg.agreement.plan import NoiseFrom, read_plan
from secagg.agreement.policy import read_policy
from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput, SessionAborted
from secagg.federation.client import FederationClient
from secagg.federation.declining import send_decline
from secagg.federation.recovery import open_ledger, release_of
from secagg.federation.server import FederationServer, Stage
from secagg.plan_facts.countersigning import gather_approvals
from secagg.plan_facts.facts import LEAST_PATIENCE, patience
from secagg.plan_facts.policy_writing import admit_listed
from secagg.plan_facts.records import Progress, Source, read_records, write_model_card
from secagg.protection import LocalParty
from secagg.protection.messages import Outcome
from secagg.protection.proven_bits import check_libraries
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from secagg.session.attachments import folder_name, session_folder
from secagg.session.outcome import HEAD_FILE
from secagg.session.rounds import following_setup
from secagg.system.files import write_synced
from secagg.system.plugins import admit
from secagg.system.threads import compute_aside
from secagg.transcript import FILE_NAME, Journal
from secagg.transport import Credentials, Link, greet, read_credentials, serve

FAREWELL_SECONDS = 3.0
ANSWERS_A_SECOND = 5  # that an endpoint sends at least: 32 long ones in five seconds, to slow readers
Said = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """A plan's result: the clients in the last sum by name, SHA-256 of sum and head, paths of head and transcript.

    `head` is None where the plan gives it to the server alone.
    """

    members: tuple[str, ...]
    aggregate_sha256: str
    head_sha256: str
    head: Path | None
    transcript: Path

    @classmethod
    def of(cls, setup: RoundSetup, outcome: Outcome, folder: Path) -> Result:
        """Write the model card beside the head; return the plan's result from its last session."""
        head = folder / HEAD_FILE
        if head.exists():
            write_model_card(folder, setup, outcome.head_sha256.hex(), outcome.members)
        members = tuple(setup.roster.name(member) for member in outcome.members)
        digests = outcome.aggregate_sha256.hex(), outcome.head_sha256.hex()
        return cls(members, *digests, head if head.exists() else None, folder / FILE_NAME)


def credentials_for(role: str, tls: Path, said: Said) -> Credentials:
    """Read a member's keys; report certificates that expire soon to `said`. Raises BadInput for another role."""
    credentials = read_credentials(tls)
    for end in filter(lambda each: each.is_near, credentials.ends()):
        said(end.warning())
    if (found := credentials.roster.role(credentials.index)) != role:
        remedy = "give --tls the folder of a party of that role, or start this one by its own command"
        raise BadInput(f"{credentials.name} is no {role} in the roster, but {found}", remedy=remedy)
    return credentials


def server_setup(plan: Path, credentials: Credentials) -> RoundSetup:
    """Read a plan, and return its first round at the server. Raises BadInput for a plan that no server may run."""
    setup = RoundSetup.of(read_plan(plan), credentials.roster)
    if setup.plan.noise == NoiseFrom.AGGREGATOR and len(setup.context.helpers) < 2:
        raise BadInput("with this protection the server would open the exact sum", remedy="let the clients add noise")
    return setup


def grace_of(parties: int, stopped: object) -> float:
    """Return the seconds in which an endpoint, as it ends, may still send answers; one if it is `stopped`."""
    return 1.0 if stopped else max(1.0, parties / ANSWERS_A_SECOND)


class Server:
    """The server of one plan: it listens inside `async with`, and `run` carries the plan out.

    `plan`, `state`, `tls` and `plugins` (files) are what `secagg server` takes; `listen` is HOST:PORT, port 0 a free
    one (`address` then says which). `said` is told what a log should say, of members' `approvals` in a folder too.
    Start it again over the same state after a crash. Raises BadInput for files that cannot be used.
    """

    def __init__(
        self,
        plan: Path | str,
        *,
        state: Path | str,
        tls: Path | str,
        listen: str = "127.0.0.1:0",
        approvals: Path | str | None = None,
        plugins: Sequence[Path | str] = (),
        said: Said = lambda text: None,
    ) -> None:
        check_libraries()
        for file in plugins:
            admit(Path(file))
        self.credentials = credentials_for("server", Path(tls), said)
        setup = server_setup(Path(plan), self.credentials)
        self._listen, self._said = listen, said
        self.approvals = None
        if approvals is not None:
            self.approvals = gather_approvals(setup.plan, setup.roster, Path(approvals))
            for line in self.approvals.lines():
                said(line)
        self.federation = FederationServer(
            setup, self.credentials.identity, Path(state), lambda text: said(f"warning: {text}")
        )
        self._endpoint: grpc.aio.Server | None = None
        self.address = ""

    async def __aenter__(self) -> Self:
        """Start listening."""
        try:
            self._endpoint, self.address = await serve(self.credentials, self.federation, self._listen)
            write_synced(self.federation.stages[0].folder / "address", self.address.encode())
        except BaseException as error:
            await self.__aexit__(type(error))
            raise
        self._said(f"listening on {self.address}")
        return self

    async def __aexit__(self, stopped: object, *_: object) -> None:
        """Stop listening; all that must last is in the state folder. Answers that are under way are sent first."""
        self.federation.end_calls()
        try:
            if self._endpoint is not None:
                await self._endpoint.stop(grace_of(len(self.credentials.roster.members), stopped))
            if stopped is None:
                self.federation.current.require_disk()
        finally:
            self.federation.close()

    async def run(self) -> Result:
        """Run the plan to its end. Raises SessionAborted if too few members are left."""
        last = await self.last_stage()
        if last.session.outcome is None:
            raise BadInput("the last session has no outcome", remedy="start the server again")
        return Result.of(last.setup, last.session.outcome, last.folder)

    async def last_stage(self) -> Stage:
        """Run the plan to its end, as `run` does; return the last session with its round and folder (`Stage`)."""
        was_over = self.federation.is_over
        try:
            last = await self.federation.run()
        except SessionAborted:
            await self.federation.farewell()
            await asyncio.sleep(FAREWELL_SECONDS)  # who was told last has the answer, and who just comes is told too
            raise
        if was_over:  # an earlier life may have died as it said its last word: who has not heard that asks again
            await asyncio.sleep(FAREWELL_SECONDS)
        return last


class Client:
    """One client of a plan. The constructor reads and checks keys, policy and data before anything is sent.

    `plan`, `policy`, `state`, `tls`, `backbone`, `model` and `plugins` (files) are what `secagg client` takes. `data`
    is what it takes, too, or a data set in memory, or (features (n, d), labels (n,)) with labels that count from 0 or
    are the plan's classes by name. `server` is HOST:PORT, `aggregators` the address of each by its name. `stays`: wait
    for the outcome even where the protection lets a client upload and be gone. `wait`: seconds for the server to be
    there. `decline`: the reason, which may be empty, that others get if this client refuses the plan, or is cancelled,
    before its vector is protected (`send_decline`); by None they get nothing. `reading` is entered while records are
    read, once the plan is accepted, and gives what is told of progress. Start it again over the same state after a
    crash: only the same bytes are ever sent again. Raises BadInput or PlanRefused.
    """

    def __init__(
        self,
        plan: Path | str,
        *,
        server: str,
        data: Path | Source,
        policy: Path | str,
        state: Path | str,
        tls: Path | str,
        backbone: str | None = None,
        model: Path | None = None,
        plugins: Sequence[Path | str] = (),
        aggregators: Mapping[str, str] | None = None,
        stays: bool = True,
        wait: float = LEAST_PATIENCE,
        decline: str | None = None,
        said: Said = lambda text: None,
        reading: Callable[[], AbstractContextManager[Progress | None]] = nullcontext,
    ) -> None:
        for file in plugins:  # a plan's method is found in them by the digest that the plan names; nothing of them runs
            admit(Path(file))
        self.credentials = credentials_for("client", Path(tls), said)
        agreed, self.policy = read_plan(Path(plan)), read_policy(Path(policy))
        admit_listed(model, agreed, self.policy)
        self.setup = RoundSetup.of(agreed, self.credentials.roster)
        self._aggregators = addresses_of(self.setup, aggregators or {})
        self.setup.facts.check(self.policy)
        self.state = Path(state)
        session_folder(self.state, self.setup)
        ledger = open_ledger(self.state)
        self.setup.protection.check_machine()
        ledger.check(release_of(self.setup.facts, self.policy.data_name), self.policy.budget)
        with reading() as progress:
            source = str(data) if isinstance(data, Path) else data
            self.records = read_records(agreed, source, backbone, progress)
        me = LocalParty(self.credentials.index, self.credentials.identity, OperatingSystem())
        self._link = Link(self.credentials, server, patience(self.setup.plan))
        known = ledger.has_uploaded(self.setup.context.round_digest)
        greets = partial(greet, self.credentials, server, wait)
        meet = partial(_meet, self._link, greets, None if known else agreed.digest)
        self.federation = FederationClient(
            self.setup, me, self.policy, ledger, self.state, self.records, meet, said, stays, decline
        )

    async def run(self) -> Result | None:
        """Take part in the plan; return its result, or None if the client leaves after its upload (run again later)."""
        sessions = await self.sessions()
        if not sessions or following_setup(*sessions[-1]) is not None:
            return None
        setup, outcome = sessions[-1]
        return Result.of(setup, outcome, session_folder(self.state, setup))

    async def sessions(self) -> list[tuple[RoundSetup, Outcome]]:
        """Take part until the plan ends, as `run` does; return every session of this client with its outcome."""
        seconds = patience(self.setup.plan)
        async with AsyncExitStack() as links:
            link = await links.enter_async_context(self._link)
            others = await _linked(links, self.credentials, self._aggregators, seconds)
            return await self.federation.run(link, others)

    def stop_declining(self) -> None:
        """Send no `Decline` from now on: for a program that cancels this client and starts it again later."""
        self.federation.decline = None


async def decline_plan(
    plan: Path | str,
    *,
    server: str,
    tls: Path | str,
    state: Path | str,
    aggregators: Mapping[str, str],
    reason: str,
) -> tuple[str, ...]:
    """Decline the first round of a plan that this client has refused; return the names of those that know now.

    Arguments as of `Client`; `reason` may be empty, and has at most `MAX_DECLINE_REASON` characters. Raises BadInput
    for files that cannot be read, for a server that runs another plan, and while another process takes part over the
    same `state`; NotNow where nobody can be reached.
    """
    credentials = credentials_for("client", Path(tls), lambda text: None)
    setup = RoundSetup.of(read_plan(Path(plan)), credentials.roster)
    if (transcript := Path(state) / folder_name(setup.context.round_digest) / FILE_NAME).exists():
        Journal(transcript).close()  # which a process that takes part holds
    me = LocalParty(credentials.index, credentials.identity, OperatingSystem())
    addresses = {SERVER_INDEX: server, **addresses_of(setup, aggregators)}
    await asyncio.to_thread(greet, credentials, server, 0.0)
    async with AsyncExitStack() as links:
        opened = await _linked(links, credentials, addresses, patience(setup.plan))
        await opened[SERVER_INDEX].check_plan(setup.plan.digest)
        return await send_decline(setup, me, reason, opened)


async def _linked(
    links: AsyncExitStack, credentials: Credentials, addresses: Mapping[int, str], seconds: float
) -> dict[int, Link]:
    """Open a link to each of these addresses, by roster index; `links` closes them."""
    return {
        index: await links.enter_async_context(Link(credentials, address, seconds, index))
        for index, address in addresses.items()
    }


def addresses_of(setup: RoundSetup, given: Mapping[str, str]) -> dict[int, str]:
    """Return addresses by aggregator index. Raises BadInput unless `given` names exactly the plan's aggregators."""
    asked = setup.protection.receivers(setup.context) - {SERVER_INDEX}
    names = {setup.roster.name(index): index for index in asked}
    if set(given) != set(names):
        wanted = " ".join(f"--aggregator {name}=HOST:PORT" for name in sorted(names))
        problem = f"the plan's aggregators are {', '.join(sorted(names)) or 'none'}"
        raise BadInput(problem, remedy=f"give {wanted or 'none'}")
    for name, address in given.items():
        if not address.rpartition(":")[0] or not address.rpartition(":")[2].isdigit():
            raise BadInput(f"{address!r} is no address of {name}", remedy="write HOST:PORT")
    return {names[name]: address for name, address in given.items()}


async def _meet(link: Link, greets: Callable[[], object], plan: bytes | None) -> None:
    """Wait for the server, and check that it runs the `plan` (a digest); None skips the check.

    It is skipped once a vector may have left, so that a wrong answer does not end the plan.
    """
    await compute_aside(greets)
    if plan is not None:
        await link.check_plan(plan)
