"""What prototypes in the clear show of single records, beside as many quotients of slot sums: CIFAR-10 and ResNet-18.

`pytest -m long -rP tests/threat_models/test_prototypes_leak.py` prints the table; with `--basetemp DIR` the pictures
are in DIR.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from methods.baselines.baseline import ClientData
from methods.baselines.fedtc_set import FedTCSet
from methods.baselines.mpft_samples import MPFTRandom
from methods.round import Examples
from methods.slots.fedtc import FedTC, prototypes
from methods.slots.slots import slot_of
from tests.threat_models.attacks.sums import plan_of, records_of
from tests.threat_models.backbones import ResNet18
from threat_models.attacks.gaussian_likelihood import MOMENTS, fit, total
from threat_models.attacks.membership.metrics import Scores
from threat_models.attacks.reconstruction.inversion import CLASS, RAW, choose_inverter, score
from threat_models.estimation.intervals import bootstrap, clopper_pearson
from threat_models.evidence.simulation import join_records
from threat_models.report.html import png
from threat_models.session import AuditRecords, Knowledge

CLASSES, CLIENTS, EACH = 10, 10, 50
"""Every client has 50 records of each class: batches of 5, 10 and 50 leave none over."""
BATCHES = (5, 10, 50)
INVERTED = 4
"""Records of each class that are inverted."""
CONTROL_LEVEL = 0.001
"""Of the interval of a control, which has no reason to be apart from chance."""


@dataclass(frozen=True, eq=False)
class Federation:
    """Members, client by client; as many strangers; public records with images, others without; who has an image."""

    plan: object
    members: AuditRecords
    strangers: AuditRecords
    public: AuditRecords
    others: AuditRecords
    pictured: tuple[np.ndarray, np.ndarray]

    @property
    def clients(self):
        """Each client's records."""
        return [self.members.take(rows) for rows in np.split(np.arange(len(self.members)), CLIENTS)]


@dataclass(frozen=True, eq=False)
class Shown:
    """What the server has: means (p, d) in units of R_q, their classes and sizes, and which a member is in, -1: none.

    `owners` is whose each is; `slots` which one each stranger would be in: None where that is not known.
    """

    rows: np.ndarray
    labels: np.ndarray
    sizes: np.ndarray
    of: np.ndarray
    owners: np.ndarray | None = None
    slots: np.ndarray | None = None


def federation(folder, seed):
    """All 60,000 stored features, dealt by the seed; of the 300 of a class that have images 60, 100 and 140."""
    with (
        np.load(folder / "cifar10_resnet18_layer3_features.npz") as stored,
        np.load(folder / "cifar10_images_3k.npz") as kept,
    ):
        features = np.concatenate([stored["train_features"], stored["test_features"]]) * stored["scale"].astype(float)
        labels = np.concatenate([stored["train_labels"], stored["test_labels"]]).astype(np.int64)
        places = np.concatenate([kept["train_index"], len(stored["train_labels"]) + kept["test_index"]])
        pixels = np.concatenate([kept["train_images"], kept["test_images"]])
    images = np.zeros((len(labels), *pixels.shape[1:]), dtype=np.uint8)
    images[places] = pixels
    has_image = np.isin(np.arange(len(labels)), places)
    plan = replace(plan_of(features.shape[1], CLASSES, radius=np.linalg.norm(features, axis=1).max()), backbone="net")
    generator = np.random.default_rng(seed)
    dealt = {"members": [], "strangers": [], "public": [], "others": []}
    for label in range(CLASSES):
        own = generator.permutation(np.flatnonzero(labels == label))
        seen, rest = own[has_image[own]], own[~has_image[own]]
        dealt["members"].append(generator.permutation(np.concatenate([seen[:60], rest[:440]])).reshape(CLIENTS, EACH))
        dealt["strangers"].append(np.concatenate([seen[60:160], rest[440:840]]))
        dealt["public"].append(seen[160:])
        dealt["others"].append(rest[840:1840])
    rows = {name: np.concatenate(parts, axis=1 if name == "members" else 0).ravel() for name, parts in dealt.items()}
    records = {name: records_of(plan, features[own], labels[own], images[own]) for name, own in rows.items()}
    return Federation(plan, **records, pictured=(has_image[rows["members"]], has_image[rows["strangers"]]))


def embeddings(fed, batch):
    """MPFT's random sampling: of `batch` embeddings one, as it is."""
    return sets(fed, MPFTRandom(rate=1 / batch))


def batches(fed, batch):
    """FedTC's set: means of `batch` of a client's records."""
    return sets(fed, FedTCSet(keep=1.0, batch=batch))


