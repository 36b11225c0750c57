"""One value of every message class with its canonical bytes, and bytes that must be refused."""

import hashlib
from typing import Any

from tests.vectors import independent as reference
from tests.vectors.protobuf import FIELDS, block, canonical, scalar, varint


def _hex(name: str, size: int = 32) -> str:
    return hashlib.shake_256(b"secagg wire v1: " + name.encode()).hexdigest(size)


def _entry(member: int, levels: int = 0) -> dict[str, Any]:
    fields = {"channel_key": 1216, "mask_key": 32, "seed_commitment": 32, "nonce": 32}
    entry = {field: _hex(f"{field} {member}", size) for field, size in fields.items()}
    commitments = [_hex(f"noise {level} {member}") for level in range(levels)]
    return {"member": member, **entry, "signature": _hex("s", 64), "noise_commitments": commitments}


def _envelope(dealer: int, holder: int, levels: int = 0) -> dict[str, Any]:
    name = f"{dealer} {holder}"
    hashes = {"seed_hash": _hex(f"seed {name}"), "key_hash": _hex(f"key {name}")}
    sealed = {"sealed": _hex(name, 1202 + 33 * levels), "signature": _hex(name, 64)}
    noise = [_hex(f"noise {level} {name}") for level in range(levels)]
    return {"dealer": dealer, "holder": holder, **hashes, **sealed, "noise_hashes": noise}


def _held(dealer: int, levels: int = 0) -> dict[str, Any]:
    shares = {"seed_share": _hex(f"a{dealer}", 33), "key_share": _hex(f"b{dealer}", 33)}
    return {"dealer": dealer, **shares, "noise_shares": [_hex(f"c{level}", 33) for level in range(levels)]}


def _plan() -> dict[str, Any]:
    text = {"purpose": "", "method": "fedcgs", "parameters": '{"covariance":"within"}', "data_kind": "features"}
    text |= {"schema": "", "backbone": "features", "protection": "masked", "adjacency": "", "unit": "record"}
    numbers = {"version": 9, "expand": 0, "dimension": 64, "levels": 65536, "max_records": 2**31, "colluders": 0}
    numbers |= {"dropouts": 1, "min_clients_in_sum": 3, "join_seconds": 128, "step_seconds": 60, "round_seconds": 86400}
    floats = {"radius": 3.5, "centre": -0.25, "epsilon": "inf", "delta": 0.0}
    rest = {"session": _hex("session"), "backbone_digest": _hex("backbone"), "roster": _hex("roster")}
    rest |= {"classes": ["cat", "Löwe"], "input_shape": [64], "result": "members"}
    rest |= {"normalisation": "none", "noise": "", "noises": [], "security": 128, "at_least": 0, "cohort": 0}
    rest |= {"noise_levels": [], "contact": "", "retention": ""}
    every = text | numbers | floats | rest
    return {name: every[name] for name, _ in FIELDS["Plan"]}


def _noisy_plan() -> dict[str, Any]:
    noises = [_noise("counts", 1 << 31, 1234.5, 0.0), _noise("second_moment", 1, 5.5, 4.0009765625)]
    promise = {"epsilon": 0.5, "delta": 1e-05, "adjacency": "replace-one", "unit": "client", "noise": "client"}
    promise |= {
        "radius": 1.0,
        "normalisation": "unit",
        "noises": noises,
        "security": 256,
        "at_least": 2**40,
        "cohort": 4096,
        "noise_levels": [0, 4095],
        "contact": "Dr. Löwe, +41 61 000 00 00",
        "retention": "90 days",
    }
    return _plan() | promise


def _noise(block: str, multiplier: int, sigma: float, off_diagonal: float) -> dict[str, Any]:
    return {"block": block, "multiplier": multiplier, "sigma": sigma, "off_diagonal": off_diagonal}


def _member(name: str, role: str) -> dict[str, Any]:
    return {"name": name, "role": role, "identity": _hex(name), "tls_spki_sha256": _hex(f"TLS key of {name}")}


