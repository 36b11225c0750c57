"""Sessions whose parties are killed and stopped at random: no wrong sum, no hang, and no member lost that came back.

`SECAGG_OUTAGE_SESSIONS` says how many sessions there are (24 by default, some five minutes).
"""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.federation.outages import run_session

SESSIONS = int(os.environ.get("SECAGG_OUTAGE_SESSIONS", "24"))
PROTECTIONS = ("masked", "shared", "encrypted")


@pytest.mark.long
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_nobody_is_lost(tmp_path: Path, capfd: pytest.CaptureFixture[str], protection: str) -> None:
    """Whoever is away for less than a step's time is in the sum, which is exact; everything ends, and verifies."""
    endings: Counter[str] = Counter()
    kills = stops = 0
    longest, faults = 0.0, []
    for number in range(-(-SESSIONS // len(PROTECTIONS))):
        generator = np.random.default_rng([PROTECTIONS.index(protection), number])
        report = run_session(tmp_path / str(number), protection, generator)
        endings[report.ending] += 1
        kills, stops, longest = kills + report.kills, stops + report.stops, max(longest, report.seconds)
        if report.faults:
            faults.append(f"session {number}: {report.faults[0]}\n" + "\n".join(report.faults[1:]))
    with capfd.disabled():
        print(f"\n{protection}: {dict(endings)}, {kills} kills, {stops} stops, longest {longest:.0f} s")
    assert not faults, "\n\n".join(faults)
