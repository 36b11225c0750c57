"""A protobuf writer of its own, with the fields of protos/secagg/v1 typed in by hand."""

import struct
from typing import Any

_ENTRY = [
    ("member", "uint"),
    ("channel_key", "bytes"),
    ("mask_key", "bytes"),
    ("seed_commitment", "bytes"),
    ("nonce", "bytes"),
    ("signature", "bytes"),
    ("noise_commitments", "bytes*"),
]
_ENVELOPE = [
    ("dealer", "uint"),
    ("holder", "uint"),
    ("seed_hash", "bytes"),
    ("key_hash", "bytes"),
    ("sealed", "bytes"),
    ("signature", "bytes"),
    ("noise_hashes", "bytes*"),
]
_HELD = ("held", "HeldShare*")
_MANIFESTS, _PLEDGES = ("manifests", "ShareManifest*"), ("pledges", "AggregatorPledge*")
_PLAN = """version:uint session:bytes purpose:text method:text parameters:text data_kind:text schema:text
classes:text* backbone:text backbone_digest:bytes input_shape:uint* expand:uint dimension:uint radius:double
levels:uint centre:double max_records:uint protection:text colluders:uint dropouts:uint min_clients_in_sum:uint
epsilon:double delta:double adjacency:text unit:text roster:bytes join_seconds:uint step_seconds:uint result:text
normalisation:text noise:text noises:PlannedNoise* security:uint at_least:uint
round_seconds:uint cohort:uint noise_levels:uint* contact:text retention:text"""

