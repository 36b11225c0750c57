"""Under the masked protection clients open the sums that they are shown: a server that tells false ones is refused."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import secagg.session.server_session as server_module
from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Integers
from secagg.errors import MalformedMessage, ProtocolViolation, SessionAborted
from secagg.federation import session_folder
from secagg.protection.masking import server as masking_server
from secagg.protection.masking import unmasking
from secagg.protection.masking.messages import Unmasking
from secagg.protection.masking.tags import no_words, pack_total
from secagg.protection.messages import Attachment, Outcome
from secagg.protection.proven_bits import PROVEN_CENSUS
from secagg.session.attachments import SUM_FILE
from secagg.session.outcome import conclude, open_sum, unpack_sum
from secagg.session.purging import purge, purge_sum
from secagg.session.release import open_release
from secagg.transcript import FILE_NAME, payload_of, peek, read_transcript, sign_frame
from secagg.verification.transcript_series import verify_together
from secagg.verification.verification import NOTHING_BROUGHT, Verified
from secagg.wire import decode, encode
from tests.federation.test_gate import EXACT, LONELY, gated, held
from tests.worlds.federation import FederationRun, Finished, SimulatedFederation, run_federation
from tests.worlds.hosts import Left

VANISHED = 4
STEPS = ("Directory", "Inbox", "Survivors")
Lie = Callable[[Any, Integers], Integers]


def lying(monkeypatch: pytest.MonkeyPatch, lie: Lie) -> list[int]:
    """Have the server tell another sum; return the rounds in which it has opened one."""
    opened = []

    def told(setup: Any, ready: Any, *arguments: Any) -> Any:
        true = open_sum(setup, ready, *arguments)
        opened.append(setup.number)
        return replace(conclude(setup, true.members, lie(setup, true.vector)), release=true.release)

    monkeypatch.setattr(server_module, "open_sum", told)
    return opened


def false_census(setup: Any, vector: Integers) -> Integers:
    """Every class held by all: the sums of the one that a single member holds would be opened."""
    return vector + 3 * (np.arange(len(vector)) == LONELY) if setup.number == 1 else vector


def refused(played: Any, words: str) -> None:
    """Every client has left for this reason, with the server named, and there was no second sum."""
    for end in played.clients.values():
        assert isinstance(end, SessionAborted)
        assert f"this party leaves: server: {words}" in end.reason


async def test_false_census_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A4: a server that tells a census in which every class is common opens no class of a single member."""
    world = gated(tmp_path, refine=0, **EXACT)
    assert held(world)[LONELY] == 1
    opened = lying(monkeypatch, false_census)
    refused(await run_federation(world), "the released sum is not the one that the outcome names")
    assert opened == [1]


@pytest.mark.parametrize(
    ("is_endorsed", "words"),
    [
        (True, "releases another sum of the uploads than the one that was endorsed"),
        (False, "the released sum is not that of the uploads: their tags do not add up"),
    ],
    ids=["after the endorsement", "before it"],
)
async def test_false_census_with_a_release_that_fits_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_endorsed: bool, words: str
) -> None:
    """A4 by a server that also changes the sum of the uploads, once it is endorsed or from the start."""

    def with_three_more(context: Any) -> np.ndarray:
        words = no_words(context)
        words[LONELY] += np.uint64(3)
        return words

    if is_endorsed:
        monkeypatch.setattr(unmasking, "pack_total", lambda of, total: pack_total(of, total + with_three_more(of)))
    else:
        monkeypatch.setattr(masking_server, "no_words", with_three_more)
    monkeypatch.setattr(unmasking, "is_census_of", lambda *shown: True)
    opened = lying(monkeypatch, false_census)
    refused(await run_federation(gated(tmp_path, refine=0, **EXACT)), words)
    assert opened == [1]


async def test_rounds_that_stand_still_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N3: a server that keeps the model where it is, to subtract sums of the same updates, is refused in round 1."""
    choices = {"parameters": (("rounds", 5), ("gradients", 1), ("rate", 0.5)), "join_seconds": 3, "step_seconds": 2}
    exact = {"epsilon": math.inf, "delta": None, "adjacency": None}
    world = SimulatedFederation.of(tmp_path, 4, 0, method="fedavg", colluders=0, **choices, **exact)

    def still(setup: Any, vector: Integers) -> Integers:
        blocks = setup.sum.layout.split(vector.copy())
        return setup.sum.layout.flatten({name: block * (name != "gradient") for name, block in blocks.items()})

    opened = lying(monkeypatch, still)
    refused(await run_federation(world), "the released sum is not the one that the outcome names")
    assert opened == [1]


class VanishingBeforeOpening(FederationRun):
    """A plan one client of which is gone once it has signed the first set of survivors."""

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        if member == VANISHED and step == "Opening":
            raise Left


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Census and moments; one client vanishes between endorsement and opening of the census."""
    world = gated(tmp_path_factory.mktemp("shown"), refine=0, **EXACT)
    return world, asyncio.run(VanishingBeforeOpening(world).run())


@pytest.fixture
def over(shown: Finished, tmp_path: Path) -> Finished:
    """A copy, to be damaged."""
    world, played = shown
    shutil.copytree(world.folder, tmp_path / "copy")
    return replace(world, folder=tmp_path / "copy"), played


def census_of(world: SimulatedFederation, played: Any, party: int) -> Path:
    """A party's folder of the first round."""
    return session_folder(world.state(party), played.stages[0])


