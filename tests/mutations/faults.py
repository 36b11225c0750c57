"""The planted faults: what is changed, which harness must see it, and what transcripts alone say of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from methods.closed_form.refinement import RefinementRound
from methods.gate import GatedRound
from secagg.agreement.policy import Policy
from secagg.crypto.envelopes import Address
from secagg.crypto.labels import digest, number
from secagg.crypto.signatures import SigningKey, is_signed
from secagg.crypto.stream import MaskStream
from secagg.encoding import moments
from secagg.errors import PlanRefused
from secagg.features import local_records
from secagg.ledger import Entry, Ledger, ledger
from secagg.plan_facts import planning
from secagg.plan_facts.facts import PlanFacts
from secagg.privacy import Adjacency, MomentSensitivity, PrivacyClaim, discrete_gaussian
from secagg.privacy.gaussian import mu_of
from secagg.privacy.shares import GaussianCost
from secagg.protection.encryption import client as encryption_client
from secagg.protection.encryption.derivations import EncryptedContext
from secagg.protection.interface import Transition
from secagg.protection.masking import derivations
from secagg.protection.masking.client import Endorsed, Uploaded
from secagg.protection.masking.messages import Endorsement
from secagg.protection.sharing import aggregator
from secagg.protection.sharing import derivations as sharing
from secagg.randomness import SeededRandomness
from secagg.session import conclude, member_session, server_session
from secagg.session import receive_signed as hearing
from secagg.session import round_setup as contribution
from secagg.transcript import Journal, frames, open_frame, peek
from secagg.unsafe_for_tests import TOKEN
from secagg.wire import decode, encode
from tests.mutations.harnesses import (
    FLAGGED,
    INVALID,
    Harness,
    answers,
    probe,
    recomputed,
    records,
    releases,
    splits,
    transcripts,
)
from threat_models.active.consortium import NOISY

Plant = Callable[[pytest.MonkeyPatch], None]
NOISY_TRANSCRIPTS = transcripts(proves=False, **NOISY)
SILENT = {each: transcripts(protection=each, proves=False) for each in ("masked", "shared", "encrypted")}
ON_B = {"counts": 0.05, "class_sums": 0.05, "second_moment": 0.9}
"""Most of the budget for B: a fault of one kind of its entries then shows within 50,000 re-releases."""
WIDE = transcripts(proves=True, expand=64)


@dataclass(frozen=True)
class Fault:
    """One fault. `seen_by` must answer `code`; `transcript` is the harness of transcripts for the plan it concerns.

    Where transcripts do not see the fault they must say that they cannot tell: never that all is well.
    """

    area: str
    name: str
    plant: Plant
    seen_by: Harness
    code: int = FLAGGED
    transcript: Harness = SILENT["masked"]


def sampler(change: Callable[[Sequence[Any], Any], Any]) -> Plant:
    """The members draw their noise otherwise."""
    return lambda patch: patch.setattr(contribution, "discrete_gaussian", change)


def scaled(factor: float) -> Callable[[Sequence[Any], Any], Any]:
    """Every σ times a factor."""
    return lambda segments, source: discrete_gaussian(
        [(Fraction(sigma) * Fraction(factor), count) for sigma, count in segments], source
    )


def weak_off_diagonal(segments: Sequence[Any], source: Any) -> Any:
    """σ of the off-diagonal entries divided by √2 once more: those whose √2-fold stands there too."""
    sigmas = [float(sigma) for sigma, _ in segments]

    def changed(sigma: Any) -> Any:
        off = any(math.isclose(float(sigma) * math.sqrt(2), other, rel_tol=1e-6) for other in sigmas)
        return Fraction(sigma) * Fraction(1 / math.sqrt(2)) if off else sigma

    return discrete_gaussian([(changed(sigma), count) for sigma, count in segments], source)


def one_missing(patch: pytest.MonkeyPatch) -> None:
    """Every third share is nothing."""
    drawn = [0]

    def draw(segments: Sequence[Any], source: Any) -> Any:
        drawn[0] += 1
        noise = discrete_gaussian(segments, source)
        return noise * (drawn[0] % 3 != 0)

    patch.setattr(contribution, "discrete_gaussian", draw)


def same_seed(segments: Sequence[Any], source: Any) -> Any:
    """Everybody's noise from one seed."""
    return discrete_gaussian(segments, SeededRandomness(b"the same everywhere", TOKEN))


