from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("body", "signature")
    BODY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    signature: bytes
    def __init__(self, body: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class FrameBody(_message.Message):
    __slots__ = ("round_digest", "sender", "receiver", "step", "head", "seen", "payload")
    ROUND_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    round_digest: bytes
    sender: int
    receiver: int
    step: str
    head: bytes
    seen: bytes
    payload: bytes
    def __init__(self, round_digest: _Optional[bytes] = ..., sender: _Optional[int] = ..., receiver: _Optional[int] = ..., step: _Optional[str] = ..., head: _Optional[bytes] = ..., seen: _Optional[bytes] = ..., payload: _Optional[bytes] = ...) -> None: ...

class KeyAdvertisement(_message.Message):
    __slots__ = ("member", "channel_key", "mask_key", "seed_commitment", "nonce", "signature", "noise_commitments")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_KEY_FIELD_NUMBER: _ClassVar[int]
    MASK_KEY_FIELD_NUMBER: _ClassVar[int]
    SEED_COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    NOISE_COMMITMENTS_FIELD_NUMBER: _ClassVar[int]
    member: int
    channel_key: bytes
    mask_key: bytes
    seed_commitment: bytes
    nonce: bytes
    signature: bytes
    noise_commitments: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, member: _Optional[int] = ..., channel_key: _Optional[bytes] = ..., mask_key: _Optional[bytes] = ..., seed_commitment: _Optional[bytes] = ..., nonce: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., noise_commitments: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Directory(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[KeyAdvertisement]
    def __init__(self, entries: _Optional[_Iterable[_Union[KeyAdvertisement, _Mapping]]] = ...) -> None: ...

class SealedShare(_message.Message):
    __slots__ = ("dealer", "holder", "seed_hash", "key_hash", "sealed", "signature", "noise_hashes")
    DEALER_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    SEED_HASH_FIELD_NUMBER: _ClassVar[int]
    KEY_HASH_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    NOISE_HASHES_FIELD_NUMBER: _ClassVar[int]
    dealer: int
    holder: int
    seed_hash: bytes
    key_hash: bytes
    sealed: bytes
    signature: bytes
    noise_hashes: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, dealer: _Optional[int] = ..., holder: _Optional[int] = ..., seed_hash: _Optional[bytes] = ..., key_hash: _Optional[bytes] = ..., sealed: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., noise_hashes: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Dealing(_message.Message):
    __slots__ = ("shares", "own_seed_hash", "own_key_hash", "signature", "own_noise_hashes")
    SHARES_FIELD_NUMBER: _ClassVar[int]
    OWN_SEED_HASH_FIELD_NUMBER: _ClassVar[int]
    OWN_KEY_HASH_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    OWN_NOISE_HASHES_FIELD_NUMBER: _ClassVar[int]
    shares: _containers.RepeatedCompositeFieldContainer[SealedShare]
    own_seed_hash: bytes
    own_key_hash: bytes
    signature: bytes
    own_noise_hashes: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, shares: _Optional[_Iterable[_Union[SealedShare, _Mapping]]] = ..., own_seed_hash: _Optional[bytes] = ..., own_key_hash: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., own_noise_hashes: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Inbox(_message.Message):
    __slots__ = ("dealers", "shares")
    DEALERS_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    dealers: _containers.RepeatedScalarFieldContainer[int]
    shares: _containers.RepeatedCompositeFieldContainer[SealedShare]
    def __init__(self, dealers: _Optional[_Iterable[int]] = ..., shares: _Optional[_Iterable[_Union[SealedShare, _Mapping]]] = ...) -> None: ...

class UploadHeader(_message.Message):
    __slots__ = ("length", "digest", "directory", "dealers", "complaints")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    DEALERS_FIELD_NUMBER: _ClassVar[int]
    COMPLAINTS_FIELD_NUMBER: _ClassVar[int]
    length: int
    digest: bytes
    directory: bytes
    dealers: bytes
    complaints: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, length: _Optional[int] = ..., digest: _Optional[bytes] = ..., directory: _Optional[bytes] = ..., dealers: _Optional[bytes] = ..., complaints: _Optional[_Iterable[int]] = ...) -> None: ...

class Taken(_message.Message):
    __slots__ = ("frame",)
    FRAME_FIELD_NUMBER: _ClassVar[int]
    frame: bytes
    def __init__(self, frame: _Optional[bytes] = ...) -> None: ...

class Survivors(_message.Message):
    __slots__ = ("members", "total")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedScalarFieldContainer[int]
    total: bytes
    def __init__(self, members: _Optional[_Iterable[int]] = ..., total: _Optional[bytes] = ...) -> None: ...

class Endorsement(_message.Message):
    __slots__ = ("member", "signature")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    member: int
    signature: bytes
    def __init__(self, member: _Optional[int] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Quorum(_message.Message):
    __slots__ = ("endorsements",)
    ENDORSEMENTS_FIELD_NUMBER: _ClassVar[int]
    endorsements: _containers.RepeatedCompositeFieldContainer[Endorsement]
    def __init__(self, endorsements: _Optional[_Iterable[_Union[Endorsement, _Mapping]]] = ...) -> None: ...

class OpenedShare(_message.Message):
    __slots__ = ("dealer", "share")
    DEALER_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    dealer: int
    share: bytes
    def __init__(self, dealer: _Optional[int] = ..., share: _Optional[bytes] = ...) -> None: ...

class Opening(_message.Message):
    __slots__ = ("seed_shares", "key_shares", "tags", "noise_shares")
    SEED_SHARES_FIELD_NUMBER: _ClassVar[int]
    KEY_SHARES_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    NOISE_SHARES_FIELD_NUMBER: _ClassVar[int]
    seed_shares: _containers.RepeatedCompositeFieldContainer[OpenedShare]
    key_shares: _containers.RepeatedCompositeFieldContainer[OpenedShare]
    tags: UploadTags
    noise_shares: _containers.RepeatedCompositeFieldContainer[OpenedShare]
    def __init__(self, seed_shares: _Optional[_Iterable[_Union[OpenedShare, _Mapping]]] = ..., key_shares: _Optional[_Iterable[_Union[OpenedShare, _Mapping]]] = ..., tags: _Optional[_Union[UploadTags, _Mapping]] = ..., noise_shares: _Optional[_Iterable[_Union[OpenedShare, _Mapping]]] = ...) -> None: ...

class UploadTags(_message.Message):
    __slots__ = ("member", "tags", "signature")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    member: int
    tags: bytes
    signature: bytes
    def __init__(self, member: _Optional[int] = ..., tags: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Unmasking(_message.Message):
    __slots__ = ("secrets", "tags", "uploads", "noise_seeds")
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    NOISE_SEEDS_FIELD_NUMBER: _ClassVar[int]
    secrets: _containers.RepeatedCompositeFieldContainer[OpenedSecret]
    tags: _containers.RepeatedCompositeFieldContainer[UploadTags]
    uploads: _containers.RepeatedScalarFieldContainer[bytes]
    noise_seeds: _containers.RepeatedCompositeFieldContainer[OpenedSecret]
    def __init__(self, secrets: _Optional[_Iterable[_Union[OpenedSecret, _Mapping]]] = ..., tags: _Optional[_Iterable[_Union[UploadTags, _Mapping]]] = ..., uploads: _Optional[_Iterable[bytes]] = ..., noise_seeds: _Optional[_Iterable[_Union[OpenedSecret, _Mapping]]] = ...) -> None: ...

class OpenedSecret(_message.Message):
    __slots__ = ("member", "secret")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    member: int
    secret: bytes
    def __init__(self, member: _Optional[int] = ..., secret: _Optional[bytes] = ...) -> None: ...

class Attachment(_message.Message):
    __slots__ = ("length", "digest")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    length: int
    digest: bytes
    def __init__(self, length: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("members", "aggregate_sha256", "head_sha256", "head", "broadcast", "release")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    AGGREGATE_SHA256_FIELD_NUMBER: _ClassVar[int]
    HEAD_SHA256_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedScalarFieldContainer[int]
    aggregate_sha256: bytes
    head_sha256: bytes
    head: _containers.RepeatedCompositeFieldContainer[Attachment]
    broadcast: _containers.RepeatedCompositeFieldContainer[Attachment]
    release: _containers.RepeatedCompositeFieldContainer[Attachment]
    def __init__(self, members: _Optional[_Iterable[int]] = ..., aggregate_sha256: _Optional[bytes] = ..., head_sha256: _Optional[bytes] = ..., head: _Optional[_Iterable[_Union[Attachment, _Mapping]]] = ..., broadcast: _Optional[_Iterable[_Union[Attachment, _Mapping]]] = ..., release: _Optional[_Iterable[_Union[Attachment, _Mapping]]] = ...) -> None: ...

class RoundOpening(_message.Message):
    __slots__ = ("number", "previous", "aggregate_sha256", "broadcast")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    AGGREGATE_SHA256_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_FIELD_NUMBER: _ClassVar[int]
    number: int
    previous: bytes
    aggregate_sha256: bytes
    broadcast: Attachment
    def __init__(self, number: _Optional[int] = ..., previous: _Optional[bytes] = ..., aggregate_sha256: _Optional[bytes] = ..., broadcast: _Optional[_Union[Attachment, _Mapping]] = ...) -> None: ...

class RefinementBroadcast(_message.Message):
    __slots__ = ("number", "scale", "weights", "matrix", "centre")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    MATRIX_FIELD_NUMBER: _ClassVar[int]
    CENTRE_FIELD_NUMBER: _ClassVar[int]
    number: int
    scale: float
    weights: bytes
    matrix: bytes
    centre: bytes
    def __init__(self, number: _Optional[int] = ..., scale: _Optional[float] = ..., weights: _Optional[bytes] = ..., matrix: _Optional[bytes] = ..., centre: _Optional[bytes] = ...) -> None: ...

class ModelState(_message.Message):
    __slots__ = ("number", "state")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    number: int
    state: bytes
    def __init__(self, number: _Optional[int] = ..., state: _Optional[bytes] = ...) -> None: ...

class Centres(_message.Message):
    __slots__ = ("number", "rows")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    number: int
    rows: bytes
    def __init__(self, number: _Optional[int] = ..., rows: _Optional[bytes] = ...) -> None: ...

class KeptClasses(_message.Message):
    __slots__ = ("classes",)
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    classes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, classes: _Optional[_Iterable[int]] = ...) -> None: ...

class Acknowledgement(_message.Message):
    __slots__ = ("aggregate_sha256", "opens", "outcome")
    AGGREGATE_SHA256_FIELD_NUMBER: _ClassVar[int]
    OPENS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    aggregate_sha256: bytes
    opens: bytes
    outcome: bytes
    def __init__(self, aggregate_sha256: _Optional[bytes] = ..., opens: _Optional[bytes] = ..., outcome: _Optional[bytes] = ...) -> None: ...

class Confirmation(_message.Message):
    __slots__ = ("acknowledgements",)
    ACKNOWLEDGEMENTS_FIELD_NUMBER: _ClassVar[int]
    acknowledgements: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, acknowledgements: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Return(_message.Message):
    __slots__ = ("opening", "acknowledgements")
    OPENING_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGEMENTS_FIELD_NUMBER: _ClassVar[int]
    opening: RoundOpening
    acknowledgements: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, opening: _Optional[_Union[RoundOpening, _Mapping]] = ..., acknowledgements: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Decline(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class UploadPart(_message.Message):
    __slots__ = ("frame", "data")
    FRAME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    frame: bytes
    data: bytes
    def __init__(self, frame: _Optional[bytes] = ..., data: _Optional[bytes] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("frame",)
    FRAME_FIELD_NUMBER: _ClassVar[int]
    frame: bytes
    def __init__(self, frame: _Optional[bytes] = ...) -> None: ...

class SubmitReply(_message.Message):
    __slots__ = ("frame",)
    FRAME_FIELD_NUMBER: _ClassVar[int]
    frame: bytes
    def __init__(self, frame: _Optional[bytes] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("round_digest", "step", "patience")
    ROUND_DIGEST_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    round_digest: bytes
    step: str
    patience: int
    def __init__(self, round_digest: _Optional[bytes] = ..., step: _Optional[str] = ..., patience: _Optional[int] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("round_digest", "digest", "start")
    ROUND_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    round_digest: bytes
    digest: bytes
    start: int
    def __init__(self, round_digest: _Optional[bytes] = ..., digest: _Optional[bytes] = ..., start: _Optional[int] = ...) -> None: ...

class ReadPart(_message.Message):
    __slots__ = ("digest", "start", "data")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    start: int
    data: bytes
    def __init__(self, digest: _Optional[bytes] = ..., start: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...
