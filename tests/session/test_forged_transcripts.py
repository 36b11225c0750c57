"""Transcripts that a liar wrote, chained anew and signed with keys of its own choice: refused, or what they are worth.

Nothing else may come of them: `verify` reads what others wrote.
"""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.agreement.roster import MAX_INDEX, SERVER_INDEX
from secagg.crypto.signatures import SigningKey
from secagg.errors import MalformedMessage, TranscriptInvalid
from secagg.protection.messages import Abort, Acknowledgement, Outcome, Receipt
from secagg.protection.sharing.derivations import sign_manifest
from secagg.protection.sharing.messages import ShareManifest
from secagg.randomness import OperatingSystem
from secagg.transcript import EVERYONE, NOT_SEEN, make_body, payload_of, peek, read_transcript, sign_frame
from secagg.transcript.frames import MAGIC, START, Record, chain
from secagg.verification.transcript_series import verify_transcript
from secagg.verification.verification import Trust
from secagg.wire import encode
from tests.worlds.session import SessionRun, SimulatedSession, make_session

PROTECTIONS = ("masked", "shared", "encrypted", "none")
CLIENT, FIRST, SECOND = 2, 4, 5
KINDS = ("salt", "plan", "round", "policy", "ledger", "received", "sent", "confirmed", "closed", "aborted", "other")
AUTHORS = [(name, member) for name in PROTECTIONS for member in (SERVER_INDEX, CLIENT)]
AUTHORS += [("shared", FIRST), ("shared", SECOND), ("encrypted", FIRST)]
Entry = tuple[str, bytes]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SimulatedSession]:
    """One session of three clients under each protection."""
    stages = {name: make_session(tmp_path_factory.mktemp(name), protection=name) for name in PROTECTIONS}
    for world in stages.values():
        asyncio.run(SessionRun(world).run())
    return stages


def entries_of(world: SimulatedSession, member: int) -> list[Entry]:
    """What stands in a party's transcript."""
    return [(record.kind, record.content) for record in read_transcript(world.transcript(member))]


def verdict_of(world: SimulatedSession, member: int, entries: list[Entry], resigned: bool = True) -> str:
    """What becomes of entries in a party's folder: the verdict, or the refusal.

    `resigned`: what was sent is signed again over its new head, by the key of whoever it says has sent it.
    """
    path, head, content = world.home(member) / "forged.log", START, MAGIC
    for index, (kind, part) in enumerate(entries):
        signed = _resigned(world, part, head) if kind == "sent" and resigned else part
        data = encode(Record(index, head, kind, signed))
        content += len(data).to_bytes(4, "big") + data
        head = chain(head, kind, signed)
    path.write_bytes(content)
    try:
        return str(verify_transcript(path)["verdict"])
    except TranscriptInvalid as error:
        return str(error)


def _resigned(world: SimulatedSession, part: bytes, head: bytes) -> bytes:
    try:
        body = replace(peek(part), head=head)
    except MalformedMessage:
        return part
    return sign_frame(world.keys[body.sender % len(world.keys)], body)


def frame(world: SimulatedSession, sender: int, receiver: int, payload: object, signer: int | None = None) -> bytes:
    """A frame of this session with any payload."""
    body = make_body(world.setup.context.round_digest, sender, receiver, bytes(32), NOT_SEEN, payload)
    return sign_frame(world.keys[sender if signer is None else signer], body)


def share_of(world: SimulatedSession, client: int, digests: int) -> ShareManifest:
    """A client's signed manifest with so many digests."""
    return sign_manifest(world.setup.context, world.keys[client], client, [bytes(32)] * digests)  # type: ignore[arg-type]


