"""Test whether masked uploads are uniform in the ring and independent of each other, as correct masks make them.

One-time masks make every upload uniform and independent of the vectors, of other clients' uploads and of other
sessions'. What is tested is what a faulty mask leaves: a bias of the stream, entries without a mask, one mask for two
clients, one mask for two sessions. A pass says no more than that none of these shows; a distinguisher for AES is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from threat_models.attacks.attack import Attack, Progress
from threat_models.findings import Control, Finding, Metric, Verdict, decide
from threat_models.session import Knowledge
from threat_models.views import View

CHANCE = Metric("chance", "chance, if uniform", good="above 0.000001", leads=True, each="kind of trace")
NOT_MASKED = "There are no masked uploads: nothing need be uniform."
LEVEL = 1e-6
"""Probability with which uniform uploads are taken for faulty ones."""
FEWEST_WORDS = 160
"""Least number of words for a χ² test: ten for each value of a half byte."""
Words = NDArray[np.uint64]


def unpack_words(upload: bytes, entries: int) -> tuple[Words, int]:
    """Return an upload's entries as integers (words), and the number of bits of each."""
    size = len(upload) // entries
    words = np.zeros((entries, 8), dtype=np.uint8)
    words[:, :size] = np.frombuffer(upload, dtype=np.uint8).reshape(entries, size)
    return words.view("<u8").reshape(-1), 8 * size


def chance(vectors: Sequence[Words], bits: int) -> float:
    """Compute the p-value of n equally long vectors of `bits`-bit integers, if these are independent and uniform.

    Three tests, each with Bonferroni's correction: χ² of the sixteen values of every half byte, of all vectors and of
    each, where there are enough words; that all n signed values of an entry are as small as the largest of them (uⁿ for
    u·2^(bits − 1)); and that all entries of all vectors are.
    """
    table = np.stack(vectors)
    enough = [each for each in (table, *vectors) if each.size >= FEWEST_WORDS]
    counts = [
        np.bincount((each >> np.uint64(at)).ravel().astype(np.int64) & 15, minlength=16)
        for each in enough
        for at in range(0, bits, 4)
    ]
    of_halves = min((float(stats.chisquare(each).pvalue) for each in counts), default=1.0) * max(1, len(counts))
    small = np.minimum(table, (~table + np.uint64(1)) & np.uint64((1 << bits) - 1))
    relative = (small.astype(np.float64) + 1.0) / 2.0 ** (bits - 1)
    of_entries = float((relative.max(axis=0) ** len(vectors)).min()) * len(vectors[0])
    of_all = float(relative.max() ** min(table.size, 1 << 20))
    return min(1.0, 3 * min(of_halves, of_entries, of_all))


def find_traces(sessions: Sequence[Mapping[str, Words]], bits: int) -> dict[str, float]:
    """Compute a p-value for each kind of trace that faulty masks leave in clients' masked uploads.

    Each of the `sessions` has the words by client, all of one ring.
    """
    modulus = np.uint64((1 << bits) - 1)
    found = {
        "uploads of a session": [chance(list(each.values()), bits) for each in sessions],
        "differences of two clients": [
            chance([(one - other) & modulus], bits)
            for each in sessions
            for one, other in combinations(each.values(), 2)
        ],
        "differences of a client's two sessions": [
            chance([(one[name] - other[name]) & modulus], bits)
            for one, other in combinations(sessions, 2)
            for name in one.keys() & other.keys()
            if len(one[name]) == len(other[name])
        ],
    }
    return {name: min(1.0, len(values) * min(values)) for name, values in found.items() if values}


def run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    """Test the masked uploads that an adversary sees. Not applicable to unmasked ones, which need not be uniform."""
    if views[0].plan.protection != "masked" or not views[0].uploads or not views[0].release:
        return Finding("masked_uploads", "", Verdict.NOT_APPLICABLE, NOT_MASKED)
    words = []
    for view in views:
        entries = sum(block.size for block in view.release.values())
        words.append({name: unpack_words(upload, entries) for name, upload in view.uploads.items()})
    bits = next(iter(words[0].values()))[1]
    sessions = [{name: own for name, (own, width) in each.items() if width == bits} for each in words]
    found = find_traces([each for each in sessions if each], bits)
    generator, length = np.random.default_rng(0), len(next(iter(sessions[0].values())))
    clear, uniform = (
        [generator.integers(0, end, length, dtype=np.uint64) for _ in sessions[0]] for end in (1000, 1 << bits)
    )
    controls = (
        Control("vectors without masks", True, chance(clear, bits) < LEVEL),
        Control("uniform vectors", False, chance(uniform, bits) < LEVEL),
    )
    worst = min(found, key=lambda name: found[name])
    is_enough = min(sum(map(len, each.values())) for each in sessions) >= FEWEST_WORDS
    if found[worst] < LEVEL:
        sentence = f"Masks leave a trace in the {worst}: uniform words do so once in"
        sentence += f" {1 / max(found[worst], 1e-300):.2g} sessions."
    else:
        sentence = "No trace of the vectors, of other clients or of other sessions in uploads."
        sentence += "" if is_enough else " So few entries could hide one."
    method = "chi-squared and largest values, Bonferroni"
    measures = tuple(CHANCE.exact(value, method, of=name, baseline=1.0) for name, value in found.items())
    progress(1, 1)
    verdict = decide(found[worst] < LEVEL, is_enough, controls)
    return Finding("masked_uploads", "", verdict, sentence, measures, controls=controls)


MASKED_UPLOADS = Attack(
    "masked_uploads",
    "Patterns in masked uploads",
    "Bonawitz et al. 2017, Lemma 6.1 (what must hold)",
    ("uploads", "release"),
    run,
    (CHANCE,),
    tries_records=False,
    weighs_all=True,
    meaning="Uploads show something of the vectors that they should hide.",
    remedy="Stop using this build, whose masks are faulty, and report it as SECURITY.md says.",
    unsuited=lambda session: "" if session.plan.protection == "masked" else NOT_MASKED,
)
