"""Faults in the numbers that reports and budgets state."""

from tests.mutations.planting import PlantedFault

AREA = "scoring/test_metrics.py::test_interval_of_an_area_is_newcombe_s"
HALF = "scoring/test_metrics.py::test_interval_of_one_half_is_that_by_hand"
BINS = "scoring/test_metrics.py::test_bins_of_confidence_hold_their_upper_end"
LOSSES = "scoring/test_calibration.py::test_losses_are_the_mean_log_losses_of_known_classes"
LEFT = "agreement/test_account.py::test_what_is_left_is_of_the_promise_of_which_most_is_spent"

ENTRIES = (
    PlantedFault(
        "other spread of an area",
        "The variance of an area under the ROC curve has 2 + A in place of 1 + A.",
        "secagg.scoring.metrics:_area",
        (("mean * true / (1 + true)", "mean * true / (2 + true)"),),
        (AREA, HALF),
    ),
    PlantedFault(
        "spread of the found area",
        "The interval of an area has the spread of the found area (Wald), not of its own ends.",
        "secagg.scoring.metrics:_area",
        (
            (
                "true * (1 - true) * (1 + mean * (1 - true) / (2 - true) + mean * true / (1 + true))",
                "area * (1 - area) * (1 + mean * (1 - area) / (2 - area) + mean * area / (1 + area))",
            ),
        ),
        (HALF,),
    ),
    PlantedFault(
        "groups of other sizes",
        "N of the interval of an area is the smaller group less one (method 4 of groups of one size).",
        "secagg.scoring.metrics:_area",
        (("(inside + outside) / 2 - 1", "min(inside, outside) - 1"),),
        (AREA,),
    ),
    PlantedFault(
        "bins by floor",
        "Bins of confidence hold their lower end.",
        "secagg.scoring.metrics:_bins_of",
        (("np.ceil(confidence * BINS).astype(np.int64) - 1", "np.floor(confidence * BINS).astype(np.int64)"),),
        (BINS,),
    ),
    PlantedFault(
        "bins by the nearest end",
        "Bins of confidence are around multiples of a fifteenth.",
        "secagg.scoring.metrics:_bins_of",
        (("np.ceil(confidence * BINS)", "np.rint(confidence * BINS)"),),
        (BINS,),
    ),
    PlantedFault(
        "unknown classes in the losses",
        "The losses before and after calibration are of records, too, whose class the head never saw.",
        "secagg.scoring.predictor:Calibration.fit",
        (("np.mean(own[usable])", "np.mean(np.maximum(own, -1e6))"),),
        (LOSSES,),
    ),
    PlantedFault(
        "loss before calibration at another temperature",
        "The loss before calibration is that of e as the temperature.",
        "secagg.scoring.predictor:Calibration.fit",
        (("loss(0.0)", "loss(1.0)"),),
        (LOSSES,),
    ),
    PlantedFault(
        "losses over all records",
        "The losses are divided by the number of all records, known classes or not.",
        "secagg.scoring.predictor:Calibration.fit",
        (("np.mean(own[usable])", "np.sum(own[usable]) / len(own)"),),
        (LOSSES,),
    ),
    PlantedFault(
        "left of the least spent promise",
        "The ledger says what is left of the promise of which least is spent.",
        "secagg.ledger.spending:account_of",
        (("key=lambda each: found.total(together, each)", "key=lambda each: -found.total(together, each)"),),
        (LEFT,),
    ),
    PlantedFault(
        "left of the last promise",
        "The ledger says what is left of the promise of the newest plan.",
        "secagg.ledger.spending:account_of",
        (
            (
                "max(noisy or pairs or none, key=lambda each: found.total(together, each))",
                "(noisy or pairs)[0]",
            ),
        ),
        (LEFT,),
    ),
    PlantedFault(
        "spent of each promise's own plans",
        "The promise of which most is spent is found by the plans before alone.",
        "secagg.ledger.spending:account_of",
        (("key=lambda each: found.total(together, each)", "key=lambda each: found.total(others, each)"),),
        (LEFT,),
    ),
    PlantedFault(
        "one row twice",
        "Of two equal rows of a ledger one counts.",
        "secagg.ledger.spending:counted_rows",
        (("        if whole is None:\n", "        if whole is None and release not in counted:\n"),),
        reason="A ledger never holds one row twice: `Ledger.record` returns the row of a session that it has.",
    ),
)
