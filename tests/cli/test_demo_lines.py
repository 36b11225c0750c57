"""What a demo shows of its processes: each step once, whoever says it."""

from types import SimpleNamespace
from typing import Any

from secagg.cli.demo import _Play


def test_what_every_party_says_is_shown_once() -> None:
    """The same line of another member is not repeated, in whatever place its name stands; any other line is shown."""
    members = tuple(f"clinic-{number}" for number in range(1, 13))
    stage: Any = SimpleNamespace(members=members, helpers=("aggregator-1",))
    play = _Play(stage, speaker=None)  # type: ignore[arg-type]  # nothing is said here
    said = [line for name in members for line in (f"Opening from {name}", "waiting for Quorum", f"wrote {name}/a.json")]
    assert [line for line in said if play._is_new(line)] == said[:3]
    assert play._is_new("clinic-12 failed")
    assert play._is_new("round 2 of 17")
