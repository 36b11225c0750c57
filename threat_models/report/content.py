"""The content of a report, before it is written in any format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from secagg.errors import BadInput, ExitCode
from threat_models.adversary import Adversary
from threat_models.findings import Curve, Finding, Verdict
from threat_models.multiplicity import Comparisons
from threat_models.session import Provenance

CONTROL = "no_protection"
"""The adversary that shows what attacks find where nothing protects: it is expected to succeed."""
SEEN = {
    "messages": "who sends messages to whom, their order and sizes",
    "uploads": "the protected uploads",
    "release": "the opened sum",
    "head": "the head",
    "contributions": "clients' vectors in clear",
}
"""What fields of a session are, for people."""
SESSION_RULES = {
    "transcript": "Plan, roster and rounds of the transcripts are vouched for",
    "protection": "How uploads are protected",
    "records": "Enough records for a sum without noise",
    "promise": "The promised epsilon holds",
    "inputs": "Known and public records are what they are called",
    "audit": "The audit ran",
}
"""Rules about the sum itself, beside those of the attacks."""
UPDATES_TELL = "records off a first layer, and members by losses and gradients"
"""What attacks read of the sums of updates."""
PROTOTYPES_TELL = "members, by the public start's projection"
"""What attacks read of the sums of projections."""
DISCLAIMER = "A lower bound above the claim disproves it. A lower bound below proves nothing."

HEADLINE_WORDS = {
    Verdict.SUCCEEDS: ("succeeds", "succeed"),
    Verdict.FAILS: ("fails", "fail"),
    Verdict.INCONCLUSIVE: ("is inconclusive", "are inconclusive"),
    Verdict.NOT_APPLICABLE: ("has nothing to work on", "have nothing to work on"),
}
"""What one attack, and what several do, by verdict."""


@dataclass(frozen=True)
class AttackNote:
    """One attack for people: its name, what it is after, and who published it."""

    name: str
    title: str
    paper: str


@dataclass(frozen=True)
class Input:
    """What an auditor brought: its `role` ("known", "public", "canaries"), name, SHA-256 and number of records.

    `sha256` is "" of a bundled data set, which its name says.
    """

    role: str
    name: str
    sha256: str
    records: int


@dataclass(frozen=True)
class Subject:
    """What was examined: transcripts (file name, SHA-256), or the settings of a simulation.

    `provenance` is what verification said of each transcript. `records` is how many are in the sum, None where that is
    not known; `is_noisy`: as the sum says under its noise, where the true number is nobody's to know. `dimension` d is
    their length. `inputs` are what the auditor brought, `doubts` why these may not be what they are called. `unread`
    are blocks of the sum that no attack knows how to read, `half_read` those of which attacks read the part `tells`.
    """

    protection: str
    records: int | None
    dimension: int
    transcripts: tuple[tuple[str, str], ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    is_noisy: bool = False
    inputs: tuple[Input, ...] = ()
    doubts: tuple[str, ...] = ()
    provenance: tuple[Provenance, ...] = ()
    unread: tuple[str, ...] = ()
    half_read: tuple[str, ...] = ()
    tells: str = UPDATES_TELL


@dataclass(frozen=True)
class LowerBound:
    """ε ≥ `lower`, by `method` at its level ("Clopper-Pearson, 95 %").

    `sentence` says what was done and found, `power` what fault of the noise this would have caught, and how surely.
    `refuted`: the noise is not what the claim counts on.
    """

    lower: float
    method: str
    sentence: str
    power: str
    refuted: bool = False
    curve: Curve | None = None

    def disproves(self, claimed: float) -> bool:
        """Whether it contradicts a claim."""
        return self.refuted or self.lower > claimed


@dataclass(frozen=True)
class DrawnNoise:
    """What was seen of the noise that parties really drew: `flaws` in words, and what `power` the tests had.

    `places` are (name, mean square over the planned one, entries); `sentence` says what was tested, and at what rate of
    false alarms.
    """

    sentence: str
    power: str
    places: tuple[tuple[str, float, int], ...] = ()
    flaws: tuple[str, ...] = ()


@dataclass(frozen=True)
class Promise:
    """The plan's promise (ε infinite: none about a record), with ε as the auditor recomputes and as it measures it.

    `measured` is by re-releases, `one_run` by canaries in a single run, `drawn` the noise that was in the sums.
    """

    sentence: str
    claimed: float
    recomputed: float
    recomputed_by: str
    delta: float
    unit: str
    adjacency: str
    measured: LowerBound | None = None
    one_run: LowerBound | None = None
    drawn: DrawnNoise | None = None

    @property
    def agrees(self) -> bool:
        """Whether the noise gives what is claimed, up to rounding."""
        return self.recomputed <= self.claimed * (1 + 1e-6)

    @property
    def disproved(self) -> bool:
        """Whether what was measured contradicts the claim."""
        bounds = [bound for bound in (self.measured, self.one_run) if bound is not None]
        return any(bound.disproves(self.claimed) for bound in bounds) or bool(self.drawn and self.drawn.flaws)


@dataclass(frozen=True)
class Examination:
    """One adversary: what it saw, what it did not, and what every attack that applies to it found."""

    adversary: Adversary
    sees: tuple[str, ...]
    lacks: tuple[str, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Level:
    """The same attacks at another level of protection, for comparison; the gate does not judge them."""

    name: str
    findings: tuple[Finding, ...]


class Outcome(StrEnum):
    """What the gate says of one line, or of all."""

    PASS = "pass"  # noqa: S105 (no password)
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class GateLine:
    """One thing judged: an attack by an adversary ("" where it concerns the session), and why it came out so.

    `waiver` is the reason for which it was let pass.
    """

    attack: str
    adversary: str
    outcome: Outcome
    sentence: str
    waiver: str = ""


@dataclass(frozen=True)
class GateResult:
    """All lines of a gate; `gate_sha256` is its file's digest, `today` the date that waivers were held against."""

    lines: tuple[GateLine, ...]
    gate_sha256: str
    today: str

    @property
    def outcome(self) -> Outcome:
        """Fail if any line fails, else inconclusive if any is."""
        return worst(self.lines)

    @property
    def exit_code(self) -> ExitCode:
        """What `secagg audit` ends with."""
        ends = {Outcome.FAIL: ExitCode.GATE_FAILED, Outcome.INCONCLUSIVE: ExitCode.INCONCLUSIVE}
        return ends.get(self.outcome, ExitCode.DONE)


