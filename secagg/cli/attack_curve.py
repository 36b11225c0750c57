"""`secagg sweep --audit`: attack the plans that a sweep compares, and draw the attack's success over ε."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Any

import threat_models
from secagg.data import Dataset
from secagg.errors import BadInput
from secagg.experiments.figures import Scale, plot_accuracy
from secagg.experiments.provenance import data_sha256, sources_sha256
from secagg.experiments.results import ResultRow, Run, is_baseline, summarise, varying
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.workers import RunFile
from secagg.features import Progress
from secagg.wire import plain
from threat_models.adversary import Adversary, adversary_named, names
from threat_models.attacks import ATTACKS
from threat_models.evidence.simulation import rehearse
from threat_models.examination import examine
from threat_models.findings import SHARE
from threat_models.report.content import CONTROL
from threat_models.report.json_report import measure_content

USUAL = "curious_server"
CEILING, BASELINE = "the most that ε allows", "by chance, or without the sum"
WIDE = 34
"""Largest number of letters in a line of the label of the figure's vertical axis."""
COLUMNS = ("verdict", "measure", "label", "value", "low", "high", "baseline", "ceiling", "interval")


@dataclass(frozen=True)
class Attempt:
    """One run of a sweep, with the result (`found`, JSON values) of attacking the run's simulated plan."""

    run: Run
    found: Mapping[str, Any]

    @property
    def leading(self) -> list[dict[str, Any]]:
        """The measures to plot: those that summarise the attack's success (rates or areas) and have a value."""
        return [each for each in self.found["measures"] if each["leads"] and each["value"] is not None]


def adversary_of(attack: str) -> Adversary:
    """Return an adversary with one attack: `curious_server` if it uses the attack, else the first one that uses it.

    Raises BadInput for an unknown attack.
    """
    if attack not in ATTACKS:
        raise BadInput(f"there is no attack {attack!r}", remedy=f"choose among {', '.join(ATTACKS)}")
    tries = [each for name in names() if attack in (each := adversary_named(name)).attacks and name != CONTROL]
    chosen = next((each for each in tries if each.name == USUAL), tries[0] if tries else adversary_named(CONTROL))
    return replace(chosen, attacks=(attack,))


def attempt_all(
    dataset: Dataset, runs: Sequence[Run], attack: str, out: Path, progress: Progress
) -> tuple[Attempt, ...]:
    """Simulate and attack the plan of every run that made a secure sum. Results found in `out` are reused."""
    adversary, digest = adversary_of(attack), data_sha256(dataset)
    made_by = sources_sha256(Path(threat_models.__file__).parent)
    folder = out / "audits" / attack
    folder.mkdir(parents=True, exist_ok=True)
    asked = [run for run in runs if run.result is not None and not is_baseline(run.result)]
    attempts = []
    for done, run in enumerate(asked):
        progress(done, len(asked))
        file = RunFile(folder, run.settings, digest)
        found, _ = file.read() or (None, None)
        if found is None or found["threat_models_sha256"] != made_by:
            made = rehearse(dataset, SimulationSettings(**run.settings))
            (finding,) = examine(adversary, made.sessions, made.knowledge, lambda title, done, total: None).findings
            measures = [measure_content(each) | {"leads": each.metric.leads} for each in finding.measures]
            measured = {"verdict": str(finding.verdict), "sentence": finding.sentence, "measures": measures}
            found, _ = file.write({**measured, "adversary": adversary.name, "threat_models_sha256": made_by})
        attempts.append(Attempt(run, found))
    progress(len(asked), len(asked))
    return tuple(attempts)


def write_attack_curve(attempts: Sequence[Attempt], attack: str, out: Path) -> tuple[str, ...]:
    """Write attack.csv, attack.png and attack.svg into a folder; return a note for each result without values to draw.

    The figure has a line for each way to measure the attack's success that may sum it up. Several seeds: the mean and
    Student's interval; one: the attack's own.
    """
    (out / "attack.csv").write_text(_csv(attempts, attack), encoding="utf-8")
    silent = {f"{each.found['verdict']}: {each.found['sentence']}": None for each in attempts if not each.leading}
    leading = [(each.run, measure) for each in attempts for measure in each.leading]
    if not leading:
        return (*silent, f"{attack} gave no figure to draw")
    first = leading[0][1]
    family, is_share = first["id"].partition(".")[0], first["unit"] == SHARE
    label = f"{fill(ATTACKS[attack].title, WIDE)}\n{first['label'].partition(',')[0]}{' (%)' if is_share else ''}"
    scale = Scale(label, 100.0 if is_share else 1.0)
    drawn = [(run, measure) for run, measure in leading if measure["id"].partition(".")[0] == family]
    bounds = {CEILING: _bound(drawn, "ceiling"), BASELINE: _bound(drawn, "baseline")}
    bounds = {name: line for name, line in bounds.items() if line}
    plot_accuracy(_series(drawn), [out / "attack.png", out / "attack.svg"], scale, bounds)
    return tuple(silent)


def _series(drawn: Sequence[tuple[Run, dict[str, Any]]]) -> list[ResultRow]:
    """Return a curve for each series of the sweep and each measure, with the measure in the place of the accuracy."""
    ways: dict[str, list[Run]] = {}
    for run, measure in drawn:
        if run.result is not None:
            shown = run.result.copy()
            shown |= {"accuracy": measure["value"], "accuracy_interval": [measure["low"], measure["high"]]}
            ways.setdefault(measure["label"].partition(", ")[2], []).append(replace(run, result=shown))
    return [
        replace(series, label=", ".join(filter(None, (series.label, words))))
        for words, runs in ways.items()
        for series in summarise(runs)
    ]


def _bound(drawn: Sequence[tuple[Run, dict[str, Any]]], name: str) -> dict[float, float]:
    """Return, by ε, the largest value of the field `name` ("ceiling" or "baseline") of the measures."""
    found: dict[float, float] = {}
    for run, measure in drawn:
        epsilon, value = float(run.settings["epsilon"]), measure[name]
        if isinstance(value, float):
            found[epsilon] = max(value, found.get(epsilon, value))
    return found


def _csv(attempts: Sequence[Attempt], attack: str) -> str:
    """Return CSV text, a row for each measure of each run: settings that differ, attack, adversary, value, bounds."""
    differ = [name for name in varying([each.run.settings for each in attempts]) if name not in ("epsilon", "seed")]
    head = ("method", *(name for name in differ if name != "method"), "epsilon", "seed")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*head, "attack", "adversary", *COLUMNS))
    for each in attempts:
        settings = plain(each.run.settings)
        row = (*(settings[name] for name in head), attack, each.found["adversary"], each.found["verdict"])
        for measure in each.found["measures"] or [{}]:
            renamed = measure | {"measure": measure.get("id", ""), "interval": measure.get("method", "")}
            writer.writerow((*row, *(renamed.get(name, "") for name in COLUMNS[1:])))
    return text.getvalue()
