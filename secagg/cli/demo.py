"""`secagg demo`: a server and five clients as separate processes, with gRPC, mutual TLS and a real data set."""

from __future__ import annotations

import asyncio
import json
import math
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from methods import method_named, parameters_of, split_method, sums_of
from methods.closed_form.refinement import AUTO
from secagg.agreement.plan import Plan, write_plan
from secagg.agreement.roster import Roster
from secagg.cli.console import Speaker, format_accuracy, read_epsilon, two_columns, warn_of_programs
from secagg.cli.options import CohortOption, MethodOption, ParametersOption, ProtectionOption, RefineOption, option_of
from secagg.data import Dataset, Records, open_dataset, partition
from secagg.encoding import Kind
from secagg.errors import BadInput, SecaggError, SessionAborted
from secagg.experiments.outcome import in_the_sum
from secagg.experiments.reference import is_pooled, pooled_result
from secagg.features.pipeline import Pipeline
from secagg.heads import Evaluation, load_as
from secagg.networks import parse_artifact
from secagg.networks.exported import files_in
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
from secagg.verification.verification import Trust, Verified

if TYPE_CHECKING:
    from threat_models.report.content import AuditReport

EXPAND = 512
ON_DIGITS = "rounds=5 rate=0.5 clip=10"
ON_DIGITS_WITH_NOISE = "rounds=5 rate=1 clip=4 gradients=1"
"""Parameters of a method that trains, in a plan with noise; `gradients=1`: ε is about one record."""


def demo(
    speaker: Speaker,
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
    class_gate: Annotated[int, option_of(PlanChoices, "class_gate")] = 0,
    tolerate: Annotated[int | None, option_of(PlanChoices, "dropouts")] = None,
) -> None:
    """Five members build a digit classifier together; the server sees nothing but sums.

    Where the protection lets a client speak once, each of them uploads and is gone before the next one starts; but with
    a --cohort, which is drawn by all that are there.
    """
    if rounds is not None:
        parameters = f"{parameters} rounds={rounds}"
    method, parameters = split_method(method, parameters)
    more = {"refine": AUTO if refine is None else refine, "class_gate": class_gate, "dropouts": tolerate}
    choices = _choices(method, parameters, expand, cohort=cohort, protection=protection, epsilon=epsilon, **more)
    warn_of_programs(speaker, (), [parameters])
    stage = replace(_set_the_stage(out, clients, choices, speaker), model=next(iter(files_in(parameters)), None))
    speaker.say(f"{clients} members enrolled, plan {stage.plan.digest.hex()[:16]}…, files in {out}/")
    begun = time.perf_counter()
    results = asyncio.run(run_processes(stage, speaker))
    seconds = time.perf_counter() - begun
    artifact, metadata = load_as(Path(results[SERVER]["head"]), parse_artifact)
    inputs = Pipeline.of_metadata(metadata).head_inputs(stage.test.inputs)
    federated = artifact.evaluate(inputs, stage.test.labels)
    transcripts = [Path(path) for path in results[SERVER]["transcripts"]]
    found = verify_together(transcripts, stage.trust)
    for each in found:
        if isinstance(each, SecaggError):
            raise each
    verified = [each for each in found if isinstance(each, Verified)][-1]
    records = {index: read_records(stage.plan, stage.data(name)) for index, name in enumerate(stage.members, start=1)}
    counts = np.bincount(records[1].labels, minlength=len(stage.plan.classes))
    pooled = pooled_result(verified.setup, records).require_artifact().evaluate(inputs, stage.test.labels)
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
    speaker.result(content, *summary(stage, content, federated, pooled, counts[:4].tolist(), told))


def _audited(stage: _DemoFolders, transcripts: tuple[Path, ...], speaker: Speaker) -> dict[str, str]:
    """Audit the sums as two adversaries see them; return the reports' paths and the gate's verdict."""
    from threat_models.audit import AuditRequest, run_audit
    from threat_models.report.content import GateOutcome
    from threat_models.report.html import as_html
    from threat_models.report.json_report import as_json

    page, known = stage.folder / "audit.html", stage.data(stage.members[0])
    adversaries = ("curious_server", "network_observer")
    asked = AuditRequest(transcripts, adversaries, known, stage.data("public"), trust=stage.trust)
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


