"""`secagg plan`: write, explain and check a plan; write a policy for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from methods import method_named
from methods.closed_form.refinement import AUTO, refuse_unasked, why_none
from secagg.agreement.plan import read_plan, write_plan
from secagg.agreement.policy import limits_text, read_limits, read_policy
from secagg.agreement.roster import read_roster
from secagg.agreement.schema import load_schema
from secagg.cli.budget import budget_content, budget_rows
from secagg.cli.console import QuietOption, Speaker, refuse_unwritable, two_columns, warn_of_programs
from secagg.cli.options import (
    BackboneFileOption,
    FormatOption,
    ModelFileOption,
    ModelOption,
    PlanOption,
    PluginOption,
    with_settings,
)
from secagg.cli.plan_approval import approvals, sign
from secagg.data import open_dataset
from secagg.errors import BadInput
from secagg.features.opening import remark_on
from secagg.federation import release_of, releases_in
from secagg.ledger.spending import account_of, refuse_overspending
from secagg.plan_facts.explanation import doubts_of, explain, group_epsilons
from secagg.plan_facts.plan_page import PlanPage, page_of
from secagg.plan_facts.planning import PlanChoices, PublicData, fixed_by, make_plan
from secagg.plan_facts.policy_writing import admit_listed, policy_accepting, policy_within
from secagg.plan_facts.records import read_records
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from secagg.system.plugins import is_planned
from secagg.transport.register import read_current_roster
from secagg.wire import plain

if TYPE_CHECKING:
    from secagg.experiments.choosing import ProtectionOffer

app = typer.Typer(help="Write, explain, check and countersign the plan of a session.", no_args_is_help=True)
app.command("sign")(sign)
app.command("approvals")(approvals)

RosterOption = Annotated[Path, typer.Option("--roster", help="The consortium's roster.json.")]
WIDTH = 100
"""The most characters of a line of a plan's page in a terminal."""


def _refuse_validation(share: float) -> None:
    """Raise BadInput for --validate: accuracy on members' records is a release that no plan's ε covers."""
    if share:
        problem = "validation on members' records is a release that no plan's epsilon covers"
        raise BadInput(problem, remedy="choose by secagg simulate --validate, on public data")


ValidateOption = typer.Option("--validate", hidden=True, callback=_refuse_validation)


@app.command("new")
@with_settings("pipeline", min_clients_in_sum=3)
def new(
    speaker: Speaker,
    context: typer.Context,
    roster: RosterOption,
    out: Annotated[Path, typer.Option("--out", help="Where to write the plan.")],
    choices: PlanChoices,
    schema: Annotated[
        str | None, typer.Option(help="Tables: a schema file, or a packaged one (heart-disease).")
    ] = None,
    like: Annotated[
        str | None, typer.Option(help="Images or features: PUBLIC data of the same shape and classes.")
    ] = None,
    classes: Annotated[str | None, typer.Option(help="With --shape: class names, comma-separated.")] = None,
    shape: Annotated[str | None, typer.Option(help="One record: 8x8 or 32x32x3 for images, 512 for features.")] = None,
    _: Annotated[float, ValidateOption] = 0.0,
    formats: FormatOption = None,
    explain_all: Annotated[
        bool, typer.Option("--explain", help="Compare all protections for this plan, measured on this machine.")
    ] = False,
) -> None:
    """Write the plan of a fresh session. Nothing of it may come from private data."""
    refuse_unwritable(out, new=True)
    source = context.get_parameter_source("refine")
    rounds_are_asked = (source is not None and source.name == "COMMANDLINE") or "refine=" in choices.parameters
    by_rule = choices.refine is None and "refine" in method_named(choices.method).parameters
    choices = replace(choices, refine=AUTO if by_rule else choices.refine)
    members, data = read_current_roster(roster), _public_data(schema, like, classes, shape)
    warn_of_programs(speaker, [choices.backbone], [str(choices.parameters)], [choices.method])
    setup = RoundSetup.of(make_plan(data, members, choices, OperatingSystem()), members)
    if not choices.purpose.strip():
        raise BadInput("the plan states no purpose", remedy='say what its result may be used for: --purpose "…"')
    rounds = setup.plan.method_parameters.get("refine")
    if rounds and not rounds_are_asked:
        uploads = tuple(kind.upload_bytes for kind in setup.facts.kinds)
        refuse_unasked(rounds, uploads, len(setup.protection.steps), setup.plan.step_seconds)
    write_plan(setup.plan, out)
    others: Sequence[ProtectionOffer] = ()
    if explain_all:
        from secagg.experiments.choosing import compare

        with speaker.busy("measuring one client under every protection"):
            others = compare(data, members, choices)
    _explain(speaker, setup, others)
    for doubt in doubts_of(setup.facts):
        speaker.say(f"WARNING: {doubt}")
    if unstated := [f"no {name} (--{name})" for name in ("contact", "retention") if not getattr(choices, name)]:
        speaker.say(f"note: the plan states {' and '.join(unstated)}, which those who sign it will ask for")
    if not setup.plan.has_noise and (choices.delta, choices.adjacency) != (None, None):
        speaker.say("note: without a finite --epsilon the sums are exact: --delta and --adjacency promise nothing")
    if by_rule and rounds == 0:
        fixed = fixed_by(setup.plan, setup.plan.epsilon, len(setup.context.clients))
        speaker.say(f"--refine auto: no rounds, since {why_none(fixed)}")
    speaker.say(f"wrote {out}; give it to every member")
    speaker.say(
        f"compare the plan SHA-256 {setup.plan.digest.hex()} (of its canonical bytes; not what sha256sum prints)"
    )


