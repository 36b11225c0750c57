from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PublishedKey(_message.Message):
    __slots__ = ("parameters", "public_key", "sealing_key", "signature")
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    SEALING_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    parameters: bytes
    public_key: bytes
    sealing_key: bytes
    signature: bytes
    def __init__(self, parameters: _Optional[bytes] = ..., public_key: _Optional[bytes] = ..., sealing_key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class EncryptedUpload(_message.Message):
    __slots__ = ("member", "length", "digest", "key", "sealed_seed", "signature")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SEALED_SEED_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    member: int
    length: int
    digest: bytes
    key: bytes
    sealed_seed: bytes
    signature: bytes
    def __init__(self, member: _Optional[int] = ..., length: _Optional[int] = ..., digest: _Optional[bytes] = ..., key: _Optional[bytes] = ..., sealed_seed: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Declaration(_message.Message):
    __slots__ = ("uploads", "total", "signature")
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    uploads: _containers.RepeatedCompositeFieldContainer[EncryptedUpload]
    total: bytes
    signature: bytes
    def __init__(self, uploads: _Optional[_Iterable[_Union[EncryptedUpload, _Mapping]]] = ..., total: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class SumRequest(_message.Message):
    __slots__ = ("declaration", "packed")
    DECLARATION_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    declaration: Declaration
    packed: bytes
    def __init__(self, declaration: _Optional[_Union[Declaration, _Mapping]] = ..., packed: _Optional[bytes] = ...) -> None: ...

class OpenedSum(_message.Message):
    __slots__ = ("declaration", "length", "digest", "signature")
    DECLARATION_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    declaration: bytes
    length: int
    digest: bytes
    signature: bytes
    def __init__(self, declaration: _Optional[bytes] = ..., length: _Optional[int] = ..., digest: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class HeldKey(_message.Message):
    __slots__ = ("secret", "sealing_secret", "published")
    SECRET_FIELD_NUMBER: _ClassVar[int]
    SEALING_SECRET_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    secret: bytes
    sealing_secret: bytes
    published: PublishedKey
    def __init__(self, secret: _Optional[bytes] = ..., sealing_secret: _Optional[bytes] = ..., published: _Optional[_Union[PublishedKey, _Mapping]] = ...) -> None: ...

class SpentKey(_message.Message):
    __slots__ = ("members", "aggregate_sha256")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    AGGREGATE_SHA256_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedScalarFieldContainer[int]
    aggregate_sha256: bytes
    def __init__(self, members: _Optional[_Iterable[int]] = ..., aggregate_sha256: _Optional[bytes] = ...) -> None: ...

class CiphertextUploaded(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    def __init__(self, digest: _Optional[bytes] = ...) -> None: ...
