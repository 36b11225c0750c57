"""Everything that follows from a plan alone: sums, noise, thresholds, layouts, choices."""

from secagg.plan_facts.setup import SessionSetup

__all__ = ["SessionSetup"]
