"""FedDAT: what members send and keep, under which promises, and what is refused before anything is sent."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from torch.nn import functional

from methods import method_named
from methods.round import Examples, Local, OpenedTotal
from methods.training.feddat import public_start
from methods.training.training_round import MODEL, TrainingRound
from secagg.data import Dataset, open_dataset
from secagg.encoding import Grid
from secagg.errors import BadInput
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.features import Encoder, FeatureMap, open_backbone
from secagg.heads.descent import descend
from secagg.networks import TrainedModel
from secagg.networks.adapted import Dual, SharedAdapter
from secagg.networks.distillation import DistillingSettings, distilling, losses_of
from secagg.networks.programs import named_parameters
from secagg.privacy import Unit
from tests.methods.training import seeded, square
from tests.worlds.encoders import PLACES, QUESTIONS, save_encoder, save_triplets, write_table

PROTECTIONS = ("none", "masked", "shared", "encrypted")
NOISE = {"epsilon": 8.0, "delta": 1e-5, "adjacency": "add-remove"}
PARAMETERS = {"places": PLACES["vilt"], "rank": 3, "rounds": 2, "rate": 0.003, "batch": 8, "clip": 20.0}
TOLD = " ".join(f"{key}={value}" for key, value in PARAMETERS.items())
TEMPERATURE = 2.0
PRIVATE = {"sampling": 0.5, "steps": 2, "rate": 0.5}
GRID = Grid(1.0, 1 << 16)
CLASSES = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder, and triplets of two domains."""
    made = tmp_path_factory.mktemp("feddat")
    save_encoder(made / "vilt")
    save_triplets(made / "two.triplets", 15)
    return made


@pytest.fixture(scope="module")
def data(folder: Path) -> Dataset:
    """A member for each domain, with questions and answers of its own."""
    return open_dataset(str(folder / "two.triplets"))


@pytest.fixture(scope="module")
def encoder(folder: Path, data: Dataset) -> Encoder:
    """The encoder for these records."""
    opened = open_backbone(f"transformers:{folder / 'vilt'}", data.train.inputs.shape[1:])
    assert isinstance(opened, Encoder)
    return opened


def settings_of(folder: Path, **given: Any) -> SimulationSettings:
    """Two members of a domain each, who train as the seed says."""
    chosen = {"method": "feddat", "parameters": TOLD, "partition": "column:domain", "noise_seed": 5}
    chosen |= {"backbone": f"transformers:{folder / 'vilt'}", "colluders": 0}
    return SimulationSettings(**{**chosen, **given})


def first_round(**parameters: float | str) -> Any:
    """The first of two rounds."""
    round_ = method_named("feddat", {**PARAMETERS, **parameters}).begin(16, CLASSES, GRID.levels)
    assert isinstance(round_, TrainingRound)
    return round_


def local(encoder: Encoder, data: Dataset, rows: Any = slice(None), state: bytes = b"", sigma: float = 0.0) -> Local:
    """What a member has in a round."""
    inputs, labels = data.train.inputs[rows], data.train.labels[rows]
    examples = Examples.of(np.zeros((len(labels), 16), dtype=np.int64), labels)
    return Local(examples, CLASSES, GRID, 1, state, seeded(1), inputs, FeatureMap(encoder), sigma)


@pytest.mark.parametrize(
    ("parameters", "given"),
    [
        ("", {}),
        ("variant=averaged", {}),
        ("kind=lora places=4x16", {}),
        ("clip=1", {**NOISE, "unit": "client"}),
        ("sampling=0.5 steps=2 rate=0.5", {**NOISE, "noise": "member", "colluders": None}),
    ],
    ids=["exact", "averaged", "lora", "members", "records"],
)
def test_state_is_the_same_under_every_protection(
    monkeypatch: pytest.MonkeyPatch, folder: Path, data: Dataset, parameters: str, given: Mapping[str, Any]
) -> None:
    """After every round, and in the shared adapter: the bits are the same where members draw the same."""
    ended, found = [], list[str]()
    finalize = TrainingRound.finalize

    def noted(self: TrainingRound, opened: OpenedTotal) -> object:
        step = finalize(self, opened)
        found.append(step.next_round.state.digest.hex() if isinstance(step.next_round, TrainingRound) else "")
        return step

    monkeypatch.setattr(TrainingRound, "finalize", noted)
    names = {word.partition("=")[0] for word in parameters.split()}
    kept = [word for word in TOLD.split() if word.partition("=")[0] not in names]
    told = " ".join([*kept, parameters])
    by_clients = "epsilon" in given and "noise" not in given
    for protection in PROTECTIONS[1:] if by_clients else PROTECTIONS:
        found.clear()
        run = simulate_dataset(data, settings_of(folder, **{**given, "parameters": told, "protection": protection}))
        said = run.to_json()
        ended.append((*found, said["aggregate_sha256"], said["head_sha256"]))
        assert said["accuracy"] is None  # an adapter alone answers nothing
    assert len(set(ended)) == 1
    assert len(set(ended[0])) == 4


