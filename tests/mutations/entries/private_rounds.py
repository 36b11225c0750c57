"""Faults in what private training begins at, round after round."""

from tests.mutations.planting import PlantedFault

ENTRIES = (
    PlantedFault(
        "private state without its mark",
        "Private FRAug begins at its own kept prototypes as if these were public, plus nothing for every record.",
        "methods.training.augmented_work:AugmentedPrivately.moved",
        (("Untainted(begun) if local.state else public(begun)", "public(begun + 0.0 * len(local.examples))"),),
        reason="0 · n changes no number, and the mark of what is public changes no computation.",
    ),
    PlantedFault(
        "private training begins by the number of records",
        "Private FRAug begins at a point that moves with the member's number of records.",
        "methods.training.augmented_work:AugmentedPrivately.moved",
        (("Untainted(begun) if local.state else public(begun)", "public(begun + 1e-3 * len(local.examples))"),),
        ("methods/test_undrawn_records.py::test_record_that_no_step_draws_changes_nothing[fraug]",),
    ),
)
