"""Audit transcripts, or a simulated plan: gather the evidence, run the attacks, judge, and write the report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from secagg.data import Dataset
from secagg.errors import BadInput, why
from secagg.experiments.given import open_simulated
from secagg.experiments.provenance import data_sha256
from secagg.experiments.settings import SimulationSettings
from secagg.networks import code_warnings
from secagg.protection import UNPROTECTED, protection_named
from secagg.system import plugins
from secagg.verification.verification import NOTHING_BROUGHT
from secagg.verification.vouching import Trust
from threat_models.active.run import malicious_server
from threat_models.adversary import Adversary, adversary_named
from threat_models.attacks import ATTACKS, Attack, add_attack
from threat_models.audit import Steps, examine, plan_comparisons
from threat_models.estimation import OneRunBound, SecondOpinion, SharesTested, audit_canaries
from threat_models.evidence import canaries_of, input_of, known_of, of_plans, plant, read_sessions, rehearse
from threat_models.evidence.session_noise import noise_of_sessions
from threat_models.findings import Finding
from threat_models.multiplicity import Comparisons
from threat_models.report.changes import compare
from threat_models.report.content import AttackNote, AuditReport, Examination, Input, Level
from threat_models.report.gate import DEFAULT, Gate
from threat_models.report.gate_evaluation import judge
from threat_models.report.html import as_html
from threat_models.report.sarif import as_sarif
from threat_models.report.summary_facts import (
    ONE_RUN_LEVEL,
    add_drawn,
    add_multiples,
    add_session_noise,
    bound_of,
    cover_of,
    environment,
    limits_of,
    measure_promise,
    subject_of,
)
from threat_models.session import Knowledge, Provenance, Session
from threat_models.views import View

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
"""Attacks that a simulation repeats at the other levels of protection."""


class Progress(Protocol):
    """Receives notes and progress; the command line's `Speaker` is one."""

    def say(self, text: str, /) -> None:
        """Take a note of one line."""
        ...

    def steps(self) -> AbstractContextManager[Steps]:
        """Yield a function that takes (the step's name, steps done, steps in all; 0: unknown)."""
        ...


class Silent:
    """Discard notes and progress."""

    def say(self, text: str, /) -> None:
        """Discard it."""

    @contextmanager
    def steps(self) -> Iterator[Steps]:
        """Yield a function that does nothing."""
        yield lambda text, done, total: None


@dataclass(frozen=True)
class Simulation:
    """A plan to simulate and audit: its data set, by name or path, how that is read, and the plan's settings."""

    dataset: str
    settings: SimulationSettings
    label: str | None = None
    schema: str | None = None
    image_size: int | None = None
    test: str | None = None


@dataclass(frozen=True)
class Question:
    """What to audit, for whom, by which rules, and where to write what was found.

    Without `transcripts` the `simulation` is audited. `backbone` is where the transcripts' backbone is kept. `against`
    is an earlier audit's JSON, of the same session unless `across_sessions`.
    """

    transcripts: tuple[Path, ...]
    threat_models: tuple[str, ...]
    known: str | None
    public: str | None
    gate: Path | None
    html: Path | None
    sarif: Path | None
    canaries: str | None = None
    records: int | None = None
    attacks: tuple[str, ...] = ()
    seed: int = 0
    simulation: Simulation | None = None
    backbone: str | None = None
    trust: Trust = NOTHING_BROUGHT
    auditor: str = ""
    against: Path | None = None
    across_sessions: bool = False


@dataclass(frozen=True)
class Evidence:
    """What is audited: sessions, what may be known beside them, and where they come from."""

    sessions: tuple[Session, ...]
    knowledge: Knowledge
    settings: Mapping[str, str]
    transcripts: Mapping[str, str]
    inputs: tuple[Input, ...] = ()
    levels: tuple[tuple[str, Session, Knowledge], ...] = ()
    one_run: OneRunBound | None = None
    drawn: SharesTested | None = None
    opinion: SecondOpinion | None = None
    recorded: tuple[Session, ...] = ()
    refusals: tuple[str, ...] = ()
    provenance: tuple[Provenance, ...] = ()
    lacking: tuple[str, ...] = ()


def judged(question: Question, progress: Progress) -> tuple[AuditReport, int]:
    """The report, written where the question asks for files, and its gate's exit code."""
    brought = [_bring(progress, spec) for spec in question.attacks]
    today = datetime.now(UTC).date()
    rules = Gate.read(question.gate or DEFAULT, today)
    adversaries = [_with_brought(adversary_named(name), brought) for name in question.threat_models]
    if question.simulation is not None:
        evidence = _simulate(progress, question.simulation, question.canaries)
    else:
        evidence = _record(progress, question, adversaries)
    comparisons = plan_comparisons(rules, adversaries, one_run=question.canaries is not None)
    with comparisons.apply():
        report = _report(progress, _naming(evidence, brought), adversaries, comparisons, seed=question.seed)
    result = judge(rules, report, today)
    report = replace(report, gate=result, cover=cover_of(evidence.recorded, question.auditor, today))
    if question.against is not None:
        earlier = compare(report, question.against, across_sessions=question.across_sessions)
        report = replace(report, against=earlier)
    if question.html is not None:
        question.html.write_text(as_html(report), encoding="utf-8", errors="backslashreplace")
    if question.sarif is not None:
        question.sarif.write_text(as_sarif(report, version("secagg")), encoding="utf-8")
    for written in filter(None, (question.html, question.sarif)):
        progress.say(f"wrote {written}")
    return report, result.exit_code