FIELDS: dict[str, list[tuple[str, str]]] = {
    "Member": [("name", "text"), ("role", "text"), ("identity", "bytes"), ("tls_spki_sha256", "bytes")],
    "Roster": [("version", "uint"), ("consortium", "text"), ("members", "Member*")],
    "Plan": [(name, kind) for name, kind in (entry.split(":") for entry in _PLAN.split())],
    "PlannedNoise": [("block", "text"), ("multiplier", "uint"), ("sigma", "double"), ("off_diagonal", "double")],
    "Frame": [("body", "bytes"), ("signature", "bytes")],
    "FrameBody": [
        ("round_digest", "bytes"),
        ("sender", "uint"),
        ("receiver", "uint"),
        ("step", "text"),
        ("head", "bytes"),
        ("seen", "bytes"),
        ("payload", "bytes"),
    ],
    "KeyAdvertisement": _ENTRY,
    "Directory": [("entries", "KeyAdvertisement*")],
    "SealedShare": _ENVELOPE,
    "Dealing": [
        ("shares", "SealedShare*"),
        ("own_seed_hash", "bytes"),
        ("own_key_hash", "bytes"),
        ("signature", "bytes"),
        ("own_noise_hashes", "bytes*"),
    ],
    "Inbox": [("dealers", "uint*"), ("shares", "SealedShare*")],
    "UploadHeader": [
        ("length", "uint"),
        ("digest", "bytes"),
        ("directory", "bytes"),
        ("dealers", "bytes"),
        ("complaints", "uint*"),
    ],
    "Survivors": [("members", "uint*"), ("total", "bytes")],
    "Endorsement": [("member", "uint"), ("signature", "bytes")],
    "Quorum": [("endorsements", "Endorsement*")],
    "OpenedShare": [("dealer", "uint"), ("share", "bytes")],
    "Opening": [
        ("seed_shares", "OpenedShare*"),
        ("key_shares", "OpenedShare*"),
        ("tags", "UploadTags"),
        ("noise_shares", "OpenedShare*"),
    ],
    "UploadTags": [("member", "uint"), ("tags", "bytes"), ("signature", "bytes")],
    "OpenedSecret": [("member", "uint"), ("secret", "bytes")],
    "Unmasking": [
        ("secrets", "OpenedSecret*"),
        ("tags", "UploadTags*"),
        ("uploads", "bytes*"),
        ("noise_seeds", "OpenedSecret*"),
    ],
    "Attachment": [("length", "uint"), ("digest", "bytes")],
    "Outcome": [
        ("members", "uint*"),
        ("aggregate_sha256", "bytes"),
        ("head_sha256", "bytes"),
        ("head", "Attachment*"),
        ("broadcast", "Attachment*"),
        ("release", "Attachment*"),
    ],
    "RoundOpening": [
        ("number", "uint"),
        ("previous", "bytes"),
        ("aggregate_sha256", "bytes"),
        ("broadcast", "Attachment"),
    ],
    "RefinementBroadcast": [
        ("number", "uint"),
        ("scale", "double"),
        ("weights", "bytes"),
        ("matrix", "bytes"),
        ("centre", "bytes"),
    ],
    "Centres": [("number", "uint"), ("rows", "bytes")],
    "ModelState": [("number", "uint"), ("state", "bytes")],
    "KeptClasses": [("classes", "uint*")],
    "Acknowledgement": [("aggregate_sha256", "bytes"), ("opens", "bytes"), ("outcome", "bytes")],
    "Confirmation": [("acknowledgements", "bytes*")],
    "Return": [("opening", "RoundOpening"), ("acknowledgements", "bytes*")],
    "Receipt": [],
    "Taken": [("frame", "bytes")],
    "Decline": [("reason", "text")],
    "Abort": [("reason", "text")],
    "Record": [("index", "uint"), ("previous", "bytes"), ("kind", "text"), ("content", "bytes")],
    "Remembered": [("state", "text"), ("content", "bytes"), ("frames", "bytes*")],
    "HeldShare": [("dealer", "uint"), ("seed_share", "bytes"), ("key_share", "bytes"), ("noise_shares", "bytes*")],
    "Advertised": [
        ("channel_secret", "bytes"),
        ("mask_secret", "bytes"),
        ("seed", "bytes"),
        ("dealing_secret", "bytes"),
        ("advertisement", "KeyAdvertisement"),
        ("noise_seed", "bytes"),
    ],
    "Dealt": [
        ("channel_secret", "bytes"),
        ("mask_secret", "bytes"),
        ("seed", "bytes"),
        ("directory", "Directory"),
        ("own_seed_share", "bytes"),
        ("own_key_share", "bytes"),
        ("noise_seed", "bytes"),
        ("own_noise_shares", "bytes*"),
    ],
    "Uploaded": [("directory", "bytes"), ("dealers", "uint*"), _HELD, ("upload", "bytes")],
    "Endorsed": [
        ("directory", "bytes"),
        ("dealers", "uint*"),
        _HELD,
        ("survivors", "uint*"),
        ("upload", "bytes"),
        ("total", "bytes"),
    ],
    "Opened": [("survivors", "uint*")],
    "PlainUploaded": [],
    "NonceCommitment": [("member", "uint"), ("commitment", "bytes"), ("signature", "bytes")],
    "Commitments": [("entries", "NonceCommitment*")],
    "NonceReveal": [("member", "uint"), ("nonce", "bytes"), ("signature", "bytes")],
    "Draw": [("commitments", "Commitments"), ("reveals", "NonceReveal*")],
    "NonceCommitted": [("nonce", "bytes"), ("entry", "NonceCommitment")],
    "NonceRevealed": [("commitments", "bytes")],
    "DrawAwaited": [],
    "DrawChecked": [("seed", "bytes")],
    "AggregatorPledge": [("aggregator", "uint"), ("step", "text"), ("content", "bytes"), ("signature", "bytes")],
    "ShareManifest": [("client", "uint"), ("digests", "bytes*"), ("signature", "bytes")],
    "ShareReceipt": [("aggregator", "uint"), ("client", "uint"), ("manifest", "bytes"), ("signature", "bytes")],
    "SessionKeys": [_PLEDGES],
    "SetPledges": [_PLEDGES],
    "AcceptedUploads": [("aggregator", "uint"), ("nonce", "bytes"), _MANIFESTS, _PLEDGES, ("signature", "bytes")],
    "SetLists": [("lists", "AcceptedUploads*")],
    "SumPledges": [_PLEDGES],
    "SumShare": [
        ("aggregator", "uint"),
        ("agreed", "bytes"),
        ("nonce", "bytes"),
        ("length", "uint"),
        ("digest", "bytes"),
        _PLEDGES,
    ],
    "ReleasedShares": [_MANIFESTS, ("shares", "bytes*")],
    "ManifestConflict": [("one", "ShareManifest"), ("other", "ShareManifest")],
    "PledgeConflict": [("one", "AggregatorPledge"), ("other", "AggregatorPledge")],
    "SharesSent": [("manifest", "ShareManifest")],
    "Collecting": [("secret", "bytes"), _MANIFESTS],
    "SetCommitted": [("secret", "bytes"), _MANIFESTS, ("nonce", "bytes")],
    "SetRevealed": [("secret", "bytes"), _PLEDGES],
    "SumCommitted": [("members", "uint*"), ("agreed", "bytes"), ("nonce", "bytes"), ("digest", "bytes")],
    "SumRevealed": [("members", "uint*")],
    "PublishedKey": [
        ("parameters", "bytes"),
        ("public_key", "bytes"),
        ("sealing_key", "bytes"),
        ("signature", "bytes"),
    ],
    "EncryptedUpload": [
        ("member", "uint"),
        ("length", "uint"),
        ("digest", "bytes"),
        ("key", "bytes"),
        ("sealed_seed", "bytes"),
        ("signature", "bytes"),
    ],
    "Declaration": [("uploads", "EncryptedUpload*"), ("total", "bytes"), ("signature", "bytes")],
    "SumRequest": [("declaration", "Declaration"), ("packed", "bytes")],
    "OpenedSum": [("declaration", "bytes"), ("length", "uint"), ("digest", "bytes"), ("signature", "bytes")],
    "HeldKey": [("secret", "bytes"), ("sealing_secret", "bytes"), ("published", "PublishedKey")],
    "SpentKey": [("members", "uint*"), ("aggregate_sha256", "bytes")],
    "CiphertextUploaded": [("digest", "bytes")],
}


def varint(value: int) -> bytes:
    """Seven bits a byte, least significant first."""
    octets = []
    while value > 127:
        octets.append(value % 128 + 128)
        value //= 128
    return bytes([*octets, value])


def block(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number * 8 + 2) + varint(len(content)) + content


def scalar(number: int, kind: str, value: Any) -> bytes:
    """One field that may not be left out."""
    if kind == "uint":
        return varint(number * 8) + varint(value)
    if kind == "double":
        return varint(number * 8 + 1) + struct.pack("<d", float(value))
    if kind == "text":
        return block(number, value.encode("utf-8"))
    return block(number, bytes.fromhex(value) if kind == "bytes" else canonical(kind, value))


def canonical(name: str, value: dict[str, Any]) -> bytes:
    """The bytes of a message given in its readable form: defaults left out, fields in order, numbers packed."""
    written = b""
    for number, (field, kind) in enumerate(FIELDS[name], start=1):
        content = value[field]
        if kind == "uint*":
            written += block(number, b"".join(map(varint, content))) if content else b""
        elif kind.endswith("*"):
            written += b"".join(scalar(number, kind[:-1], item) for item in content)
        elif kind[0].isupper() or content not in (0, ""):
            written += scalar(number, kind, content)
    return written
