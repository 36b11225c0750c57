"""The key holder opens one sum per session: for the plan's server, above the minimum, of uploads that it checks."""

from dataclasses import replace

import pytest

from secagg.crypto.agreement import AgreementKey
from secagg.crypto.sealing import seal
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation, SessionAborted
from secagg.protection.encryption import binding as bind
from secagg.protection.encryption.key_holder import HeldKey, SpentKey, make_key
from secagg.protection.encryption.messages import Declaration
from secagg.unsafe_for_tests import SeededRandomness
from secagg.wire import decode, encode
from tests.protection.encryption import sessions
from tests.protection.encryption.sessions import HOLDER, SERVER, context_for, honest, identity, signed_again


def declared_again(session, declared, **changes):
    """The declaration of a server that says and signs other things."""
    return bind.sign_declaration(session.context, SERVER, replace(declared.declaration, **changes))


def test_a_second_request_is_refused_for_ever():
    """Once a request is accepted the state that remains opens nothing: not another set, not the same, not restarted."""
    session = honest()
    declared = session.declare(1, 2, 3)
    state = session.held.begin(session.context, declared.declaration, declared.packed).state
    other = session.declare(1, 2)
    for spent in (state, decode(SpentKey, encode(state))):
        for request in (declared, other):
            with pytest.raises(ProtocolViolation, match="server: asks to open a second sum"):
                spent.begin(session.context, request.declaration, request.packed)


def test_what_is_durable_after_a_request_holds_no_key():
    """The spent state consists of the declaration's digest and nothing else."""
    session = honest()
    declared = session.declare(1, 2, 3)
    state = session.held.begin(session.context, declared.declaration, declared.packed).state
    assert state == SpentKey(bind.message_digest(declared.declaration))
    assert len(encode(state)) == 34


def test_a_restarted_key_holder_goes_on():
    """A key that was written and read back before the request opens the same sum."""
    session = honest()
    declared = session.declare(1, 2, 3)
    opened = [
        held.begin(session.context, declared.declaration, declared.packed).opening.open(session.context, HOLDER, None)
        for held in (session.held, decode(HeldKey, encode(session.held)))
    ]
    assert opened[0] == opened[1]


def test_a_refused_request_spends_nothing():
    """After requests that fail a check the honest one is still answered."""
    session = honest()
    declared = session.declare(1, 2, 3)
    with pytest.raises(ProtocolViolation):
        session.held.begin(session.context, declared.declaration, declared.packed[:-1])
    opening = session.held.begin(session.context, declared.declaration, declared.packed).opening
    values = declared.opened(session.context, opening.open(session.context, HOLDER, None))
    assert (values == sum(session.vectors.values())).all()


@pytest.mark.parametrize("signer", ["holder", "c1"])
def test_only_the_server_declares(signer):
    """A declaration that the plan's server did not sign is refused."""
    session = honest()
    declared = session.declare(1, 2, 3)
    forged = bind.sign_declaration(session.context, identity(signer), declared.declaration)
    with pytest.raises(ProtocolViolation, match="not signed"):
        session.held.begin(session.context, forged, declared.packed)


def test_no_sum_below_the_minimum_cohort():
    """One client's sum is refused, whatever the server declares."""
    session = honest()
    upload, packed = session.uploads[1]
    alone = declared_again(session, session.declare(1, 2), uploads=(upload,), total=upload.digest)
    with pytest.raises(ProtocolViolation, match="declares 1 clients; at least 2"):
        session.held.begin(session.context, alone, packed)


@pytest.mark.parametrize(
    ("colluders", "dropouts", "minimum_cohort", "fewest"), [(0, 1, 1, 4), (0, 4, 1, 2), (2, 4, 1, 4), (0, 4, 5, 5)]
)
def test_the_minimum_leaves_two_honest_clients(colluders, dropouts, minimum_cohort, fewest):
    """The smallest sum holds all but the tolerated dropouts, two more than the colluders, and the minimum cohort."""
    context = replace(context_for(5), colluders=colluders, dropouts=dropouts, minimum_cohort=minimum_cohort)
    assert context.fewest == fewest
    with pytest.raises(BadInput, match="cannot be reached"):
        _ = replace(context, minimum_cohort=6).fewest


