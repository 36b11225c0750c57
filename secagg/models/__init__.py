"""Networks that members train: programs, training on a member's records, trained models as artifacts."""

from secagg.models.artifact import TrainedModel, parse_artifact, read_model
from secagg.models.private_training import DpSgdSettings, dp_sgd
from secagg.models.programs import PROGRAMS, Program, program_named
from secagg.models.training import TrainingSettings, record_gradients, train

__all__ = [
    "PROGRAMS",
    "DpSgdSettings",
    "Program",
    "TrainedModel",
    "TrainingSettings",
    "dp_sgd",
    "parse_artifact",
    "program_named",
    "read_model",
    "record_gradients",
    "train",
]
