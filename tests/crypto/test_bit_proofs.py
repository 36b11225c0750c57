"""Proofs that commitments are to bits, against a second implementation that checks each equation alone."""

import os
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from secagg.crypto import bit_proofs
from secagg.crypto.bit_proofs import (
    ORDER,
    PROOF_BYTES,
    SCALAR_BYTES,
    WIDE_BYTES,
    ZERO,
    add_scalars,
    add_up_to,
    are_bits,
    is_scalar,
    prove_bits,
    scalars_of,
)
from secagg.errors import BadInput
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.vectors import bit_proofs as reference
from tests.vectors.bit_proofs import FIELDS, changed, scalar
from tests.vectors.files import load, named

VECTORS = load("bit_proofs")
PROVERS = VECTORS["provers"]
BINDINGS, PROOFS = ([bytes.fromhex(prover[name]) for prover in PROVERS] for name in ("binding", "proofs"))
BINDING, GOOD = BINDINGS[0], PROOFS[0]
SUM = VECTORS["sum"]["values"]
SUM_BLINDINGS = [bytes.fromhex(blinding) for blinding in VECTORS["sum"]["blindings"]]
SMALL = sorted({bytes.fromhex(case["public"]) for case in load("signature_points")["cases"] if "key_" in case["name"]})
NEUTRAL = scalar(1)
SCALARS = st.integers(1, ORDER - 1).map(scalar)
SECRETS = st.tuples(st.sampled_from([0, 1]), SCALARS)
FLIPS = st.integers(0, 8 * PROOF_BYTES - 1)


class Told:
    """A source of randomness that gives the bytes that it was told, in order."""

    def __init__(self, octets: bytes) -> None:
        self._left = octets

    def bytes(self, count: int) -> bytes:
        """The next of them."""
        given, self._left = self._left[:count], self._left[count:]
        assert len(given) == count
        return given


def seeded(name: bytes) -> SeededRandomness:
    """Randomness that is the same in every run."""
    return SeededRandomness(b"bit proofs " + name, TOKEN)


def proven(bits: Sequence[int], name: bytes = b"", binding: bytes = BINDING) -> tuple[bytes, list[bytes]]:
    """Proofs of bits, and their blindings."""
    drawn = seeded(name)
    blindings = scalars_of(drawn.bytes(WIDE_BYTES * len(bits)))
    return prove_bits(bits, blindings, drawn, binding), blindings


def fields_of(proofs: bytes) -> Iterator[dict[str, bytes]]:
    """The six fields of each entry."""
    for start in range(0, len(proofs), PROOF_BYTES):
        entry = proofs[start : start + PROOF_BYTES]
        yield {name: entry[32 * at : 32 * at + 32] for at, name in enumerate(FIELDS)}


def both_say(proofs: bytes, binding: bytes = BINDING) -> bool:
    """What the product and the second implementation say alike."""
    said = are_bits(proofs, binding)
    assert said == reference.are_bits(proofs, binding)
    return said


def test_the_second_generator_is_the_point_of_its_label() -> None:
    """G is Elligator's point of a hashed label, so that nobody chose it by its logarithm to H, the base point."""
    assert bit_proofs._G.hex() == VECTORS["second_generator"]
    assert reference.encode(reference.G) == bit_proofs._G
    assert bit_proofs._multiple_of_h(scalar(1)) == reference.encode(reference.H)
    assert reference.is_of_group(bit_proofs._G)
    assert bit_proofs._NEUTRAL == NEUTRAL


@pytest.mark.parametrize("prover", PROVERS, ids=lambda prover: str(prover["bits"]))
def test_provers_make_the_bytes_of_the_vectors(prover: dict) -> None:
    """From the same bits, blindings and random bytes come the paper's proofs, which both verifiers take."""
    octets = {name: bytes.fromhex(prover[name]) for name in ("binding", "uniform", "proofs")}
    blindings = [bytes.fromhex(blinding) for blinding in prover["blindings"]]
    assert prove_bits(prover["bits"], blindings, Told(octets["uniform"]), octets["binding"]) == octets["proofs"]
    assert both_say(octets["proofs"], octets["binding"])