def _public_data(schema: str | None, like: str | None, classes: str | None, shape: str | None) -> PublicData:
    if sum((schema is not None, like is not None, shape is not None)) != 1:
        raise BadInput("say what the records are", remedy="give one of --schema, --like and --shape")
    if schema is not None:
        return PublicData.of_schema(load_schema(schema))
    if like is not None:
        data = open_dataset(like)
        if data.schema is not None:
            return PublicData.of_schema(data.schema)
        return PublicData(data.kind, data.train.inputs.shape[1:], data.classes, None, data.bound)
    names = tuple(name.strip() for name in (classes or "").split(",") if name.strip())
    try:
        sizes = tuple(int(size) for size in str(shape).split("x"))
    except ValueError:
        raise BadInput(f"{shape!r} is no shape", remedy="write 28x28 or 512") from None
    return PublicData.of_shape(sizes, names)


@app.command("show")
def show(
    speaker: Speaker,
    plan: PlanOption,
    roster: RosterOption,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write it as a page to print and to sign.")
    ] = None,
    _: ModelOption = None,
    plugin: PluginOption = None,
) -> None:
    """Explain a plan: a page in plain words for those who answer for the data, then a technical part with the proofs.

    Both follow from the plan and its roster alone: who signs the plan's SHA-256 (plan sign) has signed this page.
    """
    if html is not None:
        refuse_unwritable(html)
    setup = RoundSetup.of(read_plan(plan), read_roster(roster))
    _explain(speaker, setup)
    if html is not None:
        from secagg.cli.page import plan_document  # with what draws the other pages

        html.write_text(plan_document(page_of(setup.facts), _technical(setup)), encoding="utf-8")
        speaker.say(f"wrote {html}: print it, and sign it below the plan's SHA-256")


@app.command("check")
def check(
    speaker: Speaker,
    plan: PlanOption,
    roster: RosterOption,
    policy: Annotated[Path, typer.Option("--policy", help="The member's policy.")],
    state: Annotated[
        Path | None, typer.Option("--state", help="Also ask the ledger in this folder whether it fits.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Also check that this data fits the plan.")] = None,
    backbone: BackboneFileOption = None,
    model: ModelFileOption = None,
    plugin: PluginOption = None,
    formats: FormatOption = None,
) -> None:
    """Check a plan against a policy, a ledger and data; a refusal names every violated line."""
    chosen, own = read_plan(plan), read_policy(policy)
    admit_listed(model, chosen, own)
    setup = RoundSetup.of(chosen, read_roster(roster))
    setup.facts.check(own)
    content: dict[str, Any] = {"plan": chosen.digest.hex(), "accepted": True}
    lines = ["the policy accepts the plan; the ledger was not asked: give --state"]
    if state is not None:
        releases, release = releases_in(state), release_of(setup.facts, own.data_name)
        refuse_overspending(releases, release, own.budget)
        account = account_of(releases, release, own.data_name, own.budget)
        lines = ["policy and ledger accept the plan", two_columns("Budget", budget_rows(account, own.data_name))]
        content["budget"] = budget_content(account, own.data_name)
    if data is not None:
        records = read_records(setup.plan, data, backbone)
        bad = f", {records.bad} of which count for nothing" if records.bad else ""
        lines.append(f"{data}: {len(records)} records fit the plan{bad}")
    speaker.result(content, *lines)


