"""What the masked and the encrypted protocol hash and derive, a second time, from the words of their protos."""

import hashlib
import math
from typing import Any

from tests.vectors import independent as reference
from tests.vectors.discrete_noise import discrete_noise

SEGMENTS = [(2.4501953125, 7), (1234.5, 5), (2.4501953125, 4), (987654321.0009765625, 6), (40.0, 40)]
"""Sigmas and numbers of entries of removable noise; one sigma comes twice."""


def derivations() -> dict[str, Any]:
    """One value for each labelled string of the protocol, all from one small set of inputs."""
    round_digest, session_id, roster = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
    directory, secret, peer = bytes([7] * 32), bytes([5] * 32), bytes([6] * 32)
    share = bytes(1) + bytes(range(32))
    low, high = (3).to_bytes(4, "big"), (300).to_bytes(4, "big")
    binding = reference.digest("context", round_digest, directory)
    shared = reference.x25519(secret, reference.x25519_public(peer))
    dealers = reference.digest("members", *(member.to_bytes(4, "big") for member in (1, 2, 300)))
    survivors = reference.digest("members", *(member.to_bytes(4, "big") for member in (1, 300)))
    total = bytes([4] * 32)
    endorsed = (round_digest, session_id, roster, directory, dealers, survivors, total)
    challenge, tags = reference.digest("challenge", *endorsed), bytes(range(80))
    first_level, second_level = ((level).to_bytes(4, "big") for level in (1, 2))
    noise_key = reference.derive(secret, binding, "removable noise", second_level, low)
    inputs = {
        "round_digest": round_digest,
        "session_id": session_id,
        "roster": roster,
        "directory": directory,
        "share": share,
        "total": total,
        "tags": tags,
    }
    inputs |= {"secret": secret, "peer_secret": peer, "peer_public": reference.x25519_public(peer)}
    expected = {
        "session_binding": binding,
        "members_digest": dealers,
        "pairwise_key": reference.derive(shared, binding, "pairwise mask", low, high),
        "self_mask_key": reference.derive(secret, binding, "self mask", low),
        "seed_coefficients_key": reference.derive(secret, binding, "share coefficients", b"seed", low),
        "key_coefficients_key": reference.derive(secret, binding, "share coefficients", b"key", low),
        "seed_commitment": reference.digest("seed commitment", round_digest, low, secret),
        "seed_share_hash": reference.digest("seed share", binding, low, high, share),
        "key_share_hash": reference.digest("key share", binding, low, high, share),
        "noise_share_hash": reference.digest("noise 2 share", binding, low, high, share),
        "noise_coefficients_key": reference.derive(secret, binding, "share coefficients", b"noise 1", low),
        "noise_commitment": reference.digest("noise commitment", round_digest, low, first_level, secret),
        "next_noise_seed": reference.digest("next noise seed", secret),
        "noise_key": noise_key,
        "share_info": reference.envelope_info(binding, "Dealing", 3, 300),
        "endorsement": reference.ed25519_sign(secret, reference.labelled("survivors", *endorsed)),
        "challenge": challenge,
        "tag_vector_key": reference.digest("tag vector", challenge, low),
        "tags_signature": reference.ed25519_sign(secret, reference.labelled("tags", *endorsed, tags)),
        "ring_place": hashlib.sha256(reference.labelled("ring", directory, low)).digest(),
    }
    return {
        "source": "protos/secagg/v1/session.proto, computed with pycryptodome and hashlib",
        "inputs": {name: value.hex() for name, value in inputs.items()},
        "members": {"low": 3, "high": 300, "dealers": [1, 2, 300], "survivors": [1, 300]},
        "expected": {name: value.hex() for name, value in expected.items()},
        "sums": [_sum(bits, challenge) for bits in (8, 32, 40, 48, 64)],
        "noise": {"segments": SEGMENTS, "drawn": discrete_noise(noise_key, SEGMENTS)},
    }


