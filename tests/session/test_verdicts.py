"""What `verify` says that it proved: on whose word the keys are the members', and the sum the uploads'."""

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from secagg.errors import COUNTS, TranscriptInvalid
from secagg.protection import PROTECTIONS
from secagg.protection.encryption.key_holder import HeldKey
from secagg.protection.sharing.aggregator import SetAgreed
from secagg.verification import note_plan
from secagg.verification.transcript_series import verify_transcript
from secagg.verification.verification import Trust
from tests.session.forging import position, rewrite
from tests.worlds.rosters import fresh_identity
from tests.worlds.session import SessionRun, SimulatedSession, make_session

SERVER, CLIENT, FIRST = 0, 1, 4
ALONE = "consistent, but signed by keys that nobody vouched for"


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SimulatedSession]:
    """One session of three clients under each protection."""
    stages = {name: make_session(tmp_path_factory.mktemp(name), protection=name) for name in PROTECTIONS}
    for world in stages.values():
        asyncio.run(SessionRun(world).run())
    return stages


def brought(world: SimulatedSession) -> Trust:
    """What somebody trusts who has the consortium's plan and roster."""
    return Trust((world.setup.plan.digest,), (world.setup.roster.digest,))


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_every_party_proves_what_its_protection_allows(sessions: dict[str, SimulatedSession], protection: str) -> None:
    """With plan and roster brought every transcript verifies and says, for its role, on whose word the rest stands."""
    world, facts = sessions[protection], PROTECTIONS[protection]
    expected = {SERVER: facts.proves, CLIENT: facts.client.proves}
    expected |= {second: facts.helper.proves for second in world.setup.context.helpers if facts.helper}
    for member, sentence in expected.items():
        found = verify_transcript(world.transcript(member), brought(world))
        assert (found["verdict"], found["proves"]) == ("verifies", sentence)
        assert found["vouched_by"] == "the plan that the verifier brings"
    words = {"shared": "aggregator's word", "encrypted": "key holder's word"}.get(protection, "sum of the accepted")
    assert words in facts.proves


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_without_plan_and_roster_nothing_is_vouched_for(sessions: dict[str, SimulatedSession], protection: str) -> None:
    """Alone a transcript is consistent, and proves anything only if the keys in it are the members' own."""
    world = sessions[protection]
    for member in (SERVER, CLIENT, *world.setup.context.helpers):
        found = verify_transcript(world.transcript(member))
        assert (found["verdict"], found["vouched_by"]) == (ALONE, None)
        assert found["proves"].startswith("if these keys are the members' own: ")


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_roster_and_signers_are_shown(sessions: dict[str, SimulatedSession], protection: str) -> None:
    """The roster's digest and the identity key of each signer are there to be compared; nobody else's are."""
    world = sessions[protection]
    roster = world.setup.roster
    for trust in (Trust(), brought(world)):
        found = verify_transcript(world.transcript(SERVER), trust)
        assert found["roster_sha256"] == roster.digest.hex()
        assert found["signers"] == {member.name: member.identity.hex() for member in roster.members}
    own = verify_transcript(world.transcript(CLIENT))["signers"]
    others = {"shared": {"aggregator-1", "aggregator-2"}}.get(protection, set())
    assert set(own) == {"server", "client-1", *others}


def test_session_forged_under_the_members_names(tmp_path: Path) -> None:
    """Keys of a forger's own under the members' names are told by whoever brings the plan or the roster."""
    real, forged = make_session(tmp_path / "real"), make_session(tmp_path / "forged")
    asyncio.run(SessionRun(forged).run())
    path = forged.transcript(SERVER)
    assert verify_transcript(path)["verdict"] == ALONE
    for trust, what in (
        (Trust((real.setup.plan.digest,)), "plan"),
        (Trust((), (real.setup.roster.digest,)), "roster"),
        (brought(real), "plan"),
    ):
        with pytest.raises(TranscriptInvalid) as refusal:
            verify_transcript(path, trust)
        both = (getattr(world.setup, what).digest.hex() for world in (real, forged))
        assert all(digest in str(refusal.value) for digest in (what, *both))


