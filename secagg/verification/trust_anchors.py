"""Trust anchors: plans and rosters that a verifier brings as files, or that its own state folder notes.

A transcript holds copies of both, and its author may lay more of them beside it: these vouch for nothing. So a party
notes every plan that it runs in its state folder, outside the folders of the sessions, with the number that the file
system gave to the state folder. A copy of that folder has another number, and so has one that somebody else made in
this file system: its notes count for nothing. A whole file system that somebody else made (a mounted image or volume)
has the numbers that its author chose: bring plan and roster to what lies on one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from secagg.agreement.plan import Plan, read_plan
from secagg.agreement.roster import read_roster
from secagg.errors import BadInput
from secagg.session.round_setup import RoundSetup
from secagg.system.files import write_synced


def note_plan(state: Path, plan: Plan) -> None:
    """Note in a party's state folder that it runs a plan. Raises BadInput when the disk refuses."""
    file = _note_file(state, plan)
    try:
        if not _is_noted(state, plan):
            write_synced(file, _note(state, plan))
    except OSError as error:
        raise BadInput(f"cannot write {file} ({error.strerror})", remedy="free the disk") from None


@dataclass(frozen=True)
class Trust:
    """The SHA-256 of plans and rosters that the verifier brings. Without any plan, state folders' notes are asked."""

    plans: tuple[bytes, ...] = ()
    rosters: tuple[bytes, ...] = ()

    @classmethod
    def in_files(cls, plans: Iterable[Path], rosters: Iterable[Path]) -> Trust:
        """Trust plan and roster files. Raises BadInput for one that cannot be read."""
        return cls(tuple(read_plan(path).digest for path in plans), tuple(read_roster(path).digest for path in rosters))

    def contradiction(self, setup: RoundSetup) -> str:
        """Why a session is none of those that the verifier brings, with both digests; empty where it may be."""
        held = (("plan", setup.plan.digest, self.plans), ("roster", setup.roster.digest, self.rosters))
        for what, found, brought in held:
            if brought and found not in brought:
                others = ", ".join(digest.hex() for digest in brought)
                return f"its {what} is {found.hex()}, not the one that the verifier brings ({others})"
        return ""

    def vouches_for_plan(self, setup: RoundSetup, transcript: Path) -> str:
        """Name of what vouches for the plan, and so for the roster that it names; empty where nothing does."""
        if setup.plan.digest in self.plans:
            return "the plan that the verifier brings"
        state = transcript.resolve().parent.parent
        return f"the notes of {state}" if not self.plans and _is_noted(state, setup.plan) else ""

    def vouches_for_keys(self, setup: RoundSetup) -> bool:
        """Whether the verifier brings the roster, whatever the plan."""
        return setup.roster.digest in self.rosters


def _note_file(state: Path, plan: Plan) -> Path:
    return state / f"plan-{plan.digest.hex()[:16]}.json"


def _note(state: Path, plan: Plan) -> bytes:
    content = {"plan_sha256": plan.digest.hex(), "roster_sha256": plan.roster.hex(), "folder": state.stat().st_ino}
    return json.dumps(content, indent=2).encode() + b"\n"


def _is_noted(state: Path, plan: Plan) -> bool:
    try:
        return _note_file(state, plan).read_bytes() == _note(state, plan)
    except OSError:
        return False
