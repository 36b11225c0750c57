from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NonceCommitment(_message.Message):
    __slots__ = ("member", "commitment", "signature")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    member: int
    commitment: bytes
    signature: bytes
    def __init__(self, member: _Optional[int] = ..., commitment: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Commitments(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[NonceCommitment]
    def __init__(self, entries: _Optional[_Iterable[_Union[NonceCommitment, _Mapping]]] = ...) -> None: ...

class NonceReveal(_message.Message):
    __slots__ = ("member", "nonce", "signature")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    member: int
    nonce: bytes
    signature: bytes
    def __init__(self, member: _Optional[int] = ..., nonce: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Draw(_message.Message):
    __slots__ = ("commitments", "reveals")
    COMMITMENTS_FIELD_NUMBER: _ClassVar[int]
    REVEALS_FIELD_NUMBER: _ClassVar[int]
    commitments: Commitments
    reveals: _containers.RepeatedCompositeFieldContainer[NonceReveal]
    def __init__(self, commitments: _Optional[_Union[Commitments, _Mapping]] = ..., reveals: _Optional[_Iterable[_Union[NonceReveal, _Mapping]]] = ...) -> None: ...

class NonceCommitted(_message.Message):
    __slots__ = ("nonce", "entry")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    entry: NonceCommitment
    def __init__(self, nonce: _Optional[bytes] = ..., entry: _Optional[_Union[NonceCommitment, _Mapping]] = ...) -> None: ...

class NonceRevealed(_message.Message):
    __slots__ = ("commitments",)
    COMMITMENTS_FIELD_NUMBER: _ClassVar[int]
    commitments: bytes
    def __init__(self, commitments: _Optional[bytes] = ...) -> None: ...

class DrawAwaited(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrawChecked(_message.Message):
    __slots__ = ("seed",)
    SEED_FIELD_NUMBER: _ClassVar[int]
    seed: bytes
    def __init__(self, seed: _Optional[bytes] = ...) -> None: ...