def plain_model(encoder: Encoder, shared: Mapping[str, torch.Tensor], own: Mapping[str, torch.Tensor] | None) -> Any:
    """The encoder with adapters as modules of its own, written down again: an adapter, or the mean of two."""

    class After(torch.nn.Module):
        """A feed-forward block and what adapters add to it."""

        def __init__(self, inner: torch.nn.Module, number: int) -> None:
            super().__init__()
            self.inner, self.number = inner, number

        def forward(self, *given: torch.Tensor) -> torch.Tensor:
            h = self.inner(*given)
            added = [self.add(h, each, prefix) for each, prefix in ((shared, "shared"), (own, "own")) if each]
            return h + sum(added) / len(added)

        def add(self, h: torch.Tensor, tensors: Mapping[str, torch.Tensor], prefix: str) -> torch.Tensor:
            at = f"{prefix}.{self.number}"
            inner = torch.relu(h @ tensors[f"{at}.down.weight"].T + tensors[f"{at}.down.bias"])
            return inner @ tensors[f"{at}.up.weight"].T + tensors[f"{at}.up.bias"]

    model = copy.deepcopy(encoder.module)
    for number, layer in enumerate(model.encoder.layer):
        layer.output = After(layer.output, number)
    return model


def scores(encoder: Encoder, model: Any, tensors: Mapping[str, torch.Tensor], x: np.ndarray) -> torch.Tensor:
    """The head on what the model pools."""
    whole = replace(encoder, module=model)
    return whole.pooled(torch.from_numpy(x)) @ tensors["head.weight"].T + tensors["head.bias"]


def test_a_round_is_the_papers(encoder: Encoder, data: Dataset) -> None:
    """A batch moves A_s by AdamW against the teacher, then A_c against A_s as it was: written down again."""
    round_ = first_round(batch=1000, ramp="off", rounds=1, clip=1.0)
    made = round_.contribute(local(encoder, data))
    program = Dual(16, CLASSES, round_.work.adapted.adapter)
    start = beside(round_.state.groups[MODEL].astype(np.float32).astype(np.float64), public_start(program))
    row = named_parameters(program, torch.tensor(start, dtype=torch.float32))
    tensors = {name: part.clone().requires_grad_() for name, part in row.items()}
    frozen = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    x, y = encoder.prepare(data.train.inputs), torch.tensor(data.train.labels)

    def divergence(teaching: torch.Tensor, learning: torch.Tensor) -> torch.Tensor:
        p = (teaching / 3).softmax(dim=1)
        return 9 * (p * (p.log() - (learning / 3).log_softmax(dim=1))).sum(dim=1).mean()

    optimiser = torch.optim.AdamW(tensors.values(), lr=0.003, betas=(0.9, 0.98), weight_decay=0.01)
    taught = scores(encoder, plain_model(encoder, frozen, tensors), tensors, x).detach()
    z = scores(encoder, plain_model(encoder, tensors, None), tensors, x)
    (functional.cross_entropy(z, y) + divergence(taught, z)).backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    again = scores(encoder, plain_model(encoder, frozen, tensors), tensors, x)
    (functional.cross_entropy(again, y) + divergence(z.detach(), again)).backward()
    optimiser.step()
    expected = torch.cat([each.detach().reshape(-1) for each in tensors.values()]).numpy()
    shared = round_.program.size
    moved = round_.work.mean(OpenedTotal(made.blocks, GRID))
    # Adam's first step is ±rate wherever a gradient is not 0: entries whose gradient is rounding may go either way
    assert np.mean(np.abs(moved - (expected - start)[:shared]) < 1e-4) > 0.97
    kept = round_.work.kept.row(made.state)
    assert np.mean(np.abs(kept - expected[shared:]) < 1e-4) > 0.97


