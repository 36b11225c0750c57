"""Attacks, one module each. An attack is a value of `Attack`; ATTACKS is the registry."""

from __future__ import annotations

from threat_models.attacks.attack import Attack
from threat_models.attacks.cells import SMALL_CELLS
from threat_models.attacks.disclosure import LABEL_COUNTS, PROPERTY_INFERENCE
from threat_models.attacks.head import LOSS_ENTROPY_GAPS, MEMBERSHIP_HEAD
from threat_models.attacks.inversion import INVERSION
from threat_models.attacks.membership import MEMBERSHIP_RELEASE
from threat_models.attacks.sizes import SIZES_AND_TIMING
from threat_models.attacks.splits import SPLIT_OF_SUM
from threat_models.attacks.subtraction import COLLUSION_SUBTRACTION, DIFFERENCING
from threat_models.attacks.unmixing import UNMIXING
from threat_models.attacks.uploads import MASKED_UPLOADS

ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (
        LABEL_COUNTS,
        PROPERTY_INFERENCE,
        SMALL_CELLS,
        UNMIXING,
        INVERSION,
        MEMBERSHIP_RELEASE,
        MEMBERSHIP_HEAD,
        LOSS_ENTROPY_GAPS,
        DIFFERENCING,
        COLLUSION_SUBTRACTION,
        SIZES_AND_TIMING,
        MASKED_UPLOADS,
        SPLIT_OF_SUM,
    )
}
"""By name."""

__all__ = ["ATTACKS", "Attack"]
