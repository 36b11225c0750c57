"""The tables of speed and size in the guides, all from one run: what `make bench` wrote.

`python -m tests.benchmarks.guides [bench.json]` writes them between their marks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.architecture.source import ROOT
from tests.benchmarks.comparison import GOAL_GROWTH
from tests.benchmarks.leaving import placed
from tests.benchmarks.report import GOAL_CLIENT_CPU, GOAL_OPENING, GOAL_RATIO, GOAL_UPLOAD

BEGIN = "<!-- made by: python -m tests.benchmarks.guides -->\n"
_SECONDS = "{:.3f}".format
_SIZE = "{:,}".format


def main() -> None:
    """Write both tables."""
    found = json.loads(Path(*sys.argv[1:2] or ["bench.json"]).read_text(encoding="utf-8"))
    for name, made in (("tests/benchmarks", speed(found)), ("secagg/protection", costs(found))):
        path = ROOT / name / "README.md"
        path.write_text(placed(path.read_text(encoding="utf-8"), made, BEGIN), encoding="utf-8")


def speed(found: dict[str, Any]) -> str:
    """What is measured in detail, beside its goals."""
    streams = f"(990 streams, {found['unmask_s'] * 1e3:.0f} ms)"
    clients = [1e3 * seconds for seconds in found["client_cpu_all_runs_s"]]
    rows = [
        (
            "masking ÷ its floor (AES-CTR and additions at full speed)",
            f"{found['mask_ratio_to_floor']:.2f}",
            GOAL_RATIO,
        ),
        (f"unmasking ÷ its floor {streams}", f"{found['unmask_ratio_to_floor']:.2f}", GOAL_RATIO),
        (
            "client, CPU for the whole protocol, least of three runs",
            f"{min(clients):.0f} ms (most: {max(clients):.0f} ms)",
            f"{GOAL_CLIENT_CPU * 1e3:.0f} ms",
        ),
        ("server, CPU to take all openings", f"{found['server_open_share_checks_s']:.2f} s", None),
        ("server, CPU for these, recovery, sum, unmasking", f"{found['server_open_s']:.2f} s", f"{GOAL_OPENING} s"),
        ("upload, all that a client sends", f"{found['upload_bytes']:,} bytes", None),
        (
            "of it the packed vector",
            f"{found['packed_bytes']:,} bytes, sent × {found['upload_vector_ratio']:.5f}",
            f"× {GOAL_UPLOAD}",
        ),
        *_memory(found["processes"]),
    ]
    lines = [f"| {name} | {value} | {f'≤ {goal}' if goal else ''} |" for name, value, goal in rows]
    machine = found["machine"]
    where = f"Here: {machine['cpu_count']} cores of {machine['cpu']}, load {machine['load_average_before']:.1f} before"
    head = f"{where}; 100 clients, complete graph, 10 dropouts, 267,274 entries in a 32-bit ring.\n\n"
    return head + "\n".join(["| | measured | goal |", "|---|---|---|", *lines]) + "\n"


def _memory(processes: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    rows: list[tuple[str, str, str | None]] = []
    for protection, by_count in processes.items():
        for party in next(iter(by_count.values())):
            peaks = [by_count[count][party]["serving"] for count in by_count]
            shown = " / ".join(f"{peak:.0f}" for peak in peaks)
            title = f"{party}, {protection}: peak while serving {' / '.join(by_count)} clients"
            rows.append((title, f"{shown} MiB, × {peaks[-1] / peaks[0]:.2f}", f"× {GOAL_GROWTH}"))
    return rows


def costs(found: dict[str, Any]) -> str:
    """The protections side by side."""
    by_protection = found["protections"]

    def row(title: str, cell: Callable[[dict[str, Any]], str], unit: str) -> str:
        cells = (f"{' / '.join(map(cell, each))} {unit}" for each in by_protection.values())
        return f"| {title} | {' | '.join(each if each.strip(f' /{unit}') else '' for each in cells)} |"

    def sent(place: int) -> Callable[[dict[str, Any]], str]:
        def cell(cost: dict[str, Any]) -> str:
            parts = list(cost["sent"].values())[place : place + 1]
            return "".join(_SIZE(part["vector"] + part["messages"]) for part in parts)

        return cell

    lengths = " / ".join(_SIZE(each["length"]) for each in by_protection["masked"])
    ckks = " / ".join(_SECONDS(each["client_cpu"]) for each in found["ckks_yardstick"])
    per_value = found["ckks_yardstick"][0]["bytes"] / found["ckks_yardstick"][0]["length"]
    return "\n".join(
        [
            f"| {lengths} integers | {' | '.join(by_protection)} |",
            "|---|---|---|---|",
            row("client, CPU", lambda cost: _SECONDS(cost["client_cpu"]), "s"),
            row("a client sends to the server or first aggregator", sent(0), "bytes"),
            row("and to every other aggregator", sent(1), "bytes"),
            row("everybody else, CPU, all together", lambda cost: f"{cost['others_cpu']:.1f}", "s"),
            "",
            f"CKKS as usually configured, as a yardstick: {ckks} s, {per_value:.0f} bytes per value, an inexact sum.\n",
        ]
    )


if __name__ == "__main__":
    main()