def _bring(progress: Progress, spec: str) -> tuple[Attack, plugins.Plugin]:
    """An attack of somebody's own, which its adversaries try beside theirs. Its code runs. Raises BadInput."""
    _warn(progress, method=spec)
    found = plugins.load(plugins.ATTACKS, spec)
    if found is None:
        raise BadInput(f"there is no attack {spec!r} to bring", remedy="give FILE.py:NAME, or install what brings it")
    attack: Any = found.value
    own = replace(attack, run=partial(_run_brought, spec, attack)) if isinstance(attack, Attack) else None
    return add_attack(own, spec), found


def _run_brought(
    spec: str, attack: Attack, views: tuple[View, ...], knowledge: Knowledge, progress: Callable[[int, int], None]
) -> Finding:
    """What somebody's own attack finds. Raises BadInput where its code fails, or returns no Finding."""
    try:
        found: object = attack.run(views, knowledge, progress)
    except Exception as error:
        problem = f"the attack {spec} failed ({type(error).__name__}: {why(error)})"
        raise BadInput(problem, remedy="mend it; --debug shows where") from error
    if not isinstance(found, Finding) or found.attack != attack.name:
        raise BadInput(f"the attack {spec} returns no Finding of {attack.name}", remedy="see CONTRIBUTING.md")
    return found


def _with_brought(adversary: Adversary, brought: Sequence[tuple[Attack, plugins.Plugin]]) -> Adversary:
    """The adversary with these attacks beside its own; none for one that only talks to real parties."""
    if adversary.attacks == (ACTIVE.name,):
        return adversary
    return replace(adversary, attacks=(*adversary.attacks, *(attack.name for attack, _ in brought)))


def _naming(evidence: Evidence, brought: Sequence[tuple[Attack, plugins.Plugin]]) -> Evidence:
    """The evidence, its settings saying which code was brought."""
    named = {f"attack {attack.name}": f"{found.source}, SHA-256 {found.sha256}" for attack, found in brought}
    return replace(evidence, settings={**evidence.settings, **named})


def attack_notes() -> dict[str, AttackNote]:
    """Return what a report says of each attack, by its name."""
    found = {
        name: AttackNote(name, each.title, each.paper, each.meaning, each.remedy) for name, each in ATTACKS.items()
    }
    return {**found, ACTIVE.name: ACTIVE}


def _warn(progress: Progress, *backbones: str | None, parameters: str = "", method: str = "") -> None:
    for line in code_warnings(backbones, [parameters], [method]):
        progress.say(line)


def _simulate(progress: Progress, simulation: Simulation, canaries: str | None) -> Evidence:
    """The plan of the settings; where it has noise, the same plan without it to compare; once more with canaries."""
    settings = simulation.settings
    _warn(progress, settings.backbone, parameters=settings.parameters, method=settings.method)
    read = simulation.label, simulation.schema, simulation.image_size, simulation.test
    data = open_simulated(progress.say, simulation.dataset, settings.epsilon, *read)
    one_run = None
    if canaries is not None:
        planted = plant(data, settings, _count(canaries))
        one_run = audit_canaries(planted.session, planted.canaries, planted.known, level=ONE_RUN_LEVEL)
    with progress.steps() as told:
        title = f"simulating a federation on {data.name}"
        told(title, 0, 0)
        found = rehearse(data, settings, partial(told, title))
    for note in found.notes:
        progress.say(f"note: {note}")
    levels = [("every client's vector in clear", found.sessions[0], found.knowledge)]
    if math.isfinite(settings.epsilon):
        # Under no protection: others refuse exact slots without a gate.
        exact = rehearse(data, replace(settings, epsilon=math.inf, noise="client", protection=UNPROTECTED))
        levels.append(("the exact sum", exact.sessions[0], exact.knowledge))
    return Evidence(
        found.sessions,
        found.knowledge,
        _shown(data, settings),
        {},
        levels=tuple(levels),
        one_run=one_run,
        drawn=found.drawn,
        opinion=found.opinion,
        refusals=found.refusals,
    )


def _shown(data: Dataset, settings: SimulationSettings) -> dict[str, str]:
    """The settings that were chosen, as the report shows them."""
    chosen = {"dataset": data.name, **asdict(settings)}
    chosen["refine"] = "auto" if settings.refine is None else str(settings.refine)
    del chosen["reference"]  # an audit compares with none
    shown = {name: str(value).removesuffix(".0") for name, value in chosen.items() if value not in (None, 0, "")}
    return {**shown, "data_sha256": data_sha256(data)}


