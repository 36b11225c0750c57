"""Adaptation in simulations: the same head, expected local accuracy by hand, domains, and what is refused."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from secagg.data import Dataset, Records
from secagg.encoding import Grid, Normalisation
from secagg.encoding.grid import Origin
from secagg.errors import BadInput
from secagg.experiments.client_accuracy import AdaptedClients, adapt_clients
from secagg.experiments.features import Features
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.heads import LinearHead, head_digest
from secagg.heads.adaptation import Adaptation

DOMAINS = np.array(["art", "photo"])
PLAIN = SimulationSettings(clients=3, radius=9.0)
DISTIL = replace(PLAIN, adapt="distil:1:4")
GRID = Grid(9.0, 1 << 16, 0.0, Normalisation.NONE)
HEAD = LinearHead(np.array([[1, 0], [-1, 0]], dtype=np.float32), np.zeros(2, dtype=np.float32))
"""Class 0 where the first feature is above 0."""


def records(seed: int, count: int, *, told: bool = True) -> Records:
    """Records of two classes in four dimensions and two domains; the domain moves them."""
    number = np.arange(count)
    labels, domain = number % 2, number // 2 % 2
    features = (
        np.random.default_rng(seed).normal(size=(count, 4)) + 2 * labels[:, None] + domain[:, None] * [2, 0, -2, 0]
    )
    columns = {"domain": DOMAINS[domain]} if told else {}
    return Records(features, labels, columns, Origin.of(f"made up {seed}", number))


def dataset(*, told: bool = True) -> Dataset:
    """Sixty training records and forty held-out ones."""
    parts = records(1, 60, told=told), records(2, 40, told=told)
    return Dataset("domains", "features", *parts, ("a", "b"), None, None, None)


def by_hand(train: list[tuple[int, str]], test: list[tuple[float, int, str]]) -> Features:
    """Features (first feature given, second 0) with a label and a domain each."""

    def made(firsts: list[float], labels: list[int], domains: list[str]) -> Records:
        rows = np.array([[first, 0.0] for first in firsts])
        return Records(rows, np.array(labels), {"domain": np.array(domains)}, Origin.of("hand", np.arange(len(rows))))

    own = made([1.0 - 2 * label for label, _ in train], [label for label, _ in train], [name for _, name in train])
    held_out = made(*(list(column) for column in zip(*test, strict=True)))  # type: ignore[arg-type]
    return Features.of(Dataset("hand", "features", own, held_out, ("a", "b"), None, None, None), PLAIN)


def adapted(features: Features, clients: list[list[int]]) -> AdaptedClients:
    """By plain fine-tuning of `HEAD`."""
    rows = [np.array(each, dtype=np.int64) for each in clients]
    return adapt_clients(features, rows, HEAD, "fedcgs", GRID, Adaptation("distil", 0.0))


def test_nothing_else_changes() -> None:
    """The sum and the head are bit for bit those of a simulation without adaptation, which says null."""
    plain, run = (simulate_dataset(dataset(), settings) for settings in (PLAIN, DISTIL))
    assert run.head is not None
    assert plain.head is not None
    assert head_digest(run.head) == head_digest(plain.head)
    assert plain.to_json()["adaptation"] is None
    content = run.to_json()["adaptation"]
    assert run.adapted is not None
    assert content == asdict(run.adapted)
    assert content["how"] == "distil:1:4"
    assert content["clients"] == 3
    assert all(0 <= value <= 1 for key, value in content.items() if key.startswith(("local", "in_domain")))


def test_local_accuracy_is_expected_under_the_clients_own_shares() -> None:
    """Accuracies of (domain, class) cells, by hand, weighted by the client's shares; cells without a test are left out.

    The client has three records of (0, art), one of (1, art) and one of (1, photo), which is never held out. The head
    gets one of two right of (0, art), and all of (1, art): (3·½ + 1·1)/4.
    """
    features = by_hand(
        [(0, "art")] * 3 + [(1, "art"), (1, "photo")],
        [(1.0, 0, "art"), (-1.0, 0, "art"), (-1.0, 1, "art"), (-1.0, 1, "art"), (-1.0, 0, "photo")],
    )
    assert adapted(features, [[0, 1, 2, 3, 4]]).local_before == pytest.approx(2.5 / 4)


def test_domains_are_told_apart() -> None:
    """In-domain is the held-out records of the client's domains, out-of-domain all others; the mean is over records."""
    features = by_hand(
        [(0, "art"), (1, "art"), (0, "photo"), (1, "photo")],
        [(1.0, 0, "art"), (1.0, 1, "art"), (1.0, 0, "photo"), (-1.0, 1, "photo")],
    )
    one = adapted(features, [[0, 1]])
    assert (one.in_domain_before, one.out_of_domain_before) == (0.5, 1.0)
    both = adapted(features, [[0, 1], [2, 3]])
    assert (both.in_domain_before, both.out_of_domain_before) == (0.75, 0.75)
    mixed = adapted(features, [[0, 1, 2, 3]])
    assert mixed.in_domain_before == 0.75
    assert mixed.out_of_domain_before is None


