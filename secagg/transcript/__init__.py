"""A party's transcript: a hash chain of the signed messages that it received and sent, for offline verification."""

from secagg.transcript.frames import (
    EVERYONE,
    NOT_SEEN,
    START,
    FrameBody,
    Record,
    chain,
    make_body,
    open_frame,
    payload_of,
    peek,
    sign_frame,
)
from secagg.transcript.journal import FILE_NAME, Journal, iterate_transcript, read_transcript

__all__ = [
    "EVERYONE",
    "FILE_NAME",
    "NOT_SEEN",
    "START",
    "FrameBody",
    "Journal",
    "Record",
    "chain",
    "iterate_transcript",
    "make_body",
    "open_frame",
    "payload_of",
    "peek",
    "read_transcript",
    "sign_frame",
]
