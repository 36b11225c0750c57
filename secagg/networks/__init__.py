"""Networks (programs) that clients train: their definitions, training on a client's records, and trained models."""

from secagg.networks.adapted import Adapted, OverEncoder
from secagg.networks.private_training import DpSgdSettings, dp_sgd
from secagg.networks.programs import Program
from secagg.networks.projection import Projecting
from secagg.networks.slot_means import SlotMeans
from secagg.networks.taint import Untainted, require_untainted
from secagg.networks.trained_model import TrainedModel, parse_artifact, program_named, read_model
from secagg.networks.training import TrainingSettings, record_gradients, train

__all__ = [
    "Adapted",
    "DpSgdSettings",
    "OverEncoder",
    "Program",
    "Projecting",
    "SlotMeans",
    "TrainedModel",
    "TrainingSettings",
    "Untainted",
    "dp_sgd",
    "parse_artifact",
    "program_named",
    "read_model",
    "record_gradients",
    "require_untainted",
    "train",
]
