"""The content of an audit report, independent of its output formats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from secagg.errors import BadInput, ExitCode
from threat_models.adversary import Adversary
from threat_models.estimation.chi_square import SessionNoise
from threat_models.estimation.intervals import Comparisons
from threat_models.findings import Curve, Finding, Verdict
from threat_models.session import Provenance

CONTROL = "no_protection"
"""Name of the adversary that sees unprotected vectors: its attacks are expected to succeed."""
SEEN = {
    "messages": "who sends messages to whom, their order and sizes",
    "uploads": "the protected uploads",
    "release": "the opened sum",
    "head": "the head",
    "contributions": "clients' vectors in clear",
}
"""Fields of a session in words for people."""
SESSION_RULES = {
    "transcript": "Plan, roster and rounds of the transcripts are vouched for",
    "protection": "How uploads are protected",
    "records": "Enough records for a sum without noise",
    "promise": "The promised epsilon holds",
    "noise": "The session holds the noise that was planned",
    "inputs": "Known and public records are what they are called",
    "audit": "The audit ran",
}
"""Names and words of the rules about the sum itself, beside those about the attacks."""
SESSION_REMEDIES = {
    "transcript": "Bring the plan or roster from a source that you trust (--plan, --roster).",
    "protection": "Have the next plan made with a protection that the gate allows.",
    "records": "Sum more records, of fewer features, or plan with a finite epsilon.",
    "promise": "If a record needs a promise, plan with a finite epsilon.",
    "noise": "Bring the records of all members (--known), or make a next plan whose sums show their noise: with "
    "refinement or more features, or with canaries. Until then, take the promise for broken.",
    "inputs": "Bring --known and --public of one population.",
    "audit": "Ask about the adversaries that the gate names, with the evidence that their attacks need.",
}
"""Remedies for each of these rules that does not hold."""
UPDATES_TELL = "records off a first layer, and members by losses and gradients"
"""The part that attacks read of the sums of updates."""
PROTOTYPES_TELL = "members, by the public start's projection"
"""The part that attacks read of the sums of projections."""
IDLE = ("has nothing to work on", "have nothing to work on")


class SessionState(StrEnum):
    """The session's state under one adversary's attack: withstood, allowed by the gate, unknown or broken, best first.

    Less evidence never looks better: what nobody could tell stands below what is known and allowed.
    """

    WITHSTOOD = "withstood"
    ALLOWED = "allowed by the gate"
    UNTOLD = "could not tell"
    BROKEN = "broken"

    @property
    def rank(self) -> int:
        """Position of the state, from 0 for the best (withstood) to 3 for the worst (broken)."""
        return list(SessionState).index(self)


CONTROL_STATES = {
    Verdict.SUCCEEDS: SessionState.BROKEN,
    Verdict.INCONCLUSIVE: SessionState.UNTOLD,
    Verdict.FAILS: SessionState.WITHSTOOD,
}
"""States of the unprotected control by its attack's verdict, in the same words."""


@dataclass(frozen=True)
class AttackNote:
    """An attack's description for readers of a report: its name, what it is after, and who published it.

    `meaning` is what somebody knows for whom the attack works, `remedy` what keeps it from working.
    """

    name: str
    title: str
    paper: str
    meaning: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Cover:
    """Facts on a report's cover: subject, auditor and date. Fields are empty for a simulation, or if unknown.

    `plans` are SHA-256 digests, `sessions` their identifiers, `members` those in the sums, of `clients` in the roster;
    `date` is the audit's (a transcript has no times), as 2026-03-01.
    """

    consortium: str = ""
    purpose: str = ""
    plans: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    clients: int = 0
    auditor: str = ""
    date: str = ""


@dataclass(frozen=True)
class Input:
    """A file that the auditor supplied: `role` is "known", "public" or "canaries", `sha256` "" for bundled data."""

    role: str
    name: str
    sha256: str
    records: int


