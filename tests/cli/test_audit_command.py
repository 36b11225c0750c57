"""`secagg audit` and `secagg attacks`, as a security officer runs them."""

import asyncio
import json
import os
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from secagg.encoding import Normalisation
from secagg.plan_facts.records import read_records
from secagg.transcript import FILE_NAME
from tests.cli.command import Command
from tests.threat_models.attacks.audited import plenty
from tests.worlds.federation import SimulatedFederation, run_federation
from tests.worlds.session import SessionRun, make_session
from threat_models.report.gate import DEFAULT

pytestmark = pytest.mark.usefixtures("repeatable_chance")

PROMISE = ("--epsilon", "1", "--delta", "1e-5", "--adjacency", "add-remove")
FEW = ("audit", "--simulate", "--dataset", "breast-cancer", "--clients", "4")


@pytest.fixture
async def transcripts(tmp_path: Path) -> dict[str, Path]:
    """The server's transcripts of two sessions without protection, and one in which a byte is another."""
    stages = [make_session(tmp_path / name, protection="none") for name in ("session", "another")]
    for world in stages:
        await SessionRun(world).run()
    good, other = (world.transcript(0) for world in stages)
    bad = Path(shutil.copytree(good.parent, tmp_path / "damaged")) / FILE_NAME
    content = bytearray(bad.read_bytes())
    content[len(content) // 2] ^= 1
    bad.write_bytes(content)
    return {"good": good, "other": other, "damaged": bad}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of thousands of records, of which none is told from others."""
    data, path = plenty(), tmp_path_factory.mktemp("many") / "many.npz"
    assert data.test is not None
    parts = (data.train, data.test)
    arrays = {name: np.concatenate([getattr(each, name) for each in parts]) for name in ("inputs", "labels")}
    np.savez(path, features=arrays["inputs"], labels=arrays["labels"])
    return path


def test_masked_sum_of_many_records_passes(secagg: Command, many: Path, tmp_path: Path) -> None:
    """The default gate passes an exact masked sum of many times more records than dimensions that tells no member."""
    page, findings = tmp_path / "audit.html", tmp_path / "audit.sarif"
    asked = ("audit", "--simulate", "--dataset", many, "--clients", "4", "--threat-model", "curious_server")
    said = secagg(*asked, "--html", page, "--sarif", findings, "--json", "-")
    assert (said.code, said.json["gate"]["outcome"]) == (0, "pass")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert json.loads(findings.read_text(encoding="utf-8"))["version"] == "2.1.0"


def test_intervals_are_corrected_for_their_number(secagg: Command) -> None:
    """The planned number of limits and the level are stated, and no attack's interval is wider in level."""
    said = secagg(*FEW, "--threat-model", "curious_server", "--threat-model", "rerunning_server", "--json", "-").json
    stated = said["multiplicity"]
    assert stated["level"] * stated["comparisons"] < stated["family_level"]
    findings = [finding for each in said["adversaries"] for finding in each["findings"]]
    measures = [measure for finding in findings for measure in finding["measures"]]
    assert not [measure["label"] for measure in measures if measure["method"].endswith(", 95 %")]


def test_same_data_without_noise_are_judged_no_better(secagg: Command) -> None:
    """Who takes the noise out of a plan sees the audit of the same data pass no more than before.

    Nothing is said of members by 57 others: the reader of a head is inconclusive either way.
    """
    asked = (*FEW, "--threat-model", "released_head_white_box", "--threat-model", "curious_server", "--json", "-")
    exact, noisy = secagg(*asked), secagg(*asked, *PROMISE)
    assert (noisy.code, exact.code) == (4, 4)
    for said in (exact, noisy):
        told = {(line["attack"], line["adversary"]): line["outcome"] for line in said.json["gate"]["lines"]}
        assert told["audit", "released_head_white_box"] == "inconclusive"
    can_work = ("membership_release", "membership_head")
    lines = [line for line in exact.json["gate"]["lines"] if line["attack"] in can_work]
    assert {line["outcome"] for line in lines} == {"inconclusive"}


def test_protected_number_of_records_is_nowhere(secagg: Command, tmp_path: Path) -> None:
    """Under add-remove a report says the noisy count and that it is one; the true number is nowhere called public."""
    page, findings = tmp_path / "audit.html", tmp_path / "audit.json"
    asked = (*FEW, *PROMISE, "--threat-model", "released_head_white_box", "--html", page)
    said = secagg(*asked, "--json", findings)
    subject = json.loads(findings.read_text(encoding="utf-8"))["subject"]
    assert subject["is_noisy"]
    assert f"about {subject['records']} records (as the noisy counts say; the number itself is protected)" in (
        page.read_text(encoding="utf-8")
    )
    assert "it does not know how many the sum holds" in said.out
    assert "publicly known" not in said.out
    exact = secagg(*FEW, "--threat-model", "released_head_white_box", "--json", "-").json["subject"]
    assert (exact["is_noisy"], exact["records"]) == (False, 456)


def test_unprotected_uploads_fail(secagg: Command) -> None:
    """The default gate fails vectors in clear: exit 1."""
    said = secagg(*FEW, "--protection", "none", "--threat-model", "curious_server", "--json", "-")
    assert (said.code, said.json["gate"]["outcome"]) == (1, "fail")


def test_several_threat_models_stand_in_one_report(secagg: Command) -> None:
    """Each named adversary has its own view and findings."""
    named = ("network_observer", "released_head_black_box")
    said = secagg(*FEW, "--threat-model", named[0], "--threat-model", named[1], "--json", "-")
    assert tuple(each["name"] for each in said.json["adversaries"]) == named


def test_transcript_is_audited(secagg: Command, transcripts: dict[str, Path]) -> None:
    """Without records to try, what takes them is inconclusive, and vectors in clear still fail the gate."""
    said = secagg("audit", transcripts["good"], "--threat-model", "curious_server", "--json", "-")
    found = {each["attack"]: each["verdict"] for each in said.json["adversaries"][0]["findings"]}
    assert said.code == 1
    assert found["unmixing"] == "inconclusive"
    assert found["sizes_and_timing"] != "inconclusive"
    assert len(said.json["subject"]["transcripts"]) == 1


@pytest.fixture
def told(tmp_path: Path) -> tuple[Path, Path]:
    """The server's transcript of an exact masked sum over four members, and the file of all their records."""
    exact = {"epsilon": float("inf"), "delta": None, "adjacency": None, "refine": 0, "dimension": 20}
    world = SimulatedFederation.of(tmp_path, **exact, normalise=Normalisation.CENTRED_UNIT, max_records=128)
    generator, files, parts = np.random.default_rng(5), {}, []
    for member in world.setup.roster.clients:
        labels = np.arange(60) % 3
        parts.append((generator.normal(size=(60, 20)) + labels[:, None] * (np.arange(20) < 10), labels))
        files[member] = tmp_path / f"{member}.npz"
        np.savez(files[member], features=parts[-1][0], labels=labels)
    world = replace(
        world, records={member: read_records(world.setup.plan, str(path)) for member, path in files.items()}
    )
    whole = tmp_path / "whole.npz"
    features, labels = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    np.savez(whole, features=features, labels=labels)
    return world.transcripts(0, asyncio.run(run_federation(world)).stages)[0], whole


def test_what_an_auditor_brings_is_named_and_held_against_the_sum(
    secagg: Command, told: tuple[Path, Path], tmp_path: Path
) -> None:
    """Members' own records given as strangers' are found out: inconclusive, whatever the attacks find; digests stand.

    So is a file of records that took no part and is called known. What is as it is called raises no doubt.
    """
    transcript, whole = told
    with np.load(whole) as content:
        features, labels = content["features"], content["labels"]
    order = np.random.default_rng(0).permutation(len(labels))
    made = np.random.default_rng(9).normal(size=(120, 20)) + 3
    files = {"known": order[:120], "public": order[120:]}
    for name, rows in files.items():
        np.savez(tmp_path / f"{name}.npz", features=features[rows], labels=labels[rows])
    np.savez(tmp_path / "others.npz", features=made, labels=np.arange(120) % 3)
    known, public, others = (tmp_path / f"{name}.npz" for name in (*files, "others"))
    asked = ("audit", transcript, "--threat-model", "curious_server", "--json", "-")
    page = tmp_path / "audit.html"
    for given, doubt in (
        ((known, public), "those of --public took part."),
        ((others, public), "they did not all take part."),
        ((known, others), ""),
    ):
        said = secagg(*asked, "--known", given[0], "--public", given[1], "--html", page)
        subject = said.json["subject"]
        assert [each["role"] for each in subject["inputs"]] == ["known", "public"]
        assert [each["name"].split("/")[-1] for each in subject["inputs"]] == [each.name for each in given]
        assert [each["sha256"] for each in subject["inputs"]] == [
            sha256(each.read_bytes()).hexdigest() for each in given
        ]
        assert [each["records"] for each in subject["inputs"]] == [120, 120]
        assert all(each["sha256"] in page.read_text(encoding="utf-8") for each in subject["inputs"])
        found = {each["attack"]: each for each in said.json["adversaries"][0]["findings"]}
        assert all(each.endswith(doubt) for each in subject["doubts"])
        assert bool(subject["doubts"]) == bool(doubt)
        assert found["membership_release"]["verdict"] == "inconclusive"
        assert doubt in found["membership_release"]["sentence"]
        assert said.code == 4
    assert "a classifier that sees these records and nothing of the session" in found["membership_release"]["sentence"]


def test_known_records_alone_are_said_to_be_too_little(secagg: Command, told: tuple[Path, Path]) -> None:
    """Without records that took no part the first line judged says so, and what it means for which attacks.

    No attack is blamed for its missing controls, the control without protection is one line, and the exit code is 4.
    """
    said = secagg("audit", told[0], "--known", told[1])
    lines = said.out.splitlines()
    assert said.code == 4
    assert lines[3].startswith(
        "INCONCLUSIVE inputs: No --public given: membership and unmixing cannot be judged; bring"
    )
    assert not [line for line in lines if "control." in line or "did not succeed and must" in line or "'*'" in line]
    (control,) = [line for line in lines if line.startswith("no_protection")]
    assert control.startswith("no_protection: nothing to work on. This transcript does not hold")
    assert len([line for line in lines if "membership_release" in line and line.startswith("INCONCLUSIVE")]) == 1


def test_cover_says_what_was_audited_and_what_changed(secagg: Command, told: tuple[Path, Path], tmp_path: Path) -> None:
    """Consortium, plan, members, auditor and evidence are in the report; a second audit says what changed since."""
    old, page = tmp_path / "old.json", tmp_path / "new.html"
    asked = ("audit", told[0], "--threat-model", "curious_server", "--quiet")
    assert secagg(*asked, "--json", old, "--auditor", "the data protection officer").code == 4
    cover = json.loads(old.read_text(encoding="utf-8"))["cover"]
    assert cover["consortium"]
    assert (cover["clients"], len(cover["members"]), len(cover["plans"])) == (4, 4, 1)
    assert cover["auditor"] == "the data protection officer"
    said = secagg(*asked, "--threat-model", "network_observer", "--json", "-", "--html", page, "--against", old)
    changes = said.json["against"]["changes"]
    assert [(each["change"], each["adversary"]) for each in changes] == [("new", "Observer of the network")]
    text = page.read_text(encoding="utf-8")
    assert all(words in text for words in (cover["consortium"], cover["plans"][0], "What changed since", "+ new"))


def test_audit_of_another_session_is_compared_when_asked(
    secagg: Command, told: tuple[Path, Path], transcripts: dict[str, Path], tmp_path: Path
) -> None:
    """`--against` another session's audit is refused (exit 2) without --across-sessions; with it the report says so."""
    old = tmp_path / "old.json"
    secagg("audit", transcripts["good"], "--threat-model", "curious_server", "--quiet", "--json", old)
    asked = ("audit", told[0], "--threat-model", "curious_server", "--quiet", "--against", old)
    said = secagg(*asked)
    assert (said.code, "is an audit of another session" in said.complaint) == (2, True)
    notes = secagg(*asked, "--across-sessions", "--json", "-").json["against"]["notes"]
    assert "The earlier audit is of another session" in notes[0]


def test_plan_without_training_leaves_attacks_on_it_nothing(secagg: Command, told: tuple[Path, Path]) -> None:
    """What a plan gives an attack nothing to work on is said so, and is not inconclusive for want of records."""
    said = secagg("audit", told[0], "--threat-model", "curious_server", "--json", "-").json
    states = {each["attack"]: each["state"] for each in said["adversaries"][0]["findings"]}
    idle = {"gradient_inversion", "membership_training", "adapters", "membership_generator", "membership_prototypes"}
    idle |= {
        "feature_inversion",
        "changing_cohorts",
        "score_inference",
        "linkage",
        "label_counts",
        "reidentification_latents",
    }
    assert {name for name, state in states.items() if state is None} == idle
    assert states["membership_release"] == "could not tell"


def test_default_gate_asks_about_the_server(secagg: Command, told: tuple[Path, Path]) -> None:
    """Who asks about an observer alone gets no pass: the gate names whom it misses."""
    said = secagg("audit", told[0], "--threat-model", "network_observer", "--json", "-")
    assert said.code == 4
    lines = [line for line in said.json["gate"]["lines"] if line["adversary"] == "curious_server"]
    assert [line["outcome"] for line in lines] == ["inconclusive"]


@pytest.mark.parametrize("named", [(), ("--threat-model", "network_observer")])
def test_transcripts_that_an_adversary_does_not_see_are_refused(
    secagg: Command, transcripts: dict[str, Path], named: tuple[str, ...]
) -> None:
    """A transcript that no attack would look at is not passed over: exit 2."""
    said = secagg("audit", transcripts["good"], transcripts["other"], *named, "--quiet")
    assert said.code == 2
    assert "sees 1 of these 2 plans' transcripts" in said.complaint


def test_damaged_transcript_is_no_evidence(secagg: Command, transcripts: dict[str, Path]) -> None:
    """A transcript that does not verify is not audited: exit 3, and the record at fault is named."""
    said = secagg("audit", transcripts["damaged"], "--quiet")
    assert said.code == 3
    assert "record" in said.complaint


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("audit",), "--simulate"),
        ((*FEW, "--threat-model", "nobody"), "no threat model"),
        ((*FEW, "--gate", "missing.toml"), "missing.toml"),
        ((*FEW, "--method", "dp-sgd"), ""),
        (("audit", "nowhere.log", "--simulate"), "say what to audit"),
        (("audit", "nowhere.log", "--class-gate", "2"), "--class-gate goes with --simulate"),
        (("audit", "nowhere.log", "--epsilon", "1", "--dropouts", "0"), "--dropouts, --epsilon go with --simulate"),
        (("audit", "nowhere.log", "--seed", "0"), "--seed goes with --simulate"),
        (("audit", "nowhere.log", "--dataset", "digits"), "plan new --class-gate K"),
        ((*FEW, "--known", "x.npz"), "--known goes with a transcript"),
        ((*FEW, "--public", "x.npz", "--records", "9"), "--public, --records go with a transcript"),
        ((*FEW, "--html", "no/such/folder/audit.html"), "there is no folder no/such/folder"),
        ((*FEW, "--sarif", "no/such/folder/audit.sarif"), "there is no folder no/such/folder"),
        ((*FEW, "--json", "no/such/folder/audit.json"), "there is no folder no/such/folder"),
        ((*FEW, "--html", "."), "is a folder"),
        ((*FEW, "--across-sessions"), "--across-sessions goes with --against"),
    ],
)
def test_bad_questions_are_refused(secagg: Command, arguments: tuple[str, ...], words: str) -> None:
    """What cannot be audited gets one line with a remedy: exit 2."""
    said = secagg(*arguments, "--quiet")
    assert said.code == 2
    assert words in said.complaint


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('[[rule]]\nattack = "unmixin"\nreason = "r"', "did you mean 'unmixing'?"),
        ('[[rule]]\nattack = "unmixing"\nadversary = "server"\nreason = "r"', "did you mean 'curious_server'?"),
        ('[[rule]]\nattack = "unmixing"\nmeasure = "auc"\nat_most = 1\nreason = "r"', "has no measure 'auc'"),
        (
            '[[waiver]]\nattack = "unmix"\nadversary = "curious_server"\nreason = "r"\nexpires = 2030-01-01',
            "did you mean 'unmixing'?",
        ),
        (
            '[[waiver]]\nattack = "unmixing"\nadversary = "curious_server"\nreason = "r"\nexpires = 2099-01-01',
            "more than a year after this audit",
        ),
        ('[[waiver]]\nattack = "noise"\nadversary = ""\nreason = "r"\nexpires = 2026-12-01', "cannot be waived"),
    ],
)
def test_gate_that_names_what_is_not_there_is_refused(secagg: Command, tmp_path: Path, line: str, words: str) -> None:
    """A misspelt attack, threat model or measure would judge nothing: exit 2, with the nearest name and all names."""
    gate = tmp_path / "gate.toml"
    gate.write_text(f"{DEFAULT.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")
    said = secagg(*FEW, "--gate", gate, "--quiet")
    assert said.code == 2
    assert words in said.complaint