def _with_noise_seed(seed: str) -> bytes:
    return canonical("Advertised", dict(values())["Advertised"] | {"noise_seed": seed})


def values() -> list[tuple[str, dict[str, Any]]]:
    """One readable value for every message."""
    secrets = {name: _hex(name) for name in ("channel_secret", "mask_secret", "seed")}
    dealing = {"dealing_secret": _hex("dealing secret"), "advertisement": _entry(1)}
    directory = {"entries": [_entry(1), _entry(300)]}
    own = {"own_seed_share": _hex("own seed", 33), "own_key_share": _hex("own key", 33)}
    own_noise = {"noise_seed": _hex("noise"), "own_noise_shares": [_hex("own noise", 33)]}
    without = {"noise_seed": "", "own_noise_shares": []}
    dealt = {"own_seed_hash": _hex("own seed"), "own_key_hash": _hex("own key"), "signature": _hex("dealing", 64)}
    dealt |= {"own_noise_hashes": []}
    envelopes = [_envelope(2, 1), _envelope(2, 200)]
    members = [_member("server", "server")]
    members += [_member(f"clinic-{letter}", "client") for letter in "ab"]
    roles = ("aggregator", "aggregator", "key-holder")
    members += [_member(f"second-{place}", role) for place, role in enumerate(roles)]
    kept = {"directory": _hex("directory"), "dealers": [1, 2, 300], "held": [_held(1), _held(300)]}
    body = {"round_digest": _hex("plan"), "sender": 0, "receiver": 4113, "step": "Survivors", "head": _hex("head")}
    header = {"length": 2**40, "digest": _hex("vector"), "directory": _hex("directory"), "dealers": _hex("dealers")}
    outcome = {"members": [1, 4096], "aggregate_sha256": _hex("sum"), "head_sha256": _hex("head"), "head": []}
    lengths = {"next": 2**30 + 2**20, "ring": 1}
    attached = {name: {"length": length, "digest": _hex(name)} for name, length in lengths.items()}
    secret = [{"member": 300, "secret": _hex("seed")}]
    opened = {"seed_shares": [{"dealer": 1, "share": _hex("o", 33)}], "key_shares": [], "tags": _tags(1)}
    last, between = {"broadcast": [], "release": []}, {"broadcast": [attached["next"]], "release": [attached["ring"]]}
    opening = {"number": 300, "previous": _hex("before"), "aggregate_sha256": _hex("sum")}
    opening |= {"broadcast": attached["ring"]}
    geometry = {"weights": _hex("weights", 48), "matrix": _hex("matrix", 32), "centre": _hex("centre", 16)}
    return [
        ("Member", members[0]),
        ("Roster", {"version": 2, "consortium": "Two clinics", "members": members}),
        ("Plan", _plan()),
        ("Plan", _noisy_plan()),
        ("PlannedNoise", _noise("gradient", 1, 3.0, 0.0)),
        ("Frame", {"body": _hex("body", 200), "signature": _hex("frame", 64)}),
        ("FrameBody", body | {"seen": _hex("seen"), "payload": "0a0101"}),
        ("KeyAdvertisement", _entry(4096)),
        ("KeyAdvertisement", _entry(1, 2)),
        ("Directory", directory),
        ("SealedShare", _envelope(1, 2)),
        ("SealedShare", _envelope(1, 2, 2)),
        ("Dealing", {"shares": envelopes, **dealt}),
        ("Dealing", {"shares": [_envelope(2, 1, 1)], **dealt, "own_noise_hashes": [_hex("own noise")]}),
        ("Inbox", {"dealers": [1, 2, 128, 4096], "shares": [_envelope(1, 7), _envelope(2, 7)]}),
        ("UploadHeader", header | {"complaints": [5]}),
        ("Survivors", {"members": [1, 127, 128, 4096], "total": _hex("total")}),
        ("Endorsement", {"member": 128, "signature": _hex("endorsement", 64)}),
        ("Quorum", {"endorsements": [{"member": m, "signature": _hex(f"e{m}", 64)} for m in (1, 2)]}),
        ("OpenedShare", {"dealer": 1, "share": _hex("share", 33)}),
        ("Opening", opened | {"noise_shares": []}),
        ("Opening", opened | {"noise_shares": [{"dealer": 1, "share": _hex("n", 33)}]}),
        ("UploadTags", _tags(4096)),
        ("OpenedSecret", {"member": 300, "secret": _hex("mask key")}),
        ("Unmasking", {"secrets": secret, "tags": [], "uploads": [_hex("frame", 260)], "noise_seeds": []}),
        ("Unmasking", {"secrets": secret, "tags": [_tags(1), _tags(300)], "uploads": [], "noise_seeds": secret}),
        ("Attachment", attached["next"]),
        ("Outcome", outcome | last),
        ("Outcome", outcome | between),
        ("Outcome", outcome | between | {"release": [attached["ring"], attached["next"]]}),
        ("RoundOpening", opening),
        ("RefinementBroadcast", {"number": 1, "scale": 1000.25, **geometry}),
        ("RefinementBroadcast", {"number": 100, "scale": 0.5, **geometry, "matrix": "", "centre": ""}),
        ("Centres", {"number": 1, "rows": _hex("centres", 24)}),
        ("ModelState", {"number": 2, "state": _hex("state", 41)}),
        ("KeptClasses", {"classes": [0, 1, 127, 128, 9999]}),
        ("Acknowledgement", {"aggregate_sha256": _hex("sum"), "opens": _hex("opens"), "outcome": _hex("outcome")}),
        ("Acknowledgement", {"aggregate_sha256": _hex("sum"), "opens": "00" * 32, "outcome": _hex("outcome")}),
        ("Confirmation", {"acknowledgements": [_hex("one", 260), _hex("other", 261)]}),
        ("Return", {"opening": opening, "acknowledgements": [_hex("one", 260), _hex("other", 261)]}),
        ("Receipt", {}),
        ("Taken", {"frame": _hex("accepted frame")}),
        ("Decline", {"reason": ""}),
        ("Decline", {"reason": "our records are not ready"}),
        ("Abort", {"reason": "too few clients are left"}),
        ("Record", {"index": 0, "previous": "00" * 32, "kind": "closed", "content": "44"}),
        ("Remembered", {"state": "Uploaded", "content": _hex("state", 40), "frames": []}),
        ("Remembered", {"state": "SharesSent", "content": "00", "frames": [_hex("one", 3), _hex("other", 130)]}),
        ("HeldShare", _held(9)),
        ("HeldShare", _held(9, 2)),
        ("Advertised", secrets | dealing | {"noise_seed": ""}),
        ("Advertised", secrets | dealing | {"noise_seed": _hex("noise")}),
        ("Dealt", {**secrets, "directory": directory, **own, **without}),
        ("Dealt", {**secrets, "directory": directory, **own, **own_noise}),
        ("Uploaded", kept | {"upload": _hex("vector")}),
        ("Endorsed", kept | {"survivors": [1, 300], "upload": _hex("vector"), "total": _hex("total")}),
        ("Opened", {"survivors": [2, 3, 5]}),
        ("PlainUploaded", {}),
        *_drawing(),
        *_sharing(),
        *_encryption(),
    ]