def _choices(method: str, parameters: str, expand: int | None, **fixed: Any) -> PlanChoices:
    """Return the plan's choices; a method that trains gets parameters for few rounds on digits, unless given."""
    trains = method_named(method).traits.shares_one_model
    choices = PlanChoices(
        purpose="recognise handwritten digits",
        contact="whoever runs this demo",
        retention="until the folder is removed",
        method=method,
        parameters=parameters,
        expand=expand if expand is not None else 0 if trains else EXPAND,
        max_records=2048,
        delta=1e-5,
        adjacency=Adjacency.ADD_REMOVE,
        join_seconds=600,  # over as soon as all are there; a busy machine starts them one by one, slowly
        step_seconds=30,
        **fixed,
    )
    if not trains:
        return choices
    usual = ON_DIGITS if math.isinf(choices.epsilon) else ON_DIGITS_WITH_NOISE
    given = {**parameters_of(method, {}, usual), **choices.method_parameters}
    return replace(choices, parameters=tuple(given.items()), rounds=None)


@contextmanager
def _in_place_of(out: Path, speaker: Speaker) -> Iterator[None]:
    """Remove an earlier demo once the new one is set up; put it back if that is refused, and leave nothing else."""
    earlier = out.with_name(f"{out.name}.earlier")
    if out.exists():
        if any(out.iterdir()) and not (out / "plan.json").exists():
            raise BadInput(f"{out} is not empty and not a demo's folder", remedy="choose another with --out")
        if any(out.iterdir()):
            speaker.say(f"{out}/ holds an earlier demo, which is removed now; --out keeps both")
        out.rename(earlier)
    try:
        yield
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        if earlier.exists():
            earlier.rename(out)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def _set_the_stage(out: Path, clients: int, choices: PlanChoices, speaker: Speaker) -> _DemoFolders:
    """Set up a demo in place of an earlier one."""
    with _in_place_of(out, speaker):
        return _write_stage(out, clients, choices)


def _write_stage(out: Path, clients: int, choices: PlanChoices) -> _DemoFolders:
    """Write certificates, roster, plan, policies and each member's records into folders under `out`."""
    dataset = open_dataset("digits")
    members = tuple(f"clinic-{number}" for number in range(1, clients + 1))
    helpers = protection_named(choices.protection).helper_roles
    create_authority(out / "authority", "demo consortium")
    requests = [create_request(out / SERVER / "tls", SERVER, "server")]
    requests += [create_request(out / name / "tls", name, "client") for name in members]
    requests += [create_request(out / name / "tls", name, role) for name, role in helpers.items()]
    roster = issue(out / "authority", requests)
    for name in (SERVER, *members, *helpers):
        for file in (out / "authority" / "issued" / name).iterdir():
            shutil.copy(file, out / name / "tls")
    data = PublicData(dataset.kind, dataset.train.inputs.shape[1:], dataset.classes, None, dataset.bound)
    plan = make_plan(data, roster, choices, OperatingSystem())
    write_plan(plan, out / "plan.json")
    stage = _DemoFolders(out, members, tuple(helpers), roster, plan, dataset.test or dataset.train)
    _save(stage.data("public"), dataset, stage.test.inputs, stage.test.labels)
    rows = partition(dataset.train.labels, {}, "iid", clients, seed=0)
    for name, chosen in zip(members, rows, strict=True):
        _save(stage.data(name), dataset, dataset.train.inputs[chosen], dataset.train.labels[chosen])
        policy = replace(
            policy_accepting(plan, f"digits of {name}"),
            protections=(plan.protection,),  # "none" too: these are public records
            min_clients_in_sum=min(3, clients),
            minimum_colluders=plan.colluders,
            refinement_without_noise=True,
        )
        (out / name / "policy.toml").write_text(policy.to_toml(), encoding="utf-8")
    return stage


