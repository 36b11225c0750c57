"""Networks that members train: programs, training on a member's records, trained models as artifacts."""

from secagg.networks.adapted import (
    HEAD,
    OWN,
    SHARED,
    Adapted,
    Dual,
    EncoderAdapter,
    OverEncoder,
    SharedAdapter,
    WithHead,
)
from secagg.networks.augmented import (
    GENERATOR,
    TRANSFER,
    Augmentation,
    Augmented,
    Distance,
    OneRecord,
    Weights,
    size_of,
)
from secagg.networks.augmented_training import AugmentedSettings, train_augmented, train_privately
from secagg.networks.distillation import Distilling, DistillingSettings, distil, distilling
from secagg.networks.exported import admit, code_warnings, digest_in, files_in, planned_programs
from secagg.networks.normalised import Normalised
from secagg.networks.private_training import DpSgdSettings, dp_sgd
from secagg.networks.programs import Program, tensors_of
from secagg.networks.projection import ByHead, MostSimilar, Nearest, Projecting, project, similarities
from secagg.networks.slot_means import SlotMeans, read_slot_means
from secagg.networks.taint import Untainted, public, require_untainted
from secagg.networks.trained_model import (
    PROGRAMS,
    TrainedModel,
    TunedModel,
    parse_artifact,
    program_named,
    read_model,
    read_tuned,
)
from secagg.networks.training import TrainingSettings, record_gradients, record_losses, train

__all__ = [
    "GENERATOR",
    "HEAD",
    "OWN",
    "PROGRAMS",
    "SHARED",
    "TRANSFER",
    "Adapted",
    "Augmentation",
    "Augmented",
    "AugmentedSettings",
    "ByHead",
    "Distance",
    "Distilling",
    "DistillingSettings",
    "DpSgdSettings",
    "Dual",
    "EncoderAdapter",
    "MostSimilar",
    "Nearest",
    "Normalised",
    "OneRecord",
    "OverEncoder",
    "Program",
    "Projecting",
    "SharedAdapter",
    "SlotMeans",
    "TrainedModel",
    "TrainingSettings",
    "TunedModel",
    "Untainted",
    "Weights",
    "WithHead",
    "admit",
    "code_warnings",
    "digest_in",
    "distil",
    "distilling",
    "dp_sgd",
    "files_in",
    "parse_artifact",
    "planned_programs",
    "program_named",
    "project",
    "public",
    "read_model",
    "read_slot_means",
    "read_tuned",
    "record_gradients",
    "record_losses",
    "require_untainted",
    "similarities",
    "size_of",
    "tensors_of",
    "train",
    "train_augmented",
    "train_privately",
]