def test_roster_alone_leaves_the_plan_open(sessions: dict[str, SimulatedSession]) -> None:
    """Who brings the roster alone knows whose keys these are, and not that this is the plan that was agreed on."""
    world = sessions["masked"]
    found = verify_transcript(world.transcript(SERVER), Trust((), (world.setup.roster.digest,)))
    assert found["verdict"] == "consistent, but made under a plan that nobody vouched for"


def test_one_of_several_plans_is_enough(sessions: dict[str, SimulatedSession]) -> None:
    """Of several plans that are brought the transcript's is one."""
    world = sessions["masked"]
    several = Trust((bytes(32), world.setup.plan.digest))
    assert verify_transcript(world.transcript(SERVER), several)["verdict"] == "verifies"


@pytest.fixture
def at_home(sessions: dict[str, SimulatedSession], tmp_path: Path) -> tuple[SimulatedSession, Path]:
    """A copy of a session where the server's state folder notes the plan, as a running server does."""
    shutil.copytree(sessions["masked"].folder, tmp_path / "copy")
    world = replace(sessions["masked"], folder=tmp_path / "copy")
    state = world.home(SERVER).parent
    note_plan(state, world.setup.plan, world.keys[SERVER])
    return world, state


def own_keys(world: SimulatedSession) -> Trust:
    """What the server trusts that brings its own keys, and somebody else's."""
    return Trust(identities=(fresh_identity(SERVER).public, world.keys[SERVER].public))


def test_own_state_folder_vouches(at_home: tuple[SimulatedSession, Path]) -> None:
    """Who brings the party's keys needs no plan, by whatever path the transcript is named; the note is for the owner.

    Without them nobody vouches for it.
    """
    world, state = at_home
    link = state.parent / "link"
    link.symlink_to(world.home(SERVER))
    for path in (world.transcript(SERVER), link / "transcript.log"):
        found = verify_transcript(path, own_keys(world))
        assert (found["verdict"], found["vouched_by"]) == ("verifies", f"the notes of {state.resolve()}")
        assert verify_transcript(path)["verdict"] == ALONE
    (note,) = (path for path in state.iterdir() if path.is_file())
    assert note.stat().st_mode & 0o777 == 0o600
    before = note.read_bytes()
    note_plan(state, world.setup.plan, world.keys[SERVER])
    assert note.read_bytes() == before


def _copied_session(world: SimulatedSession, state: Path) -> Path:
    return Path(shutil.copytree(world.home(SERVER), state.parent / "elsewhere" / "session"))


def _copied_state(world: SimulatedSession, state: Path) -> Path:
    return Path(shutil.copytree(state, state.parent / "elsewhere")) / world.home(SERVER).name


def _note_beside_the_transcript(world: SimulatedSession, state: Path) -> Path:
    home = _copied_session(world, state)
    note_plan(home, world.setup.plan, world.keys[SERVER])
    return home


def _other_plan_noted(world: SimulatedSession, state: Path) -> Path:
    (note,) = (path for path in state.iterdir() if path.is_file())
    note.unlink()
    note_plan(state, world.again().setup.plan, world.keys[SERVER])
    return world.home(SERVER)


def _note_of_another_plan_renamed(world: SimulatedSession, state: Path) -> Path:
    (note,) = (path for path in state.iterdir() if path.is_file())
    note.write_bytes(note.read_bytes().replace(world.setup.roster.digest.hex().encode(), bytes(32).hex().encode()))
    return world.home(SERVER)


def _note_that_names_no_format(world: SimulatedSession, state: Path) -> Path:
    (note,) = (path for path in state.iterdir() if path.is_file())
    content = json.loads(note.read_text())
    assert content.pop("format") == "secagg-plan-note/2"
    note.write_bytes(json.dumps(content, indent=2).encode() + b"\n")
    return world.home(SERVER)


def _note_without_signature(world: SimulatedSession, state: Path) -> Path:
    (note,) = (path for path in state.iterdir() if path.is_file())
    content = json.loads(note.read_text())
    del content["signature"]
    note.write_bytes(json.dumps(content, indent=2).encode() + b"\n")
    return world.home(SERVER)