def _save(file: str, dataset: Dataset, images: NDArray[Any], labels: NDArray[np.int64]) -> None:
    Path(file).parent.mkdir(exist_ok=True)
    np.savez(file, images=images, labels=labels, classes=np.array(dataset.classes))


def audit_sentence(report: AuditReport, *, can_promise: bool = True) -> str:
    """Return a sentence on an audit: how many attacks succeeded, and whether that was expected.

    With `can_promise` it may advise a finite ε.
    """
    from threat_models.findings import Verdict

    found = {verdict: [each for each in report.findings if each.verdict is verdict] for verdict in Verdict}
    won, open_ = found[Verdict.SUCCEEDS], len(found[Verdict.INCONCLUSIVE])
    titles = dict.fromkeys(report.note(each.attack).title for each in won)
    lines = report.gate.lines if report.gate is not None else ()
    faulted = {(line.attack, line.adversary) for line in lines if line.outcome == "fail"}
    within = f", within what epsilon = {report.promise.claimed:g} allows"
    if math.isinf(report.promise.claimed) or any((each.attack, each.adversary) in faulted for each in won):
        within = ""
    named = f" ({'; '.join(titles)}{within})" if won else ""
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


def summary(
    stage: _DemoFolders,
    content: dict[str, Any],
    federated: Evaluation,
    pooled: Evaluation,
    first: list[int],
    verified: dict[str, Any],
) -> list[str]:
    """Return the demo's results for one screen: what was built, what the server saw, the audit's result, the files."""
    setup = RoundSetup.of(stage.plan, stage.roster)
    claim, more = setup.facts.claim, f"{setup.rounds - 1} round{'s' if setup.rounds > 2 else ''} more"
    rounds = f", and {more}" if setup.rounds > 1 else ""
    promised = "infinite: no noise, the exact sum is opened"
    if claim is not None:
        promised = f"{claim.epsilon:g} (delta {claim.delta:g}, {claim.unit}, {claim.adjacency})"
    size = f"{setup.sum.layout.length} integers of {setup.context.ring.bits} bits{rounds}"
    where = "on pooled data" if is_pooled(setup) else "in one place"
    built = [
        ("accuracy on held-out data", format_accuracy(federated)),
        (f"accuracy {where}", f"{format_accuracy(pooled)}, without noise"),
        ("clients in the sum", in_the_sum(content["survivors"], content["clients"], stage.plan.cohort)),
        ("bytes per client", f"{content['upload_bytes_per_client']} ({size})"),
        ("epsilon", promised),
    ]
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
        "\n" + two_columns("What was built", built),
        "\n" + two_columns("What the server saw", seen),
        f"\nAn audit of what it saw\n  {content['audit_says']}",
        "\n" + two_columns("Files", files),
    ]


def _received(stage: _DemoFolders, setup: RoundSetup) -> tuple[str, str]:
    """Return a row (receiver, value): the beginning of the first member's upload as its receiver sees it."""
    receiver = setup.protection.deliveries(setup.context)[0].receiver
    name = stage.roster.name(receiver)
    vector = vector_path(stage.session(name), 1).read_bytes()
    if setup.protection.speaks_once:
        return f"{name} received", f"{vector[:24].hex()}… ({len(vector)} bytes, encrypted)"
    ring = setup.context.ring
    shown = ring.decode(ring.unpack(vector[: setup.context.packed_bytes], setup.sum.layout.length)[:4])  # no proofs
    return f"{name} received", ", ".join(str(int(value)) for value in shown)


SERVER = "coordinator"
_START_SECONDS = 60.0


@dataclass(frozen=True)
class _DemoFolders:
    folder: Path
    members: tuple[str, ...]
    helpers: tuple[str, ...]
    roster: Roster
    plan: Plan
    test: Records
    model: str | None = None
    """The file of the exported program that the plan trains; None where it trains none."""

    @property
    def trust(self) -> Trust:
        """The plan and the roster of the demo, as digests that a verification trusts."""
        return Trust((self.plan.digest,), (self.roster.digest,))

    def data(self, name: str) -> str:
        return str(self.folder / name / "records.npz")

    def session(self, name: str) -> Path:
        """Return the folder of a party's first session of the plan."""
        return self.folder / name / "state" / self.plan.digest.hex()[:16]


