"""What `secagg audit` and `secagg attacks` do; loaded only when they are asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from secagg import plugins
from secagg.cli.console import Speaker, two_columns, warn_of_programs
from secagg.cli.simulate import among_settings, open_simulated, settings_of
from secagg.errors import BadInput, why
from secagg.experiments.provenance import data_sha256
from secagg.parties.verification import NOTHING_BROUGHT
from secagg.parties.vouching import Trust
from secagg.protection import UNPROTECTED, protection_named
from threat_models.active.run import malicious_server
from threat_models.adversary import Adversary, adversary_named, names
from threat_models.attacks import ATTACKS, Attack, add_attack
from threat_models.audit import examine, plan_comparisons
from threat_models.estimation import OneRunBound, SecondOpinion, SharesTested, audit_canaries
from threat_models.evidence import canaries_of, input_of, known_of, of_plans, plant, read_sessions, rehearse
from threat_models.findings import Finding
from threat_models.multiplicity import Comparisons
from threat_models.report.changes import compare
from threat_models.report.content import AttackNote, AuditReport, Examination, Input, Level
from threat_models.report.gate import DEFAULT, Gate, all_metrics
from threat_models.report.gate_evaluation import judge
from threat_models.report.html import as_html
from threat_models.report.json_report import as_json
from threat_models.report.sarif import as_sarif
from threat_models.report.summary import as_text
from threat_models.report.summary_facts import (
    ONE_RUN_LEVEL,
    add_drawn,
    add_multiples,
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


@dataclass(frozen=True)
class Question:
    """What to audit, for whom, by which rules, and where to write what was found."""

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
    simulation: Mapping[str, Any] = field(default_factory=dict)
    trust: Trust = NOTHING_BROUGHT
    auditor: str = ""
    against: Path | None = None


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


def answer(speaker: Speaker, question: Question) -> int:
    """Audit, write, say; return the exit code. Raises what its parts raise."""
    report, code = judged(speaker, question)
    speaker.text(as_json(report), as_text(report))
    return code


def judged(speaker: Speaker, question: Question) -> tuple[AuditReport, int]:
    """The report, written where the question asks for files, and its gate's exit code."""
    brought = [_bring(speaker, spec) for spec in question.attacks]
    rules = Gate.read(question.gate or DEFAULT)
    adversaries = [_with_brought(adversary_named(name), brought) for name in question.threat_models]
    evidence = _record(speaker, question, adversaries) if question.transcripts else _simulate(speaker, question)
    comparisons = plan_comparisons(rules, adversaries, one_run=question.canaries is not None)
    with comparisons.apply():
        report = _report(speaker, _naming(evidence, brought), adversaries, comparisons, seed=question.seed)
    today = datetime.now(UTC).date()
    result = judge(rules, report, today)
    report = replace(report, gate=result, cover=cover_of(evidence.recorded, question.auditor, today))
    if question.against is not None:
        report = replace(report, against=compare(report, question.against))
    if question.html is not None:
        question.html.write_text(as_html(report), encoding="utf-8", errors="backslashreplace")
    if question.sarif is not None:
        question.sarif.write_text(as_sarif(report, version("secagg")), encoding="utf-8")
    for written in filter(None, (question.html, question.sarif)):
        speaker.say(f"wrote {written}")
    return report, result.exit_code


def _bring(speaker: Speaker, spec: str) -> tuple[Attack, plugins.Plugin]:
    """An attack of somebody's own, which its adversaries try beside theirs. Its code runs. Raises BadInput."""
    warn_of_programs(speaker, (), methods=[spec])
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


def list_attacks(speaker: Speaker) -> None:
    """Every attack: what it is after, needs to see and measures, who published it, and which adversaries use it."""
    users = {name: [each for each in names() if name in adversary_named(each).attacks] for name in _notes()}
    rows, content = [], {}
    for name, note in _notes().items():
        needs = ", ".join(ATTACKS[name].needs) if name in ATTACKS else "real parties to talk to"
        measures = {metric.id: metric.label for metric in all_metrics()[name]}
        words = f"needs: {needs or 'any of the sums'}\nmeasures: {', '.join(measures)}\n{note.paper}"
        rows.append((name, f"{note.title}\n{words}\nused by: {', '.join(users[name])}"))
        content[name] = {"title": note.title, "paper": note.paper, "adversaries": users[name], "measures": measures}
    speaker.result({"attacks": content}, two_columns("Attacks", rows))


