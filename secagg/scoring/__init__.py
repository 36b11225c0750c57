"""Measure a head on records, and pass it on: predictions, metrics, calibration, model card, exported program."""

from secagg.scoring.card import card_of, write_card
from secagg.scoring.metrics import Measure, Metrics
from secagg.scoring.predictor import Calibration, Predictions, Predictor, probabilities_of

__all__ = ["Calibration", "Measure", "Metrics", "Predictions", "Predictor", "card_of", "probabilities_of", "write_card"]
