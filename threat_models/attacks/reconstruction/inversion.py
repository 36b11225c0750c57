"""Feature inversion: reconstruct images from what an adversary sees of their features, and re-identify the images.

By what is known: features that are pixels are read; with the backbone and public images a decoder's guess is refined by
descent under total variation; with one of the two, that alone. Descent goes through the backbone under a prior of what
images look like: total variation (Mahendran & Vedaldi 2015; weight 0 is the attack of MPFT, App. G), or the deep image
prior (Ulyanov, Vedaldi & Lempitsky 2018, as in FedCGS, Fig. 4), by which the image is what an untrained network makes
of noise.

Where features keep little of an image, the control on raw ones fails and nothing is said of protection. SqueezeNet
1.1 at 32 pixels (median: 21 of 512 features are not 0): the deep image prior meets 4 of 8 features to 1 %, with other
images (mean rank of theirs among all 0.52, chance 0.5). A decoder re-identifies 19 % (13 to 27) of 120 CIFAR-10
images, 11 % from the class alone: too little for the 16 that an audit looks at.
`tests/threat_models/test_real_images.py` prints this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.agreement.plan import Plan
from secagg.encoding import Grid, Normalisation
from secagg.errors import BadInput
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.membership.metrics import CHANCE
from threat_models.attacks.reconstruction.rotation import as_features, recover
from threat_models.attacks.reconstruction.similarity import cosines, match_rows, psnr, ssim
from threat_models.attacks.targets import Target, targets_in
from threat_models.estimation.intervals import ConfidenceInterval, bootstrap, clopper_pearson
from threat_models.findings import SHARE, Control, Finding, Measure, Metric, Picture, Verdict, decide
from threat_models.session import AuditRecords, Floats, Knowledge
from threat_models.views import View

Inverter = Callable[[Floats], Floats]
"""A function from records in units of R_q (n, d) to images (n, h, w, c) in [0, 1]."""
MOST = 64
"""Most records in a sum whose records are recovered."""
RAW = "raw feature"
RANDOM = "random feature"
CLASS = "class mean of public records"
OTHERS = "class mean of other members"
NOT_SEEN = (RAW, RANDOM, CLASS, OTHERS)
"""Names of features that no view shows: the controls, and class means of public records and of other members."""
MIXED = 4
"""Number of public records that are mixed into one random feature."""


def known_levels(view: View, knowledge: Knowledge, rows: NDArray[np.intp]) -> dict[str, Floats]:
    """Return members' features (n, d) at `rows` as an adversary knows them, by their source (such as a sum).

    They are in units of the radius R_q.
    In this order: the raw features, what the view shows of the smallest sums first, random features, and what the class
    alone tells.
    """
    plan, chosen = view.plan, knowledge.candidates.take(rows)
    owners = [knowledge.owners[row] for row in rows]
    found = {RAW: chosen.integers / plan.levels}
    shown = targets_in(view, "class_sums")
    singles = {next(iter(each.owners)): each for each in shown if len(each.owners) == 1}
    sums = [each for each in shown if len(each.owners) > 1 and set(owners) <= each.owners]
    sources = [(each.name.removeprefix("the "), dict.fromkeys(owners, each)) for each in sums]
    if set(owners) <= set(singles):
        sources.insert(0, ("its client", {owner: singles[owner] for owner in owners}))
    for name, parts in sources:
        source = f"noisy {name}" if parts[owners[0]].is_noisy else name
        if (records := _recover(parts, owners, chosen, knowledge.public, plan)) is not None:
            found[f"N, A and B of {source}"] = records
        means = [
            parts[owner].blocks["class_sums"][label] / plan.levels / max(int(parts[owner].counts[label]), 1)
            for owner, label in zip(owners, chosen.cells, strict=True)
        ]
        found[f"class mean of {source}"] = np.stack(means)
    found[RANDOM] = _draw_random(found[RAW], knowledge.public, plan)
    return found | _levels_by_class(knowledge, rows, plan)


def _levels_by_class(knowledge: Knowledge, rows: NDArray[np.intp], plan: Plan) -> dict[str, Floats]:
    """Guess records from their class alone: by the class means of public records, and of other members."""
    known, labels = knowledge.candidates, knowledge.candidates.labels[rows]
    sources = {OTHERS: known.take(knowledge.is_member)}
    if knowledge.public is not None:
        sources[CLASS] = knowledge.public
    found = {}
    for name, source in sources.items():
        own = known.integers[rows] if name == OTHERS else np.zeros((len(rows), plan.dimension))
        counts = np.array([int((source.labels == label).sum()) for label in labels]) - (name == OTHERS)
        if counts.min() > 0:
            sums = np.stack([source.integers[source.labels == label].sum(axis=0) for label in labels])
            found[name] = (sums - own) / counts[:, None] / plan.levels
    return found


def _draw_random(raw: Floats, public: AuditRecords | None, plan: Plan) -> Floats:
    """Draw features (n, d) that have nothing to do with `raw`: mixtures of public ones, else random directions."""
    generator = np.random.default_rng(0)
    if public is not None and len(public):
        picked = public.integers[generator.integers(len(public), size=(len(raw), MIXED))] / plan.levels
        return np.asarray(np.einsum("nm,nmd->nd", generator.dirichlet(np.ones(MIXED), len(raw)), picked))
    random = generator.standard_normal(raw.shape)
    if not plan.grid.is_normalised:
        random = np.abs(random)
    wanted, drawn = (np.linalg.norm(each, axis=1, keepdims=True) for each in (raw, random))
    return np.asarray(random * wanted / drawn)


def _recover(
    parts: dict[str, Target], owners: list[str], chosen: AuditRecords, public: AuditRecords | None, plan: Plan
) -> Floats | None:
    """Recover the records of sums, and match one to each of the `chosen` records; None where a sum is too large."""
    known = np.empty(chosen.integers.shape)
    for owner, target in parts.items():
        mine = np.flatnonzero(np.array(owners) == owner)
        if "second_moment" not in target.blocks or not len(mine) <= target.records < min(plan.dimension, MOST + 1):
            return None
        found = recover(target.blocks, plan, public=public)
        known[mine] = found.records[match_rows(chosen.features[mine], found.features)]
    return known


_LEVEL = "level in the view"
_NO_CLEARER = "no more than {baseline}, by the class alone"
REIDENTIFIED = Metric("reidentified.view", "re-identified", SHARE, _NO_CLEARER, leads=True, each=_LEVEL)
REFERENCE = Metric("reidentified.reference", "re-identified", SHARE, _NO_CLEARER, each="reference")
_NEARER = "nearer than the true image"
NEARER = Metric(
    "strangers_nearer", f"strangers of its class {_NEARER}", SHARE, "{baseline}, by the class alone", each="level"
)
RANKS = tuple(
    Metric(f"rank.{name}", f"{name} share of all candidates {_NEARER}", SHARE, "{baseline}, by chance", each="level")
    for name in ("mean", "median")
)
PSNR = Metric("psnr", "PSNR in dB", "dB", _NO_CLEARER, each="level")
SSIM = Metric("ssim", "SSIM", "", _NO_CLEARER, each="level")
NEAREST_IMAGE, MEAN_IMAGE = "nearest public image", "mean public image"
REFERENCES = (*NOT_SEEN, NEAREST_IMAGE, MEAN_IMAGE)
MARGIN = 0.1
"""A gain over guesses by class alone is not a success where it is surely no more than this share of strangers."""
_HARDLY = f"no more than {100 * MARGIN:g} %, beside the class alone"
GAIN = Metric(
    "fewer_nearer", "strangers of its class that are no longer nearer", SHARE, _HARDLY, leads=True, each=_LEVEL
)
ROWS = 16
SHOWN = 8
NEAREST = 0.1
"""An image is re-identified when fewer than this share of its class's strangers are nearer to its reconstruction."""
SMALLEST = 11
FEWEST = 8
"""Least number of images for which an interval of their ranks says something."""