def _signed(member: int, name: str) -> dict[str, Any]:
    return {"member": member, name: _hex(f"{name} {member}"), "signature": _hex(f"signed {name} {member}", 64)}


def _tags(member: int) -> dict[str, Any]:
    return {"member": member, "tags": _hex(f"tags {member}", 80), "signature": _hex(f"signed tags {member}", 64)}


def _drawing() -> list[tuple[str, dict[str, Any]]]:
    entries, reveals = ([_signed(member, name) for member in (1, 300)] for name in ("commitment", "nonce"))
    return [
        ("NonceCommitment", entries[0]),
        ("Commitments", {"entries": entries}),
        ("NonceReveal", reveals[1]),
        ("Draw", {"commitments": {"entries": entries}, "reveals": reveals}),
        ("NonceCommitted", {"nonce": reveals[0]["nonce"], "entry": entries[0]}),
        ("NonceRevealed", {"commitments": _hex("commitments")}),
        ("DrawAwaited", {}),
        ("DrawChecked", {"seed": _hex("seed of the cohorts")}),
    ]


def _pledge(aggregator: int, step: str) -> dict[str, Any]:
    content = _hex(f"{step} {aggregator}", 1216 if step == "key" else 32)
    signed = {"content": content, "signature": _hex(f"pledge {aggregator}", 64)}
    return {"aggregator": aggregator, "step": step, **signed}


