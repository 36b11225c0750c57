from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AggregatorPledge(_message.Message):
    __slots__ = ("aggregator", "step", "content", "signature")
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    aggregator: int
    step: str
    content: bytes
    signature: bytes
    def __init__(self, aggregator: _Optional[int] = ..., step: _Optional[str] = ..., content: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class ShareManifest(_message.Message):
    __slots__ = ("client", "digests", "signature")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    client: int
    digests: _containers.RepeatedScalarFieldContainer[bytes]
    signature: bytes
    def __init__(self, client: _Optional[int] = ..., digests: _Optional[_Iterable[bytes]] = ..., signature: _Optional[bytes] = ...) -> None: ...

class ShareReceipt(_message.Message):
    __slots__ = ("aggregator", "client", "manifest", "signature")
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    aggregator: int
    client: int
    manifest: bytes
    signature: bytes
    def __init__(self, aggregator: _Optional[int] = ..., client: _Optional[int] = ..., manifest: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class SessionKeys(_message.Message):
    __slots__ = ("pledges",)
    PLEDGES_FIELD_NUMBER: _ClassVar[int]
    pledges: _containers.RepeatedCompositeFieldContainer[AggregatorPledge]
    def __init__(self, pledges: _Optional[_Iterable[_Union[AggregatorPledge, _Mapping]]] = ...) -> None: ...

class SetPledges(_message.Message):
    __slots__ = ("pledges",)
    PLEDGES_FIELD_NUMBER: _ClassVar[int]
    pledges: _containers.RepeatedCompositeFieldContainer[AggregatorPledge]
    def __init__(self, pledges: _Optional[_Iterable[_Union[AggregatorPledge, _Mapping]]] = ...) -> None: ...

class AcceptedUploads(_message.Message):
    __slots__ = ("aggregator", "nonce", "manifests", "pledges", "signature")
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    MANIFESTS_FIELD_NUMBER: _ClassVar[int]
    PLEDGES_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    aggregator: int
    nonce: bytes
    manifests: _containers.RepeatedCompositeFieldContainer[ShareManifest]
    pledges: _containers.RepeatedCompositeFieldContainer[AggregatorPledge]
    signature: bytes
    def __init__(self, aggregator: _Optional[int] = ..., nonce: _Optional[bytes] = ..., manifests: _Optional[_Iterable[_Union[ShareManifest, _Mapping]]] = ..., pledges: _Optional[_Iterable[_Union[AggregatorPledge, _Mapping]]] = ..., signature: _Optional[bytes] = ...) -> None: ...

class SetLists(_message.Message):
    __slots__ = ("lists",)
    LISTS_FIELD_NUMBER: _ClassVar[int]
    lists: _containers.RepeatedCompositeFieldContainer[AcceptedUploads]
    def __init__(self, lists: _Optional[_Iterable[_Union[AcceptedUploads, _Mapping]]] = ...) -> None: ...

class SumPledges(_message.Message):
    __slots__ = ("pledges",)
    PLEDGES_FIELD_NUMBER: _ClassVar[int]
    pledges: _containers.RepeatedCompositeFieldContainer[AggregatorPledge]
    def __init__(self, pledges: _Optional[_Iterable[_Union[AggregatorPledge, _Mapping]]] = ...) -> None: ...

class SumShare(_message.Message):
    __slots__ = ("aggregator", "agreed", "nonce", "length", "digest", "pledges")
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    AGREED_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PLEDGES_FIELD_NUMBER: _ClassVar[int]
    aggregator: int
    agreed: bytes
    nonce: bytes
    length: int
    digest: bytes
    pledges: _containers.RepeatedCompositeFieldContainer[AggregatorPledge]
    def __init__(self, aggregator: _Optional[int] = ..., agreed: _Optional[bytes] = ..., nonce: _Optional[bytes] = ..., length: _Optional[int] = ..., digest: _Optional[bytes] = ..., pledges: _Optional[_Iterable[_Union[AggregatorPledge, _Mapping]]] = ...) -> None: ...

class ReleasedShares(_message.Message):
    __slots__ = ("manifests", "shares")
    MANIFESTS_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    manifests: _containers.RepeatedCompositeFieldContainer[ShareManifest]
    shares: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, manifests: _Optional[_Iterable[_Union[ShareManifest, _Mapping]]] = ..., shares: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ManifestConflict(_message.Message):
    __slots__ = ("one", "other")
    ONE_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    one: ShareManifest
    other: ShareManifest
    def __init__(self, one: _Optional[_Union[ShareManifest, _Mapping]] = ..., other: _Optional[_Union[ShareManifest, _Mapping]] = ...) -> None: ...

class PledgeConflict(_message.Message):
    __slots__ = ("one", "other")
    ONE_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    one: AggregatorPledge
    other: AggregatorPledge
    def __init__(self, one: _Optional[_Union[AggregatorPledge, _Mapping]] = ..., other: _Optional[_Union[AggregatorPledge, _Mapping]] = ...) -> None: ...

class SharesSent(_message.Message):
    __slots__ = ("manifest",)
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    manifest: ShareManifest
    def __init__(self, manifest: _Optional[_Union[ShareManifest, _Mapping]] = ...) -> None: ...

class Collecting(_message.Message):
    __slots__ = ("secret", "manifests")
    SECRET_FIELD_NUMBER: _ClassVar[int]
    MANIFESTS_FIELD_NUMBER: _ClassVar[int]
    secret: bytes
    manifests: _containers.RepeatedCompositeFieldContainer[ShareManifest]
    def __init__(self, secret: _Optional[bytes] = ..., manifests: _Optional[_Iterable[_Union[ShareManifest, _Mapping]]] = ...) -> None: ...

class SetCommitted(_message.Message):
    __slots__ = ("secret", "manifests", "nonce")
    SECRET_FIELD_NUMBER: _ClassVar[int]
    MANIFESTS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    secret: bytes
    manifests: _containers.RepeatedCompositeFieldContainer[ShareManifest]
    nonce: bytes
    def __init__(self, secret: _Optional[bytes] = ..., manifests: _Optional[_Iterable[_Union[ShareManifest, _Mapping]]] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class SetRevealed(_message.Message):
    __slots__ = ("secret", "pledges")
    SECRET_FIELD_NUMBER: _ClassVar[int]
    PLEDGES_FIELD_NUMBER: _ClassVar[int]
    secret: bytes
    pledges: _containers.RepeatedCompositeFieldContainer[AggregatorPledge]
    def __init__(self, secret: _Optional[bytes] = ..., pledges: _Optional[_Iterable[_Union[AggregatorPledge, _Mapping]]] = ...) -> None: ...

class SumCommitted(_message.Message):
    __slots__ = ("members", "agreed", "nonce", "digest")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    AGREED_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedScalarFieldContainer[int]
    agreed: bytes
    nonce: bytes
    digest: bytes
    def __init__(self, members: _Optional[_Iterable[int]] = ..., agreed: _Optional[bytes] = ..., nonce: _Optional[bytes] = ..., digest: _Optional[bytes] = ...) -> None: ...

class SumRevealed(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, members: _Optional[_Iterable[int]] = ...) -> None: ...
