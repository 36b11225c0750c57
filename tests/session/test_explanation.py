"""A plan in plain words: who is protected, against whom, how much, by what, and what breaks it."""

import itertools
import math
import re
from dataclasses import replace

import pytest

from secagg.agreement.plan import NoiseFrom
from secagg.agreement.schema import load_schema
from secagg.encoding import Normalisation
from secagg.plan_facts.explanation import doubts_of, explain
from secagg.plan_facts.planning import PlanChoices, PublicData, SurplusNoise, make_plan
from secagg.privacy import Adjacency, Unit
from secagg.privacy.claim import format_epsilon
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from tests.agreement.federation_files import small_roster
from tests.worlds.setups import IN_SUMS, make_setup

EXACT = {"epsilon": math.inf, "delta": None, "adjacency": None}
PROMISE_ROWS = ["promise", "several records", "against", "noise of one party", "surplus noise", "what breaks it"]
PROMISE_ROWS += ["a bad record", "grid"]


def explained(**choices):
    """The rows of a plan, by name."""
    rows = explain(make_setup(**choices).facts)
    assert len(dict(rows)) == len(rows)
    assert all(name and sentence for name, sentence in rows)
    return dict(rows)


def test_keepers_of_opened_sums_are_named():
    """The server keeps every opened sum, another party those that it is shown."""
    kept = explained(refine=2)["kept on disk"]
    assert "bytes in all, at the server, at every other party those that it is shown (all), and what opened" in kept


def test_order_is_fixed():
    """The rows come in one order, the promise in the middle; a plan without noise has one row of it."""
    names = list(explained())
    start = names.index("promise")
    assert names[start : start + len(PROMISE_ROWS)] == PROMISE_ROWS
    assert list(explained(**EXACT, radius=1.0)) == [name for name in names if name not in PROMISE_ROWS[1:]]


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("noise", IN_SUMS)
@pytest.mark.parametrize("epsilon", [0.25, 3.5])
def test_promise_names_unit_adjacency_epsilon_and_delta(adjacency, unit, noise, epsilon):
    """The promise says in words and in numbers who is hidden and how well."""
    said = explained(adjacency=adjacency, unit=unit, noise=noise, epsilon=epsilon, delta=1e-6)["promise"]
    who = {Unit.RECORD: "any one record", Unit.CLIENT: "any one client's records"}[unit]
    change = {Adjacency.ADD_REMOVE: "among the data or not", Adjacency.REPLACE_ONE: "in (its|their) place"}[adjacency]
    assert re.search(f"whether {who} (was|were) .*{change}:", said)
    rounded_up = {0.25: 1.3, 3.5: 33.2}[epsilon]
    assert f"a factor of at most e^{epsilon:g} (at most {rounded_up}), " in said
    assert "but for a chance of 1e-06" in said
    assert f"(epsilon {epsilon:g}, {adjacency}, {unit} level)" in said


def test_promises_are_told_apart():
    """No two of the four promises share a sentence."""
    pairs = itertools.product(Unit, Adjacency)
    assert len({explained(unit=unit, adjacency=adjacency)["promise"] for unit, adjacency in pairs}) == 4


@pytest.mark.parametrize(("clients", "colluders", "dropouts"), [(5, 1, 1), (7, 2, 1), (6, 0, 0)])
def test_shares_name_who_must_be_honest(clients, colluders, dropouts):
    """Of shares that stay the sentences count the honest ones needed, say what one fewer costs, and trust no server."""
    setup = make_setup(clients=clients, colluders=colluders, dropouts=dropouts)
    rows = dict(explain(setup.facts))
    fewest = setup.facts.fewest - max(colluders, 1)
    assert f"at least {fewest} of {clients} clients add their share of the noise and keep it secret" in rows["promise"]
    claim = setup.facts.claim
    assert claim is not None
    (worse,) = re.findall(r"with one fewer, epsilon would be ([\d.]+)\.$", rows["promise"])
    exact = claim.releases.epsilon(claim.delta, honest=fewest - 1)
    assert exact <= float(worse) <= exact + 1e-4
    assert f"{clients} add theirs, {fewest} honest ones are enough" in rows["noise of one party"]
    assert rows["against"].startswith(f"server, any {colluders or 'one'} of the members, and everybody")


