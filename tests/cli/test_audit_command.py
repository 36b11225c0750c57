"""`secagg audit` and `secagg attacks`, as a security officer runs them."""

import json
import os
import shutil
from pathlib import Path

import pytest

from secagg.transcript import FILE_NAME
from tests.cli.command import Command
from tests.parties.federation import Federation
from tests.parties.stage import make_stage
from threat_models.report.gate import DEFAULT
from threat_models.report.meanings import is_known

FEW = ("audit", "--simulate", "--dataset", "breast-cancer", "--clients", "4")


@pytest.fixture
async def transcripts(tmp_path: Path) -> dict[str, Path]:
    """The server's transcripts of two sessions without protection, and one in which a byte is another."""
    stages = [make_stage(tmp_path / name, protection="none") for name in ("session", "another")]
    for stage in stages:
        await Federation(stage).run()
    good, other = (stage.transcript(0) for stage in stages)
    bad = Path(shutil.copytree(good.parent, tmp_path / "damaged")) / FILE_NAME
    content = bytearray(bad.read_bytes())
    content[len(content) // 2] ^= 1
    bad.write_bytes(content)
    return {"good": good, "other": other, "damaged": bad}


def test_masked_sum_of_many_records_passes(secagg: Command, tmp_path: Path) -> None:
    """The default gate passes an exact masked sum that holds many times more records than a record has dimensions."""
    page, findings = tmp_path / "audit.html", tmp_path / "audit.sarif"
    said = secagg(*FEW, "--threat-model", "curious_server", "--html", page, "--sarif", findings, "--json", "-")
    assert (said.code, said.json["gate"]["outcome"]) == (0, "pass")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert json.loads(findings.read_text(encoding="utf-8"))["version"] == "2.1.0"


def test_intervals_are_corrected_for_their_number(secagg: Command) -> None:
    """The planned number of limits and the level are stated, no attack's interval is wider in level, and all are known.

    What the attacks measure is in the table of meanings: else a gate could not name it.
    """
    said = secagg(*FEW, "--threat-model", "curious_server", "--threat-model", "rerunning_server", "--json", "-").json
    stated = said["multiplicity"]
    assert stated["level"] * stated["comparisons"] < stated["family_level"]
    findings = [finding for each in said["adversaries"] for finding in each["findings"]]
    measures = [(finding["attack"], measure) for finding in findings for measure in finding["measures"]]
    assert not [measure["name"] for _, measure in measures if measure["method"].endswith(", 95 %")]
    assert [measure["name"] for attack, measure in measures if not is_known(attack, measure["name"])] == []


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
        ((*FEW, "--html", "no/such/folder/audit.html"), "there is no folder no/such/folder"),
        ((*FEW, "--sarif", "no/such/folder/audit.sarif"), "there is no folder no/such/folder"),
        ((*FEW, "--json", "no/such/folder/audit.json"), "there is no folder no/such/folder"),
        ((*FEW, "--html", "."), "is a folder"),
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
    """Every attack says what it is after, who published it and which adversaries use it."""
    listed = secagg("attacks", "--json", "-").json["attacks"]
    assert {"unmixing", "feature_inversion", "membership_release", "malicious_server"} <= set(listed)
    assert all(each["paper"] and each["adversaries"] for each in listed.values())


@pytest.mark.parametrize(
    ("slots", "promise", "code"),
    [(64, (), 1), (2, (), 0), (64, ("--epsilon", "1", "--delta", "1e-5", "--adjacency", "add-remove"), 0)],
)
def test_slot_sums_pass_where_no_record_is_alone(
    secagg: Command, slots: int, promise: tuple[str, ...], code: int
) -> None:
    """The default gate fails an exact sum with records alone in a slot, and passes few slots, or noise."""
    method = ("--method", "fedtc", "--parameters", f"slots={slots} epochs=1")
    said = secagg(*FEW, *method, *promise, "--threat-model", "curious_server", "--json", "-")
    failed = {line["attack"] for line in said.json["gate"]["lines"] if line["outcome"] == "fail"}
    assert (said.code, failed) == (code, {"small_cells"} if code else set())
