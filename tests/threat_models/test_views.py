"""What an adversary sees, and what its view does not even have."""

import dataclasses

import numpy as np
import pytest

from secagg.errors import BadInput
from tests.threat_models.attacks.audited import rehearsed
from tests.threat_models.attacks.trained import trained
from threat_models import adversary as adversaries
from threat_models.adversary import FIELDS, adversary_named, names
from threat_models.attacks import ATTACKS
from threat_models.examination import examine
from threat_models.findings import Verdict
from threat_models.views import ALWAYS, view_of

DESIGNED = {
    "no_protection", "curious_server", "rerunning_server", "colluding_clients", "colluding_aggregators",
    "curious_key_holder", "curious_client", "released_head_white_box", "released_head_black_box", "network_observer",
    "malicious_server",
}  # fmt: skip


def shown(view):
    """Names of what a view has beside the public facts."""
    held = {field.name for field in dataclasses.fields(view) if hasattr(view, field.name)}
    assert set(ALWAYS) <= held
    assert view.round is None or "release" in view.sees or view.in_clear
    return held - {*ALWAYS, "earlier", "round"}


def test_all_designed_adversaries_are_there():
    """Every named threat model is declared, complete, and applies attacks that exist."""
    assert set(names()) == DESIGNED
    for name in names():
        one = adversary_named(name)
        assert set(one.attacks) <= {*ATTACKS, "malicious_server"}
        assert all((one.title, one.who, one.knows, one.powers, one.out_of_scope, one.residual_risk))


@pytest.mark.parametrize("name", names())
def test_view_lacks_what_is_not_seen(name):
    """A view has no attribute but the public facts and what its adversary sees; it cannot be given one."""
    one, view = adversary_named(name), view_of(rehearsed().sessions[0], adversary_named(name))
    assert shown(view) <= set(one.sees)
    for field in set(FIELDS) - shown(view):
        with pytest.raises(AttributeError):
            getattr(view, field)
        assert not view.has(field)
    with pytest.raises(dataclasses.FrozenInstanceError):
        view.release = {}
    assert not hasattr(view, "__dict__")


@pytest.mark.parametrize(
    ("name", "protection", "clear"),
    [
        ("no_protection", "masked", 8), ("curious_server", "masked", 0), ("curious_server", "none", 8),
        ("curious_server", "shared", 0), ("colluding_aggregators", "shared", 8), ("colluding_aggregators", "masked", 0),
        ("colluding_clients", "masked", 7), ("curious_client", "masked", 1), ("curious_key_holder", "encrypted", 0),
    ],
)  # fmt: skip
def test_protection_decides_whose_vector_is_clear(name, protection, clear):
    """Contributions are there where the protection does not hide them, or where a client colludes."""
    session = rehearsed().sessions[0]
    session = dataclasses.replace(session, plan=dataclasses.replace(session.plan, protection=protection))
    assert len(view_of(session, adversary_named(name)).in_clear) == clear


def test_members_see_what_the_plan_shows_them():
    """A curious client has no head where the server keeps it, and no sum that opens no round."""
    session, one = rehearsed().sessions[0], adversary_named("curious_client")
    assert shown(view_of(session, one)) == {"head", "contributions"}
    kept = dataclasses.replace(session, plan=dataclasses.replace(session.plan, result="server"), is_shown=True)
    assert shown(view_of(kept, one)) == {"release", "contributions"}


def test_released_model_is_attacked_like_a_head():
    """Who reads a trained model has what a head's reader has; where a transcript holds none, nothing passes."""
    rehearsal = trained()
    session = dataclasses.replace(rehearsal.sessions[0], role="server")
    reader = adversary_named("released_head_white_box")
    found = examine(reader, (session,), rehearsal.knowledge, lambda *_: None)
    assert {finding.verdict for finding in found.findings} <= {Verdict.SUCCEEDS, Verdict.INCONCLUSIVE}
    assert all(finding.measures and not finding.unseen for finding in found.findings)
    with pytest.raises(BadInput, match="shows none of what released_head_white_box sees"):
        view_of(dataclasses.replace(session, head=None), reader)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text.replace('title = "', 'titel = "'), "titel"),
        (lambda text: text.replace('"release", ', '"keys", '), "keys"),
        (lambda text: "\n".join(text.splitlines()[1:]), "title"),
    ],
)
def test_incomplete_declarations_are_refused(tmp_path, monkeypatch, change, problem):
    """A file that lacks, adds or misnames something is named with what is wrong."""
    text = (adversaries.FOLDER / "curious_server.toml").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(change(text), encoding="utf-8")
    monkeypatch.setattr(adversaries, "FOLDER", tmp_path)
    with pytest.raises(BadInput, match=problem):
        adversary_named("mine")
    with pytest.raises(BadInput, match="no threat model"):
        adversary_named("yours")