def found(finished: Finished, party: int) -> Verified:
    """What `verify` says of a party's transcript of the first round."""
    world, played = finished
    (one,) = verify_together(world.transcripts(party, played.stages[:1]), NOTHING_BROUGHT)
    assert isinstance(one, Verified), one
    return one


def test_upload_of_a_client_that_vanished_is_shown(shown: Finished) -> None:
    """The others open the census with the whole upload of the client that signed no tags, and get the true one."""
    world, played = shown
    homes = [census_of(world, played, party) for party in (SERVER_INDEX, 1, 2, 3)]
    assert len({(home / SUM_FILE).read_bytes() for home in homes}) == 1
    context = played.stages[0].context
    for home in homes:
        assert (home / "release-2.bin").stat().st_size == 4 * context.proof_bytes
        assert (home / "release-3.bin").stat().st_size == context.upload_bytes
    assert unpack_sum(played.stages[0], (homes[1] / SUM_FILE).read_bytes()).tolist() == held(world)
    assert {played.clients[member][1].members for member in (1, 2, 3)} == {(1, 2, 3)}


def test_transcript_of_a_client_proves_the_sum(shown: Finished) -> None:
    """A client's transcript with the files beside it proves the census that it was shown, and no other sum."""
    assert PROVEN_CENSUS in found(shown, 1).proves
    world, played = shown
    first, last = verify_together(world.transcripts(1, played.stages), NOTHING_BROUGHT)
    assert isinstance(first, Verified)
    assert isinstance(last, Verified)
    assert PROVEN_CENSUS in first.proves
    assert PROVEN_CENSUS not in last.proves
    assert "the server's word alone" in last.proves


def reopened(finished: Finished, change: Callable[[Unmasking], Unmasking], steps: tuple[str, ...] = STEPS) -> None:
    """Have the first client open the census from a changed list, which the server's outcome names."""
    world, played = finished
    home = census_of(world, played, 1)
    listed = encode(change(decode(Unmasking, (home / "release-1.bin").read_bytes())))
    (home / "release-1.bin").write_bytes(listed)
    bodies = [peek(each.content) for each in read_transcript(home / FILE_NAME) if each.kind == "received"]
    true = next(payload_of(body, Outcome) for body in bodies if body.step == "Outcome")
    named = replace(true, release=(true.release[0], Attachment.of(listed), *true.release[2:]))
    assert open_release(played.stages[0], named, home, [body for body in bodies if body.step in steps]) is not None


def forged(world: SimulatedFederation, frame: bytes, key: int, **changes: Any) -> bytes:
    """A client's frame with another body, signed by another party."""
    return sign_frame(world.keys[key], replace(peek(frame), **changes))


@pytest.mark.parametrize(
    ("key", "changes", "words"),
    [
        (
            SERVER_INDEX,
            {},
            "releases what is not signed: client-4: the frame UploadHeader is not signed by its identity",
        ),
        (VANISHED, {"round_digest": bytes(32)}, "releases what is not signed: client-4: .* another session or plan"),
        (VANISHED, {"receiver": 2}, "releases what is not signed: client-4: .* addressed to another member"),
        (VANISHED, {"step": "Opening"}, "UploadHeader is awaited"),
    ],
    ids=["of the server's", "of another round", "for another", "of another step"],
)
def test_forged_headers_of_uploads_blame_the_server(over: Finished, key: int, changes: Any, words: str) -> None:
    """The frame that announced an upload must be its client's, of this round; whoever shows another is the server."""
    reopened(over, lambda listed: listed)
    with pytest.raises((ProtocolViolation, MalformedMessage), match=words) as caught:
        reopened(over, lambda listed: replace(listed, uploads=(forged(over[0], listed.uploads[0], key, **changes),)))
    assert isinstance(caught.value, MalformedMessage) or caught.value.culprit == SERVER_INDEX


@pytest.mark.parametrize("missing", STEPS)
def test_release_without_what_it_is_checked_by_is_refused(over: Finished, missing: str) -> None:
    """Where the server never sent directory, dealers or survivors nothing is opened."""
    with pytest.raises(ProtocolViolation, match=f"party 0: releases a sum without the {missing}"):
        reopened(over, lambda listed: listed, tuple(step for step in STEPS if step != missing))


@pytest.mark.parametrize("party", [SERVER_INDEX, 1])
@pytest.mark.parametrize("name", ["release-0.bin", "release-1.bin", "release-2.bin", "release-3.bin", SUM_FILE])
def test_damaged_release_proves_nothing(over: Finished, party: int, name: str) -> None:
    """Of a release that is cut off or gone `verify` says that it is, and the transcript then proves no sum."""
    world, played = over
    file = census_of(world, played, party) / name
    content = file.read_bytes()
    file.unlink()
    assert "was purged, or is not all there" in found(over, party).verdict
    assert PROVEN_CENSUS not in found(over, party).proves
    file.write_bytes(content[:-1])
    (one,) = verify_together(world.transcripts(party, played.stages[:1]), NOTHING_BROUGHT)
    assert not isinstance(one, Verified) or "not all there" in one.verdict


def test_purged_vectors_leave_the_sum_provable(over: Finished) -> None:
    """Without the uploads a plan's newest sum still opens from what was released; of an earlier one nothing stays."""
    world, played = over
    for party in (SERVER_INDEX, 1):
        home = census_of(world, played, party)
        purge(home)
        assert "not all there" not in found(over, party).verdict
        assert purge_sum(home) >= 4
        assert "not all there" in found(over, party).verdict
        assert not list(home.glob("*.bin"))
