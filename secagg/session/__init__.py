"""The parties of a session: state machine, storage and transcript of each brought together."""

from secagg.session.aggregator import AggregatorWork
from secagg.session.contribution import (
    LocalRecords,
    Prepared,
    contribution_of,
    look_at_own,
    opening_noise_of,
    read_records,
)
from secagg.session.hearing import Connection
from secagg.session.member_session import Hooks, MemberSession
from secagg.session.outcome import SumResult, conclude, write_result
from secagg.session.pipeline import Pipeline
from secagg.session.rounds import Rounds
from secagg.session.server_session import ServerSession
from secagg.session.transcripts import begin_transcript

__all__ = [
    "AggregatorWork",
    "Connection",
    "Hooks",
    "LocalRecords",
    "MemberSession",
    "Pipeline",
    "Prepared",
    "Rounds",
    "ServerSession",
    "SumResult",
    "begin_transcript",
    "conclude",
    "contribution_of",
    "look_at_own",
    "opening_noise_of",
    "read_records",
    "write_result",
]