def _technical(setup: RoundSetup) -> list[tuple[str, str]]:
    """Return the rows of a plan's technical part."""
    rows = explain(setup.facts)
    if remark := remark_on(setup.plan.backbone):
        rows.insert([name for name, _ in rows].index("features") + 1, ("backbone", remark))
    return rows


def _explain(speaker: Speaker, setup: RoundSetup, others: Sequence[ProtectionOffer] = ()) -> None:
    page, rows = page_of(setup.facts), _technical(setup)
    context, groups = setup.context, plain(group_epsilons(setup.facts))
    content = {"plan_sha256": setup.plan.digest.hex(), "ring": context.ring.bits, "vector_length": context.length}
    content |= {"epsilon_of_records": groups, "page": {each.title: list(each.lines) for each in page.sections}}
    tables = [two_columns(f"Protection {each.protection}", each.rows()) for each in others]
    compared = {"protections": [asdict(each) for each in others]} if others else {}
    technical = two_columns("Technical part", rows)
    speaker.result({**content, "explained": dict(rows), **compared}, *_lines_of(page), technical, *tables)


def _lines_of(page: PlanPage) -> list[str]:
    """Return the page as lines for a terminal."""
    lines = [page.title, f"Plan SHA-256 {page.digest}", ""]
    for section in page.sections:
        wrapped = (fill(line, WIDTH, break_long_words=False, break_on_hyphens=False, initial_indent="  ",
                        subsequent_indent="    ") for line in section.lines)  # fmt: skip
        lines += [section.title, *wrapped, ""]
    return lines


@app.command("policy")
def write_policy(
    plan: PlanOption,
    data_name: Annotated[str, typer.Option(help="What your ledger calls this data set.")],
    out: Annotated[Path, typer.Option("--out", help="Where to write the policy.")],
    limits: Annotated[
        Path | None, typer.Option("--limits", help="The consortium's limits, or your own policy of an earlier plan.")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Write a policy that trusts this plan's roster and code, for you to read and tighten.

    With --limits it concedes what these do, and nothing because the plan asks for it: see plan check.
    """
    refuse_unwritable(out, new=True)
    agreed, speaker = read_plan(plan), Speaker(quiet=quiet)
    if limits is None:
        policy = policy_accepting(agreed, data_name)
        speaker.say(
            "note: roster, code and cost are what this plan asks for, all else is a default, which may refuse it (plan "
            "check says); --limits takes those of your consortium"
        )
    else:
        policy = policy_within(read_limits(limits), agreed, data_name)
    out.write_text(policy.to_toml(), encoding="utf-8")
    if is_planned(agreed.method) and agreed.method in policy.methods:
        speaker.say(f"WARNING: the policy lists {agreed.method}, code that would run with your rights: read it first")
    speaker.say(f"wrote {out}: read it, it decides what this member ever agrees to")


@app.command("limits")
def write_limits(
    out: Annotated[Path, typer.Option("--out", help="Where to write them.")], quiet: QuietOption = False
) -> None:
    """Write what members accept at the most, for a consortium to edit and hand out: no plan's wishes are in it."""
    refuse_unwritable(out, new=True)
    out.write_text(limits_text(), encoding="utf-8")
    Speaker(quiet=quiet).say(f"wrote {out}: edit it, and hand it out (pki kit --limits); plan policy --limits takes it")