@dataclass(frozen=True)
class Subject:
    """The subject of an audit: the examined transcripts (file name, SHA-256), or the settings of a simulation.

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
    """A measured lower bound of ε: ε ≥ `lower`, by `method` at its level ("Clopper-Pearson, 95 %").

    `sentence` says what was done and found, `power` what fault of the noise this would have caught, and how surely.
    `refuted`: the noise is not what the claim counts on. `is_enough`: the measurement would have told if it were not.
    """

    lower: float
    method: str
    sentence: str
    power: str
    refuted: bool = False
    is_enough: bool = True
    curve: Curve | None = None

    def disproves(self, claimed: float) -> bool:
        """Return whether the bound contradicts the claimed ε."""
        return self.refuted or self.lower > claimed


@dataclass(frozen=True)
class DrawnNoise:
    """Results of tests of the noise that parties drew: the `flaws` in words, and the `power` of the tests.

    `places` are (name, mean square over the planned one, entries); `sentence` says what was tested, and with which rate
    of false alarms.
    """

    sentence: str
    power: str
    places: tuple[tuple[str, float, int], ...] = ()
    flaws: tuple[str, ...] = ()


@dataclass(frozen=True)
class Promise:
    """The (ε, δ) that the plan claims (ε infinite if it claims none), beside the auditor's recomputed and measured ε.

    `measured` is by re-releases, `one_run` by canaries in a single run, `drawn` the noise that was in the sums.
    `session_noise` is that of the audited session; None where the plan has no noise.
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
    session_noise: SessionNoise | None = None

    @property
    def agrees(self) -> bool:
        """Whether the recomputed ε is no more than the claimed one, up to rounding."""
        return self.recomputed <= self.claimed * (1 + 1e-6)

    @property
    def disproved(self) -> bool:
        """Whether a measured lower bound of ε, or a test of the noise, contradicts the claimed ε."""
        bounds = [bound for bound in (self.measured, self.one_run) if bound is not None]
        return any(bound.disproves(self.claimed) for bound in bounds) or bool(self.drawn and self.drawn.flaws)


