"""`secagg demo`: one server and five clients as processes of their own, real gRPC and mutual TLS, a real data set."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from methods import method_named, sums_of
from methods.closed_form.refinement import AUTO
from methods.parameters import parameters_of
from secagg.agreement.plan import write_plan
from secagg.agreement.roster import Roster
from secagg.cli.console import (
    JsonOption,
    QuietOption,
    Speaker,
    format_accuracy,
    read_epsilon,
    two_columns,
    warn_of_programs,
)
from secagg.cli.options import CohortOption, MethodOption, ParametersOption, ProtectionOption, RefineOption
from secagg.cli.processes import SERVER, Stage, run_processes
from secagg.data import Dataset, open_dataset, partition
from secagg.encoding import Kind
from secagg.errors import BadInput, SecaggError
from secagg.experiments.outcome import in_the_sum
from secagg.experiments.reference import is_pooled, pooled_result
from secagg.features.pipeline import Pipeline
from secagg.heads import Evaluation, load_as
from secagg.networks import files_in, parse_artifact
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.plan_facts.records import read_records
from secagg.privacy import Adjacency
from secagg.protection import USUAL, protection_named
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from secagg.session.staging import vector_path
from secagg.transport.enrolment import create_authority, create_request, issue
from secagg.verification.transcript_series import verify_together
from secagg.verification.trust_anchors import Trust
from secagg.verification.verification import Verified

if TYPE_CHECKING:
    from threat_models.findings import Finding
    from threat_models.report.content import AuditReport

EXPAND = 512
ON_DIGITS = "rounds=5 rate=0.5 clip=10"
ON_DIGITS_WITH_NOISE = "rounds=5 rate=1 clip=4 gradients=1"
"""For a method that trains; with noise so that the promise is about a record."""


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for everything that the demo writes; an earlier demo in it is removed.")
    ] = Path("secagg-demo"),
    clients: Annotated[int, typer.Option(min=2, max=50, help="Number of client processes.")] = 5,
    method: MethodOption = "fedcgs",
    parameters: ParametersOption = "",
    rounds: Annotated[int | None, typer.Option(min=1, help="The same as rounds=N among the parameters.")] = None,
    expand: Annotated[
        int | None, typer.Option(min=0, help="Random ReLU features; 0 is off, as where a model is trained; else 512.")
    ] = None,
    cohort: CohortOption = 0,
    protection: ProtectionOption = USUAL,
    epsilon: Annotated[
        float, typer.Option(parser=read_epsilon, help="For one record, add-remove, delta 1e-5; inf: no noise.")
    ] = math.inf,
    refine: RefineOption = 0,
    json_to: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Five members build a digit classifier together; the server sees nothing but sums.

    Where the protection lets a client speak once, each of them uploads and is gone before the next one starts; but with
    a --cohort, which is drawn by all that are there.
    """
    speaker = Speaker(quiet=quiet, json_to=json_to)
    choices = replace(_choices(method, expand, protection, epsilon), cohort=cohort)
    if rounds is not None:
        parameters = f"{parameters} rounds={rounds}"
    choices = _with_training(replace(choices, parameters=parameters, refine=AUTO if refine is None else refine))
    warn_of_programs(speaker, (), [parameters])
    stage = replace(_set_the_stage(out, clients, choices, speaker), model=next(iter(files_in(parameters)), None))
    speaker.say(f"{clients} members enrolled, plan {stage.plan.digest.hex()[:16]}…, files in {out}/")
    begun = time.perf_counter()
    results = asyncio.run(run_processes(stage, speaker))
    seconds = time.perf_counter() - begun
    federated = _accuracy(stage, Path(results[SERVER]["head"]))
    transcripts = [Path(path) for path in results[SERVER]["transcripts"]]
    verified = _verified(stage, transcripts)
    pooled, first = _pooled(stage, verified.setup)
    told = verified.findings
    content = {
        "accuracy": federated.accuracy,
        "accuracy_pooled": pooled.accuracy,
        "clients": clients,
        "survivors": results[SERVER]["survivors"],
        "upload_bytes_per_client": results[stage.members[0]]["sent_bytes"],
        "seconds": {**results[SERVER]["seconds"], "all processes": seconds},
        "promise": results[SERVER]["promise"],
        "aggregate_sha256": results[SERVER]["aggregate_sha256"],
        "verified": told["verdict"],
        "proves": told["proves"],
        **{name: results[SERVER][name] for name in ("head", "head_torch", "aggregate", "transcript")},
        **_audited(stage, tuple(transcripts), speaker),
    }
    (out / "report.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    speaker.result(content, *summary(stage, content, federated, pooled, first, told))


def _verified(stage: Stage, transcripts: list[Path]) -> Verified:
    """Verify the server's transcripts together; return what that of the last sum proves."""
    found = verify_together(transcripts, _trust(stage))
    for each in found:
        if isinstance(each, SecaggError):
            raise each
    return [each for each in found if isinstance(each, Verified)][-1]


def _trust(stage: Stage) -> Trust:
    """The demo knows plan and roster: it has made them."""
    return Trust((stage.plan.digest,), (stage.roster.digest,))


def _audited(stage: Stage, transcripts: tuple[Path, ...], speaker: Speaker) -> dict[str, str]:
    """What two adversaries could have learnt from the sums; the reports' places, and what the gate says."""
    from threat_models.audit import AuditRequest, run_audit
    from threat_models.report.content import GateOutcome
    from threat_models.report.html import as_html
    from threat_models.report.json_report import as_json

    page, known = stage.folder / "audit.html", stage.data(stage.members[0])
    adversaries = ("curious_server", "network_observer")
    asked = AuditRequest(transcripts, adversaries, known, stage.data("public"), trust=_trust(stage))
    report = run_audit(asked, speaker).report
    page.write_text(as_html(report), encoding="utf-8", errors="backslashreplace")
    speaker.say(f"wrote {page}")
    (stage.folder / "audit.json").write_text(as_json(report), encoding="utf-8")
    verdict = "none"
    if report.gate is not None:
        bad = [line.sentence for line in report.gate.lines if line.outcome is not GateOutcome.PASS]
        verdict = ": ".join([str(report.gate.outcome), *(["; ".join(bad)] if bad else [])])
    return {
        "audit": str(page),
        "audit_gate": verdict,
        "audit_found": report.headline(),
        "audit_says": audit_sentence(report, can_promise=not any(kind.refusal for kind in sums_of(stage.plan))),
    }


def _with_training(choices: PlanChoices) -> PlanChoices:
    """The choices; where a method trains, with parameters by which few rounds get far on digits, unless given."""
    if not method_named(choices.method).traits.shares_one_model:
        return choices
    usual = ON_DIGITS if math.isinf(choices.epsilon) else ON_DIGITS_WITH_NOISE
    given = {**parameters_of(choices.method, {}, usual), **choices.method_parameters}
    return replace(choices, parameters=tuple(given.items()), rounds=None)


def _choices(method: str, expand: int | None, protection: str, epsilon: float) -> PlanChoices:
    usual = 0 if method_named(method).traits.shares_one_model else EXPAND
    return PlanChoices(
        purpose="recognise handwritten digits",
        method=method,
        expand=usual if expand is None else expand,
        max_records=2048,
        protection=protection,
        epsilon=epsilon,
        delta=1e-5,
        adjacency=Adjacency.ADD_REMOVE,
        join_seconds=600,  # over as soon as all are there; a busy machine starts them one by one, slowly
        step_seconds=30,
    )


def _set_the_stage(out: Path, clients: int, choices: PlanChoices, speaker: Speaker) -> Stage:
    """Certificates, roster, plan, policies and each member's own records."""
    if out.exists():
        if any(out.iterdir()) and not (out / "plan.json").exists():
            raise BadInput(f"{out} is not empty and not a demo's folder", remedy="choose another with --out")
        if any(out.iterdir()):
            speaker.say(f"{out}/ holds an earlier demo, which is removed now; --out keeps both")
        shutil.rmtree(out)
    dataset = open_dataset("digits")
    members = tuple(f"clinic-{number}" for number in range(1, clients + 1))
    seconds = protection_named(choices.protection).second_roles
    roster = _enrol(out, members, seconds)
    data = PublicData(dataset.kind, dataset.train.inputs.shape[1:], dataset.classes, None, dataset.bound)
    plan = make_plan(data, roster, choices, OperatingSystem())
    write_plan(plan, out / "plan.json")
    stage = Stage(out, members, tuple(seconds), roster, plan, dataset.test or dataset.train)
    _hand_out(stage, dataset)
    return stage


def _save(file: str, dataset: Dataset, images: NDArray[Any], labels: NDArray[np.int64]) -> None:
    Path(file).parent.mkdir(exist_ok=True)
    np.savez(file, images=images, labels=labels, classes=np.array(dataset.classes))


def _enrol(out: Path, members: tuple[str, ...], seconds: Mapping[str, str]) -> Roster:
    """Enrol every party as `pki init`, `pki request` and `pki issue` do; `seconds` are names and roles."""
    create_authority(out / "authority", "demo consortium")
    requests = [create_request(out / SERVER / "tls", SERVER, "server")]
    requests += [create_request(out / name / "tls", name, "client") for name in members]
    requests += [create_request(out / name / "tls", name, role) for name, role in seconds.items()]
    roster = issue(out / "authority", requests)
    for name in (SERVER, *members, *seconds):
        for file in (out / "authority" / "issued" / name).iterdir():
            shutil.copy(file, out / name / "tls")
    return roster


def _hand_out(stage: Stage, dataset: Dataset) -> None:
    """Give every member its own records and its policy."""
    plan = stage.plan
    _save(stage.data("public"), dataset, stage.test.inputs, stage.test.labels)
    rows = partition(dataset.train.labels, {}, "iid", len(stage.members), seed=0)
    for name, chosen in zip(stage.members, rows, strict=True):
        _save(stage.data(name), dataset, dataset.train.inputs[chosen], dataset.train.labels[chosen])
        policy = replace(
            policy_accepting(plan, f"digits of {name}"),
            protections=(plan.protection,),  # "none" too: these are public records
            min_clients_in_sum=min(3, len(rows)),
            minimum_colluders=plan.colluders,
            refinement_without_noise=True,
        )
        (stage.folder / name / "policy.toml").write_text(policy.to_toml(), encoding="utf-8")


def _accuracy(stage: Stage, head: Path) -> Evaluation:
    artifact, metadata = load_as(head, parse_artifact)
    return artifact.evaluate(Pipeline.of_metadata(metadata).head_inputs(stage.test.inputs), stage.test.labels)


def _pooled(stage: Stage, setup: RoundSetup) -> tuple[Evaluation, list[int]]:
    """What all records in one place would have given without noise, and one member's first true counts.

    With cohorts: what theirs would have given, as the session `setup` tells who they were.
    """
    records = {index: read_records(setup.plan, stage.data(name)) for index, name in enumerate(stage.members, start=1)}
    inputs = Pipeline.of_plan(stage.plan).head_inputs(stage.test.inputs)
    counts = np.bincount(records[1].labels, minlength=len(stage.plan.classes))
    artifact = pooled_result(setup, records).require_artifact()
    return artifact.evaluate(inputs, stage.test.labels), [int(value) for value in counts[:4]]


def audit_sentence(report: AuditReport, *, can_promise: bool = True) -> str:
    """Sum up the audit beside what was to be expected; `can_promise`: a demo of this plan takes a finite ε."""
    from threat_models.findings import Verdict

    found = {verdict: [each for each in report.findings if each.verdict is verdict] for verdict in Verdict}
    won, open_ = found[Verdict.SUCCEEDS], len(found[Verdict.INCONCLUSIVE])
    titles = dict.fromkeys(report.note(each.attack).title for each in won)
    named = f" ({'; '.join(titles)}{_within(report, won)})" if won else ""
    worked = len(report.findings) - len(found[Verdict.NOT_APPLICABLE])
    tried = f"of {worked} attacks that can work on it {len(won)} succeed{'s' if len(won) == 1 else ''}{named}"
    tried += f" and {open_} stay{'s' if open_ == 1 else ''} inconclusive"
    if math.isinf(report.promise.claimed):
        unsure = open_ or report.subject.unread or report.subject.half_read
        none = "and these attacks cannot tell" if unsure else "though these attacks find no use for it"
        expected = "as expected" if won else none
        advice = " --epsilon 4 adds a promise." if can_promise else ""
        return f"An exact sum promises nothing about a record, {expected}: {tried}.{advice}"
    verdict = f"; the default gate says: {report.gate.outcome}" if report.gate is not None else ""
    return f"The sum promises epsilon {report.promise.claimed:g}: {tried}{verdict}."


def _within(report: AuditReport, won: Sequence[Finding]) -> str:
    """That successes are no more than the promise allows, where there is one and the gate faults none of them."""
    lines = report.gate.lines if report.gate is not None else ()
    faulted = {(line.attack, line.adversary) for line in lines if line.outcome == "fail"}
    if math.isinf(report.promise.claimed) or any((each.attack, each.adversary) in faulted for each in won):
        return ""
    return f", within what epsilon = {report.promise.claimed:g} allows"


def summary(
    stage: Stage,
    content: dict[str, Any],
    federated: Evaluation,
    pooled: Evaluation,
    first: list[int],
    verified: dict[str, Any],
) -> list[str]:
    """One screen: what was built, what the server saw, what an audit says of that, and where everything lies."""
    setup = RoundSetup.of(stage.plan, stage.roster)
    learned = f"{setup.rounds} sums, the last" if setup.rounds > 1 else "the sum"
    has_counts = setup.sum.layout.blocks[0].kind is Kind.COUNTS
    seen = [
        *([(f"{stage.members[0]}'s counts begin", ", ".join(map(str, first)))] if has_counts else []),
        *([] if stage.plan.cohort else [_received(stage, setup)]),
        ("the server learned", f"{learned} of {content['survivors']} vectors, SHA-256 {content['aggregate_sha256']}"),
        ("its transcript", f"{verified['verdict']}; countersigned by {len(verified['countersigned_by'])} members"),
        ("it proves", verified["proves"]),
    ]
    files = [
        ("the model" if setup.method.traits.shares_one_model else "the head", content["head"]),
        ("the server's transcript", content["transcript"]),
        ("the plan", str(stage.folder / "plan.json")),
        ("the audit's page", content["audit"]),
        ("this and more", str(stage.folder / "report.json")),
    ]
    return [
        "\n" + two_columns("What was built", _built(stage, content, federated, pooled)),
        "\n" + two_columns("What the server saw", seen),
        f"\nAn audit of what it saw\n  {content['audit_says']}",
        "\n" + two_columns("Files", files),
    ]


def _built(stage: Stage, content: dict[str, Any], federated: Evaluation, pooled: Evaluation) -> list[tuple[str, str]]:
    """The head's accuracy, what it cost, and what is promised."""
    setup = RoundSetup.of(stage.plan, stage.roster)
    claim, cohort = setup.facts.claim, stage.plan.cohort
    more = f"{setup.rounds - 1} round{'s' if setup.rounds > 2 else ''} more"
    rounds = f", and {more}" if setup.rounds > 1 else ""
    promised = "infinite: no noise, the exact sum is opened"
    if claim is not None:
        promised = f"{claim.epsilon:g} (delta {claim.delta:g}, {claim.unit}, {claim.adjacency})"
    size = f"{setup.sum.layout.length} integers of {setup.context.ring.bits} bits{rounds}"
    return [
        ("accuracy on held-out data", format_accuracy(federated)),
        (
            f"accuracy {'on pooled data' if is_pooled(setup) else 'in one place'}",
            f"{format_accuracy(pooled)}, without noise",
        ),
        ("clients in the sum", in_the_sum(content["survivors"], content["clients"], cohort)),
        ("bytes per client", f"{content['upload_bytes_per_client']} ({size})"),
        ("epsilon", promised),
    ]


def _received(stage: Stage, setup: RoundSetup) -> tuple[str, str]:
    """Show the same place of the first member's upload, and its receiver."""
    receiver = setup.protection.deliveries(setup.context)[0].receiver
    name = stage.roster.name(receiver)
    vector = vector_path(stage.session(name), 1).read_bytes()
    if setup.protection.speaks_once:
        return f"{name} received", f"{vector[:24].hex()}… ({len(vector)} bytes, encrypted)"
    ring = setup.context.ring
    shown = ring.decode(ring.unpack(vector, setup.sum.layout.length)[:4])
    return f"{name} received", ", ".join(str(int(value)) for value in shown)
