"""Proofs that commitments are to bits, a second time, in Python integers.

The curve is that of RFC 8032, section 5.1, in its extended coordinates; the map of bytes to a point is Elligator 2
(Bernstein, Hamburg, Krasnova & Lange 2013) as libsodium documents `crypto_core_ed25519_from_uniform`: the highest bit
is the sign of x, and the point is multiplied by 8. Prover and verifier follow Cramer, Damgård & Schoenmakers 1994: the
false side is simulated from its challenge and response, and each equation is checked alone, without weights.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.vectors import independent as reference

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
MONTGOMERY = 486662
Point = tuple[int, int, int, int]
NEUTRAL: Point = (0, 1, 1, 0)
FIELDS = ("c", "a0", "a1", "e0", "z0", "z1")


def add(one: Point, other: Point) -> Point:
    """RFC 8032, section 5.1.4: the sum of two points."""
    a = (one[1] - one[0]) * (other[1] - other[0]) % P
    b = (one[1] + one[0]) * (other[1] + other[0]) % P
    c, d = 2 * D * one[3] * other[3] % P, 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _doubled(point: Point) -> Point:
    x, y, z, _ = point
    a, b, c = x * x % P, y * y % P, 2 * z * z % P
    h = a + b
    e, g = h - (x + y) ** 2, a - b
    f = c + g
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(count: int, point: Point) -> Point:
    """A multiple of a point, four bits of the count at a time."""
    few = [NEUTRAL, point]
    while len(few) < 16:
        few.append(add(few[-1], point))
    found = NEUTRAL
    for shift in reversed(range(0, count.bit_length(), 4)):
        for _ in range(4):
            found = _doubled(found)
        found = add(found, few[count >> shift & 15])
    return found


def minus(one: Point, other: Point) -> Point:
    """The difference of two points."""
    x, y, z, t = other
    return add(one, (-x, y, z, -t))


def same(one: Point, other: Point) -> bool:
    """RFC 8032, section 6: whether two points are equal, whatever their Z."""
    return not any((one[at] * other[2] - other[at] * one[2]) % P for at in (0, 1))


def encode(point: Point) -> bytes:
    """RFC 8032, section 5.1.2."""
    inverse = pow(point[2], -1, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


@cache
def decode(octets: bytes, strict: bool = True) -> Point | None:
    """RFC 8032, section 5.1.3; leniently y may be any 255 bits, and x = 0 have either sign."""
    whole = int.from_bytes(octets, "little")
    y, sign = whole & (1 << 255) - 1, whole >> 255
    if strict and y >= P:
        return None
    y %= P
    u, v = y * y - 1, D * y * y + 1
    x = u * v**3 * pow(u * v**7, (P - 5) // 8, P) % P
    if (v * x * x + u) % P == 0:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (v * x * x - u) % P or (strict and not x and sign):
        return None
    x = x if x & 1 == sign else -x % P
    return x, y, 1, x * y % P


@cache
def is_of_group(octets: bytes) -> bool:
    """Whether these are the one encoding of a point of prime order; the neutral element is none."""
    point = decode(octets)
    return point is not None and not same(point, NEUTRAL) and same(times(ORDER, point), NEUTRAL)


def _element(octets: bytes) -> Point:
    point = decode(octets)
    if point is None:
        raise ValueError("no point")
    return point


def elligator(octets: bytes) -> Point:
    """The point of 32 bytes: the Montgomery u of Elligator 2, y = (u − 1)/(u + 1), the sign of x, eight times that."""
    whole = int.from_bytes(octets, "little")
    r, sign = whole & (1 << 255) - 1, whole >> 255
    u = -MONTGOMERY * pow(1 + 2 * r * r, -1, P) % P
    if pow(u**3 + MONTGOMERY * u * u + u, (P - 1) // 2, P) == P - 1:
        u = -u - MONTGOMERY
    y = (u - 1) * pow(u + 1, -1, P) % P
    return times(8, _element((y | sign << 255).to_bytes(32, "little")))


H = _element((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
G = elligator(reference.digest("bit proof generator"))
ORDER_EIGHT = times(ORDER, _element((3).to_bytes(32, "little")))  # this y is that of a point of the greatest order


def commitment(value: int, blinding: int) -> Point:
    """Pedersen 1991: value·G + blinding·H."""
    return add(times(value % ORDER, G), times(blinding, H))


def challenge(binding: bytes, place: int, *points: bytes) -> int:
    """The SHA-512 of the labelled binding, place in 4 big-endian bytes, C, A0 and A1, as a scalar."""
    told = reference.labelled("bit proof", binding, place.to_bytes(4, "big"), *points)
    return int.from_bytes(hashlib.sha512(told).digest(), "little") % ORDER


def scalar(number: int) -> bytes:
    """A scalar's 32 bytes."""
    return number.to_bytes(32, "little")


