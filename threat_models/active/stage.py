"""A server that cheats, behind a real endpoint, and the real parties that call it over mutual TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import NotNow, SecaggError
from secagg.federation import FederationClient, FederationHelper, FederationServer
from secagg.ledger import Ledger
from secagg.protection.messages import Abort, Attachment, Outcome
from secagg.session import RoundSetup
from secagg.session.attachments import read_opening
from secagg.transcript import NOT_SEEN, FrameBody, make_body, peek, sign_frame
from secagg.transport import Coordinator, Link, serve
from secagg.wire import tag_of
from threat_models.active.consortium import Consortium

PATIENCE = 60.0
"""Seconds after which a party that neither ends nor refuses is given up."""
LINK_PATIENCE = 1.0
"""Seconds for which a party goes on asking a server that says nothing valid."""
LISTEN = "127.0.0.1:0"


class Cheat:
    """An honest server, but for what a subclass falsifies, makes up or keeps back. It is the endpoint's coordinator.

    `deceived` are the parties that were lied to, `answered` those of them that then said anything but that they leave,
    with the step: whoever answers a lie was not protected from it. `told` are the honest frames that were due.
    """

    def __init__(self, consortium: Consortium) -> None:
        self.consortium = consortium
        self.server: FederationServer | None = None
        self.deceived: set[int] = set()
        self.answered: dict[int, str] = {}
        self.told: dict[tuple[int, str], bytes] = {}
        self.went_along = asyncio.Event()
        self._made_up: dict[bytes, Path] = {}
        self._identity = consortium.credentials(SERVER_INDEX).identity

    @property
    def targets(self) -> tuple[int, ...]:
        """The parties to deceive."""
        return self.consortium.clients

    def falsify(self, member: int, body: FrameBody) -> bytes | None:
        """The frame to send in place of an honest one; None: the honest one."""
        return None

    async def make_up(self, member: int, step: str) -> bytes | None:
        """A frame that no honest server would have told; None: there is none."""
        return None

    def keeps_back(self, member: int, body: FrameBody) -> bool:
        """Whether a party's frame never reaches the honest part of the server."""
        return False

    def say(self, member: int, message: Any, body: FrameBody | None = None) -> bytes:
        """A message as a signed frame, in place of another one's `body` where given."""
        plan = body.round_digest if body is not None else self.consortium.setup.context.round_digest
        head = body.head if body is not None else NOT_SEEN
        return sign_frame(self._identity, make_body(plan, SERVER_INDEX, member, head, NOT_SEEN, message))

    def lie(self, member: int, message: Any, body: FrameBody | None = None) -> bytes:
        """The same, of what an honest party must refuse."""
        self.deceived.add(member)
        return self.say(member, message, body)

    def attach(self, content: bytes) -> Attachment:
        """Offer bytes that no honest server would show to the parties that fetch them."""
        named = Attachment.of(content)
        self._made_up[named.digest] = self.consortium.folder / named.digest.hex()
        self._made_up[named.digest].write_bytes(content)
        return named

    def broadcast_of(self, honest: Outcome) -> bytes:
        """The broadcast with which the honest server opens the round after this outcome; empty after the last."""
        opened = [stage.setup.opening for stage in self._honest.stages]
        named = [each for each in opened if each is not None and each.broadcast == honest.opens]
        return read_opening(self.consortium.state(SERVER_INDEX), named[0]) if named else b""

    def hear(self, member: int, frame: bytes) -> None:
        """Note who answers a lie."""
        step = peek(frame).step
        if member in self.deceived and step != tag_of(Abort):
            self.answered[member] = step
            self.went_along.set()

    async def submit(self, member: int, frame: bytes) -> bytes:
        """Take a frame as the server does."""
        self.hear(member, frame)
        if self.keeps_back(member, peek(frame)):
            return b""
        return await self._honest.submit(member, frame)

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Take a vector as the server does."""
        self.hear(member, frame)
        return await self._honest.upload(member, frame, parts)

    async def fetch(self, member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
        """Tell a party what is due, or something else."""
        made_up = await self.make_up(member, step)
        if made_up is not None:
            return made_up
        frame = await self._honest.fetch(member, round_digest, step, patience)
        if not frame:
            return frame
        body = peek(frame)
        self.told[member, body.step] = frame
        return self.falsify(member, body) or frame

    async def read(self, member: int, round_digest: bytes, digest: bytes) -> Path:
        """Show what was made up, and else what the server does."""
        return self._made_up.get(digest) or await self._honest.read(member, round_digest, digest)

    @property
    def _honest(self) -> FederationServer:
        if self.server is None:
            raise RuntimeError("the cheat has no server to cheat with")
        return self.server


class Everyone(Cheat):
    """Honest to all; what becomes of the helpers is looked at, too."""

    @property
    def targets(self) -> tuple[int, ...]:
        """Every client and helper."""
        return (*self.consortium.clients, *self.consortium.seconds)


class Offer(Cheat):
    """Says nothing. Its plan is the lie, and any word of a client is one too many."""

    def __init__(self, consortium: Consortium) -> None:
        super().__init__(consortium)
        self.deceived = set(self.targets)

    async def submit(self, member: int, frame: bytes) -> bytes:
        """Take a frame."""
        self.hear(member, frame)
        return b""

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Take a vector."""
        return await self.submit(member, frame)

    async def fetch(self, member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
        """There is nothing to tell."""
        await asyncio.sleep(patience)
        return None

    async def read(self, member: int, round_digest: bytes, digest: bytes) -> Path:
        """There is nothing to show. Raises NotNow."""
        raise NotNow("there is nothing")


class Overheard:
    """An aggregator's coordinator: what clients say to it is an answer, too."""

    def __init__(self, second: FederationHelper, cheat: Cheat) -> None:
        self._second = second
        self._cheat = cheat
        self.submit = second.submit
        self.fetch = second.fetch
        self.read = second.read

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Take a share as the aggregator does."""
        self._cheat.hear(member, frame)
        return await self._second.upload(member, frame, parts)


def ignore(text: str) -> None:
    """Progress of parties that nobody watches."""


async def play(cheat: Cheat, second: Callable[..., FederationHelper] = FederationHelper) -> Mapping[int, str]:
    """Run a plan from beginning to end; return how it ended for each target: its refusal, "" where it has an outcome.

    It is over early when anyone answers a lie. `second` makes an aggregator or key holder.
    """
    consortium, addresses = cheat.consortium, {}
    setup = consortium.setup
    server = cheat.server = FederationServer(
        setup, consortium.credentials(SERVER_INDEX).identity, consortium.state(SERVER_INDEX), ignore
    )
    async with AsyncExitStack() as stack:
        stack.callback(server.close)
        address = await _listen(stack, consortium, SERVER_INDEX, cheat)
        work: dict[int, Coroutine[Any, Any, Any]] = {SERVER_INDEX: server.run()}
        for member in consortium.seconds:
            party = second(setup, consortium.party(member), consortium.state(member), ignore)
            if member in setup.protection.receivers(setup.context):
                addresses[member] = await _listen(stack, consortium, member, Overheard(party, cheat))
            work[member] = _second(consortium, party, member, address)
        work |= {member: _client(consortium, member, address, addresses) for member in consortium.clients}
        return await _endings(cheat, work)


async def offer(cheat: Cheat) -> Mapping[int, str]:
    """Give the clients a plan that none of them may take. The endpoint answers nothing: any word is one too many."""
    async with AsyncExitStack() as stack:
        address = await _listen(stack, cheat.consortium, SERVER_INDEX, cheat)
        return await _endings(cheat, {each: _client(cheat.consortium, each, address, {}) for each in cheat.targets})


async def _listen(stack: AsyncExitStack, consortium: Consortium, member: int, coordinator: Coordinator) -> str:
    endpoint, address = await serve(consortium.credentials(member), coordinator, LISTEN)
    stack.push_async_callback(endpoint.stop, 1.0)
    return address


async def _endings(cheat: Cheat, work: Mapping[int, Coroutine[Any, Any, Any]]) -> Mapping[int, str]:
    """Await the targets' endings, until all of them have ended or one has answered a lie; give the others up."""
    tasks = {member: asyncio.ensure_future(_ending(each)) for member, each in work.items()}
    over = asyncio.ensure_future(cheat.went_along.wait())
    all_ended = asyncio.ensure_future(asyncio.wait([tasks[member] for member in cheat.targets]))
    either: set[asyncio.Future[Any]] = {all_ended, over}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return {member: tasks[member].result() for member in cheat.targets if tasks[member].done()}
    finally:
        pending: set[asyncio.Future[Any]] = either.union(tasks.values())
        while pending:  # a call that ends just then takes the cancellation for the peer's, and is tried again
            for task in pending:
                task.cancel()
            _, pending = await asyncio.wait(pending, timeout=0.05)


async def at_once() -> None:
    """Greet nobody: the server is there, or is waited for."""


def take_plan(consortium: Consortium, member: int) -> FederationClient:
    """Check a plan as a client does before it connects, in the order of the command. Raises what it refuses with."""
    setup = RoundSetup.of(consortium.plan, consortium.credentials(member).roster)
    setup.facts.check(consortium.policy)
    ledger, state = Ledger(consortium.state(member)), consortium.state(member)
    records = consortium.records(member)
    client = FederationClient(
        setup, consortium.party(member), consortium.policy, ledger, state, records, at_once, ignore
    )
    ledger.check(client.release, consortium.policy.budget)
    return client


async def _client(consortium: Consortium, member: int, server: str, aggregators: Mapping[int, str]) -> None:
    client = take_plan(consortium, member)
    credentials = consortium.credentials(member)
    async with AsyncExitStack() as links:
        link = await links.enter_async_context(Link(credentials, server, LINK_PATIENCE))
        others = {
            index: await links.enter_async_context(Link(credentials, address, LINK_PATIENCE, index))
            for index, address in aggregators.items()
        }
        await client.run(link, others)


async def _second(consortium: Consortium, party: FederationHelper, member: int, server: str) -> None:
    async with Link(consortium.credentials(member), server, LINK_PATIENCE) as link:
        await party.run(link)


async def _ending(work: Any) -> str:
    """Why a party ended; "" when it ended well."""
    try:
        async with asyncio.timeout(PATIENCE):
            await work
    except SecaggError as error:
        return str(error)
    except TimeoutError:
        return f"neither an outcome nor a refusal within {PATIENCE:.0f} s"
    return ""
