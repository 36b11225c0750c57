"""Measure, print one table, and write ./bench.json. Takes a few minutes; progress is on stderr.

`--smoke` runs the same with six clients in seconds: every sum and the balance of CPU are checked; the figures are
those of six clients, and bench.json is not written.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.comparison import Comparison
from tests.benchmarks.processes import COHORTS, measure_processes
from tests.benchmarks.protections import measure_census, measure_protections
from tests.benchmarks.report import Measurements, as_json, machine, rows
from tests.benchmarks.scenario import CLIENTS, DROPOUTS, LENGTH, REPEATS, RING, say
from tests.benchmarks.session import measure_sessions
from tests.benchmarks.streams import ROUNDS, measure_streams
from tests.benchmarks.table import table
from tests.benchmarks.yardstick import measure_ckks


@dataclass(frozen=True)
class _Size:
    """How much is measured."""

    clients: int = CLIENTS
    dropouts: int = DROPOUTS
    repeats: int = REPEATS
    rounds: int = ROUNDS
    cohorts: tuple[int, ...] = COHORTS


_SMOKE = _Size(clients=6, dropouts=1, repeats=1, rounds=1, cohorts=(3,))


def main() -> None:
    """Run every benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Measure speed and size")
    parser.add_argument("--smoke", action="store_true", help="six clients, in seconds: check sums and accounts alone")
    size = _SMOKE if parser.parse_args().smoke else _Size()
    began, load = time.perf_counter(), os.getloadavg()[0]
    streams = measure_streams(size.rounds)
    sessions = measure_sessions(size.repeats, size.clients, size.dropouts)
    protections = measure_protections(size.clients, size.dropouts)
    comparison = Comparison(protections, measure_ckks(), measure_processes(size.cohorts), measure_census())
    found = Measurements(streams, sessions, comparison, load, time.perf_counter() - began)
    shape = f"{LENGTH:,} integers, ring of {RING.bits} bits, complete graph"
    print(f"{size.clients} clients, {size.dropouts} dropouts, {shape}")
    print(", ".join(f"{name} {value}" for name, value in machine().items()), f"load before {load:.1f}", sep=", ")
    print(comparison.table(), comparison.steps(), table(rows(found)), sep="\n\n")
    if size != _SMOKE:
        Path("bench.json").write_text(as_json(found), encoding="utf-8")
        say(f"wrote bench.json after {found.seconds:.0f} s")


if __name__ == "__main__":
    main()
