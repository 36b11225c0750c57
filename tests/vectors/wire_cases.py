"""One value of every message class with its canonical bytes, and bytes that must be refused."""

import hashlib
from typing import Any

from tests.vectors.protobuf import FIELDS, block, canonical, scalar, varint


def _hex(name: str, size: int = 32) -> str:
    return hashlib.shake_256(b"secagg wire v1: " + name.encode()).hexdigest(size)


def _entry(member: int) -> dict[str, Any]:
    fields = ("channel_key", "mask_key", "seed_commitment", "nonce")
    return {"member": member, **{field: _hex(f"{field} {member}") for field in fields}, "signature": _hex("s", 64)}


def _envelope(dealer: int, holder: int) -> dict[str, Any]:
    name = f"{dealer} {holder}"
    hashes = {"seed_hash": _hex(f"seed {name}"), "key_hash": _hex(f"key {name}")}
    return {"dealer": dealer, "holder": holder, **hashes, "sealed": _hex(name, 82), "signature": _hex(name, 64)}


def _held(dealer: int) -> dict[str, Any]:
    return {"dealer": dealer, "seed_share": _hex(f"a{dealer}", 33), "key_share": _hex(f"b{dealer}", 33)}


def _plan() -> dict[str, Any]:
    text = {"purpose": "", "method": "fedcgs", "parameters": '{"covariance":"within"}', "data_kind": "features"}
    text |= {"schema": "", "backbone": "features", "protection": "masked", "adjacency": "", "unit": "record"}
    numbers = {"version": 1, "expand": 0, "dimension": 64, "levels": 65536, "max_records": 2**31, "colluders": 0}
    numbers |= {"dropouts": 1, "minimum_cohort": 3, "join_seconds": 128, "step_seconds": 60}
    floats = {"radius": 3.5, "centre": -0.25, "epsilon": "inf", "delta": 0.0}
    rest = {"session": _hex("session"), "backbone_digest": _hex("backbone"), "roster": _hex("roster")}
    rest |= {"classes": ["cat", "Löwe"], "input_shape": [64], "result": "members"}
    every = text | numbers | floats | rest
    return {name: every[name] for name, _ in FIELDS["Plan"]}


def values() -> list[tuple[str, dict[str, Any]]]:
    """One readable value for every message."""
    secrets = {name: _hex(name) for name in ("channel_secret", "mask_secret", "seed")}
    directory = {"entries": [_entry(1), _entry(300)]}
    own = {"own_seed_share": _hex("own seed", 33), "own_key_share": _hex("own key", 33)}
    dealt = {"own_seed_hash": _hex("own seed"), "own_key_hash": _hex("own key"), "signature": _hex("dealing", 64)}
    envelopes = [_envelope(2, 1), _envelope(2, 200)]
    members = [{"name": "server", "role": "server", "identity": _hex("server")}]
    members += [{"name": f"clinic-{letter}", "role": "client", "identity": _hex(letter)} for letter in "ab"]
    kept = {"directory": _hex("directory"), "dealers": [1, 2, 300], "held": [_held(1), _held(300)]}
    body = {"plan": _hex("plan"), "sender": 0, "receiver": 129, "step": "Survivors", "head": _hex("head")}
    header = {"length": 2**40, "digest": _hex("vector"), "directory": _hex("directory"), "dealers": _hex("dealers")}
    outcome = {"members": [1, 4096], "aggregate_sha256": _hex("sum"), "head_sha256": _hex("head"), "head": ""}
    return [
        ("Member", members[0]),
        ("Roster", {"version": 1, "consortium": "Two clinics", "members": members}),
        ("Plan", _plan()),
        ("Frame", {"body": _hex("body", 200), "signature": _hex("frame", 64)}),
        ("FrameBody", body | {"seen": _hex("seen"), "payload": "0a0101"}),
        ("KeyAdvertisement", _entry(4096)),
        ("Directory", directory),
        ("SealedShare", _envelope(1, 2)),
        ("Dealing", {"shares": envelopes, **dealt}),
        ("Inbox", {"dealers": [1, 2, 128, 4096], "shares": [_envelope(1, 7), _envelope(2, 7)]}),
        ("UploadHeader", header | {"complaints": [5]}),
        ("Survivors", {"members": [1, 127, 128, 4096]}),
        ("Endorsement", {"member": 128, "signature": _hex("endorsement", 64)}),
        ("Quorum", {"endorsements": [{"member": m, "signature": _hex(f"e{m}", 64)} for m in (1, 2)]}),
        ("OpenedShare", {"dealer": 1, "share": _hex("share", 33)}),
        ("Opening", {"seed_shares": [{"dealer": 1, "share": _hex("o", 33)}], "key_shares": []}),
        ("Outcome", outcome),
        ("Acknowledgement", {"aggregate_sha256": _hex("sum")}),
        ("Receipt", {}),
        ("Abort", {"reason": "too few clients are left"}),
        ("Record", {"index": 0, "previous": "00" * 32, "kind": "closed", "content": "44"}),
        ("Remembered", {"state": "Uploaded", "content": _hex("state", 40), "frame": ""}),
        ("HeldShare", _held(9)),
        ("Advertised", {**secrets, "advertisement": _entry(1)}),
        ("Dealt", {**secrets, "directory": directory, **own}),
        ("Uploaded", kept),
        ("Endorsed", kept | {"survivors": [1, 300]}),
        ("Opened", {"survivors": [2, 3, 5]}),
        ("PlainUploaded", {}),
    ]


