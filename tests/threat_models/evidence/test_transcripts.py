"""What an audit reads from the transcript of each role, and what it cannot."""

import asyncio
import shutil
from dataclasses import replace

import numpy as np
import pytest

from secagg.encoding import Normalisation
from secagg.errors import BadInput, TranscriptInvalid
from secagg.heads import head_digest, save_safetensors
from secagg.session.attachments import SUM_FILE
from secagg.session.outcome import HEAD_FILE
from tests.session.forging import position, rewrite
from tests.threat_models.recorded import read_session
from tests.worlds.federation import SimulatedFederation, run_federation
from tests.worlds.session import SessionRun, make_session
from threat_models.adversary import adversary_named
from threat_models.attacks.disclosure.small_cells import SMALL_CELLS
from threat_models.attacks.of_methods.lira import HeadRecipe
from threat_models.evidence.transcripts import known_of, of_plans
from threat_models.examination import examine
from threat_models.findings import Verdict
from threat_models.session import SOMEBODY, AuditRecords, Knowledge
from threat_models.views import missing_from, view_of

PROTECTIONS = ("none", "masked", "shared", "encrypted")
SERVER, CLIENT = 0, 1


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One session of three clients under each protection."""
    stages = {name: make_session(tmp_path_factory.mktemp(name), protection=name) for name in PROTECTIONS}
    for stage in stages.values():
        asyncio.run(SessionRun(stage).run())
    return stages


@pytest.fixture(scope="module")
def refined(tmp_path_factory):
    """A plan of three sums without noise, the last two of which refine the head."""
    world = SimulatedFederation.of(tmp_path_factory.mktemp("refined"), epsilon=float("inf"), delta=None, adjacency=None)
    return world, asyncio.run(run_federation(world)).stages


@pytest.fixture
def over(finished, tmp_path):
    """A copy of a finished masked session, to be damaged."""
    shutil.copytree(finished["masked"].folder, tmp_path / "copy")
    return replace(finished["masked"], folder=tmp_path / "copy")


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_server_shows_everything_but_what_is_hidden_from_it(finished, protection):
    """The server's transcript shows the exact sum, the head, all messages, and vectors in clear where nothing hides."""
    stage = finished[protection]
    session = read_session(stage.transcript(SERVER))
    assert (session.role, session.number, len(session.members)) == ("server", 1, 3)
    flat = np.concatenate([session.release[block.name].ravel() for block in stage.setup.sum.layout.blocks])
    assert np.array_equal(flat, stage.total((1, 2, 3)))
    assert set(session.contributions) == (set(session.members) if protection == "none" else set())
    assert session.head is not None
    senders = {message.sender for message in session.messages}
    assert senders >= set(session.clients)
    assert missing_from(session, adversary_named("curious_server")) == ()


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_other_roles_show_the_head_and_nothing_of_others(finished, protection):
    """Clients, aggregators and key holders have the head that members are told, their own messages, and no vector."""
    stage = finished[protection]
    for member in (CLIENT, *stage.setup.context.helpers):
        session = read_session(stage.transcript(member))
        assert session.role == stage.setup.roster.role(member)
        assert head_digest(session.head) == head_digest(read_session(stage.transcript(SERVER)).head)
        assert (session.release, session.uploads, session.contributions) == ({}, {}, {})
        assert session.messages


@pytest.mark.parametrize("protection", PROTECTIONS)
@pytest.mark.parametrize("name", ["network_observer", "no_protection", "curious_server", "curious_key_holder"])
def test_members_transcript_does_not_stand_for_who_sees_more(finished, protection, name):
    """A client's transcript gives no view of messages or sums that it does not hold; without any it is refused."""
    session = read_session(finished[protection].transcript(CLIENT))
    one = adversary_named(name)
    assert missing_from(session, one)
    if name == "network_observer":
        with pytest.raises(BadInput, match="shows none of what network_observer sees: messages"):
            view_of(session, one)
    else:
        view = view_of(session, one)
        assert not any(hasattr(view, field) for field in ("messages", "uploads", "release", "contributions"))


