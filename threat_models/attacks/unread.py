"""Blocks of a sum that no attack reads: an attack that looked at the others alone proves nothing.

A method's author picks the kind of each block, so that its label is no evidence of what it holds or does not hold.
"""

from __future__ import annotations

from dataclasses import replace

from methods.own_models.own_projection import OwnProjection
from methods.search.population_round import LOSS, SCORED, PopulationRound
from methods.training.chain import ChainRound
from threat_models.attacks.gaussian_likelihood import MOMENTS
from threat_models.attacks.targets import sums_in
from threat_models.findings import Finding, Verdict
from threat_models.views import View

READ = MOMENTS | {"census"}
"""Blocks of a session that attacks know; a census says no more than who holds what."""
HALF_READ = (ChainRound, OwnProjection)
"""Rounds of whose other blocks attacks read a part."""


def unread_in(view: View) -> tuple[str, ...]:
    """Name the blocks of all sums that a view shows which no attack here reads, in alphabetical order."""
    found: set[str] = set()
    for each in (view, *view.earlier):
        names = {name for target in sums_in(each) for name in target.blocks}
        if isinstance(each.round, PopulationRound):  # of several models: attacks on one model do not part them
            found |= names - {LOSS, SCORED}
        elif not isinstance(each.round, HALF_READ):
            found |= names - READ
    return tuple(sorted(found))


def withhold(finding: Finding, unread: tuple[str, ...]) -> Finding:
    """Make a finding inconclusive, naming the `unread` blocks, unless the attack succeeded or there are none."""
    if not unread or finding.verdict is Verdict.SUCCEEDS:
        return finding
    names = ", ".join(name.replace("_", " ") for name in unread)
    sentence = f"The attack does not know what these blocks of the sum hold: {names}."
    if finding.verdict is not Verdict.NOT_APPLICABLE:
        sentence = f"{finding.sentence} {sentence}".lstrip()
    return replace(finding, verdict=Verdict.INCONCLUSIVE, sentence=sentence)
