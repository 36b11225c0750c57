"""Faults in what parties check of a draw, and of the outcome that a server publishes."""

from tests.mutations.planting import PlantedFault

DRAWN = "protection/draw/test_draw.py::test_a_draw_that_ends_with_another_seed_is_refused"
BOUND = "protection/draw/test_draw.py::test_every_round_is_bound_to_the_seed"
HEADS = "session/test_shown_heads.py::test_head_of_another_plan_is_refused"
LIES = "protection/masking/test_verified_sums.py::test_lies_are_refused_by_name"
WIDE = "protection/masking/test_verified_sums.py::test_errors_of_every_size_change_the_tags"
LENGTHS = "session/test_shown_heads.py::test_opened_sum_has_the_length_of_the_plan"
NOTES = "cli/test_verify_command.py"
MARKS = "federation/test_rounds.py::test_mark_of_one_bit_is_refused_where_arithmetic_is_exact"

ENTRIES = (
    PlantedFault(
        "rounds without the seed",
        "The first round's digest does not bind the seed of the cohorts.",
        "secagg.session.round_setup:RoundSetup.seeded",
        (('digest("cohorts", self.plan.digest, seed)', 'digest("cohorts", self.plan.digest)'),),
        (BOUND,),
    ),
    PlantedFault(
        "rounds by half of the seed",
        "The first round's digest binds the second half of the seed alone.",
        "secagg.session.round_setup:RoundSetup.seeded",
        (('digest("cohorts", self.plan.digest, seed)', 'digest("cohorts", self.plan.digest, seed[16:])'),),
        (BOUND,),
    ),
    PlantedFault(
        "draw ends with any seed",
        "A member takes any seed that the server names at the end of a draw.",
        "secagg.protection.draw:DrawChecked.advance",
        (("incoming.aggregate_sha256 != self.seed", "not incoming.aggregate_sha256"),),
        (DRAWN,),
    ),
    PlantedFault(
        "draw ends with half of the seed",
        "A member compares the second half of a draw's seed alone.",
        "secagg.protection.draw:DrawChecked.advance",
        (("incoming.aggregate_sha256 != self.seed", "incoming.aggregate_sha256[16:] != self.seed[16:]"),),
        (DRAWN,),
    ),
    PlantedFault(
        "head of any plan",
        "A head's metadata may name another plan.",
        "secagg.session.outcome:_told_artifact",
        (("metadata != {**metadata_of(setup.plan), **artifact.texts}", '"plan" not in metadata'),),
        (HEADS,),
    ),
    PlantedFault(
        "head with further words",
        "A head's metadata may hold more than the plan says.",
        "secagg.session.outcome:_told_artifact",
        (
            (
                "metadata != {**metadata_of(setup.plan), **artifact.texts}",
                "not {**metadata_of(setup.plan), **artifact.texts}.items() <= metadata.items()",
            ),
        ),
        (HEADS,),
    ),
    PlantedFault(
        "sum of up to four times its length",
        "The opened sum that a server shows may be longer than the plan's.",
        "secagg.session.release:require_lengths_of_release",
        (("lengths != [setup.context.packed_bytes]", "lengths[0] > 4 * setup.context.packed_bytes"),),
        (LENGTHS,),
    ),
    PlantedFault(
        "sum shorter than the plan's",
        "The opened sum that a server shows may be shorter than the plan's.",
        "secagg.session.release:require_lengths_of_release",
        (("lengths != [setup.context.packed_bytes]", "lengths[0] > setup.context.packed_bytes"),),
        (LENGTHS,),
    ),
    PlantedFault(
        "notes that nobody signed",
        "A note vouches for a plan whoever signed it.",
        "secagg.verification.verification:_is_noted",
        (("is_whole and any(is_signed(each, signature, _LABEL, *parts) for each in identities)", "is_whole"),),
        (f"{NOTES}::test_forged_state_folder_vouches_for_nothing",),
    ),
    PlantedFault(
        "copied notes",
        "A note vouches for a plan in every copy of its folder.",
        "secagg.verification.verification:_signed_parts",
        ((', state.stat().st_ino.to_bytes(8, "big")', ', b""'),),
        ("session/test_verdicts.py::test_nothing_that_an_author_can_ship_vouches",),
    ),
    PlantedFault(
        "marked heads",
        "A server may change the last bits of a head although all machines compute the same.",
        "secagg.session.outcome:_is_own",
        (("if setup.round.is_exact:", "if False:"),),
        (MARKS,),
    ),
    PlantedFault(
        "marked weights",
        "A server may move the weights of later refinement rounds within the tolerance of the first.",
        "methods.closed_form.refinement:RefinementRound.require_equal",
        (("exact=self.number > 1", "exact=False"),),
        (MARKS,),
    ),
    PlantedFault(
        "masked sum that nobody endorsed",
        "The sum of the uploads that a server releases may be another than the endorsed one.",
        "secagg.protection.masking.unmasking:open_release",
        (("if hashlib.sha256(packed).digest() != survivors.total:", "if not packed:"),),
        (LIES,),
    ),
    PlantedFault(
        "tags that do not add up",
        "A released sum need not be that of the uploads.",
        "secagg.protection.masking.unmasking:_check_tags",
        (("if (of_total != sum(tagged.values(), np.zeros_like(of_total))).any():", "if not tagged:"),),
        (LIES,),
    ),
    PlantedFault(
        "tags that nobody signed",
        "A server may make up the tags of uploads.",
        "secagg.protection.masking.unmasking:_check_tags",
        (("not bind.tags_are_signed(context, each, parts)", "not each.signature"),),
        (LIES,),
    ),
    PlantedFault(
        "masks of other secrets",
        "The masks that are taken from a released sum may be of the server's making.",
        "secagg.protection.masking.unmasking:_masks_in",
        (("not summed.is_secret_of(each.member, each.secret)", "not each.secret"),),
        (LIES,),
    ),
    PlantedFault(
        "tags of wide rings in one word",
        "Of a ring of 64 bits an error in the highest bit passes every other tag.",
        "secagg.protection.masking.tags:_word_bits",
        (("return bits if bits <= _WIDEST else bits // 2", "return bits"),),
        (WIDE,),
    ),
)
