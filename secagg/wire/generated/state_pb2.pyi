from secagg.wire.generated import session_pb2 as _session_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Remembered(_message.Message):
    __slots__ = ("state", "content", "frames")
    STATE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    state: str
    content: bytes
    frames: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, state: _Optional[str] = ..., content: _Optional[bytes] = ..., frames: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Advertised(_message.Message):
    __slots__ = ("channel_secret", "mask_secret", "seed", "dealing_secret", "advertisement", "noise_seed")
    CHANNEL_SECRET_FIELD_NUMBER: _ClassVar[int]
    MASK_SECRET_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    DEALING_SECRET_FIELD_NUMBER: _ClassVar[int]
    ADVERTISEMENT_FIELD_NUMBER: _ClassVar[int]
    NOISE_SEED_FIELD_NUMBER: _ClassVar[int]
    channel_secret: bytes
    mask_secret: bytes
    seed: bytes
    dealing_secret: bytes
    advertisement: _session_pb2.KeyAdvertisement
    noise_seed: bytes
    def __init__(self, channel_secret: _Optional[bytes] = ..., mask_secret: _Optional[bytes] = ..., seed: _Optional[bytes] = ..., dealing_secret: _Optional[bytes] = ..., advertisement: _Optional[_Union[_session_pb2.KeyAdvertisement, _Mapping]] = ..., noise_seed: _Optional[bytes] = ...) -> None: ...

class Dealt(_message.Message):
    __slots__ = ("channel_secret", "mask_secret", "seed", "directory", "own_seed_share", "own_key_share", "noise_seed", "own_noise_shares")
    CHANNEL_SECRET_FIELD_NUMBER: _ClassVar[int]
    MASK_SECRET_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    OWN_SEED_SHARE_FIELD_NUMBER: _ClassVar[int]
    OWN_KEY_SHARE_FIELD_NUMBER: _ClassVar[int]
    NOISE_SEED_FIELD_NUMBER: _ClassVar[int]
    OWN_NOISE_SHARES_FIELD_NUMBER: _ClassVar[int]
    channel_secret: bytes
    mask_secret: bytes
    seed: bytes
    directory: _session_pb2.Directory
    own_seed_share: bytes
    own_key_share: bytes
    noise_seed: bytes
    own_noise_shares: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, channel_secret: _Optional[bytes] = ..., mask_secret: _Optional[bytes] = ..., seed: _Optional[bytes] = ..., directory: _Optional[_Union[_session_pb2.Directory, _Mapping]] = ..., own_seed_share: _Optional[bytes] = ..., own_key_share: _Optional[bytes] = ..., noise_seed: _Optional[bytes] = ..., own_noise_shares: _Optional[_Iterable[bytes]] = ...) -> None: ...

class HeldShare(_message.Message):
    __slots__ = ("dealer", "seed_share", "key_share", "noise_shares")
    DEALER_FIELD_NUMBER: _ClassVar[int]
    SEED_SHARE_FIELD_NUMBER: _ClassVar[int]
    KEY_SHARE_FIELD_NUMBER: _ClassVar[int]
    NOISE_SHARES_FIELD_NUMBER: _ClassVar[int]
    dealer: int
    seed_share: bytes
    key_share: bytes
    noise_shares: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, dealer: _Optional[int] = ..., seed_share: _Optional[bytes] = ..., key_share: _Optional[bytes] = ..., noise_shares: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Uploaded(_message.Message):
    __slots__ = ("directory", "dealers", "held", "upload")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    DEALERS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    directory: bytes
    dealers: _containers.RepeatedScalarFieldContainer[int]
    held: _containers.RepeatedCompositeFieldContainer[HeldShare]
    upload: bytes
    def __init__(self, directory: _Optional[bytes] = ..., dealers: _Optional[_Iterable[int]] = ..., held: _Optional[_Iterable[_Union[HeldShare, _Mapping]]] = ..., upload: _Optional[bytes] = ...) -> None: ...

class Endorsed(_message.Message):
    __slots__ = ("directory", "dealers", "held", "survivors", "upload", "total")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    DEALERS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    directory: bytes
    dealers: _containers.RepeatedScalarFieldContainer[int]
    held: _containers.RepeatedCompositeFieldContainer[HeldShare]
    survivors: _containers.RepeatedScalarFieldContainer[int]
    upload: bytes
    total: bytes
    def __init__(self, directory: _Optional[bytes] = ..., dealers: _Optional[_Iterable[int]] = ..., held: _Optional[_Iterable[_Union[HeldShare, _Mapping]]] = ..., survivors: _Optional[_Iterable[int]] = ..., upload: _Optional[bytes] = ..., total: _Optional[bytes] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("survivors",)
    SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    survivors: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, survivors: _Optional[_Iterable[int]] = ...) -> None: ...

class PlainUploaded(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
