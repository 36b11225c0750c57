"""The ledger: what was released stays released, once, under one plan, and no budget is overdrawn."""

import math
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import secagg.ledger.ledger
from secagg.agreement.policy import Budget
from secagg.errors import BadInput, PlanRefused
from secagg.ledger import FILE_NAME, Ledger
from secagg.ledger.spending import LARGEST_GAP, Cost, Release, Spent, same_data, total_cost, total_epsilon
from secagg.privacy import GaussianCost
from secagg.privacy.gaussian import epsilon_of, mu_of
from secagg.privacy.subsampled import TRAININGS
from tests.architecture.source import ROOT

DELTA = 1e-5
PROMISE = ("record", "add-remove")
EXACT = Release("mine", bytes([40]) * 32, bytes([2]) * 32, "record", "", math.inf, 0.0, ())
ANYTHING = Budget(math.inf, DELTA, may_repeat=True)
ONCE = Budget(math.inf, DELTA, may_repeat=False)


def finite(number: int = 1, mu: float = 0.25, **changes: Any) -> Release:
    """A plan with Gaussian noise, sharply claimed, accounted for records in both adjacencies."""
    plan = bytes([number + 100]) * 32
    release = Release("mine", bytes([number]) * 32, plan, *PROMISE, epsilon_of(mu, DELTA), DELTA, spent(mu))
    return replace(release, **changes)


def spent(mu: float, factor: float = 2) -> tuple[Spent, Spent]:
    """What shares of noise cost; replacing a record moves the sum √factor times as far as its absence."""
    return (
        Spent("record", "add-remove", GaussianCost(mu * mu, 1e-20)),
        Spent("record", "replace-one", GaussianCost(factor * mu * mu, 1e-20)),
    )


def cost_of(ledger: Ledger, data_name: str, unit: str, adjacency: str) -> Cost | None:
    """What everything about a data set costs together."""
    return total_cost(same_data([entry.release for entry in ledger.entries()], data_name), unit, adjacency, DELTA)


def allowed(total: float, delta: float = DELTA) -> Budget:
    """A finite budget."""
    return Budget(total, delta, may_repeat=False)


def database(folder: Path, *statements: str) -> list[tuple[Any, ...]]:
    """What the last statement gives, behind the ledger's back."""
    connection = sqlite3.connect(folder / FILE_NAME, isolation_level=None)
    try:
        return [connection.execute(statement).fetchall() for statement in statements][-1]
    finally:
        connection.close()


