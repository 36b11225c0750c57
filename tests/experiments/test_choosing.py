"""Every protection for one plan, side by side."""

from secagg.experiments import choosing
from secagg.experiments.choosing import compare
from secagg.plan_facts.planning import PlanChoices, PublicData
from tests.worlds.rosters import make_roster


def test_a_gate_of_more_clients_than_are_measured(monkeypatch):
    """A plan whose class gate wants more clients than the measured session has is compared like any other."""
    monkeypatch.setattr(choosing, "MOST_MEASURED", 3)
    data = PublicData.of_shape((4,), ("a", "b"))
    choices = PlanChoices(class_gate=4, dropouts=1, colluders=1, radius=1.0)
    assert not any(choice.refused for choice in compare(data, make_roster(7)[0], choices))


def test_bytes_of_a_gated_plan_name_their_sum():
    """Bytes and seconds of a plan with two kinds of sum say which one they are of; those of one kind need not."""
    data = PublicData.of_shape((4,), ("a", "b"))
    for gate, named in ((2, True), (0, False)):
        choices = PlanChoices(class_gate=gate, dropouts=0, colluders=1, radius=1.0)
        for choice in compare(data, make_roster(4)[0], choices):
            rows = dict(choice.rows())
            for row in ("a client uploads", "a client computes"):
                assert ("in the first of 2 kinds of sum" in rows[row]) == named