def slopes(learning: torch.Tensor, teaching: torch.Tensor, labels: np.ndarray, pull: float) -> torch.Tensor:
    """Return d/dz (n, C) of the mean CE(z) + pull·KL(p ‖ q), p and q the teaching and the learning softmax at T.

    softmax(z) − y and pull·(q − p)/T (Hinton, Vinyals & Dean 2015, arXiv 1503.02531, Eq. 2), in float64.
    """
    z, told = (each.detach().double().numpy() for each in (learning, teaching))
    q, p = (scipy.special.softmax(each / TEMPERATURE, axis=1) for each in (z, told))
    slope = scipy.special.softmax(z, axis=1) - np.eye(CLASSES)[labels] + pull * (q - p) / TEMPERATURE
    return torch.from_numpy((slope / len(labels)).astype(np.float32))


def beside(shared: np.ndarray, row: np.ndarray) -> np.ndarray:
    """The row of all that is trained with this shared adapter, which comes first."""
    return np.concatenate([shared, row[len(shared) :]])


def lively() -> tuple[Dual, np.ndarray, np.ndarray]:
    """All that is trained, in a row, and the shared adapter of it, which answer otherwise: of numbers not small."""
    program = Dual(16, CLASSES, first_round().work.adapted.adapter)
    numbers = np.random.default_rng(8).normal(size=program.size).astype(np.float32).astype(np.float64)
    return program, numbers, numbers[: first_round().program.size]


def tensors_at(program: Dual, row: np.ndarray) -> dict[str, torch.Tensor]:
    """The tensors of all that is trained, by name, as leaves."""
    row = named_parameters(program, torch.tensor(row, dtype=torch.float32))
    return {name: part.clone().requires_grad_() for name, part in row.items()}


def in_a_row(tensors: Iterable[torch.Tensor]) -> np.ndarray:
    """All numbers, in float64."""
    return torch.cat([each.detach().reshape(-1) for each in tensors]).double().numpy()


@pytest.mark.parametrize(("ramp", "alpha"), [("off", 1.0), ("training", math.exp(-2.5))])
def test_private_step_follows_the_slopes_of_both_losses(
    encoder: Encoder, data: Dataset, ramp: str, alpha: float
) -> None:
    """Without noise or clipping a step over all records is the gradient of CE + α·T²·KL of A_s, and of its teacher.

    α is that of the middle of the training; each loss takes the other's scores as constants.
    """
    chosen = {"sampling": 1.0, "steps": 1, "rounds": 1, "rate": 1.0, "batch": 12, "clip": 40.0, "gradient_clip": 64.0}
    program, numbers, shared = lively()
    round_ = first_round(**chosen, temperature=TEMPERATURE, ramp=ramp)
    round_ = replace(round_, state=replace(round_.state, groups={MODEL: shared}))
    made = round_.contribute(local(encoder, data, slice(12), round_.work.kept.to_bytes(numbers)))
    tensors, frozen = tensors_at(program, numbers), tensors_at(program, numbers)
    x, labels = encoder.prepare(data.train.inputs[:12]), data.train.labels[:12]
    z_s = scores(encoder, plain_model(encoder, tensors, None), tensors, x)
    z_t = scores(encoder, plain_model(encoder, frozen, tensors), tensors, x)
    pull = alpha * TEMPERATURE**2
    torch.autograd.backward([z_s, z_t], [slopes(z_s, z_t, labels, pull), slopes(z_t, z_s, labels, pull)])
    expected = -in_a_row(each.grad for each in tensors.values() if each.grad is not None)
    after = round_.work.kept.row(made.state)
    moved = np.concatenate([round_.work.mean(OpenedTotal(made.blocks, GRID)), after - numbers[len(shared) :]])
    assert np.linalg.norm(moved - expected) < 2e-3 * np.linalg.norm(expected)


