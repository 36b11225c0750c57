"""Faults in what a plan's noise is accounted for, and in how noise is drawn."""

from tests.mutations.planting import PlantedFault

CHARGED = ("protection/draw/test_schedule.py::test_member_is_charged_for_every_round_that_it_is_in",)
GAP = ("session/test_training_noise.py::test_gap_of_discrete_noise_is_that_of_every_number_of_every_step",)
STEP_GAP = "gap = steps * gap_of([(sigma, training.size)], 1)"
DISCRETE = ("privacy/test_sampler.py::test_float_that_rounds_up_to_an_integer_decides_nothing",)
ROUNDED = ("privacy/test_sampler.py::test_bits_of_the_fraction_that_are_not_drawn_yet_may_decide",)
MARGINS = "{False: 2.0**-32, True: 2.0**-24}"

ROW = "privacy/test_rows.py::test_row_"
DOMINATES = (ROW + "dominates_training_and_hardly_more",)
BETWEEN = (ROW + "holds_between_the_points_of_a_grid",)
TAIL = ("privacy/test_rows.py::test_tail_beyond_the_last_point_counts",)
ORDERS = ("privacy/test_rows.py::test_both_orders_of_neighbours_count",)
PLANS = "agreement/test_training_rows.py::test_"
WORDS = (PLANS + "seventeenth_training_is_refused_in_words",)
KEPT = ("agreement/test_filter.py::test_what_was_opened_does_not_choose_between_tests",)
CLAIMED = (PLANS + "first_plan_that_fits_by_its_claim_alone_stays_charged_whole",)
OWN = (PLANS + "failures_are_of_the_budgets_delta_not_of_a_plans",)
EARLY = (PLANS + "an_early_end_refunds_nothing",)

ENTRIES = (
    PlantedFault(
        "row compared at its own points",
        "The fit compares both sides at the points of the grid, where they may cross in between.",
        "secagg.privacy.subsampled:_curves",
        (("np.append(body[1 : join + 1], tail[start + 1 :])", "np.append(body[:join], tail[start:-1])"),),
        BETWEEN,
    ),
    PlantedFault(
        "row without its tail",
        "What lies beyond the last point of the grid counts for nothing.",
        "secagg.privacy.subsampled:_curves",
        (("if starts[-1] <= chance:", "if starts[-1] <= 1:"),),
        TAIL,
    ),
    PlantedFault(
        "row of one order",
        "A row is fitted to the removal of a record alone.",
        "secagg.privacy.subsampled:_row_of",
        (("for removed in (True, False)]", "for removed in (True,)]"),),
        ORDERS,
    ),
    PlantedFault(
        "failures twice",
        "A row may fail with twice its δ₀.",
        "secagg.privacy.subsampled:TrainingCost.row",
        (("_row_of(self._parts(), chance, self.mu)", "_row_of(self._parts(), 2 * chance, self.mu)"),),
        DOMINATES,
    ),
    PlantedFault(
        "releases beside left out of a row",
        "A row is that of the steps alone, without the plan's own sums.",
        "secagg.privacy.subsampled:TrainingCost.row",
        (("_row_of(self._parts(), chance", "_row_of(self._parts()[:1], chance"),),
        ("privacy/test_rows.py::test_releases_beside_and_gaps_are_in_the_row",),
    ),
    PlantedFault(
        "failures from the first training on",
        "Δ₀ is taken off only once a training is among the plans: what was opened chooses between two tests.",
        "secagg.ledger.spending:_Filter.total",
        (("kept=self.kept)", "kept=self.kept * bool(_trainings(some)))"),),
        KEPT,
    ),
    PlantedFault(
        "failures of the trainings that ran",
        "The filter takes off the failures of the trainings so far, and none for those to come.",
        "secagg.ledger.spending:_Filter.total",
        (("kept=self.kept)", "kept=0)"),),
        KEPT,
    ),
    PlantedFault(
        "failures forgotten",
        "Trainings' failures are no part of δ.",
        "secagg.ledger.spending:_composed",
        (("delta * (1 - kept * CHANCE)", "delta * (1 - 0 * CHANCE)"),),
        ("agreement/test_filter.py::test_the_filter_is_nearly_filled",),
    ),
    PlantedFault(
        "one training more",
        "A ledger's total has room for a seventeenth training.",
        "secagg.ledger.spending:_composed",
        (("kept > TRAININGS", "kept > TRAININGS + 1"),),
        WORDS,
    ),
    PlantedFault(
        "as many trainings as like",
        "Nobody counts trainings.",
        "secagg.ledger.spending:_trainings",
        (("cost.steps.rate < 1", "cost.steps.rate < 0"),),
        WORDS,
    ),
    PlantedFault(
        "settled though its claim alone fitted",
        "A first plan that fits by its own claim alone is settled like any other.",
        "secagg.ledger.spending:_Filter.of",
        (("charges[0] = first", "pass"),),
        CLAIMED,
    ),
    PlantedFault(
        "failures of a plan's own delta",
        "A row is fitted at a part of the plan's δ.",
        "secagg.ledger.spending:total_cost",
        (("cost.row(delta * CHANCE)", "cost.row(releases[0].delta * CHANCE)"),),
        OWN,
    ),
    PlantedFault(
        "training settled",
        "A training that ended early is charged for the steps that it took.",
        "secagg.ledger.spending:settles",
        (("len(gaussian) == len(costs) == len(row.spent)", "len(costs) == len(row.spent)"),),
        EARLY,
    ),
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