def choose_inverter(
    knowledge: Knowledge, plan: Plan, *, method: str = "", steps: int = 200, learning: int = 400
) -> Inverter | None:
    """Choose the image reconstruction that the adversary's `knowledge` allows, or `method`; None if there is none.

    `method` is "variation", "decoder" or "deep image prior". `steps` of descent, `learning` steps for the decoder: more
    of either make better pictures, and take longer.
    """
    images, public, backbone = knowledge.candidates.images, knowledge.public, knowledge.backbone
    if images is None:
        return None
    shape = images.shape[1:]
    if plan.backbone == "pixels" and not plan.expand and not method:
        return _make_reader(plan, shape, public)
    decode: Inverter | None = None
    if public is not None and public.images is not None and method in ("", "decoder"):
        decode = learn_decoder(public.integers / plan.levels, public.images / 255.0, steps=learning)
    if backbone is None or method == "decoder":
        return decode
    if method == "deep image prior":
        return lambda known: deep_image_prior(known, shape, backbone, plan.grid, steps=steps)
    start = decode or (lambda known: np.full((len(known), *shape), 0.5))
    return lambda known: descend(known, start(known), backbone, plan.grid, steps=steps)


def _make_reader(plan: Plan, shape: tuple[int, ...], public: AuditRecords | None) -> Inverter:
    """Make the inverter of features that are pixels. It scales normalised ones as public images, or to the maximum."""

    def read(known: Floats) -> Floats:
        pixels = as_features(known, plan)
        if plan.grid.is_normalised:
            scale = 1 / np.maximum(pixels.max(axis=1, keepdims=True), 1e-300)
            if public is not None and len(public):
                lifted = as_features(public.integers / plan.levels, plan)
                lengths = np.linalg.norm(public.features, axis=1), np.linalg.norm(lifted, axis=1)
                scale = np.array([[np.median(lengths[0] / np.maximum(lengths[1], 1e-300))]])
            pixels = pixels * scale
        return np.clip(pixels, 0, 1).reshape(-1, *shape)

    return read


