"""`secagg attacks`: the attacks that audits run."""

from __future__ import annotations

from secagg.cli.console import JsonOption, QuietOption, Speaker
from secagg.extras import extra


def attacks(json_to: JsonOption = None, quiet: QuietOption = False) -> None:
    """List the attacks: what each is after, what it needs to see, who published it, and which adversaries use it."""
    with extra("audit"):
        from secagg.cli.auditing import list_attacks

    list_attacks(Speaker(quiet=quiet, json_to=json_to))
