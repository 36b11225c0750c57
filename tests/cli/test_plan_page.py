"""The page that opens `plan show`: it answers ten questions, is the same bytes each time, and prints for signing."""

import json
import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from secagg.agreement.plan import NoiseFrom, Plan, write_plan
from secagg.agreement.roster import Member, Roster
from secagg.agreement.schema import load_schema
from secagg.cli.page import plan_document
from secagg.plan_facts.explanation import explain
from secagg.plan_facts.facts import PlanFacts
from secagg.plan_facts.plan_page import STRENGTHS, page_of, strength, times_as_sure
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.privacy import Adjacency, Unit
from secagg.randomness import OperatingSystem
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
    given = PlanChoices(**{"max_records": 1024, "refine": None, **choices})
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