def test_members_transcript_stands_for_who_sees_as_much(finished):
    """A client's transcript has all that a curious client and the holder of a released head see."""
    session = read_session(finished["masked"].transcript(CLIENT))
    for name in ("curious_client", "released_head_white_box", "released_head_black_box"):
        assert missing_from(session, adversary_named(name)) == ()
        assert hasattr(view_of(session, adversary_named(name)), "head")


def test_colluders_vectors_are_in_no_masked_transcript(finished):
    """Not even the server's shows what colluding clients know of each other under a mask, and it says so."""
    session = read_session(finished["masked"].transcript(SERVER))
    assert missing_from(session, adversary_named("colluding_clients")) == ("contributions",)
    clear = read_session(finished["none"].transcript(SERVER))
    assert missing_from(clear, adversary_named("colluding_clients")) == ()


def test_session_without_an_outcome_is_refused(tmp_path):
    """A client that has left after its upload verifies, but shows nothing to audit; an abort neither."""
    stage = make_session(tmp_path / "shared", protection="shared")
    asyncio.run(SessionRun(stage).run())
    at = position(stage, "Outcome", CLIENT)
    rewrite(stage, lambda entries: entries[:at], member=CLIENT, key=CLIENT)
    with pytest.raises(BadInput, match="no outcome to audit: this client has uploaded"):
        read_session(stage.transcript(CLIENT))
    aborted = make_session(tmp_path / "aborted")
    asyncio.run(SessionRun(aborted).run(absent=(2, 3)))
    with pytest.raises(BadInput, match="no outcome to audit: aborted"):
        read_session(aborted.transcript(SERVER))


@pytest.mark.parametrize("damage", ["aggregate", "head", "garbage"])
def test_files_beside_a_transcript_are_those_that_it_names(over, damage):
    """Another sum, another head or a broken file beside a server's transcript is refused by name."""
    home = over.home(SERVER)
    if damage == "aggregate":
        total = bytearray((home / SUM_FILE).read_bytes())
        total[0] ^= 1
        (home / SUM_FILE).write_bytes(total)
    elif damage == "head":
        (home / HEAD_FILE).unlink()
    else:
        (home / SUM_FILE).write_bytes(b"no sum")
    with pytest.raises(BadInput, match="gone from beside" if damage == "head" else SUM_FILE):
        read_session(over.transcript(SERVER))


def test_head_that_members_are_not_told_is_checked(tmp_path):
    """Where the server keeps the head, the file beside its transcript must be the one that the outcome names."""
    stage = make_session(tmp_path, result="server")
    asyncio.run(SessionRun(stage).run())
    session = read_session(stage.transcript(SERVER))
    assert read_session(stage.transcript(CLIENT)).head is None
    save_safetensors(replace(session.head, bias=session.head.bias + 1), stage.home(SERVER) / HEAD_FILE, {})
    with pytest.raises(BadInput, match="not the head that the transcript names"):
        read_session(stage.transcript(SERVER))


def test_damaged_transcript_is_read_by_nobody(over):
    """A flipped bit is found before anything is read."""
    path = over.transcript(CLIENT)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(TranscriptInvalid):
        read_session(path)


def test_refined_heads_are_made_through_all_their_sums(refined):
    """From the members' records the recipe of a session's head gives that very head; another session's does not."""
    world, stages = refined
    integers, labels = (
        np.concatenate([getattr(each, name) for each in world.records.values()]) for name in ("integers", "labels")
    )
    records = AuditRecords(integers, labels, integers.astype(float))
    for number, stage in enumerate(stages, start=1):
        session = read_session(world.transcripts(SERVER, (stage,))[0])
        assert session.number == number
        recipe = HeadRecipe.of(view_of(session, adversary_named("released_head_white_box")))
        assert recipe.sums == number
        assert head_digest(recipe.head_of(records)) == head_digest(session.head)
        if number > 1:
            assert head_digest(replace(recipe, sums=number - 1).head_of(records)) != head_digest(session.head)