def test_own_frame_as_if_it_had_been_received(sessions: dict[str, SimulatedSession]) -> None:
    """A client that records its own manifest as received is refused, at that record."""
    world = sessions["shared"]
    entries = entries_of(world, CLIENT)
    own = next(place for place, (kind, part) in enumerate(entries) if kind == "sent")
    assert peek(entries[own][1]).step == ShareManifest.__name__
    for forged in (entries[own][1], frame(world, CLIENT, CLIENT, share_of(world, CLIENT, 2))):
        said = verdict_of(world, CLIENT, [*entries, ("received", forged)])
        assert said == f"transcript record {len(entries)}: its own frame stands as if it had been received"


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_upload_for_a_party_that_takes_none(sessions: dict[str, SimulatedSession], protection: str) -> None:
    """A client, or a key holder, that shows a share which another client uploaded to it is refused."""
    world = sessions[protection]
    for member in {CLIENT, *world.setup.context.helpers} - ({FIRST, SECOND} if protection == "shared" else set()):
        entries = entries_of(world, member)
        manifest = ShareManifest(1, (bytes(32), bytes(32)), bytes(64))
        said = verdict_of(world, member, [*entries, ("received", frame(world, 1, member, manifest))])
        assert "is sent no ShareManifest" in said


@pytest.mark.parametrize(("client", "digests"), [(1, 3), (2, 2)])
def test_upload_that_is_not_its_senders(sessions: dict[str, SimulatedSession], client: int, digests: int) -> None:
    """A manifest of another client, or for other aggregators, is no upload of its sender."""
    world = sessions["shared"]
    entries = entries_of(world, FIRST)
    forged = frame(world, 1, FIRST, share_of(world, client, digests))
    assert "is not its client's" in verdict_of(world, FIRST, [*entries, ("received", forged)])


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_transcript_of_nobody_who_takes_part(sessions: dict[str, SimulatedSession], protection: str) -> None:
    """Frames of a sender outside the roster are nobody's, whoever signed them."""
    world = sessions[protection]
    entries = entries_of(world, CLIENT)[:2]
    for sender in (len(world.keys), MAX_INDEX):
        forged = frame(world, sender, SERVER_INDEX, Abort("x"), signer=CLIENT)
        assert "has no part in the plan" in verdict_of(world, CLIENT, [*entries, ("sent", forged)], resigned=False)
        assert "record 2: " in verdict_of(world, CLIENT, [*entries, ("received", forged)])


@pytest.mark.parametrize("receiver", [CLIENT + 20, MAX_INDEX])
def test_frame_to_nobody(sessions: dict[str, SimulatedSession], receiver: int) -> None:
    """What a party sends goes to somebody, and an upload to those who take it."""
    world = sessions["shared"]
    entries = entries_of(world, CLIENT)
    assert "for somebody" in verdict_of(world, CLIENT, [*entries, ("sent", frame(world, CLIENT, receiver, Abort("x")))])
    upload = frame(world, CLIENT, SERVER_INDEX, share_of(world, CLIENT, 2))
    assert "for somebody" in verdict_of(world, CLIENT, [*entries, ("sent", upload)])


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_outcome_that_names_strangers(sessions: dict[str, SimulatedSession], protection: str) -> None:
    """An outcome of the server with members that are no clients, or a second one, is refused in a client's hands."""
    world = sessions[protection]
    entries = entries_of(world, CLIENT)
    at = next(n for n, (kind, part) in enumerate(entries) if kind == "received" and peek(part).step == "Outcome")
    body = peek(entries[at][1])
    outcome: Outcome = payload_of(body, Outcome)
    strange = sign_frame(world.keys[0], replace(body, payload=encode(replace(outcome, members=(1, 2, 77)))))
    assert "strangers" in verdict_of(world, CLIENT, [*entries[:at], ("received", strange)])
    second = sign_frame(world.keys[0], replace(body, payload=encode(replace(outcome, members=(1, 2)))))
    assert "second outcome" in verdict_of(world, CLIENT, [*entries[: at + 1], ("received", second)])


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_broadcast_that_was_not_due(sessions: dict[str, SimulatedSession], protection: str) -> None:
    """A server that shows everybody what follows from nothing is caught at that record, also when it is the last."""
    world = sessions[protection]
    entries = entries_of(world, SERVER_INDEX)
    for payload in (Acknowledgement(bytes(32), bytes(32), bytes(32)), Abort("made up"), Receipt()):
        said = verdict_of(world, SERVER_INDEX, [*entries, ("sent", frame(world, 0, EVERYONE, payload))])
        assert said.startswith(f"transcript record {len(entries)}: ")


