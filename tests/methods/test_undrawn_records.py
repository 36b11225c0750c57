"""Every method with DP-SGD: a record that no step draws changes nothing that leaves or that feeds a later round.

Without noise, and with draws that depend on the step and the record's place alone, a member contributes twice: with its
records, and with further ones that no step draws. What only noised steps may have decided has the same bits. Blocks
that are releases of their own (sums of projections, scores) move in the row of these records, as far as is declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from methods import METHODS, method_named
from methods.method import Method, SumSpec
from methods.own_models.local_projection import SENDS
from methods.round import Contribution, Examples, Local, OpenedTotal, Round
from secagg.data import open_dataset
from secagg.encoding import Grid, Normalisation, quantise
from secagg.features import Encoder, FeatureMap, open_backbone
from secagg.heads import parse_tensors
from secagg.networks import private_training, record_gradients
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.worlds.encoders import PLACES, save_encoder, save_triplets

GRID = Grid(1.0, 1 << 20, 0.0, Normalisation.UNIT)
CLASSES, DIMENSION, ENCODED = 4, 6, 16
OWN, OTHER, FURTHER = slice(0, 24), slice(24, 30), slice(30, 35)
OWN_LABELS = np.array([1] + [0] * 23)
"""One record of class 1, none of classes 2 and 3."""
OTHER_LABELS = np.array([0, 1, 2, 0, 1, 2])
"""Nobody has records of class 3, so that it has no prototype."""
DRAWABLE = 8
"""No step draws a record at this place or later, be it among all or among those that a round trains on."""
COMMON = {"rounds": 2, "cap": 0, "sampling": 0.5, "steps": 3, "batch": 4, "rate": 0.5, "clip": 50.0, "width": 8}
SMALL: Mapping[str, dict[str, Any]] = {
    "feddat": {"places": PLACES["vilt"], "rank": 2},
    "fedpop": {"fixed": "sampling=0.5;steps=3;batch=4;clip=50", "space": "rate=log:0.1:1", "population": 2},
    "fraug": {
        "model": "mlp:8", "latent": 4, "hidden": 4, "momentum": 0.0,
        "generator_distance": "l2", "transfer_distance": "l2",
    },
}  # fmt: skip


def has_sampling(name: str) -> bool:
    """Whether members can train by DP-SGD, by a rate of the method's own or of the method that it tunes."""
    known = method_named(name).parameters
    return isinstance(known.get("sampling"), float) or "fixed" in known


PRIVATE = [name for name in METHODS if has_sampling(name)]


class ByCall:
    """Bytes by the call and the place in it, so that a longer request shifts none; words from DRAWABLE on are high."""

    def __init__(self, name: str) -> None:
        self.source = SeededRandomness(name.encode(), TOKEN)

    def bytes(self, count: int) -> bytes:
        """Return the call's bytes, with words that no sampling rate below 1 draws where further records may be."""
        drawn = bytearray(self.source.bytes(count))
        for start in range(8 * DRAWABLE, min(count, 8 * OTHER.stop), 8):
            drawn[start + 7 : start + 8] = b"\xff"[: max(0, count - start - 7)]
        return bytes(drawn)


@dataclass(frozen=True)
class World:
    """Records (n, d) with raw inputs (n, …) where a method reads these, and what made the one of the other."""

    records: Any
    inputs: Any = None
    feature_map: FeatureMap | None = None

    def contribution(self, round_: Round, rows: Any, labels: Any, state: bytes = b"", member: int = 1) -> Contribution:
        """What the member contributes to the round of the records at `rows`; it draws the same each time."""
        examples = Examples.of(self.records[rows], np.asarray(labels))
        inputs = None if self.inputs is None else self.inputs[rows]
        source = ByCall(f"member {member}")
        return round_.contribute(Local(examples, CLASSES, GRID, member, state, source, inputs, self.feature_map))


@pytest.fixture(scope="module")
def of_features() -> World:
    """Records around the axes."""
    features = np.random.default_rng(3).normal(size=(FURTHER.stop, DIMENSION))
    return World(quantise(features + 2 * np.eye(DIMENSION)[np.arange(FURTHER.stop) % 3], GRID))


