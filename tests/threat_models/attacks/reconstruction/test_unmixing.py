"""The unmixing attack on whole views: who is in a small sum, and what the records are."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from tests.threat_models.attacks.audited import measured
from tests.threat_models.attacks.sums import knowledge_of, noisy_sum_of, plan_of, records_of, seen_by, session_of
from threat_models.attacks.reconstruction.unmixing import UNMIXING, _is_withstood, outside, passes, sum_of
from threat_models.attacks.targets import Target, targets_in
from threat_models.estimation.intervals import ConfidenceInterval, clopper_pearson
from threat_models.findings import Verdict
from threat_models.session import SOMEBODY, Knowledge, join_records


def digits(plan):
    """All digits as records of a plan."""
    images, labels = load_digits(return_X_y=True)
    return records_of(plan, images / 16.0, labels, np.rint(images * 255 / 16).astype(np.uint8).reshape(-1, 8, 8, 1))


def federation(sizes, noise=None, protection="none"):
    """Clients with so many digits each, 300 strangers, 500 public ones."""
    plan = plan_of(64, 10, radius=8.0, protection=protection, shape=(8, 8))
    pool = digits(plan)
    ends = np.cumsum([0, *sizes])
    parts = [pool.take(slice(low, high)) for low, high in pairwise(ends)]
    start = int(ends[-1])
    public = pool.take(slice(start + 300, start + 800))
    knowledge = knowledge_of(parts, pool.take(slice(start, start + 300)), public)
    return session_of(plan, parts, noise=noise), knowledge


def attacked(adversary, session, knowledge):
    """What the attack finds, and that it told its progress to the end."""
    steps = []
    finding = UNMIXING.run((seen_by(adversary, session),), knowledge, lambda done, total: steps.append((done, total)))
    assert not steps or steps[-1][0] == steps[-1][1]
    return finding


def test_small_client_in_clear_is_known_member_by_member():
    """Of a client with 20 digits seen in clear, every record is told from every stranger, and every image recovered."""
    finding = attacked("curious_server", *federation([20, 400]))
    assert finding.verdict is Verdict.SUCCEEDS
    assert all(control.holds for control in finding.controls)
    members = measured(finding, "members_found")
    assert (members.value, members.high, members.method) == (1.0, 1.0, "Clopper-Pearson, 95 %")
    assert measured(finding, "strangers_found").value == 0
    cosine = measured(finding, "cosine", "client-0")
    assert cosine.low > 0.99 > cosine.baseline
    assert "20 records in 64 dimensions" in finding.sentence


def unplaced(knowledge):
    """The same, where it is not known which client had a record."""
    return replace(knowledge, owners=tuple(SOMEBODY if owner else "" for owner in knowledge.owners))


def test_members_of_unknown_clients_are_found_in_any():
    """Of vectors in clear the range test finds members though nobody says which client had them."""
    session, knowledge = federation([20, 25, 400])
    members = knowledge.candidates.take(slice(0, 45))
    few = replace(
        knowledge, candidates=join_records(members, knowledge.public), owners=("client-0",) * 45 + ("",) * 500
    )
    finding = attacked("curious_server", session, unplaced(few))
    assert finding.verdict is Verdict.SUCCEEDS
    assert (measured(finding, "members_found").value, measured(finding, "strangers_found").value) == (1, 0)


def test_members_of_a_large_client_say_nothing_of_small_ones():
    """Records of unknown clients in none of the sums that can be tried leave it open: inconclusive, not failed."""
    session, knowledge = federation([20, 400])
    kept = np.arange(20, len(knowledge.candidates))
    large = Knowledge(knowledge.candidates.take(kept), knowledge.owners[20:], knowledge.public)
    assert attacked("curious_server", session, unplaced(large)).verdict is Verdict.INCONCLUSIVE


def test_masked_sum_of_few_records_is_no_better():
    """A masked sum hides clients from each other, not the cohort's few records: 30 in 64 dimensions are unmixed."""
    finding = attacked("curious_server", *federation([15, 15], protection="masked"))
    assert finding.verdict is Verdict.SUCCEEDS
    assert "the sum of all" in finding.sentence


def test_masked_sum_of_many_records_shows_nobody():
    """Negative: where the sum holds more records than dimensions the range test takes everyone."""
    finding = attacked("curious_server", *federation([300, 300], protection="masked"))
    assert finding.verdict is Verdict.FAILS
    assert measured(finding, "members_found").baseline == 1
    assert "range is the whole space" in finding.sentence