def examine(view: View, knowledge: Knowledge, progress: Progress, invert: Inverter | None = None) -> Finding:
    """Run the attack on what one adversary sees, by `invert` or, by default, the choice of `choose_inverter`."""
    if knowledge.candidates.images is None:
        return _not_applicable("The records are no images, or the audit was given none.")
    # Choose members to look at: of the smallest sum that holds any, one of each class first.
    found = (np.flatnonzero(target.holds(knowledge)) for target in targets_in(view, "class_sums"))
    held = next((each for each in found if len(each)), np.zeros(0, dtype=np.intp))
    first = np.unique(knowledge.candidates.labels[held], return_index=True)[1]
    order = np.concatenate([first, np.setdiff1d(np.arange(len(held)), first)])
    rows = held[order][:ROWS]
    if not len(rows):
        return _not_applicable("The view holds no class sums of members whose images the audit has.")
    levels = known_levels(view, knowledge, rows)
    steps = len(levels) + 2
    progress(1, steps)
    invert = invert or choose_inverter(knowledge, view.plan)
    if invert is None:
        return _not_applicable("The audit was given neither a backbone with gradients nor public images.")
    progress(2, steps)
    images = {}
    for done, (name, known) in enumerate(levels.items()):
        lengths = np.linalg.norm(known, axis=1, keepdims=True)
        images[name] = invert(known / np.maximum(lengths, 1e-300) if view.plan.grid.is_normalised else known)
        progress(3 + done, steps)
    return _make_finding(view.plan, knowledge, rows, images)


def _not_applicable(why: str) -> Finding:
    return Finding(INVERSION.name, "", Verdict.NOT_APPLICABLE, why)


