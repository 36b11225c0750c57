"""Feature inversion: images out of what a view shows about features, and whose image each of them is.

By what is known: features that are pixels are read; with the backbone and public images a decoder's guess is refined by
descent under total variation; with one of the two, that alone.

Where features keep little of an image, the control on raw ones fails and nothing is said of protection. SqueezeNet
1.1 at 32 pixels (median: 21 of 512 features are not 0): the deep image prior meets 4 of 8 features to 1 %, with other
images (mean rank of theirs among all 0.52, chance 0.5). A decoder re-identifies 19 % (13 to 27) of 120 CIFAR-10
images, 11 % from the class alone: too little for the 16 that an audit looks at.
`tests/threat_models/test_real_images.py` prints this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secagg.agreement.plan import Plan
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.membership.metrics import CHANCE
from threat_models.attacks.reconstruction.image_prior import deep_image_prior, descend, learn_decoder
from threat_models.attacks.reconstruction.rotation import as_features, recover
from threat_models.attacks.reconstruction.similarity import cosines, match_rows, psnr, ssim
from threat_models.attacks.targets import Target, targets_in
from threat_models.estimation.intervals import Interval, bootstrap, clopper_pearson
from threat_models.findings import SHARE, Control, Finding, Measure, Metric, Picture, Verdict, decide
from threat_models.session import AuditRecords, Floats, Knowledge
from threat_models.views import View

MOST = 64
"""Largest sum whose records are recovered."""
RAW = "raw feature"
RANDOM = "random feature"
CLASS = "class mean of public records"
OTHERS = "class mean of other members"
NOT_SEEN = (RAW, RANDOM, CLASS, OTHERS)
"""Levels that are in no view: the controls, and what the class alone tells, of other people and of these."""
MIXED = 4
"""Public records in one random mixture."""


@dataclass(frozen=True, eq=False)
class KnownLevel:
    """One way of knowing each chosen record: what is known of it (n, d), in units of R_q."""

    name: str
    known: Floats = field(repr=False)


def levels_with_references(view: View, knowledge: Knowledge, rows: NDArray[np.intp]) -> tuple[KnownLevel, ...]:
    """The raw features, the view's levels, random features, and what the class alone tells, in this order."""
    raw = knowledge.candidates.integers[rows] / view.plan.levels
    found = (
        KnownLevel(RAW, raw),
        *levels_in(view, knowledge, rows),
        KnownLevel(RANDOM, _draw_random(raw, knowledge.public, view.plan)),
    )
    return (*found, *_levels_by_class(knowledge, rows, view.plan))


def _levels_by_class(knowledge: Knowledge, rows: NDArray[np.intp], plan: Plan) -> tuple[KnownLevel, ...]:
    """Guesses from a record's class alone: class means of public records, and of other members."""
    known, labels = knowledge.candidates, knowledge.candidates.labels[rows]
    sources = {OTHERS: known.take(knowledge.is_member)}
    if knowledge.public is not None:
        sources[CLASS] = knowledge.public
    found = []
    for name, source in sources.items():
        own = known.integers[rows] if name == OTHERS else np.zeros((len(rows), plan.dimension))
        counts = np.array([int((source.labels == label).sum()) for label in labels]) - (name == OTHERS)
        if counts.min() > 0:
            sums = np.stack([source.integers[source.labels == label].sum(axis=0) for label in labels])
            found.append(KnownLevel(name, (sums - own) / counts[:, None] / plan.levels))
    return tuple(found)


def _draw_random(raw: Floats, public: AuditRecords | None, plan: Plan) -> Floats:
    """Draw features (n, d) that have nothing to do with `raw`: mixtures of public ones, else random directions."""
    generator = np.random.default_rng(0)
    if public is not None and len(public):
        picked = public.integers[generator.integers(len(public), size=(len(raw), MIXED))] / plan.levels
        mixed: Floats = np.einsum("nm,nmd->nd", generator.dirichlet(np.ones(MIXED), len(raw)), picked)
        return mixed
    random = generator.standard_normal(raw.shape)
    if not plan.grid.is_normalised:
        random = np.abs(random)
    scaled: Floats = random * np.linalg.norm(raw, axis=1, keepdims=True) / np.linalg.norm(random, axis=1, keepdims=True)
    return scaled