def _manifest(client: int) -> dict[str, Any]:
    digests = [_hex(f"sealed share {client} {place}") for place in (1, 2)]
    return {"client": client, "digests": digests, "signature": _hex(f"manifest {client}", 64)}


def _sharing() -> list[tuple[str, dict[str, Any]]]:
    manifests, nonce = [_manifest(1), _manifest(300)], {"nonce": _hex("nonce")}
    accepted = {"pledges": [_pledge(place, "accepted") for place in (1, 2)]}
    shown = {"aggregator": 1, **nonce, "manifests": manifests, **accepted, "signature": _hex("list", 64)}
    sums = {"pledges": [_pledge(place, "sum") for place in (1, 16)]}
    receipt = {"aggregator": 16, "client": 300, "manifest": _hex("manifest"), "signature": _hex("receipt", 64)}
    share = {"agreed": _hex("agreed"), **nonce}
    kept = {"secret": _hex("session key"), "manifests": manifests}
    conflict = {"one": _manifest(7), "other": _manifest(7) | {"digests": [_hex("a"), _hex("b")]}}
    return [
        ("AggregatorPledge", _pledge(16, "key")),
        ("ShareManifest", _manifest(4096)),
        ("ShareReceipt", receipt),
        ("SessionKeys", {"pledges": [_pledge(place, "key") for place in (1, 2, 16)]}),
        ("SetPledges", {"pledges": [_pledge(2, "accepted")]}),
        ("AcceptedUploads", shown),
        ("SetLists", {"lists": [shown, shown | {"aggregator": 2, "manifests": []}]}),
        ("SumPledges", sums),
        ("SumShare", {"aggregator": 2, **share, "length": 2**40, "digest": _hex("sum share"), **sums}),
        ("ReleasedShares", {"manifests": [_manifest(7)], "shares": [_hex("frame", 300), _hex("another frame", 300)]}),
        ("ManifestConflict", conflict),
        ("PledgeConflict", {"one": _pledge(3, "sum"), "other": _pledge(3, "sum") | {"content": _hex("other")}}),
        ("SharesSent", {"manifest": _manifest(300)}),
        ("Collecting", {"secret": _hex("session key"), "manifests": []}),
        ("SetCommitted", kept | nonce),
        ("SetRevealed", {"secret": _hex("session key"), **accepted}),
        ("SumCommitted", {"members": [1, 128], **share, "digest": _hex("sum share")}),
        ("SumRevealed", {"members": [1, 4096]}),
    ]


def _ciphertexts(member: int) -> dict[str, Any]:
    fields = {name: _hex(f"{name} {member}") for name in ("digest", "key")}
    sealed = {"sealed_seed": _hex(f"seed {member}", 1168), "signature": _hex(f"upload {member}", 64)}
    return {"member": member, "length": 2**40, **fields, **sealed}


def _declared(members: list[int]) -> dict[str, Any]:
    uploads = [_ciphertexts(member) for member in members]
    return {"uploads": uploads, "total": _hex("total"), "signature": _hex("declared", 64)}


