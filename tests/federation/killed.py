"""A plan of several rounds whose parties are real processes, one of which is killed by SIGKILL and started again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from secagg.protection.messages import RoundOpening, UploadHeader
from secagg.transcript import FILE_NAME, peek, read_transcript
from secagg.verification.transcript_series import verify_transcript
from secagg.wire import decode
from tests.worlds.processes import Processes
from tests.worlds.rosters import SERVER


def run_killing(
    federation: Processes,
    mortal: str,
    session: int = 2,
    step: str = UploadHeader.__name__,
    start: Callable[[Processes, str], None] = Processes.start,
) -> None:
    """Run all parties to their end; one dies when its session of that number has a frame of the step, and returns."""
    for name in (SERVER, *federation.names):
        start(federation, name)

    def is_due() -> bool:
        order = sessions(federation, mortal)
        return len(order) >= session and _has(order[session - 1], step)

    federation.until(is_due, f"session {session} of {mortal} has {step}")
    federation.kill(mortal)
    start(federation, mortal)
    federation.finish()


def sessions(federation: Processes, name: str) -> list[Path]:
    """A party's session folders so far, in the order of their rounds."""
    folders = [path.parent for path in (federation.folder / name / "state").glob(f"*/{FILE_NAME}")]
    return sorted(sorted(folders, key=lambda path: path.stat().st_ctime_ns), key=_round_of)


def verified_result(federation: Processes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The server's result, and what its transcripts say: they verify, lead to its head, and name all members."""
    result = json.loads(next((federation.folder / SERVER / "state").glob("*/result.json")).read_text())
    found = [verify_transcript(Path(path)) for path in result["transcripts"]]
    assert found[-1]["head_sha256"] == result["head_sha256"]
    assert all(sorted(each["countersigned_by"]) == list(federation.names) for each in found)
    return result, found


def _round_of(folder: Path) -> int:
    """Which round a session's transcript is of, as far as it is written."""
    openings = [record.content for record in read_transcript(folder / FILE_NAME) if record.kind == "round"]
    return decode(RoundOpening, openings[0]).number if openings else 1


def _has(folder: Path, step: str) -> bool:
    """Whether a session's transcript holds a frame of this step."""
    frames = (record.content for record in read_transcript(folder / FILE_NAME) if record.kind in ("sent", "received"))
    return any(peek(frame).step == step for frame in frames)