@dataclass(frozen=True)
class Examination:
    """Results for one adversary: what it saw, what it did not see, and what every attack that applies to it found."""

    adversary: Adversary
    sees: tuple[str, ...]
    lacks: tuple[str, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class ProtectionLevel:
    """Findings of the same attacks under another protection, for comparison; the pass/fail gate does not judge them."""

    name: str
    findings: tuple[Finding, ...]


class GateOutcome(StrEnum):
    """The pass/fail gate's outcome for one thing that it judges (a line), or for the whole report."""

    PASS = "pass"  # noqa: S105 (no password)
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class GateLine:
    """One thing judged by the pass/fail gate: an attack by an adversary ("" for the session), the outcome and reason.

    `waiver` is the reason of the waiver that lets it pass, `is_untold` whether it is one for what nobody could tell.
    `breaks_promise`: it fails because there is less noise than claimed.
    """

    attack: str
    adversary: str
    outcome: GateOutcome
    sentence: str
    waiver: str = ""
    is_untold: bool = False
    breaks_promise: bool = False


@dataclass(frozen=True)
class WaiverInForce:
    """A waiver that has not expired: how many lines of the pass/fail gate it lets pass, and for how many it is `void`.

    A void line shows less noise than claimed. `expires` is its last day, as 2026-03-01; `inconclusive` as in `Waiver`.
    """

    attack: str
    adversary: str
    reason: str
    expires: str
    inconclusive: bool
    waived: int
    void: int

    @property
    def effect(self) -> str:
        """The waiver's effect in this audit, in words."""
        what = "what could not be told" if self.inconclusive else "a failure"
        found = [f"lets {what} pass"] if self.waived else []
        found += ["has no effect on less noise than promised, which cannot be waived"] if self.void else []
        return "; ".join(found) or "has nothing to let pass"


@dataclass(frozen=True)
class GateResult:
    """A pass/fail gate's result: a line for each thing judged, the file's SHA-256, and waivers in force on a date."""

    lines: tuple[GateLine, ...]
    gate_sha256: str
    today: str
    waivers: tuple[WaiverInForce, ...] = ()

    @property
    def outcome(self) -> GateOutcome:
        """The pass/fail gate's outcome for the whole report: fail if any line fails, else inconclusive if any is."""
        return worst(self.lines)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of `secagg audit` for this outcome."""
        ends = {GateOutcome.FAIL: ExitCode.GATE_FAILED, GateOutcome.INCONCLUSIVE: ExitCode.INCONCLUSIVE}
        return ends.get(self.outcome, ExitCode.DONE)


def worst(lines: tuple[GateLine, ...]) -> GateOutcome:
    """Return the worst outcome of some of the pass/fail gate's lines; pass if there are none."""
    found = {line.outcome for line in lines}
    return next((bad for bad in (GateOutcome.FAIL, GateOutcome.INCONCLUSIVE) if bad in found), GateOutcome.PASS)


class Change(StrEnum):
    """Kinds of change since an earlier audit, the worst first; what is no longer known never counts as better."""

    WORSE = "worse"
    LESS_KNOWN = "less is known"
    NEW = "new"
    GONE = "gone"
    BETTER = "better"


@dataclass(frozen=True)
class Changed:
    """One result that differs between two audits: title, adversary ("" for the sum itself), state before and after."""

    change: Change
    title: str
    adversary: str
    before: str
    after: str


@dataclass(frozen=True)
class Against:
    """Changes since an earlier report, given by its `date`, file name and SHA-256.

    `same` is how many things did not change; `notes` say what makes the two hard to compare.
    """

    name: str
    sha256: str
    date: str
    changes: tuple[Changed, ...]
    same: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class AuditReport:
    """A complete audit report. Raises BadInput for a finding by another adversary, or of an attack without description.

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
    levels: tuple[ProtectionLevel, ...] = ()
    gate: GateResult | None = None
    cover: Cover = Cover()
    against: Against | None = None

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
        """All findings about the audited subject, without those under other protections for comparison."""
        return tuple(finding for one in self.examinations for finding in one.findings)

    @property
    def notes(self) -> tuple[AttackNote, ...]:
        """Descriptions of the attacks, each with its remedy adapted to the plan's ε."""
        return tuple(replace(note, remedy=self.advise(note.remedy)) for note in self.attacks)

    def note(self, attack: str) -> AttackNote:
        """Return the description of an attack, with its remedy adapted to the plan's ε."""
        return next(note for note in self.notes if note.name == attack)

    def advise(self, remedy: str) -> str:
        """Adapt a remedy to the plan: where ε is finite already, advise a smaller one."""
        return remedy if math.isinf(self.promise.claimed) else remedy.replace("a finite epsilon", "a smaller epsilon")

    def lines_of(self, finding: Finding) -> tuple[GateLine, ...]:
        """Return the lines in which the pass/fail gate judges a finding."""
        key = finding.attack, finding.adversary
        return tuple(line for line in self._lines if (line.attack, line.adversary) == key)

    def state_of(self, finding: Finding) -> SessionState | None:
        """Return the session's state under a finding's attack; None for the unprotected control, or if inapplicable.

        A success that no line of the gate lets pass, and one without a gate, is broken, whatever else was not told.
        """
        if finding.adversary == CONTROL or finding.verdict is Verdict.NOT_APPLICABLE:
            return None
        lines = self.lines_of(finding)
        outcome = worst(lines)
        is_let = bool(lines) and outcome is GateOutcome.PASS
        if outcome is GateOutcome.FAIL or (finding.verdict is Verdict.SUCCEEDS and not is_let):
            return SessionState.BROKEN
        is_untold = outcome is GateOutcome.INCONCLUSIVE or any(line.is_untold for line in lines)
        if finding.verdict is Verdict.INCONCLUSIVE or is_untold:
            return SessionState.UNTOLD
        is_waived = any(line.waiver for line in lines)
        return SessionState.ALLOWED if is_waived or finding.verdict is Verdict.SUCCEEDS else SessionState.WITHSTOOD

    def state_of_line(self, line: GateLine) -> SessionState:
        """Return the session's state by a gate line on the sum itself: ALLOWED at best if the claimed ε is infinite."""
        if line.outcome is not GateOutcome.PASS:
            return SessionState.BROKEN if line.outcome is GateOutcome.FAIL else SessionState.UNTOLD
        if line.is_untold:
            return SessionState.UNTOLD
        is_promiseless = line.attack == "promise" and math.isinf(self.promise.claimed)
        return SessionState.ALLOWED if line.waiver or is_promiseless else SessionState.WITHSTOOD

    @property
    def session_lines(self) -> tuple[GateLine, ...]:
        """The pass/fail gate's lines without a finding: on the sum itself, or on attacks that were not run."""
        found = {(finding.attack, finding.adversary) for finding in self.findings}
        return tuple(line for line in self._lines if (line.attack, line.adversary) not in found)

    def counts(self, finding: Finding) -> bool:
        """Return whether a finding counts for the report's state; an undecided one only if a gate file requires it."""
        state, lines = self.state_of(finding), self.lines_of(finding)
        is_open = not lines or any(line.waiver or line.outcome is not GateOutcome.PASS for line in lines)
        return state is not None and (state is not SessionState.UNTOLD or is_open)

    @property
    def short_lines(self) -> tuple[GateLine, ...]:
        """The pass/fail gate's lines that report less noise than the plan claims."""
        return tuple(line for line in self._lines if line.breaks_promise)

    @property
    def state(self) -> SessionState:
        """The worst state that a counted finding, a gate line or the gate gives; UNTOLD if there are none of these."""
        found = [self.state_of(finding) for finding in self.findings if self.counts(finding)]
        states = [state for state in found if state is not None]
        states += map(self.state_of_line, self.session_lines)
        if self.gate is not None and self.gate.outcome is not GateOutcome.PASS:
            states.append(SessionState.BROKEN if self.gate.outcome is GateOutcome.FAIL else SessionState.UNTOLD)
        return max(states, key=lambda state: state.rank, default=SessionState.UNTOLD)

    @property
    def _lines(self) -> tuple[GateLine, ...]:
        return self.gate.lines if self.gate is not None else ()

    def headline(self) -> str:
        """Summarise in a sentence how many attacks are in each state, the worst first; the unprotected control apart.

        Where no finite ε is claimed this comes first: a gate that passes may let attacks on single records succeed.
        So does noise of the session that is too small, or not known.
        """
        judged = [one for one in self.examinations if one.adversary.name != CONTROL]
        controls = [one for one in self.examinations if one.adversary.name == CONTROL]
        states = [self.state_of(finding) for one in judged for finding in one.findings]
        bare = [CONTROL_STATES.get(finding.verdict) for one in controls for finding in one.findings]
        said = ["Nothing is promised about any one record."] if math.isinf(self.promise.claimed) else []
        said += [noise.headline] if (noise := self.promise.session_noise) is not None and noise.headline else []
        if judged or not controls:
            who = _count(len(judged), "adversary", "adversaries")
            said.append(f"{_count(len(states), 'attack', 'attacks')} by {who}: {_count_states(states)}.")
        if controls:
            tried = _count(len(bare), "attack", "attacks")
            said.append(f"Without protection, for comparison, {tried}: {_count_states(bare)}.")
        return " ".join(said)


def _count_states(found: Sequence[SessionState | None]) -> str:
    """Write how many states there are of each kind, the worst first; None: the attack had nothing to work on."""
    parts = [f"{found.count(state)} {state}" for state in reversed(SessionState) if state in found]
    parts += [_count(found.count(None), *IDLE)] if None in found else []
    return ", ".join(parts) or "none was run"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
