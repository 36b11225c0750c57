"""The result of one simulated run, as an object and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from secagg.errors import BadInput
from secagg.experiments.client_accuracy import AdaptedClients, PersonalAccuracy
from secagg.experiments.features import DomainAccuracy
from secagg.experiments.results import RunResult
from secagg.experiments.rounds import RoundReport
from secagg.experiments.seeding import REPRODUCIBLE
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.tables import flat, frame_of, html_of
from secagg.heads import Artifact, Evaluation, save_safetensors
from secagg.networks.trained_model import TunedModel
from secagg.protection import UNPROTECTED
from secagg.scoring.card import card_of, classes_left_out, write_card
from secagg.scoring.metrics import Metrics
from secagg.session import RoundSetup, SumResult
from secagg.session.outcome import HEAD_FILE, metadata_of


def in_the_sum(members: int, clients: int, cohort: int = 0) -> str:
    """Describe in words how many clients are in the last sum, out of those that were asked for a vector."""
    asked = cohort or clients
    gone = f"{asked - members} vanished before their vectors counted"
    words = f"{members} of {asked} ({'all' if members == asked else gone})"
    return f"{words} of the last round's cohort; {clients} clients in all" if cohort else words


@dataclass(frozen=True)
class Federated:
    """Results that a baseline lacks: the last round, its sum, and the most bytes that one client sent in all rounds."""

    setup: RoundSetup
    result: SumResult
    upload_bytes: int

    @property
    def classes_left_out(self) -> list[str]:
        """The names of the classes that the plan's gate left out for too few clients, each with its domain, if any."""
        return classes_left_out(self.setup)