def sets(fed, baseline):
    """Every client's own prototypes; marks sent instead of features, with the same seed, show what is in which."""
    rows, labels, sizes, of, owners = [], [], [], [], []
    for name, records in enumerate(fed.clients):
        client = ClientData.of(records.features, records.labels)
        means, classes = baseline.prototypes(client, np.random.default_rng(name))
        marks = baseline.prototypes(replace(client, features=np.eye(len(client))), np.random.default_rng(name))[0] > 0
        of.append(np.where(marks.any(axis=0), marks.argmax(axis=0) + sum(map(len, rows)), -1))
        sizes.append(marks.sum(axis=1))
        rows.append(means)
        labels.append(classes)
        owners.append(np.full(len(means), name))
    rows, labels, sizes, of, owners = map(np.concatenate, (rows, labels, sizes, of, owners))
    return Shown(rows / fed.plan.radius, labels, sizes, of, owners)


def quotients(fed, batch):
    """Quotients of FedTC's slot sums over all clients, as many slots as there are batches."""
    count = CLIENTS * EACH // batch
    method = FedTC(slots=count)
    parts = [
        method.contribute(Examples.of(each.integers, each.labels), CLASSES, fed.plan.levels) for each in fed.clients
    ]
    opened = {name: sum(part[name] for part in parts) for name in parts[0]}
    rows, labels, sizes = prototypes(opened, fed.plan.grid, None)
    is_held = opened["slot_counts"].ravel() > 0
    place = np.where(is_held, np.cumsum(is_held) - 1, -1)
    members, strangers = (
        place[each.labels * count + slot_of(each.integers, count)] for each in (fed.members, fed.strangers)
    )
    return Shown(rows / fed.plan.radius, labels, sizes, members, slots=strangers)


def nearest(fed, records, shown):
    """Minus the distance of each record to the nearest prototype of its class, and which that is."""
    distances = np.full((len(records), len(shown.rows)), np.inf)
    for label in range(CLASSES):
        own = np.ix_(records.labels == label, shown.labels == label)
        distances[own] = cdist(records.integers[own[0].ravel()] / fed.plan.levels, shown.rows[own[1].ravel()])
    return -distances.min(axis=1), distances.argmin(axis=1)


def likeliest(fed, records, shown):
    """How much likelier the likeliest prototype of its class is with the record in it than without, and which it is."""
    ratios = likelihood_ratios(fed, records, shown)
    return ratios.max(axis=1), ratios.argmax(axis=1)


def likelihood_ratios(fed, records, shown):
    """The log likelihood ratio of each record in each prototype of its class, (n, p), -inf in others'.

    Neyman-Pearson for a mean of so many records of one Gaussian, its mean and covariance those of other people's.
    A mean of one record is taken as of 1.001, for the ratio to be finite.
    """
    known = fit(total(fed.others, CLASSES, MOMENTS))

    def whitened(rows, labels):
        return (rows - known.means[labels]) @ known.vectors / np.sqrt(known.values)

    x, p = whitened(records.integers, records.labels), whitened(shown.rows * fed.plan.levels, shown.labels)
    sizes = np.maximum(shown.sizes, 1.001)
    left = sizes - 1
    lengths = np.square(x).sum(axis=1)[:, None], np.square(p).sum(axis=1)
    apart = (sizes**2 * lengths[1] - 2 * sizes * (x @ p.T) + lengths[0]) / left
    ratios = (sizes * lengths[1] - apart + x.shape[1] * np.log(sizes / left)) / 2
    ratios[records.labels[:, None] != shown.labels] = -np.inf
    return ratios


def own_slot(fed, records, shown):
    """The ratio of the slot alone that the record's hash names, which whoever knows a record knows."""
    which = shown.of if records is fed.members else shown.slots
    values = likelihood_ratios(fed, records, shown)[np.arange(len(records)), which]
    return np.where(which < 0, -np.inf, values), which


def membership(fed, shown, attack):
    """Scores of all members and as many strangers, and of the members that are in one the prototype each points to."""
    (inside, which), (outside, _) = (attack(fed, each, shown) for each in (fed.members, fed.strangers))
    held = shown.of >= 0
    values = np.concatenate([inside[held], outside])
    return Scores(np.clip(values, -1e9, None), np.arange(len(values)) < held.sum()), which[held], held


def candidates(fed):
    """What is known of the members and strangers with images, and where the first of each class are among them."""
    members, strangers = fed.members.take(fed.pictured[0]), fed.strangers.take(fed.pictured[1])
    owners = ("somebody",) * len(members) + ("",) * len(strangers)
    rows = np.sort(np.concatenate([np.flatnonzero(members.labels == label)[:INVERTED] for label in range(CLASSES)]))
    return Knowledge(join_records(members, strangers), owners, fed.public), rows


