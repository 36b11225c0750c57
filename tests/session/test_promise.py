"""The promise of a plan: made with the least noise, recomputed by everyone, refused when the noise does not keep it."""

import hashlib
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from methods.closed_form.refinement import RefinementRound
from secagg.agreement.plan import NoiseFrom, Plan, PlannedNoise
from secagg.encoding import Normalisation
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.experiments.session import run_session
from secagg.plan_facts.explanation import explain
from secagg.plan_facts.facts import plan_cost
from secagg.plan_facts.noise_plan import NoiseParties
from secagg.plan_facts.records import LocalRecords
from secagg.privacy import Adjacency, Mechanism, Unit
from secagg.privacy.claim import format_epsilon
from secagg.protection.messages import Attachment, RoundOpening
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup, conclude, contribution_of
from secagg.session.rounds import opening_after
from tests.session.noise_checks import (
    check_neighbours,
    check_promise,
    check_small_set_is_not_signed,
    check_small_sum_is_refused,
    check_stated,
    honest,
    reported,
)
from tests.worlds.rosters import make_roster
from tests.worlds.setups import DELTA, IN_SUMS, exact, make_setup, some_records

ADD, REPLACE = Adjacency


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("noise", IN_SUMS)
@pytest.mark.parametrize(("epsilon", "refine"), [(0.5, 0), (8.0, 0), (8.0, 3)])
def test_planned_noise_keeps_the_promise_and_is_not_wasted(adjacency, unit, noise, epsilon, refine):
    """Whatever is promised, members accept the plan, and its noise is the least to 0.1 % of ε."""
    setup = make_setup(adjacency=adjacency, unit=unit, noise=noise, epsilon=epsilon, refine=refine)
    check_promise(setup.plan, setup.roster)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("noise", IN_SUMS)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
def test_worst_neighbours_use_the_promise_up(adjacency, noise, epsilon):
    """Real sums of the worst neighbours, over the plan's own σ, have the promised ε by formulas in 40 digits."""
    check_neighbours(make_setup(adjacency=adjacency, noise=noise, epsilon=epsilon))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.3333, 8.0])
def test_epsilon_is_never_rounded_down(epsilon):
    """Neither the computed ε nor the one in words is below the exact one."""
    claim = make_setup(epsilon=epsilon).facts.claim
    assert claim is not None
    check_stated(claim)
    check_stated(replace(claim, epsilon=claim.releases.epsilon(claim.delta)))


def test_replacing_a_record_takes_more_than_the_square_root_of_two():
    """σ for replace-one is √2.3805 times that for add/remove with the usual shares of μ², not √2 times."""
    one, other = (make_setup(adjacency=adjacency).plan.noises for adjacency in Adjacency)
    for block in (1, 2):
        assert other[block].sigma / one[block].sigma == pytest.approx(math.sqrt(2.3805), rel=1e-4)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_claim_is_for_the_smallest_honest_set(epsilon):
    """The claim counts the least survivors without the colluders; with one share fewer it does not hold."""
    setup = make_setup(clients=7, colluders=2, dropouts=1, epsilon=epsilon)
    claim = setup.facts.claim
    assert claim is not None
    assert (claim.releases.first.fewest, claim.releases.first.parties) == (honest(setup), 7) == (4, 7)
    missing = 7 - setup.facts.fewest
    assert claim.what_if(dropped=missing, colluding=2) <= epsilon
    assert claim.what_if(dropped=missing + 1, colluding=2) > 1.01 * epsilon
    assert claim.what_if(dropped=missing, colluding=3) > 1.01 * epsilon


def scaled(plan: Plan, factor: float, *blocks: str) -> Plan:
    """The plan with σ of some blocks (all, when none is named) times a factor."""
    noises = (
        replace(each, sigma=factor * each.sigma, off_diagonal=factor * each.off_diagonal)
        if not blocks or each.block in blocks
        else each
        for each in plan.noises
    )
    return replace(plan, noises=tuple(noises))


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("noise", IN_SUMS)
@pytest.mark.parametrize("refine", [0, 2])
@pytest.mark.parametrize("change", [{"epsilon": 0.99}, {"delta": 0.9e-5}, {"adjacency": "replace-one"}, {}])
def test_plan_that_promises_more_than_its_noise_is_refused(unit, noise, refine, change):
    """A smaller ε or δ, another adjacency, or half of σ over the same noise: members compute the ε and refuse."""
    plan = make_setup(unit=unit, noise=noise, refine=refine).plan
    changed = replace(plan, **change) if change else scaled(plan, 0.5)
    assert "the noise gives" in reported(check_promise, changed, make_roster()[0])


