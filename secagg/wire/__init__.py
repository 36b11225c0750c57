"""Values ⇄ bytes: one canonical protobuf encoding for each frozen message class."""

from secagg.wire.bounds import MAX_FRAME_BYTES, Choice, Items, Length, Range, Text
from secagg.wire.codec import decode, encode, message, read_choices
from secagg.wire.text import from_json, read_json, to_json

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
    "read_choices",
    "read_json",
    "to_json",
]
