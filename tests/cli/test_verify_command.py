"""`secagg verify`, and what `secagg audit` takes over from it: whose word is taken, what is shown, the exit codes."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from secagg.agreement.plan import write_plan
from secagg.agreement.roster import write_roster
from secagg.crypto.signatures import SigningKey
from secagg.system.files import write_synced
from secagg.verification import note_plan
from tests.cli.command import Command
from tests.worlds.federation import SimulatedFederation, run_federation
from tests.worlds.session import SessionRun, SimulatedSession, make_session

SERVER = 0
ALONE = "consistent, but signed by keys that nobody vouched for"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> SimulatedSession:
    """A masked session of three clients, with files of its plan and its roster."""
    world = make_session(tmp_path_factory.mktemp("finished"))
    asyncio.run(SessionRun(world).run())
    write_plan(world.setup.plan, world.folder / "plan.json")
    write_roster(world.setup.roster, world.folder / "roster.json")
    return world


@pytest.fixture(scope="module")
def refined(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The server's transcripts of a plan of two rounds, where it ran the plan, and its keys."""
    world = SimulatedFederation.of(tmp_path_factory.mktemp("refined"), refine=1)
    paths = world.transcripts(SERVER, asyncio.run(run_federation(world)).stages)
    return [*paths, keys_in(world.folder / "tls", world.keys[SERVER])]


def brought(world: SimulatedSession) -> tuple[object, ...]:
    """The options of a verifier who brings plan and roster."""
    return ("--plan", world.folder / "plan.json", "--roster", world.folder / "roster.json")


def test_verifier_brings_plan_and_roster(secagg: Command, finished: SimulatedSession) -> None:
    """With both, or with the plan alone, a good transcript exits with 0, its roster and all signers."""
    for options in (brought(finished), brought(finished)[:2]):
        said = secagg("verify", finished.transcript(SERVER), *options, "--json", "-", "--quiet")
        assert (said.code, said.err) == (0, "")
        assert said.json["members"] == ["client-1", "client-2", "client-3"]
        assert (said.json["verdict"], said.json["proves"]) == (
            "verifies",
            "the published sum is the sum of the accepted uploads",
        )
        assert said.json["roster_sha256"] == finished.setup.roster.digest.hex()
        assert said.json["signers"] == {each.name: each.identity.hex() for each in finished.setup.roster.members}
    text = secagg("verify", finished.transcript(SERVER), *brought(finished), "--quiet").out
    keys = [f"{each.name}  {each.identity.hex()}" for each in finished.setup.roster.members]
    assert all(part in text for part in ("the transcript verifies", finished.setup.roster.digest.hex(), *keys))


def test_nobody_vouches(secagg: Command, finished: SimulatedSession) -> None:
    """Without plan and roster it is consistent and no more: exit 4, the same words in text and JSON, and a hint."""
    said = secagg("verify", finished.transcript(SERVER), "--json", "-", "--quiet")
    assert (said.code, said.json["verdict"], said.json["vouched_by"]) == (4, ALONE, None)
    said = secagg("verify", finished.transcript(SERVER))
    assert said.code == 4
    assert said.out.startswith(f"{finished.transcript(SERVER)}: {ALONE}\n")
    assert "--plan" in said.err


def test_roster_alone_is_not_enough(secagg: Command, finished: SimulatedSession) -> None:
    """Whose keys they are is not which plan was agreed on: exit 4."""
    said = secagg("verify", finished.transcript(SERVER), *brought(finished)[2:], "--json", "-", "--quiet")
    assert (said.code, said.json["verdict"]) == (4, "consistent, but made under a plan that nobody vouched for")


@pytest.mark.parametrize("what", ["plan", "roster"])
def test_another_plan_or_roster(secagg: Command, finished: SimulatedSession, tmp_path: Path, what: str) -> None:
    """A transcript of another plan or roster than the verifier brings does not verify: exit 3 with both digests."""
    other = make_session(tmp_path / "other").setup
    write_plan(other.plan, tmp_path / "plan.json")
    write_roster(other.roster, tmp_path / "roster.json")
    said = secagg("verify", finished.transcript(SERVER), f"--{what}", tmp_path / f"{what}.json", "--quiet")
    assert said.code == 3
    both = (getattr(each, what).digest.hex() for each in (other, finished.setup))
    assert all(digest in said.complaint for digest in (f"its {what} is", *both))


