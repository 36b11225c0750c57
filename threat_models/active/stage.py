"""A cheating server behind a real gRPC endpoint, and the real parties that call it over mutual TLS."""

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
"""Seconds for which a party goes on asking a server that sends nothing valid."""
LISTEN = "127.0.0.1:0"


class Cheat:
    """A server that is honest except for the signed messages (frames) that a subclass falsifies, invents or withholds.

    The gRPC endpoint hands it every call. `targets` are the parties to deceive, by default the clients; `server` is the
    honest server behind it, set by `play`. `deceived` are the parties that were lied to; `answered` maps those of them
    that then sent anything but an abort to the step: whoever answers a lie was not protected from it. `told` are the
    honest frames, by receiver and step.
    """

    server: FederationServer

    def __init__(self, consortium: Consortium, targets: tuple[int, ...] | None = None) -> None:
        self.consortium = consortium
        self.targets = consortium.clients if targets is None else targets
        self.deceived: set[int] = set()
        self.answered: dict[int, str] = {}
        self.told: dict[tuple[int, str], bytes] = {}
        self.went_along = asyncio.Event()
        self._made_up: dict[bytes, Path] = {}
        self._identity = consortium.credentials(SERVER_INDEX).identity

    def falsify(self, member: int, body: FrameBody) -> bytes | None:
        """Return a false frame (signed message) to send instead of the honest `body`; None to send the honest one."""
        return None

    async def make_up(self, member: int, step: str) -> bytes | None:
        """Return a frame (signed message) to send where the honest server sends none at this step, or None."""
        return None

    def keeps_back(self, member: int, body: FrameBody) -> bool:
        """Return whether to withhold a party's frame (signed message) from the honest server behind this one."""
        return False

    def say(self, member: int, message: Any, body: FrameBody | None = None) -> bytes:
        """Return a message as a frame signed by the server; it replaces the frame `body`, if one is given."""
        plan = body.round_digest if body is not None else self.consortium.setup.context.round_digest
        head = body.head if body is not None else NOT_SEEN
        return sign_frame(self._identity, make_body(plan, SERVER_INDEX, member, head, NOT_SEEN, message))

    def lie(self, member: int, message: Any, body: FrameBody | None = None) -> bytes:
        """Return a false message as a signed frame, and record that its receiver is deceived."""
        self.deceived.add(member)
        return self.say(member, message, body)

    def attach(self, content: bytes) -> Attachment:
        """Offer false bytes for download by the parties; return the attachment (length and digest) that names them."""
        named = Attachment.of(content)
        self._made_up[named.digest] = self.consortium.folder / named.digest.hex()
        self._made_up[named.digest].write_bytes(content)
        return named

    def broadcast_of(self, honest: Outcome) -> bytes:
        """Return the bytes by which the honest server opens the next round; b"" if this outcome is the last round's."""
        opened = [stage.setup.opening for stage in self.server.stages]
        named = [each for each in opened if each is not None and each.broadcast == honest.opens]
        return read_opening(self.consortium.state(SERVER_INDEX), named[0]) if named else b""

    def hear(self, member: int, frame: bytes) -> None:
        """Record the protocol step of a deceived party's answer, unless it is an abort."""
        step = peek(frame).step
        if member in self.deceived and step != tag_of(Abort):
            self.answered[member] = step
            self.went_along.set()

    async def submit(self, member: int, frame: bytes) -> bytes:
        """Pass a party's frame (signed message) on to the honest server, unless `keeps_back` withholds it."""
        self.hear(member, frame)
        if self.keeps_back(member, peek(frame)):
            return b""
        return await self.server.submit(member, frame)

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Pass a client's uploaded vector on to the honest server, and return its answer."""
        self.hear(member, frame)
        return await self.server.upload(member, frame, parts)

    async def fetch(self, member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
        """Return the frame (signed message) that a party awaits at this step: an honest or a false one."""
        made_up = await self.make_up(member, step)
        if made_up is not None:
            return made_up
        frame = await self.server.fetch(member, round_digest, step, patience)
        if not frame:
            return frame
        body = peek(frame)
        self.told[member, body.step] = frame
        return self.falsify(member, body) or frame

    async def read(self, member: int, round_digest: bytes, digest: bytes) -> Path:
        """Return the path of the file with this digest: a false attachment, or else the honest server's."""
        return self._made_up.get(digest) or await self.server.read(member, round_digest, digest)


class Everyone(Cheat):
    """An honest server with all clients and helpers as its targets, so that `play` returns how each of them ended."""

    def __init__(self, consortium: Consortium) -> None:
        super().__init__(consortium, (*consortium.clients, *consortium.helpers))


class _Offer(Cheat):
    """A server that only waits: its plan is the lie, and any frame of a client counts as an answer to it."""

    def __init__(self, consortium: Consortium) -> None:
        super().__init__(consortium)
        self.deceived = set(self.targets)

    async def submit(self, member: int, frame: bytes) -> bytes:
        self.hear(member, frame)
        return b""

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        return await self.submit(member, frame)

    async def fetch(self, member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
        await asyncio.sleep(patience)
        return None

    async def read(self, member: int, round_digest: bytes, digest: bytes) -> Path:
        raise NotNow("there is nothing")


class _Overheard:
    """An aggregator whose endpoint notes what deceived clients send to it, as an answer to the lie."""

    def __init__(self, helper: FederationHelper, cheat: Cheat) -> None:
        self._helper, self._cheat = helper, cheat
        self.submit, self.fetch, self.read = helper.submit, helper.fetch, helper.read

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Take a share as the aggregator does."""
        self._cheat.hear(member, frame)
        return await self._helper.upload(member, frame, parts)


def ignore(text: str) -> None:
    """Discard a progress message."""


async def play(cheat: Cheat, helper: Callable[..., FederationHelper] = FederationHelper) -> Mapping[int, str]:
    """Run a whole plan; return, for each target, the error message of its refusal, or "" if it received an outcome.

    The run is over early when anyone answers a lie; targets that have not ended by then are missing. `helper` makes an
    aggregator or key holder from setup, party, state folder and listener, as `FederationHelper` does.
    """
    consortium, addresses = cheat.consortium, {}
    setup = consortium.setup
    identity = consortium.credentials(SERVER_INDEX).identity
    server = cheat.server = FederationServer(setup, identity, consortium.state(SERVER_INDEX), ignore)
    async with AsyncExitStack() as stack:
        stack.callback(server.close)
        address = await _listen(stack, consortium, SERVER_INDEX, cheat)
        work: dict[int, Coroutine[Any, Any, Any]] = {SERVER_INDEX: server.run()}
        for member in consortium.helpers:
            party = helper(setup, consortium.party(member), consortium.state(member), ignore)
            if member in setup.protection.receivers(setup.context):
                addresses[member] = await _listen(stack, consortium, member, _Overheard(party, cheat))
            work[member] = _helper(consortium, party, member, address)
        work |= {member: _client(consortium, member, address, addresses) for member in consortium.clients}
        return await _endings(cheat, work)


async def offer(consortium: Consortium) -> tuple[Cheat, Mapping[int, str]]:
    """Offer clients a plan that they must refuse; return the test server and each client's error message."""
    cheat = _Offer(consortium)
    async with AsyncExitStack() as stack:
        address = await _listen(stack, consortium, SERVER_INDEX, cheat)
        work = {member: _client(consortium, member, address, {}) for member in cheat.targets}
        return cheat, await _endings(cheat, work)


async def _listen(stack: AsyncExitStack, consortium: Consortium, member: int, coordinator: Coordinator) -> str:
    endpoint, address = await serve(consortium.credentials(member), coordinator, LISTEN)
    stack.push_async_callback(endpoint.stop, 1.0)
    return address


async def _endings(cheat: Cheat, work: Mapping[int, Coroutine[Any, Any, Any]]) -> Mapping[int, str]:
    """Await how each target ends, until all of them have ended or one has answered a lie; cancel the others."""
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
    """Stand in for the call with which a client first greets its server, and do nothing."""


def take_plan(consortium: Consortium, member: int) -> FederationClient:
    """Check a plan as `secagg` does before a client connects, and return the client. Raises the error of a refusal."""
    setup, policy = RoundSetup.of(consortium.plan, consortium.credentials(member).roster), consortium.policy
    setup.facts.check(policy)
    state, me, records = consortium.state(member), consortium.party(member), consortium.records(member)
    ledger = Ledger(state)
    client = FederationClient(setup, me, policy, ledger, state, records, at_once, ignore)
    ledger.check(client.release, policy.budget)
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


async def _helper(consortium: Consortium, party: FederationHelper, member: int, server: str) -> None:
    async with Link(consortium.credentials(member), server, LINK_PATIENCE) as link:
        await party.run(link)


async def _ending(work: Any) -> str:
    """Return why a party ended; "" when it ended well."""
    try:
        async with asyncio.timeout(PATIENCE):
            await work
    except SecaggError as error:
        return str(error)
    except TimeoutError:
        return f"neither an outcome nor a refusal within {PATIENCE:.0f} s"
    return ""