@pytest.mark.parametrize("block", ["counts", "class_sums", "second_moment", "gradient"])
def test_every_block_counts(block):
    """Half of σ on any one block, in the first sum or in a round, is refused."""
    plan = make_setup(refine=2, epsilon=1.0).plan
    assert "the noise gives" in reported(check_promise, scaled(plan, 0.5, block), make_roster()[0])


def test_client_is_not_protected_by_a_records_noise():
    """A plan for records that is relabelled as one for clients is refused."""
    plan = make_setup().plan
    assert "the noise gives" in reported(check_promise, replace(plan, unit="client"), make_roster()[0])


def test_more_records_in_a_client_take_more_noise():
    """A client's plan with a larger bound on its records is refused; a record's plan does not depend on it."""
    client, record = make_setup(unit=Unit.CLIENT).plan, make_setup().plan
    assert "the noise gives" in reported(check_promise, replace(client, max_records=65), make_roster()[0])
    check_promise(replace(record, max_records=65), make_roster()[0])


def test_fewer_survivors_than_calibrated_for_are_refused_in_the_plan():
    """A plan whose noise counts on all five is refused when it lets fewer be summed, or admits another colluder."""
    plan = make_setup(colluders=0, dropouts=0).plan
    assert plan.min_clients_in_sum == 5
    roster = make_roster()[0]
    assert "the noise gives" in reported(check_promise, replace(plan, dropouts=1, min_clients_in_sum=4), roster)
    check_promise(replace(plan, min_clients_in_sum=4), roster)  # five are summed all the same: n − D
    assert "the noise gives" in reported(check_promise, replace(plan, colluders=2), roster)


@pytest.mark.parametrize("leaving", [{2: "UploadHeader"}, {1: "Dealing"}, {4: "KeyAdvertisement"}])
def test_fewer_survivors_than_calibrated_for_abort_the_session(leaving):
    """Where the noise counts on all six, the session ends without a sum when one vanishes before its upload."""
    check_small_sum_is_refused(make_setup(clients=6, colluders=0, dropouts=0), leaving)


def test_fewer_survivors_than_calibrated_for_get_no_signature():
    """A client does not sign a survivor set in which too few shares of the noise are."""
    check_small_set_is_not_signed(make_setup(clients=6, colluders=0, dropouts=0))
    check_small_set_is_not_signed(make_setup(clients=7, colluders=1, dropouts=1))


def renamed(noises: tuple[PlannedNoise, ...]) -> tuple[PlannedNoise, ...]:
    """The first block under another name."""
    return (replace(noises[0], block="count"), *noises[1:])


@pytest.mark.parametrize("refine", [0, 1])
@pytest.mark.parametrize(
    "change",
    [
        lambda noises: noises[:-1],
        lambda noises: noises[1:],
        lambda noises: (*noises, noises[-1]),
        lambda noises: noises[::-1],
        lambda noises: (noises[1], noises[0], *noises[2:]),
        renamed,
        lambda noises: (*noises, PlannedNoise("more", 1, 100.0, 0.0)),
    ],
    ids=["last missing", "first missing", "twice", "reversed", "swapped", "renamed", "one more"],
)
def test_noise_for_other_blocks_is_refused(refine, change):
    """Noises must be those of the method's blocks, each once and in order."""
    plan = make_setup(refine=refine).plan
    said = reported(check_promise, replace(plan, noises=change(plan.noises)), make_roster()[0])
    assert "the plan has noise for" in said


@pytest.mark.parametrize(
    ("place", "change", "words"),
    [
        (2, {"off_diagonal": 0.0}, "a triangle has a sigma of its own"),
        (0, {"off_diagonal": 100.0}, "a triangle has a sigma of its own"),
        (2, {"off_diagonal": 5.0}, "the noise gives"),
        (0, {"sigma": 2.9}, "sigma 2.9 grid units"),
        (0, {"sigma": 1e13}, "grid units"),
        (0, {"multiplier": 2}, "the noise gives"),
        (1, {"multiplier": 2}, "only counts may have one above 1"),
        (2, {"multiplier": 100}, "only counts may have one above 1"),
    ],
)
def test_impossible_noise_is_refused(place, change, words):
    """A triangle's second σ where it does not belong, σ out of range, and multipliers that eat the noise up."""
    plan = make_setup().plan
    noises = list(plan.noises)
    noises[place] = replace(noises[place], **change)
    assert words in reported(check_promise, replace(plan, noises=tuple(noises)), make_roster()[0])


