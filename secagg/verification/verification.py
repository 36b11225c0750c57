"""Offline verification of transcripts, by replaying each through the protocol that wrote it.

Every frame is signed, every step follows from the ones before it, and the vectors in `uploads/` are those that their
senders signed; where all of these were purged, nothing is computed again. What a server's transcript then proves of the
published sum is a fact of the protection; another party's proves what it was told and what it gave. Whether the keys
are the members' own no transcript can tell, nor whether a round was opened as it says: for the first a verifier brings
plan and roster, for the second the transcripts of the rounds before.

A transcript holds copies of both, and its author may lay more of them beside it: these vouch for nothing. So a party
notes every plan that it runs in its state folder, outside the folders of the sessions, with the number that the file
system gave to the state folder. A copy of that folder has another number, and so has one that somebody else made in
this file system: its notes count for nothing. A whole file system that somebody else made (a mounted image or volume)
has the numbers that its author chose: bring plan and roster to what lies on one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from secagg.agreement.plan import Plan, read_plan
from secagg.agreement.roster import SERVER_INDEX, read_roster
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation, SecaggError, TranscriptInvalid
from secagg.protection.messages import Outcome, Return
from secagg.session.outcome import Caveat, require
from secagg.session.round_setup import RoundSetup
from secagg.session.rounds import follow_return
from secagg.session.transcripts import Openings, setup_of
from secagg.system.files import write_synced
from secagg.transcript import Record, peek, read_transcript
from secagg.verification.party_verification import MemberVerifier, ServerVerifier

NOTE_FORMAT = "secagg-plan-note/1"


def note_plan(state: Path, plan: Plan) -> None:
    """Write a note in a party's state folder that the party runs this plan. Raises BadInput when the disk refuses."""
    file = _note_file(state, plan)
    try:
        if not _is_noted(state, plan):
            write_synced(file, _note(state, plan))
    except OSError as error:
        raise BadInput(f"cannot write {file} ({error.strerror})", remedy="free the disk") from None


@dataclass(frozen=True)
class Trust:
    """SHA-256 digests of the plans and rosters that the verifier trusts.

    Without plans, the notes in state folders count (`note_plan`).
    """

    plans: tuple[bytes, ...] = ()
    rosters: tuple[bytes, ...] = ()

    @classmethod
    def in_files(cls, plans: Iterable[Path], rosters: Iterable[Path]) -> Trust:
        """Return the Trust in these plan and roster files. Raises BadInput for a file that cannot be read."""
        return cls(tuple(read_plan(path).digest for path in plans), tuple(read_roster(path).digest for path in rosters))

    def contradiction(self, setup: RoundSetup) -> str:
        """Describe which of plan and roster differs from the trusted ones, with digests; empty if neither does."""
        held = (("plan", setup.plan.digest, self.plans), ("roster", setup.roster.digest, self.rosters))
        for what, found, brought in held:
            if brought and found not in brought:
                others = ", ".join(digest.hex() for digest in brought)
                return f"its {what} is {found.hex()}, not the one that the verifier brings ({others})"
        return ""

    def vouches_for_plan(self, setup: RoundSetup, transcript: Path) -> str:
        """Return a phrase that names the source of trust in the plan, and so in its roster; empty without one."""
        if setup.plan.digest in self.plans:
            return "the plan that the verifier brings"
        state = transcript.resolve().parent.parent
        return f"the notes of {state}" if not self.plans and _is_noted(state, setup.plan) else ""


def _note_file(state: Path, plan: Plan) -> Path:
    return state / f"plan-{plan.digest.hex()[:16]}.json"


def _note(state: Path, plan: Plan) -> bytes:
    digests = {"plan_sha256": plan.digest.hex(), "roster_sha256": plan.roster.hex()}
    content = {"format": NOTE_FORMAT, **digests, "folder": state.stat().st_ino}
    return json.dumps(content, indent=2).encode() + b"\n"


def _is_noted(state: Path, plan: Plan) -> bool:
    try:
        return _note_file(state, plan).read_bytes() == _note(state, plan)
    except OSError:
        return False


_BRING_PLAN = "bring the agreed plan (--plan)"
NOBODYS_KEYS = Caveat("signed by keys that nobody vouched for", "if these keys are the members' own", _BRING_PLAN)
NOBODYS_PLAN = Caveat(
    "made under a plan that nobody vouched for", "if this plan is the one that was agreed on", _BRING_PLAN
)
UNKNOWN = Caveat(
    "what its sum leads to needs the broadcasts of all rounds before",
    "if its sum leads to what it says",
    "give the transcripts of all rounds",
)
NOTHING_BROUGHT = Trust()


