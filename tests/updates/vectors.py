"""Writes tests/vectors/v1/updates.json with hashlib, mpmath, scipy.linalg.hadamard and torch.optim.

`python -m tests.updates.vectors`. Nothing of the package is used: transforms are products with whole matrices, rounding
goes one entry at a time with rationals, steps one entry at a time in Python's floats, and by torch's optimisers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from mpmath import mp, mpf
from scipy.linalg import hadamard

from tests.privacy.vectors import FOLDER, Stream
from tests.vectors.independent import labelled

GENERATOR = "python -m tests.updates.vectors (hashlib, mpmath, scipy.linalg.hadamard, torch.optim)"
SOURCE = "Kairouz, Liu & Steinke 2021, Algorithm 1 and Proposition 22; Reddi et al. 2021, Algorithm 2"
Optimiser = Callable[[list[torch.Tensor]], torch.optim.Optimizer]
mp.dps = 60


def numbers(name: str, count: int, bits: int = 21) -> list[int]:
    """Signed integers of so many bits that anybody can recompute."""
    stream = hashlib.shake_256(b"secagg updates v1: " + name.encode()).digest(8 * count)
    words = (int.from_bytes(stream[8 * i : 8 * i + 8], "little") for i in range(count))
    return [word % 2**bits - 2 ** (bits - 1) for word in words]


def reals(name: str, count: int) -> list[float]:
    """Numbers between −1 and 1."""
    return [number / 2.0**52 for number in numbers(name, count, 53)]


def seed(name: str) -> bytes:
    """32 public bytes."""
    return hashlib.shake_256(b"secagg updates v1 seed: " + name.encode()).digest(32)


def blocks(size: int) -> list[int]:
    """The rule, counted up: the granule doubles while it is at most 2 % of the size."""
    granule = 1
    while granule < 64 and granule < size:
        granule *= 2
    while granule >= 64 and granule < 65536 and 100 * granule <= size:
        granule *= 2
    padded = granule * math.ceil(Fraction(size, granule))
    found = []
    while padded:
        found.append(max(2**k for k in range(17) if 2**k <= padded))
        padded -= found[-1]
    return found


def signs(key: bytes, count: int) -> list[int]:
    """±1 by the bits of SHAKE-256."""
    stream = hashlib.shake_256(labelled("rotation", key)).digest(count // 8 + 1)
    return [-1 if stream[i // 8] >> (i % 8) & 1 else 1 for i in range(count)]


def undone(total: list[int], key: bytes, size: int) -> list[float]:
    """By whole matrices in integers; then one division."""
    sign, found = signs(key, len(total)), []
    for block in blocks(size):
        part = np.array(total[len(found) : len(found) + block], dtype=np.int64)
        image = hadamard(block, dtype=np.int64) @ part
        found += [sign[len(found) + i] * (int(value) / math.sqrt(block)) for i, value in enumerate(image)]
    return found[:size]


def applied(vector: list[float], key: bytes) -> list[mpf]:
    """By whole matrices, with 60 digits."""
    sign, found, size = signs(key, 2 * len(vector) + 64), [], len(vector)
    for block in blocks(size):
        at = len(found)
        part = [mpf(vector[i]) * sign[i] if i < size else mpf(0) for i in range(at, at + block)]
        found += [mp.fsum(int(h) * x for h, x in zip(row, part)) / mp.sqrt(block) for row in hadamard(block)]  # noqa: B905
    return found


def rotation() -> dict[str, Any]:
    """Blocks of many sizes; small transforms in full, a larger one by its digest."""
    sizes = [1, 2, 3, 33, 64, 65, 129, 3199, 3200, 6400, 100_000, 10**6, 2**20, 2**20 + 1, 2**24 + 1, 10**8]
    cases = []
    for size in (1, 3, 20, 150):
        key, vector = seed(f"rotation {size}"), reals(f"vector {size}", size)
        total = numbers(f"total {size}", sum(blocks(size)))
        case = {"size": size, "seed": key.hex(), "vector": [x.hex() for x in vector], "total": total}
        case["applied"] = [float(y).hex() for y in applied(vector, key)]
        cases.append(case | {"undone": [x.hex() for x in undone(total, key, size)]})
    size, key = 1000, seed("large")
    total = numbers("large", sum(blocks(size)), 50)
    values = np.array(undone(total, key, size), dtype="<f8").tobytes()
    large = {"size": size, "seed": key.hex(), "total": total, "sha256": hashlib.sha256(values).hexdigest()}
    runs = [{"size": size, "blocks": shorten(blocks(size))} for size in sizes]
    return {"blocks": runs, "cases": cases, "large": large}


def shorten(found: list[int]) -> list[list[int]]:
    """Runs of equal blocks as pairs of block and number."""
    return [[block, found.count(block)] for block in sorted(set(found), reverse=True)]


def squared_bound(length: float, size: int) -> int:
    """The smaller of both bounds, with 60 digits."""
    c, d, beta = mpf(length), mpf(size), mp.exp(-mpf(1) / 2)
    inflated = c**2 + d / 4 + mp.sqrt(2 * mp.log(1 / beta)) * (c + mp.sqrt(d) / 2)
    return int(mp.floor(min((c + mp.sqrt(d)) ** 2, inflated) + mpf(10) ** -40))


def coins(chances: dict[int, Fraction], stream: Stream) -> Iterator[int]:
    """The indices that come up heads: digits of a uniform number against those of the chance, in base 65,536."""
    octets, left = stream.bytes(2 * len(chances)), {}
    for at, (index, chance) in enumerate(chances.items()):
        drawn, digit = int.from_bytes(octets[2 * at : 2 * at + 2], "little"), math.floor(chance * 65536)
        if drawn < digit:
            yield index
        if drawn == digit and chance * 65536 > digit:
            left[index] = chance * 65536 - digit
    if left:
        yield from coins(left, stream)


def rounded(vector: list[float], bound: int, key: str) -> list[int]:
    """One entry at a time; every draw asks the stream anew."""
    exact, stream = [Fraction(x) for x in vector], Stream(key)
    for _ in range(20):
        heads = set(coins({i: abs(x) % 1 for i, x in enumerate(exact)}, stream))
        found = [(math.floor(abs(x)) + (i in heads)) * (-1 if x < 0 else 1) for i, x in enumerate(exact)]
        if sum(z * z for z in found) <= bound:
            return found
    return [math.trunc(x) for x in exact]


def rounding() -> dict[str, Any]:
    """Bounds for lengths and sizes; draws from seeded bytes, also some that must be redrawn or truncated."""
    grid = [(c, d) for c in (0.0, 0.1, 1.0, 5.0, 1000.5, 65536.0, 2.0**26) for d in (1, 2, 64, 4096, 10**6, 2**24)]
    longest = [{"length": c.hex(), "size": d, "squared_bound": squared_bound(c, d)} for c, d in grid]
    cases = []
    kinds = (("a", 40, 3.0, 10**6), ("b", 64, 100.0, 0), ("c", 30, 1.0, -3), ("d", 5, 0.001, 1))
    for name, count, scale, slack in kinds:
        vector = [scale * x for x in reals(f"rounding {name}", count)] + [2.5, -1e-30, -0.0, 7.0]
        bound = math.floor(sum(Fraction(x) ** 2 + (abs(x) % 1) * (1 - abs(x) % 1) for x in map(Fraction, vector)))
        key, bound = f"secagg updates v1: {name}", bound + slack
        case = {"vector": [x.hex() for x in vector], "squared_bound": bound, "seed": key}
        cases.append(case | {"integers": rounded(vector, bound, key)})
    return {"longest": longest, "cases": cases}


def encoding() -> dict[str, Any]:
    """An update from real numbers to integers and back; records of a batch."""
    cases = []
    for name, size, scale, clip, levels, entry in (
        ("short", 20, 0.01, 1.0, 1000, 1000),
        ("long", 20, 5.0, 1.5, 1000, 1000),
        ("cut", 150, 1.0, 2.0, 4096, 500),
    ):
        update, key = [scale * x for x in reals(f"update {name}", size)], seed(f"encoding {name}")
        length = mp.sqrt(mp.fsum(mpf(x) ** 2 for x in update))
        factor = mpf(levels) / max(length, mpf(clip))
        rotated = [factor * y for y in applied(update, key)]
        kept = [float(min(max(y, mpf(-entry)), mpf(entry))) for y in rotated]
        bound, source = squared_bound(levels, len(kept)), f"secagg updates v1: encode {name}"
        integers = rounded(kept, bound, source)
        case = {"size": size, "clip": clip, "levels": levels, "entry": entry, "seed": key.hex(), "randomness": source}
        case |= {"update": [x.hex() for x in update], "integers": integers, "shortened": bool(length > clip)}
        case["squared_bound"] = bound
        case["clipped_entries"] = sum(abs(y) > entry for y in rotated)
        step = clip / levels
        cases.append(case | {"decoded": [(x * step).hex() for x in undone(integers, key, size)]})
    rows = [[(8.0 if row == 1 else 0.3) * x for x in reals(f"record {row}", 6)] for row in range(3)]
    lengths = [mp.sqrt(mp.fsum(mpf(x) ** 2 for x in row)) for row in rows]
    integers = [
        [int(mpf(x) * 500 / max(length, mpf(1))) for x in row] for row, length in zip(rows, lengths, strict=True)
    ]
    records = {"clip": 1.0, "levels": 500, "gradients": [[x.hex() for x in row] for row in rows], "integers": integers}
    return {"cases": cases, "records": records}


def by_torch(optimiser: Optimiser, updates: list[list[float]]) -> list[float]:
    """Where one of torch's optimisers ends, with minus the updates as gradients."""
    point = torch.zeros(len(updates[0]), dtype=torch.float64, requires_grad=True)
    chosen = optimiser([point])
    for update in updates:
        point.grad = -torch.tensor(update, dtype=torch.float64)
        chosen.step()
    values: list[float] = point.tolist()
    return values


