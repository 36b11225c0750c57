"""Correction for the number of limits that a gate judges."""

import numpy as np
import pytest

from tests.threat_models.report.sample import HEAD
from threat_models.adversary import adversary_named, names
from threat_models.attacks import ATTACKS
from threat_models.estimation.intervals import FAMILY, Comparisons, clopper_pearson, current_level
from threat_models.examination import plan_comparisons
from threat_models.report.gate import Gate
from threat_models.report.summary_facts import RESERVED

RULE = '[[rule]]\nattack = "{}"\nadversary = "{}"\ntolerated = true\nreason = "r"\n'


def test_levels_of_all_comparisons_and_what_is_reserved_are_the_familys():
    """Bonferroni: what may go wrong in all is shared out, and nothing is left over."""
    found = Comparisons(35, 0.002)
    assert found.count * found.level + found.reserved == pytest.approx(FAMILY)
    assert Comparisons(0).level == FAMILY


def test_intervals_are_made_at_the_corrected_level_while_it_is_held():
    """Within `held` an interval is wider and says its level; after it, or at a level of its own, it is as before."""
    plain = clopper_pearson(5, 20)
    with Comparisons(10).apply():
        corrected, own = clopper_pearson(5, 20), clopper_pearson(5, 20, 0.05)
        assert current_level() == FAMILY / 10
    assert (corrected.low < plain.low, corrected.high > plain.high) == (True, True)
    assert corrected.method == "Clopper-Pearson, 99.5 %"
    assert own == plain == clopper_pearson(5, 20)


def test_level_is_given_back_after_an_error():
    """A failure within `held` leaves no other level behind."""
    with pytest.raises(ZeroDivisionError), Comparisons(10).apply():
        _ = 1 / 0
    assert current_level() == FAMILY


def test_corrected_intervals_hold_together():
    """Of 1,000 families of 20 rates, at most 5 % have an interval that misses, where 95 % intervals fail in most.

    Clopper-Pearson's intervals are conservative: the chance of more than 70 families with a miss is below 0.3 %.
    """
    generator = np.random.default_rng(0)
    counts = generator.binomial(200, 0.3, (1_000, 20))

    def families_with_a_miss():
        found = {int(count): clopper_pearson(int(count), 200) for count in np.unique(counts)}
        missing = {count for count, each in found.items() if not each.low <= 0.3 <= each.high}
        return int(np.isin(counts, list(missing)).any(axis=1).sum())

    assert families_with_a_miss() > 400
    with Comparisons(20).apply():
        assert families_with_a_miss() <= 70


def test_count_follows_from_adversaries_and_rules_alone():
    """Every attack counts as often as adversaries try it, by its own number of limits, but for what is tolerated."""
    gate = Gate.parse(HEAD)
    everyone = [adversary_named(name) for name in names()]
    limits = [ATTACKS[name].limits for one in everyone for name in one.attacks if name in ATTACKS]
    assert plan_comparisons(gate, everyone) == Comparisons(sum(limits), RESERVED)
    server = adversary_named("curious_server")
    fewer = plan_comparisons(Gate.parse(HEAD + RULE.format("unmixing", "curious_server")), [server])
    assert plan_comparisons(gate, [server]).count - fewer.count == ATTACKS["unmixing"].limits
    assert plan_comparisons(gate, [server, server]).count == 2 * plan_comparisons(gate, [server]).count


def test_pattern_counts_for_all_that_it_may_fit():
    """A rule for every measure of an attack may judge more than its verdict rests on; one for ceilings does not."""
    server = [adversary_named("curious_server")]
    plain = plan_comparisons(Gate.parse(HEAD), server).count
    rule = '[[rule]]\nattack = "unmixing"\nreason = "r"\nmeasure = "*"\nat_most = "{}"\n'
    assert plan_comparisons(Gate.parse(HEAD + rule.format("ceiling")), server).count == plain
    assert plan_comparisons(Gate.parse(HEAD + rule.format("baseline")), server).count > plain + 32


def test_what_is_tolerated_by_everybody_needs_no_correction():
    """Without a limit that decides anything the sentence says so."""
    found = plan_comparisons(Gate.parse(HEAD + RULE.format("*", "*")), [adversary_named("curious_server")])
    assert found.count == 0
    assert "nothing was corrected for" in found.sentence()


def test_default_gate_counts_no_limit_of_the_control():
    """What shows the attacks' reach without protection decides nothing."""
    assert plan_comparisons(Gate.read(), [adversary_named("no_protection")]).count == 0


def test_every_attack_states_a_number_of_limits():
    """None is judged for nothing."""
    assert all(attack.limits >= 1 for attack in ATTACKS.values())
