"""Where sessions come from: recorded transcripts, and simulations of the same plan."""

from threat_models.evidence.simulation import Rehearsal, rehearse
from threat_models.evidence.transcripts import known_of, read_session

__all__ = ["Rehearsal", "known_of", "read_session", "rehearse"]