def _encryption() -> list[tuple[str, dict[str, Any]]]:
    key = {
        "parameters": _hex("parameters"),
        "public_key": _hex("public key", 96),
        "sealing_key": _hex("sealing key", 1216),
    }
    published = key | {"signature": _hex("published", 64)}
    signed = {"length": 57 << 20, "digest": _hex("packed"), "signature": _hex("opened", 64)}
    return [
        ("PublishedKey", published),
        ("EncryptedUpload", _ciphertexts(4096)),
        ("Declaration", _declared([1, 300])),
        ("SumRequest", {"declaration": _declared([2, 4096]), "packed": _hex("packed", 200)}),
        ("OpenedSum", {"declaration": _hex("declaration"), **signed}),
        ("HeldKey", {"secret": _hex("bfv", 48), "sealing_secret": _hex("sealing secret"), "published": published}),
        ("SpentKey", {"members": [1, 4096], "aggregate_sha256": _hex("sum")}),
        ("CiphertextUploaded", {"digest": _hex("ciphertexts")}),
    ]


def wire() -> dict[str, Any]:
    """Canonical bytes, and tampered ones."""
    cases = [{"message": name, "value": value, "bytes": canonical(name, value).hex()} for name, value in values()]
    key, signature = bytes.fromhex(_hex("k")), bytes.fromhex(_hex("s", 64))
    endorsed = scalar(1, "uint", 5) + block(2, signature)
    survivors, plan = canonical("Survivors", {"members": [1, 2, 3], "total": _hex("total")}), _plan()
    entry, other = (canonical("KeyAdvertisement", _entry(member)) for member in (1, 2))
    unsealed, opened = _ciphertexts(1) | {"sealed_seed": _hex("seed", 1152)}, dict(values())["OpenedSum"]
    roster, body = dict(values())["Roster"], dict(values())["FrameBody"]
    short, pledge, published = _hex("short"), _pledge(1, "key"), dict(values())["PublishedKey"]
    request, shown = dict(values())["SumRequest"], dict(values())["AcceptedUploads"]
    roster = dict(values())["Roster"]
    unpinned = [member | {"tls_spki_sha256": ""} for member in roster["members"]]
    nan = b"\x00\x00\x00\x00\x00\x00\xf8\x7f"
    radius = canonical("Plan", plan).replace(scalar(14, "double", 3.5), varint(14 * 8 + 1) + nan)
    refused = [
        ("unknown_field", "Endorsement", endorsed + scalar(3, "uint", 1)),
        ("unknown_field_inside", "Quorum", block(1, endorsed + scalar(9, "uint", 1))),
        ("field_in_a_message_without_any", "Receipt", scalar(1, "uint", 1)),
        ("fields_out_of_order", "Endorsement", block(2, signature) + scalar(1, "uint", 5)),
        ("field_twice", "Endorsement", scalar(1, "uint", 4) + endorsed),
        ("number_with_a_needless_byte", "Endorsement", bytes([8, 0x85, 0]) + block(2, signature)),
        ("length_with_a_needless_byte", "Acknowledgement", bytes([10, 0xA0, 0]) + key + block(2, key) + block(3, key)),
        ("tag_with_a_needless_byte", "Acknowledgement", bytes([0x8A, 0, 32]) + key + block(2, key) + block(3, key)),
        ("number_above_32_bits", "Endorsement", bytes([8]) + varint(2**32 + 5) + block(2, signature)),
        ("negative_number", "Endorsement", bytes([8]) + varint(2**64 - 1) + block(2, signature)),
        ("number_as_bytes", "Endorsement", block(1, b"\x05") + block(2, signature)),
        ("bytes_as_number", "Acknowledgement", scalar(1, "uint", 32) + block(2, key) + block(3, key)),
        ("numbers_not_packed", "Survivors", scalar(1, "uint", 1) + scalar(1, "uint", 2) + block(2, key)),
        ("numbers_packed_in_two_pieces", "Survivors", block(1, b"\x01") + block(1, b"\x02") + block(2, key)),
        ("default_written_out", "Outcome", canonical("Outcome", dict(values())["Outcome"]) + block(4, b"")),
        ("last_byte_cut_off", "Survivors", survivors[:-1]),
        ("byte_added", "Survivors", survivors + b"\x00"),
        ("nothing", "Survivors", b""),
        ("member_zero", "Survivors", block(1, b"\x00\x01") + block(2, key)),
        ("member_above_4096", "Survivors", block(1, varint(4097)) + block(2, key)),
        ("receiver_above_4113", "FrameBody", canonical("FrameBody", body | {"receiver": 4114})),
        ("members_out_of_order", "Survivors", block(1, b"\x02\x01") + block(2, key)),
        ("member_twice", "Survivors", block(1, b"\x01\x01") + block(2, key)),
        ("total_left_out", "Survivors", block(1, b"\x01\x02")),
        ("tags_of_72_bytes", "UploadTags", canonical("UploadTags", _tags(1) | {"tags": _hex("tags", 72)})),
        ("three_noise_commitments", "KeyAdvertisement", canonical("KeyAdvertisement", _entry(1, 3))),
        ("noise_share_of_32_bytes", "HeldShare", canonical("HeldShare", _held(1) | {"noise_shares": [_hex("s")]})),
        ("noise_seed_of_33_bytes", "Advertised", _with_noise_seed(_hex("seed", 33))),
        ("entries_out_of_order", "Directory", block(1, other) + block(1, entry)),
        ("entry_twice", "Directory", block(1, entry) + block(1, entry)),
        ("member_left_out", "Endorsement", block(2, signature)),
        ("signature_left_out", "Endorsement", scalar(1, "uint", 5)),
        ("signature_of_63_bytes", "Endorsement", scalar(1, "uint", 5) + block(2, signature[:-1])),
        ("digest_of_33_bytes", "Acknowledgement", block(1, key + b"\x00") + block(2, key) + block(3, key)),
        ("decline_for_201_letters", "Decline", scalar(1, "text", "a" * 201)),
        ("decline_in_two_lines", "Decline", scalar(1, "text", "a\nb")),
        ("reason_left_out", "Abort", b""),
        ("reason_of_2001_letters", "Abort", scalar(1, "text", "a" * 2001)),
        ("text_not_utf8", "Abort", block(1, b"\xff\xfe")),
        ("radius_not_a_number", "Plan", radius),
        ("radius_zero", "Plan", canonical("Plan", plan | {"radius": 0.0})),
        ("radius_infinite", "Plan", canonical("Plan", plan | {"radius": "inf"})),
        ("another_version", "Plan", canonical("Plan", plan | {"version": 3})),
        ("no_version", "Plan", canonical("Plan", plan | {"version": 0})),
        ("purpose_with_an_escape", "Plan", canonical("Plan", plan | {"purpose": "all is\x1b[8m well"})),
        ("contact_with_an_escape", "Plan", canonical("Plan", plan | {"contact": "\x1b]8;;mail\x07"})),
        ("retention_of_201_letters", "Plan", canonical("Plan", plan | {"retention": "a" * 201})),
        ("class_that_turns_the_writing", "Plan", canonical("Plan", plan | {"classes": ["cat", "\u202egod"]})),
        ("class_that_looks_like_another", "Plan", canonical("Plan", plan | {"classes": ["cat", "cat\u200b"]})),
        ("backbone_of_two_lines", "Plan", canonical("Plan", plan | {"backbone": "pixels\npromise: epsilon 1"})),
        (
            "consortium_with_a_c1_control",
            "Roster",
            canonical("Roster", roster | {"consortium": "\x9b"}),
        ),
        (
            "step_with_an_escape",
            "FrameBody",
            canonical("FrameBody", body | {"step": "\x1b[31m"}),
        ),
        (
            "step_of_two_lines",
            "FrameBody",
            canonical("FrameBody", body | {"step": "a\nrefused b"}),
        ),
        ("security_above_256", "Plan", canonical("Plan", plan | {"security": 257})),
        ("roster_of_version_1", "Roster", canonical("Roster", roster | {"version": 1, "members": unpinned})),
        ("member_without_a_tls_key", "Roster", canonical("Roster", roster | {"members": unpinned})),
        ("tls_key_of_31_bytes", "Member", canonical("Member", _member("a", "client") | {"tls_spki_sha256": "00" * 31})),
        ("one_class", "Plan", canonical("Plan", plan | {"classes": ["cat"]})),
        ("message_of_another_class", "Survivors", block(1, endorsed)),
        ("upload_twice", "Declaration", canonical("Declaration", _declared([1, 1]))),
        ("uploads_out_of_order", "Declaration", canonical("Declaration", _declared([2, 1]))),
        ("no_upload", "Declaration", canonical("Declaration", _declared([]))),
        ("sealed_seed_without_its_tag", "EncryptedUpload", canonical("EncryptedUpload", unsealed)),
        ("sum_above_57_MiB", "OpenedSum", canonical("OpenedSum", opened | {"length": (57 << 20) + 1})),
        ("sum_left_out", "SumRequest", canonical("SumRequest", request | {"packed": ""})),
        ("nobody_pledges", "SetPledges", b""),
        (
            "channel_key_of_32_bytes",
            "KeyAdvertisement",
            canonical("KeyAdvertisement", _entry(1) | {"channel_key": short}),
        ),
        ("envelope_cut_off", "SealedShare", canonical("SealedShare", _envelope(1, 2) | {"sealed": _hex("e", 1201)})),
        (
            "pledge_above_a_key",
            "AggregatorPledge",
            canonical("AggregatorPledge", pledge | {"content": _hex("p", 1217)}),
        ),
        ("sealing_key_of_32_bytes", "PublishedKey", canonical("PublishedKey", published | {"sealing_key": short})),
        (
            "pledges_out_of_order",
            "SumPledges",
            canonical("SumPledges", {"pledges": [_pledge(2, "sum"), _pledge(1, "sum")]}),
        ),
        ("pledge_of_a_17th_aggregator", "SetPledges", canonical("SetPledges", {"pledges": [_pledge(17, "accepted")]})),
        ("list_twice", "SetLists", canonical("SetLists", {"lists": [shown, shown]})),
        ("list_unsigned", "AcceptedUploads", canonical("AcceptedUploads", shown | {"signature": ""})),
        ("empty_frame_among_those_to_send", "Remembered", block(1, b"Uploaded") + block(3, b"")),
    ]
    failing = [{"name": name, "message": message, "bytes": data.hex()} for name, message, data in refused]
    return {"source": "protos/secagg/v1, written by tests/vectors/protobuf.py", "cases": cases, "refused": failing}