def attacked(fed, kinds, network):
    """Images of the same records from each kind of prototype, after their own features, before their class alone."""
    knowledge, rows = candidates(fed)
    invert = choose_inverter(replace(knowledge, backbone=network), fed.plan)
    public, labels = knowledge.public, knowledge.candidates.labels[rows]
    means = np.stack([public.integers[public.labels == label].mean(axis=0) for label in range(CLASSES)])
    known = {RAW: knowledge.candidates.integers[rows] / fed.plan.levels}
    known |= {name: shown.rows[shown.of[np.flatnonzero(fed.pictured[0])[rows]]] for name, shown in kinds.items()}
    known[CLASS] = means[labels] / fed.plan.levels
    images = {name: invert(each) for name, each in known.items()}
    columns = [knowledge.candidates.images[rows], *(np.rint(255 * each).astype(np.uint8) for each in images.values())]
    return {name: score(each, knowledge, rows) for name, each in images.items()}, columns


def mean_of(values):
    """The mean with its interval."""
    return bootstrap(lambda each: each.mean(axis=1), [np.array(values)], np.random.default_rng(0))


def shown_as(interval):
    """Value and ends."""
    return f"{interval.value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def figures(fed, name, shown):
    """Areas by attack, all of them printed; that of strangers against strangers is the control."""
    told = {}
    print(f"{name}: {len(shown.rows)} of {shown.sizes.min()} to {shown.sizes.max()} records, ", end="")
    print(f"{(shown.sizes == 1).sum()} of a single one")
    for attack in (nearest, likeliest, *((own_slot,) if shown.slots is not None else ())):
        scores, which, held = membership(fed, shown, attack)
        told[attack] = scores.area()
        line = f"  {attack.__name__}: AUC {shown_as(told[attack])}, TPR at 1 % FPR {shown_as(scores.rate(0.01))}"
        if shown.owners is not None:
            true = np.repeat(np.arange(CLIENTS), CLASSES * EACH)[held]
            line += f", client {shown_as(clopper_pearson(int((shown.owners[which] == true).sum()), len(true)))}"
        print(line)
        strangers = Scores(scores.negative, np.arange(len(scores.negative)) % 2 == 0)
        control = strangers.area(CONTROL_LEVEL)
        assert control.low < 0.5 < control.high
    return told


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 7])
def test_means_of_few_records_tell_who_is_in_them(data_folder, seed):
    """A set tells members and whose they are; as many slots tell no client, but members better still, by their hash.

    What is asserted was seen with seed 0, and confirmed with 7. The 17 controls fail by chance with probability
    0.017 at most. Intervals take records as independent, which those of one batch are not quite.
    """
    fed = federation(data_folder, seed)
    single = figures(fed, "embeddings, 1 in 5", embeddings(fed, 5))
    assert single[nearest].low > 0.99
    areas = []
    for batch in BATCHES:
        a_set, slots = batches(fed, batch), quotients(fed, batch)
        of_set = figures(fed, f"batches of {batch}", a_set)
        of_slots = figures(fed, f"slots of {batch} on average", slots)
        assert of_slots[own_slot].low > of_set[likeliest].high
        areas.append(of_set[likeliest])
        alone = np.flatnonzero(slots.sizes[slots.of] == 1)
        assert np.allclose(slots.rows[slots.of[alone]], fed.members.integers[alone] / fed.plan.levels)
    assert areas[0].low > 0.95
    assert areas[-1].low > 0.6
    assert areas[0].low > areas[1].high
    assert areas[1].low > areas[2].high


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 7, 8])
def test_embedding_shows_its_image_and_means_show_less(data_folder, tmp_path, seed):
    """Images come back from embeddings, so that MPFT's random sampling is refused; from means less, of fifty none.

    That means of five show none seemed so with seed 0, and was wrong with 7. What is asserted was seen with both, and
    confirmed with 8.
    """
    fed = federation(data_folder, seed)
    kinds = {}
    for batch in BATCHES:
        kinds |= {f"batch of {batch}": batches(fed, batch), f"slot of {batch} on average": quotients(fed, batch)}
    scored, columns = attacked(fed, kinds, ResNet18(data_folder / "backbones"))
    for name, each in scored.items():
        print(
            f"{name}: re-identified {shown_as(each.rate)}, rank in its class {shown_as(mean_of(each.nearer))}, "
            f"among all {shown_as(mean_of(each.nearer_of_all))}, PSNR {shown_as(mean_of(each.psnr))} dB, "
            f"SSIM {shown_as(mean_of(each.ssim))}, beyond its class: {each.tells_more_than(scored[CLASS])}"
        )
    table = np.concatenate([np.concatenate([column[row] for column in columns], axis=1) for row in range(0, 40, 4)])
    (tmp_path / "images.png").write_bytes(png(table.repeat(4, axis=0).repeat(4, axis=1)))
    assert scored[RAW].rate.low > 0.4
    means = [each for name, each in scored.items() if name in kinds]
    assert mean_of(scored[RAW].nearer).high < min(mean_of(each.nearer).low for each in means)
    assert not any(each.tells_more_than(scored[CLASS]) for each in means[-2:])