def test_no_noise_without_an_honest_party():
    """Shares cannot be planned when all survivors may collude; an aggregator's noise needs none of them."""
    setup = make_setup(clients=7, colluders=2, dropouts=1)
    plan, roster = setup.plan, setup.roster
    with pytest.raises(BadInput, match="no honest share of the noise"):
        NoiseParties.of(plan, "client", roster, 2)
    assert NoiseParties.of(plan, "client", roster, 3) == NoiseParties(Mechanism.DISCRETE_SHARES, 7, 1)
    assert NoiseParties.of(plan, "aggregator", roster, 2) == NoiseParties(Mechanism.GAUSSIAN, 1, 1)


MEMBERS_SEE = [
    {},
    {"colluders": 0},
    {"colluders": 0, "refine": 1},
    {"colluders": 0, "class_gate": 2},
    {"colluders": 0, "protection": "shared"},
    {"colluders": 0, "protection": "encrypted", "dropouts": 0},
]


@pytest.mark.parametrize("choices", MEMBERS_SEE, ids=str)
def test_a_curious_member_learns_no_more_than_is_promised(choices):
    """Where members see a sum or the head, ε holds against one, who knows its own share, however few may collude."""
    setup = make_setup(clients=6, epsilon=2.0, **choices)
    assert setup.facts.claim is not None
    least = setup.facts.fewest - 1
    found = [setup.facts.claim.releases.epsilon(DELTA, honest=honest) for honest in (least, least - 1)]
    assert found[0] <= 2.0 < found[1]
    assert "not against" not in setup.facts.claim.sentence()


@pytest.mark.parametrize("clients", [1, 2])
def test_few_clients_have_a_share_each(clients):
    """Of two, each one's own share protects it against the other; a client alone has its own, and is told so."""
    protection = "masked" if clients == 2 else "none"
    setup = make_setup(clients=clients, protection=protection)
    assert setup.facts.claim is not None
    assert (setup.plan.colluders, setup.facts.claim.releases.first.fewest) == (0, 1)
    assert setup.facts.claim.releases.epsilon(DELTA, honest=1) <= 1.0
    assert setup.facts.claim.sentence().endswith("It rests on the one client's own share of the noise.") == (
        clients == 1
    )


@pytest.mark.parametrize("clients", [2, 5])
def test_where_uploads_are_in_clear_everybody_rests_on_its_own_share(clients):
    """Nobody else's noise hides a vector that the server sees: the promise names the client's own share, no number."""
    setup = make_setup(clients=clients, protection="none")
    assert setup.facts.claim is not None
    assert setup.facts.claim.sentence().endswith("For each client it rests on its own share of the noise.")
    rows = dict(explain(setup.facts))
    assert rows["noise of one party"].endswith("Each client's own is what hides it.")
    assert rows["what breaks it"].startswith("a member that leaves its noise out or tells it to others, for its own")


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
def test_a_promise_that_does_not_hold_against_members_is_asked_for(protection):
    """Two clients tolerate no colluder: a head for the server alone wants that in so many words, and says so."""
    choices = {"clients": 2, "protection": protection, "result": "server", "dropouts": 0}
    with pytest.raises(BadInput, match="would not hold against the members") as refused:
        make_setup(**choices)
    assert "--colluders 0" in str(refused.value)
    asked = make_setup(**choices, colluders=0)
    assert asked.facts.claim is not None
    assert "not against a client" in asked.facts.claim.sentence()
    make_setup(**{**choices, "result": "members"})


def test_every_share_counts_only_where_no_member_sees_anything():
    """Without colluders a head for the server takes less noise, and its promise says what ε is against a member."""
    careful, trusting = (make_setup(result="server", dropouts=0, colluders=colluders) for colluders in (1, 0))
    for setup, fewest in ((careful, 4), (trusting, 5)):
        assert setup.facts.claim is not None
        assert setup.facts.claim.releases.first.fewest == fewest
    member = format_epsilon(trusting.facts.claim.against_member)
    said = f"not against a client, which knows its own share: against one, epsilon is {member}."
    assert said in trusting.facts.claim.sentence()
    assert trusting.facts.claim.against_member == trusting.facts.claim.releases.epsilon(DELTA, honest=4) > 1.1
    assert "not against" not in careful.facts.claim.sentence()
    assert make_setup(colluders=0, dropouts=0).plan.noises == careful.plan.noises
    roster = make_roster()[0]
    assert "the noise gives" in reported(check_promise, replace(trusting.plan, result="members"), roster)


