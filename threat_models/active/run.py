"""All probes, one after another, and the controls that say whether the harness itself works."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

from secagg.protection import PROTECTIONS
from threat_models.active.masked import MASKED, REPLAYS
from threat_models.active.openers import OPENERS
from threat_models.active.plans import PLANS
from threat_models.active.probe import ProbeResult, careless_control, honest_control, make_finding, run_probe
from threat_models.attacks.attack import Progress
from threat_models.findings import Control, Finding

PROBES = (*MASKED, *REPLAYS, *PLANS, *OPENERS)
HONEST = tuple(name for name, each in PROTECTIONS.items() if each.hides_vectors)


def run_probes(progress: Progress = lambda done, total: None) -> tuple[ProbeResult, ...]:
    """Cheat real clients, aggregators and key holders in every way that is known here, each in a consortium of its own.

    Everything runs in this process, over mutual TLS on 127.0.0.1, in temporary folders; about half a minute.
    """

    async def run() -> tuple[ProbeResult, ...]:
        results = []
        for done, probe in enumerate(PROBES):
            progress(done, len(PROBES))
            with tempfile.TemporaryDirectory(prefix="secagg-probe-") as folder:
                results.append(await run_probe(probe, Path(folder)))
        progress(len(PROBES), len(PROBES))
        return tuple(results)

    with _quiet():
        return asyncio.run(run())


def run_controls() -> tuple[Control, ...]:
    """The same harness with honest servers, which nobody may refuse, and with clients that refuse nothing."""

    async def run() -> tuple[Control, ...]:
        controls = []
        for protection in HONEST:
            with tempfile.TemporaryDirectory(prefix="secagg-control-") as folder:
                controls.append(await honest_control(protection, Path(folder)))
        with tempfile.TemporaryDirectory(prefix="secagg-control-") as folder:
            controls.append(await careless_control(Path(folder)))
        return tuple(controls)

    with _quiet():
        return asyncio.run(run())


def malicious_server(progress: Progress = lambda done, total: None) -> Finding:
    """Probes and controls as the finding that the audit's report shows; `adversary` is left empty."""
    return make_finding(run_probes(progress), run_controls())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Refusals are results here, not lines in a log."""
    logs = [logging.getLogger(name) for name in ("secagg.server", "secagg.link", "secagg.aggregator")]
    were_disabled = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    try:
        yield
    finally:
        for log, was_disabled in zip(logs, were_disabled, strict=True):
            log.disabled = was_disabled
