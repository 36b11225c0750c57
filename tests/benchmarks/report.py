"""The table that is printed and the JSON that is written."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cryptography.hazmat.backends.openssl.backend import backend

from tests.benchmarks.memory import Peak
from tests.benchmarks.scenario import CLIENTS, LENGTH, RING
from tests.benchmarks.session import VECTOR, SessionCosts
from tests.benchmarks.streams import UNMASK_STREAMS, StreamTimes

GOAL_RATIO = 1.5
GOAL_CLIENT_CPU = 0.075
GOAL_OPENING = 0.6
GOAL_UPLOAD = 1.02
GOAL_GROWTH = 1.1
PACKED_BYTES = LENGTH * RING.entry_bytes
_LIBRARIES = ("numpy", "cryptography", "grpcio", "protobuf", "scipy", "torch")


@dataclass(frozen=True)
class Row:
    """One line of the table; details have no goal."""

    name: str
    measured: str
    goal: str = ""
    verdict: str = ""


@dataclass(frozen=True)
class Measurements:
    """Everything that was measured. `load` is what else the machine had to do: its load average at the start."""

    streams: StreamTimes
    sessions: Sequence[SessionCosts]
    peaks: dict[int, Peak] | None
    load: float
    seconds: float

    @property
    def client(self) -> SessionCosts:
        """The session in which the clients took the least CPU."""
        return min(self.sessions, key=lambda each: each.cpu)

    @property
    def server(self) -> SessionCosts:
        """The session that was opened fastest."""
        return min(self.sessions, key=lambda each: each.opening)

    @property
    def small_messages(self) -> dict[str, float]:
        """Bytes of everything that a client sends but the vector."""
        return {name: count for name, count in self.client.client_bytes.items() if name != VECTOR}

    @property
    def upload_ratio(self) -> float:
        """The vector as it is sent ÷ packed."""
        return self.client.client_bytes[VECTOR] / PACKED_BYTES


def rows(found: Measurements) -> list[Row]:
    """The table's lines."""
    return [*_stream_rows(found.streams), *_session_rows(found), *_memory_rows(found.peaks)]


def _judged(name: str, value: float, goal: float, shown: Callable[[float], str]) -> Row:
    return Row(name, shown(value), f"≤ {shown(goal)}", "met" if value <= goal else "MISSED")


def _stream_rows(streams: StreamTimes) -> list[Row]:
    return [
        _judged("mask_ratio_to_floor", streams.mask_ratio, GOAL_RATIO, "{:.2f}".format),
        Row(f"  {CLIENTS} streams", f"{streams.mask * 1e3:.1f} ms"),
        _judged("unmask_ratio_to_floor", streams.unmask_ratio, GOAL_RATIO, "{:.2f}".format),
        Row(f"  {UNMASK_STREAMS} streams", f"{streams.unmask * 1e3:.0f} ms"),
        Row("  floor of one stream: AES-256-CTR", f"{streams.keystream * 1e3:.3f} ms"),
        Row("  floor of one stream: addition", f"{streams.addition * 1e3:.3f} ms"),
    ]


def _session_rows(found: Measurements) -> list[Row]:
    client, server = found.client, found.server
    small = found.small_messages
    return [
        _judged("client_cpu_s", client.cpu, GOAL_CLIENT_CPU, "{:.4f}".format),
        *(Row(f"  up to its {name}", f"{value:.4f}") for name, value in client.client_cpu.items()),
        _judged("server_open_s", server.opening, GOAL_OPENING, "{:.3f}".format),
        Row("  share checks (CPU)", f"{server.share_checks:.3f}"),
        Row("  recovery, sum, unmasking", f"{server.after_last_opening:.3f}"),
        Row("  not counted: disk, as openings arrive", f"{server.transcript_wait:.3f}"),
        Row("upload_bytes", f"{sum(client.client_bytes.values()):,.0f}"),
        Row("packed_bytes", f"{PACKED_BYTES:,}"),
        _judged("  vector as sent ÷ packed", found.upload_ratio, GOAL_UPLOAD, "{:.5f}".format),
        Row("  small messages", f"{sum(small.values()):,.0f}"),
        *(Row(f"    {name}", f"{count:,.0f}") for name, count in small.items()),
    ]


def _memory_rows(peaks: dict[int, Peak] | None) -> list[Row]:
    if not peaks:
        return [Row("peak_rss_mib", "not measured")]
    first, last = peaks[min(peaks)], peaks[max(peaks)]
    whole = [Row(f"peak_rss_mib, {count} clients", f"{peak.whole:.0f}") for count, peak in peaks.items()]
    serving = [
        Row(f"  while serving, {count} clients", f"{peak.serving:.0f} ({peak.serving - peak.start:+.0f} since start)")
        for count, peak in peaks.items()
    ]
    growth = _judged("  growth while serving", last.serving / first.serving, GOAL_GROWTH, "{:.2f}".format)
    return [*whole, *serving, growth]


def table(lines: Sequence[Row]) -> str:
    """The lines under a heading, in columns."""
    cells = [
        ("name", "measured", "goal", "verdict"),
        *((row.name, row.measured, row.goal, row.verdict) for row in lines),
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    return "\n".join(
        f"{name:<{widths[0]}}  {measured:>{widths[1]}}  {goal:>{widths[2]}}  {verdict}".rstrip()
        for name, measured, goal, verdict in cells
    )


def as_json(found: Measurements) -> str:
    """All figures, in seconds, bytes and MiB."""
    client, server, streams, peaks = found.client, found.server, found.streams, found.peaks or {}
    content: dict[str, Any] = {
        "mask_ratio_to_floor": streams.mask_ratio,
        "unmask_ratio_to_floor": streams.unmask_ratio,
        "mask_s": streams.mask,
        "unmask_s": streams.unmask,
        "floor_keystream_s": streams.keystream,
        "floor_addition_s": streams.addition,
        "client_cpu_s": client.cpu,
        "client_cpu_by_step_s": client.client_cpu,
        "client_cpu_all_runs_s": [each.cpu for each in found.sessions],
        "server_open_s": server.opening,
        "server_open_share_checks_s": server.share_checks,
        "server_open_after_last_opening_s": server.after_last_opening,
        "server_open_all_runs_s": [each.opening for each in found.sessions],
        "server_transcript_wait_s": [each.transcript_wait for each in found.sessions],
        "upload_bytes": round(sum(client.client_bytes.values())),
        "packed_bytes": PACKED_BYTES,
        "upload_vector_ratio": found.upload_ratio,
        "upload_small_messages_bytes": found.small_messages,
        "peak_rss_mib": {str(count): round(peak.whole, 1) for count, peak in peaks.items()},
        "peak_rss_serving_mib": {str(count): round(peak.serving, 1) for count, peak in peaks.items()},
        "rss_at_start_mib": {str(count): round(peak.start, 1) for count, peak in peaks.items()},
        "machine": machine() | {"load_average_before": found.load},
        "bench_s": found.seconds,
    }
    return json.dumps(content, indent=2) + "\n"


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cpu": _processor(),
        "cpu_count": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "openssl": backend.openssl_version_text(),
        **{name: version(name) for name in _LIBRARIES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
