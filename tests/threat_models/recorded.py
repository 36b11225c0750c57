"""The session of a single transcript."""

from secagg.verification.verification import NOTHING_BROUGHT
from threat_models.evidence.transcripts import read_sessions


def read_session(path, trust=NOTHING_BROUGHT):
    """The session that one transcript shows; raises what `read_sessions` raises."""
    return read_sessions((path,), trust)[0]