def test_delta_that_the_ring_does_not_keep_is_refused():
    """A δ below 10⁻¹⁵ leaves out the chance that noise does not fit into the ring, for who plans and who is told."""
    setup = make_setup(delta=1e-15)
    with pytest.raises(BadInput, match="from 1e-15 to"):
        make_setup(delta=0.9e-15)
    with pytest.raises(BadInput, match="noise does not fit into the ring"):
        RoundSetup.of(replace(setup.plan, delta=0.9e-15), setup.roster)


def test_plan_of_any_finite_promise_has_a_cost():
    """A promise so weak that its noise promises other neighbours nothing that is computed costs them infinity."""
    setup = make_setup(epsilon=4e11, levels=1 << 24)
    costs = {each.adjacency: each.cost.epsilon(DELTA) for each in plan_cost(setup.facts)}
    assert costs[ADD] <= 4e11
    assert costs[REPLACE] == math.inf


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_more_records_than_fit_are_not_stated(epsilon):
    """A plan that states more records than all its clients may have together is refused with the most that they may."""
    promise = {} if epsilon < math.inf else {"delta": None, "adjacency": None, "normalise": Normalisation.UNIT}
    setup = make_setup(epsilon=epsilon, at_least=5 * 64, **promise)
    with pytest.raises(BadInput, match=r"at least 321 records, but takes at most 64 of each of 5 .*state at most 320,"):
        make_setup(epsilon=epsilon, at_least=5 * 64 + 1, **promise)
    with pytest.raises(BadInput, match="state at most 320"):
        RoundSetup.of(replace(setup.plan, at_least=321), setup.roster)


def test_vector_that_the_server_sees_is_protected_by_its_own_share():
    """Without masks every client's share must keep the promise alone: √n times the σ, and no credit for the others."""
    setup = make_setup(protection="none", colluders=0, dropouts=0)
    masked = make_setup(colluders=0, dropouts=0)
    assert setup.facts.claim is not None
    assert setup.facts.claim.releases.first.fewest == honest(setup) == 1
    check_promise(setup.plan, setup.roster)
    check_neighbours(setup)
    assert setup.plan.noises[2].sigma == pytest.approx(math.sqrt(4) * masked.plan.noises[2].sigma, rel=1e-4)
    unmasked = replace(masked.plan, protection="none")
    assert "the noise gives" in reported(check_promise, unmasked, make_roster()[0])


@pytest.mark.parametrize("refine", [0, 2])
def test_capacity_has_room_for_ten_sigma_of_everybodys_noise(refine):
    """The ring holds all records at their bounds plus 10σ√n; an aggregator's noise never enters the ring."""
    setup = make_setup(refine=refine, max_records=1, epsilon=0.1)
    for world in stages(setup):
        planned = {noise.block: noise for noise in setup.plan.noises}
        largest = max(planned[block.name].sigma for block in world.sum.layout.blocks)
        assert world.sum.capacity.noise == math.ceil(10 * largest * math.sqrt(5))
        most = 5 * world.sum.layout.bound + 10 * largest * math.sqrt(5)
        assert most <= world.sum.capacity.largest < 2 ** (world.context.ring.bits - 1)
    assert make_setup(refine=refine, noise=NoiseFrom.AGGREGATOR).sum.capacity.noise == 0


def test_noise_far_above_the_records_comes_through_the_ring():
    """With one record each at ε = 0.02 the opened sum is the exact sum of the noisy vectors, in whole numbers."""
    setup = make_setup(max_records=1, epsilon=0.02)
    vectors = {
        member: contribution_of(setup, some_records(setup, 1), OperatingSystem())[0] for member in setup.context.clients
    }
    opened = run_session(setup, dict(enumerate(make_roster()[1])), vectors.__getitem__, {})
    columns = zip(*(vector.tolist() for vector in vectors.values()), strict=True)
    assert opened.total.tolist() == [sum(column) for column in columns]
    assert max(np.abs(vector).max() for vector in vectors.values()) > setup.sum.layout.bound


