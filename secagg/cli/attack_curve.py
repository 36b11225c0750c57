"""`secagg sweep --audit`: how far an attack gets at each ε, of the plans whose accuracy the sweep compares."""

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
"""Letters of a line beside the figure."""
COLUMNS = ("verdict", "measure", "label", "value", "low", "high", "baseline", "ceiling", "interval")


@dataclass(frozen=True)
class Attempt:
    """One attack's measures on the plan of one run: its result's JSON, in which `leading` are measures that lead."""

    run: Run
    found: Mapping[str, Any]

    @property
    def leading(self) -> list[dict[str, Any]]:
        """Its measures that may be drawn: shares of 1, and areas, that have a value."""
        return [each for each in self.found["measures"] if each["leads"] and each["value"] is not None]


def adversary_of(attack: str) -> Adversary:
    """Choose who tries an attack: the server where it does, else the first of the threat models. Raises BadInput."""
    if attack not in ATTACKS:
        raise BadInput(f"there is no attack {attack!r}", remedy=f"choose among {', '.join(ATTACKS)}")
    tries = [each for name in names() if attack in (each := adversary_named(name)).attacks and name != CONTROL]
    chosen = next((each for each in tries if each.name == USUAL), tries[0] if tries else adversary_named(CONTROL))
    return replace(chosen, attacks=(attack,))


def attempt_all(
    dataset: Dataset, runs: Sequence[Run], attack: str, out: Path, progress: Progress
) -> tuple[Attempt, ...]:
    """Simulate the plan of every run that made a secure sum, and attack it; what `out` holds is not repeated."""
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
            measured = _attempt(dataset, run, adversary)
            found, _ = file.write({**measured, "adversary": adversary.name, "threat_models_sha256": made_by})
        attempts.append(Attempt(run, found))
    progress(len(asked), len(asked))
    return tuple(attempts)


def _attempt(dataset: Dataset, run: Run, adversary: Adversary) -> dict[str, Any]:
    found = rehearse(dataset, SimulationSettings(**run.settings))
    (finding,) = examine(adversary, found.sessions, found.knowledge, lambda title, done, total: None).findings
    measures = [measure_content(each) | {"leads": each.metric.leads} for each in finding.measures]
    return {"verdict": str(finding.verdict), "sentence": finding.sentence, "measures": measures}


def write_attack_curve(attempts: Sequence[Attempt], attack: str, out: Path) -> tuple[str, ...]:
    """Write attack.csv, attack.png and attack.svg into a folder; return what could not be drawn, in sentences.

    The figure has a line for each way to measure the attack's success that may sum it up. Several seeds: the mean and
    Student's interval; one: the attack's own.
    """
    (out / "attack.csv").write_text(_csv(attempts, attack), encoding="utf-8")
    silent = {f"{each.found['verdict']}: {each.found['sentence']}": None for each in attempts if not each.leading}
    families = [measure["id"].partition(".")[0] for each in attempts for measure in each.leading]
    if not families:
        return (*silent, f"{attack} gave no figure to draw")
    family = families[0]
    series, bounds = _series(attempts, family), {CEILING: _bound(attempts, family, "ceiling")}
    bounds |= {BASELINE: _bound(attempts, family, "baseline")}
    first = next(each for attempt in attempts for each in attempt.leading if each["id"].partition(".")[0] == family)
    is_share = first["unit"] == SHARE
    label = f"{fill(ATTACKS[attack].title, WIDE)}\n{first['label'].partition(',')[0]}{' (%)' if is_share else ''}"
    scale = Scale(label, 100.0 if is_share else 1.0)
    drawn = {name: line for name, line in bounds.items() if line}
    plot_accuracy(series, [out / "attack.png", out / "attack.svg"], scale, drawn)
    return tuple(silent)


def _series(attempts: Sequence[Attempt], family: str) -> list[ResultRow]:
    """A series for each series of the sweep and each measure of the family, its values in place of accuracies."""
    ways: dict[str, list[Run]] = {}
    for attempt in attempts:
        for measure in attempt.leading:
            if measure["id"].partition(".")[0] == family:
                words = measure["label"].partition(", ")[2]
                if attempt.run.result is not None:
                    shown = attempt.run.result.copy()
                    shown |= {"accuracy": measure["value"], "accuracy_interval": [measure["low"], measure["high"]]}
                    ways.setdefault(words, []).append(replace(attempt.run, result=shown))
    return [
        replace(series, label=", ".join(filter(None, (series.label, words))))
        for words, runs in ways.items()
        for series in summarise(runs)
    ]


def _bound(attempts: Sequence[Attempt], family: str, name: str) -> dict[float, float]:
    """The largest of what measures of the family are compared with, by ε."""
    found: dict[float, float] = {}
    for attempt in attempts:
        epsilon = float(attempt.run.settings["epsilon"])
        values = [each[name] for each in attempt.leading if each["id"].partition(".")[0] == family]
        for value in values:
            if isinstance(value, float):
                found[epsilon] = max(value, found.get(epsilon, value))
    return found


def _csv(attempts: Sequence[Attempt], attack: str) -> str:
    """A row for each measure of each run: the settings that differ, by whom, and the measure with its limits."""
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
