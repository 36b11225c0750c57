"""Test whether the key holder of an encrypted sum can tell how a known sum is split among the members.

It asks whether the second of two members holds a vector in it, or the first. What it would see of either answer it can
compute but for the noise of encryptions of zero. Where the two differ, what it sees is nearer to one of them: the
likelihood ratio for noise of one variance, added up over the sessions in which the answer stays the same. Where they do
not differ, it has a coin.

Sessions are made anew with the plan's parameters. So this attacks the code that is installed here, not what some member
ran. The control is the library's own encryption, which rounds q·m/t for a residue m modulo t.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from threat_models.attacks.attack import Attack, Progress
from threat_models.estimation.intervals import clopper_pearson
from threat_models.findings import SHARE, Control, Finding, Measure, Metric, Verdict, decide
from threat_models.session import Encoding, Knowledge, SplitSession
from threat_models.views import View

NOT_ENCRYPTED = "There are no ciphertexts whose sum is decrypted."
ROUNDS = 16
SERIES = 24
"""Number of series tried; each is `ROUNDS` rounds with the same split."""
CONTROL_SERIES = 20
CONTROL_LEVEL = 1e-4
CHANCE = 0.5
TOLD = 0.85
"""Share of splits guessed right that an audit must be able to rule out before it says that the attack fails."""
IN_SESSION = Metric("splits_told.one_session", "splits told, one session", SHARE, "{baseline}, chance", each="key")
IN_ROUNDS = Metric(
    "splits_told.rounds", f"splits told, {ROUNDS} rounds", SHARE, "{baseline}, chance", leads=True, each="key"
)
DEPENDENT = Metric("dependent_coefficients", "coefficients that depend on the split", SHARE, "0 %")


@dataclass(frozen=True)
class Score:
    """Numbers of right guesses of a sum's split, from single sessions and from series of sessions.

    `sessions` of `rounds` single sessions, `series` of `tried` series.
    An undecided guess counts half. `differing` of `coefficients` depend on the split.
    """

    sessions: float
    series: float
    tried: int
    rounds: int
    differing: int
    coefficients: int


def guess_splits(series: Sequence[Sequence[SplitSession]]) -> dict[str, Score]:
    """Guess how each sum is split, from single sessions and from series; return scores by the key's name."""
    scores: dict[str, list[list[float]]] = {}
    differing = coefficients = 0
    for sessions in series:
        rows: dict[str, list[float]] = {name: [] for name in sessions[0].seen}
        for session in sessions:
            one, other = session.predicted
            difference = _subtract(other, one, session.prime)
            differing, coefficients = differing + int(np.count_nonzero(difference)), coefficients + len(one)
            for name, row in rows.items():
                # twice the log-likelihood ratio of the second split, times the variance of the noise
                ratio = difference @ (_subtract(session.seen[name], one, session.prime) - difference / 2)
                row.append((2 * sessions[0].truth - 1) * float(ratio))
        for name, row in rows.items():
            scores.setdefault(name, []).append(row)
    found = {name: np.array(each) for name, each in scores.items()}
    return {
        name: Score(_count_right(each), _count_right(each.sum(axis=1)), len(series), each.size, differing, coefficients)
        for name, each in found.items()
    }


def _subtract(one: NDArray[np.uint64], other: NDArray[np.uint64], prime: int) -> NDArray[np.float64]:
    """Subtract modulo a prime below 2^62, and return the representatives nearest to 0."""
    signed = (one.astype(np.int64) - other.astype(np.int64)) % prime
    return np.asarray(np.where(signed > prime // 2, signed - prime, signed), dtype=np.float64)


def _count_right(signed: NDArray[np.float64]) -> float:
    """Count the right guesses, those with a score above 0; a score of 0 counts half."""
    return float((signed > 0).sum() + (signed == 0).sum() / 2)


def run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    """Attack ciphertexts of the installed client code and, as controls, of the homomorphic library's own encryption."""
    ciphertexts = views[0].ciphertexts
    if ciphertexts is None:
        return Finding("split_of_sum", "", Verdict.NOT_APPLICABLE, NOT_ENCRYPTED)
    planned = {Encoding.CLIENT: SERIES, Encoding.LIBRARY: CONTROL_SERIES, Encoding.LIBRARY_MASKED: CONTROL_SERIES}
    found = {}
    for done, (encoding, tries) in enumerate(planned.items()):
        progress(done, len(planned))
        found[encoding] = guess_splits([ciphertexts.series(encoding, ROUNDS) for _ in range(tries)])
    progress(len(planned), len(planned))
    return make_finding(*found.values())


def make_finding(found: Mapping[str, Score], known: Mapping[str, Score], unknown: Mapping[str, Score]) -> Finding:
    """Make the finding from scores on the client's ciphertexts (`found`) and on control ciphertexts by the HE library.

    The controls' masks are `known` to the key holder, or `unknown`. It succeeds where any key tells splits better than
    chance, beyond the interval.
    """
    controls = (
        Control("the library's own encryption", True, all(map(_is_better_than_chance, known.values()))),
        Control("the same, masks unknown", False, any(map(_is_better_than_chance, unknown.values()))),
    )
    rates = []
    for name, each in found.items():
        for metric, right, tried in ((IN_ROUNDS, each.series, each.tried), (IN_SESSION, each.sessions, each.rounds)):
            rates.append(clopper_pearson(round(right), tried).measure(metric, of=name, baseline=CHANCE))
    first = next(iter(found.values()))
    share = clopper_pearson(first.differing, first.coefficients).measure(DEPENDENT, baseline=0.0)
    verdict = decide(any(rate.low > CHANCE for rate in rates), all(rate.high < TOLD for rate in rates), controls)
    sentence = _describe(verdict, rates, share)
    return Finding("split_of_sum", "", verdict, sentence, (*rates, share), controls=controls)


def _is_better_than_chance(of: Score) -> bool:
    """Return whether splits of series are surely guessed right more often than by chance."""
    return clopper_pearson(round(of.series), of.tried, CONTROL_LEVEL).low > CHANCE


def _describe(verdict: Verdict, rates: Sequence[Measure], share: Measure) -> str:
    made = f"In sessions made anew with the plan's parameters, by the client installed here, {share.value:.1%}"
    seen = f"{made} of what the key holder sees depends on how a known sum is split between two members"
    if verdict is Verdict.FAILS:
        return f"{seen}; none of {len(rates) // 2} keys, honest and malicious, tells the split better than chance."
    best = max(rates, key=lambda each: each.value)
    tried = f"{ROUNDS} rounds" if best.metric is IN_ROUNDS else "one session"
    return f"{seen}; {best.of}, {tried}: {best.value:.0%} of splits are told right."


SPLIT_OF_SUM = Attack(
    "split_of_sum",
    "How a known sum is split, from the ciphertexts' sum",
    "the project's own; Fan & Vercauteren 2012, section 3 (what hides the split)",
    ("release",),
    run,
    (IN_ROUNDS, IN_SESSION, DEPENDENT),
    tries_records=False,
    limits=7,
    weighs_all=True,
    meaning="The key holder knows how the sum is split between members.",
    remedy="Stop using this build, whose encryption is faulty, and report it as SECURITY.md says.",
    unsuited=lambda session: "" if session.plan.protection == "encrypted" else NOT_ENCRYPTED,
)
