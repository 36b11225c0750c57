"""`secagg audit`: measure what an adversary could have learnt, from recorded transcripts or a simulated plan."""

from __future__ import annotations

import inspect
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secagg.cli.console import Speaker, give_options, refuse_unwritable
from secagg.cli.options import (
    DataSource,
    ModelOption,
    OwnKeysOption,
    PluginOption,
    TrustedPlansOption,
    TrustedRostersOption,
    gather,
)
from secagg.cli.simulate import simulate
from secagg.errors import BadInput
from secagg.experiments.settings import SimulationSettings
from secagg.system.extras import extra
from secagg.verification.verification import Trust
from threat_models.adversary import USUAL

if TYPE_CHECKING:
    from threat_models.report.content import AuditReport

_OF_TRANSCRIPTS = {"known", "public", "records"}
_OF_EXPERIMENTS = {"noise_seed", "reference", "processes", "keep", "save"}
"""Options of `simulate` that `audit` lacks: known noise would hide nothing, and nothing is compared or resumed."""
_OF_BOTH = {"backbone", "formats", "json_to", "quiet"}
"""Options of `simulate` that audits of transcripts have too; `backbone` is then the file of the plan's backbone."""


def audit(
    context: typer.Context,
    transcripts: Annotated[
        list[Path] | None, typer.Argument(help="transcript.log of a party, with its files beside it; none to simulate.")
    ] = None,
    threat_model: Annotated[
        list[str] | None,
        typer.Option("--threat-model", help=f"Several allowed; `attacks` names all. Default: {', '.join(USUAL)}."),
    ] = None,
    simulated: Annotated[
        bool, typer.Option("--simulate", help="Simulate the plan of the flags of simulate, and audit it.")
    ] = False,
    known: Annotated[
        str | None, typer.Option(help="Records that took part, for membership tests and for scoring.")
    ] = None,
    public: Annotated[
        str | None, typer.Option(help="Records of the same population as --known that took no part.")
    ] = None,
    records: Annotated[
        int | None, typer.Option(min=1, help="How many records took part in all, where that is public.")
    ] = None,
    canaries: Annotated[
        str | None,
        typer.Option(help="Epsilon from one run: how many to plant with --simulate, else the file of `canaries`."),
    ] = None,
    plans: TrustedPlansOption = None,
    rosters: TrustedRostersOption = None,
    tls: OwnKeysOption = None,
    _: ModelOption = None,
    plugin: PluginOption = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            "--attack",
            metavar="FILE.py:NAME",
            help="An attack of your own beside each adversary's, whose code runs; several allowed.",
        ),
    ] = None,
    gate: Annotated[Path | None, typer.Option(help="Pass rules (TOML); default: the packaged ones.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as one page.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write the findings as SARIF 2.1.0.")] = None,
    auditor: Annotated[str, typer.Option(help="Who audits, for the report's first page.")] = "",
    against: Annotated[
        Path | None, typer.Option(help="An earlier audit's JSON of this session: the report says what changed since.")
    ] = None,
    across_sessions: Annotated[
        bool,
        typer.Option("--across-sessions", help="Let --against be of another session, plan, members or simulation."),
    ] = False,
    **options: Any,
) -> None:
    """Measure what an adversary could have learnt from what it really saw.

    Exit codes: 0 the gate passes, 1 it fails, 3 a transcript does not verify, 4 the audit could not tell.
    """
    speaker = Speaker(quiet=options["quiet"], json_to=options["json_to"])
    for path in filter(None, (html, sarif)):
        refuse_unwritable(path)
    if simulated and (plans or rosters or tls):
        problem = "--plan, --roster and --tls are held against transcripts"
        raise BadInput(problem, remedy="leave them out with --simulate")
    if simulated == bool(transcripts):
        raise BadInput("say what to audit", remedy="give a transcript, or --simulate with its flags, not both")
    _refuse_idle(context, simulated)
    with extra("audit"):
        from threat_models.audit import AuditRequest, Simulation, run_audit  # loads what no other command needs
    simulation = None
    if simulated:
        settings = gather(SimulationSettings, options)
        simulation = Simulation(gather(DataSource, options).open(speaker.say, settings.epsilon), settings)
    request = AuditRequest(
        tuple(transcripts or ()),
        tuple(threat_model or USUAL),
        known,
        public,
        records,
        canaries,
        gate,
        tuple(attack or ()),
        options["seed"],
        simulation,
        options["backbone"],
        Trust.in_files(plans or (), rosters or (), tls or ()),
        auditor,
        against,
        across_sessions,
    )
    done = run_audit(request, speaker)
    _write(done.report, html, sarif, speaker)
    raise typer.Exit(done.exit_code)


def _write(report: AuditReport, html: Path | None, sarif: Path | None, speaker: Speaker) -> None:
    from threat_models.report.html import as_html
    from threat_models.report.json_report import as_json
    from threat_models.report.sarif import as_sarif
    from threat_models.report.summary import as_text

    if html is not None:
        html.write_text(as_html(report), encoding="utf-8", errors="backslashreplace")
    if sarif is not None:
        sarif.write_text(as_sarif(report, version("secagg")), encoding="utf-8")
    for written in filter(None, (html, sarif)):
        speaker.say(f"wrote {written}")
    speaker.text(as_json(report), as_text(report))


def _refuse_idle(context: typer.Context, simulated: bool) -> None:
    """Raise BadInput for options that would be ignored: those of simulations with a transcript, and the reverse."""
    if context.params["across_sessions"] and not context.params["against"]:
        raise BadInput("--across-sessions goes with --against", remedy="give the earlier audit's JSON too")
    idle = _OF_TRANSCRIPTS if simulated else set(inspect.signature(simulate).parameters) - _OF_BOTH
    given = [
        max(each.opts, key=len)
        for each in context.command.params
        if each.name in idle and getattr(context.get_parameter_source(each.name), "name", "") == "COMMANDLINE"
    ]
    if not given:
        return
    named, verb = ", ".join(sorted(given)), "goes" if len(given) == 1 else "go"
    if simulated:
        raise BadInput(f"{named} {verb} with a transcript", remedy="leave them out: a simulation knows its records")
    problem = f"{named} {verb} with --simulate: a transcript's session is over"
    remedy = "leave them out, and have the next plan made with them (`secagg plan new --class-gate K`, say)"
    raise BadInput(problem, remedy=remedy)


_own = inspect.signature(audit, eval_str=True).parameters.values()
_simulated = (each for each in inspect.signature(simulate).parameters.values() if each.name not in _OF_EXPERIMENTS)
give_options(audit, [*(each for each in _own if each.name != "options"), *_simulated])
