"""The score of the audit: every planted fault is flagged by the harness that can see it, and never passed elsewhere.

`pytest -s` prints the table.
"""

import inspect
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutations.faults import FAULTS, Fault
from tests.mutations.harnesses import FLAGGED, INVALID, PASSED, UNCLEAR, Harness

pytestmark = pytest.mark.usefixtures("repeatable_chance")
UNSEEN = [fault for fault in FAULTS if not fault.seen_by.__name__.startswith("transcripts")]
FIRST = {fault.area: fault for fault in reversed(UNSEEN)}
HARNESSES = {fault.seen_by.__name__: fault.seen_by for fault in FAULTS}
IDLE = [name for name in HARNESSES if not name.startswith("probe")]
"""Whose silence is tested here; that of the probes is in tests/threat_models/active."""


@pytest.fixture(autouse=True)
def no_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the wait for the disk: no machine crashes here."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def score() -> Iterator[dict[str, int]]:
    """Fault by fault, the code of the harness that must see it; printed as a table at the end."""
    codes: dict[str, int] = {}
    yield codes
    caught = sum(code in (FLAGGED, INVALID) for code in codes.values())
    print(f"\n{caught} of {len(codes)} planted faults are flagged\n{'fault':52s}{'harness':40s}code")
    for fault in FAULTS:
        if fault.name in codes:
            print(f"{fault.area + ': ' + fault.name:52s}{fault.seen_by.__name__:40s}{codes[fault.name]}")


async def code_of(harness: Harness, folder: Path) -> int:
    """What a harness says."""
    code = harness(folder)
    return int(await code if inspect.isawaitable(code) else code)


def named(fault: Fault) -> str:
    """The fault's name, for the tests' names."""
    return fault.name


@pytest.mark.parametrize("fault", FAULTS, ids=named)
async def test_fault_is_flagged(
    fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, score: dict[str, int]
) -> None:
    """The harness that can see the fault flags it, or finds the transcript invalid."""
    fault.plant(monkeypatch)
    score[fault.name] = await code_of(fault.seen_by, tmp_path)
    assert score[fault.name] == fault.code
    assert fault.code in (FLAGGED, INVALID)


@pytest.mark.parametrize("name", IDLE)
async def test_harness_passes_the_code_as_it_is(name: str, tmp_path: Path) -> None:
    """Without a fault every harness passes (re-releases and uploads: false alarms below 10⁻⁵ in all)."""
    assert await code_of(HARNESSES[name], tmp_path) == PASSED


@pytest.mark.parametrize(
    "fault",
    [pytest.param(each, marks=() if each is FIRST[each.area] else pytest.mark.long) for each in UNSEEN],
    ids=named,
)
async def test_transcripts_alone_never_pass_it(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that transcripts cannot show leaves them inconclusive, with no word of a pass."""
    fault.plant(monkeypatch)
    assert await code_of(fault.transcript, tmp_path) == UNCLEAR


def test_score_covers_every_area() -> None:
    """At least fifteen faults, of all four areas, each with a name of its own."""
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 15
    assert {fault.area for fault in FAULTS} == {"privacy", "masking", "transport", "policy"}
