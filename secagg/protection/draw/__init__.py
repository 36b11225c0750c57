"""Client sampling: the cohort of each round, drawn once, before anything is opened, by members' nonces."""

from secagg.protection.draw.messages import Draw
from secagg.protection.draw.schedule import cohorts, most_rounds
from secagg.protection.draw.seed import DRAW, SHOWN_DRAW, Drawn, check_draw, quorum_of

__all__ = ["DRAW", "SHOWN_DRAW", "Draw", "Drawn", "check_draw", "cohorts", "most_rounds", "quorum_of"]