def _make_finding(plan: Plan, knowledge: Knowledge, rows: NDArray[np.intp], images: dict[str, Floats]) -> Finding:
    made = images | _guess_without_inversion(knowledge, rows, plan)
    scored = {name: score(each, knowledge, rows) for name, each in made.items()}
    by_class = [scored[name] for name in (OTHERS, CLASS) if name in scored]
    alone = min(by_class, key=lambda each: float(np.mean(each.nearer)), default=None)
    measures = [measure for name, scores in scored.items() for measure in scores.measures(name, alone)]
    controls = (
        Control(f"images from the {RAW}", expected=True, succeeded=scored[RAW].tells_more_than(alone)),
        Control(f"images from a {RANDOM}", expected=False, succeeded=scored[RANDOM].tells_more_than(alone)),
    )
    tried = [name for name in images if name not in NOT_SEEN]
    worked = [name for name in tried if scored[name].tells_more_than(alone)]
    gained = [scored[name].gain(alone).measure(GAIN, of=name) for name in tried]
    withstood = bool(tried) and len(rows) >= FEWEST and all(each.high <= MARGIN for each in gained)
    measures = [*measures, *gained] if worked else [*gained, *measures]  # first what decided
    sentence = _describe(scored, tried, worked, withstood)
    if not controls[0].holds:
        sentence = _describe_failed_control(scored[RAW], alone, knowledge.candidates.features[rows])
    columns = [
        np.asarray(knowledge.candidates.images)[rows],
        *(np.rint(255 * each).astype(np.uint8) for each in made.values()),
    ]
    shown = tuple(zip(*(column[:SHOWN] for column in columns), strict=True))
    picture = Picture("Images, and what was made of them", ("original", *made), shown)
    outcome = decide(bool(worked), withstood, controls)
    return Finding(INVERSION.name, "", outcome, sentence, tuple(measures), pictures=(picture,), controls=controls)


def _describe(scored: dict[str, _ImageScores], tried: list[str], worked: list[str], withstood: bool) -> str:
    if not worked:
        seen = f"From the {' or the '.join(tried)} images are"
        if withstood:
            return f"{seen} no nearer than from their class alone, surely by less than {MARGIN:.0%} of their strangers."
        count = len(next(iter(scored.values())).nearer)
        return f"{seen} not seen to be re-identified, but {count} of them are too few to rule it out."
    best = max(worked, key=lambda name: scored[name].rate.value)
    share = f"{scored[best].rate.value:.0%} of {len(scored[best].nearer)} images"
    return f"From the {best}, {share} are re-identified among strangers of their class."


def _describe_failed_control(raw: _ImageScores, alone: _ImageScores | None, features: Floats) -> str:
    """Describe a failed control: not even raw features show the images, like SqueezeNet's in the module's docstring."""
    beside = f", {alone.rate.value:.0%} by their class alone" if alone else ""
    held = int(np.median(np.count_nonzero(features, axis=1)))
    return (
        f"Not even the {RAW}s show the images to this attack ({raw.rate.value:.0%} of {len(features)} re-identified"
        f"{beside}; half of them have at most {held} of {features.shape[1]} features that are not 0): "
        "it says nothing of what protection hides."
    )


