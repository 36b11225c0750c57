"""Transcripts of a plan's rounds together: each is held against the outcomes before it, and alone it says so."""

import asyncio
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import secagg.session.server_session
from secagg.errors import TranscriptInvalid
from secagg.protection.messages import Attachment, Outcome, RoundOpening
from secagg.session import RoundSetup
from secagg.session.attachments import SUM_FILE
from secagg.session.outcome import conclude, open_sum, pack_sum
from secagg.transcript import FILE_NAME, Journal, payload_of, peek, read_transcript, sign_frame
from secagg.verification.transcript_series import TranscriptSeries, verify_together
from secagg.verification.verification import Trust, Verified
from secagg.wire import encode
from tests.federation.test_gate import EXACT, LONELY, gated, held
from tests.worlds.federation import Finished, run_federation
from tests.worlds.rosters import identity

EVERYONE = (1, 2, 3, 4)
SERVER, CLIENT = 0, 1
OWN_KEYS = Trust(identities=tuple(identity(member).public for member in (SERVER, *EVERYONE)))
"""What all parties trust who bring their own keys."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A plan without noise: census, moments and a round of refinement, in which everyone took part."""
    world = gated(tmp_path_factory.mktemp("finished"), **EXACT)
    return world, asyncio.run(run_federation(world))


@pytest.fixture(scope="module")
def deceived(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A plan whose server told everybody that each class is held by all: the class of one member is opened.

    Nothing is protected: under the masked protection clients open the census themselves (`test_verified_sums.py`).
    """

    def lying(setup, *arguments):  # type: ignore[no-untyped-def]
        true = open_sum(setup, *arguments)
        return conclude(setup, true.members, np.full_like(true.vector, 4)) if "census" in true.blocks else true

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secagg.session.server_session, "open_sum", lying)
        world = gated(tmp_path_factory.mktemp("deceived"), refine=0, protection="none", **EXACT)
        return world, asyncio.run(run_federation(world))


def paths(played: Finished, *members: int) -> list[Path]:
    """The transcripts of these parties, of every round."""
    world, done = played
    return [path for member in members for path in world.transcripts(member, done.stages)]


def verdicts(given: list[Path]) -> list[str]:
    """Of every transcript its verdict, or the refusal."""
    found = verify_together(given, OWN_KEYS)
    return [each.verdict if isinstance(each, Verified) else str(each) for each in found]


@pytest.mark.parametrize("member", [SERVER, CLIENT])
def test_rounds_given_together_verify_in_any_order(finished: Finished, member: int) -> None:
    """Where those who ran the plan verify the transcripts of all its rounds, nothing is left open."""
    given = paths(finished, member)
    assert verdicts(given) == verdicts(given[::-1]) == ["verifies"] * 3


@pytest.mark.parametrize("step", [1, -1], ids=["forwards", "backwards"])
def test_each_opening_is_followed_once(finished: Finished, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """However many transcripts of a plan are given, in whichever order, each round is derived once."""
    derived: list[int] = []
    following = RoundSetup.following

    def counting(setup: RoundSetup, opening: RoundOpening, broadcast: bytes = b"") -> RoundSetup:
        derived.append(opening.number)
        return following(setup, opening, broadcast)

    monkeypatch.setattr(RoundSetup, "following", counting)
    assert set(verdicts(paths(finished, SERVER, *EVERYONE)[::step])) == {"verifies"}
    assert derived == [2, 3]


def test_round_without_the_one_before_it_says_so(finished: Finished) -> None:
    """A later round's transcript proves what it proves only if the rounds before it ended as it says."""
    first, second, third = paths(finished, SERVER)
    alone = "consistent, but round {} of 3 stands without the transcript of round {}"
    assert verdicts([first]) == ["verifies"]
    assert verdicts([second]) == [alone.format(2, 1)]
    assert verdicts([third, first]) == [alone.format(3, 2), "verifies"]
    assert verdicts([third, second]) == ["verifies", alone.format(2, 1)]
    (found,) = verify_together([second], OWN_KEYS)
    assert isinstance(found, Verified)
    assert found.proves.startswith("if the rounds before it ended as it says: ")


def test_whose_transcript_of_the_round_before_counts(finished: Finished) -> None:
    """A server is not vouched for by what a client was told; a client's is linked by its own or by the server's."""
    (_, servers, _), (first, second, _), (others, *_) = (paths(finished, member) for member in (SERVER, CLIENT, 2))
    assert "stands without" in verdicts([servers, first])[0]
    assert "stands without" in verdicts([second, others])[0]
    assert verdicts([second, first])[0] == verdicts([second, paths(finished, SERVER)[0]])[0] == "verifies"


def test_false_census_needs_its_own_transcript(deceived: Finished) -> None:
    """Of a server that told a false census, round 2 alone leaves that open, and round 1 does not verify."""
    world, _ = deceived
    assert held(world)[LONELY] == 1
    first, second = paths(deceived, SERVER)
    assert verdicts([second]) == ["consistent, but round 2 of 2 stands without the transcript of round 1"]
    refusal, _ = verify_together([first, second], OWN_KEYS)
    assert isinstance(refusal, TranscriptInvalid)
    assert "the published sum is not that of the uploads" in str(refusal)


def truthful(deceived: Finished, folder: Path, **changes: object) -> Path:
    """The lying server's transcript of the census as if it had told the truth, signed by it, without the answers."""
    world, played = deceived
    home = Path(shutil.copytree(world.transcripts(SERVER, played.stages)[0].parent, folder / "home"))
    records = read_transcript(home / FILE_NAME)
    at = next(r.index for r in records if r.kind == "sent" and peek(r.content).step == Outcome.__name__)
    setup, body = played.stages[0], peek(records[at].content)
    result = conclude(setup, EVERYONE, np.array(held(world), dtype=np.int64))
    release = pack_sum(setup, result.vector)
    (home / SUM_FILE).write_bytes(release)
    told = payload_of(body, Outcome)
    named = {"release": (Attachment.of(release),), "broadcast": (Attachment.of(result.broadcast),)}
    true = replace(told, aggregate_sha256=result.aggregate_sha256, **named)
    (home / FILE_NAME).unlink()
    journal = Journal(home / FILE_NAME)
    for record in records[:at]:
        journal.append(record.kind, record.content)  # type: ignore[arg-type]
    journal.append("sent", sign_frame(world.keys[SERVER], replace(body, payload=encode(replace(true, **changes)))))
    journal.close()
    return home / FILE_NAME


def test_census_told_twice_is_found(deceived: Finished, tmp_path: Path) -> None:
    """A true transcript of the census beside a second round that opened with another one is refused, with both sums."""
    second = paths(deceived, SERVER)[1]
    first = truthful(deceived, tmp_path)
    told, refusal = verify_together([first, second], OWN_KEYS)
    assert isinstance(told, Verified)
    assert isinstance(refusal, TranscriptInvalid)
    assert refusal.record == 2
    assert told.outcome is not None
    _, played = deceived
    opening = played.stages[1].opening
    assert opening is not None
    sums = (told.outcome.aggregate_sha256.hex(), opening.aggregate_sha256.hex())
    assert all(part in str(refusal) for part in (*sums, str(first), str(second)))
    for member in EVERYONE:  # what the members were told is held against it as well
        _, other = verify_together([first, paths(deceived, member)[1]], OWN_KEYS)
        assert isinstance(other, TranscriptInvalid)
        assert other.record == 3


def test_sums_of_other_plans_are_no_predecessors(finished: Finished, deceived: Finished) -> None:
    """Rounds of another plan are neither missed nor held against this one's."""
    (first, *_), second = paths(finished, SERVER), paths(deceived, SERVER)[1]
    assert verdicts([first, second])[1].startswith("consistent, but round 2 of 2")


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"aggregate_sha256": bytes(32)}, "the sum ("),
        (
            {"members": (1, 2, 4)},
            "the clients in the sum (client-1, client-2, client-4 and client-1, client-2, client-3, client-4)",
        ),
        ({"broadcast": (Attachment.of(b"other"),)}, "the broadcast ("),
        ({"head_sha256": bytes([7]) * 32}, "the head ("),
    ],
)
def test_two_results_of_a_round_name_the_server(
    finished: Finished, place: int, change: dict[str, Any], words: str
) -> None:
    """In every round, the last one included, two results that the server signed in one session convict it."""
    mine, yours = (verify_together(paths(finished, member), OWN_KEYS)[place] for member in (1, 2))
    assert isinstance(mine, Verified)
    assert isinstance(yours, Verified)
    assert mine.outcome is not None
    other = replace(mine, outcome=replace(mine.outcome, **change))
    with pytest.raises(
        TranscriptInvalid, match=re.escape(f"server has signed two results of one session, which differ in {words}")
    ):
        TranscriptSeries([other, yours]).link(other)
    with pytest.raises(TranscriptInvalid, match=f"the other is record [0-9]+ of {re.escape(str(other.path))}"):
        TranscriptSeries([other, yours]).link(yours)


