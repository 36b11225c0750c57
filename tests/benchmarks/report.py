"""The table that is printed and the JSON that is written."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cryptography.hazmat.backends.openssl.backend import backend

from tests.benchmarks.comparison import GOAL_GROWTH, Comparison
from tests.benchmarks.processes import Usages
from tests.benchmarks.scenario import CLIENTS, LENGTH, RING
from tests.benchmarks.session import VECTOR, SessionCosts
from tests.benchmarks.streams import UNMASK_STREAMS, StreamTimes
from tests.benchmarks.table import Row, judged

GOAL_RATIO = 1.5
GOAL_CLIENT_CPU = 0.075
GOAL_OPENING = 0.6
GOAL_UPLOAD = 1.02
PACKED_BYTES = LENGTH * RING.entry_bytes
_LIBRARIES = ("numpy", "cryptography", "grpcio", "protobuf", "scipy", "torch", "tenseal")


@dataclass(frozen=True)
class Measurements:
    """Everything that was measured. `load` is what else the machine had to do: its load average at the start."""

    streams: StreamTimes
    sessions: Sequence[SessionCosts]
    comparison: Comparison
    load: float
    seconds: float

    @property
    def client(self) -> SessionCosts:
        """The session in which the clients took the least CPU."""
        return min(self.sessions, key=lambda each: each.cpu)

    @property
    def server(self) -> SessionCosts:
        """The session that was opened with the least CPU."""
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
    return [
        *_stream_rows(found.streams),
        *_session_rows(found),
        *_memory_rows(found.comparison.usages),
        *found.comparison.rows(),
    ]


def _stream_rows(streams: StreamTimes) -> list[Row]:
    return [
        judged("mask_ratio_to_floor", streams.mask_ratio, GOAL_RATIO, "{:.2f}".format),
        Row(f"  {CLIENTS} streams", f"{streams.mask * 1e3:.1f} ms"),
        judged("unmask_ratio_to_floor", streams.unmask_ratio, GOAL_RATIO, "{:.2f}".format),
        Row(f"  {UNMASK_STREAMS} streams", f"{streams.unmask * 1e3:.0f} ms"),
        Row("  floor of one stream: AES-256-CTR", f"{streams.keystream * 1e3:.3f} ms"),
        Row("  floor of one stream: addition", f"{streams.addition * 1e3:.3f} ms"),
    ]


def _session_rows(found: Measurements) -> list[Row]:
    client, server = found.client, found.server
    small = found.small_messages
    return [
        judged("client_cpu_s", client.cpu, GOAL_CLIENT_CPU, "{:.4f}".format),
        *(Row(f"  up to its {name}", f"{value:.4f}") for name, value in client.client_cpu.items()),
        judged("server_open_s", server.opening, GOAL_OPENING, "{:.3f}".format),
        Row("  taking the openings: signatures, shares, transcript", f"{server.share_checks:.3f}"),
        Row("  recovery, sum, unmasking", f"{server.after_last_opening:.3f}"),
        Row("  not counted: disk, as openings arrive", f"{server.transcript_wait:.3f}"),
        Row("upload_bytes", f"{sum(client.client_bytes.values()):,.0f}"),
        Row("packed_bytes", f"{PACKED_BYTES:,}"),
        judged("  vector as sent ÷ packed", found.upload_ratio, GOAL_UPLOAD, "{:.5f}".format),
        Row("  small messages", f"{sum(small.values()):,.0f}"),
        *(Row(f"    {name}", f"{count:,.0f}") for name, count in small.items()),
    ]


def _memory_rows(usages: Usages | None) -> list[Row]:
    """The masked server's whole life, with the head that it exports through torch."""
    if not usages:
        return [Row("server's peak_rss_mib", "not measured")]
    peaks = {count: used["server"].whole for count, used in usages["masked"].items()}
    growth = peaks[max(peaks)] / peaks[min(peaks)]
    return [
        *(Row(f"server's peak_rss_mib, {count} clients", f"{peak:.0f}") for count, peak in peaks.items()),
        judged("  growth", growth, GOAL_GROWTH, "{:.2f}".format),
    ]


def as_json(found: Measurements) -> str:
    """All figures, in seconds, bytes and MiB."""
    client, server, streams = found.client, found.server, found.streams
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
        "session_balance_s": [asdict(each.balance) for each in found.sessions],
        "server_transcript_wait_s": [each.transcript_wait for each in found.sessions],
        "upload_bytes": round(sum(client.client_bytes.values())),
        "packed_bytes": PACKED_BYTES,
        "upload_vector_ratio": found.upload_ratio,
        "upload_small_messages_bytes": found.small_messages,
        **found.comparison.as_json(),
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
