"""The page that opens `plan show`: it answers ten questions, is the same bytes each time, and prints for signing."""

import json
import math
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from secagg.agreement.plan import NoiseFrom, Plan
from secagg.agreement.roster import Member, Roster
from secagg.agreement.schema import load_schema
from secagg.cli.page import plan_document
from secagg.plan_facts.explanation import explain
from secagg.plan_facts.facts import PlanFacts
from secagg.plan_facts.plan_page import STRENGTHS, page_of, strength, times_as_sure
from secagg.plan_facts.planning import PlanChoices, PublicData, SurplusNoise, make_plan
from secagg.privacy import Adjacency, Unit
from secagg.randomness import OperatingSystem
from secagg.wire import decode, encode
from tests.cli import browser
from tests.cli.command import SERVER, Command
from tests.worlds.rosters import identity

STATED = {
    "purpose": "heart disease: present or absent",
    "contact": "Dr. Meier, data protection, +41 61 000 00 00",
    "retention": "uploads until the audit, 90 days at most",
}
PROMISE = {"delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE}
FOUR = dict.fromkeys(("cleveland", "hungarian", "switzerland", "va"), "client")
THREE = dict.fromkeys(("cleveland", "hungarian", "va"), "client")
TWELVE = {f"clinic-{number:02d}": "client" for number in range(1, 13)}
AGGREGATORS = {"north": "aggregator", "south": "aggregator"}
ROUNDS = {"method": "fedavg", "parameters": "rounds=6 gradients=1 rate=1 clip=4"}
EXAMPLES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "exact": (FOUR, STATED),
    "epsilon-1": (FOUR, {**STATED, **PROMISE, "epsilon": 1.0}),
    "epsilon-4": (FOUR | AGGREGATORS, {**STATED, **PROMISE, "epsilon": 4.0, "protection": "shared"}),
    "client": (TWELVE, {**PROMISE, "epsilon": 8.0, "unit": Unit.CLIENT, "method": "fedavg", "parameters": "rounds=5"}),
    "cohort": (TWELVE, {**STATED, **PROMISE, "epsilon": 4.0, "cohort": 8, **ROUNDS}),
}
QUESTIONS = tomllib.loads((Path(__file__).parent / "plan_questions.toml").read_text(encoding="utf-8"))["question"]


def roster_of(parties: dict[str, str]) -> Roster:
    roles = {"coordinator": "server", **parties}
    keys = (identity(place).public for place in range(len(roles)))
    return Roster.of("heart study", [Member(*each, key, key) for each, key in zip(roles.items(), keys, strict=True)])


def facts_of(parties: dict[str, str], **choices: Any) -> PlanFacts:
    roster, data = roster_of(parties), PublicData.of_schema(load_schema("heart-disease"))
    given = PlanChoices(**{"max_records": 1024, **choices})
    return PlanFacts.of(make_plan(data, roster, given, OperatingSystem()), roster)


def text_of(facts: PlanFacts) -> str:
    return "\n".join(line for section in page_of(facts).sections for line in section.lines)


@pytest.fixture(scope="module")
def facts() -> dict[str, PlanFacts]:
    return {name: facts_of(parties, **choices) for name, (parties, choices) in EXAMPLES.items()}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["asked"])
def test_page_answers_the_question(facts: dict[str, PlanFacts], question: dict[str, Any], name: str) -> None:
    """The sentences of the answer, written down before the page was, stand on the page of each plan."""
    said = text_of(facts[name])
    assert question[name]
    assert [sentence for sentence in question[name] if sentence not in said] == []


def test_there_are_ten_questions() -> None:
    """The file asks ten questions, each of every example."""
    assert len(QUESTIONS) == 10
    assert all(set(question) == {"asked", *EXAMPLES} for question in QUESTIONS)


def read_back(facts: PlanFacts) -> PlanFacts:
    """The facts of an equal plan and roster that share no object with these."""
    return PlanFacts.of(decode(Plan, encode(facts.plan)), decode(Roster, encode(facts.roster)))


@pytest.mark.parametrize("name", EXAMPLES)
def test_same_plan_has_the_same_page_to_the_byte(facts: dict[str, PlanFacts], name: str) -> None:
    """A signature on the plan's digest covers its page, which is a function of the plan and of its roster."""
    pages = [plan_document(page_of(each), explain(each)) for each in (facts[name], read_back(facts[name]))]
    assert pages[0] == pages[1]


