"""One share, sealed to one aggregator's session key.

An ephemeral X25519 key, HKDF-SHA-256 and ChaCha20-Poly1305, put together as in HPKE's base mode (RFC 9180) with the
labels of this package. A sealed share is the ephemeral public key (32 bytes), then ciphertext and tag.
"""

from __future__ import annotations

from secagg.crypto.agreement import KEY_BYTES, AgreementKey, WeakPublicKey
from secagg.crypto.sealing import SealBroken, seal, unseal
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.context import SharedContext, sealed_bytes
from secagg.randomness import RandomSource

_LABEL = "shared seal"


def seal_share(
    context: SharedContext,
    session_key: bytes,
    client: int,
    aggregator: int,
    share: bytes,
    randomness: RandomSource,
) -> bytes:
    """Seal `share` to an aggregator's public session key under a fresh key. Raises WeakPublicKey."""
    ephemeral = AgreementKey.generate(randomness)
    parts = bind.seal_parts(client, aggregator, ephemeral.public, session_key)
    key = ephemeral.agree(session_key, context.binding, _LABEL, *parts)
    return ephemeral.public + seal(key, share, bind.seal_associated(context, client, aggregator))


def open_share(context: SharedContext, secret: AgreementKey, client: int, aggregator: int, sealed: bytes) -> bytes:
    """Undo `seal_share`. Raises SealBroken for another length, a key of small order, or anything that differs."""
    ephemeral, ciphertext = sealed[:KEY_BYTES], sealed[KEY_BYTES:]
    if len(sealed) != sealed_bytes(context, aggregator):
        raise SealBroken("not a sealed share of this session")
    parts = bind.seal_parts(client, aggregator, ephemeral, secret.public)
    try:
        key = secret.agree(ephemeral, context.binding, _LABEL, *parts)
    except WeakPublicKey:
        raise SealBroken("the sealed share was made with a key of small order") from None
    return unseal(key, ciphertext, bind.seal_associated(context, client, aggregator))
