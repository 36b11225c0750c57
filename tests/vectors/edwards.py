"""Signatures over points that have two encodings, or small order, by the formulas of RFC 8032 in Python integers.

Verifiers disagree on these (Chalkias, Garillot & Nikolaenko, "Taming the many EdDSAs", 2020): every case here fulfils
the verification equation, with or without the cofactor 8.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

from tests.vectors import independent as reference

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)
Point = tuple[int, int]
ZERO: Point = (0, 1)
LABEL = "frame"


def _add(one: Point, other: Point) -> Point:
    (x, y), (u, v) = one, other
    both = D * x * u * y * v % P
    return (x * v + y * u) * pow(1 + both, -1, P) % P, (y * v + x * u) * pow(1 - both, -1, P) % P


def _times(count: int, point: Point) -> Point:
    found = ZERO
    while count:
        if count & 1:
            found = _add(found, point)
        point, count = _add(point, point), count >> 1
    return found


def _x(y: int) -> int | None:
    """A root x of −x² + y² = 1 + d·x²·y², if there is one."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    root = pow(square, (P + 3) // 8, P)
    root = root if root * root % P == square else root * ROOT % P
    return root if root * root % P == square else None


def _encoded(y: int, sign: int) -> bytes:
    return (y | sign << 255).to_bytes(32, "little")


def _small() -> list[Point]:
    """The eight points whose order divides 8."""
    for y in range(2, 100):
        x = _x(y)
        generator = _times(ORDER, (x, y)) if x is not None else ZERO
        if _times(4, generator) != ZERO:
            return [_times(count, generator) for count in range(8)]
    raise ValueError("no point of order 8")


def _encodings(point: Point) -> Iterator[tuple[str, bytes]]:
    """Every encoding that a lenient decoder takes for the point."""
    x, y = point
    for name, value in (("", y), ("_y_plus_p", y + P)):
        if value < 2**255:
            yield name, _encoded(value, x & 1)
            if x == 0:
                yield f"{name}_other_sign", _encoded(value, 1)


def _challenge(start: bytes, public: bytes, part: bytes) -> int:
    message = reference.labelled(LABEL, part)
    return int.from_bytes(hashlib.sha512(start + public + message).digest(), "little") % ORDER


def _secret(private: bytes) -> int:
    half = int.from_bytes(hashlib.sha512(private).digest()[:32], "little")
    return half & ((1 << 254) - 8) | 1 << 254


def signature_points() -> dict[str, Any]:
    """Keys of small order, with which any message is signed; and an honest key with first halves of small order."""
    small = _small()
    cases = []
    for place, point in enumerate(small):
        for name, public in _encodings(point):
            part, start = next(
                (part, start)
                for part in (bytes([count]) for count in range(256))
                for each in small
                for start in [_encoded(each[1], each[0] & 1)]
                if _add(each, _times(_challenge(start, public, part), point)) == ZERO
            )
            cases.append({"name": f"key_{place}{name}", "public": public, "signature": start + bytes(32), "part": part})
    private = bytes(range(32))
    public = reference.ed25519_public(private)
    for place, point in enumerate(small):
        for name, start in _encodings(point):
            response = _challenge(start, public, b"\x00") * _secret(private) % ORDER
            signature = start + response.to_bytes(32, "little")
            cases.append({"name": f"start_{place}{name}", "public": public, "signature": signature, "part": b"\x00"})
    texts = [
        {"name": each["name"], "label": LABEL, "parts": [each["part"].hex()]}
        | {name: each[name].hex() for name in ("public", "signature")}
        for each in cases
    ]
    source = "RFC 8032, section 5.1, in Python integers; the cases follow Chalkias, Garillot & Nikolaenko 2020"
    return {"source": source, "cases": texts}