@pytest.mark.parametrize("chosen", [{}, {"clients": 20, "dropouts": 6}, {"clients": 7, "colluders": 2, "dropouts": 1}])
def test_removed_noise_asks_for_the_honest_ones_of_each_sum(chosen):
    """Where surplus noise is removed, all but c of those present must be honest: the fewest are too few if all came.

    One more known share costs what the sentence says, at the worst number of missing clients.
    """
    setup = make_setup(surplus_noise=SurplusNoise.AUTO, **chosen)
    claim, plan, rows = setup.facts.claim, setup.plan, dict(explain(setup.facts))
    assert f"holds while all but {plan.colluders} of the clients in a sum add their share" in rows["promise"]
    assert rows["noise of one party"].endswith(f"in each sum all but {plan.colluders} must be honest")
    missing = range(plan.dropouts + 1)
    assert max(claim.what_if(dropped=each, colluding=plan.colluders) for each in missing) <= plan.epsilon
    (worse,) = re.findall(r"with one fewer, epsilon would be ([\d.]+)\.$", rows["promise"])
    exact = max(claim.what_if(dropped=each, colluding=plan.colluders + 1) for each in missing)
    assert exact <= float(worse) <= exact + 1e-4
    first = claim.releases.first
    assert claim.what_if(colluding=first.parties - first.fewest) > 1.1 * plan.epsilon


def test_shares_that_members_know_are_said():
    """A plan without colluders whose head stays with the server says that members are not among those it is against."""
    setup = make_setup(clients=6, colluders=0, dropouts=0, result="server")
    rows, claim = dict(explain(setup.facts)), setup.facts.claim
    assert claim is not None
    lone = format_epsilon(claim.releases.epsilon(claim.delta, honest=5))
    assert rows["against"] == (
        "server and everybody who sees what it publishes, but not the members (each knows its own share: against one, "
        f"epsilon is {lone})"
    )


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"max_records": 1000, "delta": 1e-5}, None),
        ({"max_records": 20_000, "delta": 1e-5}, "with 100000 records or more, 1e-05 is not below 1 in n"),
        ({"max_records": 1000, "delta": 1e-3}, "with 1000 records or more, 0.001 is not below 1 in n"),
        ({"unit": Unit.CLIENT, "delta": 0.1}, None),
        ({"unit": Unit.CLIENT, "delta": 0.25}, "with 4 clients or more, 0.25 is not below 1 in n"),
    ],
    ids=str,
)
def test_delta_that_is_no_small_chance_is_said(choices, words):
    """Where the plan can have 1/δ records, or has as many clients, its words say from how many on δ protects none."""
    said = explained(**choices).get("delta")
    assert said is None if words is None else str(said).startswith(words)


@pytest.mark.parametrize(("stated", "records"), [(0, 1000), (500, None), (2000, 2000)])
def test_delta_is_doubted_by_what_is_stated_or_one_client_may_have(stated, records):
    """A δ of 1 in n records is doubted: n of all clients as stated, and where nothing is stated of one client."""
    setup = make_setup(max_records=1000, delta=1e-3, at_least=stated)
    found = [doubt for doubt in doubts_of(setup.facts) if doubt.startswith("delta ")]
    words = [f"delta 0.001 is not below 1 in {records} records: "] if records else []
    assert [doubt[: len(words[0])] for doubt in found] == words


def test_noise_is_the_plans():
    """Every block's σ stands there: of counts in records, else in steps of the grid, off the diagonal too."""
    setup = make_setup(epsilon=4.0)
    said = dict(explain(setup.facts))["noise of one party"]
    counts, sums, moment = setup.plan.noises
    assert f"counts: σ {counts.sigma / counts.multiplier:.6g} records;" in said
    assert f"class_sums: σ {sums.sigma:.6g} grid steps;" in said
    assert f"second_moment: σ {moment.sigma:.6g} grid steps squared," in said
    assert said.count("off the diagonal") == 1
    assert f"{setup.plan.noises[2].off_diagonal:.6g} off the diagonal" in said