def levels_in(view: View, knowledge: Knowledge, rows: NDArray[np.intp]) -> tuple[KnownLevel, ...]:
    """Levels that a view shows of the candidates at `rows`, all of them members: the smallest sums first."""
    chosen = knowledge.candidates.take(rows)
    owners = [knowledge.owners[row] for row in rows]
    shown = targets_in(view, "class_sums")
    singles = {next(iter(each.owners)): each for each in shown if len(each.owners) == 1}
    sums = [each for each in shown if len(each.owners) > 1 and set(owners) <= each.owners]
    sources = [(each.name.removeprefix("the "), dict.fromkeys(owners, each)) for each in sums]
    if set(owners) <= set(singles):
        sources.insert(0, ("its client", {owner: singles[owner] for owner in owners}))
    found = []
    for name, parts in sources:
        source = f"noisy {name}" if parts[owners[0]].is_noisy else name
        if (records := _recover(parts, owners, chosen, knowledge.public, view.plan)) is not None:
            found.append(KnownLevel(f"N, A and B of {source}", records))
        means = [
            parts[owner].blocks["class_sums"][label] / view.plan.levels / max(int(parts[owner].counts[label]), 1)
            for owner, label in zip(owners, chosen.cells, strict=True)
        ]
        found.append(KnownLevel(f"class mean of {source}", np.stack(means)))
    return tuple(found)


def _recover(
    parts: dict[str, Target], owners: list[str], chosen: AuditRecords, public: AuditRecords | None, plan: Plan
) -> Floats | None:
    """Recover the records of sums and choose the nearest to each of `chosen`; None where a sum is too large."""
    known = np.empty(chosen.integers.shape)
    for owner, target in parts.items():
        mine = np.flatnonzero(np.array(owners) == owner)
        if "second_moment" not in target.blocks or not len(mine) <= target.records < min(plan.dimension, MOST + 1):
            return None
        found = recover(target.blocks, plan, public=public)
        known[mine] = found.records[match_rows(chosen.features[mine], found.features)]
    return known


Inverter = Callable[[Floats], Floats]
"""Records in units of R_q (n, d) → images (n, h, w, c) in [0, 1]."""
_NO_CLEARER = "no more than {baseline}, by the class alone"
REIDENTIFIED = Metric("reidentified.view", "re-identified", SHARE, _NO_CLEARER, leads=True, each="level in the view")
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
"""What surely comes nearer than by the class alone by no more than this share of strangers is no success."""
GAIN = Metric(
    "fewer_nearer",
    "strangers of its class that are no longer nearer",
    SHARE,
    f"no more than {100 * MARGIN:g} %, beside the class alone",
    leads=True,
    each="level in the view",
)
ROWS = 16
SHOWN = 8
NEAREST = 0.1
"""An image is re-identified when fewer than this share of its class's strangers are nearer to its reconstruction."""
SMALLEST = 11
FEWEST = 8
"""Images from which on an interval of their ranks says something."""


