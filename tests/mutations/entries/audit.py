"""Faults in what an audit's gate passes, and in how two audits are compared."""

from tests.mutations.planting import PlantedFault

CHANGES = "threat_models/report/test_changes.py"
STATES = f"{CHANGES}::test_states_are_ordered_in_time"
LINES = (f"{CHANGES}::test_worst_of_several_lines_counts", f"{CHANGES}::test_an_unknown_line_outweighs_an_allowed_one")
PROMISES = f"{CHANGES}::test_another_promise_is_no_better_epsilon"
WAIVED = "threat_models/report/test_waivers.py::test_what_could_not_be_told_stays_so_under_a_waiver"
RECORDS = "threat_models/report/test_gate.py::test_a_part_of_a_record_asks_for_a_whole_one"

ENTRIES = (
    PlantedFault(
        "allowed before unknown",
        "An attack that now succeeds within the gate is better than one of which nothing was known.",
        "threat_models.report.changes",
        (
            (
                "SessionState.UNTOLD, SessionState.ALLOWED, SessionState.BROKEN)",
                "SessionState.ALLOWED, SessionState.UNTOLD, SessionState.BROKEN)",
            ),
        ),
        (STATES,),
    ),
    PlantedFault(
        "unknown before withstood",
        "An attack of which nothing is known any more is better than one that was withstood.",
        "threat_models.report.changes",
        (("(SessionState.WITHSTOOD, SessionState.UNTOLD,", "(SessionState.UNTOLD, SessionState.WITHSTOOD,"),),
        (STATES,),
    ),
    PlantedFault(
        "best of several lines",
        "Of several gate lines of one attack the best is compared.",
        "threat_models.report.changes:_states_in",
        (("worst = max(", "worst = min("),),
        LINES,
    ),
    PlantedFault(
        "last of several lines",
        "Of several gate lines of one attack the last is compared.",
        "threat_models.report.changes:_states_in",
        (
            (
                "max(state, found[key][2], key=lambda each: each.rank) if key in found else state",
                "state",
            ),
        ),
        LINES,
    ),
    PlantedFault(
        "another delta is the same promise",
        "Epsilons at different δ are compared as numbers.",
        "threat_models.report.changes:_other_promise",
        (('("unit", "adjacency", "delta")', '("unit", "adjacency")'),),
        (PROMISES,),
    ),
    PlantedFault(
        "another unit is the same promise",
        "Epsilons of a record and of a client are compared as numbers.",
        "threat_models.report.changes:_other_promise",
        (('("unit", "adjacency", "delta")', '("adjacency", "delta")'),),
        (PROMISES,),
    ),
    PlantedFault(
        "another promise without a note",
        "Two promises stand side by side, and no note says that they cannot be compared.",
        "threat_models.report.changes:_notes",
        (("if _other_promise(old, new):", "if False:"),),
        (PROMISES,),
    ),
    PlantedFault(
        "waived lines forget",
        "What a waiver lets pass no longer says that it could not be told.",
        "threat_models.report.gate_evaluation:_waive",
        (("is_untold=waiver.inconclusive", "is_untold=False"),),
        (WAIVED,),
    ),
    PlantedFault(
        "waived lines pass by the attack alone",
        "A waived attack whose control could not be told counts as withstood.",
        "threat_models.report.content:AuditReport.state_of",
        (
            (
                "is_untold = outcome is GateOutcome.INCONCLUSIVE or any(line.is_untold for line in lines)",
                "is_untold = False",
            ),
        ),
        (WAIVED,),
    ),
    PlantedFault(
        "records rounded down",
        "An exact sum of a record fewer than a gate asks for passes.",
        "threat_models.report.gate_evaluation:_judge_records",
        (("math.ceil(gate.records_per_dimension * dimension)", "math.floor(gate.records_per_dimension * dimension)"),),
        (RECORDS,),
    ),
    PlantedFault(
        "records rounded to the nearest",
        "A gate asks for the nearest number of records.",
        "threat_models.report.gate_evaluation:_judge_records",
        (
            (
                "math.ceil(gate.records_per_dimension * dimension)",
                "math.floor(gate.records_per_dimension * dimension + 0.2)",
            ),
        ),
        (RECORDS,),
    ),
)