def small_second_moment(patch: pytest.MonkeyPatch) -> None:
    """A record is taken to move B by half of what it does."""
    squared = MomentSensitivity.squared

    def forgetful(self: MomentSensitivity, weights: Any) -> float:
        return squared(self, {**weights, "second_moment": weights["second_moment"] / 4})

    patch.setattr(MomentSensitivity, "squared", forgetful)
    untried(patch)


def add_remove_always(patch: pytest.MonkeyPatch) -> None:
    """Replacing a record is taken to move no more than adding one."""
    squared = MomentSensitivity.squared
    patch.setattr(
        MomentSensitivity, "squared", lambda self, w: squared(replace(self, adjacency=Adjacency.ADD_REMOVE), w)
    )
    untried(patch)


def untried(patch: pytest.MonkeyPatch) -> None:
    """A planner who does not try the method, which would refuse its declaration: the fault must be seen later too."""
    patch.setattr(planning, "check_declaration", lambda *arguments: None)


def rounded_down(patch: pytest.MonkeyPatch) -> None:
    """ε rounded down to one decimal, and noise chosen accordingly."""
    epsilon = GaussianCost.epsilon
    patch.setattr(GaussianCost, "epsilon", lambda self, delta: math.floor(10 * epsilon(self, delta)) / 10)

    def rounded(most: float, delta: float) -> float:
        return mu_of(math.floor(10 * most + 1) / 10 - 1e-6, delta)

    patch.setattr("secagg.privacy.calibration.mu_of", rounded)


def clipped_together(patch: pytest.MonkeyPatch) -> None:
    """Records are shortened together, so that only their sum is bounded."""

    def together(features: Any, grid: Any, origin: Any = None) -> Any:
        longest = np.linalg.norm(features, axis=1).max() / np.sqrt(len(features))
        return np.rint(features * (grid.levels / longest)).astype(np.int64)

    patch.setattr(local_records, "quantise", together)
    patch.setattr(moments, "_check_lengths", lambda chunk, levels: None)


def stream(change: Callable[[Any, Any, bytes, Any], None]) -> Plant:
    """Masks are applied otherwise, by clients and server alike."""
    return lambda patch: patch.setattr(MaskStream, "apply", change)


APPLY = MaskStream.apply


def seven_bits(self: Any, vector: Any, key: bytes, sign: Any) -> None:
    """The highest bit of every byte of the keystream is 0."""
    mask = np.zeros_like(vector)
    APPLY(self, mask, key, 1)
    mask &= np.frombuffer(b"\x7f" * vector.itemsize, dtype=vector.dtype)[0]
    (np.add if sign == 1 else np.subtract)(vector, mask, out=vector)


def all_but_counts(self: Any, vector: Any, key: bytes, sign: Any) -> None:
    """The counts of the three classes stay as they are."""
    APPLY(self, vector[3:], key, sign)


def same_masks(patch: pytest.MonkeyPatch) -> None:
    """Mask keys that do not depend on the session."""
    patch.setattr(
        derivations,
        "pairwise_key",
        lambda secret, own, peer, key, bound: digest("pair", *map(number, sorted((own, peer)))),
    )
    patch.setattr(derivations, "self_mask_key", lambda seed, each, bound: digest("self", number(each)))


def always(module: Any, name: str, value: Any = True) -> Plant:
    """A check that always says the same."""
    return lambda patch: patch.setattr(module, name, lambda *arguments, **options: value)


def any_survivors(self: Uploaded, context: Any, me: Any, incoming: Any) -> Transition:
    """Round 3 without its least number of survivors."""
    parts = derivations.endorsement_parts(context, self.directory, self.dealers, incoming.members, incoming.total)
    endorsement = Endorsement(me.member, me.identity.sign("survivors", *parts))
    endorsed = Endorsed(self.directory, self.dealers, self.held, incoming.members, self.upload, incoming.total)
    return Transition(endorsed, endorsement)


