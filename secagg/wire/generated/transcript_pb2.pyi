from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Record(_message.Message):
    __slots__ = ("index", "previous", "kind", "content")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    index: int
    previous: bytes
    kind: str
    content: bytes
    def __init__(self, index: _Optional[int] = ..., previous: _Optional[bytes] = ..., kind: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...