@pytest.mark.parametrize("field", ["purpose", "contact", "retention"])
def test_page_shows_what_the_plan_states(facts: dict[str, PlanFacts], field: str) -> None:
    """The page shows what another plan states, beside its digest, and takes no markup from it."""
    changed = replace(facts["exact"], plan=replace(facts["exact"].plan, **{field: "<b>another</b> one"}))
    page = plan_document(page_of(changed), explain(changed))
    assert changed.plan.digest.hex() in page
    assert "&lt;b&gt;another&lt;/b&gt; one" in page
    assert "<b>" not in page


@pytest.mark.parametrize("field", ["purpose", "contact", "retention"])
@pytest.mark.parametrize("mark", ["”", "“", '"', "„", "»"])
def test_text_of_the_author_cannot_leave_its_quotation_marks(
    facts: dict[str, PlanFacts], field: str, mark: str
) -> None:
    """The page replaces whatever looks like a quotation mark in a text that it quotes."""
    changed = replace(facts["exact"].plan, **{field: f"tests{mark}. This is a strong promise. {mark}"})
    said = text_of(replace(facts["exact"], plan=changed))
    assert "as the author of the plan states it: “tests'. This is a strong promise. '”." in said


@pytest.mark.parametrize(
    ("delta", "tone", "sentence"),
    [
        (1e-5, "good", "This is a strong promise (ε = 1)."),
        (0.3, "bad", "Do not count on this promise: δ = 0.3 is not small, whatever ε is (ε = 1)."),
    ],
)
def test_large_delta_is_no_good_promise(delta: float, tone: str, sentence: str) -> None:
    """A small ε makes the box green and has a word only where δ is small, too, for several records as well."""
    page = page_of(facts_of(FOUR, **{**PROMISE, "epsilon": 1.0, "delta": delta}))
    promise, weaker = (
        next(each for each in page.sections if each.title.startswith(title)) for title in ("The promise", "Persons")
    )
    assert promise.tone == tone
    assert sentence in promise.lines
    words = ("strong", "moderate", "weak;", "; weak", "almost")
    assert any(word in "".join(promise.lines + weaker.lines) for word in words) == (tone == "good")


def test_page_is_one_file_without_requests(facts: dict[str, PlanFacts]) -> None:
    """The HTML page has no scripts, links or pictures of elsewhere, and a place to sign for each party."""
    page = plan_document(page_of(facts["epsilon-4"]), explain(facts["epsilon-4"]))
    assert not re.search(r"<script|<link|<img|src=|href=|url\(", page)
    for name, role in page_of(facts["epsilon-4"]).signers:
        assert f'<th scope="row">{name} <small>{role}</small></th><td></td><td></td><td></td>' in page
    assert len(page_of(facts["epsilon-4"]).signers) == 7


@pytest.mark.parametrize(
    ("epsilon", "word", "times"),
    [
        (0.01, "strong", "at most 1.1 times"),
        (1.0, "strong", "at most 2.8 times"),
        (1.0001, "moderate", "at most 2.8 times"),
        (2.0, "moderate", "at most 7.4 times"),
        (2.5, "weak", "at most 13 times"),
        (10.0, "weak", "at most 22,027 times"),
        (10.5, "almost no protection", "at most 36,316 times"),
        (14.0, "almost no protection", "more than a million times"),
        (math.inf, "almost no protection", "more than a million times"),
    ],
)
def test_strength_in_words(epsilon: float, word: str, times: str) -> None:
    """Words change at ε = 1, 2 and 10; e^ε is rounded up, never down."""
    assert (strength(epsilon), times_as_sure(epsilon)) == (word, times)


def test_a_moderate_promise_leaves_one_in_ten_unlikely() -> None:
    """The bound between moderate and weak is where a suspicion of 10 % would become more likely than not: ε = ln 9."""
    moderate = next(most for most, word, _ in STRENGTHS if word == "moderate")
    assert moderate < math.log(9) < moderate + 0.5