def test_aggregator_is_named_as_trusted():
    """With an aggregator's noise the sentences say that it sees the exact sum and is trusted."""
    rows = explained(noise=NoiseFrom.AGGREGATOR)
    assert rows["promise"].endswith("It holds while the party that adds the noise is honest.")
    assert rows["against"].startswith("everybody but the aggregator, which opens the exact sum")
    assert "trusted to add the noise" in rows["against"]
    assert rows["what breaks it"].startswith("an aggregator that leaves its noise out or keeps the exact sum")
    assert "clients" not in rows["promise"]
    assert "1 add theirs, 1 honest ones are enough" in rows["noise of one party"]


@pytest.mark.parametrize(
    "choices", [{"clients": 1}, {"clients": 2}, {"colluders": 0}, {"clients": 5}], ids=["1", "2", "no colluders", "5"]
)
def test_unprotected_vectors_are_said(choices):
    """Without protection of the vectors the sentences say that the server sees each of them, for any number of them."""
    assert "the server sees every vector" in explained(**choices, protection="none")["against"]


def test_what_breaks_shares_is_named():
    """With shares it is members who withhold or tell their noise; further plans add up for everyone."""
    for noise in IN_SUMS:
        assert "another plan over the same data adds to it" in explained(noise=noise)["what breaks it"]
    assert explained()["what breaks it"].startswith("members that leave their noise out or tell it to others")


@pytest.mark.parametrize("noise", IN_SUMS)
def test_limits_of_a_record_promise_are_said(noise):
    """A record's promise says that clients and people with many records have less; a client's does not."""
    limit = "a client's records as a whole, or people with many records, are protected far less"
    assert limit in explained(noise=noise)["what breaks it"]
    assert "protected far less" not in explained(noise=noise, unit=Unit.CLIENT)["what breaks it"]


def test_client_is_told_with_its_bound():
    """A client's plan names the records that one client may bring, and whom it hides."""
    rows = explained(unit=Unit.CLIENT, max_records=48)
    assert "at most 48 per client" in rows["records"]
    assert "any one client's records were among the data" in rows["promise"]


def test_rounds_are_part_of_the_promise():
    """With refinement one promise covers all sums, and the rounds are said where the sum is."""
    rows = explained(refine=3, epsilon=8.0)
    assert "over all 4 sums together" in rows["promise"]
    assert "then 3 times update 3×5: 15 integers, over the same records" in rows["what is summed"]
    assert "gradient: σ" in rows["noise of one party"]
    assert "together" not in explained()["promise"]


@pytest.mark.parametrize("refine", [0, 2])
def test_exact_plan_says_that_it_promises_nothing(refine):
    """Without noise the promise is that there is none."""
    choices = {"refine": refine} if refine else {"radius": 1.0}
    assert explained(**EXACT, **choices)["promise"] == "no differential privacy: exact sums are opened (ε = ∞)"


def test_records_are_told_as_they_are_summed():
    """The features' row says the length, the grid and the normalisation of the plan."""
    assert "each record brought to length 1 (centred-unit), on a grid of 1024 steps" in explained()["features"]
    assert "length 1 (unit)" in explained(normalise=Normalisation.UNIT, centre=0.5)["features"]
    assert "joint length ≤ 2.5, on a grid of 65536 steps" in explained(**EXACT, radius=2.5)["features"]


def test_grid_saving_and_bad_records_are_told():
    """The bytes that the coarse grid saves are those of the setup; bad records count as zero."""
    setup = make_setup()
    rows = dict(explain(setup.facts))
    assert (
        f"{setup.plan.levels} steps in a record's length: {setup.facts.bytes_saved_by_grid} bytes fewer" in rows["grid"]
    )
    assert setup.facts.bytes_saved_by_grid > 0
    assert rows["a bad record"].startswith("counts as zero")


def test_prototypes_are_explained():
    """A method with two blocks has the noise of two blocks."""
    rows = explained(method="prototypes", parameters=())
    assert rows["method"] == "prototypes {}"
    assert re.findall(r"(\w+): σ", rows["noise of one party"]) == ["counts", "class_sums"]