@dataclass(frozen=True)
class Verified:
    """A transcript that was verified as consistent, with its session and its findings.

    `author` is the index of the party that wrote it, None for a client that has sent nothing; `signers` are those whose
    signatures it holds. `vouched_by` is empty where nobody vouches for the plan; `doubts` are what it leaves open.
    """

    path: Path
    setup: RoundSetup
    records: Sequence[Record]
    author: int | None
    role: str
    outcome: Outcome | None
    signers: frozenset[int]
    vouched_by: str
    doubts: tuple[Caveat, ...]
    sentence: str
    told: dict[str, Any]

    @property
    def number(self) -> int:
        """The round's number in the plan, from 1; 0 for the draw of the cohorts."""
        return self.setup.number

    @property
    def verdict(self) -> str:
        """The verdict as text: the transcript verifies, or is consistent but has caveats, which are named."""
        words = "; ".join(doubt.words for doubt in self.doubts)
        return f"consistent, but {words}" if words else "verifies"

    @property
    def proves(self) -> str:
        """Sentence that says what the transcript proves, and under which conditions."""
        conditions = ", and ".join(doubt.condition for doubt in self.doubts)
        return f"{conditions}: {self.sentence}" if conditions else self.sentence

    @property
    def signed_by(self) -> dict[str, str]:
        """The identity keys (hex) of all parties whose signatures the transcript holds, by name in roster order."""
        roster = self.setup.roster
        return {roster.name(index): roster.identity(index).hex() for index in sorted(self.signers)}

    @property
    def findings(self) -> dict[str, Any]:
        """The verdict and all other findings as JSON values by name."""
        setup = self.setup
        return {
            "verdict": self.verdict,
            "role": self.role,
            "records": len(self.records),
            "chain_head": self.records[-1].head.hex(),
            **({"round": _place_in_plan(setup)} if setup.rounds > 1 else {}),
            "plan_sha256": setup.plan.digest.hex(),
            "roster_sha256": setup.roster.digest.hex(),
            "vouched_by": self.vouched_by or None,
            **self.told,
            "proves": self.proves,
            "signers": self.signed_by,
        }


def verified(path: Path, trust: Trust, openings: Openings) -> Verified:
    """Verify one transcript: replay it, compare it with what the verifier trusts, and return its findings.

    Transcripts of other rounds are not compared here (`TranscriptSeries.link`).
    `openings` may tell how the rounds before it were opened. Raises TranscriptInvalid naming the first record at fault,
    BadInput when the file cannot be read.
    """
    records = read_transcript(path)
    setup, following = setup_of(records, partial(openings.follow, path.resolve().parent.parent))
    if problem := trust.contradiction(setup):
        raise TranscriptInvalid(place_of_plan(records), problem)
    verifier = _verifier(setup, records, path.parent)
    if setup.rejoin is not None:
        _check_return(setup, setup.rejoin, verifier, place_of_opening(setup, records))
    known: set[tuple[str, bytes]] = set()
    for record in following:
        require((record.kind, record.content) not in known, record, "it stands there already: no party writes it twice")
        known.add((record.kind, record.content))
        try:
            verifier.check(record)
        except TranscriptInvalid:
            raise
        except SecaggError as error:
            raise TranscriptInvalid(record.index, str(setup.roster.name_culprit(error))) from None
    told = verifier.conclusion(len(records))
    vouched_by = trust.vouches_for_plan(setup, path)
    doubts = (*verifier.doubts, *((UNKNOWN,) if setup.known_round is None and not setup.is_end else ()))
    if not vouched_by:
        doubts = (NOBODYS_PLAN if setup.roster.digest in trust.rosters else NOBODYS_KEYS, *doubts)
    author, role, outcome, signers = verifier.author, verifier.role, verifier.outcome, frozenset(verifier.signers)
    return Verified(path, setup, records, author, role, outcome, signers, vouched_by, doubts, verifier.proves, told)


def _check_return(setup: RoundSetup, shown: Return, verifier: ServerVerifier | MemberVerifier, place: int) -> None:
    if verifier.role != "client":
        raise TranscriptInvalid(place, f"a {verifier.role} does not return")
    try:
        first = RoundSetup.of(setup.plan, setup.roster)
        follow_return(first if setup.draw is None else first.with_draw(setup.draw), shown, verifier.author, 1)
    except (MalformedMessage, ProtocolViolation) as error:
        raise TranscriptInvalid(place, str(setup.roster.name_culprit(error))) from None


def _place_in_plan(setup: RoundSetup) -> str:
    if setup.is_draw:
        return f"the draw, before the first of {setup.rounds}"
    return f"after the last of {setup.rounds}" if setup.is_end else f"{setup.number} of {setup.rounds}"


def place_of_plan(records: Sequence[Record]) -> int:
    """Return the index of the transcript's record that holds the plan."""
    return int(records[0].kind == "salt")


def place_of_opening(setup: RoundSetup, records: Sequence[Record]) -> int:
    """Return the index of the record that opens a later round, after plan, roster and the draw, if any."""
    return place_of_plan(records) + 2 + (setup.draw is not None)


def _verifier(setup: RoundSetup, records: Sequence[Record], folder: Path) -> ServerVerifier | MemberVerifier:
    """Return the verifier for the transcript's author, which is the sender of its first sent frame.

    Of transcripts without sent frames a client's begins with a salt, and only a server has received members' frames.
    Raises TranscriptInvalid for the transcript of nobody who takes part.
    """
    frames = [record for record in records if record.kind in ("received", "sent")]
    first = next((record for record in frames if record.kind == "sent"), frames[0] if frames else None)
    if first is None:
        return MemberVerifier(setup, None, folder) if place_of_plan(records) else ServerVerifier(setup, folder)
    try:
        sender = peek(first.content).sender
    except MalformedMessage as error:
        raise TranscriptInvalid(first.index, str(error)) from None
    if first.kind == "received":
        return MemberVerifier(setup, None, folder) if sender == SERVER_INDEX else ServerVerifier(setup, folder)
    if sender == SERVER_INDEX:
        return ServerVerifier(setup, folder)
    require(sender in {*setup.context.identities, *setup.context.helpers}, first, "its author has no part in the plan")
    return MemberVerifier(setup, sender, folder)