def choose_inverter(
    knowledge: Knowledge, plan: Plan, *, method: str = "", steps: int = 200, learning: int = 400
) -> Inverter | None:
    """Choose the attack that knowledge allows, or None; or a `method`: "variation", "decoder", "deep image prior".

    `steps` of descent, `learning` steps for the decoder: more of either make better pictures, and take longer.
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
    """Read features that are pixels; normalised ones as bright as public images, or as bright as they can be."""

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
    """Attack one view, by `invert` or by what `choose_inverter` finds best for this knowledge."""
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
    levels = levels_with_references(view, knowledge, rows)
    steps = len(levels) + 2
    progress(1, steps)
    invert = invert or choose_inverter(knowledge, view.plan)
    if invert is None:
        return _not_applicable("The audit was given neither a backbone with gradients nor public images.")
    progress(2, steps)
    images = {}
    for done, level in enumerate(levels):
        images[level.name] = invert(
            (level.known)
            if (not view.plan.grid.is_normalised)
            else (level.known / np.maximum(np.linalg.norm(level.known, axis=1, keepdims=True), 1e-300))
        )
        progress(3 + done, steps)
    return _make_finding(view.plan, knowledge, rows, images)


def _not_applicable(why: str) -> Finding:
    return Finding(INVERSION.name, "", Verdict.NOT_APPLICABLE, why)


def _make_finding(plan: Plan, knowledge: Knowledge, rows: NDArray[np.intp], images: dict[str, Floats]) -> Finding:
    guesses = _guess_without_inversion(knowledge, rows, plan)
    scored = {name: score(made, knowledge, rows) for name, made in {**images, **guesses}.items()}
    by_class = [scored[name] for name in (OTHERS, CLASS) if name in scored]
    alone = min(by_class, key=lambda each: float(np.mean(each.nearer)), default=None)
    measures = [measure for name, scores in scored.items() for measure in scores.measures(name, alone)]
    controls = (
        Control(f"images from the {RAW}", expected=True, succeeded=scored[RAW].tells_more_than(alone)),
        Control(f"images from a {RANDOM}", expected=False, succeeded=scored[RANDOM].tells_more_than(alone)),
    )
    tried = [name for name in images if name not in NOT_SEEN]
    worked = [name for name in tried if scored[name].tells_more_than(alone)]
    withstood = bool(tried) and all(scored[name].surely_tells_no_more_than(alone) for name in tried)
    gains = [scored[name].gain(alone).measure(GAIN, of=name) for name in tried]
    measures = [*measures, *gains] if worked else [*gains, *measures]  # first what decided
    sentence = _describe(scored, tried, worked, withstood)
    if not controls[0].holds:
        sentence = _describe_failed_control(scored[RAW], alone, knowledge.candidates.features[rows])
    picture = _make_picture({**images, **guesses}, knowledge, rows)
    outcome = decide(bool(worked), withstood, controls)
    return Finding(INVERSION.name, "", outcome, sentence, tuple(measures), pictures=(picture,), controls=controls)


def _describe(scored: dict[str, ImageScores], tried: list[str], worked: list[str], withstood: bool) -> str:
    if not worked:
        seen = f"From the {' or the '.join(tried)} images are"
        if withstood:
            return f"{seen} no nearer than from their class alone, surely by less than {MARGIN:.0%} of their strangers."
        count = len(next(iter(scored.values())).nearer)
        return f"{seen} not seen to be re-identified, but {count} of them are too few to rule it out."
    best = max(worked, key=lambda name: scored[name].rate.value)
    share = f"{scored[best].rate.value:.0%} of {len(scored[best].nearer)} images"
    return f"From the {best}, {share} are re-identified among strangers of their class."


def _describe_failed_control(raw: ImageScores, alone: ImageScores | None, features: Floats) -> str:
    """Say that not even the features show the images, as those of the SqueezeNet in the module's docstring."""
    beside = f", {alone.rate.value:.0%} by their class alone" if alone else ""
    held = int(np.median(np.count_nonzero(features, axis=1)))
    return (
        f"Not even the {RAW}s show the images to this attack ({raw.rate.value:.0%} of {len(features)} re-identified"
        f"{beside}; half of them have at most {held} of {features.shape[1]} features that are not 0): "
        "it says nothing of what protection hides."
    )