@pytest.mark.parametrize(("protection", "author"), AUTHORS)
def test_frame_that_another_key_signed(sessions: dict[str, SimulatedSession], protection: str, author: int) -> None:
    """Of every frame in every party's transcript the signature counts, also of those that it sent itself."""
    world = sessions[protection]
    entries, stranger = entries_of(world, author), SigningKey.generate(OperatingSystem())
    for place, (kind, part) in enumerate(entries):
        if kind in ("sent", "received"):
            forged = sign_frame(stranger, peek(part))
            said = verdict_of(world, author, [*entries[:place], (kind, forged)], resigned=False)
            assert said.startswith(f"transcript record {place}: ")
            assert "is not signed by its identity" in said


@pytest.mark.parametrize(("protection", "author"), AUTHORS)
@settings(max_examples=40)
@given(data=st.data())
def test_any_forgery_is_refused_or_says_no_more_than_it_shows(
    sessions: dict[str, SimulatedSession], protection: str, author: int, data: st.DataObject
) -> None:
    """Records dropped, moved, repeated, relabelled, taken from others or made up, and chained: refused, or doubted."""
    world = sessions[protection]
    entries = entries_of(world, author)
    known = [entry for name, member in AUTHORS if name == protection for entry in entries_of(world, member)]
    for _ in range(data.draw(st.integers(1, 3))):
        entries = data.draw(forgery(world, entries, known))
    said = verdict_of(world, author, entries, resigned=data.draw(st.booleans()))
    assert said.startswith(("transcript record ", "consistent, but "))


@st.composite
def forgery(draw: st.DrawFn, world: SimulatedSession, entries: list[Entry], known: list[Entry]) -> list[Entry]:
    """A transcript that is changed in one place."""
    place = draw(st.integers(0, len(entries)))
    before, after = entries[:place], entries[place:]
    change = draw(st.sampled_from(["cut", "drop", "move", "relabel", "garbage", "borrow", "make", "make", "make"]))
    kind = draw(st.sampled_from(KINDS))
    if change == "cut":
        return before
    if change == "drop":
        return before + after[1:]
    if change == "move":
        return [*after[1:2], *before, *after[:1], *after[2:]]
    if change == "relabel":
        return [*before, *((kind, part) for _, part in after[:1]), *after[1:]]
    if change == "garbage":
        return [*before, (kind, draw(st.binary(max_size=40))), *after]
    if change == "borrow":
        return [*before, draw(st.sampled_from(known)), *after]
    return [*before, draw(made_up(world, known)), *after]


@st.composite
def made_up(draw: st.DrawFn, world: SimulatedSession, known: list[Entry]) -> Entry:
    """A frame that says what some frame says, or nearly, from anybody to anybody, signed by anybody."""
    said = [peek(part) for kind, part in known if kind in ("sent", "received")]
    parties = st.one_of(st.integers(0, len(world.keys) - 1), st.sampled_from([len(world.keys), 4096, MAX_INDEX]))
    body, sender, receiver = draw(st.sampled_from(said)), draw(parties), draw(parties)
    body = replace(body, sender=sender, receiver=receiver, head=NOT_SEEN, seen=NOT_SEEN)
    if draw(st.booleans()):
        body = replace(body, step=draw(st.sampled_from(said)).step)
    if draw(st.booleans()):
        at, byte = draw(st.integers(0, len(body.payload))), draw(st.binary(max_size=2))
        body = replace(body, payload=body.payload[:at] + byte + body.payload[at + 1 :])
    signer = sender if sender < len(world.keys) and draw(st.booleans()) else draw(st.integers(0, len(world.keys) - 1))
    return draw(st.sampled_from(["sent", "received"])), sign_frame(world.keys[signer], body)


def brought(world: SimulatedSession) -> Trust:
    """Plan and roster of the stage."""
    return Trust((world.setup.plan.digest,), (world.setup.roster.digest,))


def told_of(world: SimulatedSession, member: int, entries: list[Entry]) -> dict[str, object]:
    """What `verify` says of entries that their owner chained and signed anew, to whoever brings the plan."""
    said = verdict_of(world, member, entries)
    return {} if "record" in said else verify_transcript(world.home(member) / "forged.log", brought(world))


