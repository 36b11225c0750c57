"""Masked uploads: faulty masks leave a trace that is found, sound ones leave none."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from threat_models.attacks.protocol.masked_uploads import LEVEL, MASKED_UPLOADS, chance, unpack_words
from threat_models.findings import Verdict

ENTRIES, CLIENTS = 60, 4


def uniform(seed: int, bits: int = 32, entries: int = ENTRIES) -> np.ndarray:
    """One vector of uniform words."""
    return np.random.default_rng(seed).integers(0, 1 << bits, entries, dtype=np.uint64)


def view(vectors: list[np.ndarray], bits: int = 32, protection: str = "masked") -> Any:
    """A view that shows these vectors, packed, as the uploads of clients."""
    packed = [np.ascontiguousarray(v.view(np.uint8).reshape(-1, 8)[:, : bits // 8]).tobytes() for v in vectors]
    return SimpleNamespace(
        plan=SimpleNamespace(protection=protection),
        uploads={f"client-{number}": each for number, each in enumerate(packed)},
        release={"counts": np.zeros(3), "class_sums": np.zeros((3, len(vectors[0]) // 3 - 1))},
    )


def found(*views: Any) -> Any:
    """The attack's finding."""
    return MASKED_UPLOADS.run(views, None, lambda done, total: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("bits", [8, 24, 32, 40, 64])
def test_words_are_read_as_they_were_packed(bits: int) -> None:
    """Packed entries of every byte-aligned ring come back."""
    vector = uniform(1, bits)
    words, width = unpack_words(next(iter(view([vector], bits).uploads.values())), ENTRIES)
    assert width == bits
    assert np.array_equal(words, vector)


@pytest.mark.parametrize("bits", [24, 32, 64])
def test_uniform_uploads_leave_no_trace(bits: int) -> None:
    """Two sessions of four clients with independent uniform uploads are passed (false alarms: one in a million)."""
    sessions = [view([uniform(10 * session + client, bits) for client in range(CLIENTS)], bits) for session in (1, 2)]
    finding = found(*sessions)
    assert finding.verdict is Verdict.FAILS
    assert all(control.holds for control in finding.controls)


def test_chance_is_a_probability_of_false_alarms() -> None:
    """Of 2,000 uniform tables at most 40 have a chance below 1 % (20 expected at most; fails once in 10⁴)."""
    generator = np.random.default_rng(5)
    tables = generator.integers(0, 1 << 32, (2000, CLIENTS, ENTRIES), dtype=np.uint64)
    assert sum(chance(list(table), 32) < 0.01 for table in tables) <= 40


def in_clear(vector: np.ndarray, start: int, stop: int) -> np.ndarray:
    """The vector with some entries that were not masked: small signed numbers."""
    small = np.random.default_rng(7).integers(-50, 50, stop - start)
    vector[start:stop] = small.astype(np.int64).view(np.uint64) & np.uint64((1 << 32) - 1)
    return vector


@pytest.mark.parametrize(
    ("fault", "trace"),
    [
        (lambda vector: in_clear(vector, 0, 3), "uploads of a session"),
        (lambda vector: in_clear(vector, 0, ENTRIES), "uploads of a session"),
        (lambda vector: vector & np.uint64(0x7FFFFFFF), "uploads of a session"),
        (lambda vector: vector & np.uint64(0xFFFFFFFE), "uploads of a session"),
    ],
    ids=["counts in clear", "all in clear", "highest bit never set", "lowest bit never set"],
)
def test_faulty_masks_are_found(fault: Any, trace: str) -> None:
    """Entries without a mask, however few, and bits that a mask never sets are found, and the trace is named."""
    finding = found(view([fault(uniform(client)) for client in range(CLIENTS)]))
    assert finding.verdict is Verdict.SUCCEEDS
    assert trace in finding.sentence
    assert min(measure.value for measure in finding.measures) < LEVEL


@pytest.mark.parametrize("across", ["two clients", "two sessions"])
def test_mask_that_is_used_twice_is_found(across: str) -> None:
    """One mask for two clients, or for a client's two sessions, shows in the difference, which is small."""
    masks = [uniform(client) for client in range(CLIENTS)]
    again = [uniform(100 + client) for client in range(CLIENTS)]
    if across == "two clients":
        masks[1] = masks[0].copy()
    else:
        again[2] = masks[2].copy()
    data = np.random.default_rng(3).integers(0, 1 << 20, (2, CLIENTS, ENTRIES)).astype(np.uint64)
    low = np.uint64((1 << 32) - 1)
    sessions = [
        view([(mask + x) & low for mask, x in zip(own, values, strict=True)])
        for own, values in ((masks, data[0]), (again, data[1]))
    ]
    finding = found(*sessions)
    assert finding.verdict is Verdict.SUCCEEDS
    assert across in finding.sentence


@pytest.mark.parametrize("protection", ["none", "shared", "encrypted"])
def test_other_uploads_need_not_be_uniform(protection: str) -> None:
    """Uploads that are not masked are not judged."""
    assert found(view([uniform(1)] * 2, protection=protection)).verdict is Verdict.NOT_APPLICABLE
