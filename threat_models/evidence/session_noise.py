"""Measure the noise in the sum of an audited session.

With the records of all members the rest of the opened sum is its noise. Without them noise shows alone where exact sums
are 0 (`methods.method.ZeroSums`). The noise of members' own training shows in a simulation alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from methods import method_of
from methods.round import Local
from secagg.agreement.plan import NoiseFrom
from threat_models.attacks.gaussian_likelihood import MOMENTS, standardise, total
from threat_models.attacks.membership.noise_check import is_explained, parities_agree
from threat_models.estimation.chi_square import NoisePart, SessionNoise, measure_variance
from threat_models.session import Blocks, Knowledge, NoisySum, Session, join_records

BY_RECORDS = "measured by subtracting the known records from the opened sum, which leaves the noise"
BY_ZEROS = "measured from sums that are zero without noise"
BY_STEPS = "seen where members' own code drew it"
BY_PARITIES = "seen in the parities of the sum's entries"
PARITIES = (
    "There is less noise in the sum than planned: the diagonal of the second moment is odd exactly where the class "
    "sums are, as without noise."
)
SPARED = (
    "This measure does not detect a cheating party that leaves the noise in these sums as planned, nor one "
    "member of many with too little noise."
)
FEW = "This measure does not detect one member of many whose noise is a little too small."
UNKNOWN = (
    "The noise of this session is not known: none of its sums is zero without noise, and the records of all members "
    "are not at hand."
)
MISSING = (
    "The noise of this session is not known: {} of its {} sums are not at hand. Give the transcripts of all its rounds."
)
IN_TRAINING = "The noise of this session is not known: members draw it in their own training."
ALIGNED = 6e-5
"""Probability with which noise alone lies along the known records so much that records are taken for missing."""
MARGIN = 2.0
"""Factor by which rounding may leave more in zero sums of the summed records than of the records at hand."""


def noise_of_sessions(
    sessions: Sequence[Session], knowledge: Knowledge, trained: Sequence[NoisePart] = ()
) -> SessionNoise | None:
    """Return the least noise measured in any session, None without any; `knowledge` is about the first session.

    `trained` is the noise of members' training that a simulation saw.
    """
    measured = len(sessions) + len(trained)  # which share the chance of a false alarm
    found = [measure_variance([part], f"{BY_STEPS} for {part.name}", FEW, measured) for part in trained]
    found += [
        _noise_of(session, knowledge if place == 0 else None, knowledge, measured, sees_training=bool(trained))
        for place, session in enumerate(sessions)
        if session.plan.has_noise and not (trained and session.plan.noise == NoiseFrom.MEMBER)
    ]
    return min(found, key=lambda each: (not each.is_short, each.low, each.high), default=None)


def _noise_of(
    session: Session, members: Knowledge | None, at_hand: Knowledge, sessions: int, *, sees_training: bool
) -> SessionNoise:
    whole = list(_rest_of(session, members)) if members is not None else []
    names = {part.name for part in whole}
    sums = [_without(each, names) if each.number == session.number else each for each in session.noisy_sums]
    parts = [*whole, *(part for each in sums for part in _zeros_of(session, each, at_hand))]
    is_by_zeros = len(parts) > len(whole)
    source = " and ".join([BY_RECORDS] * bool(whole) + [BY_ZEROS] * is_by_zeros)
    caveat = SPARED if is_by_zeros else FEW
    unseen = [(name.replace("_", " "), each.number) for each in sums for name in each.unseen]
    if unseen:  # blocks without zero sums, where not all records are known
        said = [f"{name} of sum {number}" if session.sums > 1 else name for name, number in unseen]
        caveat += f" It says nothing about the noise on the {', '.join(said)}."
    found = measure_variance(parts, source, caveat, sessions) if parts else None
    if found is not None and found.is_short:
        return found
    if "second_moment" in session.release and parities_agree(session.release):
        return SessionNoise(0.0, 0.0, 0.0, session.plan.dimension, BY_PARITIES, PARITIES)
    if found is None:
        return _unknown(UNKNOWN if session.noise is not None else IN_TRAINING)
    if session.plan.has_training_noise and not sees_training:
        return _unknown(IN_TRAINING)
    missing = session.sums - len(session.noisy_sums)
    return _unknown(MISSING.format(missing, session.sums)) if missing > 0 else found


def _without(noisy: NoisySum, names: set[str]) -> NoisySum:
    """Leave out the blocks of these names, because their noise was measured with the known records."""
    samples = tuple(each for each in noisy.samples if each.rule.block.replace("_", " ") not in names)
    unseen = tuple(each for each in noisy.unseen if each.replace("_", " ") not in names)
    return replace(noisy, samples=samples, unseen=unseen)


def _unknown(sentence: str) -> SessionNoise:
    return SessionNoise(math.nan, 0.0, math.inf, 0, "", sentence)


def _rest_of(session: Session, knowledge: Knowledge) -> Iterator[NoisePart]:
    """Yield the noise left of a sum by block when the known records are taken off, where these are plausibly all.

    A simulation has what its members contributed, whatever the method makes of records.
    Records that are missing look like those that are known: the rest would lie along their sum, or along that of one
    class. The shares of the noise that do are taken off, so that missing records cannot pass for noise.
    """
    release, noise = session.release, session.noise
    if noise is None:
        return
    if session.exact and session.calibration is not None:
        for (name, opened), planned in zip(release.items(), session.calibration.blocks, strict=True):
            left = opened - sum(own[name] for own in session.exact.values())
            scales = np.concatenate([np.full(entries, sigma / planned.sigma) for sigma, entries in planned.segments])
            yield NoisePart(name.replace("_", " "), np.asarray(left).ravel() / (scales * noise[name].sigma))
        return
    if "class_sums" not in release or not (knowledge.is_member.any() or knowledge.others):
        return
    known = total(knowledge.candidates.take(knowledge.is_member), len(release["counts"]), frozenset(release) & MOMENTS)
    if knowledge.others is not None:
        known = {name: block + knowledge.others[name] for name, block in known.items()}
    rest = standardise({name: release[name] - known[name] for name in known}, noise)
    along = standardise(known, noise)
    length = math.sqrt(sum(float(np.sum(each**2)) for each in along.values()))
    if not length or not is_explained(rest):
        return
    share = sum(float(np.sum(rest[name] * along[name])) for name in rest) / length
    sums = along["class_sums"].reshape(-1, session.plan.dimension)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    units = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
    shares = np.append(np.sum(rest["class_sums"].reshape(sums.shape) * units, axis=1), share)
    if np.max(np.abs(shares)) <= stats.norm.isf(ALIGNED / 2 / len(shares)):
        norm = math.sqrt(sum(float(np.sum(each**2)) for each in rest.values()))
        remainder = norm - math.sqrt(max(0.0, norm**2 - float(np.sum(shares**2))))
        for name, values in rest.items():
            yield NoisePart(name.replace("_", " "), values, remainder if name == "class_sums" else 0.0)


def _zeros_of(session: Session, noisy: NoisySum, at_hand: Knowledge) -> Iterator[NoisePart]:
    """Yield the zero sums of one of the plan's sums, each with a bound of what rounding leaves in it."""
    records = _most_records(session)
    known = join_records(at_hand.candidates, *(() if at_hand.public is None else (at_hand.public,)))
    blocks: Blocks = {}
    if noisy.round is not None and len(known) and not method_of(session.plan).traits.reads_inputs:
        local = Local(known.examples, len(session.plan.classes), session.plan.grid)
        blocks = noisy.round.contribute(local).blocks
    for sample in noisy.samples:
        remainder = records * sample.remainder
        if blocks:
            more = records / len(known)
            found = MARGIN * max(more, math.sqrt(more)) * sample.left_by(blocks[sample.rule.block])
            remainder = min(remainder, found)
        name = f"zero sums of the {sample.rule.block.replace('_', ' ')} of sum {sample.number}"
        yield NoisePart(name, sample.values, remainder)


def _most_records(session: Session) -> float:
    """Bound the number of summed records: the opened counts plus 4 σ of their noise, at most the planned number."""
    planned = float(session.plan.max_records * len(session.members))
    counts = session.release.get("counts")
    if counts is None or session.noise is None:
        return planned
    reach = 4 * session.noise["counts"].sigma * math.sqrt(np.size(counts))
    return min(planned, max(0.0, float(np.sum(counts))) + reach)