def place_of(entries: list[Entry], what: str) -> int:
    """The index of the first entry of a kind or step."""
    return next(n for n, (kind, part) in enumerate(entries) if what in (kind, _step_of(kind, part)))


def _step_of(kind: str, part: bytes) -> str:
    return peek(part).step if kind in ("sent", "received") else ""


@pytest.mark.parametrize("protection", PROTECTIONS)
@pytest.mark.parametrize("kind", ["policy", "ledger"])
def test_policy_or_ledger_that_nothing_commits_to(
    sessions: dict[str, SimulatedSession], protection: str, kind: str
) -> None:
    """A policy or a ledger's row behind what was signed, which no frame commits to, or a second one, is refused."""
    world = sessions[protection]
    entries = entries_of(world, CLIENT)
    upload = place_of(entries, world.setup.protection.client.announcement.__name__)
    forged = (kind, b"z" * 32)
    for tampered in ([*entries, forged], [*entries[: upload + 1], forged, *entries[upload + 1 :]]):
        assert "comes after what it led to" in verdict_of(world, CLIENT, tampered)
    assert f"a second {kind}" in verdict_of(world, CLIENT, [*entries[:2], forged, (kind, bytes(32)), *entries[2:]])


@pytest.mark.parametrize(("protection", "author"), AUTHORS)
def test_record_that_stands_there_twice(sessions: dict[str, SimulatedSession], protection: str, author: int) -> None:
    """What was received once and stands there again (an upload, a receipt) is refused: it would count twice."""
    world = sessions[protection]
    entries = entries_of(world, author)
    for place, entry in enumerate(entries):
        if entry[0] == "received":
            said = verdict_of(world, author, [*entries[: place + 1], entry, *entries[place + 1 :]])
            assert said == f"transcript record {place + 1}: it stands there already: no party writes it twice"


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_reason_that_nobody_signed(sessions: dict[str, SimulatedSession], protection: str) -> None:
    """An end is believed with the reason that somebody signed for it, and with no other."""
    world = sessions[protection]
    entries = entries_of(world, CLIENT)
    for reason, doubt in (("gone", ""), ("the server cheats", "nobody has signed the reason that it states")):
        left = ("sent", frame(world, CLIENT, SERVER_INDEX, Abort("gone")))
        assert doubt in str(told_of(world, CLIENT, [*entries, ("aborted", reason.encode()), left])["verdict"])
        told = ("received", frame(world, SERVER_INDEX, EVERYONE, Abort("gone")))
        assert doubt in str(told_of(world, CLIENT, [*entries, told, ("aborted", reason.encode())])["verdict"])
    assert told_of(world, CLIENT, [*entries, ("aborted", b"gone"), left])["verdict"] == "verifies"


def test_upload_that_is_claimed_and_not_shown(sessions: dict[str, SimulatedSession]) -> None:
    """Where clients speak once, one has uploaded whose transcript holds the upload; a ledger's row alone is none."""
    world = sessions["encrypted"]
    entries = entries_of(world, CLIENT)
    upload, left = place_of(entries, "EncryptedUpload"), ("sent", frame(world, CLIENT, SERVER_INDEX, Abort("gone")))
    told = told_of(world, CLIENT, entries[: upload + 1])
    assert told["session"] == "this client has uploaded and has not fetched the outcome"
    assert "ends before" in verdict_of(world, CLIENT, [*entries[:upload], left])


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_author_that_hides_its_upload(sessions: dict[str, SimulatedSession], protection: str) -> None:
    """That a client has uploaded nothing `verify` never says in its own voice: whoever cuts the upload away says so."""
    world = sessions[protection]
    entries = entries_of(world, CLIENT)
    upload = place_of(entries, world.setup.protection.client.announcement.__name__)
    before = [entry for entry in entries[:upload] if entry[0] != "ledger"]
    ended = [("received", frame(world, SERVER_INDEX, EVERYONE, Abort("over"))), ("aborted", b"over")]
    told = told_of(world, CLIENT, [*before, *ended])
    assert told["released"] == "no, says this client: it has uploaded nothing"
