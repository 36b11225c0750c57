"""Write plans, and derive what follows from a plan and its roster: sums, noise, thresholds, layouts, costs."""

from secagg.plan_facts.facts import PlanFacts, SumFacts

__all__ = ["PlanFacts", "SumFacts"]