@dataclass(frozen=True)
class _ImageScores:
    """The likeness of reconstructed to true images, per image, and the rate of re-identification with its chance level.

    `nearer` is the share of its class's strangers nearer to the made image than the true one, `nearer_of_all` that of
    all other candidates: without any knowledge 0.5 on average.
    """

    psnr: tuple[float, ...]
    ssim: tuple[float, ...]
    nearer: tuple[float, ...]
    nearer_of_all: tuple[float, ...]
    rate: ConfidenceInterval
    chance: float

    def tells_more_than(self, alone: _ImageScores | None) -> bool:
        """Return whether surely more images are re-identified than by chance, and are nearer than by class alone.

        `alone`: the same images guessed from their class, which cancels that some are easy; the pairs are bootstrapped.
        """
        if alone is None or self.rate.low <= self.chance:
            return self.rate.low > self.chance
        return self.gain(alone).low > 0

    def gain(self, alone: _ImageScores | None) -> ConfidenceInterval:
        """Compute the mean fall in the share of strangers nearer to an image, against `alone` or else chance."""
        gains = (np.array(alone.nearer) if alone else CHANCE) - np.array(self.nearer)
        return bootstrap(_means, [gains], np.random.default_rng(0))

    def measures(self, name: str, alone: _ImageScores | None) -> list[Measure]:
        """Measure the images made from one source, with those made from the class alone as the baseline."""
        generator = np.random.default_rng(0)
        metric = REFERENCE if name in REFERENCES else REIDENTIFIED
        found = [self.rate.measure(metric, of=name, baseline=alone.rate.value if alone else self.chance)]
        for metric, statistic, values, baseline in (
            (NEARER, _means, self.nearer, float(np.mean(alone.nearer)) if alone else 0.5),
            (RANKS[0], _means, self.nearer_of_all, 0.5),
            (RANKS[1], lambda samples: np.median(samples, axis=1), self.nearer_of_all, 0.5),
            (PSNR, _means, self.psnr, float(np.mean(alone.psnr)) if alone else None),
            (SSIM, _means, self.ssim, float(np.mean(alone.ssim)) if alone and alone.ssim else None),
        ):
            if values:
                interval = bootstrap(statistic, [np.array(values)], generator)
                found.append(interval.measure(metric, of=name, baseline=baseline))
        return found


def score(made: Floats, knowledge: Knowledge, rows: NDArray[np.intp]) -> _ImageScores:
    """Compare reconstructed images (n, h, w, c) with the true images of the candidates at `rows`.

    The rank of a true image is among the strangers of its class (all strangers where the class has too few): what only
    tells the class is no better than chance. A perfect image counts as 60 dB, past what 8 bits hold.
    """
    images = np.asarray(knowledge.candidates.images, dtype=np.float64) / 255
    labels, strangers = knowledge.candidates.labels, ~knowledge.is_member
    ranks, chances, overall = [], [], []
    for image, row in zip(made, rows, strict=True):
        errors = np.mean((images - image) ** 2, axis=(1, 2, 3))
        is_nearer = errors < errors[row]
        others = strangers & (labels == labels[row])
        others = others if others.sum() + 1 >= 1 / NEAREST else strangers
        count = int(others.sum())
        ranks.append(float(is_nearer[others].mean()) if count else 1.0)
        chances.append(int(NEAREST * (count + 1)) / (count + 1))
        overall.append(float(is_nearer.sum()) / max(len(images) - 1, 1))
    hits = sum(rank < NEAREST for rank in ranks)
    pairs = [(image, images[row]) for image, row in zip(made, rows, strict=True)]
    likeness = tuple(ssim(*pair) for pair in pairs) if min(images.shape[1:3]) >= SMALLEST else ()
    signal = tuple(min(psnr(*pair), 60.0) for pair in pairs)
    rate = clopper_pearson(hits, len(rows))
    return _ImageScores(signal, likeness, tuple(ranks), tuple(overall), rate, max(NEAREST, *chances))


def _means(samples: Floats) -> Floats:
    return np.asarray(samples.mean(axis=1))


def _guess_without_inversion(knowledge: Knowledge, rows: NDArray[np.intp], plan: Plan) -> dict[str, Floats]:
    """Guess images without inversion: the public image with the nearest feature, and the mean public image."""
    public = knowledge.public
    if public is None or public.images is None or not len(public):
        return {}
    wanted = knowledge.candidates.integers[rows] / plan.levels
    nearest = np.argmax(cosines(wanted, public.integers / plan.levels), axis=1)
    images = public.images / 255.0
    mean = np.broadcast_to(images.mean(axis=0), (len(rows), *images.shape[1:]))
    return {NEAREST_IMAGE: images[nearest], MEAN_IMAGE: mean}


