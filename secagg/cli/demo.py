"""`secagg demo`: one server and five clients as processes of their own, real gRPC and mutual TLS, a real data set."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from methods import method_named, parameters_of, sums_of
from methods.closed_form.refinement import AUTO
from secagg.agreement.plan import write_plan
from secagg.agreement.roster import Roster
from secagg.cli.console import JsonOption, QuietOption, Speaker, to_epsilon, warn_of_programs
from secagg.cli.demo_summary import audit_sentence, summary
from secagg.cli.options import CohortOption, MethodOption, ParametersOption, ProtectionOption, RefineOption
from secagg.cli.processes import SERVER, Stage, run_processes
from secagg.data import Dataset, open_dataset, partition
from secagg.errors import BadInput, SecaggError
from secagg.experiments.reference import pooled_result
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
from secagg.transport.enrolment import create_authority, create_request, issue
from secagg.verification.transcript_series import verify_together
from secagg.verification.trust_anchors import Trust
from secagg.verification.verification import Verified

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
        float, typer.Option(parser=to_epsilon, help="For one record, add-remove, delta 1e-5; inf: no noise.")
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
    choices = replace(_choices(method, expand, protection, epsilon), cohort=cohort, rounds=rounds)
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
    """What the server's transcript of the last sum proves, held against those of the sums before it."""
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
    """What `pki init`, `pki request` and `pki issue` do, for everyone; `seconds` are names and roles."""
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
            minimum_cohort=min(3, len(rows)),
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
