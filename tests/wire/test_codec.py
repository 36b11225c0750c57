"""One encoding for each value, and no other bytes."""

import json
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.agreement.plan import Plan
from secagg.errors import BadInput, MalformedMessage, SecaggError
from secagg.protection.masking.client import Advertised
from secagg.protection.masking.messages import Directory, Endorsement, KeyAdvertisement, Quorum
from secagg.protection.messages import MAX_ATTACHED, Abort, Attachment, Receipt, UploadHeader
from secagg.wire import Items, Length, Range, decode, encode, from_json, message
from tests.vectors.files import load
from tests.vectors.protobuf import block
from tests.wire.values import CLASSES, FEWER, any_value, values


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@FEWER
@given(st.data())
def test_decoding_undoes_encoding(cls: type, data: st.DataObject) -> None:
    """Every value of every class comes back from its bytes, and its bytes from it."""
    value = data.draw(values(cls))
    content = encode(value)
    assert decode(cls, content) == value
    assert encode(decode(cls, content)) == content


def decoded(cls: type, content: bytes) -> Any:
    """The value, or None when the bytes are refused."""
    try:
        return decode(cls, content)
    except SecaggError:
        return None


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@FEWER
@given(st.data())
def test_changed_bytes_never_mean_the_same(cls: type, data: st.DataObject) -> None:
    """A changed, removed or added byte at any place is refused or gives a different value."""
    value = data.draw(values(cls))
    content = encode(value)
    place = data.draw(st.integers(0, len(content)))
    byte = bytes([data.draw(st.integers(0, 255))])
    for changed in (
        content[:place] + byte + content[place + 1 :],
        content[:place] + content[place + 1 :],
        content[:place] + byte + content[place:],
        content[:place],
    ):
        if changed != content:
            assert decoded(cls, changed) != value


@given(any_value(), st.integers(100, 2**29 - 1), st.binary(max_size=4))
def test_unknown_fields_are_refused(value: Any, number: int, content: bytes) -> None:
    """A further field, whatever its number, is refused."""
    with pytest.raises(MalformedMessage, match="canonical"):
        decode(type(value), encode(value) + block(number, content))


@given(st.binary(max_size=60), st.sampled_from(CLASSES))
def test_arbitrary_bytes_do_nothing_worse_than_be_refused(content: bytes, cls: type) -> None:
    """Whatever arrives, decoding gives a value whose encoding it is, or one of the package's own errors."""
    value = decoded(cls, content)
    assert value is None or encode(value) == content