def wire() -> dict[str, Any]:
    """Canonical bytes, and tampered ones."""
    cases = [{"message": name, "value": value, "bytes": canonical(name, value).hex()} for name, value in values()]
    key, signature = bytes.fromhex(_hex("k")), bytes.fromhex(_hex("s", 64))
    endorsed = scalar(1, "uint", 5) + block(2, signature)
    survivors, plan = canonical("Survivors", {"members": [1, 2, 3]}), _plan()
    entry, other = (canonical("KeyAdvertisement", _entry(member)) for member in (1, 2))
    nan = b"\x00\x00\x00\x00\x00\x00\xf8\x7f"
    radius = canonical("Plan", plan).replace(scalar(14, "double", 3.5), varint(14 * 8 + 1) + nan)
    refused = [
        ("unknown_field", "Endorsement", endorsed + scalar(3, "uint", 1)),
        ("unknown_field_inside", "Quorum", block(1, endorsed + scalar(9, "uint", 1))),
        ("field_in_a_message_without_any", "Receipt", scalar(1, "uint", 1)),
        ("fields_out_of_order", "Endorsement", block(2, signature) + scalar(1, "uint", 5)),
        ("field_twice", "Endorsement", scalar(1, "uint", 4) + endorsed),
        ("number_with_a_needless_byte", "Endorsement", bytes([8, 0x85, 0]) + block(2, signature)),
        ("length_with_a_needless_byte", "Acknowledgement", bytes([10, 0xA0, 0]) + key),
        ("tag_with_a_needless_byte", "Acknowledgement", bytes([0x8A, 0, 32]) + key),
        ("number_above_32_bits", "Endorsement", bytes([8]) + varint(2**32 + 5) + block(2, signature)),
        ("negative_number", "Endorsement", bytes([8]) + varint(2**64 - 1) + block(2, signature)),
        ("number_as_bytes", "Endorsement", block(1, b"\x05") + block(2, signature)),
        ("bytes_as_number", "Acknowledgement", scalar(1, "uint", 32)),
        ("numbers_not_packed", "Survivors", scalar(1, "uint", 1) + scalar(1, "uint", 2)),
        ("numbers_packed_in_two_pieces", "Survivors", block(1, b"\x01") + block(1, b"\x02")),
        ("default_written_out", "Outcome", canonical("Outcome", dict(values())["Outcome"]) + block(4, b"")),
        ("last_byte_cut_off", "Survivors", survivors[:-1]),
        ("byte_added", "Survivors", survivors + b"\x00"),
        ("nothing", "Survivors", b""),
        ("member_zero", "Survivors", block(1, b"\x00\x01")),
        ("member_above_4096", "Survivors", block(1, varint(4097))),
        ("members_out_of_order", "Survivors", block(1, b"\x02\x01")),
        ("member_twice", "Survivors", block(1, b"\x01\x01")),
        ("entries_out_of_order", "Directory", block(1, other) + block(1, entry)),
        ("entry_twice", "Directory", block(1, entry) + block(1, entry)),
        ("member_left_out", "Endorsement", block(2, signature)),
        ("signature_left_out", "Endorsement", scalar(1, "uint", 5)),
        ("signature_of_63_bytes", "Endorsement", scalar(1, "uint", 5) + block(2, signature[:-1])),
        ("digest_of_33_bytes", "Acknowledgement", block(1, key + b"\x00")),
        ("reason_left_out", "Abort", b""),
        ("reason_of_2001_letters", "Abort", scalar(1, "text", "a" * 2001)),
        ("text_not_utf8", "Abort", block(1, b"\xff\xfe")),
        ("radius_not_a_number", "Plan", radius),
        ("radius_zero", "Plan", canonical("Plan", plan | {"radius": 0.0})),
        ("radius_infinite", "Plan", canonical("Plan", plan | {"radius": "inf"})),
        ("another_version", "Plan", canonical("Plan", plan | {"version": 2})),
        ("one_class", "Plan", canonical("Plan", plan | {"classes": ["cat"]})),
        ("message_of_another_class", "Survivors", block(1, endorsed)),
    ]
    failing = [{"name": name, "message": message, "bytes": data.hex()} for name, message, data in refused]
    return {"source": "protos/secagg/v1, written by tests/vectors/protobuf.py", "cases": cases, "refused": failing}