BATCH = 32
RATE = 2e-3
BLUR = 0.1
"""Noise on the standardised features while a decoder learns, so that it can decode inexact features, too."""


def learn_decoder(targets: Floats, images: Floats, *, steps: int = 400, width: int = 32, seed: int = 0) -> Inverter:
    """Return a decoder, trained to turn `targets` (n, d) into images (n, h, w, c) in [0, 1].

    By Adam on squared errors. Three times upsampling and convolution; FedTC (App. C) leaves its own decoder open. The
    result depends on `seed` alone, up to rounding. Raises BadInput for fewer than 2 public images.
    """
    import torch

    if len(images) < 2 or len(images) != len(targets):
        what = f"{len(images)} images and {len(targets)} features to learn from"
        raise BadInput(what, remedy="give 2 or more of each")
    mean, deviation = targets.mean(axis=0), targets.std(axis=0)
    deviation = np.where(deviation > 1e-3 * deviation.max(initial=1e-300), deviation, 1.0)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _network(targets.shape[1], images.shape[1:], width)
    inputs = torch.from_numpy((targets - mean) / deviation).float()
    wanted = torch.from_numpy(images).float().permute(0, 3, 1, 2)

    def loss() -> Any:
        rows = torch.randint(len(inputs), (BATCH,), generator=generator)
        blurred = inputs[rows] + BLUR * torch.randn(BATCH, inputs.shape[1], generator=generator)
        return (network(blurred) - wanted[rows]).square().mean()

    _minimise(loss, network.parameters(), RATE, steps)

    def decode(features: Floats) -> Floats:
        with torch.no_grad():
            return _array(network(torch.from_numpy((features - mean) / deviation).float()))

    return decode


def _minimise(loss: Callable[[], Any], parameters: Any, rate: float, steps: int, *, anneals: bool = True) -> None:
    """Minimise a loss by steps of Adam, at a rate that falls to 0 along a cosine where it `anneals`."""
    import torch

    optimiser = torch.optim.Adam(parameters, rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(steps, 1))
    for _ in range(steps):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
        if anneals:
            schedule.step()


