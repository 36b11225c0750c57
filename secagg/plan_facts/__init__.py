"""Everything that follows from a plan alone: sums, noise, thresholds, layouts, choices."""

from secagg.plan_facts.facts import PlanFacts, SumFacts

__all__ = ["PlanFacts", "SumFacts"]
