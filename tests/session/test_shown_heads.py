"""The head that a server shows: its members take none that the plan does not describe, and no bytes make them fall."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from methods.slots.slots import told_centres
from secagg.encoding import sum_digest
from secagg.errors import ProtocolViolation
from secagg.heads import LinearHead, head_digest, parse_safetensors, to_safetensors
from secagg.protection.messages import Attachment, Outcome, RoundOpening
from secagg.session.outcome import (
    HEAD_FILE,
    MOST_LONGER,
    NO_ARTIFACT,
    OutcomeContents,
    check_outcome,
    conclude,
    pack_sum,
    require_lengths,
    require_shape,
    write_result,
)
from tests.worlds.session import SimulatedSession, make_session
from tests.worlds.setups import make_setup

MEMBERS = (1, 2, 3)
MEANS = np.ones((2, 3), dtype=np.float32)


def shown(outcome: OutcomeContents, head: LinearHead) -> OutcomeContents:
    """The outcome with another head, which it names; the opened sum is not shown."""
    content = to_safetensors(head, parse_safetensors(outcome.head)[1])
    return replace(outcome, head=content, head_sha256=bytes.fromhex(head_digest(head)))


def concluded(folder: Path, **choices: object) -> tuple[SimulatedSession, OutcomeContents, LinearHead]:
    """A session of three clients, its outcome, and the head in it."""
    world = make_session(folder, **choices)
    result = conclude(world.setup, MEMBERS, world.total(MEMBERS))
    outcome = write_result(world.setup, result, folder)
    told = OutcomeContents(MEMBERS, outcome.aggregate_sha256, outcome.head_sha256, (folder / HEAD_FILE).read_bytes())
    assert told.message == outcome
    return world, told, result.require_artifact()


@pytest.mark.parametrize("personalise", [0, 1])
def test_class_means_are_there_as_the_plan_says(tmp_path: Path, personalise: int) -> None:
    """A head with class means is refused under a plan without them, and one without under a plan with them."""
    world, outcome, head = concluded(tmp_path, parameters=(("personalise", personalise),))
    check_outcome(world.setup, shown(outcome, head))
    other = replace(head, means=None if personalise else MEANS)
    with pytest.raises(ProtocolViolation, match="about class means"):
        check_outcome(world.setup, shown(outcome, other))


@pytest.mark.parametrize(("classes", "features"), [(7, 3), (2, 9)])
def test_head_has_the_plans_shape(tmp_path: Path, classes: int, features: int) -> None:
    """A head for other classes or features is refused, although the outcome names it."""
    world, outcome, _ = concluded(tmp_path)
    other = LinearHead(np.zeros((classes, features), np.float32), np.zeros(classes, np.float32))
    with pytest.raises(ProtocolViolation, match=f"is for {classes} classes and {features} features"):
        check_outcome(world.setup, shown(outcome, other))


@pytest.mark.parametrize(
    "names",
    [
        ("stacked.0.weight", "stacked.0.bias"),
        ("residual.0.weight", "residual.0.bias"),
        ("recentring_matrix", "recentring_centre"),
        ("means",),
    ],
)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1, 1, 1)])
def test_tensors_of_any_shape_are_refused_in_words(
    tmp_path: Path, names: tuple[str, ...], shape: tuple[int, ...]
) -> None:
    """Scalars, empty and deep tensors beside the linear layer are the server's fault, and no accident of the client."""
    world, outcome, head = concluded(tmp_path)
    tensors = {"weight": head.weight, "bias": head.bias, **dict.fromkeys(names, np.ones(shape, np.float32))}
    lie = replace(outcome, head=save(tensors, metadata=parse_safetensors(outcome.head)[1]))
    with pytest.raises(ProtocolViolation, match="the head is not the plan's"):
        check_outcome(world.setup, lie)


def test_what_is_far_too_long_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """An outcome that names more bytes for a head than follow from the sum is refused by the length alone."""
    world, outcome, _ = concluded(tmp_path)
    own = conclude(world.setup, MEMBERS, world.total(MEMBERS))
    require_lengths(world.setup, outcome.message, own)
    named = Attachment(len(outcome.head) + 2 * MOST_LONGER, bytes(32))
    with pytest.raises(ProtocolViolation, match="bytes where"):
        require_lengths(world.setup, replace(outcome.message, head=(named,)), own)


