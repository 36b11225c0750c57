"""What the attacks' measures mean: their units, what they would be if nothing leaked, and which one says the most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from threat_models.findings import Finding, Measure
from threat_models.report.text import interval, quantity

SHARE = "%"
REFUSED = "refused"


@dataclass(frozen=True)
class Meaning:
    """All measures that `name`, a pattern, fits.

    `good` is what they would be if nothing leaked; {baseline} and {ceiling} in it stand for the measure's own. `leads`:
    a finding is summed up by the first of its measures that fits, in the order of the table.
    """

    name: str
    unit: str = ""
    good: str = ""
    leads: bool = False


_NO_CLEARER = "no more than {baseline}, by the class alone"
_CHANCE = "0.5, chance; a success above 0.6"
_BLIND = Meaning("blind AUC, from the records alone", "", "0.5: without the session they are not told apart")
_MEMBERSHIP = (
    Meaning("AUC, knowing all other records", "", _CHANCE, leads=True),
    Meaning("AUC, *", "", _CHANCE, leads=True),
    Meaning("AUC of the worst class (*)", "", _CHANCE),
    Meaning("TPR at * FPR, *", SHARE, "{baseline}, chance"),
    Meaning("FPR at the threshold of *", SHARE),
    _BLIND,
    Meaning("noise variance over the plan's", "", "1, as planned"),
)
_APART = Meaning("signal to noise of *", "", "0, noise alone")
MEANINGS: dict[str, tuple[Meaning, ...]] = {
    "label_counts": (
        Meaning("share of the counts' variance that is not noise", SHARE, "0 %, noise alone", leads=True),
        Meaning("sigma of a count", "records", "larger than the counts"),
        Meaning("error of counts from class sums", "records", "no less than {baseline}, without the vector"),
    ),
    "property_inference": (
        Meaning("error of a class share", SHARE, "no less than {baseline}, by public records", leads=True),
        Meaning("error of a class mean, relative", SHARE, "no less than {baseline}, by public records"),
    ),
    "small_cells": (
        Meaning("records alone in a cell, *", "records", "0 records", leads=True),
        Meaning("cells of one client, *", "cells", "0 cells", leads=True),
        Meaning("records in the smallest cell, *", "records", "many"),
        Meaning("* recognised in a cell, *", "records", "0 records"),
    ),
    "unmixing": (
        Meaning("cosine of the recovered features, *", "", "no more than {baseline}, by class means", leads=True),
        Meaning(
            "members found by the range of B",
            SHARE,
            "no more than of strangers, of whom {baseline} are found",
            leads=True,
        ),
        Meaning("strangers taken for members", SHARE, "as many as members found"),
        Meaning("least cosine, *", "", "no more than {baseline}, by class means"),
        _BLIND,
    ),
    "feature_inversion": (
        Meaning("re-identified, N, A and B of *", SHARE, _NO_CLEARER, leads=True),
        Meaning("re-identified, class mean of *client*", SHARE, _NO_CLEARER, leads=True),
        Meaning("re-identified, class mean of *sum*", SHARE, _NO_CLEARER, leads=True),
        Meaning("re-identified, *", SHARE, _NO_CLEARER),
        Meaning("strangers of its class nearer than the true image, *", SHARE, "{baseline}, by the class alone"),
        Meaning("* share of all candidates nearer than the true image, *", SHARE, "{baseline}, by chance"),
        Meaning("PSNR in dB, *", "dB", _NO_CLEARER),
        Meaning("SSIM, *", "", _NO_CLEARER),
    ),
    "membership_release": _MEMBERSHIP,
    "membership_head": _MEMBERSHIP,
    "loss_entropy_gaps": (
        *_MEMBERSHIP[1:-1],
        Meaning("loss gap", "nats", "0"),
        Meaning("entropy gap", "nats", "0"),
    ),
    "differencing": (
        Meaning("clients by which the sums differ", "clients", "0, or 2 and more", leads=True),
        _APART,
        Meaning("epsilon of both plans together"),
        *_MEMBERSHIP[1:-1],
    ),
    "collusion_subtraction": (
        Meaning("honest clients in what is left", "clients", "2 or more", leads=True),
        _APART,
        Meaning("epsilon against these colluders", "", "no more than {ceiling}, as claimed"),
        *_MEMBERSHIP[1:-1],
    ),
    "sizes_and_timing": (
        Meaning(
            "bits that a size tells, at most", "bits", "0 bits, of the {ceiling} that would name the client", leads=True
        ),
        Meaning("steps whose sizes differ", "steps", "0 steps"),
        Meaning("p-value of sizes or order against records", "", "not small"),
    ),
    "masked_uploads": (Meaning("chance of the * if uniform", "", "above 0.000001", leads=True),),
    "split_of_sum": (
        Meaning("splits told, *, * rounds", SHARE, "{baseline}, chance", leads=True),
        Meaning("splits told, *", SHARE, "{baseline}, chance"),
        Meaning("coefficients that depend on the split", SHARE, "0 %"),
    ),
    "malicious_server": (
        Meaning("ways to cheat that were refused", SHARE, "100 %", leads=True),
        Meaning("*: *", REFUSED, "refused"),
    ),
}
"""By attack."""


def meaning_of(attack: str, measure: str) -> Meaning:
    """The meaning of a measure; of an unknown one a plain number."""
    fitting = (each for each in MEANINGS.get(attack, ()) if fnmatchcase(measure, each.name))
    return next(fitting, Meaning(measure))


def is_known(attack: str, measure: str, *, surely: bool = False) -> bool:
    """Whether a gate's rule for an attack (or "*") and a measure (a name, or a pattern) can ever fit anything.

    `surely`: it is a name of the table or fits one, so that what * stands for there cannot be misspelt.
    """
    known = [each.name for name, found in MEANINGS.items() if attack in (name, "*") for each in found]
    return any(fnmatchcase(name, measure) or (not surely and fnmatchcase(measure, name)) for name in known)


def in_units(attack: str, measure: Measure, value: float) -> str:
    """A value of a measure in its unit: "98.2 %"."""
    return quantity(value, meaning_of(attack, measure.name).unit)


def with_interval(attack: str, measure: Measure) -> str:
    """A measure's value with its interval, in its unit."""
    return interval(measure, meaning_of(attack, measure.name).unit)


