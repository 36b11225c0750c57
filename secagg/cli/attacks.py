"""`secagg attacks`: list the attacks that audits run."""

from __future__ import annotations

from secagg.cli.console import Speaker, two_columns
from secagg.system.extras import extra


def attacks(speaker: Speaker) -> None:
    """List the attacks: what each is after, what it needs to see, who published it, and which adversaries use it."""
    with extra("audit"):
        from threat_models.audit import attack_notes
    from threat_models.adversary import adversary_named, names
    from threat_models.attacks import ATTACKS
    from threat_models.report.gate import all_metrics

    notes, metrics, rows, content = attack_notes(), all_metrics(), [], {}
    for name, note in notes.items():
        needs = ", ".join(ATTACKS[name].needs) if name in ATTACKS else "real parties to talk to"
        measures = {metric.id: metric.label for metric in metrics[name]}
        users = [each for each in names() if name in adversary_named(each).attacks]
        words = f"needs: {needs or 'any of the sums'}\nmeasures: {', '.join(measures)}\n{note.paper}"
        rows.append((name, f"{note.title}\n{words}\nused by: {', '.join(users)}"))
        content[name] = {"title": note.title, "paper": note.paper, "adversaries": users, "measures": measures}
    speaker.result({"attacks": content}, two_columns("Attacks", rows))
