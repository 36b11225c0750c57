"""`secagg simulate`: simulate all parties of a plan on one machine, without a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated, Any

import typer

from methods.gate import without_gate
from secagg.cli.console import Speaker, StepProgress, format_accuracy, refuse_unwritable, two_columns, warn_of_programs
from secagg.cli.options import DataSource, with_settings
from secagg.errors import BadInput
from secagg.experiments.baselines import is_baseline
from secagg.experiments.figures import write_curves
from secagg.experiments.outcome import SimulationResult, in_the_sum
from secagg.experiments.results import Run
from secagg.experiments.rounds import RoundReport, Watcher
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import Callbacks, simulate_dataset
from secagg.features.accelerator import BATCH, DEVICES, Accelerator
from secagg.privacy.claim import format_epsilon
from secagg.protection import protection_named
from secagg.session.outcome import HEAD_FILE
from secagg.system.engines import LocalProcesses
from secagg.system.extras import require

SHOWN = 5
"""Largest number of rounds whose accuracy is shown, evenly spread; the JSON holds all that were measured."""


@with_settings()
def simulate(
    speaker: Speaker,
    source: DataSource,
    settings: SimulationSettings,
    processes: Annotated[
        int, typer.Option(min=1, help="Extract a backbone's features in so many processes; no bit changes.")
    ] = 1,
    device: Annotated[
        str,
        typer.Option(
            help=f"Extract an exported program's features on a graphics card ({' or '.join(DEVICES)}), in batches of "
            f"{BATCH}; without noise, and not for --save.",
            metavar="DEVICE",
        ),
    ] = "",
    curves: Annotated[
        Path | None,
        typer.Option(
            help="Folder for curves.csv, curves.png and curves.svg of a plan of several sums: accuracy against rounds, "
            "and against the epsilon spent where it is finite.",
            metavar="DIR",
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the rounds that have ended, of a plan of several: after an interruption the same command "
            "goes on. Emptied of them at the end.",
            metavar="DIR",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="Folder for head.safetensors, for `secagg predict`, and its model card.", metavar="DIR"),
    ] = None,
) -> None:
    """Simulate a federation: the same plan, ring, thresholds and state machines as a real one, without sockets.

    A method that trains takes a sum for each round, as in --method fedavg --rounds 50 --parameters "model=mlp:128";
    --curves DIR shows how good its model was after each, and what had been spent by then. With --keep DIR nothing is
    lost where it is interrupted.
    """
    data = source.open(speaker.say, settings.epsilon)
    if not protection_named(settings.protection).hides_vectors:
        speaker.say(f"WARNING: --protection {settings.protection}: the server would see every client's vector")
    if curves is not None:
        require("matplotlib", "experiments")
        if data.test is None and not settings.validate and settings.leave_out is None:
            raise BadInput(f"{data.name} has no held-out records to measure accuracy on", remedy="leave out --curves")
        if is_baseline(settings.method):
            raise BadInput(f"{settings.method} has no rounds that curves could show", remedy="leave out --curves")
        curves.mkdir(parents=True, exist_ok=True)
        refuse_unwritable(curves / "curves.csv")
    if save is not None:
        if is_baseline(settings.method):
            raise BadInput(f"{settings.method} has no plan that a head could name", remedy="leave out --save")
        save.mkdir(parents=True, exist_ok=True)
        refuse_unwritable(save / HEAD_FILE)
    warn_of_programs(speaker, [settings.backbone], [settings.parameters], [settings.method])
    engine = _engine_of(processes, device, is_saved=save is not None)
    with speaker.steps() as told:
        told(f"simulating a federation on {data.name}", 0, 0)
        listeners = Callbacks(
            extracting=partial(told, "extracting features"),
            playing=_follow(told),
            referring=partial(told, "the same without noise, to compare with"),
            adapting=partial(told, "adapting the head to each client's records"),
        )
        result = simulate_dataset(data, settings, listeners, engine, keep)
    for note in result.notes:
        speaker.say(f"note: {note}")
    if save is not None:
        speaker.say(f"wrote the head and its model card into {result.save(save)}")
    if curves is not None:
        if write_curves([Run(asdict(result.settings), result.to_json())], curves):
            speaker.say(f"wrote curves.csv, curves.png and curves.svg into {curves}")
        else:
            speaker.say("note: the plan has one sum, so there are no curves to draw")
    speaker.result(result.to_json(), two_columns("Simulated session", _rows(result)))


def _engine_of(processes: int, device: str, *, is_saved: bool) -> LocalProcesses | Accelerator | None:
    """Return what extracts features as the options say; None: this process. Raises BadInput."""
    if not device:
        return LocalProcesses(processes, Path(gettempdir())) if processes > 1 else None
    if is_saved or processes > 1:
        raise BadInput("--device goes with neither --save nor --processes", remedy="leave one of them out")
    return Accelerator(device)


def _follow(told: StepProgress) -> Watcher:
    """Return a watcher that reports the round and the last accuracy of a plan of several rounds."""

    def playing(number: int, rounds: int, report: RoundReport | None) -> None:
        if rounds == 1:
            return
        known = f"; after {report.number}: {_known(report)}" if report is not None and _known(report) else ""
        told(f"playing {rounds} rounds", number, rounds, f"round {number} of {rounds}{known}")

    return playing


def _known(report: RoundReport) -> str:
    """Return text with the accuracy and the ε spent after a round, each where it is known."""
    test, spent = report.evaluation, report.epsilon_spent
    known = [f"{100 * test.accuracy:.2f} %" if test else "", f"ε {format_epsilon(spent)}" if spent is not None else ""]
    return ", ".join(filter(None, known))


def _of_reference(result: SimulationResult) -> str:
    """Return the name of the reference: pooled records, or the same clients where pooling would change the method.

    It has no class gate: beside a plan that has one it says what gate and noise cost together.
    """
    if result.federated is None:
        return "accuracy, pooled, no noise"
    plan, method = result.federated.setup.plan, result.federated.setup.method
    is_pooled = all(
        kind.is_additive for kind in without_gate(method).sums(plan.dimension, len(plan.classes), plan.levels)
    )
    without = "no gate or noise" if method.traits.class_threshold else "no noise"
    return f"accuracy, {'pooled' if is_pooled else 'the same'}, {without}"


def _rows(result: SimulationResult) -> list[tuple[str, str]]:
    content: Mapping[str, Any] = result.to_json()
    held_out = "training records" if content["validate"] else "data"
    assessed = format_accuracy(result.evaluation) if result.evaluation else "no held-out data"
    rows = [
        (f"accuracy on held-out {held_out}", assessed),
        ("clients in the sum", in_the_sum(content["survivors"], content["clients"], content["cohort"])),
        *([("rounds of refinement", str(content["refine"]))] if content["refine"] else []),
    ]
    if (scored := result.metrics) is not None:
        named = ((scored.called(name), scored.overall[name]) for name in ("balanced_accuracy", "auc"))
        rows[1:1] = [(called, measure.to_text()) for called, measure in named if measure is not None]
    measured = [each for each in result.rounds[:-1] if each.evaluation is not None]
    if on_the_way := [f"{each.number}: {_known(each)}" for each in measured[:: max(1, -(-len(measured) // SHOWN))]]:
        rows.insert(1, (f"after rounds, of {result.rounds[-1].number}", "; ".join(on_the_way)))
    if result.reference is not None:
        rows.insert(1, (_of_reference(result), f"{100 * result.reference.accuracy:.2f} %"))
    if left_out := content["classes_left_out"]:
        whole = result.federated is not None and set(left_out) <= set(result.federated.setup.plan.classes)
        told = "; the head never predicts them" if whole else ""  # of a part of a class it may predict the others
        rows.append(("left out by the class gate", ", ".join(left_out) + told))
    elif content["class_gate"] and result.federated is not None:
        kept = len(result.federated.setup.plan.classes)
        rows.append((f"class gate {content['class_gate']}", f"all {kept} classes kept"))
    for name, found in (content["by_domain"] or {"domains": {}})["domains"].items():
        where = "left out" if found["left_out"] else "in clients"
        rows.append((f"accuracy on {name}", f"{100 * found['accuracy']:.2f} % of {found['total']} ({where})"))
    for name, share in (content["adaptation"] or {}).items():
        if isinstance(share, float):
            rows.append((f"adaptation, {name.replace('_', ' ')}", f"{100 * share:.2f} %"))
    for own in result.personal:
        least, most = (pick(each.accuracy for each in own.clients) for pick in (min, max))
        told = f"{100 * own.mean:.2f} %, the mean of {len(own.clients)} ({100 * least:.2f} to {100 * most:.2f})"
        rows.append((f"members' own models, {own.model}", told))
    names = ["protection", "epsilon", "promise", "ring", "vector_length", "upload_bytes_per_client", "noise_seed"]
    names += ("noise_removed", "bytes_saved_by_grid", "bad_records", "bad_held_out", "aggregate_sha256", "head_sha256")
    rows += [(name.replace("_", " "), str(content[name])) for name in names if content[name] not in (None, 0)]
    rows += [(f"seconds, {name}", f"{value:.3f}") for name, value in result.seconds.items()]
    if content["not_private"]:
        rows.append(("not private: outside ε", ", ".join(content["not_private"]).replace("_", " ")))
    return rows
