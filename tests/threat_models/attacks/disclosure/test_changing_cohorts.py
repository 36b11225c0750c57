"""Members' own parts out of sums over changing cohorts; the same cohort never gives them, however often."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from secagg.encoding import Normalisation
from tests.threat_models.attacks.audited import attacked, measured
from tests.threat_models.attacks.rounds import drawn_anew, in_cohorts, rounds_of
from tests.worlds.federation import SimulatedFederation, run_federation
from threat_models.adversary import adversary_named
from threat_models.attacks.disclosure.changing_cohorts import CHANGING_COHORTS
from threat_models.attacks.member_contributions import Equations, equations_in
from threat_models.evidence.transcripts import known_of, of_plans, read_sessions
from threat_models.examination import examine
from threat_models.findings import Finding, Verdict
from threat_models.session import Knowledge, Session
from threat_models.views import view_of


def found_in(session: Session, adversary: str = "curious_server") -> Finding:
    """What the attack finds in these rounds, with controls that behaved."""
    finding = attacked(CHANGING_COHORTS, adversary, rounds_of(), session)
    assert all(control.holds for control in finding.controls)
    return finding


def test_sums_over_cohorts_drawn_anew_give_members_own_parts() -> None:
    """Twelve exact sums over four of eight members, all different: each one's prototypes come out, and no other's."""
    session = rounds_of().sessions[0]
    finding = found_in(in_cohorts(session, drawn_anew(session, 4, 12)))
    assert finding.verdict is Verdict.SUCCEEDS
    assert measured(finding, "members_apart").value == 8
    cosine = measured(finding, "cosine.own_part")
    assert cosine.low > 0.4 > 0.1 > cosine.baseline
    (curve,) = finding.curves
    own, others = curve.series
    assert own.y[-1] > own.y[0] > max(others.y) - 0.1


def test_one_member_less_is_one_member() -> None:
    """Two rounds whose cohorts differ by one member give that one's part, and nobody else's."""
    session = rounds_of().sessions[0]
    everyone = session.members
    finding = found_in(in_cohorts(session, [everyone, everyone[:-1]]))
    assert finding.verdict is Verdict.SUCCEEDS
    assert measured(finding, "members_apart").value == 1


def test_members_that_are_always_together_are_not_told_apart() -> None:
    """The same cohort in nine rounds, or one that two left together: as many sums say nothing of one member."""
    session = rounds_of().sessions[0]
    everyone = session.members
    same = found_in(in_cohorts(session, [everyone] * 9))
    assert (same.verdict, measured(same, "equations").value) == (Verdict.FAILS, 1)
    left = found_in(in_cohorts(session, [everyone] * 4 + [everyone[:-2]] * 5))
    assert (left.verdict, measured(left, "members_apart").value) == (Verdict.FAILS, 0)
    assert measured(left, "fewest_together").value == 2


def test_a_member_looks_on_from_within() -> None:
    """Who knows its own part needs one equation less: of a cohort that a second one left it has the second's."""
    session = rounds_of().sessions[0]
    everyone = session.members
    cohorts = [everyone] * 4 + [everyone[1:-1]] * 5  # the first of the roster, who looks on, and the last are away
    assert found_in(in_cohorts(session, cohorts)).verdict is Verdict.FAILS
    assert found_in(in_cohorts(session, cohorts), "curious_client").verdict is Verdict.SUCCEEDS


def test_sums_that_almost_tell_members_apart_are_no_protection() -> None:
    """Six sums about eight members determine few of them; without the true parts that is no reason to pass."""
    session = rounds_of().sessions[0]
    some = in_cohorts(session, drawn_anew(session, 4, 6))
    view = view_of(some, adversary_named("curious_server"))
    finding = CHANGING_COHORTS.run((view,), Knowledge(rounds_of().knowledge.candidates, ()), lambda *_: None)
    assert finding.verdict is Verdict.INCONCLUSIVE


@pytest.mark.long
def test_noise_of_a_promise_about_members_hides_them() -> None:
    """At epsilon 8 for a member, 30 sums over cohorts drawn anew give parts that are no more one's than another's."""
    private = {"epsilon": 8.0, "delta": 1e-5, "adjacency": "add-remove", "unit": "silo"}
    rehearsal = rounds_of(parameters="rounds=30 width=32 cap=10", clients=20, **private)
    session = rehearsal.sessions[0]
    finding = attacked(CHANGING_COHORTS, "curious_server", rehearsal, in_cohorts(session, drawn_anew(session, 10, 30)))
    assert measured(finding, "members_apart").value == 20
    assert finding.verdict is Verdict.FAILS
    cosine = measured(finding, "cosine.own_part")
    assert -0.1 < cosine.low < cosine.high < 0.1
    unscored = CHANGING_COHORTS.run(
        (view_of(in_cohorts(session, drawn_anew(session, 10, 30)), adversary_named("curious_server")),),
        replace(rehearsal.knowledge, parts={}),
        lambda *_: None,
    )
    assert unscored.verdict is not Verdict.SUCCEEDS


