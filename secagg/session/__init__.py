"""Sessions: one party's part in one round, with state machine, storage and transcript."""

from secagg.session.aggregator import AggregatorWork
from secagg.session.member_session import Contributor, MemberSession
from secagg.session.outcome import SumResult, conclude, write_result
from secagg.session.receive_signed import Connection
from secagg.session.round_setup import RoundSetup, contribution_of, opening_noise_of
from secagg.session.rounds import Rounds
from secagg.session.server_session import ServerSession
from secagg.session.transcripts import begin_transcript

__all__ = [
    "AggregatorWork",
    "Connection",
    "Contributor",
    "MemberSession",
    "RoundSetup",
    "Rounds",
    "ServerSession",
    "SumResult",
    "begin_transcript",
    "conclude",
    "contribution_of",
    "opening_noise_of",
    "write_result",
]