@pytest.mark.parametrize("refine", [0, 2])
def test_multipliers_of_the_plan_are_those_of_the_layout(refine):
    """Every session's blocks bear the plan's multipliers, and the opened noise is told in the same units."""
    setup = make_setup(clients=40, dimension=8, refine=refine, epsilon=8.0, colluders=0, dropouts=0)
    planned = {noise.block: noise for noise in setup.plan.noises}
    assert planned["counts"].multiplier > 1
    for world in stages(setup):
        opened = world.sum.opened_noise(39)
        assert opened is not None
        assert set(opened) == {block.name for block in world.sum.layout.blocks}
        for block in world.sum.layout.blocks:
            assert block.multiplier == planned[block.name].multiplier == opened[block.name].multiplier
            assert opened[block.name].sigma == pytest.approx(planned[block.name].sigma * math.sqrt(39))
    counts = exact(setup, some_records(setup, 30))[:3]
    assert counts.tolist() == [10 * planned["counts"].multiplier] * 3


def next_opening(setup: RoundSetup, total: np.ndarray) -> tuple[RoundOpening, bytes]:
    """What follows from an opened sum of everybody, and the broadcast that it names."""
    result = conclude(setup, setup.context.clients, total)
    opening = opening_after(setup, result)
    assert opening is not None
    return opening, result.broadcast


def stages(setup: RoundSetup) -> list[RoundSetup]:
    """All sessions of the plan, over the same records each time."""
    found = [setup]
    while not found[-1].is_last:
        records = LocalRecords.pooled([some_records(setup, 30, seed=member) for member in setup.context.clients])
        found.append(found[-1].following(*next_opening(found[-1], exact(found[-1], records))))
    return found


@pytest.mark.parametrize("epsilon", [8.0, math.inf])
@pytest.mark.parametrize("refine", [0, 1, 3])
def test_rounds_are_counted(epsilon, refine):
    """A plan has one session more than refinement rounds; the last one knows that it is, and keeps plan and claim."""
    exactly = {"delta": None, "adjacency": None, "normalise": Normalisation.CENTRED_UNIT}
    setup = make_setup(epsilon=epsilon, refine=refine, **(exactly if math.isinf(epsilon) else {}))
    found = stages(setup)
    assert len(found) == setup.rounds == refine + 1
    assert [world.is_last for world in found] == [*[False] * refine, True]
    for number, world in enumerate(found, start=1):
        assert (world.plan, world.roster, world.facts.claim, world.number) == (
            setup.plan,
            setup.roster,
            setup.facts.claim,
            number,
        )
    assert (
        len({world.context.round_digest for world in found})
        == len({world.context.session_id for world in found})
        == refine + 1
    )


def test_a_round_is_bound_to_sum_and_broadcast():
    """The next session's digests change with the sum, with the broadcast, with the plan and with the round."""
    setup = make_setup(refine=2, epsilon=8.0)
    records = [some_records(setup, 30, seed=seed) for seed in (1, 2)]
    openings = [next_opening(setup, exact(setup, each)) for each in records]
    (one, told), (other, told_else) = openings
    mixed = [
        (replace(one, broadcast=other.broadcast), told_else),
        (replace(one, aggregate_sha256=other.aggregate_sha256), told),
    ]
    following = [setup.following(*each) for each in (*openings, *mixed)]
    other_plan = make_setup(refine=2, epsilon=8.0)
    elsewhere = other_plan.following(replace(one, previous=other_plan.context.round_digest), told)
    third = following[0].following(*next_opening(following[0], exact(following[0], records[0])))
    contexts = [world.context for world in (setup, *following, elsewhere, third)]
    assert len({context.round_digest for context in contexts}) == len({context.session_id for context in contexts}) == 7
    assert setup.following(one, told).context == setup.following(one).context == following[0].context
    with pytest.raises(ProtocolViolation, match="party 0: what opens round 2 is not what it is said to be"):
        setup.following(one, told_else)


