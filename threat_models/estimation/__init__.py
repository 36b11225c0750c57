"""Numbers that an audit may stand on: intervals, ceilings under a claim, ε measured, recomputed and bounded."""

from threat_models.estimation.canaries import Canaries, canary_scores, draw_canaries
from threat_models.estimation.ceilings import auc_ceiling, ceiling, roc_ceiling
from threat_models.estimation.intervals import Interval, auc_interval, bonferroni, bootstrap, clopper_pearson, holm
from threat_models.estimation.noise_tests import SharesTested
from threat_models.estimation.one_run_audit import OneRunBound, audit_canaries, bound_epsilon
from threat_models.estimation.recomputation import SecondOpinion, second_opinion
from threat_models.estimation.rerelease import EpsilonBound, audit_release
from threat_models.estimation.worst_case_canary import Canary, draw_release, worst_canary

__all__ = [
    "Canaries",
    "Canary",
    "EpsilonBound",
    "Interval",
    "OneRunBound",
    "SecondOpinion",
    "SharesTested",
    "auc_ceiling",
    "auc_interval",
    "audit_canaries",
    "audit_release",
    "bonferroni",
    "bootstrap",
    "bound_epsilon",
    "canary_scores",
    "ceiling",
    "clopper_pearson",
    "draw_canaries",
    "draw_release",
    "holm",
    "roc_ceiling",
    "second_opinion",
    "worst_canary",
]
