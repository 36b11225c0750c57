"""The registry of the attacks that an audit can run; each is an `Attack`, in a sub-package named by its aim.

A further one is a file with such a value, and its place in `ATTACKS`; `add_attack` puts one of somebody's own there.
"""

from __future__ import annotations

from secagg.errors import BadInput
from threat_models.attacks.attack import Attack
from threat_models.attacks.disclosure.changing_cohorts import CHANGING_COHORTS
from threat_models.attacks.disclosure.label_counts import LABEL_COUNTS
from threat_models.attacks.disclosure.linkage import LINKAGE
from threat_models.attacks.disclosure.property_inference import PROPERTY_INFERENCE
from threat_models.attacks.disclosure.small_cells import SMALL_CELLS
from threat_models.attacks.disclosure.subtraction import COLLUSION_SUBTRACTION, DIFFERENCING
from threat_models.attacks.membership.aggregate import MEMBERSHIP_RELEASE
from threat_models.attacks.membership.training import MEMBERSHIP_TRAINING
from threat_models.attacks.of_methods.adapters import ADAPTERS
from threat_models.attacks.of_methods.generator import MEMBERSHIP_GENERATOR
from threat_models.attacks.of_methods.head import LOSS_ENTROPY_GAPS, MEMBERSHIP_HEAD
from threat_models.attacks.of_methods.latents import REIDENTIFICATION_LATENTS
from threat_models.attacks.of_methods.prototypes import MEMBERSHIP_PROTOTYPES
from threat_models.attacks.of_methods.score_inference import SCORE_INFERENCE
from threat_models.attacks.protocol.masked_uploads import MASKED_UPLOADS
from threat_models.attacks.protocol.sizes_and_timing import SIZES_AND_TIMING
from threat_models.attacks.protocol.split_of_sum import SPLIT_OF_SUM
from threat_models.attacks.reconstruction.gradient_inversion import GRADIENT_INVERSION
from threat_models.attacks.reconstruction.inversion import INVERSION
from threat_models.attacks.reconstruction.unmixing import UNMIXING

ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (
        LABEL_COUNTS,
        PROPERTY_INFERENCE,
        SMALL_CELLS,
        UNMIXING,
        INVERSION,
        GRADIENT_INVERSION,
        MEMBERSHIP_RELEASE,
        MEMBERSHIP_HEAD,
        LOSS_ENTROPY_GAPS,
        MEMBERSHIP_TRAINING,
        ADAPTERS,
        MEMBERSHIP_GENERATOR,
        REIDENTIFICATION_LATENTS,
        MEMBERSHIP_PROTOTYPES,
        DIFFERENCING,
        COLLUSION_SUBTRACTION,
        CHANGING_COHORTS,
        SCORE_INFERENCE,
        LINKAGE,
        SIZES_AND_TIMING,
        MASKED_UPLOADS,
        SPLIT_OF_SUM,
    )
}
"""All attacks, by name."""


def add_attack(attack: object, source: str) -> Attack:
    """Add an attack from outside the project to `ATTACKS`. Raises BadInput unless it is an `Attack` with a new name."""
    if not isinstance(attack, Attack):
        raise BadInput(f"{source} is no attack", remedy="make it a value of threat_models.attacks.Attack")
    if ATTACKS.setdefault(attack.name, attack) is not attack:
        raise BadInput(f"{source} is called {attack.name}, like an attack that there is", remedy="rename it")
    return attack


__all__ = ["ATTACKS", "Attack", "add_attack"]