def adam_of_torch(rate: float, betas: tuple[float, float], tau: float, size: int) -> Optimiser:
    """torch's Adam from v = τ², so many steps old that its corrections of the bias are 1."""

    def make(points: list[torch.Tensor]) -> torch.optim.Optimizer:
        chosen = torch.optim.Adam(points, lr=rate, betas=betas, eps=tau)
        zeros = torch.zeros(size, dtype=torch.float64)
        chosen.state[points[0]] = {"step": torch.tensor(1e7), "exp_avg": zeros, "exp_avg_sq": zeros + tau * tau}
        return chosen

    return make


def by_hand(name: str, settings: dict[str, float], updates: list[list[float]]) -> list[float]:
    """The same in Python's floats, one entry at a time."""
    ends = []
    for entry in range(len(updates[0])):
        x, m, v = 0.0, 0.0, settings.get("tau", 0.0) ** 2
        for update in updates:
            delta, rate = update[entry], settings["rate"]
            if name == "average":
                x = x + rate * delta
            elif name == "momentum":
                m = settings["beta"] * m + delta
                x = x + rate * m
            else:
                m = settings["beta1"] * m + (1.0 - settings["beta1"]) * delta
                v = settings["beta2"] * v + (1.0 - settings["beta2"]) * (delta * delta)
                x = x + rate * m / (math.sqrt(v) + settings["tau"])
        ends.append(x)
    return ends


