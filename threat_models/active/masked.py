"""Ways for a server to cheat in a masked session: false or replayed keys, shares, survivor lists and results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.agreement import AgreementKey
from secagg.crypto.envelopes import EnvelopeKey
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.messages import Directory, Endorsement, Inbox, KeyAdvertisement, Quorum, Survivors
from secagg.protection.messages import Outcome
from secagg.randomness import OperatingSystem
from secagg.transcript import FrameBody, payload_of, peek
from secagg.transcript.frames import Frame
from secagg.wire import decode, encode, tag_of
from threat_models.active.consortium import Consortium
from threat_models.active.probe import Attempt, Probe
from threat_models.active.stage import Cheat, play

Change = Callable[[Cheat, int, Any], Any]
"""(server, receiver's index, honest message) → the false message to send, or a whole frame as bytes."""
Frames = Mapping[tuple[int, str], bytes]
"""The server's honest frames, by (receiver's index, step)."""


class At(Cheat):
    """A cheating server that replaces one type of message by a false one, for each client or helper that it targets."""

    def __init__(
        self, consortium: Consortium, message: type, change: Change, targets: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(consortium, targets)
        self._message = message
        self._change = change

    def falsify(self, member: int, body: FrameBody) -> bytes | None:
        if body.step != tag_of(self._message) or member not in self.targets:
            return None
        told = self._change(self, member, payload_of(body, self._message))
        self.deceived.add(member)
        return told if isinstance(told, bytes) else self.say(member, told, body)


def run_cheat(cheat: Callable[[Consortium], Cheat], protection: str = "masked", **choices: Any) -> Attempt:
    """Return a function that runs one session of a new consortium with the cheating server that `cheat` makes."""

    async def attempt(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
        liar = cheat(Consortium.enrol(folder, protection, **choices))
        return liar, await play(liar)

    return attempt


def change_message(message: type, change: Change, protection: str = "masked", **choices: Any) -> Attempt:
    """Return a function that runs a session in which `change` falsifies one type of message to all clients."""
    return run_cheat(lambda consortium: At(consortium, message, change), protection, **choices)


def swapped_keys(cheat: Cheat, member: int, honest: Directory) -> Directory:
    """Replace all other clients' session keys by keys of the server, which signs them itself."""
    context, server = cheat.consortium.setup.context, cheat.consortium.party(SERVER_INDEX)

    def swap(entry: KeyAdvertisement) -> KeyAdvertisement:
        channel, mask = (kind.generate(OperatingSystem()).public for kind in (EnvelopeKey, AgreementKey))
        return bind.sign_advertisement(context, server.identity, replace(entry, channel_key=channel, mask_key=mask))

    return Directory(tuple(entry if entry.member == member else swap(entry) for entry in honest.entries))


def two_alone(cheat: Cheat, member: int, honest: Directory) -> Directory:
    """Return a list of public keys with only the target and one other client, who may collude with the server."""
    other = next(entry for entry in honest.entries if entry.member != member)
    own = next(entry for entry in honest.entries if entry.member == member)
    return Directory(tuple(sorted((own, other), key=lambda entry: entry.member)))


def others_shares(cheat: Cheat, member: int, honest: Inbox) -> Inbox:
    """Replace one encrypted share for the target by zero bytes, which the share's sender never encrypted."""
    first, *rest = honest.shares
    return replace(honest, shares=(replace(first, sealed=bytes(len(first.sealed))), *rest))


def drop_one(members: tuple[int, ...], member: int) -> tuple[int, ...]:
    """Return the clients `members` without the last of them that is not `member`."""
    dropped = next(each for each in reversed(members) if each != member)
    return tuple(each for each in members if each != dropped)


def one_short(cheat: Cheat, member: int, honest: Quorum) -> Quorum:
    """Return one signature too few for opening a sum: with so few, two survivor lists could both be signed.

    These are t − 1 signatures; t is the least number with 2t > n + c, of n clients and c colluders.
    """
    context = cheat.consortium.setup.context
    least = (len(context.identities) + context.colluders) // 2 + 1
    return Quorum(honest.endorsements[: least - 1])


class _SplitView(Cheat):
    """A server that shows each half of the clients another survivor set, and then all of them both sets' signatures.

    Were both sets opened, both shares of the client that is in one of them alone would be known.
    """

    def __init__(self, consortium: Consortium) -> None:
        super().__init__(consortium)
        self._said: dict[int, Endorsement] = {}
        self._all_said = asyncio.Event()

    def falsify(self, member: int, body: FrameBody) -> bytes | None:
        # The smaller set for two of the four; each set by itself is a possible one.
        if body.step == tag_of(Survivors) and member in (2, 3):
            return self.say(member, replace(payload_of(body, Survivors), members=(1, 2, 3)), body)
        return None

    def keeps_back(self, member: int, body: FrameBody) -> bool:
        if body.step != tag_of(Endorsement):
            return False
        self._said[member] = payload_of(body, Endorsement)
        if set(self._said) == set(self.targets):
            self._all_said.set()
        return True

    async def make_up(self, member: int, step: str) -> bytes | None:
        if step != tag_of(Quorum):
            return None
        await self._all_said.wait()
        own = (1, 2, 3) if member in (2, 3) else self.targets  # as many signatures as its set has members, of both
        return self.lie(member, Quorum(tuple(self._said[each] for each in own)))


class _AsksAgain(Cheat):
    """A server that asks for the other kind of shares, with a second survivor set, once the sum has been opened."""

    async def make_up(self, member: int, step: str) -> bytes | None:
        if step != tag_of(Outcome):
            return None
        return self.lie(member, Survivors(drop_one(self.targets, member), bytes(32)))


MASKED = (
    Probe(
        "swapped keys",
        "shows every client keys of its own in the others' names",
        "session keys are signed by their owners' roster identities",
        "are not signed by it",
        change_message(Directory, swapped_keys),
    ),
    Probe(
        "tiny directory",
        "shows every client a directory of two",
        "fewer clients than must sign are no session",
        "the directory has only 2 clients",
        change_message(Directory, two_alone),
    ),
    Probe(
        "invented shares",
        "relays a share that its dealer never sealed",
        "every sealed share is signed by its dealer",
        "did not sign for this client",
        change_message(Inbox, others_shares),
    ),
    Probe(
        "single survivor",
        "asks every client to open a sum of its own vector alone",
        "the least number of survivors follows from the plan",
        "asks to open the sum of 1 clients",
        change_message(Survivors, lambda cheat, member, honest: replace(honest, members=(member,))),
    ),
    Probe(
        "two survivor sets",
        "shows two halves of the clients two sets, and all of them both sets' signatures",
        "a client opens only what a quorum has signed, for its own set",
        "on another set",
        run_cheat(_SplitView),
    ),
    Probe(
        "second survivor set",
        "shows another set to clients that have signed one",
        "a client signs one set of a session, ever",
        "Quorum is awaited",
        change_message(
            Quorum,
            lambda cheat, member, honest: Survivors(drop_one(cheat.consortium.roster.clients, member), bytes(32)),
        ),
    ),
    Probe(
        "one signature",
        "shows one signature in place of a quorum",
        "openings need signatures of more than half of honest clients and colluders",
        "signatures that an opening needs",
        change_message(Quorum, lambda cheat, member, honest: Quorum(honest.endorsements[:1])),
    ),
    Probe(
        "one signature short",
        "shows one signature fewer than keep two sets from being signed",
        "openings need signatures of more than half of honest clients and colluders",
        "signatures that an opening needs",
        change_message(Quorum, one_short),
    ),
    Probe(
        "both shares",
        "asks clients that have opened one kind of share for the other kind",
        "after the opening every share is forgotten",
        "Outcome is awaited",
        run_cheat(_AsksAgain),
    ),
    Probe(
        "other members",
        "announces a sum over other clients than were opened",
        "the outcome must name the set that the client opened",
        "names other clients than those that were opened",
        change_message(
            Outcome, lambda cheat, member, honest: replace(honest, members=drop_one(honest.members, member))
        ),
    ),
)


def old_frame(old: Frames, cheat: Cheat, member: int, honest: Survivors) -> bytes:
    """Return the server's signed survivor list of an earlier session with the same survivors as now."""
    return old[member, tag_of(Survivors)]


def old_frame_moved(old: Frames, cheat: Cheat, member: int, honest: Survivors) -> bytes:
    """Write this session's digest into a signed message of an earlier one, as an interceptor without keys could."""
    frame = decode(Frame, old[member, tag_of(Survivors)])
    moved = replace(decode(FrameBody, frame.body), round_digest=cheat.consortium.setup.context.round_digest)
    return encode(replace(frame, body=encode(moved)))


def old_keys(old: Frames, cheat: Cheat, member: int, honest: Directory) -> Directory:
    """Return the other clients' genuine signed keys of an earlier session; their private keys may be known by now."""
    own = [entry for entry in honest.entries if entry.member == member]
    told = payload_of(peek(old[member, tag_of(Directory)]), Directory)
    others = [entry for entry in told.entries if entry.member != member]
    return Directory(tuple(sorted([*own, *others], key=lambda entry: entry.member)))


def in_second_session(message: type, change: Callable[..., Any]) -> Attempt:
    """Return a function that cheats in a second session, where `change` may use the messages of the first session."""

    async def attempt(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
        consortium = Consortium.enrol(folder, "masked")
        honest = Cheat(consortium)
        await play(honest)
        allowed = replace(consortium.again(), policy=replace(consortium.policy, repeat_sessions=True))
        liar = At(allowed, message, partial(change, honest.told))
        return liar, await play(liar)

    return attempt


SIGNED = "the server speaks in signed frames, bound to plan, session and receiver"
REPLAYS = (
    Probe(
        "replayed frames",
        "tells what it told in an earlier session",
        SIGNED,
        "belongs to another session or plan",
        in_second_session(Survivors, old_frame),
    ),
    Probe(
        "forged header",
        "writes this session's digest into a frame of an earlier one",
        SIGNED,
        "is not signed by its identity",
        in_second_session(Survivors, old_frame_moved),
    ),
    Probe(
        "replayed advertisement",
        "shows every client the others' keys of an earlier session, as their owners signed them then",
        "session keys are signed for one plan and session",
        "are not signed by it",
        in_second_session(Directory, old_keys),
    ),
)
