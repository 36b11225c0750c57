"""Ways to cheat in a masked session: keys, shares, survivor sets, openings, the frames around them, and old frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.agreement import AgreementKey
from secagg.protection.masking import binding as bind
from secagg.protection.masking.messages import Directory, Endorsement, Inbox, KeyAdvertisement, Quorum, Survivors
from secagg.protection.messages import Outcome
from secagg.randomness import OperatingSystem
from secagg.transcript import FrameBody, payload_of, peek
from secagg.transcript.frames import Frame
from secagg.wire import decode, encode
from threat_models.active.consortium import Consortium
from threat_models.active.probe import Attempt, Probe
from threat_models.active.stage import Cheat, play

Change = Callable[[Cheat, int, Any], Any]


class At(Cheat):
    """Tells every target something else than the honest message of one class."""

    def __init__(self, consortium: Consortium, message: type, change: Change) -> None:
        super().__init__(consortium)
        self._message = message
        self._change = change

    def falsify(self, member: int, body: FrameBody) -> bytes | None:
        """Another message in the honest one's place."""
        if body.step != self._message.__name__ or member not in self.targets:
            return None
        return self.lie(member, self._change(self, member, payload_of(body, self._message)), body)


def change_message(
    message: type, change: Change, protection: str = "masked", cheat: type[At] = At, **choices: Any
) -> Attempt:
    """An attempt that changes one message of the server."""

    async def attempt(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
        liar = cheat(Consortium.enrol(folder, protection, **choices), message, change)
        return liar, await play(liar)

    return attempt


def swapped_keys(cheat: Cheat, member: int, honest: Directory) -> Directory:
    """The server's own keys in the other members' names, signed by the server."""
    context, server = cheat.consortium.setup.context, cheat.consortium.party(SERVER_INDEX)

    def swap(entry: KeyAdvertisement) -> KeyAdvertisement:
        channel, mask = (AgreementKey.generate(OperatingSystem()).public for _ in range(2))
        return bind.sign_advertisement(context, server.identity, replace(entry, channel_key=channel, mask_key=mask))

    return Directory(tuple(entry if entry.member == member else swap(entry) for entry in honest.entries))


def two_alone(cheat: Cheat, member: int, honest: Directory) -> Directory:
    """A directory of the target and one other client, who would collude."""
    other = next(entry for entry in honest.entries if entry.member != member)
    own = next(entry for entry in honest.entries if entry.member == member)
    return Directory(tuple(sorted((own, other), key=lambda entry: entry.member)))


def others_shares(cheat: Cheat, member: int, honest: Inbox) -> Inbox:
    """A share that another dealer never sealed."""
    first, *rest = honest.shares
    return replace(honest, shares=(replace(first, sealed=bytes(len(first.sealed))), *rest))


def single_survivor(cheat: Cheat, member: int, honest: Survivors) -> Survivors:
    """The target's own vector as the whole sum."""
    return Survivors((member,))


def drop_one(members: tuple[int, ...], member: int) -> tuple[int, ...]:
    """A smaller set that still holds `member`."""
    dropped = next(each for each in reversed(members) if each != member)
    return tuple(each for each in members if each != dropped)


def too_few(cheat: Cheat, member: int, honest: Quorum) -> Quorum:
    """One signature in place of a quorum."""
    return Quorum(honest.endorsements[:1])


def one_short(cheat: Cheat, member: int, honest: Quorum) -> Quorum:
    """One signature fewer than t, the least with 2t > n + c: two sets could then both be signed."""
    context = cheat.consortium.setup.context
    least = (len(context.identities) + context.colluders) // 2 + 1
    return Quorum(honest.endorsements[: least - 1])


def second_set(cheat: Cheat, member: int, honest: Quorum) -> Survivors:
    """Another survivor set, to one that has signed the first."""
    return Survivors(drop_one(cheat.consortium.roster.clients, member))


def other_members(cheat: Cheat, member: int, honest: Outcome) -> Outcome:
    """A sum over other clients than those that were opened."""
    return replace(honest, members=drop_one(honest.members, member))


class SplitView(Cheat):
    """Shows half of the clients one survivor set and half another, and every signature to all.

    Were both sets opened, both shares of the client that is in one of them alone would be known.
    """

    def __init__(self, consortium: Consortium) -> None:
        super().__init__(consortium)
        self._said: dict[int, Endorsement] = {}
        self._all_said = asyncio.Event()

    def falsify(self, member: int, body: FrameBody) -> bytes | None:
        """The smaller set for two of the four; each set by itself is a possible one."""
        if body.step == Survivors.__name__ and member in (2, 3):
            return self.say(member, Survivors((1, 2, 3)), body)
        return None

    def keeps_back(self, member: int, body: FrameBody) -> bool:
        """The signatures are the cheat's."""
        if body.step != Endorsement.__name__:
            return False
        self._said[member] = payload_of(body, Endorsement)
        if set(self._said) == set(self.targets):
            self._all_said.set()
        return True

    async def make_up(self, member: int, step: str) -> bytes | None:
        """As many signatures as the target's set has members, of both sets."""
        if step != Quorum.__name__:
            return None
        await self._all_said.wait()
        own = (1, 2, 3) if member in (2, 3) else self.targets
        return self.lie(member, Quorum(tuple(self._said[each] for each in own)))


class AsksAgain(Cheat):
    """Lets the sum be opened, and then asks for the shares of the other kind with a second survivor set."""

    async def make_up(self, member: int, step: str) -> bytes | None:
        """The second set where the outcome is due: after the opening."""
        if step != Outcome.__name__:
            return None
        return self.lie(member, Survivors(drop_one(self.targets, member)))


def run_cheat(cheat: Callable[[Consortium], Cheat], protection: str = "masked", **choices: Any) -> Attempt:
    """An attempt of one session with this server."""

    async def attempt(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
        liar = cheat(Consortium.enrol(folder, protection, **choices))
        return liar, await play(liar)

    return attempt


MASKED = (
    Probe(
        "swapped keys",
        "masked",
        "shows every client keys of its own in the others' names",
        "session keys are signed by their owners' roster identities",
        "are not signed by it",
        change_message(Directory, swapped_keys),
    ),
    Probe(
        "tiny directory",
        "masked",
        "shows every client a directory of two",
        "fewer clients than must sign are no session",
        "the directory has only 2 clients",
        change_message(Directory, two_alone),
    ),
    Probe(
        "invented shares",
        "masked",
        "relays a share that its dealer never sealed",
        "every sealed share is signed by its dealer",
        "did not sign for this client",
        change_message(Inbox, others_shares),
    ),
    Probe(
        "single survivor",
        "masked",
        "asks every client to open a sum of its own vector alone",
        "the least number of survivors follows from the plan",
        "asks to open the sum of 1 clients",
        change_message(Survivors, single_survivor),
    ),
    Probe(
        "two survivor sets",
        "masked",
        "shows two halves of the clients two sets, and all of them both sets' signatures",
        "a client opens only what a quorum has signed, for its own set",
        "on another set",
        run_cheat(SplitView),
    ),
    Probe(
        "second survivor set",
        "masked",
        "shows another set to clients that have signed one",
        "a client signs one set of a session, ever",
        "Quorum is awaited",
        change_message(Quorum, second_set),
    ),
    Probe(
        "one signature",
        "masked",
        "shows one signature in place of a quorum",
        "openings need signatures of more than half of honest clients and colluders",
        "signatures that an opening needs",
        change_message(Quorum, too_few),
    ),
    Probe(
        "one signature short",
        "masked",
        "shows one signature fewer than keep two sets from being signed",
        "openings need signatures of more than half of honest clients and colluders",
        "signatures that an opening needs",
        change_message(Quorum, one_short),
    ),
    Probe(
        "both shares",
        "masked",
        "asks clients that have opened one kind of share for the other kind",
        "after the opening every share is forgotten",
        "Outcome is awaited",
        run_cheat(AsksAgain),
    ),
    Probe(
        "other members",
        "masked",
        "announces a sum over other clients than were opened",
        "the outcome must name the set that the client opened",
        "names other clients than those that were opened",
        change_message(Outcome, other_members),
    ),
)


class Forged(Cheat):
    """Changes frames without the server's key, as somebody between the parties would: any byte of header or payload."""

    def __init__(self, consortium: Consortium, old: Mapping[tuple[int, str], bytes]) -> None:
        super().__init__(consortium)
        self._old = old

    def falsify(self, member: int, body: FrameBody) -> bytes | None:
        """The survivors of the earlier session, with this session's digest written over it."""
        if body.step != Survivors.__name__:
            return None
        frame = decode(Frame, self._old[member, body.step])
        moved = replace(decode(FrameBody, frame.body), plan=body.plan)
        self.deceived.add(member)
        return encode(replace(frame, body=encode(moved)))


class Replayed(Forged):
    """Tells what it told in an earlier session of the same members."""

    def falsify(self, member: int, body: FrameBody) -> bytes | None:
        """The survivors of the earlier session; they are the same."""
        if body.step != Survivors.__name__:
            return None
        self.deceived.add(member)
        return self._old[member, body.step]


class OldKeys(Forged):
    """Shows the others' advertisements of the earlier session: genuine, but an adversary may have these keys since."""

    def falsify(self, member: int, body: FrameBody) -> bytes | None:
        """The target's own keys of this session, and all others' of the earlier one."""
        if body.step != Directory.__name__:
            return None
        old = payload_of(peek(self._old[member, body.step]), Directory)
        now = payload_of(body, Directory)
        own = tuple(entry for entry in now.entries if entry.member == member)
        others = tuple(entry for entry in old.entries if entry.member != member)
        return self.lie(member, Directory(tuple(sorted((*own, *others), key=lambda entry: entry.member))), body)


def in_second_session(cheat: Callable[[Consortium, Mapping[tuple[int, str], bytes]], Cheat]) -> Attempt:
    """An attempt in a second session; the policy allows it."""

    async def attempt(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
        consortium = Consortium.enrol(folder, "masked")
        honest = Cheat(consortium)
        await play(honest)
        allowed = replace(consortium.again(), policy=replace(consortium.policy, repeat_sessions=True))
        liar = cheat(allowed, honest.told)
        return liar, await play(liar)

    return attempt


SIGNED = "the server speaks in signed frames, bound to plan, session and receiver"
REPLAYS = (
    Probe(
        "replayed frames",
        "masked",
        "tells what it told in an earlier session",
        SIGNED,
        "belongs to another session or plan",
        in_second_session(Replayed),
    ),
    Probe(
        "forged header",
        "masked",
        "writes this session's digest into a frame of an earlier one",
        SIGNED,
        "is not signed by its identity",
        in_second_session(Forged),
    ),
    Probe(
        "replayed advertisement",
        "masked",
        "shows every client the others' keys of an earlier session, as their owners signed them then",
        "session keys are signed for one plan and session",
        "are not signed by it",
        in_second_session(OldKeys),
    ),
)