def good_of(attack: str, measure: Measure) -> str:
    """What a measure would be if nothing leaked; nothing where that is not known."""
    meaning = meaning_of(attack, measure.name)
    found = {
        name: quantity(value, meaning.unit)
        for name, value in (("baseline", measure.baseline), ("ceiling", measure.ceiling))
        if value is not None
    }
    try:
        return meaning.good.format(**found)
    except KeyError:
        return ""


def is_drawn(attack: str, measure: Measure) -> bool:
    """Whether a measure lies on a scale from 0 to 1, with what it is compared with."""
    beside = [value for value in (measure.baseline, measure.ceiling) if value is not None]
    return meaning_of(attack, measure.name).unit in ("", SHARE) and all(0 <= value <= 1 for value in beside)


def leading(finding: Finding) -> Measure | None:
    """The measure that sums a finding up, if it has one."""
    return next(_leading(finding), None)


def _leading(finding: Finding) -> Iterator[Measure]:
    for meaning in MEANINGS.get(finding.attack, ()):
        for measure in finding.measures if meaning.leads else ():
            if meaning_of(finding.attack, measure.name) is meaning:
                yield measure


def summed_up(finding: Finding) -> str:
    """The measure that says the most: name, value with interval and unit, what would be good, what ε allows."""
    measure = leading(finding)
    if measure is None:
        return ""
    said = f"{measure.name}: {with_interval(finding.attack, measure)}"
    if good := good_of(finding.attack, measure):
        said += f"; good: {good}"
    if measure.ceiling is not None and "{ceiling}" not in meaning_of(finding.attack, measure.name).good:
        said += f"; epsilon allows {in_units(finding.attack, measure, measure.ceiling)}"
    return said
