"""Audit transcripts or a simulated plan: gather evidence, run attacks, and judge the report by pass/fail rules.

`audit` is `secagg.audit`, the audit of the command line for Python.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from html import escape
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any, Protocol

from secagg.agreement.plan import NoiseFrom
from secagg.data import Dataset
from secagg.errors import BadInput, describe_error, require_type
from secagg.experiments.input_data import given_data
from secagg.experiments.provenance import data_sha256
from secagg.experiments.settings import SimulationSettings
from secagg.networks.exported import code_warnings
from secagg.protection import UNPROTECTED, protection_named
from secagg.system import plugins
from secagg.verification.verification import NOTHING_BROUGHT, Trust
from threat_models.active.run import malicious_server
from threat_models.adversary import USUAL, Adversary, adversary_named
from threat_models.attacks import ATTACKS, Attack, add_attack
from threat_models.estimation.intervals import Comparisons
from threat_models.estimation.one_run_audit import OneRunBound, audit_canaries
from threat_models.evidence.canaries import canaries_of, plant
from threat_models.evidence.session_noise import noise_of_sessions
from threat_models.evidence.simulation import Rehearsal, rehearse
from threat_models.evidence.transcripts import input_of, known_of, of_plans, read_sessions
from threat_models.examination import Steps, examine, plan_comparisons
from threat_models.findings import Finding
from threat_models.report import summary_facts
from threat_models.report.changes import compare
from threat_models.report.content import AttackNote, AuditReport, Examination, Input, LowerBound, ProtectionLevel
from threat_models.report.gate import DEFAULT, Gate
from threat_models.report.gate_evaluation import judge
from threat_models.report.html import as_html
from threat_models.report.json_report import as_content
from threat_models.report.summary import as_text
from threat_models.session import Knowledge, Session

ACTIVE = AttackNote(
    "malicious_server",
    "Server that cheats real parties",
    "Bonawitz et al. 2017; Pasquini et al. 2022; the probes' own",
    "A server that cheats gets what it should not, from real parties that went along.",
    "Stop using this build, and report it as SECURITY.md says.",
)
NO_PUBLIC = (
    "No --public given: membership and unmixing cannot be judged; "
    "bring records of the same population that took no part."
)
COMPARED = ("unmixing", "feature_inversion")
"""Attacks that a simulation repeats without protection, and without noise, for comparison."""
PACKAGES = ("numpy", "scipy", "torch", "secagg")
"""Packages whose versions a report names, because they computed it."""


class Progress(Protocol):
    """The interface of an object that displays an audit's notes and progress, such as the command line's `Speaker`."""

    def say(self, text: str, /) -> None:
        """Display a note of one line."""

    def steps(self) -> AbstractContextManager[Steps]:
        """Yield a function that displays progress, to call with a step's name, steps done, all steps (0: unknown)."""


class _Silent:
    def say(self, text: str, /) -> None:
        pass

    @contextmanager
    def steps(self) -> Iterator[Steps]:
        yield lambda text, done, total: None


@dataclass(frozen=True)
class Simulation:
    """A plan to simulate and audit: its data set and its settings."""

    dataset: Dataset
    settings: SimulationSettings


@dataclass(frozen=True)
class AuditRequest:
    """A request for an audit: transcripts or a simulation, adversaries, the auditor's files, and the pass/fail rules.

    Without `transcripts` the `simulation` is audited. `known` and `public` are records that took part and others that
    did not, `records` how many took part in all, where that is public; `canaries` how many to plant, or the file of
    those planted. `backbone` is where the transcripts' backbone is kept, `attacks` name some of the auditor's own.
    `against` is an earlier audit's JSON, of the same session unless `across_sessions`.
    """

    transcripts: tuple[Path, ...] = ()
    threat_models: tuple[str, ...] = USUAL
    known: str | None = None
    public: str | None = None
    records: int | None = None
    canaries: str | None = None
    gate: Path | None = None
    attacks: tuple[str, ...] = ()
    seed: int = 0
    simulation: Simulation | None = None
    backbone: str | None = None
    trust: Trust = NOTHING_BROUGHT
    auditor: str = ""
    against: Path | None = None
    across_sessions: bool = False


