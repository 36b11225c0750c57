"""A member edits its policy while its client is down: the session goes on, and its transcript stays one chain."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from secagg.agreement.policy import Policy
from secagg.federation import session_folder
from secagg.transcript import FILE_NAME, Journal, peek, read_transcript
from secagg.verification.transcript_series import verify_transcript
from tests.worlds.crashes import Crash
from tests.worlds.federation import FederationRun, SimulatedFederation

MEMBER = 1


class Edited(SimulatedFederation):
    """Members of whom one has another policy from its second start on."""

    def policy(self, member: int) -> Policy:
        """What a member accepts: this plan, at the second start with another line that does not concern it."""
        policy = super().policy(member)
        return replace(policy, repeat_sessions=True) if member == MEMBER and crashed_in(self.state(member)) else policy


def crashed_in(state: Path) -> bool:
    """Whether the client of this folder has died."""
    return (state / "died").exists()


class Restarting(FederationRun):
    """A client that dies is started again."""

    async def _client(self, member: int) -> Any:
        while True:
            try:
                return await super()._client(member)
            except Crash:
                (self.world.state(member) / "died").touch()


def dying_before(step: str, state: Path) -> Callable[[Journal, Any, bytes], None]:
    """An `append` that dies, once, before a frame of the step is written that is remembered already."""
    append = Journal.append

    def appending(journal: Journal, kind: Any, content: bytes) -> None:
        own = state in journal.path.parents and kind == "sent"
        if own and peek(content).step == step and not crashed_in(state):
            raise Crash(step)
        append(journal, kind, content)

    return appending


@pytest.mark.parametrize("step", ["KeyAdvertisement", "UploadHeader", "Opening"])
async def test_edited_policy_leaves_the_transcript_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Killed between remembering a frame and writing it down, with the policy edited meanwhile, a client goes on.

    Its transcript holds the policy under which it joined, every frame follows the head that it states, and verifies.
    """
    waits = {"join_seconds": 30, "step_seconds": 30}
    world = Edited.of(tmp_path, clients=3, refine=0, dropouts=0, **waits)
    monkeypatch.setattr(Journal, "append", dying_before(step, world.state(MEMBER)))
    first = world.policy(MEMBER)
    played = await Restarting(world).run()
    assert world.policy(MEMBER) != first
    transcript = session_folder(world.state(MEMBER), world.setup) / FILE_NAME
    found = verify_transcript(transcript)
    assert found["aggregate_sha256"] == played.server.session.outcome.aggregate_sha256.hex()
    kept = [record.content for record in read_transcript(transcript) if record.kind == "policy"]
    assert kept == [first.to_toml().encode()]
