"""Faults in what parties check of an exact census, and of a shared sum that they are shown."""

from tests.mutations.planting import PlantedFault

LIARS = "federation/test_proven_census.py"
PASSED = f"{LIARS}::test_proofs_that_the_server_lets_pass_are_refused"
LEAGUE = f"{LIARS}::test_server_in_league_with_the_client_opens_no_class"
ALONE = f"{LIARS}::test_client_that_lies_opens_no_class"
NAMED = f"{LIARS}::test_entries_that_are_no_bits_are_refused_by_name"
UNIT = "protection/test_proven_bits.py"
UNSIGNED = f"{UNIT}::test_proofs_that_the_client_did_not_sign_are_refused"
OTHERS = f"{UNIT}::test_signed_proofs_that_do_not_hold_are_refused"
SHARES = "protection/sharing/test_release.py"
LIES = f"{SHARES}::test_lies_in_released_shares_blame_the_server"
LENGTHS = f"{SHARES}::test_other_numbers_of_files_are_refused"
RELEASE = "secagg.protection.sharing.release"
CENSUS = "if not is_census_of("


def unchecked(name: str, function: str, old: str, new: str, *tests: str) -> PlantedFault:
    """A check of a census, or of a released shared sum, that is left out."""
    return PlantedFault(name, f"Left out: {name}.", function, ((old, new),), tests)


ENTRIES = (
    unchecked(
        "clients' check of the proofs",
        "secagg.protection.proven_bits:check_census",
        "check_proofs(context, client, shown, culprit)",
        "pass",
        PASSED,
    ),
    unchecked(
        "clients' check of the sum of the entries",
        "secagg.protection.proven_bits:check_census",
        CENSUS,
        "if False and not is_census_of(",
        LEAGUE,
    ),
    unchecked(
        "the signature of the proofs",
        "secagg.protection.proven_bits:check_proofs",
        "if not (is_whole and is_signed(",
        "if not (is_whole or is_signed(",
        UNSIGNED,
    ),
    unchecked(
        "the proofs under the signature",
        "secagg.protection.proven_bits:check_proofs",
        "if not are_bits(proofs, _binding(context, client)):",
        "if not proofs:",
        OTHERS,
    ),
    unchecked(
        "the client in what its proofs are bound to",
        "secagg.protection.proven_bits:_binding",
        'digest("bit prover", *_parts(context, client))',
        'digest("bit prover", *_parts(context, 0))',
        OTHERS,
    ),
    unchecked(
        "the vector's part of a keystream before the blindings",
        "secagg.protection.proven_bits:Blindings",
        "self._first = -(-context.length * context.ring.word.itemsize // 16)",
        "self._first = 0",
        f"{UNIT}::test_blindings_come_after_the_mask_of_the_vector",
    ),
    unchecked(
        "the masked server's check of the proofs",
        "secagg.protection.masking.server:_AwaitingUploads.inspect",
        "check_proofs(self._context, member, vector[self._context.packed_bytes :], member)",
        "pass",
        f"{NAMED}[masked]",
    ),
    unchecked(
        "the encrypted server's check of the proofs",
        "secagg.protection.encryption.server:AwaitingCiphertexts.inspect",
        "check_proofs(self._context, member, self._context.seed_and_proofs(vector)[1], member)",
        "pass",
        f"{NAMED}[encrypted]",
    ),
    unchecked(
        "the first aggregator's check of the proofs",
        "secagg.protection.sharing.aggregator:Collecting.accept",
        "check_proofs(context, manifest.client, share.proofs, manifest.client)",
        "pass",
        f"{SHARES}::test_proofs_of_another_client_are_refused_on_arrival",
    ),
    unchecked(
        "the masked server's check of the census",
        "secagg.protection.masking.unmasking:MaskedSum.release",
        CENSUS,
        "if False and not is_census_of(",
        f"{ALONE}[changed blindings-masked]",
        f"{ALONE}[another vector-masked]",
    ),
    unchecked(
        "the encrypted server's check of the census",
        "secagg.protection.encryption.server:OpenedCiphertexts.release",
        CENSUS,
        "if False and not is_census_of(",
        f"{ALONE}[another vector-encrypted]",
    ),
    unchecked(
        "the shared server's check of the census",
        f"{RELEASE}:SharedSum.release",
        CENSUS,
        "if False and not is_census_of(",
        f"{SHARES}::test_census_that_is_not_proven_is_not_released",
    ),
    unchecked(
        "masked clients' check of a census",
        "secagg.protection.masking.unmasking:open_release",
        "if context.proves_bits:",
        "if False:",
        f"{LEAGUE}[masked]",
    ),
    unchecked(
        "clients' check of an encrypted census",
        "secagg.protection.encryption.server:open_release",
        "if context.proves_bits:",
        "if False:",
        f"{LIARS}::test_server_of_the_encrypted_protection_opens_no_class",
    ),
    unchecked(
        "clients' check of a shared census",
        f"{RELEASE}:open_release",
        "if context.proves_bits:",
        "if False:",
        f"{LIARS}::test_one_aggregator_opens_no_class",
    ),
    unchecked(
        "the clients of released shares",
        f"{RELEASE}:open_release",
        "if tuple(each.client for each in listed.manifests) != members:",
        "if not listed.manifests:",
        LIES,
    ),
    unchecked(
        "signatures of released manifests",
        f"{RELEASE}:open_release",
        "if not bind.manifest_is_signed(context, manifest):",
        "if not manifest.signature:",
        LIES,
    ),
    unchecked(
        "whose share a released one is",
        f"{RELEASE}:open_release",
        "if sender != aggregator or announced.digest != sha256(share).digest():",
        "if announced.digest != sha256(share).digest():",
        LIES,
    ),
    unchecked(
        "the bytes of a released share",
        f"{RELEASE}:open_release",
        "if sender != aggregator or announced.digest != sha256(share).digest():",
        "if sender != aggregator:",
        LIES,
    ),
    unchecked(
        "the number of released shares",
        f"{RELEASE}:open_release",
        "if len(listed.shares) != len(shares):",
        "if not shares:",
        LIES,
    ),
    unchecked(
        "the set of a sum share",
        f"{RELEASE}:check_sum_share",
        "if share.agreed != agreed:",
        "if not agreed:",
        f"{LIES}[a manifest less, and the client]",
    ),
    unchecked(
        "the commitment to a sum share",
        f"{RELEASE}:check_sum_share",
        "if commitment != share.pledges[number - 1].content:",
        "if not commitment:",
        LIES,
    ),
    unchecked(
        "equal commitments in all frames",
        f"{RELEASE}:check_sum_share",
        "of=context.numbers, known=pledges)",
        "of=context.numbers)",
        f"{SHARES}::test_aggregator_that_commits_twice_is_convicted",
    ),
    unchecked(
        "the lengths of released shares",
        f"{RELEASE}:check_lengths",
        "if lengths[:-1] != shares or lengths[-1] > most:",
        "if False:",
        LENGTHS,
    ),
)
