"""Conversion of values to bytes and back: one canonical protobuf encoding for each frozen message class."""

from secagg.wire.codec import (
    MAX_FRAME_BYTES,
    Choice,
    Items,
    Length,
    Range,
    Text,
    decode,
    encode,
    message,
    ranges_of,
    read_choices,
    require_in_range,
    tag_of,
)
from secagg.wire.text import from_json, plain, plain_fields, read_json, to_json

__all__ = [
    "MAX_FRAME_BYTES",
    "Choice",
    "Items",
    "Length",
    "Range",
    "Text",
    "decode",
    "encode",
    "from_json",
    "message",
    "plain",
    "plain_fields",
    "ranges_of",
    "read_choices",
    "read_json",
    "require_in_range",
    "tag_of",
    "to_json",
]
