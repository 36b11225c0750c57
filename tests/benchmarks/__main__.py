"""Measure, print one table, and write ./bench.json. Takes a few minutes; progress is on stderr."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.benchmarks.memory import measure_peaks
from tests.benchmarks.report import Measurements, as_json, machine, rows, table
from tests.benchmarks.scenario import CLIENTS, DROPOUTS, LENGTH, REPEATS, RING, say
from tests.benchmarks.session import measure_sessions
from tests.benchmarks.streams import measure_streams


def main() -> None:
    """Run every benchmark."""
    began, load = time.perf_counter(), os.getloadavg()[0]
    streams = measure_streams()
    sessions = measure_sessions(REPEATS)
    peaks = measure_peaks()
    found = Measurements(streams, sessions, peaks, load, time.perf_counter() - began)
    print(f"{CLIENTS} clients, {DROPOUTS} dropouts, {LENGTH:,} integers, ring of {RING.bits} bits, complete graph")
    print(", ".join(f"{name} {value}" for name, value in machine().items()), f"load before {load:.1f}", sep=", ")
    print(table(rows(found)))
    Path("bench.json").write_text(as_json(found), encoding="utf-8")
    say(f"wrote bench.json after {found.seconds:.0f} s")


if __name__ == "__main__":
    main()