async def run_processes(stage: _DemoFolders, speaker: Speaker) -> dict[str, dict[str, Any]]:
    """Start every party's process, relay their messages, return their results. Raises SessionAborted when one fails.

    Where clients speak once, each is gone before the next one starts, unless cohorts are drawn by all that are there;
    later all come back for the outcome.
    """
    play = _Play(stage, speaker)
    try:
        await play.start(SERVER, ["server", "--listen", "127.0.0.1:0"])
        server = ["--server", await play.address(SERVER)]
        protection, options = protection_named(stage.plan.protection), list(server)
        listen = ["--listen", "127.0.0.1:0"] if protection.handover is not None else []
        for name in stage.helpers:
            await play.start(name, [protection.helper_role, *listen, *server])
            if listen:
                options += ["--aggregator", f"{name}={await play.address(name)}"]
        if protection.speaks_once and not stage.plan.cohort:
            for name in stage.members:
                await play.start_client(name, options)
                await play.finished([name])
        if protection.speaks_once:
            options.append("--stay")
        for name in stage.members:
            await play.start_client(name, options)
        await play.finished([SERVER, *stage.helpers, *stage.members])
    finally:
        await play.end()
    names = (SERVER, *stage.helpers, *stage.members)
    return {name: json.loads((stage.folder / name / "result.json").read_text()) for name in names}


class _Play:
    def __init__(self, stage: _DemoFolders, speaker: Speaker) -> None:
        self._stage = stage
        self._speaker = speaker
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._talking: list[asyncio.Task[None]] = []
        names = sorted((SERVER, *stage.helpers, *stage.members), reverse=True)  # clinic-12 before clinic-1
        self._names = re.compile("|".join(map(re.escape, names)))
        self._said: set[str] = set()

    async def start(self, name: str, arguments: Iterable[str]) -> None:
        home = self._stage.folder / name
        common = ["--plan", str(self._stage.folder / "plan.json")]
        common += ["--state", str(home / "state"), "--tls", str(home / "tls"), "--json", str(home / "result.json")]
        common += ["--model", self._stage.model] if self._stage.model is not None else []
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "secagg", *arguments, *common),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        self._running[name] = process
        self._talking.append(asyncio.create_task(self._relay(name, process)))

    async def start_client(self, name: str, options: Iterable[str]) -> None:
        policy = str(self._stage.folder / name / "policy.toml")
        await self.start(name, ["client", *options, "--data", self._stage.data(name), "--policy", policy])

    async def address(self, name: str) -> str:
        """Return HOST:PORT of a party, once it listens. Raises SessionAborted when it does not start."""
        file = self._stage.session(name) / "address"
        deadline = time.monotonic() + _START_SECONDS
        while not file.exists():
            if self._running[name].returncode is not None or time.monotonic() > deadline:
                raise SessionAborted(f"{name} did not start; the lines above say why")
            await asyncio.sleep(0.05)
        return file.read_text(encoding="utf-8")

    async def finished(self, names: Iterable[str]) -> None:
        """Wait for processes to end. Raises SessionAborted when one has failed."""
        codes = {name: await self._running[name].wait() for name in names}
        if failed := [name for name, code in codes.items() if code != 0]:
            raise SessionAborted(f"{', '.join(failed)} failed; the lines above say why")

    async def end(self) -> None:
        """Kill the processes that still run, and relay all that they have written."""
        for process in self._running.values():
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*self._talking)

    async def _relay(self, name: str, process: asyncio.subprocess.Process) -> None:
        if process.stderr is None:
            return
        async for line in process.stderr:
            said = line.decode(errors="replace").rstrip()
            if self._is_new(said):
                self._speaker.say(f"{name} (process {process.pid}): {said}")

    def _is_new(self, said: str) -> bool:
        """Return whether no equal line, apart from party names, came before: what all parties do is printed once."""
        alike = self._names.sub("", said)
        is_new = alike not in self._said
        self._said.add(alike)
        return is_new