@dataclass(frozen=True)
class _AuditInput:
    """The input of an audit's attacks: sessions, the records known beside them, and the files that the auditor brought.

    `recorded` are the sessions of single transcripts, `levels` a simulated plan's sums without its protection, and
    without its noise. `doubts` say why known and public records may not be what they are called, or are missing.
    """

    sessions: tuple[Session, ...]
    knowledge: Knowledge
    settings: Mapping[str, str]
    doubts: tuple[str, ...]
    one_run: OneRunBound | None
    recorded: tuple[Session, ...] = ()
    inputs: tuple[Input, ...] = ()
    rehearsal: Rehearsal | None = None
    levels: tuple[tuple[str, Session, Knowledge], ...] = ()


@dataclass(frozen=True)
class Audit:
    """An audit's report, and the exit code by its pass/fail rules: 0 pass, 1 fail, 4 inconclusive."""

    report: AuditReport = field(repr=False)
    exit_code: int

    def summary(self) -> str:
        """Return the report as lines for a terminal."""
        return as_text(self.report)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON report as plain values; `audit.schema.json` describes them."""
        return as_content(self.report)

    def to_html(self) -> str:
        """Return the report as one HTML page that needs no other file."""
        return as_html(self.report)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>"


def audit(
    features: Any = None,
    labels: Any = None,
    *,
    transcripts: Sequence[Path | str] = (),
    test_features: Any = None,
    test_labels: Any = None,
    classes: Sequence[str] | None = None,
    threat_models: Sequence[str] = USUAL,
    known: str | None = None,
    public: str | None = None,
    records: int | None = None,
    canaries: int | str | None = None,
    plans: Sequence[Path | str] = (),
    rosters: Sequence[Path | str] = (),
    tls: Sequence[Path | str] = (),
    gate: Path | str | None = None,
    auditor: str = "",
    against: Path | str | None = None,
    across_sessions: bool = False,
    **settings: Any,
) -> Audit:
    """Measure what adversaries could learn from a simulated plan, or from `transcripts` (`transcript.log` files).

    Data and settings of a simulation are those of `simulate`. The other arguments are the options of `secagg audit`.
    Raises BadInput, TranscriptInvalid.

    >>> audit("digits", threat_models=["curious_server"]).summary()  # doctest: +SKIP
    """
    for name, value in (("transcripts", transcripts), ("threat_models", threat_models)):
        require_type(name, value, (list, tuple), "a list")
    for name, file in (("known", known), ("public", public)):
        require_type(name, file, (str, type(None)), "the name of a file or None")
    if bool(transcripts) == (features is not None):
        raise BadInput("say what to audit", remedy="give data or transcripts, not both")
    if transcripts and settings:
        remedy = "a transcript's session is over: leave them out"
        raise BadInput(f"{', '.join(settings)} go with data", remedy=remedy)
    simulation = None
    if features is not None:
        dataset, settings = given_data(features, (labels, test_features, test_labels, classes), settings)
        simulation = Simulation(dataset, SimulationSettings.from_values(settings))
    request = AuditRequest(
        tuple(map(Path, transcripts)),
        tuple(threat_models),
        known,
        public,
        records,
        None if canaries is None else str(canaries),
        None if gate is None else Path(gate),
        seed=int(settings.get("seed", 0)),
        simulation=simulation,
        trust=Trust.in_files(map(Path, plans), map(Path, rosters), map(Path, tls)),
        auditor=auditor,
        against=None if against is None else Path(against),
        across_sessions=across_sessions,
    )
    return run_audit(request)


def run_audit(request: AuditRequest, progress: Progress | None = None) -> Audit:
    """Read or simulate the sessions, run the attacks, and judge the report by its pass/fail rules."""
    progress = progress or _Silent()
    brought = [_load_attack(progress, spec) for spec in request.attacks]
    today = datetime.now(UTC).date()
    rules = Gate.read(request.gate or DEFAULT, today)
    own = tuple(attack.name for attack, _ in brought)  # none for an adversary that only talks to real parties
    adversaries = [
        each if each.attacks == (ACTIVE.name,) else replace(each, attacks=(*each.attacks, *own))
        for each in map(adversary_named, request.threat_models)
    ]
    if request.simulation is not None:
        audited = _simulate(progress, request.simulation, request.canaries)
    else:
        audited = _read(progress, request, adversaries)
    code = {f"attack {attack.name}": f"{found.source}, SHA-256 {found.sha256}" for attack, found in brought}
    audited = replace(audited, settings={**audited.settings, **code})
    comparisons = plan_comparisons(rules, adversaries, one_run=request.canaries is not None)
    with comparisons.apply():
        report = _report(progress, audited, adversaries, comparisons, seed=request.seed)
    result = judge(rules, report, today)
    report = replace(report, gate=result, cover=summary_facts.cover_of(audited.recorded, request.auditor, today))
    if request.against is not None:
        report = replace(report, against=compare(report, request.against, across_sessions=request.across_sessions))
    return Audit(report, result.exit_code)


def _load_attack(progress: Progress, spec: str) -> tuple[Attack, plugins.Plugin]:
    """Load an attack that the auditor wrote; its adversaries try it beside theirs. Its code runs. Raises BadInput."""
    _warn(progress, method=spec)
    found = plugins.load(plugins.ATTACKS, spec)
    if found is None:
        raise BadInput(f"there is no attack {spec!r} to bring", remedy="give FILE.py:NAME, or install what brings it")
    attack: Any = found.value

    def run(*evidence: Any) -> Finding:
        """Run the auditor's attack. Raises BadInput where its code fails, or returns no Finding."""
        try:
            told: object = attack.run(*evidence)
        except Exception as error:
            problem = f"the attack {spec} failed ({type(error).__name__}: {describe_error(error)})"
            raise BadInput(problem, remedy="mend it; --debug shows where") from error
        if not isinstance(told, Finding) or told.attack != attack.name:
            raise BadInput(f"the attack {spec} returns no Finding of {attack.name}", remedy="see CONTRIBUTING.md")
        return told

    return add_attack(replace(attack, run=run) if isinstance(attack, Attack) else None, spec), found


