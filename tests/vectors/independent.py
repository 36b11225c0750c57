"""The cryptography of the protocol a second time, from pycryptodome, hashlib and Python integers.

ML-KEM alone, which pycryptodome lacks, is `cryptography`'s; the working group's vector of `envelopes.json` checks it.
"""

import hashlib
import hmac
import struct

from Crypto.Cipher import AES, ChaCha20_Poly1305
from Crypto.Hash import SHA256
from Crypto.Protocol.DH import import_x25519_private_key, import_x25519_public_key, key_agreement
from Crypto.Protocol.KDF import HKDF
from Crypto.PublicKey import ECC
from Crypto.Signature import eddsa
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

PRIME = 115792089237316195423570985008687907853269984665640564039457584007913129640233  # 2^256 + 297


def labelled(label: str, *parts: bytes) -> bytes:
    """Each element behind its length in 8 big-endian bytes."""
    joined = b""
    for element in (b"secagg/v1/" + label.encode("utf-8"), *parts):
        joined += struct.pack(">Q", len(element)) + element
    return joined


def digest(label: str, *parts: bytes) -> bytes:
    """SHA-256 of the labelled parts."""
    return hashlib.sha256(labelled(label, *parts)).digest()


def derive(secret: bytes, context: bytes, label: str, *parts: bytes) -> bytes:
    """HKDF-SHA-256 to 32 bytes."""
    return HKDF(secret, 32, context, SHA256, context=labelled(label, *parts))


def x25519_public(private: bytes) -> bytes:
    """The public key of 32 private bytes."""
    return import_x25519_private_key(private).public_key().export_key(format="raw")


def x25519(private: bytes, public: bytes) -> bytes:
    """The shared secret, without any derivation."""
    ours, theirs = import_x25519_private_key(private), import_x25519_public_key(public)
    return key_agreement(static_priv=ours, static_pub=theirs, kdf=lambda shared: shared)


def ed25519_public(private: bytes) -> bytes:
    """The public key of 32 private bytes."""
    return ECC.construct(curve="Ed25519", seed=private).public_key().export_key(format="raw")


def ed25519_sign(private: bytes, message: bytes) -> bytes:
    """The 64-byte signature."""
    return eddsa.new(ECC.construct(curve="Ed25519", seed=private), "rfc8032").sign(message)


def seal(key: bytes, message: bytes, associated: bytes) -> bytes:
    """ChaCha20-Poly1305 with the nonce zero: ciphertext ‖ tag."""
    cipher = ChaCha20_Poly1305.new(key=key, nonce=bytes(12))
    cipher.update(associated)
    ciphertext, tag = cipher.encrypt_and_digest(message)
    return ciphertext + tag


def keystream(key: bytes, word_bytes: int, entries: int) -> list[int]:
    """AES-256-CTR from counter zero as little-endian words."""
    stream = AES.new(key, AES.MODE_CTR, nonce=b"", initial_value=0).encrypt(bytes(word_bytes * entries))
    return [int.from_bytes(stream[at : at + word_bytes], "little") for at in range(0, len(stream), word_bytes)]


def polynomial_share(coefficients: list[int], holder: int) -> bytes:
    """Value at `holder` of the polynomial whose constant term comes first, as 33 big-endian bytes."""
    value = sum(coefficient * pow(holder, power, PRIME) for power, coefficient in enumerate(coefficients))
    return (value % PRIME).to_bytes(33, "big")


def pack_ring(values: list[int], bits: int) -> bytes:
    """Residues modulo 2^bits in little-endian bytes."""
    return b"".join((value % 2**bits).to_bytes(bits // 8, "little") for value in values)


def envelope_key(seed: bytes) -> tuple[MLKEM768PrivateKey, bytes]:
    """X-Wing's expandDecapsulationKey: the private keys of ML-KEM and X25519."""
    expanded = hashlib.shake_256(seed).digest(96)
    return MLKEM768PrivateKey.from_seed_bytes(expanded[:64]), expanded[64:]


def envelope_public(seed: bytes) -> bytes:
    """X-Wing's encapsulation key: both public keys."""
    lattice, curve = envelope_key(seed)
    return lattice.public_key().public_bytes_raw() + x25519_public(curve)


def x_wing_secret(seed: bytes, encapsulated: bytes) -> bytes:
    """X-Wing's Decapsulate: SHA3-256 of both secrets, X25519's two public keys, and the label."""
    lattice, curve = envelope_key(seed)
    theirs = encapsulated[1088:]
    secrets = lattice.decapsulate(encapsulated[:1088]) + x25519(curve, theirs)
    return hashlib.sha3_256(secrets + theirs + x25519_public(curve) + rb"\.//^" + b"\\").digest()


def key_schedule(secret: bytes, info: bytes) -> tuple[bytes, bytes]:
    """RFC 9180, section 5.1, base mode, of X-Wing, HKDF-SHA256 and ChaCha20-Poly1305: key and base nonce."""
    suite = b"HPKE" + bytes.fromhex("647a00010003")

    def extract(salt: bytes, label: bytes, material: bytes) -> bytes:
        return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + material, "sha256")

    def expand(label: bytes, length: int) -> bytes:
        told = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + context
        return hmac.digest(pseudorandom, told + b"\1", "sha256")[:length]  # one block of RFC 5869

    context = b"\0" + extract(b"", b"psk_id_hash", b"") + extract(b"", b"info_hash", info)
    pseudorandom = extract(secret, b"secret", b"")
    return expand(b"key", 32), expand(b"base_nonce", 12)


def open_envelope(seed: bytes, envelope: bytes, info: bytes, associated: bytes = b"") -> bytes:
    """HPKE's one-shot Open, base mode. Raises ValueError for a wrong tag."""
    key, nonce = key_schedule(x_wing_secret(seed, envelope[:1120]), info)
    cipher = ChaCha20_Poly1305.new(key=key, nonce=nonce)
    cipher.update(associated)
    return cipher.decrypt_and_verify(envelope[1120:-16], envelope[-16:])


def envelope_info(binding: bytes, step: str, sender: int, receiver: int) -> bytes:
    """What an envelope of the protocol is bound to."""
    return labelled("envelope", binding, step.encode(), sender.to_bytes(4, "big"), receiver.to_bytes(4, "big"))