ENDORSEMENT = Endorsement(1, bytes(64))
HEADER = UploadHeader(1, bytes(32), bytes(32), bytes(32), ())


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (replace(ENDORSEMENT, member=0), "member: 0 is outside 1..4096"),
        (replace(ENDORSEMENT, member=4097), "member: 4097 is outside"),
        (replace(ENDORSEMENT, member=-1), "member: -1 is outside"),
        (replace(ENDORSEMENT, member=2**70), "member: .* is outside"),
        (replace(ENDORSEMENT, member=True), "member is bool, not int"),
        (replace(ENDORSEMENT, member=1.0), "member is float, not int"),
        (replace(ENDORSEMENT, member="1"), "member is str, not int"),
        (replace(ENDORSEMENT, member=None), "member is NoneType, not int"),
        (replace(ENDORSEMENT, signature=bytes(63)), "signature: length 63"),
        (replace(ENDORSEMENT, signature=bytearray(64)), "signature is bytearray"),
        (replace(ENDORSEMENT, signature="x" * 64), "signature is str"),
        (Abort(""), "reason: length 0"),
        (Abort("x" * 2001), "reason: length 2001"),
        (replace(HEADER, length=0), "length: 0"),
        (replace(HEADER, length=2**40 + 1), "length: 1099511627777"),
        (replace(HEADER, complaints=(0,)), "complaints: 0 is outside"),
        (replace(HEADER, complaints=(2, 1)), "complaints: items are not in strictly ascending"),
        (replace(HEADER, complaints=(2, 2)), "complaints: items are not in strictly ascending"),
        (replace(HEADER, complaints=tuple(range(1, 4098))), "complaints: 4097 items"),
        (Quorum(()), "endorsements: 0 items"),
        (Quorum((ENDORSEMENT, ENDORSEMENT)), "endorsements: items are not"),
        (Quorum((replace(ENDORSEMENT, member=9), ENDORSEMENT)), "endorsements: items are not"),
        (Quorum((replace(ENDORSEMENT, member=0),)), "member: 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_values_out_of_bounds_are_not_written(value: Any, problem: str) -> None:
    """Encoding refuses a field of the wrong type, length, size or order, and says which."""
    with pytest.raises(MalformedMessage, match=problem):
        encode(value)


def test_the_largest_attachment_has_a_limit() -> None:
    """No message names more than a state of 1 GiB and its names, or nothing."""
    assert decode(Attachment, encode(Attachment(MAX_ATTACHED, bytes(32)))).length == (1 << 30) + (1 << 20)
    for length in (0, MAX_ATTACHED + 1):
        with pytest.raises(MalformedMessage, match=f"length: {length}"):
            encode(Attachment(length, bytes(32)))


def test_bounds_hold_at_their_very_ends() -> None:
    """The smallest and the largest allowed values pass."""
    for value in (
        Endorsement(1, bytes(64)),
        Endorsement(4096, bytes(64)),
        Abort("x"),
        Abort("é" * 2000),
        replace(HEADER, length=2**40, complaints=tuple(range(1, 4097))),
        Receipt(),
    ):
        assert decode(type(value), encode(value)) == value


@FEWER
@given(values(Plan), st.sampled_from(["radius", "centre", "epsilon", "delta"]))
def test_not_a_number_is_never_written(plan: Plan, name: str) -> None:
    """NaN is outside every range."""
    with pytest.raises((MalformedMessage, BadInput), match="nan"):
        encode(replace(plan, **{name: float("nan")}))


@pytest.mark.parametrize("name", ["centre", "delta"])
def test_equal_values_have_equal_bytes(name: str) -> None:
    """Zero has one encoding: minus zero is refused, or written as zero."""
    plan = next(case["value"] for case in load("wire")["cases"] if case["message"] == "Plan")
    plan = from_json(Plan, json.dumps(plan))
    zero, minus = replace(plan, **{name: 0.0}), replace(plan, **{name: -0.0})
    try:
        written = encode(minus)
    except MalformedMessage:
        return
    assert written == encode(zero)


@pytest.mark.parametrize("name", ["channel_secret", "mask_secret", "seed", "dealing_secret"])
def test_problems_never_quote_bytes(name: str) -> None:
    """A refused field is described by its length: its content may be a secret."""
    entry = KeyAdvertisement(1, bytes(1216), *[bytes(32)] * 3, bytes(64))
    state = Advertised(*[bytes(32)] * 4, entry)
    with pytest.raises(MalformedMessage) as caught:
        encode(replace(state, **{name: b"secret" * 7}))
    assert str(caught.value) == f"malformed Advertised: {name}: length 42 is outside 32..32"


@pytest.mark.parametrize(
    ("fields_of_class", "problem"),
    [
        ({"member": int, "signature": Annotated[bytes, Length(64)]}, "field member needs a bound"),
        ({"member": Annotated[int, Range(1, 4096)], "signature": bytes}, "field signature needs a bound"),
        ({"signature": Annotated[bytes, Length(64)], "member": Annotated[int, Range(1, 9)]}, "the same fields"),
        ({"member": Annotated[int, Range(1, 4096)]}, "the same fields"),
        ({"member": Annotated[int, Range(1, 9)], "seal": Annotated[bytes, Length(64)]}, "the same fields"),
    ],
)
def test_classes_without_bounds_are_not_registered(fields_of_class: dict, problem: str) -> None:
    """Declaring a message whose field has no bound, or whose fields are not the proto's, raises TypeError."""
    cls = dataclass(frozen=True)(type("Endorsement", (), {"__annotations__": fields_of_class}))
    with pytest.raises(TypeError, match=problem):
        message("Endorsement")(cls)


def test_an_unknown_message_is_named_with_its_remedy() -> None:
    """Declaring a class for a message that no .proto has names the message and says what to do."""
    cls = dataclass(frozen=True)(type("FourthUpload", (), {"__annotations__": {}}))
    with pytest.raises(TypeError, match=r"no .proto .* has the message FourthUpload: add it, then run make protos"):
        message("FourthUpload")(cls)


@pytest.mark.parametrize("bound", [None, Length(1), Range(1, 2)])
def test_tuples_need_a_bound_on_their_items(bound: Any) -> None:
    """Declaring a tuple without an Items bound raises TypeError."""
    hint = tuple[int, ...] if bound is None else Annotated[tuple[int, ...], bound]
    cls = dataclass(frozen=True)(type("SumRevealed", (), {"__annotations__": {"members": hint}}))
    with pytest.raises(TypeError, match="field members needs an Items bound"):
        message("SumRevealed")(cls)


@pytest.mark.parametrize("plain", [int, str, bytes])
def test_plain_items_need_a_bound_of_their_own(plain: type) -> None:
    """Declaring a tuple of plain items that says nothing about each raises TypeError."""
    hint = Annotated[tuple[plain, ...], Items(1, 2)]
    cls = dataclass(frozen=True)(type("SumRevealed", (), {"__annotations__": {"members": hint}}))
    with pytest.raises(TypeError, match="members"):
        message("SumRevealed")(cls)


def test_nested_messages_are_of_their_class() -> None:
    """A message of another class inside is not written."""
    with pytest.raises((MalformedMessage, TypeError)):
        encode(Directory((ENDORSEMENT,)))  # type: ignore[arg-type]
    entry = KeyAdvertisement(1, bytes(1216), *[bytes(32)] * 3, bytes(64))
    assert decode(Directory, encode(Directory((entry,)))).members == (1,)