@dataclass(frozen=True)
class SimulationResult:
    """The result of one simulation, with accuracy, costs and notes; `federated` is None for a baseline.

    `to_json` has the keys of the command line's JSON. `head` is None for a baseline that has not one linear head;
    `baseline_bytes`: most that one client of it sends, and `leaves`: what that is, in words. `metrics`: of the head on
    the held-out records; None where a baseline has not one head, or nothing is held out. `by_domain`: the accuracies on
    each domain's held-out records, where the data tell domains apart. `client_seconds`: CPU seconds of one client, the
    mean, for its statistics and its messages; `server_seconds`: those of everybody who handles uploads or opens the
    sum, with the making of the head. Neither counts the extraction of features or the training of which `adapted`
    tells. `personal`: what the members' own models are worth, where the method leaves them any. `bad_records` of the
    training records count as zero, `bad_held_out` of the held-out ones are not scored. `diverged`: training ended worse
    than a guess that knows nothing. `rounds` reports of every K-th and of the last, where a plan has several.
    """

    settings: SimulationSettings
    dataset: str
    clients: int
    head: Artifact | None
    evaluation: Evaluation | None
    notes: tuple[str, ...]
    seconds: Mapping[str, float] = field(repr=False)
    reference: Evaluation | None = None
    promise: str | None = None
    bad_records: int = 0
    federated: Federated | None = None
    by_domain: tuple[DomainAccuracy, ...] = ()
    metrics: Metrics | None = None
    client_seconds: float | None = None
    server_seconds: float | None = None
    baseline_bytes: int | None = None
    leaves: str | None = None
    adapted: AdaptedClients | None = None
    personal: tuple[PersonalAccuracy, ...] = ()
    bad_held_out: int = 0
    diverged: bool = False
    rounds: tuple[RoundReport, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        """Return method, data, ε and accuracy in one line; `to_json` has the rest."""
        ran = f"{self.settings.method} on {self.dataset}, {self.clients} clients, epsilon {self.settings.epsilon:g}"
        test = f", accuracy {100 * self.evaluation.accuracy:.2f} %" if self.evaluation else ""
        return f"<{type(self).__name__}: {ran}{test}>"

    def summary(self) -> str:
        """Return the settings and results as text, one per line."""
        rows = self._lines()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def to_frame(self) -> Any:
        """Return a one-row `pandas.DataFrame` of `to_json` without lists, with metrics and seconds as named columns."""
        return frame_of([flat(self.to_json())])

    def _repr_html_(self) -> str:
        return html_of((), self._lines(), "A simulated federation")

    def _lines(self) -> list[tuple[str, str]]:
        s = self.settings
        scored = self.metrics
        known = [(scored.called(name), each) for name, each in scored.overall.items() if each] if scored else []
        members = len(self.federated.result.members) if self.federated else self.clients
        return [
            ("method", f"{s.method} on {self.dataset}"),
            ("clients in the sum", in_the_sum(members, self.clients, s.cohort)),
            ("protection", s.protection if self.federated else UNPROTECTED),
            ("epsilon", f"{s.epsilon:g}"),
            ("promise", self.promise or "none about any one record"),
            *((name, each.to_text()) for name, each in known),
            ("head SHA-256", self.head.digest if self.head is not None else "none"),
            *(("note", note) for note in self.notes),
        ]

    def save(self, folder: Path | str) -> Path:
        """Write `head.safetensors`, which `secagg predict` reads, and its model card into a folder; return the folder.

        Raises BadInput for a baseline, which has no plan that a file could name.
        """
        if self.federated is None or self.head is None:
            problem = f"method {self.settings.method} makes no secure sum, and no head that names its plan"
            raise BadInput(problem, remedy="save the head of another method")
        setup, out = self.federated.setup, Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        save_safetensors(self.head, out / HEAD_FILE, metadata_of(setup.plan))
        members, known = self.federated.result.members, self.settings.has_known_noise
        card = card_of(setup, self.head.digest, members, simulated=True, known_noise=known, metrics=self.metrics)
        write_card(out, card)
        return out

    def to_json(self) -> RunResult:
        """Return the result as plain values for a JSON file; null where a baseline has no value."""
        s, head, test, reference = self.settings, self.head, self.evaluation, self.reference
        content = {
            "method": s.method,
            "dataset": self.dataset,
            "clients": self.clients,
            "survivors": len(self.federated.result.members) if self.federated else self.clients,
            "partition": s.partition,
            "seed": s.seed,
            "noise_seed": s.noise_seed,
            "reproducible_noise": REPRODUCIBLE if s.has_known_noise else None,
            "protection": s.protection if self.federated else UNPROTECTED,
            "epsilon": "inf" if math.isinf(s.epsilon) else s.epsilon,
            "delta": s.delta,
            "adjacency": s.adjacency,
            "unit": s.unit,
            "noise": s.noise if self.federated and math.isfinite(s.epsilon) else None,
            "refine": int(self.federated.setup.method.parameters.get("refine", 0)) if self.federated else 0,
            **{name: getattr(s, name) for name in OTHERS},
            "accuracy": test.accuracy if test else None,
            "accuracy_interval": list(test.interval) if test else None,
            "accuracy_reference": reference.accuracy if reference else None,
            "metrics": self.metrics.to_json() if self.metrics else None,
            "by_domain": _by_domain(self.by_domain) if self.by_domain else None,
            "adaptation": asdict(self.adapted) if self.adapted else None,
            "personal": [asdict(each) for each in self.personal] or None,
            "tuned": {"settings": head.settings, "loss": head.score} if isinstance(head, TunedModel) else None,
            "rounds": [each.to_json() for each in self.rounds],
            "promise": self.promise,
            "leaves": self.leaves,
            "head_sha256": head.digest if head is not None else None,
            **{name: getattr(self, name) for name in COUNTED},
            **(dict.fromkeys(FEDERATED_KEYS) | {"upload_bytes_per_client": self.baseline_bytes}),
            **(_of_federated(self.federated) if self.federated else {}),
            "client_seconds": self.client_seconds,
            "server_seconds": self.server_seconds,
            "seconds": dict(self.seconds),
            "classes_left_out": self.federated.classes_left_out if self.federated else [],
            "notes": list(self.notes),
        }
        return cast(RunResult, {**content, "not_private": self._not_private(content)})

    def _not_private(self, content: Mapping[str, Any]) -> list[str]:
        """Return the keys of values computed from records without noise although ε is finite: ε covers none of them.

        Where a seed repeats the noise, ε covers no value at all. What is measured on members' own records is not part
        of what any plan opens, whatever its ε.
        Vectors are as long in bytes as the largest client is large, unless `max_records` says how large one may be.
        """
        if math.isinf(self.settings.epsilon):
            return [name for name in MEASURED if self.settings.validate and content[name] not in (None, [])]
        read_off = SIZES if self.settings.max_records is None else ()
        known = RELEASES if self.settings.has_known_noise else ()
        return [name for name in (*known, *WITHOUT_NOISE, *read_off) if content[name] not in (None, [])]


OTHERS = (
    *("at_least", "class_gate", "cohort", "covariance", "expand", "leave_out", "validate"),
    *("surplus_noise", "dropouts", "colluders", "tolerate"),
)
"""Settings that the report repeats as they are."""
ACCURACIES = ("accuracy", "accuracy_interval", "accuracy_reference")
MEASURED = (*ACCURACIES, "metrics", "by_domain", "adaptation", "personal", "rounds")
"""Keys of what is measured on held-out records."""
COUNTED = ("bad_records", "bad_held_out", "diverged")
WITHOUT_NOISE = (*MEASURED, *COUNTED, "client_seconds", "server_seconds", "seconds", "notes")
"""Keys of what is counted or timed on records without noise, held-out records included."""
RELEASES = ("head_sha256", "aggregate_sha256", "classes_left_out", "tuned")
"""Keys of what the noise protects, unless someone can subtract it again."""
SIZES = ("ring", "upload_bytes_per_client", "bytes_saved_by_grid")
FEDERATED_KEYS = (
    *("normalisation", "radius", "levels", "aggregate_sha256", "ring"),
    *("vector_length", "upload_bytes_per_client", "bytes_saved_by_grid", "noise_removed"),
)


def _by_domain(found: tuple[DomainAccuracy, ...]) -> dict[str, Any]:
    """Return each domain's accuracy, and the means over the clients' domains and over the left-out ones."""
    inside = [each.evaluation.accuracy for each in found if not each.left_out]
    outside = [each.evaluation.accuracy for each in found if each.left_out]
    names = ("accuracy", "correct", "total")
    values = [{name: getattr(each.evaluation, name) for name in names} for each in found]
    domains = {each.domain: own | {"left_out": each.left_out} for each, own in zip(found, values, strict=True)}
    means = {"in_domain": fmean(inside) if inside else None, "left_out_domain": fmean(outside) if outside else None}
    return {"domains": domains, **means}


def _noise_removed(run: Federated) -> float | None:
    """Return the share of the variance of clients' noise that was removed from the last sum; None without levels."""
    calibration = run.setup.sum.calibration
    if calibration is None or not calibration.lower:
        return None
    whole = calibration.blocks[0].sigma
    left = calibration.left_of(whole, calibration.parties - len(run.result.members))
    return round(max(0.0, 1 - (left / whole) ** 2), 4)


def _of_federated(run: Federated) -> dict[str, Any]:
    plan = run.setup.plan
    values = (
        plan.normalisation,
        plan.radius,
        plan.levels,
        run.result.aggregate_sha256.hex(),
        run.setup.context.ring.bits,
        len(run.result.vector),
        run.upload_bytes,
        run.setup.facts.bytes_saved_by_grid,
        _noise_removed(run),
    )
    return dict(zip(FEDERATED_KEYS, values, strict=True))
