"""Faults in what a plan's noise is accounted for, and in how noise is drawn."""

from tests.mutations.planting import PlantedFault

CHARGED = ("protection/draw/test_schedule.py::test_member_is_charged_for_every_round_that_it_is_in",)
GAP = ("session/test_training_noise.py::test_gap_of_discrete_noise_is_that_of_every_number_of_every_step",)
STEP_GAP = "gap = steps * gap_of([(sigma, training.size)], 1)"
DISCRETE = ("privacy/test_sampler.py::test_float_that_rounds_up_to_an_integer_decides_nothing",)
ROUNDED = ("privacy/test_sampler.py::test_bits_of_the_fraction_that_are_not_drawn_yet_may_decide",)
MARGINS = "{False: 2.0**-32, True: 2.0**-24}"

ENTRIES = (
    PlantedFault(
        "one round fewer charged",
        "A member of a plan with cohorts is charged for one round fewer where the plan has more than eight.",
        "secagg.plan_facts.noise_plan:charged",
        (
            (
                "most_rounds(clients, plan.cohort, each.times))",
                "max(1, most_rounds(clients, plan.cohort, each.times) - (each.times > 8)))",
            ),
        ),
        CHARGED,
    ),
    PlantedFault(
        "mean number of rounds charged",
        "A member is charged for the rounds that it is in on average, rounded down.",
        "secagg.plan_facts.noise_plan:charged",
        (
            (
                "most_rounds(clients, plan.cohort, each.times))",
                "max(1, each.times * plan.cohort // clients))",
            ),
        ),
        CHARGED,
    ),
    PlantedFault(
        "training charged for all rounds",
        "A member's own training keeps the number of rounds of the plan, whatever cohorts it is in.",
        "secagg.plan_facts.noise_plan:_charged",
        (("min(times, kind.training.times)", "kind.training.times"),),
        CHARGED,
    ),
    PlantedFault(
        "steps without a gap",
        "What discrete noise lacks of Gaussian noise is left out of a training's cost.",
        "secagg.plan_facts.noise_plan:_cost",
        ((STEP_GAP, f"{STEP_GAP} * 0.0"),),
        GAP,
    ),
    PlantedFault(
        "gap of one round's steps",
        "The gap counts the steps of one round alone.",
        "secagg.plan_facts.noise_plan:_cost",
        ((STEP_GAP, "gap = training.steps * gap_of([(sigma, training.size)], 1)"),),
        GAP,
    ),
    PlantedFault(
        "filter without a margin",
        "The discrete sampler's filter trusts float64 to the last bit.",
        "secagg.privacy.sampler",
        ((MARGINS, "{False: 0.0, True: 2.0**-24}"),),
        DISCRETE,
    ),
    PlantedFault(
        "filter with a margin of rounding alone",
        "The discrete sampler's filter takes errors of one rounding for the largest.",
        "secagg.privacy.sampler",
        ((MARGINS, "{False: 2.0**-54, True: 2.0**-24}"),),
        DISCRETE,
    ),
    PlantedFault(
        "one margin for both laws",
        "The rounded sampler's filter leaves out the bits of the fraction that are not drawn yet.",
        "secagg.privacy.sampler",
        ((MARGINS, "{False: 2.0**-32, True: 2.0**-32}"),),
        ROUNDED,
    ),
)
