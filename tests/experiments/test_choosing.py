"""Every protection for one plan, side by side."""

from secagg.experiments import choosing
from secagg.experiments.choosing import compare
from secagg.parties.planning import PlanChoices, PublicData
from tests.worlds.rosters import make_roster


def test_a_gate_of_more_clients_than_are_measured(monkeypatch):
    """A plan whose class gate wants more clients than the measured session has is compared like any other."""
    monkeypatch.setattr(choosing, "MOST_MEASURED", 3)
    data = PublicData.of_shape((4,), ("a", "b"))
    choices = PlanChoices(class_gate=4, dropouts=1, colluders=1, radius=1.0)
    assert not any(choice.refused for choice in compare(data, make_roster(7)[0], choices))
