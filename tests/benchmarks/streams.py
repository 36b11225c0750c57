"""Masking and unmasking beside their floor.

Floor = keystream bytes ÷ AES-256-CTR speed + ring additions ÷ addition speed, both with the library and on the vector
that the masks use, in the same run. Either speed is the faster of whole vectors and cache-sized pieces. Times are CPU
seconds of the one thread that works, so that other processes do not stretch the longer of the two.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from secagg.crypto.stream import MaskStream
from secagg.protection.interface import SessionContext
from secagg.protection.masking.unmasking import Mask, MaskedSum
from tests.benchmarks.scenario import CLIENTS, DROPOUTS, LENGTH, RING, say

ROUNDS = 15
_FLOOR_STREAMS = 50
_PIECES = (LENGTH, 1 << 15)
_CONTEXT = SessionContext(bytes(32), bytes(32), bytes(32), {}, {}, RING, LENGTH, 0, DROPOUTS, 1)
_SURVIVORS = CLIENTS - DROPOUTS
UNMASK_STREAMS = _SURVIVORS + DROPOUTS * _SURVIVORS


@dataclass(frozen=True)
class StreamTimes:
    """CPU seconds. `keystream` and `addition` are those of one whole vector."""

    keystream: float
    addition: float
    mask: float
    unmask: float

    @property
    def mask_ratio(self) -> float:
        """Masking one client's vector ÷ its floor."""
        return self.mask / (CLIENTS * (self.keystream + self.addition))

    @property
    def unmask_ratio(self) -> float:
        """Unmasking the sum ÷ its floor."""
        return self.unmask / (UNMASK_STREAMS * (self.keystream + self.addition))


def measure_streams(rounds: int = ROUNDS) -> StreamTimes:
    """The best of several rounds; each round measures floor and masks one after the other."""
    vector = np.zeros(LENGTH, dtype=RING.word)
    actions: dict[str, list[Callable[[], object]]] = {
        "keystream": [_keystream(piece) for piece in _PIECES],
        "addition": [_addition(piece) for piece in _PIECES],
        "mask": [lambda: _mask(vector, _keys(CLIENTS))],
        "unmask": [lambda: _masked_sum().open(_CONTEXT, vector)],
    }
    best = dict.fromkeys(actions, np.inf)
    say("masks and their floor")
    for _ in range(rounds):
        for name, variants in actions.items():
            best[name] = min(best[name], *(_seconds(action) for action in variants))
    return StreamTimes(
        best["keystream"] / _FLOOR_STREAMS, best["addition"] / _FLOOR_STREAMS, best["mask"], best["unmask"]
    )


def _seconds(action: Callable[[], object]) -> float:
    start = time.thread_time()
    action()
    return time.thread_time() - start


def _keystream(piece: int) -> Callable[[], None]:
    """Encrypt `_FLOOR_STREAMS` vectors' worth of zeros, `piece` entries at a time, under one key."""
    width = RING.word.itemsize
    zeros, out = bytes(piece * width), bytearray(piece * width + 16)

    def action() -> None:
        encryptor = Cipher(AES256(bytes(32)), CTR(bytes(16))).encryptor()
        for size in _sizes(piece):
            encryptor.update_into(memoryview(zeros)[: size * width], memoryview(out)[: size * width + 16])

    return action


def _addition(piece: int) -> Callable[[], None]:
    """Add a mask of `piece` entries that lies ready to `_FLOOR_STREAMS` vectors' worth of entries."""
    vector, mask = np.zeros(LENGTH, dtype=RING.word), np.ones(piece, dtype=RING.word)

    def action() -> None:
        start = 0
        for size in _sizes(piece):
            part = vector[start : start + size]
            np.add(part, mask[:size], out=part)
            start = (start + size) % LENGTH

    return action


def _sizes(piece: int) -> list[int]:
    pieces = [min(piece, LENGTH - start) for start in range(0, LENGTH, piece)]
    return pieces * _FLOOR_STREAMS


def _keys(count: int) -> list[bytes]:
    return [os.urandom(32) for _ in range(count)]


def _mask(vector: np.ndarray[tuple[int], np.dtype[np.uint32]], keys: list[bytes]) -> None:
    stream = MaskStream()
    for place, key in enumerate(keys):
        stream.apply(vector, key, 1 if place % 2 else -1)


def _masked_sum() -> MaskedSum:
    masks = tuple(Mask(key, 1 if place % 2 else -1) for place, key in enumerate(_keys(UNMASK_STREAMS)))
    return MaskedSum(tuple(range(1, _SURVIVORS + 1)), masks)