def test_two_histories_blame_nobody(finished: Finished) -> None:
    """Two sessions of one round contradict each other, but their frames are of two contexts: no party is named."""
    mine, yours = (verify_together(paths(finished, member), OWN_KEYS)[2] for member in (1, 2))
    assert isinstance(mine, Verified)
    assert isinstance(yours, Verified)
    other = replace(mine, setup=replace(mine.setup, context=replace(mine.setup.context, round_digest=bytes(32))))
    with pytest.raises(TranscriptInvalid) as refusal:
        TranscriptSeries([other, yours]).link(other)
    assert refusal.value.problem == f"round 3 follows from other rounds than in {yours.path}"


def test_later_rounds_of_a_convicted_server_do_not_hold(finished: Finished) -> None:
    """Where two results of the first round contradict each other, no later round is believed."""
    first, _, third = (each for each in verify_together(paths(finished, 1), OWN_KEYS))
    second = verify_together(paths(finished, 2), OWN_KEYS)[1]
    assert isinstance(first, Verified)
    assert isinstance(second, Verified)
    assert isinstance(third, Verified)
    assert first.outcome is not None
    other = replace(first, outcome=replace(first.outcome, aggregate_sha256=bytes(32)))
    with pytest.raises(TranscriptInvalid, match="of round 1 it tells the sum"):
        TranscriptSeries([first, other, second, third]).link(third)
