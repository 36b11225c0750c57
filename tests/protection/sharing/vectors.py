"""Writes derivations.json beside this file: `python -m tests.protection.sharing.vectors`.

Nothing of the package is used: everything is computed with pycryptodome, hashlib and Python integers from the words
of protos/secagg/v1/sharing.proto.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.vectors import independent as reference

TARGET = Path(__file__).parent / "derivations.json"
SOURCE = "protos/secagg/v1/sharing.proto, computed with pycryptodome and hashlib"
GENERATOR = "tests/protection/sharing/vectors.py"
BITS, CLIENT = 24, 300


def fixed(name: str) -> bytes:
    """32 bytes that anybody can recompute."""
    return hashlib.shake_256(b"secagg shared v1: " + name.encode()).digest(32)


def number(value: int) -> bytes:
    """An index as it stands in every labelled string."""
    return value.to_bytes(4, "big")


def drawn(seed: bytes, count: int) -> list[bytes]:
    """The 32-byte draws of the tests' seeded source: SHAKE-256 of the seed and a counter from 1."""
    return [hashlib.shake_256(seed + place.to_bytes(8, "big")).digest(32) for place in range(1, count + 1)]


def split(binding: bytes, values: list[int], source: bytes) -> list[bytes]:
    """The client's shares for three aggregators, of which the last two are the seeds that it draws."""
    draws = drawn(source, 2)
    residues = list(values)
    for aggregator, seed in zip((2, 3), draws, strict=True):
        key = reference.derive(seed, binding, "shared stream", number(CLIENT), number(aggregator))
        stream = reference.keystream(key, 4, len(values))
        residues = [value - word for value, word in zip(residues, stream, strict=True)]
    return [reference.pack_ring(residues, BITS), *draws]


def derivations() -> dict[str, Any]:
    """One value for each labelled string, all from one session of three aggregators and one client."""
    plan, session, roster, nonce = (fixed(name) for name in ("plan", "session", "roster", "nonce"))
    identities = [fixed(f"identity of aggregator {place}") for place in (1, 2, 3)]
    secrets = [fixed(f"session key of aggregator {place}") for place in (1, 2, 3)]
    signer, source = fixed("identity of the client"), b"draws of the client"
    values = [0, 1, -1, 2**23 - 1, -(2**23)]
    publics = [reference.ed25519_public(identity) for identity in identities]
    key = reference.envelope_public(secrets[1])
    binding = reference.digest("shared session", plan, session, roster, *publics)
    digests = [hashlib.sha256(fixed(f"envelope of share {place}")).digest() for place in (1, 2, 3)]
    said = (binding, number(CLIENT), *digests)
    manifest = reference.digest("shared manifest", *said)
    listed = reference.digest("shared set", binding, number(CLIENT) + manifest)
    accepted = reference.digest("shared accepted", binding, number(2), nonce, listed)
    sum_share = reference.digest("shared sum", binding, number(2), listed, nonce, digests[0])

    def signed(label: str, *parts: bytes) -> bytes:
        return reference.ed25519_sign(identities[1], reference.labelled(label, binding, number(2), *parts))

    expected = {
        "binding": binding,
        "manifest_signature": reference.ed25519_sign(signer, reference.labelled("shared manifest", *said)),
        "manifest_digest": manifest,
        "receipt_signature": signed("shared receipt", number(CLIENT), manifest),
        "set_digest": listed,
        "set_commitment": accepted,
        "sum_commitment": sum_share,
        "key_pledge": signed("shared pledge", b"key", key),
        "accepted_pledge": signed("shared pledge", b"accepted", accepted),
        "sum_pledge": signed("shared pledge", b"sum", sum_share),
        "list_signature": signed("shared list", accepted, sum_share),
    }
    return {
        "source": SOURCE,
        "generator": GENERATOR,
        "inputs": {
            "round_digest": fixed("plan").hex(),
            "session_id": fixed("session").hex(),
            **{name: fixed(name).hex() for name in ("roster", "nonce")},
            "client_identity": signer.hex(),
            "client_draws": source.hex(),
            "aggregator_identities": [identity.hex() for identity in identities],
            "session_secrets": [secret.hex() for secret in secrets],
        },
        "bits": BITS,
        "client": CLIENT,
        "values": values,
        "shares": [share.hex() for share in split(binding, values, source)],
        "infos": [
            reference.envelope_info(binding, "ShareManifest", CLIENT, CLIENT + place).hex() for place in (1, 2, 3)
        ],
        "digests": [each.hex() for each in digests],
        "expected": {name: value.hex() for name, value in expected.items()},
    }


def text() -> str:
    """The content of the file."""
    return json.dumps(derivations(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
