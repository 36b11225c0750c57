"""Execution of a plan's rounds, one protocol session each, at the server, the clients and the helpers."""

from secagg.federation.client import FederationClient
from secagg.federation.endpoints import Client, Result, Server, credentials_for, decline_plan, server_setup
from secagg.federation.helper_party import FederationHelper
from secagg.federation.recovery import open_ledger, recover_ledger, release_of, releases_in
from secagg.federation.server import FederationServer, Stage
from secagg.session.attachments import session_folder

__all__ = [
    "Client",
    "FederationClient",
    "FederationHelper",
    "FederationServer",
    "Result",
    "Server",
    "Stage",
    "credentials_for",
    "decline_plan",
    "open_ledger",
    "recover_ledger",
    "release_of",
    "releases_in",
    "server_setup",
    "session_folder",
]