def test_missing_plan_file(secagg: Command, finished: SimulatedSession, tmp_path: Path) -> None:
    """A plan that cannot be read is the user's mistake: exit 2."""
    said = secagg("verify", finished.transcript(SERVER), "--plan", tmp_path / "none.json", "--quiet")
    assert said.code == 2
    assert "none.json" in said.complaint


def keys_in(folder: Path, key: SigningKey) -> Path:
    """A party's folder of keys, with its identity alone."""
    folder.mkdir(parents=True)
    write_synced(folder / "identity.key", key.private_bytes().hex().encode())
    return folder


def test_member_verifies_with_its_keys(secagg: Command, finished: SimulatedSession, tmp_path: Path) -> None:
    """In the state folder of a party that ran the plan its keys are enough; in a copy, or with other keys, none."""
    folder = Path(shutil.copytree(finished.folder, tmp_path / "copy"))
    home = folder / finished.transcript(1).relative_to(finished.folder)
    note_plan(home.parent.parent, finished.setup.plan, finished.keys[1])
    tls = keys_in(tmp_path / "tls", finished.keys[1])
    said = secagg("verify", home, "--tls", tls, "--json", "-", "--quiet")
    assert (said.code, said.json["vouched_by"]) == (0, f"the notes of {home.parent.parent.resolve()}")
    said = secagg("verify", home)
    assert said.code == 4
    assert "--tls" in said.err
    assert secagg("verify", home, "--tls", keys_in(tmp_path / "other", finished.keys[2]), "--quiet").code == 4
    assert secagg("verify", home, "--tls", tmp_path / "none", "--quiet").code == 2
    away = Path(shutil.copytree(home.parent.parent, tmp_path / "away")) / home.parent.name / home.name
    assert secagg("verify", away, "--tls", tls, "--quiet").code == 4


def test_forged_state_folder_vouches_for_nothing(secagg: Command, finished: SimulatedSession, tmp_path: Path) -> None:
    """A whole session of made-up keys, in a state folder whose note names the right inode number, is exit 4.

    So it is whether the note is of the older format, which that number alone made true, or signed with the forger's
    keys, which lie beside it; and whether the verifier brings nothing or its own keys.
    """
    forged = make_session(tmp_path / "forged")
    asyncio.run(SessionRun(forged).run())
    plan, state = forged.setup.plan, forged.home(1).parent
    own = keys_in(tmp_path / "own", finished.keys[1])
    keys_in(state / "tls", forged.keys[1])
    keys_in(state.parent / "tls", forged.keys[1])
    digests = {"plan_sha256": plan.digest.hex(), "roster_sha256": plan.roster.hex()}
    older = {"format": "secagg-plan-note/1", **digests, "folder": state.stat().st_ino}
    note = state / f"plan-{plan.digest.hex()[:16]}.json"
    for forge in (
        lambda: note.write_bytes(json.dumps(older, indent=2).encode() + b"\n"),
        lambda: note_plan(state, plan, forged.keys[1]),
    ):
        forge()
        for brought_keys in ((), ("--tls", own)):
            said = secagg("verify", forged.transcript(1), *brought_keys, "--json", "-", "--quiet")
            assert (said.code, said.json["verdict"], said.json["vouched_by"]) == (4, ALONE, None)