def steps() -> dict[str, Any]:
    """Six steps of each rule; the digest of a small state."""
    updates = [reals(f"mean update {step}", 6) for step in range(6)]
    rules: list[tuple[str, dict[str, float], Any]] = [
        ("average", {"rate": 0.7}, lambda points: torch.optim.SGD(points, lr=0.7)),
        ("momentum", {"rate": 0.3, "beta": 0.8}, lambda points: torch.optim.SGD(points, lr=0.3, momentum=0.8)),
        ("adam", {"rate": 0.05, "beta1": 0.9, "beta2": 0.99, "tau": 0.001}, adam_of_torch(0.05, (0.9, 0.99), 0.001, 6)),
    ]
    cases = []
    for name, settings, optimiser in rules:
        case = {"name": name, "settings": settings, "exact": [x.hex() for x in by_hand(name, settings, updates)]}
        cases.append(case | {"torch": by_torch(optimiser, updates)})
    word = (3).to_bytes(4, "big")
    bias, weight = np.array([0.5, -1.25], "<f8").tobytes(), np.array([[1, 2], [3, 4], [5, 6]], "<f8").tobytes()
    parts = [word, (2).to_bytes(4, "big")]
    parts += [b"bias", (2).to_bytes(4, "big"), hashlib.sha256(bias).digest()]
    parts += [b"weight", word + (2).to_bytes(4, "big"), hashlib.sha256(weight).digest()]
    parts += [b"velocity", (8).to_bytes(4, "big"), hashlib.sha256(bytes(64)).digest()]
    state = hashlib.sha256(labelled("state", *parts)).hexdigest()
    return {"updates": [[x.hex() for x in update] for update in updates], "cases": cases, "digest": state}


def main() -> None:
    """Write the file."""
    content: dict[str, Any] = {"source": SOURCE, "generator": GENERATOR, "rotation": rotation(), "rounding": rounding()}
    content |= {"encoding": encoding(), "steps": steps()}
    (FOLDER / "updates.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
