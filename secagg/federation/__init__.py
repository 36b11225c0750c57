"""A plan's whole sequence of sessions, one for each round, at the server and at every other party."""

from secagg.federation.client import FederationClient
from secagg.federation.recovery import open_ledger, recover_ledger, release_of, releases_in
from secagg.federation.second import FederationSecond
from secagg.federation.server import FederationServer, Stage
from secagg.federation.storage import session_folder

__all__ = [
    "FederationClient",
    "FederationSecond",
    "FederationServer",
    "Stage",
    "open_ledger",
    "recover_ledger",
    "release_of",
    "releases_in",
    "session_folder",
]