def attack_notes() -> dict[str, AttackNote]:
    """Return each attack's description for the report, by the attack's name."""
    found = [AttackNote(name, each.title, each.paper, each.meaning, each.remedy) for name, each in ATTACKS.items()]
    return {note.name: note for note in (*found, ACTIVE)}


def _warn(progress: Progress, *backbones: str | None, parameters: str = "", method: str = "") -> None:
    for line in code_warnings(backbones, [parameters], [method]):
        progress.say(line)


def _simulate(progress: Progress, simulation: Simulation, canaries: str | None) -> _AuditInput:
    """Simulate the plan of the settings; with noise, also without it to compare; with canaries, once more with them."""
    data, settings = simulation.dataset, simulation.settings
    _warn(progress, settings.backbone, parameters=settings.parameters, method=settings.method)
    one_run = None
    if canaries is not None:
        if not canaries.isdecimal():
            problem = f"--canaries must be a number here (got {canaries!r})"
            raise BadInput(problem, remedy="with --simulate say how many; 100, say")
        planted = plant(data, settings, int(canaries))
        one_run = audit_canaries(planted.session, planted.canaries, planted.known, level=summary_facts.ONE_RUN_LEVEL)
    with progress.steps() as told:
        title = f"simulating a federation on {data.name}"
        told(title, 0, 0)
        found = rehearse(data, settings, partial(told, title))
    for note in found.notes:
        progress.say(f"note: {note}")
    levels = [("every client's vector in clear", found.sessions[0], found.knowledge)]
    if math.isfinite(settings.epsilon):
        # Under no protection: others refuse exact slots without a gate.
        exact = rehearse(data, replace(settings, epsilon=math.inf, noise=NoiseFrom.CLIENT, protection=UNPROTECTED))
        levels.append(("the exact sum", exact.sessions[0], exact.knowledge))
    chosen = {"dataset": data.name, **asdict(settings)}
    chosen["refine"] = "auto" if settings.refine is None else str(settings.refine)
    del chosen["reference"]  # an audit compares with none
    named = {name: str(value).removesuffix(".0") for name, value in chosen.items() if value not in (None, 0, "")}
    shown, known = {**named, "data_sha256": data_sha256(data)}, found.knowledge
    return _AuditInput(found.sessions, known, shown, known.doubts, one_run, rehearsal=found, levels=tuple(levels))