def test_head_of_another_plan_is_refused(tmp_path: Path) -> None:
    """The plan's own weights under metadata that say anything else than the plan does are refused, field by field."""
    world, outcome, head = concluded(tmp_path)
    true = parse_safetensors(outcome.head)[1]
    others = [{**true, name: f"{value}0"} for name, value in true.items()]
    others += [{name: true[name] for name in true if name != left} for left in true]
    others += [{**true, "note": "more than the plan says"}]
    assert {"plan", "method"} <= set(true)
    check_outcome(world.setup, replace(outcome, head=to_safetensors(head, true)))
    for metadata in others:
        with pytest.raises(ProtocolViolation, match=r"belongs to something else than the plan|is not the plan.s"):
            check_outcome(world.setup, replace(outcome, head=to_safetensors(head, metadata)))


def test_opened_sum_has_the_length_of_the_plan() -> None:
    """A sum of any other length than the plan's is refused by the message alone, before a byte of it is fetched."""
    setup = make_setup(4, refine=1, protection="none")
    true = setup.context.packed_bytes
    told = Outcome(MEMBERS, bytes(32), NO_ARTIFACT, (), (Attachment(1, bytes(32)),), (Attachment(true, bytes(32)),))
    require_shape(setup, told)
    for length in (1, true - 1, true + 1, 2 * true, 4 * true):
        with pytest.raises(ProtocolViolation, match="another length than the plan's"):
            require_shape(setup, replace(told, release=(Attachment(length, bytes(32)),)))
    with pytest.raises(ProtocolViolation, match="another length than the plan's"):
        require_shape(setup, replace(told, release=told.release * 2))
    with pytest.raises(ProtocolViolation, match="another length than the plan's"):
        require_shape(make_setup(4, refine=1), told)  # masked sums have other files


def test_strangers_in_a_sum_are_refused_before_anything_is_fetched() -> None:
    """An outcome names clients of the round alone: the lengths of what clients fetch go by them."""
    setup = make_setup(4, refine=1, protection="shared")
    with pytest.raises(ProtocolViolation, match="names clients in the sum that are not in the round"):
        require_shape(setup, Outcome((*MEMBERS, 9), bytes(32), NO_ARTIFACT))


def test_metadata_of_null_are_none(tmp_path: Path) -> None:
    """A head whose file says `"__metadata__": null` belongs to no plan: the server's fault, and no accident either."""
    world, outcome, head = concluded(tmp_path)
    plain = save({"weight": head.weight, "bias": head.bias})
    text = plain[8 : 8 + int.from_bytes(plain[:8], "little")].rstrip()
    text = b'{"__metadata__":null,' + text[1:]
    lie = replace(
        outcome, head=len(text).to_bytes(8, "little") + text + plain[-4 * (head.weight.size + head.bias.size) :]
    )
    with pytest.raises(ProtocolViolation, match="belongs to something else than the plan"):
        check_outcome(world.setup, lie)


@pytest.mark.parametrize("entries", [1, 48])
def test_round_of_other_centres_leads_nowhere(entries: int) -> None:
    """Verified alone, a round that was opened with too few or too many centres is the server's fault, in words."""
    choices: dict[str, Any] = {"epsilon": math.inf, "delta": None, "adjacency": None, "radius": 100.0}
    choices["parameters"] = (("sampling", "cluster"), ("slots", 2), ("rounds", 2))
    setup = make_setup(4, method="mpft", protection="none", **choices)
    told = told_centres(1, np.zeros(entries, dtype=np.int64))
    following = setup.following(RoundOpening(2, setup.context.round_digest, bytes(32), Attachment.of(told)), told)
    total = np.ones(following.sum.layout.length, dtype=np.int64)
    centres, release = told_centres(2, np.ones(24, dtype=np.int64)), pack_sum(following, total)
    outcome = OutcomeContents((1, 2, 3, 4), sum_digest(total), NO_ARTIFACT, b"", centres, release)
    with pytest.raises(ProtocolViolation, match=f"leads nowhere: {entries} numbers are no centres for 3 classes"):
        check_outcome(following, outcome)
