"""A key under a passphrase: whoever knows it opens the key, and a guess costs as much as is asked for today."""

import base64

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from secagg.transport.certificates import key_pem, new_key

PASSPHRASE = "five random words, näive ones".encode()


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP521R1()])
def test_the_library_opens_it_by_the_passphrase_alone(curve: ec.EllipticCurve) -> None:
    """It is PKCS #8 that others read; another passphrase, or none, opens nothing."""
    key = ec.generate_private_key(curve)
    pem = key_pem(key, PASSPHRASE)
    opened = serialization.load_pem_private_key(pem, PASSPHRASE)
    assert isinstance(opened, ec.EllipticCurvePrivateKey)
    assert opened.private_numbers() == key.private_numbers()
    for wrong in (PASSPHRASE[:-1], None):
        with pytest.raises((ValueError, TypeError)):
            serialization.load_pem_private_key(pem, wrong)


def test_a_guess_costs_600_000_iterations() -> None:
    """The number stands in the file as who opens it counts them (an INTEGER of DER)."""
    body = "".join(key_pem(new_key(), PASSPHRASE).decode().splitlines()[1:-1])
    assert bytes.fromhex("02030927c0") in base64.b64decode(body)
    assert int.from_bytes(bytes.fromhex("0927c0"), "big") == 600_000
