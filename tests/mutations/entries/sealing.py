"""Faults in what is sealed to another party, and in how shares are dealt."""

from tests.mutations.planting import PlantedFault

ENVELOPES = "crypto/test_envelopes.py"
ROLLED_BACK = "protection/masking/test_rolled_back.py"
INFO = "secagg.crypto.envelopes:Address.info"

ENTRIES = (
    PlantedFault(
        "envelopes not bound to the round",
        "An envelope of one round opens in another.",
        INFO,
        (("self.binding, ", ""),),
        (f"{ENVELOPES}::test_another_address_opens_nothing",),
    ),
    PlantedFault(
        "envelopes not bound to the step",
        "An envelope of one step opens as another's.",
        INFO,
        (("self.step.encode()", 'b""'),),
        (f"{ENVELOPES}::test_another_address_opens_nothing",),
    ),
    PlantedFault(
        "envelopes not bound to the sender",
        "An envelope opens in another sender's name.",
        INFO,
        (("number(self.sender)", 'b""'),),
        (f"{ENVELOPES}::test_another_address_opens_nothing",),
    ),
    PlantedFault(
        "envelopes not bound to the receiver",
        "An envelope names nobody as its receiver.",
        INFO,
        (("number(self.receiver)", 'b""'),),
        (f"{ENVELOPES}::test_another_address_opens_nothing",),
    ),
    PlantedFault(
        "envelope keys of small order",
        "A key whose X25519 half is of small order may be advertised.",
        "secagg.crypto.envelopes:is_envelope_key",
        (("is_usable(public[_LATTICE_KEY_BYTES:])", "True"),),
        (f"{ENVELOPES}::test_a_public_key_of_small_order_is_none",),
    ),
    PlantedFault(
        "library without ML-KEM not mapped",
        "A library without ML-KEM ends a session in its middle.",
        "secagg.crypto.envelopes:_has_ml_kem",
        (("except UnsupportedAlgorithm", "except KeyError"),),
        (f"{ENVELOPES}::test_a_library_without_ml_kem_is_refused_before_a_session",),
    ),
    PlantedFault(
        "fresh coefficients",
        "A dealer whose state was rolled back deals other shares of the same secrets.",
        "secagg.protection.masking.client:Advertised.advance",
        (("bind.coefficients_key(self.dealing_secret, kind, own, binding)", "me.randomness.bytes(32)"),),
        (f"{ROLLED_BACK}::test_two_dealings_of_one_directory_are_of_the_same_shares",),
    ),
    PlantedFault(
        "one polynomial for both secrets",
        "Seed and mask key are shared with the same coefficients: every holder learns their difference.",
        "secagg.protection.masking.client:Advertised.advance",
        (("kind, own, binding)", '"seed", own, binding)'),),
        (f"{ROLLED_BACK}::test_seed_and_key_are_shared_by_polynomials_of_their_own",),
    ),
    PlantedFault(
        "coefficients not bound to the directory",
        "For another directory the same polynomials share the secrets: two directories' holders together reach t.",
        "secagg.protection.masking.derivations:coefficients_key",
        (("derive(secret, binding,", "derive(secret, bytes(32),"),),
        (f"{ROLLED_BACK}::test_another_directory_gets_other_shares",),
    ),
    PlantedFault(
        "coefficients from the shared seed",
        "The seed that is shared is the key of its own coefficients.",
        "secagg.protection.masking.client:Advertised.advance",
        (("bind.coefficients_key(self.dealing_secret,", "bind.coefficients_key(self.seed,"),),
        (f"{ROLLED_BACK}::test_coefficients_follow_from_a_secret_of_their_own",),
    ),
    PlantedFault(
        "messages leave before the transcript has them",
        "An envelope leaves before it is stored, so that a crash leaves a trace of it with others alone.",
        "secagg.session.member_session:MemberSession._steps",
        (
            ("            self._transcript.sent(frames)\n", ""),
            (
                "_send_all(connections, state, frames)\n",
                "_send_all(connections, state, frames)\n            self._transcript.sent(frames)\n",
            ),
        ),
        ("session/test_sealed_once.py",),
    ),
)
