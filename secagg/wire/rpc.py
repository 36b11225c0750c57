"""The generated service and its call envelopes, for the transport alone."""

from secagg.wire.generated.session_pb2 import Chunk, FetchRequest, SubmitReply, SubmitRequest, UploadPart
from secagg.wire.generated.session_pb2_grpc import SessionStub

__all__ = [
    "Chunk",
    "FetchRequest",
    "SessionStub",
    "SubmitReply",
    "SubmitRequest",
    "UploadPart",
]