@dataclass(frozen=True)
class Prover:
    """A prover of one entry; `twist` and `twist_a0` stand beside its commitment and A0, outside of the group."""

    binding: bytes
    place: int
    blinding: int
    drawn: tuple[int, int, int]
    twist: Point = NEUTRAL
    twist_a0: Point = NEUTRAL

    def prove(self, side: int, value: int) -> bytes:
        """The proof for a commitment to `value` that it is to `side`; it holds where both are one bit."""
        committed = add(commitment(value, self.blinding), self.twist)
        c, e_false, false = encode(committed), self.drawn[2], 1 - side
        z_false = (self.drawn[false] + e_false * self.blinding) % ORDER
        firsts = [NEUTRAL, NEUTRAL]
        firsts[side] = times(self.drawn[side], H)
        firsts[false] = minus(times(z_false, H), times(e_false, minus(committed, times(false, G))))
        a0, a1 = encode(add(firsts[0], self.twist_a0)), encode(firsts[1])
        e_true = (challenge(self.binding, self.place, c, a0, a1) - e_false) % ORDER
        z_true = (self.drawn[side] + e_true * self.blinding) % ORDER
        e0, z0, z1 = (e_false, z_false, z_true) if side else (e_true, z_true, z_false)
        return c + a0 + a1 + b"".join(map(scalar, (e0, z0, z1)))


def _holds(entry: bytes, binding: bytes, place: int, strict: bool) -> bool:
    c, a0, a1, *octets = (entry[start : start + 32] for start in range(0, 192, 32))
    e0, z0, z1 = (int.from_bytes(each, "little") for each in octets)
    if strict and not (all(map(is_of_group, (c, a0, a1))) and max(e0, z0, z1) < ORDER):
        return False
    points = [decode(each, strict) for each in (c, a0, a1)]
    if None in points:
        return False
    committed, first, second = (each for each in points if each is not None)
    e1 = (challenge(binding, place, c, a0, a1) - e0) % ORDER
    sides = (e0, z0, first, committed), (e1, z1, second, minus(committed, G))
    return all(same(times(z % ORDER, H), add(a, times(e % ORDER, x))) for e, z, a, x in sides)


def are_bits(proofs: bytes, binding: bytes, strict: bool = True) -> bool:
    """Whether every equation of every entry holds, one by one.

    Not `strict`: for any encoding of any point of the curve, and for scalars above the order.
    """
    entries = [proofs[start : start + 192] for start in range(0, len(proofs), 192)]
    if not entries or len(entries[-1]) != 192:
        return False
    return all(_holds(entry, binding, place, strict) for place, entry in enumerate(entries))


def add_up_to(all_proofs: Sequence[bytes], values: Sequence[int], blindings: Sequence[bytes]) -> bool:
    """Whether the provers' commitments in each place add up to that to this value with this blinding."""
    for place, (value, blinding) in enumerate(zip(values, blindings, strict=True)):
        number, total = int.from_bytes(blinding, "little"), NEUTRAL
        if not (0 <= value <= len(all_proofs) and len(blinding) == 32 and 0 < number < ORDER):
            return False
        for proofs in all_proofs:
            total = add(total, _element(proofs[192 * place : 192 * place + 32]))
        if not same(total, commitment(value, number)):
            return False
    return True


