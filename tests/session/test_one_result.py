"""All parties of a session hold one result: what too few have acknowledged is none, whoever lies or dies."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.cli.status import _tell
from secagg.errors import BadInput, NotConfirmed, ServerAway, SessionAborted, TranscriptInvalid, Unconfirmed
from secagg.heads import parse_safetensors, to_safetensors
from secagg.protection.messages import Abort, Acknowledgement, Attachment, Confirmation, Outcome, Receipt
from secagg.session import ServerSession
from secagg.session.attachments import folder_name
from secagg.session.confirming import confirm_from
from secagg.session.deadline import read_closing
from secagg.session.outcome import HEAD_FILE
from secagg.session.purging import purge
from secagg.session.status import status_of
from secagg.session.transcripts import outcome_of
from secagg.transcript import (
    NOT_SEEN,
    Journal,
    chain,
    make_body,
    payload_of,
    peek,
    read_transcript,
    sign_frame,
)
from secagg.verification.transcript_series import verify_together, verify_transcript
from secagg.verification.verification import NOTHING_BROUGHT
from secagg.wire import encode
from tests.session.forging import rewrite, step_of
from tests.session.test_malicious_helpers import Telling
from tests.worlds.crashes import Crash, Fuse
from tests.worlds.session import SessionRun, SimulatedSession, Wire, make_session

SERVER, ME, OTHER, SECOND = 0, 2, 3, 6
EVERYBODY = (1, 2, 3, 4)
PROTECTIONS = ("masked", "shared", "encrypted")


def world_of(folder: Path, protection: str = "masked") -> SimulatedSession:
    """Four clients of whom one may vanish: three acknowledgements confirm a masked sum, all helpers' any other."""
    return make_session(folder, clients=4, protection=protection, dropouts=1, colluders=0)


def heads(world: SimulatedSession) -> list[int]:
    """The clients that hold a head under the name of a result."""
    return [member for member in EVERYBODY if (world.home(member) / HEAD_FILE).exists()]


def completed(world: SimulatedSession, *of: int) -> Path:
    """What `secagg confirm` does at ME with other parties' transcripts."""
    state = world.home(ME).parent
    link = state / folder_name(world.setup.context.round_digest)
    if not link.is_symlink():
        link.symlink_to(world.home(ME).name)
    return confirm_from([world.transcript(each) for each in of], state)[0]


class Away:
    """A connection to a server that has gone."""

    patience = 0.0

    async def submit(self, *arguments: Any) -> bytes:
        """Nobody answers."""
        raise ServerAway(0)

    fetch = read = upload = submit


