"""Run the fault matrix, or a part of it, and count its cells.

`python -m tests.faults --only fault=kill,party=server,protection=masked,rounds=3 --out matrix.json` takes the cells
whose fault begins so, and whose other fields are these; `--table FILE ...` counts the cells of such files. Cells that
no time is left for are skipped by name, like those that cannot be had here. Exit code 1: a sum was wrong, somebody
hung, or a client was lost that came back in time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.conftest import MEMORY
from tests.faults.cells import Cell, all_cells
from tests.faults.judging import Judgement, Verdict, judge
from tests.faults.playing import bound_of, play

FIELDS = ("fault", "party", "protection", "rounds")
_BAD = (Verdict.WRONG, Verdict.HUNG, Verdict.LOST)


@dataclass(frozen=True)
class Row:
    """One cell with its verdict and the seconds that it took."""

    cell: Cell
    judgement: Judgement
    seconds: float = 0.0


def run_cell(cell: Cell, folder: Path) -> Row:
    """Play one cell in a folder of its own, which is kept where something is wrong."""
    begun = time.monotonic()
    try:
        with play(folder, cell) as played:
            judgement = judge(cell, played)
    except Exception as error:  # noqa: BLE001 (a cell that cannot even be judged is wrong, and the others go on)
        judgement = Judgement(Verdict.WRONG, (f"cannot be judged: {type(error).__name__}: {error}"[:500],))
    if judgement.verdict is Verdict.UNTOUCHED:
        judgement = Judgement(Verdict.UNTOUCHED, ("the session was over before the fault came",))
    return Row(cell, judgement, time.monotonic() - begun)


def run_cells(
    cells: Sequence[Cell], folder: Path, at_a_time: int = 1, minutes: float = 1e6, out: Path | None = None
) -> list[Row]:
    """Run all cells that can be had and that time is left for, so many at a time; print a line for each.

    `out` holds those that have ended, after each of them.
    """
    ends, done = time.monotonic() + 60.0 * minutes, dict[int, Row]()

    def run(number: int, cell: Cell) -> Row:
        if cell.kind.unable:
            return Row(cell, Judgement(Verdict.UNTOUCHED, (cell.kind.unable,)))
        if time.monotonic() > ends:
            return Row(cell, Judgement(Verdict.UNTOUCHED, ("no time was left",)))
        return run_cell(cell, folder / str(number))

    with ThreadPoolExecutor(at_a_time) as threads:
        running = {threads.submit(run, number, cell): number for number, cell in enumerate(cells)}
        for ended in as_completed(running):
            number, row = running[ended], ended.result()
            done[number] = row
            found = f"{row.judgement.verdict} after {row.seconds:.0f} s {'; '.join(row.judgement.reasons)}".rstrip()
            print(f"{len(done)}/{len(cells)} {number}: {row.cell.name}: {found}", flush=True)
            if out:
                out.write_text(json.dumps(as_json(done.values()), indent=1) + "\n")
    return [done[number] for number in sorted(done)]


def table_of(rows: Sequence[Row]) -> str:
    """The counts by protection and rounds, then each cell that was skipped or is bad, by name with its reason."""
    groups: dict[str, list[Row]] = {"all": list(rows)}
    for row in rows:
        groups.setdefault(f"{row.cell.protection}, {row.cell.rounds}", []).append(row)
    lines = ["| protection, rounds | cells | run | " + " | ".join(_COLUMNS) + " | skipped |"]
    lines.append("| --- |" + " ---: |" * (len(_COLUMNS) + 3))
    for name, group in groups.items():
        found = Counter(row.judgement.verdict for row in group)
        ran = len(group) - found[Verdict.UNTOUCHED]
        counts = (len(group), ran, *(found[each] for each in _COLUMNS), found[Verdict.UNTOUCHED])
        lines.append(f"| {name} | " + " | ".join(map(str, counts)) + " |")
    listed = [row for row in rows if row.judgement.verdict is not Verdict.RIGHT]
    lines += [f"{row.judgement.verdict}: {row.cell.name}: {'; '.join(row.judgement.reasons)}" for row in listed]
    return "\n".join(lines)


_COLUMNS = (Verdict.RIGHT, Verdict.ABORTED, Verdict.WRONG, Verdict.HUNG, Verdict.LOST)


def as_json(rows: Iterable[Row]) -> list[dict[str, object]]:
    """One object for each cell."""
    return [
        asdict(row.cell) | asdict(row.judgement) | {"seconds": round(row.seconds, 1), "bound": bound_of(row.cell)}
        for row in rows
    ]


def read_rows(file: Path) -> Iterator[Row]:
    """The cells of a run before, from its JSON."""
    for each in json.loads(file.read_text()):
        judgement = Judgement(Verdict(each["verdict"]), tuple(each["reasons"]))
        yield Row(Cell(*(each[field] for field in FIELDS)), judgement, each["seconds"])


def chosen(words: str) -> Mapping[str, str]:
    """What `--only` says. Raises ValueError for anything but the fields of a cell."""
    only = dict(pair.split("=", 1) for pair in words.split(",") if pair)
    if unknown := only.keys() - set(FIELDS):
        raise ValueError(f"{', '.join(sorted(unknown))}: choose among {', '.join(FIELDS)}")
    return only


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=chosen, default={}, help="fault=...,party=...,protection=...,rounds=...")
    parser.add_argument("--out", type=Path, help="write every cell's verdict to this JSON file")
    parser.add_argument("--at-a-time", type=int, default=1, help="cells that run at the same time")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no cell after so long")
    parser.add_argument("--table", type=Path, nargs="+", help="run nothing; count the cells of these JSON files")
    parser.add_argument("--list", action="store_true", help="print the names of the cells, run none")
    asked = parser.parse_args()
    if asked.table:
        print(table_of([row for file in asked.table for row in read_rows(file)]))
        return 0
    cells = [cell for cell in all_cells() if cell.is_of(asked.only)]
    if not cells:
        parser.error("no cell is of that kind; --list prints all")
    if asked.list:
        with contextlib.suppress(BrokenPipeError):
            print("\n".join(cell.name for cell in cells), flush=True)
        return 0
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir=MEMORY if MEMORY.is_dir() else None))
    print(f"{len(cells)} cells, in {folder}", flush=True)
    rows = run_cells(cells, folder, asked.at_a_time, asked.minutes, asked.out)
    print(table_of(rows))
    return int(any(row.judgement.verdict in _BAD for row in rows))


if __name__ == "__main__":
    sys.exit(main())