def changed(proofs: bytes, place: int, field: str, change: Callable[[int], int]) -> bytes:
    """Proofs with one field of one entry changed, as a little-endian number."""
    start = 192 * place + 32 * FIELDS.index(field)
    number = change(int.from_bytes(proofs[start : start + 32], "little"))
    return proofs[:start] + number.to_bytes(32, "little") + proofs[start + 32 :]


def _fixed(name: str, size: int) -> bytes:
    return hashlib.shake_256(b"secagg bit proofs v1: " + name.encode()).digest(size)


def _scalars(octets: bytes) -> list[int]:
    return [int.from_bytes(octets[at : at + 64], "little") % ORDER for at in range(0, len(octets), 64)]


def _prover(name: str, bits: Sequence[int]) -> dict[str, Any]:
    binding, uniform = _fixed(f"binding {name}", 32), _fixed(f"uniform {name}", 192 * len(bits))
    blindings = _scalars(_fixed(f"blindings {name}", 64 * len(bits)))
    proofs = b""
    for place, bit in enumerate(bits):
        u0, u1, e = _scalars(uniform[192 * place : 192 * place + 192])
        proofs += Prover(binding, place, blindings[place], (u0, u1, e)).prove(bit, bit)
    texts = {"binding": binding, "uniform": uniform, "proofs": proofs}
    return {"bits": list(bits), "blindings": [scalar(each).hex() for each in blindings]} | {
        name: octets.hex() for name, octets in texts.items()
    }


def _false_statements(binding: bytes) -> Iterable[tuple[str, bytes]]:
    for value, side in [(2, 0), (2, 1), (-1, 0), (-1, 1), (0, 1), (1, 0)]:
        u0, u1, e, r = _scalars(_fixed(f"false {value} {side}", 256))
        yield f"commitment_to_{value}_as_if_to_{side}", Prover(binding, 0, r, (u0, u1, e)).prove(side, value)