def test_every_declared_upload_must_be_its_clients():
    """A set with an upload that its member did not sign, or made for another key, is refused."""
    session = honest()
    declared = session.declare(1, 2, 3)
    first, second, third = declared.declaration.uploads
    forged = bind.sign_upload(session.context, SERVER, third)
    with pytest.raises(ProtocolViolation, match="server: declares an upload that member 3 did not sign"):
        session.held.begin(
            session.context, declared_again(session, declared, uploads=(first, second, forged)), declared.packed
        )
    elsewhere = signed_again(session.context, third, session.uploads[3][1], key=bytes(32))
    with pytest.raises(ProtocolViolation, match="of member 3 for another key"):
        session.held.begin(
            session.context, declared_again(session, declared, uploads=(first, second, elsewhere)), declared.packed
        )


def test_a_member_is_declared_once():
    """The same upload twice in one declaration has no encoding, and is refused where it is made up in memory."""
    session = honest()
    declared = session.declare(1, 2, 3)
    first = declared.declaration.uploads[0]
    with pytest.raises(MalformedMessage, match="ascending"):
        encode(replace(declared.declaration, uploads=(first, first)))
    doubled = declared_again(session, declared, uploads=(first, first))
    with pytest.raises(MalformedMessage, match="ascending"):
        session.held.begin(session.context, doubled, declared.packed)


def test_a_sum_that_is_not_the_declared_one_or_none_is_refused():
    """Other bytes than declared, and declared bytes that are no ciphertexts, are refused and spend nothing."""
    session = honest()
    declared, other = session.declare(1, 2, 3), session.declare(1, 2)
    with pytest.raises(ProtocolViolation, match="another sum than the declared"):
        session.held.begin(session.context, declared.declaration, other.packed)
    for bad in (b"", declared.packed[:-1], bytes(len(declared.packed)), b"\xff" * len(declared.packed)):
        lying = declared_again(session, declared, total=sessions.sha256(bad))
        with pytest.raises(ProtocolViolation, match="server: the sum is no ciphertext"):
            session.held.begin(session.context, lying, bad)


def test_a_seed_that_was_not_sealed_names_its_client():
    """Garbage, a seed sealed by or for another, and one sealed in another session are laid at the client's door."""
    session = honest()
    declared = session.declare(1, 2, 3)
    first, second, third = declared.declaration.uploads
    stolen = replace(second, ephemeral=first.ephemeral, sealed_seed=first.sealed_seed)
    for bad in (replace(second, sealed_seed=seal(b"k" * 32, b"s" * 32, b"")), stolen):
        signed = bind.sign_upload(session.context, identity("c2"), bad)
        request = declared_again(session, declared, uploads=(first, signed, third))
        with pytest.raises(ProtocolViolation, match="c2: sealed no mask seed"):
            session.held.begin(session.context, request, declared.packed)


def test_a_wrong_seed_spoils_the_sum_and_nothing_is_released():
    """A client that seals another seed than that of its mask makes the opening refuse, without a culprit."""
    session = honest()
    declared = session.declare(1, 2, 3)
    again, _ = sessions.upload_of(session.context, session.held.published, 2, session.vectors[2])
    first, second, third = declared.declaration.uploads
    lie = signed_again(
        session.context, second, session.uploads[2][1], ephemeral=again.ephemeral, sealed_seed=reseal(session, again)
    )
    request = declared_again(session, declared, uploads=(first, lie, third))
    opening = session.held.begin(session.context, request, declared.packed).opening
    with pytest.raises(SessionAborted, match="outside the plan's capacity"):
        opening.open(session.context, HOLDER, None)


def reseal(session, upload):
    """Another seed, sealed under the ephemeral key that `party(2)` draws."""
    me = sessions.party(2)
    me.randomness.bytes(32)
    ephemeral = AgreementKey.generate(me.randomness)
    key = bind.seed_key(session.context, ephemeral, session.held.published.sealing_key, 2, upload.key)
    return seal(key, b"another seed".ljust(32), bind.seed_associated(session.context, 2, upload.key))


def test_every_session_has_its_own_key():
    """Two keys share nothing, and only the plan's key holder makes one."""
    context = context_for()
    first, second = (make_key(context, HOLDER, SeededRandomness(seed)) for seed in (b"a", b"b"))
    assert first.secret != second.secret
    assert first.published.public_key != second.published.public_key
    assert first.published.sealing_key != second.published.sealing_key
    with pytest.raises(BadInput, match="not the plan's key holder"):
        make_key(context, SERVER, SeededRandomness(b"a"))


def test_a_declaration_survives_its_bytes():
    """What the server signs is what the key holder reads."""
    declared = honest().declare(1, 2, 3)
    assert decode(Declaration, encode(declared.declaration)) == declared.declaration
    assert declared.declaration.members == (1, 2, 3)
