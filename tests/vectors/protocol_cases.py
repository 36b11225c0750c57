"""What the masked protocol hashes and derives, computed a second time from the words of its proto comments."""

import hashlib
from typing import Any

from tests.vectors import independent as reference


def derivations() -> dict[str, Any]:
    """One value for each labelled string of the protocol, all from one small set of inputs."""
    plan, session, roster = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
    directory, secret, peer = bytes([7] * 32), bytes([5] * 32), bytes([6] * 32)
    share = bytes(1) + bytes(range(32))
    low, high = (3).to_bytes(4, "big"), (300).to_bytes(4, "big")
    binding = reference.digest("context", plan, directory)
    shared = reference.x25519(secret, reference.x25519_public(peer))
    dealers = reference.digest("members", *(member.to_bytes(4, "big") for member in (1, 2, 300)))
    survivors = reference.digest("members", *(member.to_bytes(4, "big") for member in (1, 300)))
    inputs = {"plan": plan, "session": session, "roster": roster, "directory": directory, "share": share}
    inputs |= {"secret": secret, "peer_secret": peer, "peer_public": reference.x25519_public(peer)}
    expected = {
        "session_binding": binding,
        "members_digest": dealers,
        "pairwise_key": reference.derive(shared, binding, "pairwise mask", low, high),
        "self_mask_key": reference.derive(secret, binding, "self mask", low),
        "sealing_key": reference.derive(shared, binding, "share", high, low),
        "seed_commitment": reference.digest("seed commitment", plan, low, secret),
        "seed_share_hash": reference.digest("seed share", binding, low, high, share),
        "key_share_hash": reference.digest("key share", binding, low, high, share),
        "share_associated": reference.labelled("sealed share", binding, low, high),
        "endorsement": reference.ed25519_sign(
            secret, reference.labelled("survivors", plan, session, roster, directory, dealers, survivors)
        ),
        "ring_place": hashlib.sha256(reference.labelled("ring", directory, low)).digest(),
    }
    return {
        "source": "protos/secagg/v1/session.proto, computed with pycryptodome and hashlib",
        "inputs": {name: value.hex() for name, value in inputs.items()},
        "members": {"low": 3, "high": 300, "dealers": [1, 2, 300], "survivors": [1, 300]},
        "expected": {name: value.hex() for name, value in expected.items()},
    }
