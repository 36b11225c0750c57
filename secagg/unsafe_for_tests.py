"""The token that unlocks seeded, hence insecure, randomness.

In the package only `secagg.experiments.seeding` imports this module, when a simulation is given a seed for noise; a
test sees to it.
"""

from __future__ import annotations

from secagg.randomness import UnsafeToken

TOKEN = UnsafeToken()
"""The token; pass it only where predictable keys and noise do no harm: tests, test vectors, reproducible noise."""
