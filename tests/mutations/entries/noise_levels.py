"""Faults in surplus noise: what is dealt, opened, removed, checked and accounted for."""

from tests.mutations.planting import PlantedFault

SURPLUS = "protection/masking/test_surplus_noise.py::test_"
LEFT = (SURPLUS + "what_is_left_is_the_noise_of_the_levels_below",)
OPENED = (SURPLUS + "nobody_opens_what_is_to_stay",)
LIES = (SURPLUS + "clients_find_a_lie_about_removed_noise",)
STAYS = (SURPLUS + "noise_that_stays_is_not_removed_by_the_server",)
OPENINGS = (SURPLUS + "wrong_opening_of_noise_is_refused",)
ADVERTISED = (SURPLUS + "advertisement_commits_to_a_seed_for_each_level",)
DEALT = (SURPLUS + "dealing_has_a_share_of_each_level",)
NAMED = (SURPLUS + "dealer_of_another_noise_seed_is_named",)
COMPLAINT = (SURPLUS + "wrong_noise_share_leads_to_a_complaint",)
LEVEL = (SURPLUS + "share_of_another_level_is_refused",)
EXPANSION = ("protection/masking/test_derivations.py::test_removable_noise_is_that_of_the_vector",)
LABELS = ("protection/masking/test_derivations.py::test_all_derivations_are_those_of_the_vector",)
EXACT = ("privacy/test_noise_levels.py::test_exact_delta_of_every_level_is_below_its_bound",)
UNEQUAL = ("privacy/test_noise_levels.py::test_sum_of_unequal_parts_is_within_its_bound_of_a_discrete_gaussian",)
VARIANCE = ("privacy/test_noise_levels.py::test_each_level_leaves_the_variance_of_the_smallest_sum",)
WORST = ("privacy/test_noise_levels.py::test_cost_counts_those_who_arrived",)
SMALL = ("privacy/test_noise_levels.py::test_small_parts_of_fixed_blocks_are_refused",)
MULTIPLIER = ("privacy/test_noise_levels.py::test_multiplier_makes_every_part_large_enough",)
ORDER = ("privacy/test_noise_levels.py::test_levels_out_of_order_are_refused",)
MEASURED = ("session/test_noise_levels.py::test_noise_in_the_sum_is_that_of_its_level",)
REFUSED = ("session/test_noise_levels.py::test_levels_of_too_little_noise_are_refused",)
PLANNED = ("session/test_noise_levels.py::test_plan_with_impossible_levels_is_refused",)
TOO_MUCH = ("session/test_noise_levels.py::test_removal_that_cannot_be_had_is_refused_with_its_reason",)
M = "secagg.protection.masking."