def test_attack_that_lacks_its_view_is_not_applicable():
    """An attack whose adversary does not see what it needs is reported as such and not run."""
    rehearsal = rehearsed()
    found = examine(adversary_named("curious_server"), rehearsal.sessions, rehearsal.knowledge, lambda *_: None)
    by_name = {finding.attack: finding for finding in found.findings}
    assert by_name["label_counts"].verdict is Verdict.NOT_APPLICABLE
    assert "vectors in clear" in by_name["label_counts"].sentence
    assert found.sees == ("messages", "release", "head")
    assert {finding.adversary for finding in found.findings} == {"curious_server"}


def examined(name, session, knowledge=None):
    """The findings of an adversary by attack, of one session of the rehearsed plan."""
    found = examine(adversary_named(name), (session,), knowledge or rehearsed().knowledge, lambda *_: None)
    return {finding.attack: finding for finding in found.findings}


def told(role, **changes):
    """The rehearsed session as a masked transcript shows it: no vector in clear."""
    return dataclasses.replace(rehearsed().sessions[0], role=role, contributions={}, **changes)


@pytest.mark.parametrize("name", ["curious_client", "colluding_clients"])
def test_transcript_without_an_adversarys_own_vector_is_inconclusive(name):
    """What fails against the sum of all may succeed for who can take its own vector off: never a pass."""
    whole = dataclasses.replace(rehearsed().sessions[0], is_shown=True)
    assert examined(name, whole)["small_cells"].verdict is Verdict.FAILS
    for attack, finding in examined(name, told("client", is_shown=True)).items():
        assert finding.verdict is not Verdict.FAILS or attack in ("membership_head", "loss_entropy_gaps")
        if attack in ("small_cells", "unmixing"):
            assert finding.verdict is Verdict.INCONCLUSIVE
            assert f"does not hold clients' vectors in clear, which {name} sees" in finding.sentence


@pytest.mark.parametrize("attack", ["sizes_and_timing", "masked_uploads"])
def test_client_transcript_does_not_stand_for_the_server(attack):
    """Messages and uploads that a client never saw are missing from the audit, not from what the server sees."""
    finding = examined("curious_server", told("client", messages=()))[attack]
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "It does not see" not in finding.sentence
    assert finding.unseen


def test_masked_transcript_is_no_control_without_protection():
    """Where no vector is in clear nothing is computed from the masked sum and called unprotected."""
    found = examined("no_protection", told("server"))
    assert {finding.verdict for finding in found.values()} == {Verdict.NOT_APPLICABLE}
    assert not any(finding.measures or finding.controls for finding in found.values())


def test_adversary_that_sees_two_sessions_is_not_judged_by_one():
    """What takes two sums is inconclusive where the audit was given one."""
    assert examined("rerunning_server", rehearsed().sessions[0])["differencing"].verdict is Verdict.INCONCLUSIVE


def test_simulation_says_what_it_does_not_hold():
    """A simulation keeps no uploads, which says nothing of masks; a head that it lacks leaves its attacks open."""
    uploads = examined("curious_server", rehearsed().sessions[0])["masked_uploads"]
    assert uploads.verdict is Verdict.NOT_APPLICABLE
    assert "simulation keeps no uploads" in uploads.sentence
    headless = dataclasses.replace(rehearsed().sessions[0], head=None)
    found = examined("released_head_white_box", headless)
    assert {finding.verdict for finding in found.values()} == {Verdict.INCONCLUSIVE}


def test_two_sessions_differ_by_the_last_client():
    """A rehearsal's second session is the sum of all clients but the last, exactly."""
    first, second = rehearsed().sessions
    assert second.members == first.members[:-1]
    for block, values in first.release.items():
        last = first.contributions[first.members[-1]][block]
        assert np.array_equal(values - last, second.release[block])


def test_candidates_come_from_every_client():
    """The records whose membership is tested are drawn from all clients, and strangers are nobody's."""
    knowledge = rehearsed("digits", clients=5).knowledge
    owners = [owner for owner in knowledge.owners if owner]
    assert len(set(owners)) == 5
    assert knowledge.is_member.sum() == len(owners) < len(knowledge.owners)
    assert knowledge.public is not None
