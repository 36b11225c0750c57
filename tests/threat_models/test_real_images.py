"""Inversion of CIFAR-10 features by level of protection, as in FedCGS, Fig. 4: a client with a few images of one class.

`pytest -m long -rP tests/threat_models/test_real_images.py` prints the figures; with `--basetemp DIR` the
pictures are in DIR.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from tests.threat_models.attacks.audited import measured
from tests.threat_models.attacks.sums import noisy_sum_of, plan_of, records_of, seen_by, session_of
from tests.threat_models.backbones import ResNet18, SqueezeNet
from threat_models.attacks.reconstruction.inversion import choose_inverter, deep_image_prior, examine, score
from threat_models.evidence.simulation import join_records
from threat_models.findings import Verdict
from threat_models.report.html import png
from threat_models.session import Knowledge

CLIENT = "N, A and B of its client"
OWN_MEAN = "class mean of its client"
SUM = "class mean of sum of all"
NOISY = "class mean of noisy sum of all"


@cache
def cifar(folder, backbone):
    """All 3,000 images, their labels, the network and its features."""
    network = backbone(folder / "backbones")
    with np.load(folder / "cifar10_images_3k.npz") as content:
        images = np.concatenate([content["train_images"], content["test_images"]])
        labels = np.concatenate([content["train_labels"], content["test_labels"]])
    inputs = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        features = torch.cat([network(batch) for batch in inputs.split(250)]).double().numpy()
    return network, features, images, labels


def federation(folder, backbone, split, size, *, one_class):
    """A client of `size` records, another of 470, 500 strangers, the others public; in the file's order or a seed's."""
    network, features, images, labels = cifar(folder, backbone)
    order = np.arange(len(labels)) if split == "file" else np.random.default_rng(split).permutation(len(labels))
    if one_class:
        first = order[labels[order] == labels[order[0]]][:size]
        order = np.concatenate([first, np.setdiff1d(order, first, assume_unique=True)])
    plan = replace(plan_of(features.shape[1], 10, radius=float(np.linalg.norm(features, axis=1).max())), backbone="net")
    records = records_of(plan, features[order], labels[order], images[order])
    parts = [records.take(slice(0, size)), records.take(slice(size, size + 470))]
    owners = ("client-0",) * size + ("client-1",) * 470 + ("",) * 500
    end = len(owners)
    return plan, parts, Knowledge(records.take(slice(0, end)), owners, records.take(slice(end, None)), network)


def rate(finding, level):
    """Share of images re-identified from a level."""
    return measured(finding, "reidentified", level)


def rank(finding, level):
    """Mean share of all candidates that are nearer than the true image; chance 0.5."""
    return measured(finding, "rank.mean", level)


def show(title, finding, folder):
    """Print all measures, and leave the picture as a PNG."""
    print(f"{title}: {finding.verdict}. {finding.sentence}")
    for each in finding.measures:
        print(f"  {each.label}: {each.value:.3f} [{each.low:.3f}, {each.high:.3f}], baseline {each.baseline}")
    picture = finding.pictures[0]
    print("  columns:", ", ".join(picture.columns))
    table = np.concatenate([np.concatenate(row, axis=1) for row in picture.rows])
    (folder / "images.png").write_bytes(png(table.repeat(4, axis=0).repeat(4, axis=1)))


def remembering(invert):
    """The same inverter, which makes no image twice."""
    made = {}

    def again(known):
        if known.tobytes() not in made:
            made[known.tobytes()] = invert(known)
        return made[known.tobytes()]

    return again


@pytest.mark.long
@pytest.mark.parametrize("split", ["file", 7])
def test_deep_image_prior_by_level(data_folder, tmp_path, split):
    """Images of one class come back from their features and their client's (N, A, B), not from the means of the sum.

    The scene of FedCGS, Fig. 4, with 8 images (4 are too few for an interval), no public image used. Deterministic up
    to rounding. The attack was tuned on the order of the file; the other confirms it.
    """
    plan, parts, everyone = federation(data_folder, ResNet18, split, 8, one_class=True)
    known = np.array([owner != "client-1" for owner in everyone.owners])
    owners = tuple(owner for owner in everyone.owners if owner != "client-1")
    knowledge = replace(everyone, candidates=everyone.candidates.take(known), owners=owners)
    invert = remembering(choose_inverter(knowledge, plan, method="deep image prior"))
    noise = noisy_sum_of(join_records(*parts), plan, 1.0)
    masked = replace(plan, protection="masked")
    sessions = {
        "clear": session_of(plan, parts),
        "masked": session_of(masked, parts),
        "noisy": session_of(masked, parts, release=noise, noise={"counts": None}),
    }
    found = {}
    for name, session in sessions.items():
        (tmp_path / name).mkdir()
        found[name] = examine(seen_by("curious_server", session), knowledge, lambda *_: None, invert)
        show(f"{name}, split {split}", found[name], tmp_path / name)
        assert all(control.holds for control in found[name].controls)
    assert [each.verdict is Verdict.SUCCEEDS for each in found.values()] == [True, False, False]
    assert rank(found["clear"], CLIENT).high < rank(found["masked"], SUM).value
    assert rank(found["clear"], CLIENT).high < rank(found["noisy"], NOISY).value


@pytest.mark.long
@pytest.mark.parametrize("split", ["file", 1, 2, 7])
def test_decoder_and_descent_by_level(data_folder, tmp_path, split):
    """Of a client's 30 images many are re-identified from its (N, A, B), none beyond its class from the sum's means.

    The rule of success was chosen on the order of the file; the others confirm it.
    """
    plan, parts, knowledge = federation(data_folder, ResNet18, split, 30, one_class=False)
    finding = examine(seen_by("curious_server", session_of(plan, parts)), knowledge, lambda *_: None)
    show(f"split {split}", finding, tmp_path)
    assert finding.verdict is Verdict.SUCCEEDS
    assert all(control.holds for control in finding.controls)
    assert rate(finding, CLIENT).low > 0.3
    assert SUM not in finding.sentence


@pytest.mark.long
def test_squeezenet_features_are_met_by_other_images(data_folder):
    """At 32 pixels its feature is met for some images, and theirs are other images all the same.

    A median of 21 of its 512 features are not 0: what is missing is no better descent but knowledge of images.
    """
    plan, _, knowledge = federation(data_folder, SqueezeNet, "file", 4, one_class=False)
    features = knowledge.candidates.features
    assert np.median(np.count_nonzero(features, axis=1)) < 40
    rows = np.arange(8)
    wanted = knowledge.candidates.integers[rows] / plan.levels
    made = deep_image_prior(wanted, (32, 32, 3), knowledge.backbone, plan.grid, restarts=1)
    with torch.no_grad():
        reached = knowledge.backbone(torch.from_numpy(made).permute(0, 3, 1, 2).float()).numpy() / plan.radius
    misfit = np.sum((reached - wanted) ** 2, axis=1) / np.sum(wanted**2, axis=1)
    ranks = np.array(score(made, knowledge, rows).nearer_of_all)
    met = misfit < 0.01
    print(f"rank, mean {ranks.mean():.3f}; features met to 1 %: {met.sum()} of 8, their rank {ranks[met].mean():.3f}")
    assert met.sum() >= 3
    assert ranks.mean() > 0.25
    assert ranks[met].mean() > 0.25


@pytest.mark.long
@pytest.mark.parametrize("split", ["file", 7])
def test_squeezenet_shows_some_images_to_a_decoder(data_folder, split):
    """Public images make up for it in part: of 120 more are re-identified than by their class, too few for 16 to tell.

    That 120 are needed was seen on the order of the file; the other confirms it.
    """
    plan, _, knowledge = federation(data_folder, SqueezeNet, split, 30, one_class=False)
    rows, public = np.arange(120), knowledge.public
    means = np.stack([public.integers[public.labels == label].mean(axis=0) for label in range(10)])
    decode = choose_inverter(knowledge, plan, method="decoder")
    raw = score(decode(knowledge.candidates.integers[rows] / plan.levels), knowledge, rows)
    alone = score(decode(means[knowledge.candidates.labels[rows]] / plan.levels), knowledge, rows)
    for name, scores in (("raw", raw), ("class alone", alone)):
        print(f"{name}: {scores.rate}, mean rank in class {np.mean(scores.nearer):.3f}")
    assert raw.tells_more_than(alone)
    assert raw.rate.high < 0.5