def test_both_steps_of_a_batch_follow_their_slopes(encoder: Encoder, data: Dataset) -> None:
    """A_s and the head step against the teacher as it was; then A_c and the moved head against A_s as it was."""
    rate, labels, (adapted, numbers, shared) = 0.05, data.train.labels[:12], lively()
    settings = DistillingSettings(1, rate, 12, temperature=TEMPERATURE)
    leaves, tensors, frozen = (tensors_at(adapted, numbers) for _ in range(3))
    x = encoder.prepare(data.train.inputs[:12])
    program = distilling(adapted.over(encoder), shared, settings, 0.0)
    optimiser = torch.optim.SGD(list(leaves.values()), lr=rate)
    records = torch.from_numpy(x), torch.from_numpy(labels)
    descend(optimiser, [0.7], lambda alpha: losses_of(program, leaves, settings, *records, alpha))

    def student() -> torch.Tensor:
        return scores(encoder, plain_model(encoder, tensors, None), tensors, x)

    def teacher() -> torch.Tensor:
        return scores(encoder, plain_model(encoder, frozen, tensors), tensors, x)

    z_s, z_t, by_hand = student().detach(), teacher().detach(), torch.optim.SGD(tensors.values(), lr=rate)
    for learning, teaching in ((student, z_t), (teacher, z_s)):
        z = learning()
        by_hand.zero_grad(set_to_none=True)
        z.backward(slopes(z, teaching, labels, 0.7 * TEMPERATURE**2))
        by_hand.step()
    expected, found, begun = (in_a_row(each.values()) for each in (tensors, leaves, frozen))
    assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected - begun)


def test_only_the_shared_adapter_leaves(folder: Path, encoder: Encoder, data: Dataset) -> None:
    """What is sent is as long as A_s; other answers, heads and own adapters are in what stays, and differ by member."""
    round_ = first_round()
    made = [round_.contribute(local(encoder, data, data.train.columns["domain"] == domain)) for domain in QUESTIONS]
    (spec,) = method_named("feddat", PARAMETERS).sums(16, CLASSES, GRID.levels)
    assert isinstance(round_.program, SharedAdapter)
    assert round_.program.size == 2 * (2 * 16 * 3 + 3 + 16)
    for each in made:
        assert set(each.blocks) == {"update"}
        assert each.blocks["update"].shape == spec.blocks[0].shape == (round_.work.encoding.padded,)
        assert square(each.blocks, "update") <= round_.work.encoding.squared_bound
        assert not any(name in each.state.decode("latin-1") for name in ("shared.", "green"))
    assert made[0].state != made[1].state


def test_members_end_with_both_models(folder: Path, encoder: Encoder, data: Dataset) -> None:
    """The shared adapter with the member's head, and the mean with its own adapter; both learn, and read back."""
    round_, states = first_round(rounds=3, rate=0.02, epochs=8), dict.fromkeys(QUESTIONS, b"")
    following: Any = round_
    rows = {name: data.train.columns["domain"] == name for name in QUESTIONS}
    for _ in range(3):
        round_ = following
        made = {name: round_.contribute(local(encoder, data, rows[name], states[name])) for name in QUESTIONS}
        states = {name: each.state for name, each in made.items()}
        opened = OpenedTotal({"update": sum(each.blocks["update"] for each in made.values())}, GRID, clients=2)
        step = round_.finalize(opened)
        following = step.next_round
    assert isinstance(step.artifact, TrainedModel)
    for name, state in states.items():
        models = round_.personal(state, opened)
        assert list(models) == ["shared", "personal"]
        for model in models.values():
            own = model.over(FeatureMap(encoder))
            x = encoder.prepare(data.train.inputs[rows[name]])
            assert own.evaluate(x, data.train.labels[rows[name]]).accuracy > 0.8
            assert all(
                np.array_equal(model.parameters[key], tensor) for key, tensor in step.artifact.parameters.items()
            )
    other = first_round(rank=2).work
    with pytest.raises(BadInput, match="the private state is not of dual-bottleneck"):
        round_.personal(other.kept.to_bytes(public_start(other.adapted)), opened)


def test_one_record_moves_a_private_step_by_one_clip(encoder: Encoder, data: Dataset) -> None:
    """At record level all that is trained is in each record's one clipped gradient: one more moves all by one clip."""
    clip = 0.05
    round_ = first_round(steps=1, sampling=1.0, batch=1, gradient_clip=clip, rate=1.0, clip=1.0)
    assert round_.work.private is not None

    def after(count: int) -> np.ndarray:
        made = round_.contribute(local(encoder, data, slice(count)))
        return np.concatenate([round_.work.mean(OpenedTotal(made.blocks, GRID)), round_.work.kept.row(made.state)])

    steps = [after(count) for count in (4, 5, 6)]
    for one, other in pairwise(steps):
        assert 0.5 * clip < float(np.linalg.norm(other - one)) <= clip * 1.001  # what leaves is rounded at random
    assert round_.work.spec(2).training is not None
    assert round_.work.spec(2).training.size == Dual(16, CLASSES, round_.work.adapted.adapter).size  # type: ignore[union-attr]


