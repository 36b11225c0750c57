"""Measure, print one table, and write ./bench.json. Takes a few minutes; progress is on stderr."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.benchmarks.comparison import Comparison
from tests.benchmarks.processes import measure_processes
from tests.benchmarks.protections import measure_protections
from tests.benchmarks.report import Measurements, as_json, machine, rows
from tests.benchmarks.scenario import CLIENTS, DROPOUTS, LENGTH, REPEATS, RING, say
from tests.benchmarks.session import measure_sessions
from tests.benchmarks.streams import measure_streams
from tests.benchmarks.table import table
from tests.benchmarks.yardstick import measure_ckks


def main() -> None:
    """Run every benchmark."""
    began, load = time.perf_counter(), os.getloadavg()[0]
    streams = measure_streams()
    sessions = measure_sessions(REPEATS)
    comparison = Comparison(measure_protections(), measure_ckks(), measure_processes())
    found = Measurements(streams, sessions, comparison, load, time.perf_counter() - began)
    print(f"{CLIENTS} clients, {DROPOUTS} dropouts, {LENGTH:,} integers, ring of {RING.bits} bits, complete graph")
    print(", ".join(f"{name} {value}" for name, value in machine().items()), f"load before {load:.1f}", sep=", ")
    print(comparison.table(), comparison.steps(), table(rows(found)), sep="\n\n")
    Path("bench.json").write_text(as_json(found), encoding="utf-8")
    say(f"wrote bench.json after {found.seconds:.0f} s")


if __name__ == "__main__":
    main()
