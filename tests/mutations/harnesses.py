"""The harnesses that score a planted fault; each answers with the audit's exit code.

0: passed, 1: flagged, 3: the transcript is invalid, 4: this harness cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import SecaggError, TranscriptInvalid
from secagg.federation import session_folder
from secagg.protection.encryption.parameters import for_capacity
from secagg.session import round_setup as contribution
from secagg.transcript import FILE_NAME
from secagg.verification.transcript_series import verify_transcript
from tests.protection.masking.test_derivations import test_all_derivations_are_those_of_the_vector as known_answers
from tests.session.noise_checks import check_record_is_bounded, honest
from tests.threat_models.recorded import read_session
from tests.worlds.setups import make_setup
from threat_models.active.consortium import Consortium
from threat_models.active.probe import run_probe
from threat_models.active.run import PROBES
from threat_models.active.stage import Everyone, play
from threat_models.adversary import adversary_named
from threat_models.attacks.protocol.masked_uploads import MASKED_UPLOADS
from threat_models.attacks.protocol.split_of_sum import guess_splits
from threat_models.estimation.recomputation import second_opinion
from threat_models.estimation.rerelease import audit_release, draw_release, worst_canary
from threat_models.evidence.split_sessions import SplitSessions
from threat_models.findings import Verdict
from threat_models.session import Encoding
from threat_models.views import view_of

PASSED, FLAGGED, INVALID, UNCLEAR = 0, 1, 3, 4
OF_VERDICT = {Verdict.FAILS: PASSED, Verdict.SUCCEEDS: FLAGGED, Verdict.INCONCLUSIVE: UNCLEAR}
RELEASES = 50_000
FALSE_ALARM = 1e-6
"""Probability with which a re-release audit flags noise that is as planned."""
BY_NAME = {probe.name: probe for probe in PROBES}

Harness = Callable[[Path], Any]


def probe(name: str) -> Harness:
    """An active probe of real parties."""

    async def score(folder: Path) -> int:
        return OF_VERDICT[(await run_probe(BY_NAME[name], folder)).verdict]

    score.__name__ = f"probe: {name}"
    return score


def transcripts(sessions: int = 1, protection: str = "masked", *, proves: bool, **choices: Any) -> Harness:
    """The transcripts of every party of one or two sessions of the same members, and what the server's view shows.

    `proves`: whether these transcripts, when nothing is wrong with them, say that all is well. Otherwise silence is
    no pass.
    """

    async def score(folder: Path) -> int:
        consortium = Consortium.enrol(folder, protection, **choices)
        views = []
        for number in range(sessions):
            if number:
                policy = replace(consortium.policy, repeat_sessions=True)
                consortium = replace(consortium.again(**choices), policy=policy)
            endings = await play(Everyone(consortium))
            assert not any(endings.values()), endings
            try:
                views.append(_checked(consortium))
            except TranscriptInvalid:
                return INVALID
        found = OF_VERDICT.get(_of_uploads(views), PASSED)
        return found if found != PASSED or proves else UNCLEAR

    score.__name__ = f"transcripts: {protection}, {sessions}, " + (", ".join(choices) or "plain")
    return score


def _checked(consortium: Consortium) -> Any:
    for member in (*consortium.clients, *consortium.helpers):
        verify_transcript(session_folder(consortium.state(member), consortium.setup) / FILE_NAME)
    session = read_session(session_folder(consortium.state(SERVER_INDEX), consortium.setup) / FILE_NAME)
    return view_of(session, adversary_named("curious_server"))


def _of_uploads(views: list[Any]) -> Verdict:
    return MASKED_UPLOADS.run(tuple(views), None, lambda done, total: None).verdict  # type: ignore[arg-type]


def releases(spread: int = 1, **choices: Any) -> Harness:
    """Re-releases of a worst-case record with the members' own sampler."""

    def score(folder: Path) -> int:
        claim = make_setup(**choices).facts.claim
        assert claim is not None
        release = draw_release(worst_canary(claim.releases, spread), contribution.discrete_gaussian)
        bound = audit_release(claim, releases=RELEASES, spread=spread, release=release, level=FALSE_ALARM)
        return FLAGGED if bound.refuted else PASSED

    score.__name__ = f"re-releases, spread {spread}"
    return score


def splits(folder: Path) -> int:
    """Two splits of one sum as a key holder sees them whose key leaves no noise."""
    found = guess_splits([SplitSessions(for_capacity(1000, 5), 128).series(Encoding.CLIENT, 4)])["key without noise"]
    return FLAGGED if found.differing else PASSED


def recomputed(**choices: Any) -> Harness:
    """The auditor's own ε of the noise in a fresh plan."""

    def score(folder: Path) -> int:
        setup = make_setup(**choices)
        return PASSED if second_opinion(setup.plan, honest(setup)).agrees else FLAGGED

    score.__name__ = "second opinion"
    return score


def records(folder: Path) -> int:
    """Re-releases of neighbours that differ in one record of any length."""
    return _checks(lambda: check_record_is_bounded(make_setup()))


def answers(folder: Path) -> int:
    """Known answers of everything that is derived."""
    return _checks(known_answers)


def _checks(check: Callable[[], None]) -> int:
    try:
        check()
    except (AssertionError, SecaggError):
        return FLAGGED
    return PASSED
