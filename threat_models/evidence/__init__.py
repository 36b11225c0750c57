"""Where sessions come from: recorded transcripts, and simulations of the same plan."""

from threat_models.evidence.canaries import Planted, canaries_of, plant, prepare
from threat_models.evidence.simulation import Rehearsal, rehearse
from threat_models.evidence.transcripts import input_of, known_of, of_plans, read_sessions

__all__ = [
    "Planted",
    "Rehearsal",
    "canaries_of",
    "input_of",
    "known_of",
    "of_plans",
    "plant",
    "prepare",
    "read_sessions",
    "rehearse",
]