def _read(progress: Progress, request: AuditRequest, adversaries: list[Adversary]) -> _AuditInput:
    """Verify transcripts, read one session for all rounds of a plan, and read the records that the auditor brings."""
    with progress.steps() as told:
        told(f"verifying {', '.join(map(str, request.transcripts))}", 0, 0)
        recorded = read_sessions(request.transcripts, request.trust)
    sessions = of_plans(recorded)
    for each in adversaries:
        if len(sessions) > each.sessions:
            raise BadInput(
                f"{each.name} sees {each.sessions} of these {len(sessions)} plans' transcripts",
                remedy="audit each plan by itself, with all its rounds; rerunning_server alone takes two",
            )
    if len({session.plan.protection for session in sessions}) > 1:
        raise BadInput("the transcripts' plans protect uploads differently", remedy="audit each by itself")
    if request.known or request.public:  # whose features the plan's backbone makes
        _warn(progress, request.backbone or sessions[0].plan.backbone)
    knowledge = known_of(sessions[0], request.known, request.public, request.records, request.backbone)
    members = int(knowledge.is_member.sum())
    strangers = len(knowledge.owners) - members + (len(knowledge.public) if knowledge.public is not None else 0)
    given = (("known", request.known, members), ("public", request.public, strangers))
    inputs = tuple(input_of(role, source, count) for role, source, count in given if source)
    one_run = None
    if request.canaries is not None:
        canaries = canaries_of(sessions[0].plan, Path(request.canaries))
        inputs += (input_of("canaries", request.canaries, len(canaries)),)
        known = knowledge.candidates.take(knowledge.is_member) if request.known else None
        one_run = audit_canaries(sessions[0], canaries, known, knowledge.public, summary_facts.ONE_RUN_LEVEL)
    settings = {} if request.records is None else {"records, as the auditor says": str(request.records)}
    lacking = (NO_PUBLIC,) if request.known is not None and request.public is None else ()
    return _AuditInput(sessions, knowledge, settings, knowledge.doubts + lacking, one_run, recorded, inputs)


def _report(
    progress: Progress, found: _AuditInput, adversaries: list[Adversary], comparisons: Comparisons, seed: int
) -> AuditReport:
    rehearsal, knowledge = found.rehearsal, found.knowledge
    audited = found.sessions[:1] if rehearsal else found.sessions
    protection = protection_named(audited[0].plan.protection)
    with progress.steps() as told:
        trained = rehearsal.trained if rehearsal else ()
        steps = partial(told, "measuring epsilon on re-releases")
        promise = summary_facts.measure_promise(audited, steps, sees_training=bool(trained))
        if rehearsal is not None:
            promise = summary_facts.add_drawn(promise, rehearsal.drawn, rehearsal.opinion)
        promise = summary_facts.add_recorded(promise, noise_of_sessions(audited, knowledge, trained), found.recorded)
        if (one := found.one_run) is not None:
            bound = LowerBound(one.lower, one.method, one.sentence, one.power, one.refuted)
            promise = replace(promise, one_run=bound)
        examinations = []
        for each in adversaries:
            if each.attacks != (ACTIVE.name,):
                examinations.append(examine(each, found.sessions, knowledge, told))
                continue
            finding = malicious_server(partial(told, ACTIVE.title))
            examinations.append(Examination(each, each.sees, (), (replace(finding, adversary=each.name),)))
        levels = [ProtectionLevel(name, _at(name, level, known, told)) for name, level, known in found.levels]
    subject = summary_facts.subject_of(audited, knowledge.records, found.settings, found.recorded)
    return AuditReport(
        title=f"Audit of a session with {protection.name if protection.hides_vectors else 'unprotected'} uploads",
        subject=replace(subject, inputs=found.inputs, doubts=found.doubts),
        promise=promise,
        attacks=tuple(attack_notes().values()),
        examinations=tuple(examinations),
        power=(comparisons.sentence(),),
        limits=summary_facts.limits_of(subject, rehearsal.refusals if rehearsal else None),
        environment={"python": python_version(), **{name: version(name) for name in PACKAGES}},
        seed=seed,
        comparisons=comparisons,
        levels=tuple(levels),
    )


def _at(name: str, session: Session, knowledge: Knowledge, told: Steps) -> tuple[Finding, ...]:
    """Run the compared attacks on one level of protection: as one who sees every vector in clear, or as the server."""
    seen = adversary_named("no_protection" if "clear" in name else "curious_server")
    chosen = replace(seen, attacks=tuple(each for each in seen.attacks if each in COMPARED))
    return examine(chosen, (session,), knowledge, told).findings