def _network(dimension: int, shape: tuple[int, ...], width: int) -> Any:
    from torch import nn

    height, breadth, channels = shape
    low, wide = (-(-height // 8), -(-breadth // 8)), 4 * width
    layers: list[Any] = [nn.Linear(dimension, wide * low[0] * low[1]), nn.ReLU(), nn.Unflatten(1, (wide, *low))]
    for scale in (4, 2, 1):
        size, narrow = (-(-height // scale), -(-breadth // scale)), max(wide // 2, 8)
        layers += [nn.Upsample(size=size), nn.Conv2d(wide, narrow, 3, padding=1), nn.ReLU()]
        wide = narrow
    return nn.Sequential(*layers, nn.Conv2d(wide, channels, 3, padding=1))


Backbone = Callable[[Any], Any]
VARIATION = 0.3
"""Weight of total variation against the relative squared error of the feature."""
OUTSIDE = 10.0
"""Weight of the squares by which pixels are outside [0, 1]."""


def descend(
    targets: Floats,
    start: Floats,
    backbone: Backbone,
    grid: Grid,
    *,
    variation: float = VARIATION,
    steps: int = 200,
    rate: float = 0.03,
) -> Floats:
    """Find images (n, h, w, c) in [0, 1] whose features are near `targets` (n, d), by Adam from `start`.

    Targets are in units of R_q.
    """
    import torch

    wanted = torch.from_numpy(targets).float()
    images = torch.from_numpy(start).float().permute(0, 3, 1, 2).contiguous().requires_grad_()

    def loss() -> Any:
        excess = (images - images.clamp(0, 1)).square().mean(dim=(1, 2, 3))
        down = (images[:, :, 1:] - images[:, :, :-1]).abs().mean(dim=(1, 2, 3))
        varied = down + (images[:, :, :, 1:] - images[:, :, :, :-1]).abs().mean(dim=(1, 2, 3))
        return (_misfit(backbone(images), wanted, grid) + variation * varied + OUTSIDE * excess).sum()

    _minimise(loss, [images], rate, steps)
    return _array(images)


def deep_image_prior(
    targets: Floats,
    shape: tuple[int, ...],
    backbone: Backbone,
    grid: Grid,
    *,
    steps: int = 200,
    restarts: int = 4,
    seed: int = 0,
) -> Floats:
    """Find images of `shape` (h, w, c) whose features are near `targets` (n, d), as outputs of networks fitted to each.

    Each is the mean over `restarts` networks, since each network invents other details. Equal targets have equal
    images.
    """
    import torch

    different, places = np.unique(targets, axis=0, return_inverse=True)
    found = np.zeros((len(different), *shape))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for row, target in enumerate(torch.from_numpy(different).float()):
            for _ in range(restarts):
                found[row] += _grow(target, shape, backbone, grid, steps) / restarts
    return found[places]


def _grow(target: Any, shape: tuple[int, ...], backbone: Backbone, grid: Grid, steps: int) -> Floats:
    """Make one image (h, w, c) by fitting a new network to a target; torch's generator must be seeded before."""
    import torch

    network, noise = _make_network(shape), torch.randn(1, 16, *(-(-side // 4) for side in shape[:2]))

    def loss() -> Any:
        return _misfit(backbone(network(noise)), target[None], grid).sum()

    _minimise(loss, network.parameters(), 0.005, steps, anneals=False)
    return np.asarray(_array(network(noise))[0])


def _misfit(features: Any, wanted: Any, grid: Grid) -> Any:
    """Compute the relative squared distance (n,) of features, scaled as by `secagg.encoding.quantise`, from targets."""
    if grid.normalisation is Normalisation.CENTRED_UNIT:
        moved = features - features.mean(dim=1, keepdim=True)
    else:
        moved = features - grid.centre
    length = moved.norm(dim=1, keepdim=True).clamp_min(1e-9) if grid.is_normalised else grid.radius
    return (moved / length - wanted).square().sum(dim=1) / wanted.square().sum(dim=1).clamp_min(1e-9)


def _make_network(shape: tuple[int, ...]) -> Any:
    from torch import nn

    height, width, channels = shape
    layers: list[Any] = [nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.LeakyReLU(0.2)]
    for scale in (2, 1):
        size = (-(-height // scale), -(-width // scale))
        layers += [nn.Upsample(size=size, mode="bilinear"), nn.Conv2d(32, 32, 3, padding=1)]
        layers += [nn.BatchNorm2d(32), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(32, channels, 3, padding=1), nn.Sigmoid())


def _array(images: Any) -> Floats:
    result: Floats = images.detach().clamp(0, 1).permute(0, 2, 3, 1).double().numpy()
    return result


INVERSION = Attack(
    name="feature_inversion",
    title="Feature inversion: images out of features and their means",
    paper="Guan et al., FedTC; MPFT, App. G; Mahendran & Vedaldi 2015; Ulyanov, Vedaldi & Lempitsky 2018",
    needs=(),
    run=lambda views, knowledge, progress: examine(views[0], knowledge, progress),
    metrics=(REIDENTIFIED, REFERENCE, NEARER, GAIN, *RANKS, PSNR, SSIM),
    trusts_owners=True,
    limits=4,
    meaning="Pictures near the original ones can be made of what is seen.",
    remedy="Plan with a finite epsilon, more records of every class, or a backbone that keeps less.",
    unsuited=lambda session: "" if session.plan.data_kind == "images" else "The plan's records are no images.",
)
