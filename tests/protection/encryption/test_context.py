"""The public facts of an encrypted session: one key holder, a sum that fits one message, parameters that hold it."""

from dataclasses import fields, replace

import pytest

from secagg.encoding import Ring
from secagg.errors import BadInput, CapacityExceeded, MalformedMessage
from secagg.protection.encryption.derivations import EncryptedContext
from secagg.protection.encryption.messages import BLIND_BYTES, LARGEST_SUM, SumRequest
from secagg.protection.encryption.parameters import DEGREE
from secagg.protection.interface import SessionContext
from secagg.wire import MAX_FRAME_BYTES, encode
from tests.protection.encryption.sessions import HOLDER, context_for, honest


@pytest.mark.parametrize("seconds", [{}, {4: bytes(32), 5: bytes([1]) * 32}])
def test_there_is_exactly_one_key_holder(seconds):
    """Without one, and with two, there is no session, and the refusal says what to do."""
    with pytest.raises(BadInput, match=f"not {len(seconds)}; add a member with the role key-holder"):
        replace(context_for(), helpers=seconds)


def test_the_facts_of_a_session_are_those_of_the_plan():
    """What is made of a plain context has its facts, the key holder's place, and is made once."""
    plain = SessionContext(**{each.name: getattr(context_for(), each.name) for each in fields(SessionContext)})
    context = EncryptedContext.of(plain)
    assert context == context_for()
    assert EncryptedContext.of(context) is context
    assert (context.holder_index, context.holder) == (4, HOLDER.public)
    assert context.parameters is context.parameters


def test_a_session_is_made_before_its_length_is_known():
    """With neither length nor capacity there is a context, and both are found later."""
    early = replace(context_for(), length=0, largest=0, ring=Ring(64))
    assert (early.sum_bytes, early.upload_bytes) == (0, BLIND_BYTES)
    assert replace(early, length=4200, largest=40_000, ring=Ring(24)) == context_for()


@pytest.mark.parametrize("clients", [3, 100])
def test_a_sum_that_does_not_fit_one_message_is_refused_at_once(clients):
    """The longest sum is whole ciphertexts of at most 57 MiB; one entry more is refused."""
    context = context_for(clients)
    longest = LARGEST_SUM // context.parameters.packed_bytes(DEGREE) * DEGREE
    assert replace(context, length=longest).sum_bytes <= LARGEST_SUM
    with pytest.raises(BadInput, match="use fewer features"):
        replace(context, length=longest + 1)


def test_the_largest_request_fits_one_frame():
    """With 4,096 uploads and the longest sum a request leaves room for the rest of its frame."""
    request = honest().request(1, 2, 3)
    upload = len(encode(replace(request.declaration.uploads[0], member=4096, length=LARGEST_SUM)))
    fields = 2 * len(encode(replace(request, packed=b"\0"))) + 4096 * (upload + 4)
    assert LARGEST_SUM + fields < MAX_FRAME_BYTES - (1 << 20)
    with pytest.raises(MalformedMessage, match="packed"):
        encode(SumRequest(request.declaration, bytes(LARGEST_SUM + 1)))


def test_security_chooses_the_parameters():
    """A plan that asks for 192 bits gets them where they exist, and is refused where none are."""
    small = context_for(largest=1000)
    assert replace(small, security=192).parameters.security == 192
    with pytest.raises(CapacityExceeded, match="at 192 bits"):
        replace(context_for(largest=2**40), security=192)
    with pytest.raises(BadInput, match="no ciphertexts here have 256 bits of security; ask for 128 or 192"):
        replace(small, security=256)


def test_key_holder_has_a_name():
    """It is called as in the roster, or by what it is."""
    context = context_for()
    assert replace(context, names={**context.names, 4: "vault"}).holder_name == "vault"
    assert replace(context, names={}).holder_name == "key holder"