ENTRIES = (
    PlantedFault(
        "noise removed with one more missing",
        "A level's noise is removed although one client more is missing than its level allows.",
        M + "removal:removed_level",
        (("if missing <= each.missing", "if missing <= each.missing + 1"),),
        LEFT,
    ),
    PlantedFault(
        "missing counted from those who joined",
        "Clients that never joined are not missing.",
        M + "removal:removed_level",
        (("len(context.identities) - len(survivors)", "max(survivors) - len(survivors)"),),
        LEFT,
    ),
    PlantedFault(
        "seed of the next level is the seed",
        "All levels have one seed, so that opening a high one opens the low ones.",
        M + "derivations:next_noise_seed",
        (('return digest("next noise seed", seed)', "return seed"),),
        LABELS,
    ),
    PlantedFault(
        "noise of all levels from one key",
        "The level is not part of the key's derivation.",
        M + "derivations:noise_key",
        (("number(level), number(member)", "number(1), number(member)"),),
        LABELS,
    ),
    PlantedFault(
        "noise not added",
        "The client deals seeds of noise that it does not add.",
        M + "client:Ready.protect",
        (("keys_from(context, self.noise_seed, me.member, binding), 1)", "[], 1)"),),
        LEFT,
    ),
    PlantedFault(
        "lowest level opened",
        "The client opens its shares of the first level's seeds, whatever level is removed.",
        M + "client:Endorsed.advance",
        (("each.noise_shares[level - 1]", "each.noise_shares[0]"),),
        OPENED,
    ),
    PlantedFault(
        "noise of the missing opened",
        "The client opens its shares of the noise seeds of clients that are not in the sum.",
        M + "client:Endorsed.advance",
        (("if level is not None and each.dealer in survivors", "if level is not None"),),
        OPENED,
    ),
    PlantedFault(
        "noise seed kept after the upload",
        "The next state holds a seed of noise that is to stay.",
        M + "client:Ready.protect",
        (("self.held, header.digest)", "self.held, self.noise_seed)"),),
        (SURPLUS + "uploaded_state_knows_no_noise_seed",),
    ),
    PlantedFault(
        "directory without commitments",
        "The client takes a directory whose clients commit to fewer noise seeds than there are levels.",
        M + "client:Advertised._check",
        (("if any(len(entry.noise_commitments) != len(context.removable)", "if any(len(entry.noise_commitments) > 2"),),
        ADVERTISED,
    ),
    PlantedFault(
        "noise shares not checked by their holder",
        "The holder does not compare a noise share with the dealer's signed hash.",
        M + "client:_open_share",
        (("zip(kinds, shares, hashes, strict=True)", "zip(kinds[:2], shares, hashes, strict=False)"),),
        COMPLAINT,
    ),
    PlantedFault(
        "advertisement without commitments",
        "The server takes an advertisement with fewer commitments than there are levels.",
        M + "server:AwaitingKeys.check",
        (("len(incoming.noise_commitments) != len(self._context.removable)", "len(incoming.noise_commitments) > 2"),),
        ADVERTISED,
    ),
    PlantedFault(
        "dealing without noise shares",
        "The server takes a dealing with other noise shares than there are levels.",
        M + "server:_AwaitingDealings.check",
        (("if len(hashes) != len(self._context.removable)", "if len(hashes) > 2"),),
        DEALT,
    ),
    PlantedFault(
        "noise hashes not signed",
        "A dealer's signature does not cover its hashes of noise shares.",
        M + "derivations:_sealed_share_parts",
        ((", share.key_hash, *share.noise_hashes", ", share.key_hash"),),
        DEALT,
    ),
    PlantedFault(
        "any number of noise shares",
        "The server takes an opening that lacks shares of noise seeds.",
        M + "server:_OpenedShares.add",
        (("if set(noise) != (set(seeds) if self._level is not None else set())", "if not set(noise) <= set(seeds)"),),
        OPENINGS,
    ),
    PlantedFault(
        "opened noise share not checked",
        "The server does not compare an opened noise share with the dealer's hash.",
        M + "server:_OpenedShares.add",
        (('1 + self._level, "noise seed", noise))', '1 + self._level, "noise seed", {}))'),),
        (*OPENINGS, *LEVEL),
    ),
    PlantedFault(
        "noise share compared with the first level's hash",
        "The server compares an opened noise share with the hash of another level.",
        M + "server:_OpenedShares.add",
        (('1 + self._level, "noise seed", noise))', '2, "noise seed", noise))'),),
        (*LEFT, *LEVEL),
    ),
    PlantedFault(
        "recovered noise seed not checked",
        "The server removes the noise of any seed that shares recover.",
        M + "server:_OpenedShares.recover",
        (("if not self._summed.is_noise_seed_of(dealer, seed)", "if not seed"),),
        NAMED,
    ),
    PlantedFault(
        "released noise seeds not compared",
        "A client removes the noise of any seed that the server shows.",
        M + "unmasking:_noise_seeds_in",
        (("if not summed.is_noise_seed_of(each.member, each.secret)", "if not each.secret"),),
        LIES,
    ),
    PlantedFault(
        "released noise seeds may lack",
        "A client takes a release that shows some of the noise seeds.",
        M + "unmasking:_noise_seeds_in",
        (
            (
                "if tuple(each.member for each in listed.noise_seeds) != needed",
                "if len(listed.noise_seeds) > len(needed)",
            ),
        ),
        LIES,
    ),
    PlantedFault(
        "noise that stays may be removed",
        "A client takes a release with noise seeds where all noise is to stay.",
        M + "unmasking:_noise_seeds_in",
        (("if summed.removed_level is not None else ()", "if listed.noise_seeds else ()"),),
        STAYS,
    ),
    PlantedFault(
        "noise removed by seeds of another stream",
        "Noise is drawn from the keystream's second block on.",
        "secagg.crypto.stream:KeystreamBytes.__init__",
        (("CTR(bytes(_BLOCK_BYTES))", "CTR(bytes(_BLOCK_BYTES - 1) + bytes([1]))"),),
        EXPANSION,
    ),
    PlantedFault(
        "one honest share more on a level",
        "The lower levels count one more honest share than there is.",
        "secagg.privacy.noise_levels:parts_of",
        (("fewest / level.fewest", "fewest / (level.fewest + 1)"),),
        (*VARIANCE, *EXACT),
    ),
    PlantedFault(
        "parts rounded down",
        "The parts of a share are rounded down to the grid of 1/1024.",
        "secagg.privacy.noise_levels:round_up_sigma",
        (("math.ceil(", "math.floor("),),
        VARIANCE,
    ),
    PlantedFault(
        "small parts allowed",
        "A removable part may be smaller than the theorem needs.",
        "secagg.privacy.noise_levels:refuse_small_parts",
        (("< LEAST_PART", "< 0.5"),),
        SMALL,
    ),
    PlantedFault(
        "multiplier for whole shares alone",
        "Counts are scaled for the whole share, not for its parts.",
        "secagg.privacy.calibration:_noise",
        (("* 1e6 if lower else 0.0", "* 0.0 if lower else 0.0"),),
        MULTIPLIER,
    ),
    PlantedFault(
        "levels in any order",
        "Levels need not have fewer honest shares the more are missing.",
        "secagg.privacy.noise_levels:refuse_levels",
        (("    if not falls:", "    if not honest:"),),
        ORDER,
    ),
    PlantedFault(
        "cost of the whole share",
        "The privacy cost of a level counts noise that is removed.",
        "secagg.privacy.calibration:NoiseCalibration._cost_at",
        (("[: level + 1]", "[:]"),),
        (*WORST, *REFUSED),
    ),
    PlantedFault(
        "cost of the smallest sum alone",
        "The promise is checked for the most missing clients, not for fewer.",
        "secagg.privacy.calibration:NoiseCalibration.cost",
        (
            (
                "self._cost_at(place, honest + arrived) for place, arrived in enumerate(more)",
                "self._cost_at(len(self.lower), honest)",
            ),
        ),
        REFUSED,
    ),
    PlantedFault(
        "gap of equal shares",
        "The bound T leaves out the steps of further parts.",
        "secagg.privacy.shares:gap_of_parts",
        (("for sigma in sigmas:\n            own", "for sigma in sigmas[:1]:\n            own"),),
        UNEQUAL,
    ),
    PlantedFault(
        "opened noise of the whole share",
        "What is said of a sum's noise counts what was removed from it.",
        "secagg.privacy.calibration:NoiseCalibration.left_of",
        (("[: 1 + self._level(missing)]", "[:]"),),
        ("session/test_noise_levels.py::test_plan_show_has_sigma_of_every_level", *WORST),
    ),
    PlantedFault(
        "members draw the whole share themselves",
        "A client's own noise is that of all levels, to which the removable parts come.",
        "secagg.privacy.calibration:NoiseCalibration.segments",
        (("return self.parts[0]", "return tuple(s for noise in self.blocks for s in noise.segments)"),),
        MEASURED,
    ),
    PlantedFault(
        "level of the most missing",
        "A plan may remove noise with as many missing as may be.",
        "secagg.plan_facts.noise_plan:NoiseParties.of",
        (("noise_levels[-1] >= parties - survivors", "noise_levels[-1] > parties"),),
        PLANNED,
    ),
    PlantedFault(
        "removal under any protection",
        "A plan may remove noise where no seeds are dealt.",
        "secagg.plan_facts.noise_plan:NoiseParties.of",
        (("if noise_levels and protection.keeps_noise:", "if noise_levels and False:"),),
        TOO_MUCH,
    ),
    PlantedFault(
        "removal of any length",
        "A plan may ask each client to draw any amount of noise again.",
        "secagg.plan_facts.noise_plan:refuse_much_removal",
        (("> MOST_REMOVED", "> 1 << 62"),),
        TOO_MUCH,
    ),
)
