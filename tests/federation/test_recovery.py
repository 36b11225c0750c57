"""A ledger that is gone, or older than the transcripts beside it: seen, refused, and written again on the safe side."""

import asyncio
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import secagg.federation.recovery
from secagg.agreement.policy import Budget, data_set
from secagg.errors import BadInput, PlanRefused
from secagg.federation import open_ledger, recover_ledger, session_folder
from secagg.federation.recovery import release_of, release_until
from secagg.ledger import FILE_NAME, Entry, Ledger
from secagg.ledger.spending import same_data, total_cost
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.privacy import Adjacency
from secagg.session import RoundSetup, begin_transcript
from secagg.transcript import FILE_NAME as TRANSCRIPT
from secagg.transcript import Journal, Record
from secagg.wire import encode
from tests.agreement.federation_files import small_plan, small_roster
from tests.worlds.federation import SimulatedFederation, run_federation
from tests.worlds.setups import make_setup

ROSTER = small_roster()
NOISY = {"radius": None, "epsilon": 1.0, "delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE}
ANYTHING = Budget(math.inf, 1e-5, may_repeat=True)
PROMISE = ("record", "add-remove")


def session(**choices: object) -> RoundSetup:
    """A fresh plan's first session; without noise unless asked."""
    return RoundSetup.of(small_plan(ROSTER, **choices), ROSTER)


def charge(state: Path, setup: RoundSetup, data_name: str = "mine", *, reaches_disk: bool = True) -> Entry:
    """What a client writes until its first byte leaves; `reaches_disk`: the transcript has the row's head."""
    with_budget = policy_accepting(setup.plan, data_name)
    journal = Journal(session_folder(state, setup) / TRANSCRIPT)
    journal.append("salt", bytes(32))
    begin_transcript(journal, setup)
    journal.append("policy", with_budget.to_toml().encode())
    ledger = Ledger(state)
    entry = ledger.record(release_of(setup.facts, data_name), ANYTHING)
    ledger.begin_upload(setup.context.round_digest)
    if reaches_disk:
        journal.append("ledger", entry.digest)
    journal.close()
    return entry


def spent_on(ledger: Ledger, data_name: str) -> object:
    """What was spent on a data set; None is everything."""
    return total_cost(same_data([entry.release for entry in ledger.entries()], data_name), *PROMISE, 1e-5)


def settle(state: Path, setup: RoundSetup) -> Entry:
    """What a client writes where a plan ends for good after its first sum."""
    settled_cost = release_until(setup.facts, "mine", 1)
    assert settled_cost is not None
    return Ledger(state).settle(release_of(setup.facts, "mine"), settled_cost)


def test_settled_plan_comes_back_where_a_head_follows(tmp_path: Path) -> None:
    """A settlement that a later row's head covers is recovered; the last one, which none covers, is charged whole."""
    first, second = (make_setup(3, refine=2, epsilon=epsilon) for epsilon in (1.0, 2.0))
    rows = [charge(tmp_path, first), settle(tmp_path, first), charge(tmp_path, second)]
    (tmp_path / FILE_NAME).unlink()
    assert recover_ledger(tmp_path) == (rows, True)
    settle(tmp_path, second)
    (tmp_path / FILE_NAME).unlink()
    assert recover_ledger(tmp_path) == (rows, True)
    assert Ledger(tmp_path).entries() == tuple(rows)


def test_ledger_of_a_real_session_comes_back(tmp_path: Path) -> None:
    """After a plan of two sums the deleted ledger is missed by every client, and comes back to the last head."""
    world = SimulatedFederation.of(tmp_path, refine=1)
    asyncio.run(run_federation(world))
    for member in world.setup.roster.clients:
        state = world.state(member)
        before, uploads = world.ledger(member).entries(), world.ledger(member).uploads()
        assert len(before) == 1
        (state / FILE_NAME).unlink()
        with pytest.raises(BadInput, match=r"there is no ledger .*; bring it back .* secagg ledger recover --state"):
            open_ledger(state)
        assert not (state / FILE_NAME).exists()
        assert recover_ledger(state) == (list(before), True)
        assert open_ledger(state).entries() == before
        assert set(open_ledger(state).uploads()) == set(uploads)


def test_lost_rows_come_back_in_their_order(tmp_path: Path) -> None:
    """Rows about several data sets are found again in the order that the heads prove, whatever the folders' names."""
    charged = [session(**NOISY), session(), session(**NOISY), session(**NOISY)]
    entries = tuple(charge(tmp_path, each, name) for each, name in zip(charged, ("a", "b", "a/v2", "c"), strict=True))
    (tmp_path / FILE_NAME).unlink()
    assert recover_ledger(tmp_path) == (list(entries), True)
    assert open_ledger(tmp_path).entries() == entries


def test_what_was_spent_is_spent_again(tmp_path: Path) -> None:
    """A plan that the lost ledger refused is refused by the recovered one with the same words."""
    charge(tmp_path, session(**NOISY))
    later, budget = release_of(session(**NOISY).facts, "mine"), Budget(1.2, 1e-5, may_repeat=False)
    refusals = []
    for _ in range(2):
        with pytest.raises(PlanRefused) as refusal:
            open_ledger(tmp_path).check(later, budget)
        refusals.append(str(refusal.value))
        (tmp_path / FILE_NAME).unlink()
        recover_ledger(tmp_path)
    assert refusals[0] == refusals[1]


def test_ledger_that_was_put_back_to_an_older_copy_is_noticed(tmp_path: Path) -> None:
    """A ledger without the last row is refused though it is a good one, and the row is entered again as proven."""
    charge(tmp_path, session(**NOISY))
    shutil.copy(tmp_path / FILE_NAME, tmp_path / "backup")
    last = charge(tmp_path, session(**NOISY))
    shutil.copy(tmp_path / "backup", tmp_path / FILE_NAME)
    with pytest.raises(BadInput, match="lacks releases that transcripts beside it name"):
        open_ledger(tmp_path)
    assert recover_ledger(tmp_path) == ([last], True)


def test_row_that_nobody_names_makes_everything_count(tmp_path: Path) -> None:
    """Where a session's folder is gone with the ledger, nobody knows about what: all data sets count as spent."""
    setups = [session(**NOISY) for _ in range(3)]
    for setup, name in zip(setups, ("a", "b", "c"), strict=True):
        charge(tmp_path, setup, name)
    shutil.rmtree(session_folder(tmp_path, setups[1]))
    (tmp_path / FILE_NAME).unlink()
    rows, proven = recover_ledger(tmp_path)
    assert not proven
    assert {row.release.data_name for row in rows} == {"a", "c"}
    ledger = open_ledger(tmp_path)
    assert [spent_on(ledger, name) for name in "ac"] == [None, None]


def test_older_copy_with_a_gap_charges_its_data_sets_too(tmp_path: Path) -> None:
    """Where rows are missing after an older copy of the ledger, the data sets of its own rows count as spent, too."""
    setups = [session(**NOISY) for _ in range(3)]
    charge(tmp_path, setups[0], "a")
    shutil.copy(tmp_path / FILE_NAME, tmp_path / "backup")
    for setup, name in zip(setups[1:], ("b", "c"), strict=True):
        charge(tmp_path, setup, name)
    shutil.copy(tmp_path / "backup", tmp_path / FILE_NAME)
    shutil.rmtree(session_folder(tmp_path, setups[1]))
    assert not recover_ledger(tmp_path)[1]
    assert [spent_on(open_ledger(tmp_path), name) for name in "ac"] == [None, None]


def test_plan_that_is_not_read_any_more_counts_in_full(tmp_path: Path) -> None:
    """A transcript whose plan another version wrote names a data set, which is charged with an exact sum."""
    setup = session(**NOISY)
    journal = Journal(session_folder(tmp_path, setup) / TRANSCRIPT)
    journal.append("plan", encode(replace(setup.plan, purpose="other")) + b"\x00")
    journal.append("policy", policy_accepting(setup.plan, "old").to_toml().encode())
    journal.append("ledger", bytes(32))
    journal.close()
    with pytest.raises(BadInput, match="there is no ledger"):
        open_ledger(tmp_path)
    (row,), proven = recover_ledger(tmp_path)
    assert (row.release.data_name, row.release.epsilon, proven) == ("old", math.inf, False)
    open_ledger(tmp_path)


def test_one_data_set_under_two_spellings_is_charged_once(tmp_path: Path) -> None:
    """A session that was charged under two spellings, as older versions took them, does not stop the recovery."""
    setup = session(**NOISY)
    journal = Journal(session_folder(tmp_path, setup) / TRANSCRIPT)
    begin_transcript(journal, setup)
    for number, name in enumerate(("heart", "./heart")):
        policy = policy_accepting(setup.plan, "NAME").to_toml().replace("NAME", name)
        journal.append("policy", policy.encode())
        journal.append("ledger", bytes([number]) * 32)
    journal.close()
    (row,), proven = recover_ledger(tmp_path)
    assert (data_set(row.release.data_name), row.release.epsilon, proven) == ("heart", math.inf, False)
    open_ledger(tmp_path)


def test_client_at_work_beside_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row and its transcript that another client writes while this one looks around are not taken for a loss."""
    at_work, read = [session(**NOISY)], secagg.federation.recovery.read_transcript
    Journal(session_folder(tmp_path, at_work[0]) / TRANSCRIPT).close()

    def reading(path: Path, **given: bool) -> list[Record]:
        if at_work:
            charge(tmp_path, at_work.pop())
        return read(path, **given)

    monkeypatch.setattr(secagg.federation.recovery, "read_transcript", reading)
    assert len(open_ledger(tmp_path).entries()) == 1


def test_session_that_never_charged_is_no_loss(tmp_path: Path) -> None:
    """Folders of sessions that ended before their row was written, or that hold nothing yet, ask for no ledger."""
    setup = session()
    journal = Journal(session_folder(tmp_path, setup) / TRANSCRIPT)
    begin_transcript(journal, setup)
    journal.append("policy", policy_accepting(setup.plan, "mine").to_toml().encode())
    journal.close()
    (tmp_path / "0123456789abcdef").mkdir()
    (tmp_path / "0123456789abcdef" / TRANSCRIPT).touch()
    assert open_ledger(tmp_path).entries() == ()
    with pytest.raises(BadInput, match="names a release that its ledger lacks"):
        recover_ledger(tmp_path)


def test_crash_between_row_and_transcript_is_no_loss(tmp_path: Path) -> None:
    """A row whose head no transcript has yet is the ledger's alone, and nothing is missed while that is there."""
    charge(tmp_path, session(), reaches_disk=False)
    assert len(open_ledger(tmp_path).entries()) == 1


def test_torn_transcript_still_tells(tmp_path: Path) -> None:
    """A transcript that a crash cut in its last record names the row before it."""
    setup = session(**NOISY)
    entry = charge(tmp_path, setup)
    path = session_folder(tmp_path, setup) / TRANSCRIPT
    path.write_bytes(path.read_bytes() + b"\x00\x00\x01")
    (tmp_path / FILE_NAME).unlink()
    assert recover_ledger(tmp_path) == ([entry], True)


def test_transcript_that_was_changed_is_refused(tmp_path: Path) -> None:
    """Whether a session with a damaged transcript was charged cannot be known: it is named, and nothing is written."""
    setup = session(**NOISY)
    charge(tmp_path, setup)
    path = session_folder(tmp_path, setup) / TRANSCRIPT
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(bytes(content))
    (tmp_path / FILE_NAME).unlink()
    for attempt in (open_ledger, recover_ledger):
        with pytest.raises(BadInput, match=r"transcript\.log does not tell what it was charged with"):
            attempt(tmp_path)
    assert not (tmp_path / FILE_NAME).exists()


def test_folder_without_sessions_has_nothing_to_recover(tmp_path: Path) -> None:
    """A mistyped state folder is said to hold no sessions, not that its ledger is whole; nothing is created."""
    with pytest.raises(BadInput, match="there are no sessions in"):
        recover_ledger(tmp_path / "mistyped")
    assert not (tmp_path / "mistyped").exists()
