"""Exhaustive search of the model `agreement.pml` and of its mutants by SPIN.

`python -m tests.models.search` searches all of them and writes agreement.log. It needs Debian's `spin` and `gcc`.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).with_name("agreement.pml")
LOG = Path(__file__).with_name("agreement.log")
MODELS: dict[str, tuple[str, ...]] = {
    "four clients, one of them a colluder": (),
    "four clients, two of them colluders": ("COLLUDERS=2",),
    "an honest helper confirms, and its signature stands for missed rounds": ("HELPER", "RETURN_BY_HELPER"),
}
"""Models in which no property is broken, with their settings."""
MUTANTS: dict[str, tuple[str, ...]] = {
    "one signature fewer than the quorum, 2t = n + c - 1": ("QUORUM=2",),
    "2t >= n + c in place of 2t > n + c, where they differ: n + c is even": ("COLLUDERS=2", "QUORUM=3"),
    "a result is accepted without a confirmation": ("NO_CONFIRMATION",),
    "a client returns on the word of t - 1 others": ("WITNESSES=2",),
    "a client endorses two sets": ("TWO_SETS",),
    "a client reveals its nonce for two lists": ("TWO_REVEALS",),
    "a client acknowledges two outcomes": ("TWO_ACKNOWLEDGEMENTS",),
    "an acknowledgement in the last round names the sum and not the result": ("RESULT_NOT_BOUND",),
    "a helper confirms, and clients' signatures stand for missed rounds": ("HELPER",),
}
"""Faults that must break a property, with their settings."""
WITNESSES: dict[str, tuple[str, ...]] = {
    "all clients reach the end and one has returned": ("WITNESS_RUN",),
    "the same with a helper": ("HELPER", "RETURN_BY_HELPER", "WITNESS_RUN"),
}
"""Runs that must exist, so that the properties do not hold for want of steps."""
_DEPTH = 10_000


@dataclass(frozen=True)
class Search:
    """What SPIN reports of one search: the broken assertion ("" if none), the states, whether all were visited."""

    broken: str
    states: int
    is_complete: bool
    report: str


def missing_tools() -> tuple[str, ...]:
    """Return the names of the programs that a search needs and this machine lacks."""
    return tuple(name for name in ("spin", "gcc") if shutil.which(name) is None)


def search(settings: tuple[str, ...], *, shortest: bool) -> Search:
    """Search the model's states with these settings; with `shortest` breadth first, for the shortest broken run.

    Every state is stored whole (no hashing, no reduction of orders), and no limit of memory or depth is set that the
    search could reach unnoticed: SPIN says "not completed" or "too small" then.
    """
    with tempfile.TemporaryDirectory() as name:
        defined = [f"-D{each}" for each in settings]
        _run(["spin", *defined, "-a", str(MODEL)], name)
        order = ["-DBFS"] if shortest else []
        _run(["gcc", "-O2", "-w", "-DSAFETY", "-DNOREDUCE", *order, "-o", "pan", "pan.c"], name)
        report = _run(["./pan", "-E", f"-m{_DEPTH}"], name)
    broken = re.search(r"assertion violated (.*) \(at depth", report)
    errors = int(re.search(r"errors: (\d+)", report)[1])
    states = int(re.search(r"(\d+) states, stored", report)[1])
    is_cut = "not completed" in report or "too small" in report or "Bit statespace" in report
    return Search(broken[1] if broken else "", states, errors == 0 and not is_cut, report)


def _run(command: list[str], folder: str) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def model_digest() -> str:
    """Return the SHA-256 of the model, which the log names."""
    return hashlib.sha256(MODEL.read_bytes()).hexdigest()


def write_log() -> bool:
    """Search everything, write the log, and return whether all is as it must be."""
    parts, is_right = [f"{MODEL.name}, SHA-256 {model_digest()}\n"], True
    for names, must_hold in ((MODELS, True), (MUTANTS, False), (WITNESSES, False)):
        for title, settings in names.items():
            found = search(settings, shortest=not must_hold)
            is_right &= found.is_complete if must_hold else bool(found.broken)
            verdict = "no property is broken" if found.is_complete else f"broken: {found.broken}"
            parts.append(f"=== {title} ({' '.join(settings) or 'no settings'}): {verdict}\n{found.report.strip()}\n")
    LOG.write_text("\n".join(parts))
    return is_right


if __name__ == "__main__":
    sys.exit(not write_log())