def test_nothing_but_noised_steps_is_kept(encoder: Encoder, data: Dataset) -> None:
    """Without a drawn record and without noise a private round leaves what it began at, of member and of plan."""
    round_ = first_round(**PRIVATE)
    made = round_.contribute(local(encoder, data, slice(0)))
    assert np.array_equal(round_.work.kept.row(made.state), round_.work.unsent.astype(np.float32))
    noisy = round_.contribute(local(encoder, data, slice(0), sigma=1e6))
    assert noisy.state != made.state


def test_steps_beyond_all_numbers_move_nothing(encoder: Encoder, data: Dataset) -> None:
    """At a rate that float32 does not hold a member sends zeros, and can go on with what it kept."""
    round_ = first_round(**{**PRIVATE, "rate": 1e30, "gradient_clip": 1e12, "batch": 1})
    made = round_.contribute(local(encoder, data, sigma=1e6))
    assert not made.blocks["update"].any()
    own = local(encoder, data, state=made.state, sigma=1e6)
    assert not replace(round_, number=2).contribute(own).blocks["update"].any()


def test_a_member_without_records_sends_zeros(encoder: Encoder, data: Dataset) -> None:
    """It is there with a zero update."""
    assert not first_round().contribute(local(encoder, data, slice(0))).blocks["update"].any()


def test_promises_are_of_members() -> None:
    """A whole update is inside its clip; by sampling the promise is about records, and the sum no further release."""
    (update,) = method_named("feddat", PARAMETERS).sums(16, CLASSES, GRID.levels)
    assert (update.per, update.is_additive, update.keeps_state, update.times) == (Unit.CLIENT, False, True, 2)
    (private,) = method_named("feddat", {**PARAMETERS, **PRIVATE}).sums(16, CLASSES, GRID.levels)
    assert not private.sensitivities
    assert private.training is not None


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"places": "2by16"}, "places are '2by16'; give how many and how wide"),
        ({"kind": "prefix"}, "no adapter 'prefix'; choose bottleneck or lora"),
        ({"rank": 0}, "rank is 0"),
        ({"rounds": 0}, "rounds is 0"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"ramp": "late"}, "no ramp 'late'"),
        ({"variant": "better"}, "no variant 'better'"),
        ({"rate": math.nan}, "rate|a rate"),
        ({"clip": 0.0}, "clip is 0.0"),
        ({"server": "sgd"}, "give average or momentum or adam"),
        ({"sampling": 2.0}, "sampling rate"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(parameters: dict[str, float | str], words: str) -> None:
    """A parameter outside its bounds is refused before any plan, named."""
    with pytest.raises(BadInput, match=words):
        method_named("feddat", {**PARAMETERS, **parameters})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"parameters": TOLD.replace("2x16", "3x16")}, "has the places 2x16 for bottleneck.*, the plan says 3x16"),
        ({"parameters": TOLD + " kind=lora"}, "has the places 4x16 for lora adapters"),
        ({"expand": 32}, "no places for adapters"),
        ({"backbone": "random-features:8"}, "takes inputs of shape|no places for adapters"),
        ({**NOISE, "unit": "record", "noise": "member"}, "do not train with noise of their own"),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_fit_the_encoder_is_refused(
    folder: Path, data: Dataset, given: dict[str, Any], words: str
) -> None:
    """Other places, no encoder, or a promise that the plan's training does not give: refused, and nothing is sent."""
    with pytest.raises(BadInput, match=words):
        simulate_dataset(data, settings_of(folder, **given))


def test_a_member_of_one_answer_is_refused(tmp_path: Path) -> None:
    """Before anything is read further: its head could learn nothing, and A_s would learn its one answer."""
    made = save_triplets(tmp_path / "one.triplets", 4, ("digits",))
    write_table(made, [[f"digits-{number}.png", "which digit is this ?", "1", "digits"] for number in (0, 2)])
    with pytest.raises(BadInput, match="domain digits: every record has the same answer"):
        open_dataset(str(made))
