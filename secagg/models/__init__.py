"""Networks that members train: programs, training on a member's records, trained models as artifacts."""

from secagg.models.adapted import HEAD, OWN, SHARED, Adapted, Dual, OverEncoder, SharedAdapter, WithHead
from secagg.models.adapters import Adapter
from secagg.models.artifact import TrainedModel, parse_artifact, read_model
from secagg.models.distillation import Distilling, DistillingSettings, distil, distilling
from secagg.models.exported import admit, digest_in, files_in, planned_program
from secagg.models.private_training import DpSgdSettings, dp_sgd
from secagg.models.programs import Program, tensors_of
from secagg.models.projection import ByHead, MostSimilar, Nearest, Projecting, project, similarities
from secagg.models.registry import PROGRAMS, program_named
from secagg.models.taint import Untainted, public, require_untainted
from secagg.models.training import TrainingSettings, record_gradients, train

__all__ = [
    "HEAD",
    "OWN",
    "PROGRAMS",
    "SHARED",
    "Adapted",
    "Adapter",
    "ByHead",
    "Distilling",
    "DistillingSettings",
    "DpSgdSettings",
    "Dual",
    "MostSimilar",
    "Nearest",
    "OverEncoder",
    "Program",
    "Projecting",
    "SharedAdapter",
    "TrainedModel",
    "TrainingSettings",
    "Untainted",
    "WithHead",
    "admit",
    "digest_in",
    "distil",
    "distilling",
    "dp_sgd",
    "files_in",
    "parse_artifact",
    "planned_program",
    "program_named",
    "project",
    "public",
    "read_model",
    "record_gradients",
    "require_untainted",
    "similarities",
    "tensors_of",
    "train",
]