def test_noise_of_every_round_is_that_of_the_sessions(tmp_path):
    """A recipe's noises are those on the opened sums, in order, whether or not a census stands before them."""
    for gate in (0, 1):
        world = SimulatedFederation.of(
            tmp_path / str(gate), class_gate=gate, epsilon=4000.0
        )  # the census leaves no class out
        stages = asyncio.run(run_federation(world)).stages
        sessions = [read_session(world.transcripts(SERVER, (stage,))[0]) for stage in stages][gate:]
        view = view_of(sessions[-1], adversary_named("released_head_white_box"))
        assert HeadRecipe.of(view).noises == tuple(session.noise for session in sessions)


@pytest.mark.parametrize(
    ("choices", "verdict", "why"),
    [
        ({"class_gate": 1}, Verdict.FAILS, "the smallest holds"),
        ({}, Verdict.INCONCLUSIVE, "--class-gate K"),
    ],
)
def test_exact_transcript_is_cleared_by_a_class_gate(tmp_path, choices, verdict, why):
    """Who holds a class no transcript of an exact sum shows: small cells fail under a gate and are open without."""
    exact = {"epsilon": float("inf"), "delta": None, "adjacency": None, "refine": 0, "colluders": 1}
    world = SimulatedFederation.of(tmp_path, **exact, **choices, normalise=Normalisation.CENTRED_UNIT)
    sessions = [read_session(path) for path in world.transcripts(SERVER, asyncio.run(run_federation(world)).stages)]
    assert not sessions[-1].contributions
    view = view_of(sessions[-1], adversary_named("curious_server"))
    local = world.records[1]
    known = AuditRecords(local.integers, local.labels, local.integers.astype(float))
    finding = SMALL_CELLS.run((view,), Knowledge(known, (SOMEBODY,) * len(known)), lambda *_: None)
    assert finding.verdict is verdict
    assert why in finding.sentence


def test_members_see_the_sums_that_open_rounds(refined):
    """A client's transcript of a refined plan shows the opened sum, exactly as the server's does."""
    world, stages = refined
    for stage in stages:
        own, its = (read_session(world.transcripts(member, (stage,))[0]) for member in (CLIENT, SERVER))
        assert set(own.release) == set(its.release)
        assert all(np.array_equal(block, its.release[name]) for name, block in own.release.items())


def test_rounds_of_a_plan_are_one_session(refined):
    """In whatever order its transcripts come, a plan is audited at its sum of classes."""
    world, stages = refined
    sessions = [read_session(world.transcripts(SERVER, (stage,))[0]) for stage in stages]
    for given in (sessions, sessions[::-1], sessions[:1]):
        (found,) = of_plans(given)
        assert found.number == 1
        assert "class_sums" in found.release
        assert found.earlier == ()
    (last,) = of_plans(sessions[1:])
    assert last.number == len(stages)


def test_noise_is_that_of_all_rounds(refined):
    """What is zero without noise is measured in every round that was given, also in those that are not attacked."""
    world, stages = refined
    sessions = [read_session(world.transcripts(SERVER, (stage,))[0]) for stage in stages]
    named = [replace(session, noisy_sums=(session.number,)) for session in sessions]
    for given in (named, named[::-1]):
        (found,) = of_plans(given)
        assert found.noisy_sums == tuple(range(1, len(stages) + 1))


def test_round_twice_is_refused(refined):
    """One round given twice, which would count as another, is refused."""
    world, stages = refined
    session = read_session(world.transcripts(SERVER, stages[:1])[0])
    with pytest.raises(BadInput, match="of one round"):
        of_plans([session, session])


def test_later_round_alone_tells_nothing_of_the_sum_of_classes(refined):
    """Attacks on the sum of classes are inconclusive where only another round's transcript is there, never a pass."""
    world, stages = refined
    server = adversary_named("curious_server")
    nothing = known_of(read_session(world.transcripts(SERVER, stages[:1])[0]), None, None)
    first, last = (read_session(world.transcripts(SERVER, (stage,))[0]) for stage in (stages[0], stages[-1]))
    for session, is_told in ((first, True), (last, False)):
        found = {each.attack: each for each in examine(server, (session,), nothing, lambda *_: None).findings}
        assert ("another of its rounds" not in found["small_cells"].sentence) == is_told
        for name in ("small_cells", "unmixing", "membership_release"):
            assert is_told or found[name].verdict is Verdict.INCONCLUSIVE
