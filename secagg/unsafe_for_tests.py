"""The token that seeded randomness takes. Nothing in the package imports this module, and a test sees to it."""

from __future__ import annotations

from secagg.randomness import UnsafeToken

TOKEN = UnsafeToken()
"""To be passed where predictable keys and noise do no harm: in tests, and for vectors."""