class Equivocating(SessionRun):
    """A federation whose server tells each victim of another head, and countersigns what that acknowledges.

    `shows`: it shows the victims the acknowledgements that it has; otherwise it keeps them back.
    """

    def __init__(self, world: SimulatedSession, victims: tuple[int, ...], *, shows: bool) -> None:
        super().__init__(world)
        self.victims, self.shows = victims, shows
        self.acknowledged: dict[int, bytes] = {}

    def new_server(self, journal: Journal) -> ServerSession:
        """The liar."""
        server = super().new_server(journal)
        fetching, submitting, reading = server.fetch, server.submit, server.read
        confirmers, enough = self.world.setup.protocol.confirmers(self.world.setup.context)
        files: dict[bytes, Path] = {}

        def say(member: int, message: Any, seen: bytes = NOT_SEEN) -> bytes:
            plan = self.world.setup.context.round_digest
            return sign_frame(self.world.keys[SERVER], make_body(plan, SERVER, member, NOT_SEEN, seen, message))

        async def fetch(member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
            if member in self.victims and step == Confirmation.__name__:
                known = [self.acknowledged[each] for each in sorted(confirmers & self.acknowledged.keys())]
                if self.shows and len(known) >= enough:
                    return say(member, Confirmation(tuple(known)))
                await asyncio.sleep(patience)
                return None
            frame = await fetching(member, round_digest, step, patience)
            if not frame or member not in self.victims or peek(frame).step != Outcome.__name__:
                return frame
            file = self.world.home(SERVER) / HEAD_FILE
            head, metadata = parse_safetensors(file.read_bytes())
            other = replace(head, weight=(head.weight * np.float32(member + 1)).astype(np.float32))
            false = to_safetensors(other, metadata)
            named = Attachment.of(false)
            files[named.digest] = self.world.folder / f"head for {member}"
            files[named.digest].write_bytes(false)
            told = replace(payload_of(peek(frame), Outcome), head_sha256=bytes.fromhex(other.digest), head=(named,))
            return say(member, told)

        async def submit(member: int, frame: bytes) -> bytes:
            body = peek(frame)
            if body.step != Acknowledgement.__name__:
                return await submitting(member, frame)
            self.acknowledged[member] = frame
            if member not in self.victims:
                return await submitting(member, frame)
            return say(member, Receipt(), chain(body.head, "sent", frame))

        server.fetch, server.submit = fetch, submit  # type: ignore[method-assign]
        server.read = lambda member, digest: files.get(digest) or reading(member, digest)  # type: ignore[method-assign]
        return server


@pytest.mark.parametrize("protection", PROTECTIONS)
async def test_server_that_tells_everybody_of_another_result_gives_it_to_nobody(
    tmp_path: Path, protection: str
) -> None:
    """Finding N2: the contradicting acknowledgements that make up a confirmation show the lie; nobody has a head."""
    world = world_of(tmp_path, protection)
    ending = await Equivocating(world, EVERYBODY, shows=True).run()
    for end in ending.clients.values():
        assert isinstance(end, SessionAborted)
        assert "server: shows that " in end.reason
        assert " has another outcome" in end.reason
    assert heads(world) == []
    with pytest.raises(TranscriptInvalid, match=r"server: shows that .* has another outcome"):
        verify_transcript(world.transcript(ME))


@pytest.mark.parametrize("protection", PROTECTIONS)
async def test_server_that_keeps_the_confirmation_back_gives_nobody_a_result(tmp_path: Path, protection: str) -> None:
    """Without the others' acknowledgements a deceived client has an unconfirmed outcome, and exits with 75."""
    world = world_of(tmp_path, protection)
    ending = await Equivocating(world, EVERYBODY, shows=False).run()
    for end in ending.clients.values():
        assert isinstance(end, Unconfirmed)
        assert end.exit_code == 75
    assert heads(world) == []
    assert "too few have acknowledged its outcome" in verify_transcript(world.transcript(ME))["verdict"]
    together = verify_together([world.transcript(ME), world.transcript(OTHER)], NOTHING_BROUGHT)
    assert {type(each) for each in together} == {TranscriptInvalid}


@pytest.mark.parametrize("shows", [True, False], ids=["shown", "kept back"])
@pytest.mark.parametrize("protection", PROTECTIONS)
async def test_one_deceived_client_has_no_result_and_the_others_have_theirs(
    tmp_path: Path, protection: str, shows: bool
) -> None:
    """The others' acknowledgements are enough for them; the victim refuses them, or goes without."""
    world = world_of(tmp_path, protection)
    ending = await Equivocating(world, (ME,), shows=shows).run()
    assert {ending.clients[each] for each in EVERYBODY if each != ME} == {ending.server}
    assert heads(world) == [1, 3, 4]
    assert isinstance(ending.clients[ME], SessionAborted if shows else Unconfirmed)
    before = world.transcript(ME).read_bytes()
    with pytest.raises(BadInput, match=r"has another outcome|has ended for good"):
        completed(world, OTHER)
    assert world.transcript(ME).read_bytes() == before


def resigned(world: SimulatedSession, frame: bytes, member: int, **change: Any) -> bytes:
    """An acknowledgement's frame, changed and signed by a party that colludes."""
    return sign_frame(world.keys[member], replace(peek(frame), sender=member, **change))


def of_another_outcome(world: SimulatedSession, frames: list[bytes]) -> list[bytes]:
    """The last one acknowledges something else."""
    said = replace(payload_of(peek(frames[-1]), Acknowledgement), outcome=bytes(32))
    return [*frames[:-1], resigned(world, frames[-1], peek(frames[-1]).sender, payload=encode(said))]


Lie = Callable[[SimulatedSession, list[bytes]], list[bytes]]
LIES: dict[str, tuple[Lie, str]] = {
    "too few": (lambda world, frames: frames[:-1], "of the . acknowledgements of one outcome"),
    "twice": (lambda world, frames: [*frames[:-2], frames[-1], frames[-1]], "acknowledgement twice"),
    "out of order": (lambda world, frames: frames[::-1], "out of order"),
    "other outcome": (of_another_outcome, "has another outcome"),
    "of another round": (
        lambda world, frames: [
            *frames[:-1],
            resigned(world, frames[-1], peek(frames[-1]).sender, round_digest=bytes(32)),
        ],
        "shows what is not signed",
    ),
    "forged": (lambda world, frames: [*frames[:-1], frames[-1][:-1] + bytes([frames[-1][-1] ^ 1])], "not signed"),
    "stranger": (
        lambda world, frames: [
            resigned(world, frames[0], SERVER if world.setup.plan.protection == "masked" else ME),
            *frames[1:],
        ],
        "whose word does not count",
    ),
    "no frame": (lambda world, frames: [*frames[:-1], b"nothing"], "shows what is not signed"),
}


class AfterConfirmation(Fuse):
    """Kills its party once, when the confirmation is on its disk and nobody has looked at it."""

    def __init__(self, transcript: Path) -> None:
        super().__init__()
        self.transcript, self.has_killed = transcript, False

    def burn(self, name: str) -> None:
        """Die behind the record of the confirmation."""
        if self.has_killed or name != "after record received":
            return
        if peek(read_transcript(self.transcript)[-1].content).step == Confirmation.__name__:
            self.has_killed = True
            raise Crash(name)


@pytest.mark.parametrize("is_killed", [False, True], ids=["now", "later"])
@pytest.mark.parametrize("what", LIES)
@pytest.mark.parametrize("protection", ["masked", "shared"])
async def test_confirmation_that_is_none_is_refused(
    tmp_path: Path, protection: str, what: str, is_killed: bool
) -> None:
    """A client ends for good by a server's signed confirmation that confirms nothing, after a crash, too."""
    world = world_of(tmp_path, protection)
    lie, words = LIES[what]

    def change(body: Any) -> Any:
        shown = payload_of(body, Confirmation)
        return replace(body, payload=encode(Confirmation(tuple(lie(world, list(shown.acknowledgements))))))

    federation = Telling(world, ME, Confirmation.__name__, change)
    if is_killed:
        federation.fuses[ME] = AfterConfirmation(world.transcript(ME))
    end = (await federation.run()).clients[ME]
    assert isinstance(end, SessionAborted)
    with pytest.raises(SessionAborted, match=words):
        raise end
    assert ME not in heads(world)
    with pytest.raises(TranscriptInvalid, match=words):
        verify_transcript(world.transcript(ME))


@pytest.mark.parametrize("protection", PROTECTIONS)
async def test_true_confirmation_is_taken_in_the_next_life(tmp_path: Path, protection: str) -> None:
    """Parties that were killed behind its record end with the result, and the head has its name."""
    world = world_of(tmp_path, protection)
    federation = SessionRun(world)
    for party in (*EVERYBODY, *world.setup.context.helpers):
        federation.fuses[party] = AfterConfirmation(world.transcript(party))
    ending = await federation.run()
    assert {*ending.clients.values(), *ending.helpers.values()} == {ending.server}
    assert heads(world) == [*EVERYBODY]


async def test_confirmation_of_another_session_counts_for_nothing(tmp_path: Path) -> None:
    """It is of another round, so that it confirms nothing here and ends nothing either."""
    other = world_of(tmp_path / "other")
    await SessionRun(other).run()
    frame = next(
        each.content
        for each in read_transcript(other.transcript(ME))
        if step_of((each.kind, each.content)) == Confirmation.__name__  # type: ignore[arg-type]
    )
    world = world_of(tmp_path / "here")
    ending = await Telling(world, ME, Confirmation.__name__, lambda body: peek(frame)).run()
    assert isinstance(ending.clients[ME], Unconfirmed)
    assert heads(world) == [1, 3, 4]


async def test_confirmation_before_the_outcome_does_not_verify(tmp_path: Path) -> None:
    """A transcript in which something was confirmed before anybody had said it is refused."""
    world = world_of(tmp_path)
    await SessionRun(world).run()

    def early(entries: list[Any]) -> list[Any]:
        (shown,) = [entry for entry in entries if step_of(entry) == Confirmation.__name__]
        others = [entry for entry in entries if entry != shown]
        at = next(place for place, entry in enumerate(others) if step_of(entry) == Outcome.__name__)
        return [*others[:at], shown, *others[at:]]

    rewrite(world, early, ME, ME)
    with pytest.raises(TranscriptInvalid, match="a confirmation before the outcome"):
        verify_transcript(world.transcript(ME))


@pytest.mark.parametrize(("protection", "gone"), [("shared", SECOND), ("encrypted", 5)])
async def test_helper_that_dies_before_it_acknowledges_leaves_the_outcome_unconfirmed(
    tmp_path: Path, protection: str, gone: int
) -> None:
    """The server names it and exits with 5, clients with 75; started again, all of them end with the result."""
    world = world_of(tmp_path, protection)
    ending = await SessionRun(world).run(leaving={gone: Acknowledgement.__name__})
    assert isinstance(ending.server, NotConfirmed)
    assert ending.server.exit_code == 5
    assert ending.server.missing == (world.setup.roster.name(gone),)
    assert {type(end) for end in ending.clients.values()} == {Unconfirmed}
    assert heads(world) == []
    again = await SessionRun(world).run()
    assert {*again.clients.values(), *again.helpers.values()} == {again.server}
    assert heads(world) == [*EVERYBODY]


async def unconfirmed(folder: Path) -> SimulatedSession:
    """A masked session whose result two clients have acknowledged, one too few."""
    world = world_of(folder)
    ending = await SessionRun(world).run(leaving={3: Acknowledgement.__name__, 4: Acknowledgement.__name__})
    assert isinstance(ending.server, NotConfirmed)
    return world


class Leaving(SessionRun):
    """A federation in which some parties sign that they leave, in place of their acknowledgements."""

    def __init__(self, world: SimulatedSession, leavers: tuple[int, ...]) -> None:
        super().__init__(world)
        self._leavers = leavers

    def new_server(self, journal: Journal) -> ServerSession:
        """The server, which hears that they leave."""
        server = super().new_server(journal)
        submitting = server.submit

        async def submit(member: int, frame: bytes) -> bytes:
            body = peek(frame)
            if member in self._leavers and body.step == Acknowledgement.__name__:
                left = replace(body, step=Abort.__name__, payload=encode(Abort("its disk is full")))
                frame = sign_frame(self.world.keys[member], left)
            return await submitting(member, frame)

        server.submit = submit  # type: ignore[method-assign]
        return server


async def test_who_has_left_for_good_is_not_missing(tmp_path: Path) -> None:
    """Two of three acknowledgements are there: the server names the party that may still send one, not who left."""
    world = world_of(tmp_path)
    ending = await Leaving(world, (ME,)).run(leaving={4: Acknowledgement.__name__})
    assert isinstance(ending.server, NotConfirmed)
    assert ending.server.missing == ("client-4",)
    assert "2 of the 3 acknowledgements of round 1; client-4 did not acknowledge the outcome" in str(ending.server)


@pytest.mark.parametrize(("protection", "left"), [("encrypted", (5,)), ("shared", (SECOND,)), ("masked", (ME, OTHER))])
async def test_too_many_have_left_to_confirm_anything(tmp_path: Path, protection: str, left: tuple[int, ...]) -> None:
    """Where those that may still acknowledge are too few, the server names nobody and gives no hope."""
    world = world_of(tmp_path, protection)
    ending = await Leaving(world, left).run(leaving={4: Acknowledgement.__name__})
    assert isinstance(ending.server, NotConfirmed)
    assert ending.server.missing == ()
    assert str(ending.server).endswith(" of round 1; too many have left for good; ledgers stay charged")


async def test_server_waits_again_for_those_who_did_not_acknowledge(tmp_path: Path) -> None:
    """One more client is enough: the server ends well, and who has fetched that has a result, though one is gone."""
    world = await unconfirmed(tmp_path)
    assert heads(world) == []
    told = _tell(status_of(world.home(SERVER)))
    assert told["state"] == "unconfirmed: 2 of 3 acknowledgements"
    assert told["waiting_for"] == ["client-3", "client-4"]
    assert read_closing(world.home(SERVER), Acknowledgement.__name__) is None
    again = await SessionRun(world).run(absent=(4,))
    assert set(again.clients.values()) == {again.server}
    assert heads(world) == [1, 2, 3]
    assert status_of(world.home(SERVER)).is_confirmed


async def test_purged_session_can_still_be_confirmed(tmp_path: Path) -> None:
    """Nobody reads the protected vectors again; what the outcome names stays."""
    world = await unconfirmed(tmp_path)
    for party in (SERVER, *EVERYBODY):
        assert purge(world.home(party)) is not None
    again = await SessionRun(world).run()
    assert set(again.clients.values()) == {again.server}
    assert heads(world) == [*EVERYBODY]


class Asking(Wire):
    """A connection that brings no confirmation, and notes for how long it was asked to wait for one."""

    asked = -1.0

    async def fetch(self, round_digest: bytes, step: str, seconds: float) -> bytes:
        """Ask, unless for the confirmation."""
        if step == Confirmation.__name__:
            self.asked = seconds
            return b""
        return await super().fetch(round_digest, step, seconds)


@pytest.mark.parametrize("stays", [False, True], ids=["comes back", "stays"])
async def test_client_that_comes_back_late_waits_no_longer_than_a_step(tmp_path: Path, stays: bool) -> None:
    """Where the confirmation is not there soon, it leaves and asks another day; one that stays waits for others."""
    world = world_of(tmp_path, "encrypted")
    federation = SessionRun(world, stays=stays)
    wire = Asking(federation, ME)

    async def client(member: int, leaves: str | None = None) -> Outcome:
        if member != ME:
            return await SessionRun.client(federation, member, leaves)
        return await federation._again(ME, federation.new_client, wire, {})

    federation.client = client  # type: ignore[method-assign]
    ending = await federation.run()
    assert isinstance(ending.clients[ME], Unconfirmed)
    assert (wire.asked == world.setup.plan.step_seconds) != stays
    assert heads(world) == [1, 3, 4]


async def client_alone(world: SimulatedSession, member: int) -> Outcome | None:
    """One more life of a client whose server is away."""
    journal = Journal(world.transcript(member))
    with contextlib.closing(journal):
        return await SessionRun(world).new_client(member, journal).run(Away())  # type: ignore[arg-type]


class WithoutEnd(SessionRun):
    """A federation whose server gives ME neither receipt nor confirmation; `step` is the first one that it denies."""

    def __init__(self, world: SimulatedSession, denied: str) -> None:
        super().__init__(world)
        self._denied = denied

    def new_server(self, journal: Journal) -> ServerSession:
        """The liar."""
        server = super().new_server(journal)
        fetching, submitting = server.fetch, server.submit

        async def fetch(member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
            if member == ME and step == Confirmation.__name__:
                await asyncio.sleep(patience)
                return None
            return await fetching(member, round_digest, step, patience)

        async def submit(member: int, frame: bytes) -> bytes:
            reply = await submitting(member, frame)
            return b"" if member == ME and self._denied == Receipt.__name__ else reply

        server.fetch, server.submit = fetch, submit  # type: ignore[method-assign]
        return server


@pytest.mark.parametrize("denied", [Receipt.__name__, Confirmation.__name__])
@pytest.mark.parametrize("of", [SERVER, OTHER], ids=["of the server", "of a client"])
async def test_another_partys_transcript_completes_an_outcome(tmp_path: Path, of: int, denied: str) -> None:
    """With it the client has its result though the server is gone; with the server, it still gets its receipt."""
    world = world_of(tmp_path)
    ending = await WithoutEnd(world, denied).run()
    assert isinstance(ending.clients[ME], Unconfirmed)
    assert heads(world) == [1, 3, 4]
    assert completed(world, of).samefile(world.transcript(ME))
    size = len(read_transcript(world.transcript(ME)))
    assert completed(world, of).samefile(world.transcript(ME))
    assert len(read_transcript(world.transcript(ME))) == size
    assert await client_alone(world, ME) == ending.server
    assert heads(world) == [*EVERYBODY]
    told = verify_transcript(world.transcript(ME))
    assert told["confirmed"]
    assert told["countersigned_by_server"] == (denied == Confirmation.__name__)
    with_server = await SessionRun(world).run()
    assert set(with_server.clients.values()) == {ending.server}
    assert verify_transcript(world.transcript(ME))["countersigned_by_server"]


@pytest.mark.parametrize(("protection", "of"), [("shared", 5), ("encrypted", 5)])
async def test_helpers_transcript_completes_an_outcome(tmp_path: Path, protection: str, of: int) -> None:
    """A helper's transcript holds the confirmation as a client's does."""
    world = world_of(tmp_path, protection)
    ending = await WithoutEnd(world, Confirmation.__name__).run()
    assert isinstance(ending.clients[ME], Unconfirmed)
    completed(world, of)
    assert await client_alone(world, ME) == ending.server


class KeepingBack(SessionRun):
    """A federation whose server shows the confirmation to nobody: each client's file has its own acknowledgement."""

    def new_server(self, journal: Journal) -> ServerSession:
        """The liar."""
        server = super().new_server(journal)
        fetching = server.fetch

        async def fetch(member: int, round_digest: bytes, step: str, patience: float) -> bytes | None:
            if step == Confirmation.__name__:
                await asyncio.sleep(patience)
                return None
            return await fetching(member, round_digest, step, patience)

        server.fetch = fetch  # type: ignore[method-assign]
        return server


async def kept_back(folder: Path, protection: str = "masked") -> SimulatedSession:
    """A session whose outcome everybody has acknowledged and of which no client or helper holds a confirmation."""
    world = world_of(folder, protection)
    ending = await KeepingBack(world).run()
    assert {type(end) for end in (*ending.clients.values(), *ending.helpers.values())} == {Unconfirmed}
    return world


@pytest.mark.parametrize(
    ("protection", "too_few", "enough"),
    [
        ("masked", (1,), (1, OTHER)),
        ("masked", (1, 1, ME), (4, 1, OTHER)),
        ("shared", (5, 1, OTHER, 4), (5, SECOND)),
        ("encrypted", (1, OTHER, 4), (5,)),
    ],
)
async def test_several_files_complete_an_outcome(
    tmp_path: Path, protection: str, too_few: tuple[int, ...], enough: tuple[int, ...]
) -> None:
    """Single acknowledgements count, each confirmer's once, until there are enough; the transcript then verifies."""
    world = await kept_back(tmp_path, protection)
    before = world.transcript(ME).read_bytes()
    with pytest.raises(BadInput, match=r"hold \d of the \d acknowledgements that confirm this party's outcome[ ;]"):
        completed(world, *too_few)
    assert world.transcript(ME).read_bytes() == before
    assert completed(world, *enough).samefile(world.transcript(ME))
    told = verify_transcript(world.transcript(ME))
    assert told["confirmed"]
    assert "too few have acknowledged its outcome" not in told["verdict"]
    outcome = await client_alone(world, ME)
    assert outcome == outcome_of(read_transcript(world.transcript(SERVER)))
    assert heads(world) == [ME]


async def test_servers_file_has_the_acknowledgements_that_came_and_a_clients_its_own(tmp_path: Path) -> None:
    """Two came to the server, a third was written down and never left: together they confirm."""
    world = await unconfirmed(tmp_path)
    for too_few in ((SERVER,), (OTHER,)):
        with pytest.raises(BadInput, match="2 of the 3"):
            completed(world, *too_few)
    completed(world, OTHER, SERVER)
    assert verify_transcript(world.transcript(ME))["confirmed"]
    assert await client_alone(world, ME) is not None
    again = await SessionRun(world).run(absent=(4,))
    assert set(again.clients.values()) == {again.server}


async def test_completed_file_completes_others(tmp_path: Path) -> None:
    """What one party has gathered stands in its file, for the next one."""
    world = await kept_back(tmp_path)
    completed(world, 1, OTHER)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / folder_name(world.setup.context.round_digest)).symlink_to(world.home(4))
    confirm_from([world.transcript(ME)], tmp_path / "other")
    assert verify_transcript(world.transcript(4))["confirmed"]


Spoil = Callable[[SimulatedSession, bytes], bytes]
SPOILT: dict[str, tuple[Spoil, str]] = {
    "other outcome": (
        lambda world, frame: of_another_outcome(world, [frame])[0],
        "one shows that client-3 has another",
    ),
    "of another round": (
        lambda world, frame: resigned(world, frame, OTHER, round_digest=bytes(32)),
        "one shows what is not signed: .* belongs to another session",
    ),
    "forged": (lambda world, frame: frame[:-1] + bytes([frame[-1] ^ 1]), "one shows what is not signed"),
    "in another's name": (
        lambda world, frame: sign_frame(world.keys[OTHER], replace(peek(frame), sender=4)),
        "one shows what is not signed: client-4",
    ),
    "the same one": (lambda world, frame: resigned(world, frame, OTHER, head=bytes(32)), "2 of the 3"),
}


@pytest.mark.parametrize("what", SPOILT)
async def test_spoilt_acknowledgement_does_not_count(tmp_path: Path, what: str) -> None:
    """One of one's own and a spoilt one are too few; with two good ones it is not in their way."""
    world = await kept_back(tmp_path)
    spoil, words = SPOILT[what]
    copy = world.folder / "spoilt.log"
    with contextlib.closing(Journal(copy)) as journal:
        for record in read_transcript(world.transcript(OTHER)):
            if step_of((record.kind, record.content)) == Acknowledgement.__name__:  # type: ignore[arg-type]
                journal.append("sent", spoil(world, record.content))
            else:
                journal.append(record.kind, record.content)  # type: ignore[arg-type]
    before, state = world.transcript(ME).read_bytes(), world.home(ME).parent
    (state / folder_name(world.setup.context.round_digest)).symlink_to(world.home(ME).name)
    for files in ([copy], [copy, world.transcript(OTHER)] if what == "the same one" else [copy, copy]):
        with pytest.raises(BadInput, match=words):
            confirm_from(files, state)
        assert world.transcript(ME).read_bytes() == before
    confirm_from([copy, world.transcript(1), world.transcript(4)], state)
    assert verify_transcript(world.transcript(ME))["confirmed"]


async def test_files_of_two_rounds_are_not_mixed(tmp_path: Path) -> None:
    """Transcripts of different sessions complete nothing, in either order."""
    world, other = await kept_back(tmp_path / "here"), await kept_back(tmp_path / "other", "encrypted")
    for files in ([world.transcript(1), other.transcript(1)], [other.transcript(1), world.transcript(1)]):
        with pytest.raises(BadInput, match="are of different rounds"):
            confirm_from(files, world.home(ME).parent)


def without_confirmation(world: SimulatedSession) -> str:
    """A transcript that ends before it: an acknowledgement is left."""
    rewrite(world, lambda entries: [each for each in entries if step_of(each) != "Confirmation"], OTHER, OTHER)
    return "hold 2 of the 3"


def with_forged_signatures(world: SimulatedSession) -> str:
    """A transcript with a confirmation of the server that holds what no party has signed."""

    def forge(entries: list[Any]) -> list[Any]:
        changed = []
        for kind, content in entries:
            if step_of((kind, content)) == "Confirmation":
                frames = payload_of(peek(content), Confirmation).acknowledgements
                payload = encode(Confirmation(tuple(LIES["forged"][0](world, [each])[0] for each in frames)))
                changed.append((kind, sign_frame(world.keys[SERVER], replace(peek(content), payload=payload))))
            else:
                changed.append((kind, content))
        return changed

    rewrite(world, forge, OTHER, OTHER)
    return "hold 2 of the 3 .*: one shows what is not signed"


def cut_off(world: SimulatedSession) -> str:
    """A file that breaks off in its last record."""
    path = world.transcript(OTHER)
    path.write_bytes(path.read_bytes()[:-10])
    return "hold 2 of the 3"


@pytest.mark.parametrize("spoil", [without_confirmation, with_forged_signatures, cut_off])
async def test_bad_transcript_completes_nothing(tmp_path: Path, spoil: Callable[[SimulatedSession], str]) -> None:
    """It is refused with the reason, and nothing is written."""
    world = world_of(tmp_path)
    await WithoutEnd(world, Confirmation.__name__).run()
    before, words = world.transcript(ME).read_bytes(), spoil(world)
    with pytest.raises(BadInput, match=words):
        completed(world, OTHER)
    assert world.transcript(ME).read_bytes() == before
    with pytest.raises(Unconfirmed):
        await client_alone(world, ME)
    assert heads(world) == [1, 3, 4]


def gathered(frames: list[bytes]) -> Any:
    """The record of what `secagg confirm` has gathered."""
    return "confirmed", encode(Confirmation(tuple(frames)))


async def acknowledgements(world: SimulatedSession) -> list[bytes]:
    """What the confirmers have signed, of as many as are enough."""
    (shown,) = [
        payload_of(peek(record.content), Confirmation)
        for record in read_transcript(world.transcript(SERVER))
        if step_of((record.kind, record.content)) == Confirmation.__name__  # type: ignore[arg-type]
    ]
    return list(shown.acknowledgements)


@pytest.mark.parametrize("what", LIES)
@pytest.mark.parametrize("protection", ["masked", "shared"])
async def test_made_up_confirmation_does_not_verify(tmp_path: Path, protection: str, what: str) -> None:
    """A record in which its author has gathered what confirms nothing is refused, and the server is not blamed."""
    world = await kept_back(tmp_path, protection)
    frames = await acknowledgements(world)
    lie, words = LIES[what]
    rewrite(world, lambda entries: [*entries, gathered(frames)], ME, ME)
    assert verify_transcript(world.transcript(ME))["confirmed"]
    rewrite(world, lambda entries: [*entries[:-1], gathered(lie(world, frames))], ME, ME)
    with pytest.raises(TranscriptInvalid, match=words) as refusal:
        verify_transcript(world.transcript(ME))
    assert refusal.value.record == len(read_transcript(world.transcript(ME))) - 1
    assert "server" not in str(refusal.value)


@pytest.mark.parametrize("protection", ["masked", "shared"])
async def test_gathered_confirmation_in_a_place_where_it_cannot_stand(tmp_path: Path, protection: str) -> None:
    """Before the outcome, in a server's transcript, or of other bytes, it is refused."""
    world = await kept_back(tmp_path, protection)
    entry = gathered(await acknowledgements(world))

    def early(entries: list[Any]) -> list[Any]:
        at = next(place for place, each in enumerate(entries) if step_of(each) == Outcome.__name__)
        return [*entries[:at], entry, *entries[at:]]

    rewrite(world, early, ME, ME)
    with pytest.raises(TranscriptInvalid, match="a confirmation before the outcome"):
        verify_transcript(world.transcript(ME))
    rewrite(world, lambda entries: [*entries, ("confirmed", b"nothing")], OTHER, OTHER)
    with pytest.raises(TranscriptInvalid, match="Confirmation"):
        verify_transcript(world.transcript(OTHER))
    rewrite(world, lambda entries: [*entries, entry])
    with pytest.raises(TranscriptInvalid, match="a server's transcript holds no confirmed"):
        verify_transcript(world.transcript(SERVER))


async def test_servers_own_folder_is_not_completed(tmp_path: Path) -> None:
    """A server acknowledges nothing: it waits for those that do, and its transcript stays as it is."""
    world = await unconfirmed(tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / folder_name(world.setup.context.round_digest)).symlink_to(world.home(SERVER))
    before = world.transcript(SERVER).read_bytes()
    with pytest.raises(BadInput, match="holds no checked outcome"):
        confirm_from([world.transcript(OTHER)], tmp_path / "state")
    assert world.transcript(SERVER).read_bytes() == before


async def test_session_that_ended_for_good_is_not_completed(tmp_path: Path) -> None:
    """A client that the server has shown a false confirmation has left, and stays away from a good one."""
    world = world_of(tmp_path)

    def cut(body: Any) -> Any:
        frames = payload_of(body, Confirmation).acknowledgements
        return replace(body, payload=encode(Confirmation(frames[:-1])))

    await Telling(world, ME, Confirmation.__name__, cut).run()
    before = world.transcript(ME).read_bytes()
    with pytest.raises(BadInput, match="has ended for good"):
        completed(world, OTHER)
    assert world.transcript(ME).read_bytes() == before


async def test_outcome_that_nobody_checked_cannot_be_completed(tmp_path: Path) -> None:
    """A client that has not acknowledged its outcome, or has no such session, is refused."""
    world = world_of(tmp_path / "one")
    await SessionRun(world).run(leaving={ME: Acknowledgement.__name__})
    rewrite(world, lambda entries: [each for each in entries if step_of(each) != "Acknowledgement"], ME, ME)
    with pytest.raises(BadInput, match="holds no checked outcome"):
        completed(world, OTHER)
    with pytest.raises(BadInput, match="has no session of that round"):
        confirm_from([world.transcript(OTHER)], tmp_path)
