"""The token that seeded randomness takes.

In the package only `secagg.experiments.seeding` imports this module, when a simulation is given a seed for noise; a
test sees to it.
"""

from __future__ import annotations

from secagg.randomness import UnsafeToken

TOKEN = UnsafeToken()
"""To be passed where predictable keys and noise do no harm: in tests, for vectors, and for reproducible noise."""