def _notes() -> dict[str, AttackNote]:
    found = {
        name: AttackNote(name, each.title, each.paper, each.meaning, each.remedy) for name, each in ATTACKS.items()
    }
    return {**found, ACTIVE.name: ACTIVE}


def _simulate(speaker: Speaker, question: Question) -> Evidence:
    """The plan of the flags; where it has noise, the same plan without it for comparison; once more with canaries."""
    options = question.simulation
    settings = settings_of(options)
    source = (options[name] for name in ("label", "schema", "image_size", "test"))
    warn_of_programs(speaker, [settings.backbone], [settings.parameters], [settings.method])
    data = open_simulated(speaker, options["dataset"], settings.epsilon, *source)
    one_run = None
    if question.canaries is not None:
        planted = plant(data, settings, _count(question.canaries))
        one_run = audit_canaries(planted.session, planted.canaries, planted.known, level=ONE_RUN_LEVEL)
    with speaker.progress(f"simulating a federation on {data.name}") as progress:
        found = rehearse(data, settings, progress)
    for note in found.notes:
        speaker.say(f"note: {note}")
    levels = [("every client's vector in clear", found.sessions[0], found.knowledge)]
    if math.isfinite(settings.epsilon):
        # Under no protection: others refuse exact slots without a gate.
        exact = rehearse(data, replace(settings, epsilon=math.inf, noise="client", protection=UNPROTECTED))
        levels.append(("the exact sum", exact.sessions[0], exact.knowledge))
    chosen = {"dataset": data.name, **among_settings(options)}
    shown = {name: str(value) for name, value in chosen.items() if value not in (None, 0, "")}
    shown["data_sha256"] = data_sha256(data)
    return Evidence(
        found.sessions,
        found.knowledge,
        shown,
        {},
        levels=tuple(levels),
        one_run=one_run,
        drawn=found.drawn,
        opinion=found.opinion,
        refusals=found.refusals,
    )


def _count(text: str) -> int:
    if not text.isdecimal():
        raise BadInput(f"--canaries {text!r} is no number", remedy="with --simulate say how many; 100, say")
    return int(text)


def _record(speaker: Speaker, question: Question, adversaries: list[Adversary]) -> Evidence:
    """Transcripts, verified before anything is read from them; those of one plan's rounds are one session."""
    with speaker.busy(f"verifying {', '.join(map(str, question.transcripts))}"):
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
    backbone: str | None = question.simulation.get("backbone")
    if question.known or question.public:  # whose features the plan's backbone makes
        warn_of_programs(speaker, [backbone or sessions[0].plan.backbone])
    knowledge = known_of(sessions[0], question.known, question.public, question.records, backbone)
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
    speaker: Speaker, evidence: Evidence, adversaries: list[Adversary], comparisons: Comparisons, seed: int
) -> AuditReport:
    audited = evidence.sessions if evidence.transcripts else evidence.sessions[:1]
    protection = protection_named(audited[0].plan.protection)
    with speaker.steps() as told:
        promise = measure_promise(audited, lambda done, total: told("measuring epsilon on re-releases", done, total))
        promise = add_multiples(add_drawn(promise, evidence.drawn, evidence.opinion), evidence.recorded)
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
        attacks=tuple(_notes().values()),
        examinations=tuple(examinations),
        power=(comparisons.sentence(),),
        limits=limits_of(audited, evidence.refusals, is_simulated=not evidence.transcripts),
        environment=environment(),
        seed=seed,
        comparisons=comparisons,
        levels=tuple(levels),
    )


def _cheat(adversary: Adversary, told: Any) -> Examination:
    finding = malicious_server(lambda done, total: told(ACTIVE.title, done, total))
    return Examination(adversary, adversary.sees, (), (replace(finding, adversary=adversary.name),))


def _at(name: str, session: Session, knowledge: Knowledge, told: Any) -> tuple[Finding, ...]:
    """The compared attacks on one level: by somebody who sees every vector, or by the server."""
    seen = adversary_named("no_protection" if "clear" in name else "curious_server")
    chosen = replace(seen, attacks=tuple(each for each in seen.attacks if each in COMPARED))
    return examine(chosen, (session,), knowledge, told).findings