@pytest.mark.parametrize("case", VECTORS["refused"], ids=named)
def test_what_proves_no_bit_is_refused(case: dict) -> None:
    """Other values, and entries flipped, moved, cut or wrong by errors that cancel, are refused by both verifiers."""
    assert not both_say(bytes.fromhex(case["proofs"]), bytes.fromhex(case["binding"]))


@pytest.mark.parametrize("case", VECTORS["refused_though_equations_hold"], ids=named)
def test_other_groups_and_encodings_are_refused(case: dict) -> None:
    """Points outside the group, the neutral element and second encodings are refused though all equations hold."""
    proofs, binding = bytes.fromhex(case["proofs"]), bytes.fromhex(case["binding"])
    assert reference.are_bits(proofs, binding, strict=False)
    assert not both_say(proofs, binding)


@pytest.mark.parametrize("field", ["c", "a0", "a1"])
def test_points_of_small_order_are_refused_in_every_encoding(field: str) -> None:
    """None of the encodings of the eight points whose order divides 8 is taken for a point."""
    assert len(SMALL) >= 8
    for point in SMALL:
        assert not both_say(changed(GOOD, 1, field, lambda _, point=point: int.from_bytes(point, "little")))


@pytest.mark.parametrize("field", ["c", "a0", "a1"])
@pytest.mark.parametrize("sign", [0, 1])
def test_points_above_the_prime_are_refused(field: str, sign: int) -> None:
    """No coordinate from the prime on is taken, whatever point it is of."""
    for y in range(reference.P, 2**255):
        assert not both_say(changed(GOOD, 0, field, lambda _, octets=y | sign << 255: octets))


@given(st.lists(SECRETS, min_size=1, max_size=5), st.binary(max_size=40), st.binary(max_size=8))
@settings(max_examples=12)
def test_proofs_of_any_bits_hold(secrets: list, binding: bytes, name: bytes) -> None:
    """Whatever the bits, blindings and binding, both verifiers take the proofs, and commitments open to the bits."""
    bits, blindings = [bit for bit, _ in secrets], [blinding for _, blinding in secrets]
    proofs = prove_bits(bits, blindings, seeded(name), binding)
    assert len(proofs) == PROOF_BYTES * len(bits)
    assert both_say(proofs, binding)
    assert add_up_to([proofs], bits, blindings)
    assert not add_up_to([proofs], [1 - bit for bit in bits], blindings)


@given(FLIPS, st.integers(0, 3))
@settings(max_examples=30)
def test_no_bit_may_be_flipped(bit: int, place: int) -> None:
    """Any one flipped bit of any entry is seen, even among entries that are valid."""
    at = place * PROOF_BYTES + bit // 8
    assert not both_say(GOOD[:at] + bytes([GOOD[at] ^ 1 << bit % 8]) + GOOD[at + 1 :])


@given(st.binary(max_size=32))
def test_proofs_are_bound_to_their_prover(binding: bytes) -> None:
    """A proof holds for exactly the binding that it was made with."""
    assert are_bits(GOOD, binding) == (binding == BINDING)


def test_proofs_are_bound_to_their_places() -> None:
    """No entry holds in another place, not even beside itself."""
    entries = [GOOD[start : start + PROOF_BYTES] for start in range(0, len(GOOD), PROOF_BYTES)]
    for place in range(4):
        for entry in entries:
            moved = [*entries[:place], entry, *entries[place + 1 :]]
            assert are_bits(b"".join(moved), BINDING) == (entry == entries[place])


WHOLE = st.integers(1, 3).flatmap(lambda count: st.binary(min_size=count * PROOF_BYTES, max_size=count * PROOF_BYTES))


@given(st.one_of(st.binary(max_size=3 * PROOF_BYTES), WHOLE), st.binary(max_size=40))
def test_any_bytes_are_answered(proofs: bytes, binding: bytes) -> None:
    """Bytes of any length are refused without an error."""
    assert not both_say(proofs, binding)


ODD_SCALARS = [0, 1, ORDER - 1, ORDER, ORDER + 1, 2**252, 2**255 - 20, 2**255 - 19, 2**255, 2**256 - 1]
POOL = [each for proofs in PROOFS[:2] for fields in fields_of(proofs[: 2 * PROOF_BYTES]) for each in fields.values()]
POOL += [*map(scalar, ODD_SCALARS), *SMALL, bit_proofs._G, reference.encode(reference.H)]