@pytest.mark.parametrize(("clients", "epsilon", "doubted"), [(4, 4.0, True), (4, 4000.0, False), (40, 8.0, False)])
def test_gate_that_is_a_toss_is_doubted(clients, epsilon, doubted):
    """A class that all clients have should pass the gate: where the census's noise makes that unlikely, it is said."""
    setup = make_setup(clients, class_gate=1, dropouts=1, refine=2, epsilon=epsilon)
    passes = float(dict(explain(setup.facts))["class gate"].split(" where one holds it and ")[1].split()[0])
    assert bool(doubts_of(setup.facts)) == doubted == (passes < 0.95)


def test_rounds_say_who_may_return_and_what_exact_sums_tell():
    """Who was away returns where others can sign for it; exact sums over changing members are said to tell of one."""
    averaging = {"method": "fedavg", "parameters": (("rounds", 3),), "unit": Unit.CLIENT, "round_seconds": 90}
    said = explained(clients=4, **averaging)
    assert said["who was away"] == (
        "may return in a later round, shown what opened it by the signatures of 3 other clients"
    )
    assert "several exact sums" not in said
    assert ", 90 s for them to compute for a later round and join it; once more where too few" in said["waiting"]
    few = explained(clients=3, **averaging)["who was away"]
    assert few == "is in no later round: 3 other clients would have to sign what opened it, and there are 2"
    assert explained(refine=2)["who was away"] == "is in no later round"
    several = explained(clients=4, **averaging, **EXACT)["several exact sums"]
    assert "nearly that client's part" in several
    assert "hold the model still" not in several
    liar = explained(clients=4, **averaging, **EXACT, protection="shared")["several exact sums"]
    assert "Each aggregator can hold the model still by false sums" in liar
    assert "reads exactly, one client in every round" in liar
    assert not {"who was away", "several exact sums"} & set(explained())


def test_no_gate_is_no_doubt():
    """Without a gate, or without noise on its census, nothing is doubted."""
    exact = make_setup(4, class_gate=1, normalise=Normalisation.CENTRED_UNIT, **EXACT)
    assert doubts_of(make_setup(4).facts) == doubts_of(exact.facts) == []


UPDATES = {"method": "fedavg", "unit": Unit.CLIENT, "epsilon": 8.0}


@pytest.mark.parametrize(("clients", "rounds"), [(4, 2), (4, 8), (12, 8)])
def test_noise_of_updates_is_compared_with_the_longest(clients, rounds):
    """The row and the doubt go by √entries·σ of all clients' noise over their lengths laid end to end."""
    setup = make_setup(clients=clients, parameters=(("rounds", rounds),), **UPDATES)
    (block,), (noise,) = setup.sum.spec.blocks, setup.plan.noises
    length = setup.sum.spec.sensitivities[0].blocks[0].l2
    expected = math.sqrt(block.size * clients) * noise.sigma / (clients * length)
    assert f"on update {expected:.3g} times as long" in dict(explain(setup.facts))["noise of a round"]
    warned = [doubt for doubt in doubts_of(setup.facts) if "training follows the noise" in doubt]
    assert bool(warned) == (expected > 1) == (clients == 4)
    assert all(
        f"{expected:.2g} times as long as the longest sum of it that {clients} clients" in each for each in warned
    )


def test_sums_of_records_are_compared_with_nothing():
    """No plan knows how many records there are, and exact sums have no noise: neither has the row."""
    gradients = {"method": "fedavg", "parameters": (("gradients", 1),)}
    assert "noise of a round" not in explained(**gradients)
    assert "noise of a round" not in explained(**EXACT, method="fedavg", parameters=())
    assert "noise of a round" not in explained(unit=Unit.CLIENT)


def test_plan_names_the_positive_class(tmp_path):
    """Of two classes of a table the plan says which one is positive, or that none is declared; of others nothing."""
    schema = load_schema("heart-disease")
    for positive, said in (("absent", "; the positive class is absent"), ("", "; no positive class is declared")):
        data = PublicData.of_schema(replace(schema, positive=positive))
        roster = small_roster()
        plan = make_plan(data, roster, PlanChoices(), OperatingSystem())
        assert said in dict(explain(RoundSetup.of(plan, roster).facts))["classes"]
    assert "positive" not in explained()["classes"]