def test_nothing_follows_the_last_round():
    """A broadcast after the last session, or in a plan without rounds, is the server's breach."""
    setup = make_setup(refine=1, epsilon=8.0)
    first, last = stages(setup)
    opening, one_sum = last.opening, make_setup()
    assert opening is not None
    next_number = replace(opening, number=3, previous=last.context.round_digest)
    told, told_later = last.round.broadcast(), replace_number(last.round, 2)
    later = replace(next_number, broadcast=Attachment.of(told_later))
    only = replace(opening, previous=one_sum.context.round_digest)
    for world, each, content in ((last, later, told_later), (last, next_number, told), (one_sum, only, told)):
        for broadcast in (content, b""):
            with pytest.raises(ProtocolViolation, match="party 0: announces"):
                world.following(each, broadcast)
    with pytest.raises(ProtocolViolation, match="the plan does not have"):
        first.at(later)
    with pytest.raises(MalformedMessage):
        first.following(replace(opening, broadcast=Attachment.of(b"\x00")), b"\x00")


def test_a_round_of_another_history_does_not_follow():
    """An opening that skips a round, or names another session as the one before, is the server's breach."""
    first, second, _ = stages(make_setup(refine=2, epsilon=8.0))
    assert second.opening is not None
    for world, changes in ((first, {"number": 3}), (first, {"previous": bytes(32)}), (second, {})):
        with pytest.raises(ProtocolViolation, match="party 0: opens round"):
            world.following(replace(second.opening, **changes))


def test_context_of_a_round_is_the_documented_digest():
    """A later context is SHA-256 over number, context before, sum and what names the broadcast, each with length."""
    first, second, third = stages(make_setup(refine=2, epsilon=8.0))
    for before, world in ((first, second), (second, third)):
        opening = world.opening
        assert opening is not None
        parts = (b"secagg/v1/round", opening.number.to_bytes(4, "big"), before.context.round_digest)
        told = opening.broadcast
        parts += (opening.aggregate_sha256, told.length.to_bytes(8, "big"), told.digest)
        joined = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        assert world.context.round_digest == opening.round_digest == hashlib.sha256(joined).digest()
    assert first.context.round_digest == first.plan.digest


def test_without_its_history_all_but_the_sum_of_a_round_is_known():
    """Plan and last opening give a session with the same digests, layout and noise; what is summed is refused."""
    first, _, last = stages(make_setup(refine=2, epsilon=8.0))
    assert last.opening is not None
    alone = first.at(last.opening)
    assert alone == replace(last, known_round=None)
    with pytest.raises(BadInput, match="what round 3 sums follows from the rounds before it"):
        alone.round  # noqa: B018


def replace_number(round_: Any, number: int) -> bytes:
    """A round's broadcast under another number."""
    assert isinstance(round_, RefinementRound)
    return replace(round_, number=number).broadcast()


def test_refinement_needs_members_that_learn_the_head():
    """A plan of several rounds whose result is for the server only is refused."""
    plan = make_setup(refine=1).plan
    assert "let the result go to members" in reported(check_promise, replace(plan, result="server"), make_roster()[0])
    check_promise(replace(make_setup().plan, result="server"), make_roster()[0])


def test_refinement_needs_records_of_one_length():
    """A plan of several rounds on records that keep their length is refused, also without noise."""
    plan = make_setup(refine=1, epsilon=math.inf, delta=None, adjacency=None).plan
    with pytest.raises(BadInput, match="choose centred-unit or unit"):
        RoundSetup.of(replace(plan, normalisation="none"), make_roster()[0])
    with pytest.raises(BadInput, match="needs normalised records"):
        replace(make_setup().plan, normalisation="none")


def test_spent_is_the_whole_plan_for_every_neighbour():
    """The ledger is told of all rounds together: for records and, where the plan promises it, for clients."""
    setup = make_setup(refine=2, epsilon=8.0)
    assert setup.facts.claim is not None
    costs = {(row.unit, row.adjacency): row.cost for row in plan_cost(setup.facts)}
    assert set(costs) == {(Unit.RECORD, adjacency) for adjacency in Adjacency}
    assert costs[Unit.RECORD, ADD].epsilon(DELTA) == setup.facts.claim.releases.epsilon(DELTA)
    assert costs[Unit.RECORD, REPLACE].epsilon(DELTA) > 8.0
    client = {
        (row.unit, row.adjacency): row.cost.epsilon(DELTA) for row in plan_cost(make_setup(unit=Unit.CLIENT).facts)
    }
    assert len(client) == 4
    assert client[Unit.RECORD, ADD] < client[Unit.CLIENT, ADD] <= 1.0 < client[Unit.CLIENT, REPLACE]
    assert plan_cost(make_setup(epsilon=math.inf, delta=None, adjacency=None, radius=1.0).facts) == ()