def unlocked(folder: Path, *statements: str) -> None:
    """Run statements after dropping what makes the tables append-only."""
    names = [name for (name,) in database(folder, "SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    assert len(names) == 8
    database(folder, *(f"DROP TRIGGER {name}" for name in names), *statements)


def rows(folder: Path) -> int:
    """How many releases the file holds."""
    return int(database(folder, "SELECT COUNT(*) FROM releases")[0][0])


def test_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Whatever else may read new files, the ledger may be read by its owner only; one that is there stays as it is."""
    Ledger(tmp_path).record(finite(), ANYTHING)
    path = tmp_path / FILE_NAME
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    assert len(Ledger(tmp_path).entries()) == 1
    assert path.stat().st_mode & 0o777 == 0o640


def test_entries_persist_exactly(tmp_path: Path) -> None:
    """What one process wrote, the next one reads: every field, every bit of the costs, numbered from 1."""
    releases = [finite(1), EXACT, finite(3, 0.1, data_name="other/ü")]
    entries = [Ledger(tmp_path).record(release, ANYTHING) for release in releases]
    assert Ledger(tmp_path).entries() == tuple(entries)
    assert [entry.release for entry in entries] == releases
    assert [entry.number for entry in entries] == [1, 2, 3]


def test_new_ledger_is_empty(tmp_path: Path) -> None:
    """Without rows nothing is spent: epsilon 0."""
    assert Ledger(tmp_path).entries() == ()
    assert total_epsilon([], *PROMISE, DELTA) == 0


@pytest.mark.parametrize("release", [EXACT, finite()])
def test_same_release_twice_is_one(tmp_path: Path, release: Release) -> None:
    """Recording a release again, after a crash, changes nothing, costs nothing and gives the same entry."""
    budget = ONCE if release is EXACT else allowed(release.epsilon)
    entries = {Ledger(tmp_path).record(release, budget) for _ in range(3)}
    assert len(entries) == rows(tmp_path) == 1
    Ledger(tmp_path).check(release, budget)


@pytest.mark.parametrize("change", [{"plan": bytes(32)}, {"data_name": "mine/v2"}, {"epsilon": 9.0}, {"delta": 1e-9}])
def test_session_is_entered_once(tmp_path: Path, change: dict[str, Any]) -> None:
    """One session stands under one plan, name and cost; what says otherwise is refused and the first entry stays."""
    ledger = Ledger(tmp_path)
    ledger.record(finite(), ANYTHING)
    for attempt in (ledger.record, ledger.check):
        with pytest.raises(BadInput, match="already entered"):
            attempt(replace(finite(), **change), ANYTHING)
    assert [entry.release for entry in ledger.entries()] == [finite()]


def test_session_over_two_data_sets_is_charged_to_both(tmp_path: Path) -> None:
    """Data sets are charged apart, even for the same session."""
    ledger = Ledger(tmp_path)
    ledger.record(finite(), allowed(finite().epsilon))
    ledger.record(finite(data_name="other"), allowed(finite().epsilon))
    assert cost_of(ledger, "mine", *PROMISE) == cost_of(ledger, "other", *PROMISE) == finite().cost(*PROMISE)


def test_costs_add_by_unit_and_adjacency(tmp_path: Path) -> None:
    """What was spent is Σμ² and the sum of the gaps, in each adjacency its own."""
    ledger = Ledger(tmp_path)
    for release in (finite(1), finite(2, 0.1)):
        ledger.record(release, ANYTHING)
    for adjacency, factor in (("add-remove", 1), ("replace-one", 2)):
        cost = cost_of(ledger, "mine", "record", adjacency)
        assert isinstance(cost, GaussianCost)
        assert (cost.squared_mu, cost.gap) == pytest.approx((factor * (0.25**2 + 0.1**2), 2e-20), rel=1e-12)
        assert cost.squared_mu >= factor * (0.25**2 + 0.1**2)


@pytest.mark.parametrize("promise", [("client", "add-remove"), ("client", "replace-one"), ("record", "other")])
def test_what_has_no_cost_was_spent_entirely(tmp_path: Path, promise: tuple[str, str]) -> None:
    """A unit or adjacency for which a release was not accounted is spent entirely."""
    ledger = Ledger(tmp_path)
    ledger.record(finite(), ANYTHING)
    assert cost_of(ledger, "mine", *promise) is None
    assert total_epsilon([finite()], *promise, DELTA) == math.inf


def test_exact_sum_costs_infinity_everywhere(tmp_path: Path) -> None:
    """After one sum without noise, no total is finite, whatever else was released."""
    ledger = Ledger(tmp_path)
    ledger.record(finite(2), ANYTHING)
    ledger.record(EXACT, ANYTHING)
    for adjacency in ("add-remove", "replace-one"):
        assert cost_of(ledger, "mine", "record", adjacency) is None
    ledger.record(finite(3, data_name="other"), ANYTHING)
    assert cost_of(ledger, "other", *PROMISE) is not None


@pytest.mark.parametrize("first", ["heart", "heart/v1", "heart/2024/clean"])
@pytest.mark.parametrize("second", ["heart", "heart/v2"])
def test_versions_share_what_was_spent(tmp_path: Path, first: str, second: str) -> None:
    """Whatever version of a data set was used, it counts for every other, older or newer."""
    ledger = Ledger(tmp_path)
    ledger.record(finite(1, data_name=first), allowed(finite().epsilon))
    assert cost_of(ledger, second, *PROMISE) == finite().cost(*PROMISE)
    with pytest.raises(PlanRefused, match="heart has spent"):
        ledger.record(finite(2, data_name=second), allowed(finite().epsilon))
    ledger.record(finite(2, data_name="hearts"), allowed(finite().epsilon))


def test_lone_plan_costs_its_own_claim() -> None:
    """What a plan claims counts at its delta or a larger one only; several plans cost what Σμ² does, exactly."""
    (claim, cost) = (finite().epsilon, GaussianCost(0.25**2, LARGEST_GAP))
    assert claim < cost.epsilon(DELTA)
    assert total_epsilon([finite()], *PROMISE, DELTA) == claim
    assert total_epsilon([finite()], *PROMISE, DELTA / 2) == cost.epsilon(DELTA / 2)
    assert total_epsilon([finite()], *PROMISE, 0.1) == cost.epsilon(0.1) < claim
    assert total_epsilon([finite()], "record", "replace-one", DELTA) > claim
    two = total_epsilon([finite(1), finite(2)], *PROMISE, DELTA)
    assert epsilon_of(0.25 * math.sqrt(2), DELTA) <= two <= epsilon_of(0.25 * math.sqrt(2), DELTA) * (1 + 1e-9)


def test_one_session_may_spend_everything(tmp_path: Path) -> None:
    """A plan that claims exactly the whole budget fits; one float less and it does not."""
    ledger, release = Ledger(tmp_path), finite()
    less = allowed(math.nextafter(release.epsilon, 0))
    for attempt in (ledger.check, ledger.record):
        with pytest.raises(PlanRefused):
            attempt(release, less)
    assert ledger.entries() == ()
    ledger.record(release, allowed(release.epsilon))


def test_budget_ends_exactly_at_the_limit(tmp_path: Path) -> None:
    """Of two budgets one float apart, around what three sessions cost together, the larger one holds them."""
    ledger = Ledger(tmp_path)
    releases = [finite(number, mu) for number, mu in ((1, 0.25), (2, 0.1), (3, 0.17))]
    total = total_epsilon(releases, *PROMISE, DELTA, kept=TRAININGS)
    for release in releases[:2]:
        ledger.record(release, allowed(total))
    less = allowed(math.nextafter(total, 0))
    for attempt in (ledger.check, ledger.record):
        with pytest.raises(PlanRefused):
            attempt(releases[2], less)
    ledger.record(releases[2], allowed(total))
    for release in releases:
        assert ledger.record(release, allowed(total)).release == release
    with pytest.raises(PlanRefused):
        ledger.record(finite(4, 1e-3), allowed(total))


@given(mus=st.lists(st.floats(0.01, 3), min_size=1, max_size=6), delta=st.sampled_from([1e-9, DELTA, 1e-2]))
def test_total_is_never_below_the_truth(mus: list[float], delta: float) -> None:
    """The total of Gaussian releases is at least the exact epsilon of their composition (Dong, Roth & Su 2022)."""
    total = total_epsilon([finite(number, mu) for number, mu in enumerate(mus, 1)], *PROMISE, delta)
    exact = epsilon_of(math.sqrt(sum(mu * mu for mu in mus)), delta)
    assert total >= exact * (1 - 1e-9)


@given(mus=st.lists(st.floats(0.01, 3), min_size=1, max_size=6), data=st.data())
def test_total_only_grows(mus: list[float], data: st.DataObject) -> None:
    """Leaving a release out never costs more."""
    releases = [finite(number, mu) for number, mu in enumerate(mus, 1)]
    left = [release for release in releases if data.draw(st.booleans())]
    assert total_epsilon(releases, *PROMISE, DELTA) >= total_epsilon(left, *PROMISE, DELTA) * (1 - 1e-12)


def test_refusal_has_the_numbers(tmp_path: Path) -> None:
    """A refusal says what was spent, what the plan adds, the total, the limit, and for which promise; rounded up."""
    ledger = Ledger(tmp_path)
    ledger.record(finite(1, data_name="mine/v1"), allowed(1.3))
    with pytest.raises(PlanRefused) as refusal:
        ledger.check(finite(2, data_name="mine/v2"), allowed(1.3))
    (sentence,) = refusal.value.violations
    total = epsilon_of(0.25 * math.sqrt(2), DELTA * 7 / 8)
    own, together = (math.ceil(value * 1e4) / 1e4 for value in (finite().epsilon, total))
    assert sentence == (
        f"max_epsilon_total: mine has spent epsilon {own} in 1 other session(s), this plan adds {own}, together "
        f"{together}, more than 1.3 (delta 1e-05, add-remove, record level)"
    )
    assert str(refusal.value).endswith("nothing was sent")


def test_noise_does_not_mend_an_exact_sum(tmp_path: Path) -> None:
    """After a sum without noise, a noisy plan is refused under every finite total."""
    ledger = Ledger(tmp_path)
    ledger.record(EXACT, ONCE)
    with pytest.raises(PlanRefused, match=r"inf in 1 other.* more than 1000.*no noise takes an exact sum back"):
        ledger.record(finite(2), Budget(1000.0, DELTA, may_repeat=True))
    with pytest.raises(PlanRefused, match="repeat_sessions"):
        ledger.record(finite(2), ONCE)
    ledger.record(finite(2), ANYTHING)


def test_exact_sum_needs_an_infinite_total(tmp_path: Path) -> None:
    """However much is allowed, a sum without noise is more, also when sessions may repeat."""
    ledger = Ledger(tmp_path)
    with pytest.raises(PlanRefused, match=r"max_epsilon_total: .*exact sum about mine \(epsilon inf\)"):
        ledger.record(EXACT, Budget(1e300, DELTA, may_repeat=True))
    assert rows(tmp_path) == 0


@pytest.mark.parametrize("first", [EXACT, finite(9)])
def test_infinite_totals_do_not_repeat_unless_allowed(tmp_path: Path, first: Release) -> None:
    """A sum without noise after another session is refused, unwritten, unless sessions may repeat."""
    ledger = Ledger(tmp_path)
    ledger.record(first, ONCE)
    second = replace(EXACT, session=bytes([7]) * 32)
    for attempt in (ledger.check, ledger.record):
        with pytest.raises(PlanRefused, match=r"repeat_sessions: mine was in 1 other session\(s\)"):
            attempt(second, ONCE)
    assert rows(tmp_path) == 1
    ledger.record(first, ONCE)
    ledger.record(second, ANYTHING)


def test_finite_totals_repeat_within_the_budget(tmp_path: Path) -> None:
    """Whether sessions may repeat does not concern totals that are finite."""
    ledger = Ledger(tmp_path)
    for number in range(1, 4):
        ledger.record(finite(number), ONCE)
        ledger.check(finite(number + 1), allowed(10.0))


@pytest.mark.parametrize("limit", [math.nan, -1.0, 0.0])
def test_senseless_budget_allows_nothing(tmp_path: Path, limit: float) -> None:
    """No release fits into a budget of nothing, less, or no number."""
    with pytest.raises(PlanRefused):
        Ledger(tmp_path).record(finite(), allowed(limit))


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_delta_out_of_range_is_refused(tmp_path: Path, delta: float) -> None:
    """A finite total needs a delta between 0 and 1."""
    with pytest.raises(BadInput, match="delta"):
        Ledger(tmp_path).record(finite(), allowed(10.0, delta))


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"epsilon": 0.0},
        {"delta": -1.0},
        {"delta": math.nan},
        {"delta": 1.0},
        {"spent": ()},
        {"adjacency": ""},
        {"unit": "client"},
        {"spent": (*finite().spent, finite().spent[0])},
    ],
)
def test_contradictory_release_cannot_be_made(change: dict[str, Any]) -> None:
    """A finite release has a cost for its own promise, an infinite one has none, and none counts twice."""
    with pytest.raises(BadInput):
        finite(**change)


def entry_digests(folder: Path, *releases: Release) -> list[bytes]:
    """What a fresh ledger commits to, release by release."""
    folder.mkdir()
    return [Ledger(folder).record(release, ANYTHING).digest for release in releases]


@pytest.mark.parametrize("field", [field.name for field in fields(Release)])
def test_digest_covers_every_field(tmp_path: Path, field: str) -> None:
    """Rows that differ in one field have different digests, 32 bytes each."""
    others: dict[str, Any] = {
        "data_name": "mine/v2", "session": bytes(32), "plan": bytes(32), "unit": "client", "adjacency": "replace-one",
        "epsilon": 5.0, "delta": 1e-6, "spent": finite(mu=0.2).spent,
    }  # fmt: skip
    client = Spent("client", "add-remove", GaussianCost(1.0))
    release = replace(finite(), spent=(*finite().spent, client))
    (one,) = entry_digests(tmp_path / "one", release)
    (other,) = entry_digests(tmp_path / "other", replace(release, **{field: others[field]}))
    assert one != other
    assert len(one) == len(other) == 32


def test_digest_covers_everything_before(tmp_path: Path) -> None:
    """The same row after another history has another digest, and its position counts."""
    first = entry_digests(tmp_path / "first", finite(1), finite(2))
    second = entry_digests(tmp_path / "second", finite(3), finite(2))
    alone = entry_digests(tmp_path / "alone", finite(2))
    assert len({first[1], second[1], alone[0]}) == 3
    assert first == entry_digests(tmp_path / "again", finite(1), finite(2))


def filled(folder: Path) -> Ledger:
    """Four rows: the odd ones have costs, the even ones have none."""
    ledger = Ledger(folder)
    for release in (finite(1), EXACT, finite(3), replace(EXACT, session=bytes([41]) * 32)):
        ledger.record(release, ANYTHING)
    return ledger


@pytest.mark.parametrize("table", ["releases", "costs"])
@pytest.mark.parametrize("change", ["UPDATE {} SET unit = 'x'", "DELETE FROM {}"])
def test_tables_are_append_only(tmp_path: Path, table: str, change: str) -> None:
    """The database itself refuses to change or delete a row."""
    ledger = filled(tmp_path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        database(tmp_path, change.format(table))
    assert len(ledger.entries()) == 4


@pytest.mark.parametrize(
    ("row", "statement"),
    [
        (1, "UPDATE releases SET epsilon = '0.001' WHERE number = 1"),
        (1, "UPDATE releases SET epsilon = 'little' WHERE number = 1"),
        (1, "UPDATE releases SET epsilon = 'nan' WHERE number = 1"),
        (2, "UPDATE releases SET delta = x'00' WHERE number = 2"),
        (2, "UPDATE releases SET data_name = 'other' WHERE number = 2"),
        (2, "UPDATE releases SET data_name = x'ff' WHERE number = 2"),
        (3, "UPDATE releases SET session = zeroblob(32) WHERE number = 3"),
        (3, "UPDATE releases SET session = 'text' WHERE number = 3"),
        (3, "UPDATE releases SET plan = zeroblob(32) WHERE number = 3"),
        (2, "UPDATE releases SET head = zeroblob(32) WHERE number = 2"),
        (2, "UPDATE releases SET adjacency = 'add-remove' WHERE number = 2"),
        (1, "UPDATE costs SET content = x'00000000000050bf0000000000000000' WHERE number = 1"),
        (1, "UPDATE costs SET content = (SELECT content FROM costs WHERE adjacency = 'replace-one') WHERE number = 1"),
        (3, "UPDATE costs SET content = zeroblob(7) WHERE number = 3"),
        (3, "UPDATE costs SET content = zeroblob(16) WHERE number = 3"),
        (3, "UPDATE costs SET content = CAST(content || x'00' AS BLOB) WHERE number = 3"),
        (3, "UPDATE costs SET content = 1 WHERE number = 3"),
        (1, "UPDATE costs SET kind = 'training' WHERE number = 1"),
        (1, "UPDATE costs SET kind = 'training', content = zeroblob(40) WHERE number = 1"),
        (1, "UPDATE costs SET adjacency = 'other' WHERE number = 1 AND adjacency = 'replace-one'"),
        (1, "UPDATE costs SET number = 2 WHERE number = 1 AND adjacency = 'replace-one'"),
        (3, "DELETE FROM costs WHERE number = 3 AND adjacency = 'replace-one'"),
        (1, "DELETE FROM releases WHERE number = 1"),
        (2, "DELETE FROM releases WHERE number = 2"),
        (3, "DELETE FROM releases WHERE number = 3"),
        (4, "DELETE FROM releases WHERE number = 4"),
        (4, "UPDATE releases SET number = 5 WHERE number = 4"),
        (1, "DELETE FROM releases"),
        (5, "INSERT INTO costs SELECT 5, unit, adjacency, kind, content FROM costs WHERE number = 1"),
        (2, "UPDATE OR REPLACE releases SET number = 2 WHERE number = 3"),
    ],
)  # fmt: skip
def test_edited_row_is_found(tmp_path: Path, row: int, statement: str) -> None:
    """A row changed or deleted in place stops the client and is named, whatever the ledger is asked."""
    ledger = filled(tmp_path)
    unlocked(tmp_path, statement)
    asked = [
        ledger.entries,
        lambda: ledger.check(finite(5), ANYTHING),
        lambda: ledger.record(finite(5), ANYTHING),
    ]
    for ask in asked:
        with pytest.raises(BadInput, match=f"row {row} of the ledger .* was changed or is missing"):
            ask()


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + bytes(84)])
def test_damaged_ledger_is_refused(tmp_path: Path, content: bytes) -> None:
    """A ledger that cannot be read stops the client: it never starts afresh with an empty one."""
    (tmp_path / FILE_NAME).write_bytes(content * 20)
    with pytest.raises(BadInput, match="cannot use the ledger"):
        Ledger(tmp_path)


def test_ledger_without_a_folder_is_refused(tmp_path: Path) -> None:
    """A folder that is missing is named."""
    with pytest.raises(BadInput, match="cannot use the ledger"):
        Ledger(tmp_path / "none")


def test_ledger_is_created_only_where_asked(tmp_path: Path) -> None:
    """Reading what is not there fails and leaves nothing; a ledger deleted meanwhile does not come back empty."""
    with pytest.raises(BadInput, match="no ledger in"):
        Ledger(tmp_path, create=False)
    assert list(tmp_path.iterdir()) == []
    ledger = Ledger(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    with pytest.raises(BadInput, match="cannot use the ledger"):
        ledger.record(finite(), ANYTHING)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("statement", ["CREATE TABLE releases (data_name TEXT)", "PRAGMA user_version = 7"])
@pytest.mark.parametrize("create", [True, False])
def test_other_versions_are_refused(tmp_path: Path, statement: str, create: bool) -> None:
    """A ledger of an older or unknown schema is named with its version, and left as it is."""
    database(tmp_path, statement)
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(BadInput, match=r"schema version [07], this program reads 6"):
        Ledger(tmp_path, create=create)
    assert (tmp_path / FILE_NAME).read_bytes() == before


@pytest.mark.parametrize("create", [True, False])
def test_ledger_of_an_older_version_is_refused(tmp_path: Path, create: bool) -> None:
    """A ledger that schema version 5 wrote is named with its version, and left as it is."""
    statements = Path(__file__).with_name("ledger_version_5.sql").read_text(encoding="utf-8")
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.executescript(statements)
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(BadInput, match="schema version 5, this program reads 6"):
        Ledger(tmp_path, create=create)
    assert (tmp_path / FILE_NAME).read_bytes() == before


@pytest.mark.parametrize("create", [True, False])
def test_database_of_another_program_is_refused(tmp_path: Path, create: bool) -> None:
    """A file of the same schema version without the ledger's application_id is refused with both marks."""
    Ledger(tmp_path)
    database(tmp_path, "PRAGMA application_id = 0")
    with pytest.raises(BadInput, match=r"is not a ledger of this program \(application_id 0, not 1935763303\)"):
        Ledger(tmp_path, create=create)


def test_unknown_kinds_of_cost_are_refused_by_name(tmp_path: Path) -> None:
    """A row of a mechanism that this program does not know stops it, and says that another program wrote it."""
    ledger = filled(tmp_path)
    unlocked(tmp_path, "UPDATE costs SET kind = 'subsampled' WHERE number = 3")
    with pytest.raises(BadInput, match=r"row 3 of the ledger .* has a cost of the kind 'subsampled'.*that wrote it"):
        ledger.entries()


def test_gaps_are_bounded_in_advance(tmp_path: Path) -> None:
    """Plans whose noise together lacks more of a Gaussian than the filter allows for cost infinity."""
    far = (Spent(*PROMISE, GaussianCost(0.01, 0.6 * LARGEST_GAP)),)
    first, second = (finite(number, 0.1, spent=far) for number in (1, 2))
    ledger = Ledger(tmp_path)
    ledger.record(first, allowed(10.0))
    with pytest.raises(PlanRefused, match="together inf"):
        ledger.record(second, allowed(10.0))


def test_costs_beyond_all_numbers_are_refused_as_infinite(tmp_path: Path) -> None:
    """Where Σμ² is so large that no ε is computed, alone or with earlier rows, the plan is refused in numbers."""
    ledger, huge = Ledger(tmp_path), finite(2, spent=(Spent(*PROMISE, GaussianCost(0.9e12)),), epsilon=1e12)
    with pytest.raises(PlanRefused, match=r"has spent epsilon 0 in 0 .*, together inf, more than 5"):
        ledger.record(finite(1, spent=(Spent(*PROMISE, GaussianCost(1e13)),), delta=1e-4, epsilon=1e13), allowed(5.0))
    ledger.record(huge, allowed(2e12))
    before = r"mine has spent epsilon 4\d{11}\.?\d* in 1 other session\(s\), this plan adds 4\d{11}"
    with pytest.raises(PlanRefused, match=rf"{before}.*, together inf, more than 2000000000000"):
        ledger.record(replace(huge, session=bytes([3]) * 32), allowed(2e12))


def test_gaussian_rows_are_filtered_at_the_budgets_own_mu(tmp_path: Path) -> None:
    """As many plans fit as Σμ² ≤ μ_B² says, μ_B being at δ − Δ₀, in whatever sizes they come."""
    ledger, budget = Ledger(tmp_path), 1.0
    most, used = mu_of(budget, DELTA * 7 / 8) ** 2, 0.0
    for number in range(1, 40):
        part = most * (0.05 + 0.01 * (number % 3))
        if used + part > most * (1 - 1e-9):
            break
        used += part
        ledger.record(finite(number, math.sqrt(part)), allowed(budget))
    with pytest.raises(PlanRefused):
        ledger.record(finite(99, math.sqrt(most - used + 1e-9 * most)), allowed(budget))
    ledger.record(finite(99, math.sqrt((most - used) * (1 - 1e-6))), allowed(budget))


def test_row_that_names_no_data_set_counts_for_all(tmp_path: Path) -> None:
    """A row under a name of which nothing is left, as older policies took, is charged to every data set."""
    ledger = Ledger(tmp_path)
    ledger.record(finite(1, data_name="."), ANYTHING)
    assert cost_of(ledger, "heart", *PROMISE) == finite().cost(*PROMISE)
    with pytest.raises(PlanRefused):
        ledger.record(finite(2, data_name="heart"), allowed(finite().epsilon))


def test_uploads_are_remembered_once(tmp_path: Path) -> None:
    """Whether a vector of a session may have left is kept, in order, and marking it again changes nothing."""
    contexts = [bytes([number]) * 32 for number in (7, 3, 5)]
    for context in (*contexts, *contexts):
        Ledger(tmp_path).begin_upload(context)
    assert Ledger(tmp_path).uploads() == tuple(contexts)
    assert all(Ledger(tmp_path).has_uploaded(context) for context in contexts)
    assert not Ledger(tmp_path).has_uploaded(bytes(32))


@pytest.mark.parametrize(
    ("row", "statement"),
    [
        (1, "DELETE FROM uploads WHERE number = 1"),
        (2, "DELETE FROM uploads WHERE number = 2"),
        (3, "DELETE FROM uploads WHERE number = 3"),
        (1, "DELETE FROM uploads"),
        (2, "UPDATE uploads SET context = zeroblob(32) WHERE number = 2"),
        (2, "UPDATE uploads SET context = 'text' WHERE number = 2"),
        (2, "UPDATE uploads SET head = zeroblob(32) WHERE number = 2"),
        (1, "UPDATE uploads SET number = -1 WHERE number = 2"),
        (3, "UPDATE uploads SET number = 4 WHERE number = 3"),
    ],
)
def test_edited_upload_is_found(tmp_path: Path, row: int, statement: str) -> None:
    """A session whose row among the uploads was changed or deleted is not answered again unnoticed."""
    ledger = Ledger(tmp_path)
    for number in (1, 2, 3):
        ledger.begin_upload(bytes([number]) * 32)
    unlocked(tmp_path, statement)
    for ask in (ledger.uploads, lambda: ledger.has_uploaded(bytes(32)), lambda: ledger.begin_upload(bytes(32))):
        with pytest.raises(BadInput, match=f"row {row} of the uploads in the ledger .* was changed or is missing"):
            ask()


def test_all_adjacencies_of_what_was_promised_are_composed(tmp_path: Path) -> None:
    """A plan is refused where an earlier plan's promise, for other neighbours than its own, would be overspent.

    The earlier one promised ε ≤ 1 to neighbours that differ in one replaced record; the plan, judged by its own
    neighbours alone, would fit.
    """
    replaced = {"adjacency": "replace-one", "epsilon": 1.0, "spent": spent(0.12, 4)}
    first, second = finite(1, **replaced), finite(2, epsilon=0.5, spent=spent(0.12, 4))
    budget, ledger = allowed(1.0), Ledger(tmp_path)
    ledger.record(first, budget)
    assert (
        total_epsilon([first, second], *PROMISE, DELTA)
        <= 1
        < total_epsilon([first, second], "record", "replace-one", DELTA)
    )
    for attempt in (ledger.check, ledger.record):
        with pytest.raises(PlanRefused, match=r"more than 1\.0 \(delta 1e-05, replace-one, record level\)"):
            attempt(second, budget)
    assert rows(tmp_path) == 1


def test_all_units_of_what_was_promised_are_composed(tmp_path: Path) -> None:
    """A promise to whole clients binds a later plan that promises something to records alone."""
    client = Spent("client", "add-remove", GaussianCost(0.3**2))
    first = finite(1, unit="client", epsilon=1.0, spent=(*spent(0.05, 4), client))
    ledger = Ledger(tmp_path)
    ledger.record(first, allowed(1.0))
    with pytest.raises(PlanRefused, match="client level"):
        ledger.record(finite(2, mu=0.05), allowed(1.0))


PROCESS = """
import os, signal, sys
from pathlib import Path
from secagg.errors import PlanRefused
from secagg.ledger import Ledger
from tests.agreement.test_ledger import allowed, finite
folder, limit, fate, *numbers = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
for number in map(int, numbers):
    try:
        Ledger(Path(folder)).record(finite(number), allowed(float(limit)))
        print("recorded", flush=True)
    except PlanRefused as refusal:
        print(refusal.violations[0].split(":")[0], flush=True)
if fate == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def start(folder: Path, numbers: Iterable[int], limit: float, fate: str = "ends") -> subprocess.Popen[str]:
    """A process that waits for a line and then records the releases of these numbers."""
    command = [sys.executable, "-c", PROCESS, str(folder), str(limit), fate, *map(str, numbers)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_processes_cannot_spend_the_same_budget(tmp_path: Path) -> None:
    """Of two processes that record at once, into a ledger that neither has made yet, as much passes as fits."""
    limit = total_epsilon([finite(number) for number in range(1, 16)], *PROMISE, DELTA, kept=TRAININGS)
    running = [start(tmp_path, numbers, limit) for numbers in (range(1, 21), range(21, 41))]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = sorted(line for process in running for line in process.communicate()[0].split())
    assert said == ["max_epsilon_total"] * 25 + ["recorded"] * 15
    assert [entry.number for entry in Ledger(tmp_path).entries()] == list(range(1, 16))


def test_nobody_writes_between_check_and_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From before a budget is looked at until the row stands, no other process can begin to write."""
    ledger, check, refusals = Ledger(tmp_path), secagg.ledger.ledger.refuse_overspending, []
    other = sqlite3.connect(tmp_path / FILE_NAME, timeout=0, isolation_level=None)

    def interrupted(*arguments: Any) -> None:
        with pytest.raises(sqlite3.OperationalError, match="locked") as refusal:
            other.execute("BEGIN IMMEDIATE")
        refusals.append(refusal)
        check(*arguments)

    monkeypatch.setattr(secagg.ledger.ledger, "refuse_overspending", interrupted)
    ledger.record(finite(), ANYTHING)
    other.close()
    assert len(refusals) == len(ledger.entries()) == 1


def test_killed_process_has_spent(tmp_path: Path) -> None:
    """After a kill between record and upload the row stands: another session is refused, the same one goes on."""
    process = start(tmp_path, [1], limit := finite().epsilon, "killed")
    assert process.communicate("go\n")[0] == "ready\nrecorded\n"
    assert process.returncode == -signal.SIGKILL
    ledger = Ledger(tmp_path)
    with pytest.raises(PlanRefused):
        ledger.record(finite(2), allowed(limit))
    assert ledger.record(finite(1), allowed(limit)).number == 1
    with pytest.raises(PlanRefused):
        ledger.record(finite(2), allowed(limit))
    assert len(ledger.entries()) == 1


def test_refused_or_failed_record_leaves_nothing(tmp_path: Path) -> None:
    """A transaction that does not end leaves neither a row nor a number behind."""
    ledger = Ledger(tmp_path)
    ledger.record(finite(1), ANYTHING)
    database(tmp_path, "CREATE TRIGGER full BEFORE INSERT ON costs BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
    with pytest.raises(BadInput, match="disk is full"):
        ledger.record(finite(2), ANYTHING)
    assert [entry.number for entry in ledger.entries()] == [1]
    database(tmp_path, "DROP TRIGGER full")
    assert ledger.record(finite(2), ANYTHING).number == 2


def test_costs_are_little_endian_floats(tmp_path: Path) -> None:
    """The stored bytes of a cost are the same on every machine: μ², then the gap."""
    Ledger(tmp_path).record(finite(), ANYTHING)
    ((kind, blob),) = database(tmp_path, "SELECT kind, content FROM costs WHERE adjacency = 'add-remove'")
    values = [memoryview(blob[i : i + 8][:: 1 if sys.byteorder == "little" else -1]).cast("d")[0]
              for i in range(0, len(blob), 8)]  # fmt: skip
    assert (kind, values) == ("gaussian", [0.25**2, 1e-20])
