"""The generated gRPC service and the messages of its calls, for the transport alone."""

from secagg.wire.generated.session_pb2 import (
    Chunk,
    FetchRequest,
    ReadPart,
    ReadRequest,
    SubmitReply,
    SubmitRequest,
    UploadPart,
)
from secagg.wire.generated.session_pb2_grpc import SessionStub

__all__ = [
    "Chunk",
    "FetchRequest",
    "ReadPart",
    "ReadRequest",
    "SessionStub",
    "SubmitReply",
    "SubmitRequest",
    "UploadPart",
]