def test_one_model_has_one_accuracy_in_and_out_of_domain() -> None:
    """Before adaptation both are the accuracy on all held-out records, however many each domain has (MPFT's Eq. 3)."""
    features = by_hand(
        [(0, "art"), (1, "art"), (0, "photo"), (1, "photo"), (0, "sketch"), (1, "sketch")],
        [(1.0, 0, "art"), (1.0, 1, "art"), (1.0, 1, "art"), (1.0, 0, "photo"), (-1.0, 1, "photo"), (1.0, 1, "sketch")],
    )
    found = adapted(features, [[0, 1], [2, 3], [4, 5]])
    assert found.in_domain_before == pytest.approx(3 / 6)
    assert found.out_of_domain_before == pytest.approx(3 / 6)


def test_clients_that_cannot_be_measured_are_left_out() -> None:
    """An empty client, and one without held-out records like its own, do not count; none left is refused."""
    features = by_hand([(0, "art"), (1, "art"), (0, "photo")], [(1.0, 0, "art"), (-1.0, 1, "art")])
    assert adapted(features, [[0, 1], [], [2]]).clients == 1
    with pytest.raises(BadInput, match="no client has records"):
        adapted(features, [[], [2]])


def test_bad_records_are_left_out() -> None:
    """A record that a plan with noise does not count, in training or held out, changes nothing."""
    clean = by_hand([(0, "art"), (1, "art")], [(1.0, 0, "art"), (-1.0, 1, "art")])
    dirty = by_hand([(0, "art"), (1, "art"), (-1, "art")], [(1.0, 0, "art"), (-1.0, 1, "art"), (5.0, -1, "art")])
    assert adapted(dirty, [[0, 1, 2]]) == adapted(clean, [[0, 1]])


def test_data_without_domains() -> None:
    """Without the column there is no in-domain or out-of-domain accuracy."""
    run = simulate_dataset(dataset(told=False), DISTIL)
    assert run.adapted is not None
    found = asdict(run.adapted)
    assert {value for key, value in found.items() if "domain" in key} == {None}


@pytest.mark.parametrize(
    "changes", [{"class_gate": 2}, {"epsilon": 8.0, "delta": 1e-3, "adjacency": "add-remove", "radius": None}], ids=str
)
def test_adaptation_follows_noise_and_gate(changes: dict[str, object]) -> None:
    """Class means come from noisy sums as well, and go through the class gate."""
    align = replace(PLAIN, adapt="align:1:8", parameters="personalise=1")
    run = simulate_dataset(dataset(), replace(align, **changes))  # type: ignore[arg-type]
    assert run.head is not None
    assert run.head.means is not None
    assert run.adapted is not None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"adapt": "align"}, "cannot adapt by 'align'"),
        ({"adapt": "align:1"}, "personalise=1"),
        ({"adapt": "align:1", "method": "fedtc"}, "no class means"),
        ({"adapt": "distil:1", "refine": 1}, "refined head"),
        ({"adapt": "distil:1", "leave_out": "domain=art"}, "leave out one of them"),
        ({"adapt": "distil:1", "method": "local-only", "protection": "none", "radius": None}, "and no adapt"),
    ],
    ids=str,
)
def test_what_cannot_be_adapted_is_refused(changes: dict[str, object], words: str) -> None:
    """Unreadable texts, heads without means, refined heads, left-out domains and baselines are refused in words."""
    with pytest.raises(BadInput) as refusal:
        simulate_dataset(dataset(), replace(PLAIN, **changes))  # type: ignore[arg-type]
    assert words in str(refusal.value)


def test_data_without_held_out_records_are_refused() -> None:
    """There is nothing to measure on."""
    with pytest.raises(BadInput, match="nothing is held out"):
        simulate_dataset(replace(dataset(), test=None), DISTIL)
