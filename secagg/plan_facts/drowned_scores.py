"""Whether noise leaves anything of the scores by which settings are chosen."""

from __future__ import annotations

import math

from secagg.encoding import Kind
from secagg.errors import BadInput
from secagg.plan_facts.setup import SessionSetup
from secagg.privacy import Adjacency, Unit

DROWNED = 0.2
"""Of the largest loss: a noise on a mean score that tells settings apart no more."""


def refuse_drowned_scores(setup: SessionSetup) -> None:
    """Raise BadInput where noise about members leaves nothing of the mean scores, naming how many members it takes."""
    clients, spec = len(setup.context.clients), setup.spec
    noise = setup.opened_noise(clients)
    scores = [block for block in spec.blocks if block.kind is Kind.SCORE]
    if noise is None or spec.per is not Unit.CLIENT or not scores:
        return
    lengths = {each.name: each.l2 for each in spec.sensitivity(Unit.CLIENT, Adjacency.ADD_REMOVE, 1).blocks}
    losses = scores[0]
    needed = math.ceil(noise[losses.name].of_record.sigma / lengths[losses.name] / DROWNED * losses.size)
    if clients < needed:
        raise BadInput(
            f"under a promise about members noise drowns the scores of {clients}: with {needed} it would be "
            f"{DROWNED:g} of the largest loss on each of {losses.size} mean scores",
            remedy="take so many members, fewer settings or rounds, or a promise about records (gradients=1, say)",
        )