def _outside_the_group(binding: bytes) -> Iterable[tuple[str, bytes]]:
    """Proofs whose equations hold for points of the whole curve; e1 is a multiple of 8, e0 is one by trying."""
    u0, u1, e, r = _scalars(_fixed("outside", 256))
    e = e // 16 * 8
    for order in (1, 2, 4, 8):
        small = times(8 // order, ORDER_EIGHT)
        kinds = {"neutral" if order == 1 else f"order_{order}": 0}
        for name, blinding in (kinds | {f"torsion_{order}": r} if order > 1 else kinds).items():
            yield f"{name}_in_c", _tried(binding, blinding, (u0, u1, e), small)
    half = times(4, ORDER_EIGHT)
    yield "torsion_2_in_c_and_a0", _tried(binding, r, (u0, u1, e), half, half)
    yield "neutral_in_a0", Prover(binding, 0, r, (0, u1, e)).prove(0, 0)
    yield "neutral_in_a1", Prover(binding, 0, r, (u0, 0, e)).prove(1, 1)


def _tried(binding: bytes, blinding: int, drawn: tuple[int, int, int], *twists: Point) -> bytes:
    u0, u1, e = drawn
    for more in range(1000):
        found = Prover(binding, 0, blinding, (u0 + more, u1, e), *twists).prove(0, 0)
        if _holds(found, binding, 0, strict=False):
            return found
    raise ValueError("the equations never hold")


def _other_encodings(binding: bytes) -> Iterable[tuple[str, bytes]]:
    """Proofs whose equations hold for whoever takes a second encoding of the neutral element or of a scalar."""
    u0, u1, e, r = _scalars(_fixed("encodings", 256))
    good = Prover(binding, 0, r, (u0, u1, e)).prove(0, 0)
    for field in ("e0", "z0", "z1"):
        for count in (1, 15):
            yield f"{count}_times_the_order_added_to_{field}", changed(good, 0, field, (count * ORDER).__add__)
    neutral = {"prime_added": scalar(P + 1), "other_sign": scalar(1 | 1 << 255)}
    z1, e1 = (u1 + e * r) % ORDER, e
    for name, octets in neutral.items():  # C is the neutral element: r is 0 on the side of 0
        a0, a1 = encode(times(u0, H)), encode(add(times(u1, H), times(e1, G)))
        e0 = (challenge(binding, 0, octets, a0, a1) - e1) % ORDER
        yield f"neutral_{name}_in_c", octets + a0 + a1 + b"".join(map(scalar, (e0, u0, u1)))
    for name, octets in neutral.items():  # A0 is the neutral element: u0 is 0
        c, a1 = encode(times(r, H)), good[64:96]
        e0 = (challenge(binding, 0, c, octets, a1) - e1) % ORDER
        yield f"neutral_{name}_in_a0", c + octets + a1 + b"".join(map(scalar, (e0, e0 * r % ORDER, z1)))


def _moved(proofs: bytes) -> Iterable[tuple[str, bytes]]:
    """Entries that are flipped, moved, cut, or wrong by what cancels in a sum without weights."""
    one = proofs[:192]
    for field in FIELDS:
        yield f"bit_flipped_in_{field}", changed(one, 0, field, (1).__xor__)
    yield "proof_of_another_place", proofs[192:384]
    yield "two_entries_swapped", proofs[192:384] + one + proofs[384:]
    yield "first_entry_twice", one + one
    yield "nothing", b""
    yield "all_zero", bytes(192)
    yield "one_byte_cut_off", proofs[:-1]
    yield "one_byte_too_many", proofs + b"\0"
    yield "half_an_entry", one[:96]
    yield "one_false_entry_among_valid_ones", changed(proofs, 2, "z1", (1).__add__)
    for name, places, fields in [
        ("z0_of_two_entries", (0, 1), ("z0", "z0")),
        ("z1_of_two_entries", (0, 1), ("z1", "z1")),
        ("z0_and_z1_of_two_entries", (0, 1), ("z0", "z1")),
        ("z0_and_z1_of_one_entry", (0, 0), ("z0", "z1")),
    ]:
        wrong = changed(proofs, places[0], fields[0], (1).__add__)
        yield f"errors_that_cancel_in_{name}", changed(wrong, places[1], fields[1], (-1).__add__)


def _texts(binding: bytes, cases: Iterable[tuple[str, bytes]]) -> list[dict[str, str]]:
    return [{"name": name, "binding": binding.hex(), "proofs": proofs.hex()} for name, proofs in cases]


def bit_proofs() -> dict[str, Any]:
    """Three provers of four bits, what their sum opens to, and what is no proof."""
    rows = (0, 1, 1, 0), (1, 1, 0, 0), (0, 1, 1, 0)
    provers = [_prover(str(number), bits) for number, bits in enumerate(rows)]
    binding, proofs = (bytes.fromhex(provers[0][name]) for name in ("binding", "proofs"))
    sums = [
        sum(int.from_bytes(bytes.fromhex(prover["blindings"][place]), "little") for prover in provers) % ORDER
        for place in range(4)
    ]
    refused = _texts(binding, [*_false_statements(binding), *_moved(proofs)])
    refused += _texts(_fixed("binding 1", 32), [("proofs_of_another_prover", proofs)])
    lenient = _texts(binding, [*_outside_the_group(binding), *_other_encodings(binding)])
    total = {
        "values": [sum(column) for column in zip(*rows, strict=True)],
        "blindings": [scalar(r).hex() for r in sums],
    }
    source = "Cramer, Damgård & Schoenmakers 1994 over RFC 8032, section 5.1, in Python integers; Elligator 2"
    return {"source": source, "second_generator": encode(G).hex(), "provers": provers, "sum": total} | {
        "refused": refused,
        "refused_though_equations_hold": lenient,
    }
