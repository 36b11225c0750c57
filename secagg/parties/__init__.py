"""The parties of a session: state machine, storage and transcript of each brought together."""

from secagg.parties.client import ClientHooks, ClientSession
from secagg.parties.contribution import Contribution, contribution_of
from secagg.parties.pipeline import Pipeline, Progress
from secagg.parties.result import SumResult, conclude, write_result
from secagg.parties.server import ServerSession
from secagg.parties.setup import SessionSetup

__all__ = [
    "ClientHooks",
    "ClientSession",
    "Contribution",
    "Pipeline",
    "Progress",
    "ServerSession",
    "SessionSetup",
    "SumResult",
    "conclude",
    "contribution_of",
    "write_result",
]