def _note_signed_for_another_plan(world: SimulatedSession, state: Path) -> Path:
    (note,) = (path for path in state.iterdir() if path.is_file())
    true = json.loads(note.read_text())
    other = world.again().setup.plan
    note_plan(state, other, world.keys[SERVER])
    signed = json.loads((state / f"plan-{other.digest.hex()[:16]}.json").read_text())
    note.write_bytes(json.dumps({**true, "signature": signed["signature"]}, indent=2).encode() + b"\n")
    return world.home(SERVER)


def _note_of_a_forger(world: SimulatedSession, state: Path) -> Path:
    (note,) = (path for path in state.iterdir() if path.is_file())
    note.unlink()
    note_plan(state, world.setup.plan, fresh_identity(SERVER))
    return world.home(SERVER)


def _note_that_is_no_object(world: SimulatedSession, state: Path) -> Path:
    (note,) = (path for path in state.iterdir() if path.is_file())
    note.write_text('["signature"]')
    return world.home(SERVER)


def _note_with_something_after_it(world: SimulatedSession, state: Path) -> Path:
    (note,) = (path for path in state.iterdir() if path.is_file())
    note.write_bytes(note.read_bytes() + b" ")
    return world.home(SERVER)


@pytest.mark.parametrize(
    "away",
    [
        _copied_session,
        _copied_state,
        _note_beside_the_transcript,
        _other_plan_noted,
        _note_of_another_plan_renamed,
        _note_that_names_no_format,
        _note_without_signature,
        _note_signed_for_another_plan,
        _note_of_a_forger,
        _note_that_is_no_object,
        _note_with_something_after_it,
    ],
)
def test_nothing_that_an_author_can_ship_vouches(
    at_home: tuple[SimulatedSession, Path], away: Callable[[SimulatedSession, Path], Path]
) -> None:
    """Copied folders, a note beside the transcript, of another plan, folder or key, damaged, or unsigned: nobody."""
    world, state = at_home
    assert verify_transcript(away(world, state) / "transcript.log", own_keys(world))["verdict"] == ALONE


def test_brought_plan_counts_and_not_the_notes(at_home: tuple[SimulatedSession, Path]) -> None:
    """Whoever brings another plan is not told that the state folder knows better."""
    world, _ = at_home
    with pytest.raises(TranscriptInvalid, match="not the one that the verifier brings"):
        verify_transcript(world.transcript(SERVER), replace(own_keys(world), plans=(bytes(32),)))


async def test_sum_that_an_aggregator_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong sum of one aggregator verifies everywhere, and so nobody's transcript says that it is the uploads'."""
    commit = SetAgreed.commit

    def wrong(self, context, me, packed):  # type: ignore[no-untyped-def]
        total = context.ring.unpack(packed, context.length) + np.array(7 * (me.member == FIRST), context.ring.word)
        return commit(self, context, me, context.ring.pack(total))

    monkeypatch.setattr(SetAgreed, "commit", wrong)
    await check_not_vouched_for_by_arithmetic(make_session(tmp_path, protection="shared"))


async def test_sum_that_the_key_holder_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong sum that the key holder signed verifies everywhere, and nobody's transcript says that it is right."""
    opened = HeldKey._open
    monkeypatch.setattr(HeldKey, "_open", lambda *arguments: opened(*arguments) + 5)
    await check_not_vouched_for_by_arithmetic(make_session(tmp_path, protection="encrypted"))


async def check_not_vouched_for_by_arithmetic(world: SimulatedSession) -> None:
    """The opened sum is wrong, and what every party's transcript proves names the word on which it stands."""
    ending = await SessionRun(world).run()
    assert ending.total is not None
    assert (ending.total != world.total((1, 2, 3))).any()
    for member in (SERVER, CLIENT, *world.setup.context.helpers):
        found = verify_transcript(world.transcript(member), brought(world))
        assert "word" in found["proves"]
        assert "is the sum of the accepted uploads" not in found["proves"]