@pytest.fixture(scope="module")
def of_inputs(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Pictures with questions, and the encoder that they are for."""
    folder = tmp_path_factory.mktemp("encoder")
    save_encoder(folder / "vilt")
    inputs = open_dataset(str(save_triplets(folder / "all.triplets", FURTHER.stop, ("colours",)))).train.inputs
    inputs = np.concatenate([inputs] * 2)[: FURTHER.stop]
    encoder = open_backbone(f"transformers:{folder / 'vilt'}", inputs.shape[1:])
    assert isinstance(encoder, Encoder)
    return World(np.zeros((len(inputs), ENCODED), dtype=np.int64), inputs, FeatureMap(encoder))


def private_form(name: str) -> Method:
    """The method as members train it with DP-SGD."""
    known = method_named(name).parameters
    return method_named(name, {key: value for key, value in COMMON.items() if key in known} | SMALL.get(name, {}))


def accounted(state: bytes) -> dict[str, bytes]:
    """What of a private state feeds later contributions: its tensors, or where some are marked as sent by, those."""
    tensors = parse_tensors(state)[0] if state else {}
    marked = {name: tensor for name, tensor in tensors.items() if name.startswith(SENDS)}
    return {name: tensor.tobytes() for name, tensor in (marked or tensors).items()}


def check_same(spec: SumSpec, old: Contribution, new: Contribution, further: int) -> None:
    """So many further records of one class changed nothing but releases of their own, and these as declared."""
    assert spec.training is not None
    releases = [*spec.training.further, *(each for known in spec.sensitivities for each in known.blocks)]
    lengths = {each.name: each.l2 for each in releases}
    for name, block in old.blocks.items():
        moved = (new.blocks[name] - block).reshape(len(block), -1).astype(object)
        assert (moved**2).sum() <= (further * lengths.get(name, 0.0)) ** 2, name
        assert moved.any(axis=1).sum() <= 1, name
    assert accounted(new.state) == accounted(old.state)


@pytest.mark.parametrize("name", PRIVATE)
def test_record_that_no_step_draws_changes_nothing(name: str, request: pytest.FixtureRequest) -> None:
    """For a further record of a class of one record, and for five of a class of none: the same bits, in every round."""
    method = private_form(name)
    world: World = request.getfixturevalue("of_inputs" if method.traits.reads_inputs else "of_features")
    shape = world.records.shape[1], CLASSES, GRID.levels
    (spec,), state, own = method.sums(*shape), b"", np.arange(OWN.stop)
    round_: Round | None = method.begin(*shape)
    while round_ is not None:
        old = world.contribution(round_, own, OWN_LABELS, state)
        for label, count in ((1, 1), (3, 5)):
            rows = np.r_[own, np.arange(FURTHER.start, FURTHER.start + count)]
            new = world.contribution(round_, rows, np.r_[OWN_LABELS, [label] * count], state)
            check_same(spec, old, new, count)
        other = world.contribution(round_, OTHER, OTHER_LABELS, member=0)
        blocks = {each: old.blocks[each] + other.blocks[each] for each in old.blocks}
        following = round_.finalize(OpenedTotal(blocks, GRID, clients=2, members=(0, 1))).next_round
        if following is None:
            exchanged = world.contribution(round_, np.r_[FURTHER.start, own[1:]], OWN_LABELS, state)
            assert any((exchanged.blocks[each] != old.blocks[each]).any() for each in old.blocks)
            assert accounted(exchanged.state) != accounted(old.state) or not old.state
        round_, state = following, old.state


@pytest.mark.parametrize("name", [name for name in PRIVATE if not method_named(name).traits.reads_inputs])
def test_every_step_of_every_round_draws_anew(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any two steps of a member share more than a fifth and less than four fifths of their records, at the rate ½.

    Of 80 records or more: independent draws fail this with a probability below 10⁻⁶, over the seed.
    """
    generator = np.random.default_rng(4)
    examples = Examples.of(quantise(generator.normal(size=(110, DIMENSION)), GRID), np.arange(110) % 3)
    method, source, drawn = private_form(name), SeededRandomness(b"anew", TOKEN), list[set[bytes]]()

    def spied(program: Any, weights: Any, x: Any, labels: Any, **how: Any) -> Any:
        drawn.append({row.tobytes() for row in x})
        return record_gradients(program, weights, x, labels, **how)

    monkeypatch.setattr(private_training, "record_gradients", spied)
    shape, state = (DIMENSION, CLASSES, GRID.levels), b""
    round_: Round | None = method.begin(*shape)
    while round_ is not None:
        part = round_.contribute(Local(examples, CLASSES, GRID, 1, state, source))
        state = part.state
        round_ = round_.finalize(OpenedTotal(part.blocks, GRID, members=(1,))).next_round
    assert len(drawn) >= 3
    for one, other in combinations(drawn, 2):
        assert 0.2 < len(one & other) / min(len(one), len(other)) < 0.8


def test_every_training_with_noise_is_tried() -> None:
    """The registry's methods with DP-SGD are found, and each declares the steps that are tried here."""
    assert set(PRIVATE) >= {"fedavg", "feddat", "fedpcl", "fedpop", "fedproto", "fraug"}
    for name in PRIVATE:
        (spec,) = private_form(name).sums(ENCODED, CLASSES, GRID.levels)
        assert spec.training is not None
        assert spec.training.steps == 3