def header_unsigned(patch: pytest.MonkeyPatch) -> None:
    """Frames whose signature covers the payload alone."""
    sign = SigningKey.sign

    def payload(parts: tuple[bytes, ...]) -> tuple[bytes, ...]:
        return (decode(frames.FrameBody, parts[0]).payload,)

    patch.setattr(
        SigningKey,
        "sign",
        lambda self, label, *parts: sign(self, label, *(payload(parts) if label == "frame" else parts)),
    )
    patch.setattr(frames, "is_signed", lambda key, signature, label, *p: is_signed(key, signature, label, *payload(p)))


def any_session(patch: pytest.MonkeyPatch) -> None:
    """Members that take frames of whatever session."""
    for module in (member_session, hearing):
        patch.setattr(
            module,
            "open_frame",
            lambda data, roster, plan, one, other: open_frame(data, roster, peek(data).round_digest, one, other),
        )


def without_line(line: str) -> Plant:
    """A policy that forgets one of its lines."""
    check = Policy.check

    def check_without(self: Policy, *facts: Any) -> None:
        try:
            check(self, *facts)
        except PlanRefused as refused:
            if left := tuple(each for each in refused.violations if not each.startswith(line)):
                raise PlanRefused(left) from None

    return lambda patch: patch.setattr(Policy, "check", check_without)


def false_sum(patch: pytest.MonkeyPatch) -> None:
    """A server that publishes another sum than it opened."""
    honest = server_session.open_sum

    def changed(setup: Any, *arguments: Any) -> Any:
        result = honest(setup, *arguments)
        false = conclude(setup, result.members, result.vector + (np.arange(len(result.vector)) == 0))
        return replace(false, release=result.release)

    patch.setattr(server_session, "open_sum", changed)


def forgets(kind: str, step: str = "") -> Plant:
    """A transcript that lacks records of a kind."""
    append = Journal.append

    def changed(self: Journal, each: Any, content: bytes) -> None:
        if each != kind or (step and peek(content).step != step):
            append(self, each, content)

    return lambda patch: patch.setattr(Journal, "append", changed)


def unwritten(self: Ledger, release: Any, budget: Any, at: Any) -> Entry:
    """A row that nobody writes."""
    return Entry(1, bytes(32), release)


def advertised_for_any_session(patch: pytest.MonkeyPatch) -> None:
    """Session keys that are signed for no session."""
    patch.setattr(
        derivations, "_advertisement_parts", lambda context, entry: (encode(replace(entry, signature=bytes(64))),)
    )


def fewer_signatures(patch: pytest.MonkeyPatch) -> None:
    """A quorum of one signature fewer."""
    derive = derivations.derive_thresholds
    patch.setattr(
        derivations,
        "derive_thresholds",
        lambda *facts: replace(derive(*facts), signatures=derive(*facts).signatures - 1),
    )


def own_pair_alone(patch: pytest.MonkeyPatch) -> None:
    """A ledger that composes nothing but the unit and adjacency of the plan that is asked about."""
    check = ledger.refuse_overspending

    def wrong(releases: Any, release: Any, budget: Any) -> None:
        pair = release.unit, release.adjacency
        asked = [replace(each, unit=pair[0], adjacency=pair[1]) for each in releases]
        check(asked, release, budget)

    patch.setattr(ledger, "refuse_overspending", wrong)


def reduced_first(patch: pytest.MonkeyPatch) -> None:
    """Clients take their vectors modulo t before they scale them: the sum opens all the same."""
    exact = encryption_client.scaled
    patch.setattr(encryption_client, "scaled", lambda own, x: exact(own, x & ((1 << own.plain_bits) - 1)))


PRIVACY = [
    Fault("privacy", "halved noise", sampler(scaled(0.5)), releases()),
    Fault("privacy", "noise divided by √2", sampler(scaled(1 / math.sqrt(2))), releases()),
    Fault("privacy", "no noise", sampler(lambda segments, source: 0 * discrete_gaussian(segments, source)), releases()),
    Fault("privacy", "one share of three missing", one_missing, releases()),
    Fault("privacy", "one seed for all", sampler(same_seed), releases()),
    Fault("privacy", "off-diagonal σ divided by √2", sampler(weak_off_diagonal), releases(4, shares=ON_B)),
    Fault("privacy", "sensitivity of B halved", small_second_moment, recomputed()),
    Fault("privacy", "replaced counted as added", add_remove_always, recomputed(adjacency=Adjacency.REPLACE_ONE)),
    Fault("privacy", "ε rounded down", rounded_down, recomputed(epsilon=3.35)),
    Fault("privacy", "clip after the sum", clipped_together, records),
    Fault("privacy", "claim not recomputed", always(PrivacyClaim, "__post_init__", None), probe("weaker noise")),
]