@given(st.lists(st.lists(st.sampled_from(POOL), min_size=6, max_size=6), min_size=1, max_size=3), st.data())
def test_any_fields_are_answered_as_one_by_one(entries: list, data: st.DataObject) -> None:
    """Entries put together from valid and odd fields are judged as their equations are, without an error."""
    good = [GOOD[start : start + PROOF_BYTES] for start in range(0, len(GOOD), PROOF_BYTES)]
    mixed = [data.draw(st.sampled_from([good[place], b"".join(entry)])) for place, entry in enumerate(entries)]
    assert both_say(b"".join(mixed)) == (mixed == good[: len(mixed)])


@given(st.sampled_from(FIELDS), st.sampled_from(POOL), st.integers(0, 3))
@settings(max_examples=30)
def test_any_other_field_is_seen(field: str, octets: bytes, place: int) -> None:
    """An entry with one field of another entry, or an odd one, holds only if it is the field's own."""
    mixed = changed(GOOD, place, field, lambda _: int.from_bytes(octets, "little"))
    assert both_say(mixed) == (mixed == GOOD)


@pytest.mark.parametrize("side", [0, 1])
def test_a_challenge_spent_on_one_side_does_no_harm(side: int) -> None:
    """With all of the challenge in e0, or none, a proof is judged without an error; the equations of both sides hold.

    Alone, one with e1 = 0 is refused, as the library has no multiples by 0; no honest prover meets it (2⁻²⁵²).
    """
    spent = reference.Prover(BINDING, 0, 5, (6, 7, 0)).prove(side, side)
    assert reference.are_bits(spent, BINDING)
    assert are_bits(spent, BINDING) == (side == 1)
    assert not both_say(changed(spent, 0, "z0", (1).__xor__))


def weights_of(monkeypatch: pytest.MonkeyPatch, proofs: bytes) -> list[int]:
    """The weights with which the equations of these proofs are multiplied, in order, each once."""
    used: dict[bytes, None] = {}
    times = bit_proofs._times

    def noting(weight: bytes, other: bytes) -> bytes:
        used[weight] = None
        return times(weight, other)

    with monkeypatch.context() as patch:
        patch.setattr(bit_proofs, "_times", noting)
        are_bits(proofs, BINDING)
    return [int.from_bytes(each, "little") for each in used]