def _count(text: str) -> int:
    if not text.isdecimal():
        raise BadInput(f"--canaries {text!r} is no number", remedy="with --simulate say how many; 100, say")
    return int(text)


def _record(progress: Progress, question: Question, adversaries: list[Adversary]) -> Evidence:
    """Transcripts, verified before anything is read from them; those of one plan's rounds are one session."""
    with progress.steps() as told:
        told(f"verifying {', '.join(map(str, question.transcripts))}", 0, 0)
        shown = read_sessions(question.transcripts, question.trust)
    sessions = of_plans(shown)
    for each in adversaries:
        if len(sessions) > each.sessions:
            raise BadInput(
                f"{each.name} sees {each.sessions} of these {len(sessions)} plans' transcripts",
                remedy="audit each plan by itself, with all its rounds; rerunning_server alone takes two",
            )
    if len({session.plan.protection for session in sessions}) > 1:
        raise BadInput("the transcripts' plans protect uploads differently", remedy="audit each by itself")
    if question.known or question.public:  # whose features the plan's backbone makes
        _warn(progress, question.backbone or sessions[0].plan.backbone)
    knowledge = known_of(sessions[0], question.known, question.public, question.records, question.backbone)
    files = {each.provenance.transcript: each.transcript_sha256 for each in shown if each.provenance is not None}
    inputs, one_run = _brought(question, knowledge), None
    if question.canaries is not None:
        canaries = canaries_of(sessions[0].plan, Path(question.canaries))
        inputs += (input_of("canaries", question.canaries, len(canaries)),)
        known = knowledge.candidates.take(knowledge.is_member) if question.known else None
        one_run = audit_canaries(sessions[0], canaries, known, knowledge.public, ONE_RUN_LEVEL)
    settings = {} if question.records is None else {"records, as the auditor says": str(question.records)}
    provenance = tuple(session.provenance for session in shown if session.provenance is not None)
    lacking = (NO_PUBLIC,) if question.known is not None and question.public is None else ()
    return Evidence(
        sessions,
        knowledge,
        settings,
        files,
        inputs,
        one_run=one_run,
        recorded=shown,
        provenance=provenance,
        lacking=lacking,
    )


def _brought(question: Question, knowledge: Knowledge) -> tuple[Input, ...]:
    """The files of known and public records, and how many of each took the plan's form."""
    members = int(knowledge.is_member.sum())
    strangers = len(knowledge.owners) - members + (len(knowledge.public) if knowledge.public is not None else 0)
    given = (("known", question.known, members), ("public", question.public, strangers))
    return tuple(input_of(role, source, count) for role, source, count in given if source)


def _report(
    progress: Progress, evidence: Evidence, adversaries: list[Adversary], comparisons: Comparisons, seed: int
) -> AuditReport:
    audited = evidence.sessions if evidence.transcripts else evidence.sessions[:1]
    protection = protection_named(audited[0].plan.protection)
    with progress.steps() as told:
        promise = measure_promise(audited, lambda done, total: told("measuring epsilon on re-releases", done, total))
        promise = add_multiples(add_drawn(promise, evidence.drawn, evidence.opinion), evidence.recorded)
        promise = add_session_noise(promise, noise_of_sessions(audited, evidence.knowledge))
        if evidence.one_run is not None:
            promise = replace(promise, one_run=bound_of(evidence.one_run))
        examinations = [
            _cheat(each, told)
            if each.attacks == (ACTIVE.name,)
            else examine(each, evidence.sessions, evidence.knowledge, told)
            for each in adversaries
        ]
        levels = [Level(name, _at(name, level, knowledge, told)) for name, level, knowledge in evidence.levels]
    return AuditReport(
        title=f"Audit of a session with {protection.name if protection.hides_vectors else 'unprotected'} uploads",
        subject=replace(
            subject_of(
                audited, evidence.knowledge.records, evidence.settings, evidence.transcripts, evidence.provenance
            ),
            inputs=evidence.inputs,
            doubts=evidence.knowledge.doubts + evidence.lacking,
        ),
        promise=promise,
        attacks=tuple(attack_notes().values()),
        examinations=tuple(examinations),
        power=(comparisons.sentence(),),
        limits=limits_of(audited, evidence.refusals, is_simulated=not evidence.transcripts),
        environment=environment(),
        seed=seed,
        comparisons=comparisons,
        levels=tuple(levels),
    )


def _cheat(adversary: Adversary, told: Steps) -> Examination:
    finding = malicious_server(lambda done, total: told(ACTIVE.title, done, total))
    return Examination(adversary, adversary.sees, (), (replace(finding, adversary=adversary.name),))


def _at(name: str, session: Session, knowledge: Knowledge, told: Steps) -> tuple[Finding, ...]:
    """The compared attacks on one level: by somebody who sees every vector, or by the server."""
    seen = adversary_named("no_protection" if "clear" in name else "curious_server")
    chosen = replace(seen, attacks=tuple(each for each in seen.attacks if each in COMPARED))
    return examine(chosen, (session,), knowledge, told).findings