def test_damaged_transcript(secagg: Command, finished: SimulatedSession, tmp_path: Path) -> None:
    """A damaged transcript exits with 3, its name and the record."""
    bad = Path(shutil.copytree(finished.home(SERVER), tmp_path / "bad")) / "transcript.log"
    content = bytearray(bad.read_bytes())
    content[len(content) // 2] ^= 1
    bad.write_bytes(content)
    said = secagg("verify", bad, "--quiet")
    assert said.code == 3
    assert said.complaint.startswith(f"secagg: {bad}: transcript record ")


def test_verify_several(secagg: Command, finished: SimulatedSession, tmp_path: Path) -> None:
    """Every transcript is checked and named, whatever becomes of the others: 3 before 2, 2 before 4."""
    good, bad, missing = finished.transcript(SERVER), tmp_path / "bad.log", tmp_path / "missing.log"
    bad.write_text("hello")
    said = secagg("verify", missing, bad, good, *brought(finished), "--quiet")
    assert said.code == 3
    assert f"{good}: the transcript verifies\n" in said.out
    assert f"{bad}: the transcript does not verify\n" in said.out
    assert f"{missing}: the transcript does not verify\n" in said.out
    assert said.err.startswith(f"secagg: {bad}: transcript record 0: ")
    content = secagg("verify", missing, good, "--json", "-", "--quiet")
    assert content.code == 2
    assert [each["file"] for each in content.json["transcripts"]] == [str(missing), str(good)]
    assert ["failure" in each for each in content.json["transcripts"]] == [True, False]


def test_rounds(secagg: Command, refined: list[Path]) -> None:
    """All rounds together verify; a later one alone is inconclusive, and says which is missing."""
    *paths, tls = refined
    assert secagg("verify", *paths, "--tls", tls, "--quiet").code == 0
    said = secagg("verify", paths[1], "--tls", tls, "--quiet")
    assert said.code == 4
    assert "round 2 of 2 stands without the transcript of round 1" in said.out


def test_audit_says_whether_anybody_vouches(secagg: Command, finished: SimulatedSession, tmp_path: Path) -> None:
    """The audit takes the same options, says the same, shows roster and signers, and passes nothing unvouched for."""
    gate = tmp_path / "gate.toml"
    gate.write_text(
        'format = "secagg-gate/1"\nprotections = ["masked"]\nrecords_per_dimension = 1\ncontrols = false\n'
        'measured = false\n[[rule]]\nattack = "*"\nreason = "the rest is not asked here"\ntolerated = true\n'
    )
    asked = ("audit", finished.transcript(SERVER), "--threat-model", "network_observer", "--gate", gate)
    page, findings = tmp_path / "page.html", tmp_path / "findings.sarif"
    for options, code, verdict in (((), 4, ALONE), (brought(finished), 0, "verifies")):
        said = secagg(*asked, *options, "--html", page, "--sarif", findings, "--json", "-", "--quiet")
        assert said.code == code
        (provenance,) = said.json["subject"]["provenance"]
        assert provenance["verdict"] == verdict
        assert (provenance["vouched_by"] is None) == bool(code)
        assert provenance["roster_sha256"] == finished.setup.roster.digest.hex()
        assert set(provenance["signers"]) == {member.name for member in finished.setup.roster.members}
        (run,) = json.loads(findings.read_text())["runs"]
        assert run["properties"]["provenance"] == [provenance]
        kinds = [(each["kind"], each["level"]) for each in run["results"] if each["ruleId"] == "transcript"]
        assert kinds == ([("fail", "warning")] if code else [("pass", "none")])
        assert all(part in page.read_text() for part in (verdict, *provenance["signers"].values()))
        assert all(part in secagg(*asked, *options, "--quiet").out for part in (verdict, provenance["roster_sha256"]))


def test_audit_refuses_what_verify_refuses(secagg: Command, finished: SimulatedSession, tmp_path: Path) -> None:
    """Another plan than the transcript's is exit 3 for the audit too; with --simulate there is none to compare."""
    write_plan(make_session(tmp_path / "other").setup.plan, tmp_path / "plan.json")
    other = ("--plan", tmp_path / "plan.json", "--quiet")
    assert "not the one that the verifier brings" in secagg("audit", finished.transcript(SERVER), *other).complaint
    said = secagg("audit", "--simulate", "--dataset", "wine", *other)
    assert said.code == 2
    assert "are held against transcripts" in said.complaint