def test_colluders_leave_one_small_client():
    """All clients but one on the adversary's side leave that one's records, though the sum of all is large."""
    session, knowledge = federation([300, 20], protection="masked")
    view = seen_by("colluding_clients", session)
    (target,) = targets_in(view)
    assert (target.name, target.owners, target.records) == ("the sum without the colluders'", {"client-1"}, 20)
    finding = UNMIXING.run((view,), knowledge, lambda *_: None)
    assert finding.verdict is Verdict.SUCCEEDS


def test_noise_hides_who_is_in_it():
    """Negative: with noise as long as a record the same small sum tells no member."""
    session, knowledge = federation([20, 20], protection="masked", noise={"counts": None})
    plan = session.plan
    everyone = knowledge.candidates.take(knowledge.is_member)
    object.__setattr__(session, "release", noisy_sum_of(everyone, plan, 1.0))
    finding = attacked("curious_server", session, knowledge)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "not ruled out" in finding.sentence  # by so few members
    assert measured(finding, "strangers_found").value < 0.05
    assert measured(finding, "members_found").low < 0.1


@pytest.mark.parametrize(
    ("hits", "cosine", "withstood"), [(2, 0.5, True), (30, 0.5, False), (2, 0.62, False), (2, None, False)]
)
def test_small_sums_withstand_by_upper_limits(hits, cosine, withstood):
    """Neither members found, of 200, nor cosines may come near to what would be a success; nothing tried is none."""
    rates = clopper_pearson(hits, 60), clopper_pearson(2, 200)
    target = Target("sum", {}, frozenset(), is_noisy=True)
    recovered = (
        [] if cosine is None else [(target, (ConfidenceInterval(cosine, cosine - 0.1, cosine + 0.1, "m"), 0.0, 0.7))]
    )
    assert _is_withstood(rates, recovered) == withstood
    assert not _is_withstood(None, recovered)


def test_a_failed_control_is_inconclusive():
    """Where the range test cannot work on public records of the kind, a failure is not called one."""
    session, knowledge = federation([300, 300], protection="masked")
    nothing = knowledge.public.take(slice(0, 1))
    finding = attacked("curious_server", session, Knowledge(knowledge.candidates, knowledge.owners, nothing))
    assert finding.verdict is Verdict.INCONCLUSIVE


def test_nobody_known_is_inconclusive():
    """A small sum of which the audit knows no record gives no score, and no verdict."""
    session, knowledge = federation([20, 20], protection="masked")
    strangers = knowledge.candidates.take(~knowledge.is_member)
    unknown = Knowledge(strangers, ("",) * len(strangers), knowledge.public)
    finding = attacked("curious_server", session, unknown)
    assert (finding.verdict, finding.measures) == (Verdict.INCONCLUSIVE, ())


def test_without_a_second_moment_it_does_not_apply():
    """Sums without a second moment, as of prototypes, are left alone."""
    session, knowledge = federation([20, 20], protection="masked")
    object.__setattr__(session, "release", {name: session.release[name] for name in ("counts", "class_sums")})
    assert attacked("curious_server", session, knowledge).verdict is Verdict.NOT_APPLICABLE


def test_range_is_exact_on_a_table():
    """The members of a sum of 12 rows of 30 lie in its range; none of the other 557 does (deterministic)."""
    features, labels = load_breast_cancer(return_X_y=True)
    features = features / features.max(axis=0)
    plan = plan_of(30, 2, radius=6.0)
    records = records_of(plan, features, labels)
    part = outside(sum_of(records.take(slice(0, 12)), plan), plan, 12, records.integers)
    assert part[:12].max() < 1e-9
    assert part[12:].min() > 1e-5


@pytest.mark.parametrize("size", [1, 2, 10, 40])
def test_range_test_has_no_false_alarm_on_random_records(size):
    """Random records outside a sum have an expected part 1 − n/d of their length outside its range."""
    plan = plan_of(64, 3)
    generator = np.random.default_rng(size)
    features = generator.standard_normal((400, 64))
    features *= 0.9 / np.linalg.norm(features, axis=1, keepdims=True)
    records = records_of(plan, features, generator.integers(0, 3, 400))
    part = outside(sum_of(records.take(slice(0, size)), plan), plan, size, records.integers)
    assert part[:size].max() < 1e-9
    assert part[size:].mean() == pytest.approx(1 - size / 64, abs=0.03)


def test_nobody_is_found_in_a_sum_that_noise_made_empty():
    """Where noise takes every count below one, the range test finds nobody and goes on."""
    plan = plan_of(64, 3)
    records = records_of(plan, np.eye(64)[:4], [0, 1, 2, 0])
    blocks = {**sum_of(records, plan), "counts": np.array([0.4, -2.0, 0.0])}
    assert not passes(Target("noisy", blocks, frozenset(), is_noisy=True), plan, records, records).any()
