"""Who is in which round of a plan with cohorts: drawn once, before anything is opened, by members' nonces."""

from secagg.protection.draw.draw import DRAW, Drawn, check_draw, quorum_of
from secagg.protection.draw.messages import Draw
from secagg.protection.draw.schedule import cohorts, most_rounds

__all__ = ["DRAW", "Draw", "Drawn", "check_draw", "cohorts", "most_rounds", "quorum_of"]