@pytest.mark.parametrize(("protection", "heard"), [("masked", 0), ("shared", 0), ("shared", 1), ("encrypted", 1)])
def test_client_that_has_sent_nothing_yet(
    sessions: dict[str, SimulatedSession], tmp_path: Path, protection: str, heard: int
) -> None:
    """It is told from a server by its salt, or by what the server told it; its transcript proves as far as it goes."""
    shutil.copytree(sessions[protection].folder, tmp_path / "copy")
    world = replace(sessions[protection], folder=tmp_path / "copy")
    for before in [[("salt", bytes(32))], []][: 1 + heard]:
        shutil.copy(sessions[protection].transcript(CLIENT), world.transcript(CLIENT))
        rewrite(world, lambda entries, before=before: [*before, *entries[: 2 + heard]], member=CLIENT, key=CLIENT)
        found = verify_transcript(world.transcript(CLIENT), brought(world))
        assert (found["role"], found["session"]) == ("client", "this client has sent nothing yet")
        assert found["verdict"] == "consistent, but its author has sent nothing yet"


# -- sessions that ended without a published sum


LEFT = [
    ("masked", {2: "KeyAdvertisement", 3: "KeyAdvertisement"}, ""),
    pytest.param("masked", {2: "Endorsement", 3: "Endorsement"}, "", marks=pytest.mark.long),
    ("masked", {2: "Opening", 3: "Opening"}, "the shares of the others were opened"),
    pytest.param("shared", {5: "SumPledges"}, "", marks=pytest.mark.long),
    ("shared", {5: "SumShare"}, "an aggregator had published its share of the sum"),
    pytest.param("encrypted", {2: "EncryptedUpload", 3: "EncryptedUpload"}, "", marks=pytest.mark.long),
    ("encrypted", {4: "OpenedSum"}, "the key holder was shown the sum"),
    ("none", {2: "UploadHeader", 3: "UploadHeader"}, "vectors were uploaded in clear"),
]


@pytest.mark.parametrize(("protection", "leaving", "revealed"), LEFT, ids=str)
async def test_abort_says_what_was_revealed(
    tmp_path: Path, protection: str, leaving: dict[int, str], revealed: str
) -> None:
    """Everybody is told whether what opens the sum was shown, and `verify` says which of the two it was."""
    world = make_session(tmp_path, protection=protection, dropouts=0, colluders=0)
    ending = await SessionRun(world).run(leaving=leaving)
    counts = f"{revealed}: {COUNTS}"
    assert (counts in ending.server.reason) == bool(revealed)
    told = verify_transcript(world.transcript(SERVER), brought(world))
    assert told["session"] == f"aborted: {ending.server.reason}"
    assert told["released"] == (
        f"yes: {revealed}; {COUNTS}" if revealed else "no: nothing that opens the sum was shown"
    )
    assert (told["verdict"], "no sum was published" in told["proves"]) == ("verifies", True)
    assert (counts in str(ending.clients[CLIENT])) == bool(revealed)
    own = verify_transcript(world.transcript(CLIENT), brought(world))
    has_uploaded = protection != "masked" or "KeyAdvertisement" not in leaving.values()
    assert own["released"].startswith(("yes", "perhaps") if has_uploaded else "no")


def test_end_that_nobody_signed(sessions: dict[str, SimulatedSession], tmp_path: Path) -> None:
    """Who cuts a transcript off and writes an end behind it that would follow is not believed without a signature."""
    shutil.copytree(sessions["masked"].folder, tmp_path / "copy")
    world = replace(sessions["masked"], folder=tmp_path / "copy")
    at = position(world, "KeyAdvertisement")
    reason = b"only 1 of 3 clients joined; at least 3 are needed"
    ended = [("closed", b"KeyAdvertisement"), ("aborted", reason)]
    rewrite(world, lambda entries: [*entries[: at + 1], *ended])  # type: ignore[list-item]
    found = verify_transcript(world.transcript(SERVER), brought(world))
    assert found["verdict"] == "consistent, but nobody has signed its end"
    rewrite(world, lambda entries: [("salt", bytes(32)), *entries[:3], ("aborted", b"gone")], member=CLIENT, key=CLIENT)
    found = verify_transcript(world.transcript(CLIENT), brought(world))
    assert (found["verdict"], found["released"]) == (
        "consistent, but nobody has signed its end",
        "no, says this client: it has uploaded nothing",
    )