def _sum(bits: int, challenge: bytes) -> dict[str, Any]:
    """The packed sum of three uploads of five clients, of entries of so many bits, and the tags of each and of it."""
    uploads = [[(7 * client + 2**bits // (place + 1) - 1) % 2**bits for place in range(9)] for client in (1, 2, 3)]
    half = bits if bits <= 40 else bits // 2
    parts = range(0, bits, half)
    words = [[entry >> low & (2**half - 1) for low in parts for entry in upload] for upload in uploads]
    total = [sum(column) for column in zip(*words, strict=True)]
    stream = sum(word << (half + 3) * place for place, word in enumerate(total))  # 5 clients carry 3 bits
    keys = [reference.digest("tag vector", challenge, place.to_bytes(4, "big")) for place in range(1, 11)]
    vectors = [reference.keystream(key, 8, len(total)) for key in keys]
    tags = [[sum(r * w for r, w in zip(row, each, strict=True)) % 2**64 for row in vectors] for each in (*words, total)]
    return {
        "bits": bits,
        "uploads": [b"".join(entry.to_bytes(bits // 8, "little") for entry in upload).hex() for upload in uploads],
        "packed": stream.to_bytes(-(-len(total) * (half + 3) // 8), "little").hex(),
        "tags": [b"".join(tag.to_bytes(8, "little") for tag in each).hex() for each in tags],
    }


SETS = {  # N, p, b, n, primes
    "one_prime_of_40_bits": (4096, 33538049, 21, 100, [1098706321409]),
    "one_prime_of_60_bits": (4096, 33538049, 41, 100, [1149754911118852097]),
    "two_primes_of_40_bits": (4096, 33538049, 59, 100, [944098885633, 987025801217]),
}


def encryption() -> dict[str, Any]:
    """What a client adds to its encryptions of zero, and what binds it: for some sets of parameters."""
    round_digest, session_id, roster = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
    seed, member = bytes([9] * 32), (300).to_bytes(4, "big")
    cases = []
    for name, (degree, special, bits, summands, primes) in SETS.items():
        numbers = [each.to_bytes(8, "big") for each in (degree, special, bits, summands, *primes)]
        parameters = reference.digest("BFV parameters", *numbers)
        binding = reference.digest("encrypted context", round_digest, session_id, roster, parameters)
        places = [place.to_bytes(4, "big") for place in range(len(primes))]
        keys = [reference.derive(seed, binding, "upload mask", member, place) for place in places]
        rows = [_residues(each, prime, degree) for each, prime in zip(keys, primes, strict=True)]
        integers = [0, 1, -1, 2 ** (bits - 2) - 1, 1 - 2 ** (bits - 2), -123]
        scale = math.prod(primes) // 2**bits
        cases.append(
            {
                "name": name,
                "parameters": {"degree": degree, "special": special, "plain_bits": bits, "summands": summands},
                "primes": [str(prime) for prime in primes],
                "digest": parameters.hex(),
                "binding": binding.hex(),
                "seed_info": reference.envelope_info(binding, "EncryptedUpload", 300, summands + 1).hex(),
                "mask_keys": [each.hex() for each in keys],
                "mask_begins": [[str(value) for value in row[:4]] for row in rows],
                "mask_sha256": [hashlib.sha256(b"".join(v.to_bytes(8, "little") for v in r)).hexdigest() for r in rows],
                "integers": [str(value) for value in integers],
                "scaled": [[str(scale * value % prime) for value in integers] for prime in primes],
            }
        )
    return {
        "source": "protos/secagg/v1/encryption.proto, computed with pycryptodome, hashlib and Python integers",
        "inputs": {"round_digest": round_digest.hex(), "session_id": session_id.hex(), "roster": roster.hex()},
        "member": 300,
        "seed": seed.hex(),
        "cases": cases,
    }


def _residues(key: bytes, prime: int, count: int) -> list[int]:
    """Words of the keystream below the largest multiple of the prime, reduced."""
    words = reference.keystream(key, 8, 2 * count)
    return [word % prime for word in words if word < 2**64 // prime * prime][:count]
