"""`secagg.audit`: the audit of the command line, for Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from secagg.errors import BadInput
from secagg.experiments.settings import SimulationSettings, as_setting
from secagg.system.extras import extra
from secagg.verification.vouching import Trust
from threat_models.adversary import USUAL

with extra("audit", "audit"):
    from threat_models.auditing import Question, Silent, Simulation, judged
    from threat_models.report.content import AuditReport
    from threat_models.report.html import as_html
    from threat_models.report.json_report import as_json
    from threat_models.report.summary import as_text


@dataclass(frozen=True)
class Audit:
    """A report, and the exit code that its gate gives: 0 pass, 1 fail, 4 inconclusive."""

    report: AuditReport = field(repr=False)
    exit_code: int

    def summary(self) -> str:
        """The report for a terminal."""
        return as_text(self.report)

    def to_json(self) -> dict[str, Any]:
        """Plain values, by the report's published schema."""
        content: dict[str, Any] = json.loads(as_json(self.report))
        return content

    def to_html(self) -> str:
        """One page that needs nothing else."""
        return as_html(self.report)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>"


def audit(
    transcripts: Sequence[Path | str] = (),
    *,
    dataset: str | None = None,
    threat_models: Sequence[str] = USUAL,
    known: str | None = None,
    public: str | None = None,
    records: int | None = None,
    canaries: str | None = None,
    plans: Sequence[Path | str] = (),
    rosters: Sequence[Path | str] = (),
    gate: Path | str | None = None,
    auditor: str = "",
    against: Path | str | None = None,
    across_sessions: bool = False,
    **settings: Any,
) -> Audit:
    """Measure what adversaries could have learnt from transcripts, or from a plan simulated over a data set.

    `transcripts` are `transcript.log` files; else `dataset` is a name or path and `settings` are those of `simulate`
    with `label`, `schema`, `image_size` and `test`. The other arguments are the options of `secagg audit`. Raises
    BadInput, TranscriptInvalid.

    >>> audit(dataset="digits", threat_models=["curious_server"]).summary()  # doctest: +SKIP
    """
    if bool(transcripts) == (dataset is not None):
        raise BadInput("say what to audit", remedy="give transcripts or dataset, not both")
    if transcripts and settings:
        raise BadInput(
            f"{', '.join(settings)} go with dataset", remedy="a transcript's session is over: leave them out"
        )
    simulation = None
    if dataset is not None:
        read = {name: settings.pop(name, None) for name in ("label", "schema", "image_size", "test")}
        chosen = SimulationSettings(**{name: as_setting(name, value) for name, value in settings.items()})
        simulation = Simulation(dataset, chosen, **read)
    question = Question(
        transcripts=tuple(map(Path, transcripts)),
        threat_models=tuple(threat_models),
        known=known,
        public=public,
        records=records,
        canaries=canaries,
        gate=Path(gate) if gate is not None else None,
        html=None,
        sarif=None,
        seed=int(settings.get("seed", 0)),
        simulation=simulation,
        trust=Trust.in_files([Path(each) for each in plans], [Path(each) for each in rosters]),
        auditor=auditor,
        against=Path(against) if against is not None else None,
        across_sessions=across_sessions,
    )
    return Audit(*judged(question, Silent()))
