"""The generated service and its call envelopes, for the transport alone."""

from secagg.wire.generated.session_pb2 import Chunk, FetchRequest, SubmitReply, SubmitRequest, UploadPart
from secagg.wire.generated.session_pb2_grpc import SessionServicer, SessionStub, add_SessionServicer_to_server

__all__ = [
    "Chunk",
    "FetchRequest",
    "SessionServicer",
    "SessionStub",
    "SubmitReply",
    "SubmitRequest",
    "UploadPart",
    "add_SessionServicer_to_server",
]