def test_weights_differ_for_every_equation(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two equations have the same weight, and none is short, so that 1 in 2²⁵² false ones passes and not more."""
    used = weights_of(monkeypatch, GOOD)
    assert len(used) == 2 * 4
    assert min(used) > 2**240


@pytest.mark.parametrize("place", range(4))
def test_weights_hang_on_every_field(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    """Whatever field of whatever entry is another, the first weight is another."""
    found = [weights_of(monkeypatch, changed(GOOD, place, field, (1).__xor__))[0] for field in FIELDS]
    assert len({*found, weights_of(monkeypatch, GOOD)[0]}) == 1 + len(FIELDS)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((0, "z0"), (0, "z1")),
        ((3, "z0"), (3, "z1")),
        ((0, "z0"), (1, "z0")),
        ((0, "z1"), (1, "z1")),
        ((0, "z1"), (1, "z0")),
    ],
)
def test_weights_cannot_be_foretold(
    monkeypatch: pytest.MonkeyPatch, first: tuple[int, str], second: tuple[int, str]
) -> None:
    """Errors that cancel under the weights of the proofs as they were are seen, since the weights have changed."""
    used = weights_of(monkeypatch, GOOD)
    one, other = (used[2 * place + int(field[1])] for place, field in (first, second))
    wrong = changed(GOOD, *first, lambda z: (z + other) % ORDER)
    wrong = changed(wrong, *second, lambda z: (z - one) % ORDER)
    assert not both_say(wrong)


def test_one_false_entry_among_many_is_seen() -> None:
    """Wherever the one false entry of fifty stands, whichever equation of it fails, all are refused."""
    proofs, _ = proven([place % 2 for place in range(50)])
    assert are_bits(proofs, BINDING)
    for place, field in [(0, "z1"), (24, "e0"), (49, "z0"), (49, "z1")]:
        assert not are_bits(changed(proofs, place, field, (1).__xor__), BINDING)


def leaning(entries: bytes) -> dict[str, int]:
    """In how many proofs a property holds that a coin would decide, were nothing known of the bit."""
    counts = dict.fromkeys([*FIELDS, "e1", "half e0", "half e1", "e0 < e1", "half z0", "half z1"], 0)
    for place, fields in enumerate(fields_of(entries)):
        numbers = {name: int.from_bytes(octets, "little") for name, octets in fields.items()}
        points = [fields[name] for name in ("c", "a0", "a1")]
        numbers["e1"] = (reference.challenge(BINDING, place, *points) - numbers["e0"]) % ORDER
        coins = {name: number & 1 for name, number in numbers.items()}
        coins |= {f"half {name}": numbers[name] < ORDER // 2 for name in ("e0", "e1", "z0", "z1")}
        coins["e0 < e1"] = numbers["e0"] < numbers["e1"]
        for name, coin in coins.items():
            counts[name] += coin
    return counts


@pytest.mark.parametrize("bit", [0, 1])
def test_proofs_do_not_lean_to_a_bit(bit: int) -> None:
    """In 256 proofs of a bit, halves and last bits of all fields fall as coins do.

    By Hoeffding's inequality a fair coin is off by 60 with probability below 2·exp(−2·60²/256) < 2·10⁻¹²; there are 12.
    """
    proofs, _ = proven([bit] * 256, b"coins %d" % bit)
    assert {name: count for name, count in leaning(proofs).items() if abs(count - 128) >= 60} == {}


@given(st.integers(1, ORDER - 1), SCALARS, st.lists(SCALARS, min_size=3, max_size=3))
def test_every_proof_of_0_is_one_of_1(logarithm: int, blinding: bytes, drawn: list[bytes]) -> None:
    """For each proof of 0 there is one blinding and one draw that give the same bytes for 1: they tell nothing.

    Shown with another G, whose logarithm to H is known: who knows it finds them. So nobody may know that of G.
    """
    r, (u0, u1, e) = int.from_bytes(blinding, "little"), (int.from_bytes(each, "little") for each in drawn)
    shifted = scalar((r - logarithm) % ORDER)
    assume(shifted != ZERO)
    assume((u1 + e * logarithm) % ORDER)  # else A1 is the neutral element
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bit_proofs, "_G", bit_proofs._multiple_of_h(scalar(logarithm)))
        of_zero = prove_bits([0], [blinding], Told(b"".join(scalar(each) + bytes(32) for each in (u0, u1, e))), b"")
        c, a0, a1, *octets = (of_zero[start : start + 32] for start in range(0, PROOF_BYTES, 32))
        e0, z0, z1 = (int.from_bytes(each, "little") for each in octets)
        e1, other = reference.challenge(b"", 0, c, a0, a1) - e0, r - logarithm
        draws = ((z0 - e0 * other) % ORDER, (z1 - e1 * other) % ORDER, e0)
        of_one = prove_bits([1], [shifted], Told(b"".join(scalar(each) + bytes(32) for each in draws)), b"")
        assert of_one == of_zero
        assert are_bits(of_zero, b"")


def test_nothing_of_a_proof_comes_twice() -> None:
    """Proofs of one bit share no field, as blindings and draws differ; with one blinding only the commitment is one."""
    proofs, blindings = proven([1] * 8 + [0] * 8)
    seen = [octets for fields in fields_of(proofs) for octets in fields.values()]
    assert len(set(seen)) == len(seen)
    one, again = (next(fields_of(prove_bits([1], blindings[:1], seeded(name), BINDING))) for name in (b"one", b"again"))
    assert [name for name in FIELDS if one[name] == again[name]] == ["c"]


def test_every_draw_is_fresh() -> None:
    """Each entry takes 192 bytes of its own for u0, u1 and e."""
    asked = []

    class Asked:
        def bytes(self, count: int) -> bytes:
            asked.append(count)
            return os.urandom(count)

    assert are_bits(prove_bits([0, 1, 1], [scalar(2)] * 3, Asked(), b""), b"")
    assert asked == [3 * WIDE_BYTES] * 3


@given(
    st.lists(st.lists(st.sampled_from([0, 1]), min_size=3, max_size=3), min_size=1, max_size=4), st.binary(max_size=4)
)
@settings(max_examples=12)
def test_sums_open_to_the_sum_alone(rows: list[list[int]], name: bytes) -> None:
    """Commitments of several provers add up to that of the sum with the sum of blindings, and to no other."""
    all_proofs, blindings = [], [ZERO] * 3
    for number, row in enumerate(rows):
        proofs, own = proven(row, name + bytes([number]), bytes([number]))
        all_proofs.append(proofs)
        blindings = add_scalars(blindings, own)
    total = [sum(column) for column in zip(*rows, strict=True)]
    assert reference.add_up_to(all_proofs, total, blindings)
    for value in range(-1, len(rows) + 2):
        assert add_up_to(all_proofs, [value, *total[1:]], blindings) == (value == total[0])
        assert add_up_to(all_proofs, [*total[:2], value], blindings) == (value == total[2])
    other = add_scalars(blindings, [ZERO, scalar(1), ZERO])
    assert not add_up_to(all_proofs, total, other)
    assert not reference.add_up_to(all_proofs, total, other)


def test_the_sum_of_the_vectors_opens() -> None:
    """The three provers' commitments add up to the sum of the vectors, in any order, and not with one left out."""
    assert add_up_to(PROOFS, SUM, SUM_BLINDINGS)
    assert add_up_to(PROOFS[::-1], SUM, SUM_BLINDINGS)
    assert reference.add_up_to(PROOFS, SUM, SUM_BLINDINGS)
    assert not add_up_to(PROOFS[:2], [min(value, 2) for value in SUM], SUM_BLINDINGS)
    assert not add_up_to([*PROOFS, GOOD], SUM, SUM_BLINDINGS)


def blinded(octets: bytes) -> list[bytes]:
    """The blindings of the vectors' sum, the last one replaced."""
    return [*SUM_BLINDINGS[:3], octets]


@pytest.mark.parametrize(
    ("values", "blindings"),
    [
        pytest.param(SUM, blinded(scalar(int.from_bytes(SUM_BLINDINGS[3], "little") + ORDER)), id="order added"),
        pytest.param(SUM, blinded(scalar(int.from_bytes(SUM_BLINDINGS[3], "little") | 1 << 255)), id="highest bit set"),
        pytest.param(SUM, blinded(SUM_BLINDINGS[3] + b"\0"), id="33 bytes"),
        pytest.param(SUM, blinded(SUM_BLINDINGS[3][:31]), id="31 bytes"),
        pytest.param(SUM, blinded(b""), id="none"),
        pytest.param(SUM, blinded(ZERO), id="zero"),
        pytest.param(SUM, blinded(scalar(ORDER)), id="the order"),
        pytest.param([-1, *SUM[1:]], SUM_BLINDINGS, id="negative"),
        pytest.param([4, *SUM[1:]], SUM_BLINDINGS, id="more than provers"),
        pytest.param([SUM[0] + ORDER, *SUM[1:]], SUM_BLINDINGS, id="order added to the value"),
        pytest.param([SUM[0] + 2**256, *SUM[1:]], SUM_BLINDINGS, id="longer than a scalar"),
    ],
)
def test_sums_that_are_no_opening_are_refused(values: list[int], blindings: list[bytes]) -> None:
    """A blinding that is no scalar, or zero, and a value below zero or above the provers' number open nothing."""
    assert not add_up_to(PROOFS, values, blindings)
    assert not reference.add_up_to(PROOFS, values, blindings)


@pytest.mark.parametrize("value", [2, -1, ORDER - 1])
def test_what_no_bits_add_up_to_is_not_opened(value: int) -> None:
    """A commitment to 2 or −1 is opened by its own blinding to nothing, as one prover's sum is 0 or 1."""
    proofs = reference.Prover(BINDING, 0, 9, (6, 7, 8)).prove(1, value)
    assert proofs[:32] == reference.encode(reference.commitment(value, 9))
    assert not add_up_to([proofs], [value], [scalar(9)])


def test_blindings_that_cancel_open_nothing() -> None:
    """A blinding of zero is refused even where the commitments add up to the value itself."""
    blindings = [scalar(7), scalar(ORDER - 7)]
    proofs = [prove_bits([1], [each], seeded(each), BINDING) for each in blindings]
    assert all(are_bits(each, BINDING) for each in proofs)
    assert add_scalars(blindings[:1], blindings[1:]) == [ZERO]
    assert not add_up_to(proofs, [2], [ZERO])


@pytest.mark.parametrize(
    "paired",
    [
        pytest.param(lambda: add_up_to(PROOFS, SUM[:3], SUM_BLINDINGS), id="a value too few"),
        pytest.param(lambda: add_up_to(PROOFS, SUM, SUM_BLINDINGS[:3]), id="a blinding too few"),
        pytest.param(lambda: prove_bits([0, 1], SUM_BLINDINGS[:1], seeded(b""), b""), id="a bit without a blinding"),
        pytest.param(lambda: prove_bits([0], SUM_BLINDINGS[:2], seeded(b""), b""), id="a blinding without a bit"),
        pytest.param(lambda: add_scalars(SUM_BLINDINGS, SUM_BLINDINGS[:3]), id="nothing to add"),
        pytest.param(lambda: add_scalars(SUM_BLINDINGS[:3], SUM_BLINDINGS, -1), id="nothing to take off"),
    ],
)
def test_everything_has_its_blinding(paired: Callable[[], object]) -> None:
    """Values, bits and scalars that are not as many as the scalars beside them raise ValueError."""
    with pytest.raises(ValueError, match=r"zip\(\)"):
        paired()


@pytest.mark.parametrize("entry", [2, -1, 255, 256, 257, ORDER, ORDER + 1, 2**32 - 1, 7_777_777])
def test_what_is_no_bit_is_not_proven(entry: int) -> None:
    """Any other entry raises BadInput, wherever it stands, and the message does not say which it is."""
    for bits in ([entry, 0], [1, entry]):
        with pytest.raises(BadInput, match="neither 0 nor 1") as caught:
            prove_bits(bits, SUM_BLINDINGS[:2], seeded(b""), b"")
        assert str(entry) not in str(caught.value).replace("neither 0 nor 1", "")


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_the_choice_is_that_of_the_bit(of_one: bytes, of_zero: bytes) -> None:
    """The bit 1 gives the first, 0 the second, byte by byte."""
    assert bit_proofs._choose(1, of_one, of_zero) == of_one
    assert bit_proofs._choose(0, of_one, of_zero) == of_zero


@given(st.one_of(st.integers(0, 2**256 - 1), st.sampled_from([*ODD_SCALARS, 2**252 - 1])))
def test_scalars_have_one_encoding(number: int) -> None:
    """Exactly the numbers below the group's order are scalars, in 32 bytes."""
    octets = scalar(number)
    assert is_scalar(octets) == (number < ORDER)
    assert not any(is_scalar(each) for each in (octets[:31], octets + b"\0", b""))


@given(st.lists(st.binary(min_size=64, max_size=64), max_size=3), st.data())
def test_scalars_add_up_modulo_the_order(wide: list[bytes], data: st.DataObject) -> None:
    """64 bytes give their remainder by the order; sums and differences of scalars are those of the remainders."""
    numbers = [int.from_bytes(each, "little") % ORDER for each in wide]
    ones = scalars_of(b"".join(wide))
    assert ones == [scalar(number) for number in numbers]
    others = data.draw(st.lists(SCALARS, min_size=len(wide), max_size=len(wide)))
    for sign in (1, -1):
        both = zip(numbers, (int.from_bytes(each, "little") for each in others), strict=True)
        assert add_scalars(ones, others, sign) == [scalar((one + sign * other) % ORDER) for one, other in both]


def test_a_proof_has_six_fields() -> None:
    """An entry's proof is 192 bytes: three points and three scalars, in the order of the second implementation."""
    assert (32, 32 * len(FIELDS), reference.ORDER) == (SCALAR_BYTES, PROOF_BYTES, ORDER)