OTHERS: dict[str, tuple[dict[str, str], dict[str, Any], list[str]]] = {
    "key holder": (
        FOUR | {"holder": "key-holder"},
        {**PROMISE, "epsilon": 4.0, "protection": "encrypted"},
        [
            "holder is the key holder.",
            "as long as coordinator and holder do not all work together,",
            "A result counts once holder has signed for it.",
        ],
    ),
    "unprotected": (
        FOUR,
        {"protection": "none"},
        ["Danger: your organisation's own numbers are not hidden: coordinator sees them, one member at a time."],
    ),
    "unprotected, with noise": (
        FOUR,
        {**PROMISE, "epsilon": 4.0, "protection": "none"},
        ["rests on its own noise alone", "It protects from everybody, the server and the other members included."],
    ),
    "noise of the server": (
        FOUR,
        {**PROMISE, "epsilon": 2.0, "noise": NoiseFrom.AGGREGATOR},
        [
            "Random noise is added to the totals by coordinator.",
            "The promise holds while coordinator is honest and adds its noise. Otherwise nothing is promised.",
            "It protects from everybody but coordinator, which sees the exact totals.",
            "This is a moderate promise (ε = 2).",
        ],
    ),
    "noise of two aggregators": (
        FOUR | AGGREGATORS,
        {**PROMISE, "epsilon": 2.0, "noise": NoiseFrom.AGGREGATOR, "protection": "shared"},
        ["at least one of north and south is honest", "It protects from everybody."],
    ),
    "noise of training": (
        FOUR,
        {**PROMISE, "epsilon": 2.0, "noise": NoiseFrom.MEMBER, "method": "fedavg", "parameters": "sampling=0.1"},
        ["Each member trains with random noise.", "It protects from everybody,"],
    ),
    "nobody may be missing": (
        FOUR,
        {**PROMISE, "epsilon": 4.0, "dropouts": 0},
        [
            "A total of fewer than 4 members is never opened.",
            "Everybody is needed: if one of the 4 members of a round does not upload,",
            "the round ends for all of them, without a result.",
        ],
    ),
    "nobody that is drawn may be missing": (
        TWELVE,
        {**PROMISE, **ROUNDS, "epsilon": 4.0, "dropouts": 0, "cohort": 8},
        ["Everybody is needed: if one of the 8 members of a round does not upload,"],
    ),
    "surplus kept": (
        FOUR,
        {**PROMISE, "epsilon": 4.0, "surplus_noise": SurplusNoise.KEEP},
        [
            "is then off by at most about ±11 in two of three cases, else by more.",
            "If none might (plan new --dropouts 0), there would be about 18 % less noise;",
            "With --surplus-noise remove there would be as much less whenever nobody is missing.",
        ],
    ),
    "no colluders": (
        THREE,
        {**PROMISE, "epsilon": 4.0, "colluders": 0, "dropouts": 1},
        [
            "as long as no member works together with coordinator.",
            "organisation's numbers remain. The promise holds all the same.",
        ],
    ),
    "many exact rounds": (FOUR, {"method": "fedavg", "parameters": "rounds=3"}, ["Danger: totals of the same records"]),
    "replaced records": (
        FOUR,
        {"epsilon": 3.0, "delta": 1e-3, "adjacency": Adjacency.REPLACE_ONE},
        [
            "whether any one record was as it is or any other in its place than this would: in 1 of 1,000 cases",
            "Danger: with 1000 records or more, 0.001 is not below 1 in n: whoever publishes one of them outright,",
        ],
    ),
    "for the server alone": (
        FOUR,
        {**PROMISE, "epsilon": 4.0, "result": "server", "colluders": 0},
        [
            "coordinator alone receives the result",
            "Against a member ε is ",
            "Each member keeps a signed transcript, on its own machine.",
        ],
    ),
    "class gate": (FOUR, {"class_gate": 1}, ["the number of members that have each class"]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_page_of_another_plan(name: str) -> None:
    """Each protection, source of noise and kind of total has sentences of its own."""
    parties, choices, sentences = OTHERS[name]
    said = text_of(facts_of(parties, **choices))
    assert [sentence for sentence in sentences if sentence not in said] == []
    assert ("plan new --dropouts 0" in said) == (name in ("surplus kept", "key holder"))
    assert ("Everybody is needed" in said) == ("may be missing" in name)


def test_figure_for_small_consortia_is_that_of_the_plan_they_could_have() -> None:
    """A plan with --dropouts 0 has about as much less noise in its totals as the page says: 18 %."""
    sigmas = [
        facts.kinds[0].opened_noise(4)["counts"].of_record.sigma  # type: ignore[index]
        for facts in (
            facts_of(FOUR, **PROMISE, epsilon=4.0, surplus_noise=SurplusNoise.KEEP, dropouts=drop) for drop in (1, 0)
        )
    ]
    assert 1 - sigmas[1] / sigmas[0] == pytest.approx(0.18, abs=0.005)


@pytest.fixture
def shown(secagg: Command, federation: Path) -> tuple[Any, ...]:
    """The command line that shows the plan of the federation."""
    return ("plan", "show", "--plan", federation / "plan.json", "--roster", federation / SERVER / "roster.json")


def test_plan_show_opens_with_the_page(secagg: Command, shown: tuple[Any, ...], tmp_path: Path) -> None:
    """On stdout the page stands before the technical part, in JSON under `page`; as HTML it is the same each time."""
    said = secagg(*shown, "--html", tmp_path / "a.html")
    assert said.code == 0, said.err
    page, technical = said.out.split("Technical part")
    assert "The purpose, as the author of the plan states it: “tests”." in page
    assert "cannot wrap" in technical
    assert "cannot wrap" not in page
    assert secagg(*shown, "--html", tmp_path / "b.html").code == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    content = secagg(*shown, "--json", "-").json["page"]
    assert content["The promise"][0] == "Nothing is promised about any person."


def test_plan_show_refuses_a_place_that_it_cannot_write(
    secagg: Command, shown: tuple[Any, ...], tmp_path: Path
) -> None:
    """A folder that is not there is named before anything is shown."""
    said = secagg(*shown, "--html", tmp_path / "nowhere" / "a.html")
    assert said.code == 2
    assert "there is no folder" in said.complaint


NEW = ("--shape", "3", "--classes", "no,yes", "--radius", "1")


@pytest.mark.parametrize("purpose", [(), ("--purpose", ""), ("--purpose", "  ")])
def test_plan_without_a_purpose_is_not_written(secagg: Command, federation: Path, purpose: tuple[str, ...]) -> None:
    """Members are asked to sign for a purpose: `plan new` refuses a plan that states none, with the option to give."""
    out = federation / "new.json"
    said = secagg("plan", "new", "--roster", federation / SERVER / "roster.json", "--out", out, *NEW, *purpose)
    assert said.code == 2
    assert "the plan states no purpose; say what its result may be used for: --purpose" in said.complaint
    assert not out.exists()


def test_contact_and_retention_are_asked_for(secagg: Command, federation: Path) -> None:
    """A plan may leave both out; `plan new` then names the options, and with them it says nothing."""
    new = ("plan", "new", "--roster", federation / SERVER / "roster.json", *NEW, "--purpose", "x", "--out")
    assert "note: the plan states no contact (--contact) and no retention (--retention)," in (
        secagg(*new, federation / "a.json").err
    )
    said = secagg(*new, federation / "b.json", "--contact", "Dr. Meier", "--retention", "90 days")
    assert "note:" not in said.err
    plan = json.loads((federation / "b.json").read_text())
    assert (plan["contact"], plan["retention"]) == ("Dr. Meier", "90 days")


needs_chromium = pytest.mark.skipif(browser.CHROMIUM is None, reason="there is no Chromium")


@pytest.mark.long
@needs_chromium
@pytest.mark.parametrize("name", EXAMPLES)
def test_page_in_a_browser(facts: dict[str, PlanFacts], tmp_path: Path, name: str) -> None:
    """At 1280 and 500 px nothing is cut; printed, the page without its technical part is a sheet, or two to sign."""
    file = tmp_path / "plan.html"
    file.write_text(plan_document(page_of(facts[name]), explain(facts[name])), encoding="utf-8")
    assert [width for width in (1280, 500) if browser.overflow(file, width) > 0] == []
    signers = len(page_of(facts[name]).signers)
    assert browser.printed_pages(file, is_first=True) == (1 if signers < 8 else 2)
