"""The fault matrix counts its cells, and reports what is wrong, hung or lost.

`SECAGG_FAULT_MINUTES` says for how long the long test begins cells (30 by default; all take some hours).
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.faults import cells, playing
from tests.faults.__main__ import Row, as_json, chosen, read_rows, run_cells, table_of
from tests.faults.cells import CLIENT, FAULTS, FIRST, PROTECTIONS, ROUNDS, Cell, Fault, all_cells, parties_of
from tests.faults.judging import Judgement, Verdict, judge
from tests.faults.playing import Played, play
from tests.federation.deaths import WIRE
from tests.worlds.rosters import SERVER

CHEAP = Cell("kill at write 13", CLIENT, "masked", 1)
MINUTES = float(os.environ.get("SECAGG_FAULT_MINUTES", "30"))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """One cell that went well: a client killed once."""
    with play(tmp_path_factory.mktemp("cell"), CHEAP) as found:
        yield found


def test_every_cell_is_there_once() -> None:
    """Each fault is at every party, under every protection, in one round and in three; the first are of all kinds."""
    found = list(all_cells())
    wanted = {
        Cell(fault, party, protection, rounds)
        for fault in FAULTS
        for protection in PROTECTIONS
        for party in parties_of(protection)
        for rounds in ROUNDS
    }
    assert len(found) == len(set(found)) == len(FAULTS) * 16
    assert set(found) == wanted
    assert {cell.fault for cell in found[: len(FIRST) * 16]} == set(FIRST)


def test_cells_are_chosen_by_their_fields() -> None:
    """`--only` takes the beginning of a fault and whole other fields; a field that there is none of is refused."""
    only = chosen("fault=kill at write,party=b,rounds=3")
    found = [cell for cell in all_cells() if cell.is_of(only)]
    assert {cell.fault.split(" at ")[0] for cell in found} == {"kill"}
    assert {(cell.party, cell.rounds) for cell in found} == {("b", 3)}
    with pytest.raises(ValueError, match="protocol: choose among fault, party"):
        chosen("protocol=masked")


def test_killed_client_is_in_a_right_sum(played: Played) -> None:
    """A real session whose client is killed and started again is right; one without the kill would be skipped."""
    assert judge(CHEAP, played) == Judgement(Verdict.RIGHT)
    assert judge(CHEAP, replace(played, has_struck=False)).verdict is Verdict.UNTOUCHED


def test_wrong_sum_is_reported(played: Played) -> None:
    """Where the records come to another sum than all parties have, the cell is wrong, and each of them is named."""
    file = played.federation.folder / "a" / "records.npz"
    before = file.read_bytes()
    with np.load(file) as records:
        changed = {**records, "labels": 1 - records["labels"]}
    np.savez(file, **changed)
    try:
        found = judge(CHEAP, played)
    finally:
        file.write_bytes(before)
    assert found.verdict is Verdict.WRONG
    assert {f"the sum of round 1 at {name} is not that of the records" for name in (SERVER, "b")} <= set(found.reasons)


def test_second_frame_of_a_step_is_reported(played: Played) -> None:
    """A party that has said two things is wrong, although the sum is right."""
    file = played.federation.folder / "b" / WIRE
    before = file.read_text()
    what, _, _ = before.splitlines()[0].rpartition(": ")
    file.write_text(f"{before}{what}: {'0' * 64}\n")
    try:
        assert judge(CHEAP, played) == Judgement(Verdict.WRONG, (f"said twice: b: {what}",))
    finally:
        file.write_text(before)


@pytest.mark.parametrize(
    ("codes", "verdict", "reason"),
    [
        ({CLIENT: 75}, Verdict.LOST, "b ended with 75"),
        ({CLIENT: 2}, Verdict.WRONG, "b ended with 2"),
        (dict.fromkeys((SERVER, "a", "b", "c", "d"), 5), Verdict.LOST, "aborted although everybody came back"),
        (dict.fromkeys((SERVER, "a", "b", "c"), 5), Verdict.WRONG, "d not told"),
    ],
)
def test_bad_ends_are_reported(played: Played, codes: dict[str, int], verdict: Verdict, reason: str) -> None:
    """A client that ends without the outcome is lost, an unclean end is wrong, and so is an abort not told to all."""
    found = judge(CHEAP, replace(played, codes={**played.codes, **codes}))
    assert found.verdict is verdict
    assert reason in found.reasons[0]


def test_hang_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that stands still for longer than the cell may take is hung, with its name."""
    monkeypatch.setattr(cells, "FAULTS", {"stop for ever": Fault(stopped=1e6)})
    monkeypatch.setattr(playing, "bound_of", lambda cell: 4.0)
    cell = Cell("stop for ever", CLIENT, "masked", 1)
    with play(tmp_path, cell) as found:
        judged = judge(cell, found)
    assert judged.verdict is Verdict.HUNG
    assert CLIENT in judged.reasons[0]


def test_counts_name_what_was_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cells that cannot be had, or that no time is left for, are counted as skipped and named with the reason."""
    unable = Cell("clock -1 day, of OpenSSL", SERVER, "masked", 1)
    rows = [*run_cells([unable, CHEAP], tmp_path, minutes=-1.0), Row(CHEAP, Judgement(Verdict.WRONG, ("planted",)), 1)]
    capsys.readouterr()
    table = table_of(rows)
    assert "| all | 3 | 1 | 0 | 0 | 1 | 0 | 0 | 2 |" in table
    assert f"skipped: {unable.name}: the clock of a single process" in table
    assert f"skipped: {CHEAP.name}: no time was left" in table
    assert f"wrong: {CHEAP.name}: planted" in table
    assert list(tmp_path.iterdir()) == []
    assert [each["verdict"] for each in as_json(rows)] == ["skipped", "skipped", "wrong"]


def test_written_cells_are_counted_again(tmp_path: Path) -> None:
    """What a run wrote as JSON gives the same table."""
    import json

    rows = [Row(CHEAP, Judgement(Verdict.RIGHT), 2.0), Row(CHEAP, Judgement(Verdict.LOST, ("b is gone",)), 3.0)]
    file = tmp_path / "matrix.json"
    file.write_text(json.dumps(as_json(rows)))
    assert table_of(list(read_rows(file))) == table_of(rows)


@pytest.mark.long
def test_whole_matrix(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No cell is wrong or hung, and no client is lost that came back in time."""
    rows = run_cells(list(all_cells()), tmp_path, minutes=MINUTES)
    with capfd.disabled():
        print(f"\n{table_of(rows)}")
    bad = (Verdict.WRONG, Verdict.HUNG, Verdict.LOST)
    assert [(row.cell.name, row.judgement) for row in rows if row.judgement.verdict in bad] == []
