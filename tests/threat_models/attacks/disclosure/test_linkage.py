"""Whose part is this? Told between rounds and from data sets where parts are in clear; not under enough noise."""

from dataclasses import replace

import numpy as np
import pytest

from tests.threat_models.attacks.audited import attacked, measured
from tests.threat_models.attacks.rounds import rounds_of
from threat_models.attacks.disclosure.linkage import LINKAGE, link
from threat_models.findings import Verdict


@pytest.mark.parametrize("method", ["fedpcl", "fedproto"])
def test_prototypes_in_clear_are_linked_between_rounds_and_to_data(method):
    """Most of members' prototypes of the last round are linked to the first, and to who has the records."""
    finding = attacked(LINKAGE, "no_protection", rounds_of(method, "rounds=3 width=32"))
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.SUCCEEDS
    for of in ("first and last", "a round and data"):
        rows = measured(finding, "linked.rows", of)
        assert rows.low > 0.5 > rows.baseline == pytest.approx(1 / 8)


def test_whole_parts_of_one_sum_are_linked_to_data():
    """A single sum without protection says whose data each vector was made of."""
    finding = attacked(LINKAGE, "no_protection", rounds_of("prototypes", "", 8))
    assert finding.verdict is Verdict.SUCCEEDS
    assert measured(finding, "linked.parts").value == 1


def test_parts_under_the_noise_of_a_promise_are_not_linked():
    """With each member's share of the noise at epsilon 8 for a member, parts are linked no better than by chance."""
    private = {"epsilon": 8.0, "delta": 1e-5, "adjacency": "add-remove", "unit": "silo"}
    rehearsal = rounds_of(parameters="rounds=3 width=32 cap=10", clients=20, **private)
    finding = attacked(LINKAGE, "no_protection", rehearsal)
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.FAILS
    assert all(measured(finding, "linked.rows", of).high < 0.24 for of in ("first and last", "a round and data"))


def test_members_behind_a_mask_have_no_parts_to_link():
    """Who sees sums alone has nothing to link, and neither has who knows nobody's data of a single round."""
    rehearsal = rounds_of(parameters="rounds=3 width=32")
    assert attacked(LINKAGE, "curious_server", rehearsal).verdict is Verdict.NOT_APPLICABLE
    alone = replace(rehearsal.sessions[0], earlier=())
    unknown = replace(rehearsal, knowledge=replace(rehearsal.knowledge, owners=()))
    assert attacked(LINKAGE, "no_protection", unknown, alone).verdict is Verdict.NOT_APPLICABLE


def test_links_are_by_direction_and_by_the_one_most_alike():
    """Rows longer or shorter are still their member's, equal ones are nobody's, empty ones are not tried."""
    rows = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])
    ones = [{"block": row[None]} for row in rows]
    found = link("both", ones, [{"block": 3 * row[None]} for row in rows])
    assert found.hits[found.tried].all()
    assert found.tried.tolist() == [[True, True, True, False]]
    same = link("both", ones, [ones[0], ones[0], ones[2], ones[3]])
    assert same.hits[0, :3].tolist() == [False, False, True]
    assert not link("others'", ones, ones[1:] + ones[:1]).hits[0, :3].any()
