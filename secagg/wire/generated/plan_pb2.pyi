from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Member(_message.Message):
    __slots__ = ("name", "role", "identity", "tls_spki_sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    TLS_SPKI_SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: str
    identity: bytes
    tls_spki_sha256: bytes
    def __init__(self, name: _Optional[str] = ..., role: _Optional[str] = ..., identity: _Optional[bytes] = ..., tls_spki_sha256: _Optional[bytes] = ...) -> None: ...

class Roster(_message.Message):
    __slots__ = ("version", "consortium", "members")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONSORTIUM_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    version: int
    consortium: str
    members: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, version: _Optional[int] = ..., consortium: _Optional[str] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class PlannedNoise(_message.Message):
    __slots__ = ("block", "multiplier", "sigma", "off_diagonal")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    OFF_DIAGONAL_FIELD_NUMBER: _ClassVar[int]
    block: str
    multiplier: int
    sigma: float
    off_diagonal: float
    def __init__(self, block: _Optional[str] = ..., multiplier: _Optional[int] = ..., sigma: _Optional[float] = ..., off_diagonal: _Optional[float] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("version", "session", "purpose", "method", "parameters", "data_kind", "schema", "classes", "backbone", "backbone_digest", "input_shape", "expand", "dimension", "radius", "levels", "centre", "max_records", "protection", "colluders", "dropouts", "min_clients_in_sum", "epsilon", "delta", "adjacency", "unit", "roster", "join_seconds", "step_seconds", "result", "normalisation", "noise", "noises", "security", "at_least", "round_seconds", "cohort", "noise_levels", "contact", "retention")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    DATA_KIND_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    BACKBONE_FIELD_NUMBER: _ClassVar[int]
    BACKBONE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    INPUT_SHAPE_FIELD_NUMBER: _ClassVar[int]
    EXPAND_FIELD_NUMBER: _ClassVar[int]
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    RADIUS_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    CENTRE_FIELD_NUMBER: _ClassVar[int]
    MAX_RECORDS_FIELD_NUMBER: _ClassVar[int]
    PROTECTION_FIELD_NUMBER: _ClassVar[int]
    COLLUDERS_FIELD_NUMBER: _ClassVar[int]
    DROPOUTS_FIELD_NUMBER: _ClassVar[int]
    MIN_CLIENTS_IN_SUM_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    ADJACENCY_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    JOIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    NORMALISATION_FIELD_NUMBER: _ClassVar[int]
    NOISE_FIELD_NUMBER: _ClassVar[int]
    NOISES_FIELD_NUMBER: _ClassVar[int]
    SECURITY_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    ROUND_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COHORT_FIELD_NUMBER: _ClassVar[int]
    NOISE_LEVELS_FIELD_NUMBER: _ClassVar[int]
    CONTACT_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    version: int
    session: bytes
    purpose: str
    method: str
    parameters: str
    data_kind: str
    schema: str
    classes: _containers.RepeatedScalarFieldContainer[str]
    backbone: str
    backbone_digest: bytes
    input_shape: _containers.RepeatedScalarFieldContainer[int]
    expand: int
    dimension: int
    radius: float
    levels: int
    centre: float
    max_records: int
    protection: str
    colluders: int
    dropouts: int
    min_clients_in_sum: int
    epsilon: float
    delta: float
    adjacency: str
    unit: str
    roster: bytes
    join_seconds: int
    step_seconds: int
    result: str
    normalisation: str
    noise: str
    noises: _containers.RepeatedCompositeFieldContainer[PlannedNoise]
    security: int
    at_least: int
    round_seconds: int
    cohort: int
    noise_levels: _containers.RepeatedScalarFieldContainer[int]
    contact: str
    retention: str
    def __init__(self, version: _Optional[int] = ..., session: _Optional[bytes] = ..., purpose: _Optional[str] = ..., method: _Optional[str] = ..., parameters: _Optional[str] = ..., data_kind: _Optional[str] = ..., schema: _Optional[str] = ..., classes: _Optional[_Iterable[str]] = ..., backbone: _Optional[str] = ..., backbone_digest: _Optional[bytes] = ..., input_shape: _Optional[_Iterable[int]] = ..., expand: _Optional[int] = ..., dimension: _Optional[int] = ..., radius: _Optional[float] = ..., levels: _Optional[int] = ..., centre: _Optional[float] = ..., max_records: _Optional[int] = ..., protection: _Optional[str] = ..., colluders: _Optional[int] = ..., dropouts: _Optional[int] = ..., min_clients_in_sum: _Optional[int] = ..., epsilon: _Optional[float] = ..., delta: _Optional[float] = ..., adjacency: _Optional[str] = ..., unit: _Optional[str] = ..., roster: _Optional[bytes] = ..., join_seconds: _Optional[int] = ..., step_seconds: _Optional[int] = ..., result: _Optional[str] = ..., normalisation: _Optional[str] = ..., noise: _Optional[str] = ..., noises: _Optional[_Iterable[_Union[PlannedNoise, _Mapping]]] = ..., security: _Optional[int] = ..., at_least: _Optional[int] = ..., round_seconds: _Optional[int] = ..., cohort: _Optional[int] = ..., noise_levels: _Optional[_Iterable[int]] = ..., contact: _Optional[str] = ..., retention: _Optional[str] = ...) -> None: ...
