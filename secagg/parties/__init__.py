"""The parties of a session: state machine, storage and transcript of each brought together."""

from secagg.parties.aggregator import AggregatorWork
from secagg.parties.contribution import (
    LocalRecords,
    Prepared,
    contribution_of,
    look_at_own,
    opening_noise_of,
    read_records,
)
from secagg.parties.hearing import Connection
from secagg.parties.member_session import Contributor, MemberSession
from secagg.parties.outcome import SumResult, conclude, write_result
from secagg.parties.pipeline import Pipeline
from secagg.parties.rounds import Rounds
from secagg.parties.server_session import ServerSession
from secagg.parties.setup import RoundSetup
from secagg.parties.transcripts import begin_transcript
from secagg.parties.vouching import note_plan

__all__ = [
    "AggregatorWork",
    "Connection",
    "Contributor",
    "LocalRecords",
    "MemberSession",
    "Pipeline",
    "Prepared",
    "RoundSetup",
    "Rounds",
    "ServerSession",
    "SumResult",
    "begin_transcript",
    "conclude",
    "contribution_of",
    "look_at_own",
    "note_plan",
    "opening_noise_of",
    "read_records",
    "write_result",
]