MASKING = [
    Fault("masking", "one mask for all sessions", same_masks, transcripts(2, proves=True)),
    Fault("masking", "biased mask stream", stream(seven_bits), WIDE),
    Fault("masking", "counts in clear", stream(all_but_counts), transcripts(proves=True)),
    Fault("masking", "no masks", stream(lambda *arguments: None), transcripts(proves=True)),
    Fault("masking", "unsigned keys accepted", always(derivations, "advertisement_is_signed"), probe("swapped keys")),
    Fault(
        "masking", "unsigned shares accepted", always(derivations, "sealed_share_is_signed"), probe("invented shares")
    ),
    Fault(
        "masking",
        "any survivor set signed",
        lambda patch: patch.setattr(Uploaded, "advance", any_survivors),
        probe("single survivor"),
    ),
    Fault(
        "masking",
        "keys not bound to the session",
        advertised_for_any_session,
        probe("replayed advertisement"),
    ),
    Fault("masking", "one signature fewer", fewer_signatures, probe("one signature short")),
    Fault("masking", "quorum not checked", always(Endorsed, "_check", None), probe("two survivor sets")),
    Fault(
        "masking",
        "sealed shares not bound to the session",
        lambda patch: patch.setattr(
            derivations,
            "share_address",
            lambda bound, one, other: Address(bytes(32), "Dealing", one, other),
        ),
        answers,
    ),
    Fault("masking", "vectors reduced before they are scaled", reduced_first, splits, transcript=SILENT["encrypted"]),
]
TRANSPORT = [
    Fault("transport", "frames not verified", always(frames, "is_signed"), probe("forged header")),
    Fault("transport", "header not signed", header_unsigned, probe("forged header")),
    Fault("transport", "session of a frame not checked", any_session, probe("replayed frames")),
    Fault("transport", "false sum published", false_sum, transcripts(proves=True), INVALID),
    Fault("transport", "closed steps not recorded", forgets("closed"), transcripts(proves=True), INVALID),
    Fault("transport", "openings not recorded", forgets("received", "Opening"), transcripts(proves=True), INVALID),
    Fault(
        "transport",
        "session keys not verified",
        always(sharing, "pledge_is_signed"),
        probe("own session key"),
        transcript=SILENT["shared"],
    ),
    Fault(
        "transport",
        "lists not held against commitments",
        always(aggregator, "check_list", None),
        probe("two lists"),
        transcript=SILENT["shared"],
    ),
    Fault(
        "transport",
        "range of the opened sum not checked",
        always(EncryptedContext, "holds"),
        probe("beyond capacity"),
        transcript=SILENT["encrypted"],
    ),
]
POLICY = [
    Fault("policy", "policy not checked", always(PlanFacts, "check", None), probe("no protection")),
    Fault("policy", "backbone not checked", without_line("backbones"), probe("other backbone")),
    Fault("policy", "roster not checked", without_line("roster"), probe("Sybil roster")),
    Fault(
        "policy",
        "ledger not written",
        lambda patch: patch.setattr(Ledger, "record", unwritten),
        probe("second session"),
    ),
    Fault("policy", "other adjacencies not composed", own_pair_alone, probe("other adjacency")),
    Fault("policy", "earlier uploads not looked up", always(Ledger, "has_uploaded", False), probe("replayed session")),
    Fault("policy", "class gate skipped", always(GatedRound, "require_equal", None), probe("false gate")),
    Fault("policy", "broadcast not recomputed", always(RefinementRound, "require_equal", None), probe("false weights")),
]
FAULTS = (*(replace(each, transcript=NOISY_TRANSCRIPTS) for each in PRIVACY), *MASKING, *TRANSPORT, *POLICY)