PUBLISHED_KEY = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
"""Secret key of the first test of RFC 8032, section 7.1: anybody has it."""


def signed() -> dict[str, Any]:
    """A plan, a roster and a frame as whoever signs must write them: bytes, digests and signature, frozen."""
    secret = bytes.fromhex(PUBLISHED_KEY)
    identity = reference.ed25519_public(secret).hex()
    roster = dict(values())["Roster"]
    server, signer, *others = roster["members"]
    roster = roster | {"members": [server, signer | {"identity": identity}, *others]}
    plan = _noisy_plan() | {"roster": hashlib.sha256(canonical("Roster", roster)).hexdigest()}
    digest = hashlib.sha256(canonical("Plan", plan)).hexdigest()
    payload = canonical("Abort", {"reason": "to be signed"}).hex()
    body = {
        "round_digest": digest,
        "sender": 1,
        "receiver": 0,
        "step": "Abort",
        "head": _hex("head"),
        "seen": _hex("seen"),
    }
    content = canonical("FrameBody", body | {"payload": payload})
    signature = reference.ed25519_sign(secret, reference.labelled("frame", content))
    frame = canonical("Frame", {"body": content.hex(), "signature": signature.hex()})
    hashed = {"Roster": roster, "Plan": plan}
    return {
        "source": "protos/secagg/v1 and Ed25519 of pycryptodome, under the first key of RFC 8032, section 7.1",
        "private": PUBLISHED_KEY,
        "public": identity,
        "hashed": [
            {"message": name, "value": value, "bytes": canonical(name, value).hex(),
             "sha256": hashlib.sha256(canonical(name, value)).hexdigest()}
            for name, value in hashed.items()
        ],
        "frame": {"body": body | {"payload": payload}, "signature": signature.hex(), "bytes": frame.hex()},
    }  # fmt: skip