def test_cohorts_that_a_plan_draws_are_equations() -> None:
    """Rounds over members that were drawn are solved as they are; a promise about records says nothing of members."""
    private = {"epsilon": 8.0, "delta": 1e-5, "adjacency": "add-remove", "cohort": 6}
    rehearsal = rounds_of("fedavg", "rounds=6 gradients=1 rate=1 clip=4", 12, **private)
    finding = attacked(CHANGING_COHORTS, "curious_server", rehearsal)
    assert all(control.holds for control in finding.controls)
    assert measured(finding, "equations").value > 1
    assert measured(finding, "cosine.own_part").has_interval
    assert finding.sentence.endswith("not a member with many.")


def test_one_sum_is_no_equation_between_rounds() -> None:
    """A plan of a single sum has nothing to solve, and neither has who sees every part."""
    alone = replace(rounds_of().sessions[0], earlier=())
    assert attacked(CHANGING_COHORTS, "curious_server", rounds_of(), alone).verdict is Verdict.NOT_APPLICABLE
    assert attacked(CHANGING_COHORTS, "no_protection", rounds_of()).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("away", [(), (5, 6)])
def test_real_transcripts_of_rounds_without_change_are_withstood(tmp_path: Path, away: tuple[int, ...]) -> None:
    """The server's transcripts of three rounds over all, or two of six gone after one, single nobody out."""
    _, session = recorded(tmp_path, dict.fromkeys(away, 1))
    finding = scored_by_nothing(session)
    assert finding.verdict is Verdict.FAILS
    assert measured(finding, "fewest_together").value == (2 if away else 6)


def test_real_transcripts_of_a_member_that_left_give_its_counts(tmp_path: Path) -> None:
    """The server's transcripts of three rounds, one member gone after the first: its classes' counts are read off."""
    world, session = recorded(tmp_path, {4: 1})
    finding = scored_by_nothing(session)
    assert finding.verdict is Verdict.SUCCEEDS
    assert "counts" in finding.sentence
    equations = equations_in(view_of(session, adversary_named("curious_server")))
    assert equations is not None
    (place,) = np.flatnonzero(equations.singled_out)
    assert equations.members[place] == world.setup.roster.name(4)
    counts = (equations.solver @ equations.sums["counts"].reshape(3, -1))[place]
    assert counts == pytest.approx(np.bincount(world.records[4].labels, minlength=3))


def test_all_rounds_of_prototypes_miss_no_sum_of_classes(tmp_path: Path) -> None:
    """With the transcripts of all rounds no attack asks for another round's: none of them sums features."""
    _, session = recorded(tmp_path, {})
    nothing = known_of(session, None, None)
    found = examine(adversary_named("curious_server"), (session,), nothing, lambda *_: None)
    assert found.findings
    assert all("another of its rounds" not in finding.sentence for finding in found.findings)


def recorded(folder: Path, leaves: dict[int, int]) -> tuple[SimulatedFederation, Session]:
    """Real parties play three rounds of FedPCL, which members leave; and what the server's transcripts say of it."""
    exact = {"epsilon": float("inf"), "delta": None, "adjacency": None, "normalise": Normalisation.CENTRED_UNIT}
    choices = {"parameters": (("rounds", 3), ("width", 8)), "colluders": 0, "dropouts": 2, "join_seconds": 10}
    world = SimulatedFederation.of(folder, clients=6, method="fedpcl", **exact, **choices, step_seconds=3)
    ended = asyncio.run(run_federation(world, leaves=leaves))
    (session,) = of_plans(read_sessions(world.transcripts(0, ended.stages)))
    return world, session


def scored_by_nothing(session: Session) -> Finding:
    """The finding of an audit that knows nothing but the transcripts."""
    nobody = Knowledge(rounds_of().knowledge.candidates.take(slice(0)), ())
    return CHANGING_COHORTS.run((view_of(session, adversary_named("curious_server")),), nobody, lambda *_: None)


def test_least_squares_finds_parts_that_stay_as_they_are() -> None:
    """Parts made up, in sums of rank n, come out to the last digits; those of members always together do not."""
    parts = np.random.default_rng(3).normal(size=(4, 2, 5))
    incidence = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [0, 0, 1, 1.0]])
    sums = {"block": np.einsum("rn,nkm->rkm", incidence, parts)}
    equations = Equations(("a", "b", "c", "d"), incidence, sums, None, (1, 2, 3))
    assert equations.singled_out.tolist() == equations.told_apart.tolist() == [False, False, True, True]
    solved = np.einsum("nr,rkm->nkm", equations.solver, sums["block"])
    assert solved[2:] == pytest.approx(parts[2:])
    assert equations.fewest_together == 1
