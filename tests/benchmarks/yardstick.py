"""CKKS as TenSEAL is usually set up, for comparison: approximate, and with a larger ring than exact sums need.

Degree 8192 with coefficient moduli of 60, 40, 40 and 60 bits and scale 2^40: the parameters of TenSEAL's own tutorials.
It is measured here alone; the package has no such scheme.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from secagg.encoding.moments import Integers
from tests.benchmarks.protections import LENGTHS
from tests.benchmarks.scenario import CLIENTS, DROPOUTS, random_vectors, say

_DEGREE = 8192
_SLOTS = _DEGREE // 2
_MODULI = (60, 40, 40, 60)
_SCALE = 2.0**40
_SUMMANDS = 10


@dataclass(frozen=True)
class CkksCosts:
    """CPU seconds and bytes for one client's vector, and for the opening of a sum of ten.

    `addition_cpu` is reading one vector's ciphertexts and adding them. `error` is the largest difference between the
    sum's decrypted entries and the exact integers; one of ½ or more rounds to a wrong integer.
    """

    length: int
    client_cpu: float
    bytes: int
    addition_cpu: float
    decryption_cpu: float
    error: float

    @property
    def others_cpu(self) -> float:
        """Adding the vectors of all survivors of a session and opening their sum, reckoned from these."""
        return (CLIENTS - DROPOUTS) * self.addition_cpu + self.decryption_cpu

    @property
    def bytes_per_value(self) -> float:
        """Ciphertext bytes ÷ length."""
        return self.bytes / self.length


def measure_ckks() -> dict[int, CkksCosts]:
    """One measurement for each length."""
    vectors = list(random_vectors().values())[:_SUMMANDS]
    costs = {}
    for length in LENGTHS:
        say(f"CKKS with TenSEAL, {length:,} integers")
        costs[length] = _measure([vector[:length] for vector in vectors])
    return costs


def _measure(vectors: Sequence[Integers]) -> CkksCosts:
    import tenseal  # type: ignore[import-untyped]

    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, _DEGREE, coeff_mod_bit_sizes=list(_MODULI), n_threads=1)
    context.global_scale = _SCALE
    uploads, encryption, addition = [], [], []
    for vector in vectors:
        began = time.process_time()
        uploads.append([tenseal.ckks_vector(context, each).serialize() for each in _chunks(vector)])
        encryption.append(time.process_time() - began)
    total = [tenseal.ckks_vector_from(context, each) for each in uploads[0]]
    for upload in uploads[1:]:
        began = time.process_time()
        for place, each in enumerate(upload):
            total[place] += tenseal.ckks_vector_from(context, each)
        addition.append(time.process_time() - began)
    began = time.process_time()
    opened = np.concatenate([each.decrypt() for each in total])
    decryption = time.process_time() - began
    return CkksCosts(
        length=len(vectors[0]),
        client_cpu=float(np.median(encryption)),
        bytes=sum(map(len, uploads[0])),
        addition_cpu=float(np.median(addition)),
        decryption_cpu=decryption,
        error=float(np.abs(opened - np.sum(vectors, axis=0)).max()),
    )


def _chunks(vector: Integers) -> list[Any]:
    return [vector[start : start + _SLOTS].tolist() for start in range(0, len(vector), _SLOTS)]