def test_file_that_may_not_be_written_is_refused_first(secagg: Command, tmp_path: Path) -> None:
    """Nothing is simulated when the report has nowhere to go."""
    page = tmp_path / "audit.html"
    page.touch(mode=0o400)
    if os.access(page, os.W_OK):
        pytest.skip("this user may write everything")
    said = secagg(*FEW, "--html", page)
    assert (said.code, "permission denied" in said.complaint) == (2, True)


def test_debug_is_in_the_help(secagg: Command) -> None:
    """The option that goes with every command is listed with them."""
    assert "--debug" in secagg("--help").out


def test_attacks_are_listed_with_their_papers(secagg: Command) -> None:
    """Every attack says what it is after, who published it, which adversaries use it, and what a gate may name."""
    listed = secagg("attacks", "--json", "-").json["attacks"]
    assert {"unmixing", "feature_inversion", "membership_release", "malicious_server"} <= set(listed)
    assert all(each["paper"] and each["adversaries"] for each in listed.values())
    assert listed["membership_head"]["measures"]["auc.lira_online"] == "AUC, LiRA online"


@pytest.mark.parametrize(
    ("name", "parameters", "promise", "code"),
    [
        ("mpft", "sampling=cluster slots=64 rounds=1", (), 1),
        ("fedtc", "slots=2", (), 4),
        ("fedtc", "slots=64", PROMISE, 0),
    ],
)
def test_slot_sums_fail_where_a_record_is_alone(
    secagg: Command, name: str, parameters: str, promise: tuple[str, ...], code: int
) -> None:
    """The default gate fails an exact sum with records alone in a cluster, not one of few slots, and passes noise.

    Of few slots it cannot tell, by 57 others, whether members are told.
    """
    method = ("--method", name, "--parameters", f"{parameters} epochs=1")
    gate = () if promise else ("--class-gate", "2")  # which counts slots, but not clusters
    said = secagg(*FEW, *method, *promise, *gate, "--threat-model", "curious_server", "--json", "-")
    failed = {line["attack"] for line in said.json["gate"]["lines"] if line["outcome"] == "fail"}
    assert said.code == code
    assert failed == ({"small_cells"} if code == 1 else set())
