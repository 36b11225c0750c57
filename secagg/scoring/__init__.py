"""Apply, measure and publish a head: predictions, metrics, calibration, model card, exported program."""