@dataclass(frozen=True)
class ImageScores:
    """Likeness of images to the true ones: per image, with the rate of re-identification and its chance level.

    `nearer` is the share of its class's strangers nearer to the made image than the true one, `nearer_of_all` that of
    all other candidates: without any knowledge 0.5 on average.
    """

    psnr: tuple[float, ...]
    ssim: tuple[float, ...]
    nearer: tuple[float, ...]
    nearer_of_all: tuple[float, ...]
    rate: Interval
    chance: float

    def tells_more_than(self, alone: ImageScores | None) -> bool:
        """Whether more images are re-identified than chance allows, and they are nearer than by their class alone.

        `alone`: the same images guessed from their class, which cancels that some are easy; the pairs are bootstrapped.
        """
        if alone is None or self.rate.low <= self.chance:
            return self.rate.low > self.chance
        return self.gain(alone).low > 0

    def surely_tells_no_more_than(self, alone: ImageScores | None) -> bool:
        """Whether images are surely nearer by no more than `MARGIN` than by their class alone, else than by chance."""
        return len(self.nearer) >= FEWEST and self.gain(alone).high <= MARGIN

    def gain(self, alone: ImageScores | None) -> Interval:
        """The mean fall in the share of its class's strangers nearer to an image, against its class alone."""
        gains = (np.array(alone.nearer) if alone else CHANCE) - np.array(self.nearer)
        return bootstrap(_means, [gains], np.random.default_rng(0))

    def measures(self, name: str, alone: ImageScores | None) -> list[Measure]:
        """Measure the images of one level, beside those of the class alone."""
        generator = np.random.default_rng(0)
        metric = REFERENCE if name in REFERENCES else REIDENTIFIED
        found = [self.rate.measure(metric, of=name, baseline=alone.rate.value if alone else self.chance)]
        mean = bootstrap(_means, [np.array(self.nearer)], generator)
        found.append(mean.measure(NEARER, of=name, baseline=float(np.mean(alone.nearer)) if alone else 0.5))
        for metric, statistic in zip(RANKS, (_means, _medians), strict=True):
            rank = bootstrap(statistic, [np.array(self.nearer_of_all)], generator)
            found.append(rank.measure(metric, of=name, baseline=0.5))
        for metric, values, others in (
            (PSNR, self.psnr, alone.psnr if alone else ()),
            (SSIM, self.ssim, alone.ssim if alone else ()),
        ):
            if values:
                mean = bootstrap(_means, [np.array(values)], generator)
                found.append(mean.measure(metric, of=name, baseline=float(np.mean(others)) if others else None))
        return found


def score(made: Floats, knowledge: Knowledge, rows: NDArray[np.intp]) -> ImageScores:
    """Score images (n, h, w, c) against the candidates' at `rows`.

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
    return ImageScores(signal, likeness, tuple(ranks), tuple(overall), rate, max(NEAREST, *chances))


def _means(samples: Floats) -> Floats:
    return np.asarray(samples.mean(axis=1))


def _medians(samples: Floats) -> Floats:
    return np.asarray(np.median(samples, axis=1))


def _guess_without_inversion(knowledge: Knowledge, rows: NDArray[np.intp], plan: Plan) -> dict[str, Floats]:
    """Guess without inversion: the public image whose feature is nearest to the raw one, and the mean image."""
    public = knowledge.public
    if public is None or public.images is None or not len(public):
        return {}
    wanted = knowledge.candidates.integers[rows] / plan.levels
    nearest = np.argmax(cosines(wanted, public.integers / plan.levels), axis=1)
    images = public.images / 255.0
    return {
        NEAREST_IMAGE: images[nearest],
        MEAN_IMAGE: np.broadcast_to(images.mean(axis=0), (len(rows), *images.shape[1:])),
    }


def _make_picture(images: dict[str, Floats], knowledge: Knowledge, rows: NDArray[np.intp]) -> Picture:
    originals = np.asarray(knowledge.candidates.images)[rows]
    columns = [originals, *(np.rint(255 * made).astype(np.uint8) for made in images.values())]
    count = min(SHOWN, len(rows))
    return Picture(
        "Images, and what was made of them",
        ("original", *images),
        tuple(tuple(column[row] for column in columns) for row in range(count)),
    )


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
"""Needs class sums of contributions or a release, images, and a way back from features: found out when it runs."""
