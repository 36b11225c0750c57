"""Networks that members train: programs, training on a member's records, trained models as artifacts."""

from secagg.models.artifact import TrainedModel, TunedModel, parse_artifact, read_model, read_tuned
from secagg.models.exported import admit, digest_in, files_in, planned_program
from secagg.models.private_training import DpSgdSettings, dp_sgd
from secagg.models.programs import Program, tensors_of
from secagg.models.projection import ByHead, MostSimilar, Nearest, Projecting, project, similarities
from secagg.models.registry import PROGRAMS, program_named
from secagg.models.taint import Untainted, public, require_untainted
from secagg.models.training import TrainingSettings, record_gradients, record_losses, train

__all__ = [
    "PROGRAMS",
    "ByHead",
    "DpSgdSettings",
    "MostSimilar",
    "Nearest",
    "Program",
    "Projecting",
    "TrainedModel",
    "TrainingSettings",
    "TunedModel",
    "Untainted",
    "admit",
    "digest_in",
    "dp_sgd",
    "files_in",
    "parse_artifact",
    "planned_program",
    "program_named",
    "project",
    "public",
    "read_model",
    "read_tuned",
    "record_gradients",
    "record_losses",
    "require_untainted",
    "similarities",
    "tensors_of",
    "train",
]