def worst(lines: tuple[GateLine, ...]) -> Outcome:
    """The worst outcome of some lines."""
    found = {line.outcome for line in lines}
    return next((bad for bad in (Outcome.FAIL, Outcome.INCONCLUSIVE) if bad in found), Outcome.PASS)


@dataclass(frozen=True)
class AuditReport:
    """A whole report. Raises BadInput for a finding without a note of its attack, or filed under another adversary.

    `power` says in sentences what the audit could have detected, `limits` what it could not; `environment` holds the
    versions of packages, `comparisons` for how many limits the intervals are corrected.
    """

    title: str
    subject: Subject
    promise: Promise
    attacks: tuple[AttackNote, ...]
    examinations: tuple[Examination, ...]
    power: tuple[str, ...]
    limits: tuple[str, ...]
    environment: Mapping[str, str]
    seed: int
    comparisons: Comparisons
    levels: tuple[Level, ...] = ()
    gate: GateResult | None = None

    def __post_init__(self) -> None:
        known = {note.name for note in self.attacks if note.title and note.paper}
        for finding in (*self.findings, *(finding for level in self.levels for finding in level.findings)):
            if finding.attack not in known:
                raise BadInput(f"the attack {finding.attack!r} has no title and no reference")
        for one in self.examinations:
            if strangers := {finding.adversary for finding in one.findings} - {one.adversary.name}:
                raise BadInput(f"findings of {', '.join(sorted(strangers))} are filed under {one.adversary.name}")

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings about the subject."""
        return tuple(finding for one in self.examinations for finding in one.findings)

    def note(self, attack: str) -> AttackNote:
        """The title and paper of an attack."""
        return next(note for note in self.attacks if note.name == attack)

    def headline(self) -> str:
        """Count the attacks by verdict, in a sentence; the control has a sentence of its own.

        Where no finite ε is promised this comes first: a gate that passes may let attacks on single records succeed.
        """
        judged = [one for one in self.examinations if one.adversary.name != CONTROL]
        controls = [one for one in self.examinations if one.adversary.name == CONTROL]
        said = ["Nothing is promised about any one record."] if math.isinf(self.promise.claimed) else []
        if judged or not controls:
            who = _count_in_words(len(judged), "adversary", "adversaries")
            said.append(f"{_count_attacks(judged)} by {who}: {_count_verdicts(judged)}.")
        if controls:
            said.append(f"Without protection, for comparison, {_count_attacks(controls)}: {_count_verdicts(controls)}.")
        return " ".join(said)

    def allowance(self) -> str:
        """Why a gate passes although attacks are inconclusive; "" where it does not pass, or none is."""
        judged = [one for one in self.examinations if one.adversary.name != CONTROL]
        verdicts = [finding.verdict for one in judged for finding in one.findings]
        if self.gate is None or self.gate.outcome is not Outcome.PASS or Verdict.INCONCLUSIVE not in verdicts:
            return ""
        return (
            "The gate passes all the same: it asks that no measure surely lies beyond its limit, and inconclusive "
            "attacks show none that does."
        )


def _count_attacks(examinations: Sequence[Examination]) -> str:
    return _count_in_words(sum(len(one.findings) for one in examinations), "attack")


def _count_verdicts(examinations: Sequence[Examination]) -> str:
    found = [finding.verdict for one in examinations for finding in one.findings]
    parts = [
        f"{found.count(verdict)} {one if found.count(verdict) == 1 else many}"
        for verdict, (one, many) in HEADLINE_WORDS.items()
        if verdict in found
    ]
    return ", ".join(parts) or "none was run"


def _count_in_words(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"
