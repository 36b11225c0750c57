"""Ways to cheat with what was said in an earlier session of the same members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from secagg.protection.masking.messages import Directory, Survivors
from secagg.transcript import FrameBody, payload_of, peek
from secagg.transcript.frames import Frame
from secagg.wire import decode, encode, tag_of
from threat_models.active.consortium import Consortium
from threat_models.active.probe import Attempt, Probe
from threat_models.active.stage import Cheat, play


class Forged(Cheat):
    """Changes frames without the server's key, as somebody between the parties would: any byte of header or payload."""

    def __init__(self, consortium: Consortium, old: Mapping[tuple[int, str], bytes]) -> None:
        super().__init__(consortium)
        self._old = old

    def falsify(self, member: int, body: FrameBody) -> bytes | None:
        """The survivors of the earlier session, with this session's digest written over it."""
        if body.step != tag_of(Survivors):
            return None
        frame = decode(Frame, self._old[member, body.step])
        moved = replace(decode(FrameBody, frame.body), round_digest=body.round_digest)
        self.deceived.add(member)
        return encode(replace(frame, body=encode(moved)))


class Replayed(Forged):
    """Tells what it told in an earlier session of the same members."""

    def falsify(self, member: int, body: FrameBody) -> bytes | None:
        """The survivors of the earlier session; they are the same."""
        if body.step != tag_of(Survivors):
            return None
        self.deceived.add(member)
        return self._old[member, body.step]


class OldKeys(Forged):
    """Shows the others' advertisements of the earlier session: genuine, and whoever took these keys then has them."""

    def falsify(self, member: int, body: FrameBody) -> bytes | None:
        """The target's own keys of this session, and all others' of the earlier one."""
        if body.step != tag_of(Directory):
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
