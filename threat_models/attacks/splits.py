"""Whether the key holder of an encrypted sum can tell how a known sum is split among the members.

Two members, the hardest case for them: all others side with the key holder, which knows the sum and asks whether the
second member holds a vector in it, or the first. It plays both answers through the client's own code, under a key that
leaves no noise and with the mask seeds that it unsealed. Where the two results differ, what it sees (the summed
ciphertexts less the masks, under its key) is nearer to one of them: the likelihood ratio for noise of one variance,
added up over the sessions in which the answer stays the same. Where they do not differ, it has a coin.

Sessions are made anew with the plan's parameters. So this attacks the code that is installed here, not what some member
ran. The control is the library's own encryption, which rounds q·m/t for a residue m modulo t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.crypto.agreement import AgreementKey
from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers, Ring
from secagg.protection.encryption import bfv
from secagg.protection.encryption.binding import EncryptedContext, sign_key
from secagg.protection.encryption.client import begin_client
from secagg.protection.encryption.key_holder import mask_keys
from secagg.protection.encryption.masks import centre, mask_of
from secagg.protection.encryption.messages import PublishedKey
from secagg.protection.encryption.parameters import HeParameters
from secagg.protection.encryption.polynomials import Polynomials, add, multiples, pack, subtract
from secagg.protection.seam import LocalParty
from secagg.randomness import OperatingSystem
from threat_models.attacks.attack import Attack, Progress
from threat_models.estimation.intervals import clopper_pearson
from threat_models.findings import Control, Finding, Measure, Verdict
from threat_models.session import Knowledge

ROUNDS = 16
SERIES = 24
"""Runs of so many rounds with one split each."""
CONTROL_SERIES = 20
CONTROL_LEVEL = 1e-4
CHANCE = 0.5
TOLD = 0.85
"""The part of splits told right that the audit must be able to notice, to say that none is told."""
LIMB = 20
MEMBERS = (1, 2)


class Tape:
    """A member's randomness, which whoever knows its seeds can play again."""

    def __init__(self) -> None:
        self._drawn: list[bytes] = []
        self._next = 0

    def bytes(self, count: int) -> bytes:
        """The next bytes: those of the first play, or new ones."""
        if self._next == len(self._drawn):
            self._drawn.append(OperatingSystem().bytes(count))
        self._next += 1
        return self._drawn[self._next - 1]

    def again(self) -> Tape:
        """The same tape, from its beginning."""
        self._next = 0
        return self


@dataclass(frozen=True)
class HolderKey:
    """What a key holder published, and the coefficients (N,) of the secret that goes with it, in {−1, 0, 1}."""

    published: PublishedKey
    secret: Integers = field(repr=False)


@dataclass(frozen=True)
class Scene:
    """A session of the plan's parameters, of which two members take part, and what the key holder made for it."""

    context: EncryptedContext
    identity: SigningKey = field(repr=False)
    sealing: AgreementKey = field(repr=False)

    @classmethod
    def of(cls, parameters: HeParameters, security: int) -> Scene:
        """A fresh one, with vectors of one ciphertext."""
        source = OperatingSystem()
        identity, clients = SigningKey.generate(source), range(1, parameters.summands + 1)
        bits = parameters.plain_bits - 1
        context = EncryptedContext(
            plan=source.bytes(32),
            session=source.bytes(32),
            roster=source.bytes(32),
            identities=dict.fromkeys(clients, identity.public),
            names={},
            ring=Ring(-(-bits // 8) * 8),
            length=parameters.degree,
            colluders=0,
            dropouts=0,
            minimum_cohort=2,
            server=identity.public,
            seconds={parameters.summands + 1: identity.public},
            largest=(1 << (bits - 1)) - 1,
            security=security,
        )
        return cls(context, identity, AgreementKey.generate(source))

    def without_noise(self, secret: int) -> HolderKey:
        """The malicious key (−a·s, a) for s = 0 or 1: what noise is left, dropping the special prime takes away."""
        parameters = self.context.parameters
        primes = (*parameters.primes, parameters.special)
        generator = np.random.default_rng(int.from_bytes(OperatingSystem().bytes(16), "big"))
        pair = np.zeros((1, 2, len(primes), parameters.degree), dtype=np.uint64)
        for place, prime in enumerate(primes):
            pair[0, 1, place] = generator.integers(1, prime, parameters.degree, dtype=np.uint64)
            pair[0, 0, place] = secret * (np.uint64(prime) - pair[0, 1, place])
        return HolderKey(self._published(pack(pair, parameters.entry_bytes)), secret * self._unit())

    def honest(self) -> HolderKey:
        """A key as the key holder makes it; the ciphertext (0, Δ) decrypts to its secret."""
        parameters = self.context.parameters
        key = bfv.generate(parameters)
        delta = np.zeros((1, 2, len(parameters.primes), parameters.degree), dtype=np.uint64)
        delta[0, 1] = multiples(self._unit(), parameters.scale, parameters.primes, parameters.degree)[0]
        return HolderKey(self._published(key.public), centre(parameters, bfv.decrypt(parameters, key.secret, delta)))

    def _unit(self) -> Integers:
        unit = np.zeros(self.context.parameters.degree, dtype=np.int64)
        unit[0] = 1
        return unit

    def _published(self, public: bytes) -> PublishedKey:
        unsigned = PublishedKey(self.context.parameters.digest(), public, self.sealing.public, bytes(64))
        return sign_key(self.context, self.identity, unsigned)


Encode = Callable[[Scene, PublishedKey, int, Integers, Tape], Polynomials]
"""A member's ciphertext of a vector under a key, less what the key holder can take off it."""


def as_released(scene: Scene, published: PublishedKey, member: int, vector: Integers, tape: Tape) -> Polynomials:
    """What the real client uploads, without its mask."""
    context, me = scene.context, LocalParty(member, scene.identity, tape)
    ready: Any = begin_client(context, me).state
    sent = ready.advance(context, me, published).state.protect(context, me, context.ring.encode(vector))
    found = context.uploaded(sent.vector)
    keys = mask_keys(context, scene.sealing, sent.outgoing)
    subtract(found[:, 0], mask_of(context.parameters, len(found), keys), context.parameters.primes)
    return found


def as_rounded(scene: Scene, published: PublishedKey, member: int, vector: Integers, tape: Tape) -> Polynomials:
    """The library's own encryption of x + mask modulo t; the mask is known, but no part of the ciphertext alone."""
    parameters = scene.context.parameters
    words = np.frombuffer(tape.bytes(8 * parameters.degree), dtype="<u8")
    residues = (vector.view(np.uint64) + words) & np.uint64((1 << parameters.plain_bits) - 1)
    half = ((1 << parameters.plain_bits) + 1) // 2
    rounded = (residues.astype(object) * parameters.modulus + half) >> parameters.plain_bits
    found = bfv.encrypt_zero(parameters, published.public_key, 1)
    message = np.stack([(rounded % prime).astype(np.uint64) for prime in parameters.primes])
    add(found[:, 0], message[None], parameters.primes)
    return found


def phase(ciphertext: Polynomials, secret: Integers, prime: int) -> Polynomials:
    """c₀ + c₁·s modulo X^N + 1 and the prime, (N,), for c (2, N) and a ternary s; exact, by limbs of 20 bits."""
    degree = len(secret)
    twist = np.exp(1j * np.pi * np.arange(degree) / degree)
    spectrum = np.fft.fft(secret * twist)
    total: Polynomials = ciphertext[:1].copy()
    for shift in range(0, prime.bit_length(), LIMB):
        limb = (ciphertext[1] >> np.uint64(shift)) & np.uint64((1 << LIMB) - 1)
        product = np.rint((np.fft.ifft(np.fft.fft(limb * twist) * spectrum) / twist).real).astype(np.int64)
        add(total, multiples(product, 1 << shift, (prime,), degree)[0], (prime,))
    return np.asarray(total[0], dtype=np.uint64)


def _apart(one: Polynomials, other: Polynomials, prime: int) -> NDArray[np.float64]:
    """One − other, the nearest representative modulo the prime."""
    difference = one[None].copy()
    subtract(difference, other, (prime,))
    signed = difference[0].view(np.int64)
    return np.asarray(np.where(signed > prime // 2, signed - prime, signed), dtype=np.float64)


@dataclass(frozen=True)
class Told:
    """What a holder found: splits told right of those tried, one session and a series at a time, a coin counting half.

    `differing` of `coefficients` depend on the split.
    """

    sessions: float
    series: float
    tried: int
    differing: int
    coefficients: int


def told(
    encode: Encode, parameters: HeParameters, security: int, tries: int, knows_masks: bool = True
) -> dict[str, Told]:
    """Attack `tries` series of rounds with an honest key and with two malicious ones; what was told, by key."""
    scores: dict[str, list[NDArray[np.float64]]] = {}
    differing = 0
    coins = np.random.default_rng(int.from_bytes(OperatingSystem().bytes(16), "big"))
    for _ in range(tries):
        scene, truth = Scene.of(parameters, security), int(coins.integers(2))
        keys = {
            "honest key": scene.honest(),
            "key without noise": scene.without_noise(0),
            "key of secret 1": scene.without_noise(1),
        }
        rounds = [_ratios(encode, scene, keys, truth, coins, knows_masks) for _ in range(ROUNDS)]
        differing += sum(count for _, count in rounds)
        for place, name in enumerate(keys):
            signed = (2 * truth - 1) * np.array([ratios[place] for ratios, _ in rounds])
            scores.setdefault(name, []).append(signed)
    found = {name: np.stack(each) for name, each in scores.items()}
    coefficients = tries * ROUNDS * parameters.degree
    return {
        name: Told(_right(each), _right(each.sum(axis=1)), tries, differing, coefficients)
        for name, each in found.items()
    }


def _right(signed: NDArray[np.float64]) -> float:
    """How many scores point to the truth; those of 0 are a coin, of which half would."""
    return float((signed > 0).sum() + (signed == 0).sum() / 2)


def _splits(largest: int, entries: int, coins: np.random.Generator) -> tuple[dict[int, Integers], dict[int, Integers]]:
    """One sum in two ways, neither the other's mirror: a vector as large as can be is the first member's or not."""
    signs = 2 * coins.integers(2, size=entries) - 1
    held, rest = largest * signs, coins.integers(0, largest, entries, endpoint=True) * signs
    return {1: rest, 2: np.zeros_like(rest)}, {1: rest - held, 2: held}


def _ratios(
    encode: Encode,
    scene: Scene,
    keys: dict[str, HolderKey],
    truth: int,
    coins: np.random.Generator,
    knows_masks: bool,
) -> tuple[list[float], int]:
    """One session under each key: the likelihood ratios of the second split, and how many coefficients differ."""
    parameters, prime = scene.context.parameters, scene.context.parameters.primes[0]
    splits = _splits(scene.context.largest, parameters.degree, coins)
    tapes = {member: Tape() for member in MEMBERS}

    def summed(key: PublishedKey, split: dict[int, Integers], tapes: dict[int, Tape]) -> Polynomials:
        first, second = (encode(scene, key, member, split[member], tapes[member].again()) for member in MEMBERS)
        add(first, second, parameters.primes)
        return first[0, :, 0]

    plain = keys["key without noise"].published
    known = tapes if knows_masks else {member: Tape() for member in MEMBERS}
    zero, one = (summed(plain, split, known)[0] for split in splits)
    difference = _apart(one, zero, prime)
    ratios = []
    for key in keys.values():
        seen = _apart(phase(summed(key.published, splits[truth], tapes), key.secret, prime), zero, prime)
        ratios.append(float(difference @ (seen - difference / 2)))
    return ratios, int(np.count_nonzero(difference))


def run(views: tuple[Any, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    """Attack the encoding of the installed client, and the library's own as the control."""
    parameters, security = views[0].ciphertexts, views[0].plan.security
    if parameters is None:
        return Finding("split_of_sum", "", Verdict.NOT_APPLICABLE, "There are no ciphertexts whose sum is decrypted.")
    found = told(as_released, parameters, security, SERIES)
    progress(1, 3)
    known = told(as_rounded, parameters, security, CONTROL_SERIES)
    progress(2, 3)
    unknown = told(as_rounded, parameters, security, CONTROL_SERIES, knows_masks=False)
    progress(3, 3)
    return finding_of(found, known, unknown)


def finding_of(found: dict[str, Told], known: dict[str, Told], unknown: dict[str, Told]) -> Finding:
    """What was told of the client's encoding, and of the library's, with the masks known and unknown, as a finding.

    It succeeds where any key tells splits better than chance, beyond the interval.
    """
    controls = (
        Control("the library's own encryption", True, all(map(_is_told, known.values()))),
        Control("the same, masks unknown", False, any(map(_is_told, unknown.values()))),
    )
    measures = _measures(found)
    rates = measures[:-1]
    if not all(control.holds for control in controls):
        verdict = Verdict.INCONCLUSIVE
    elif any(each.low > CHANCE for each in rates):
        verdict = Verdict.SUCCEEDS
    else:
        verdict = Verdict.FAILS if all(each.high < TOLD for each in rates) else Verdict.INCONCLUSIVE
    return Finding("split_of_sum", "", verdict, _sentence(verdict, measures), measures, controls=controls)


def _is_told(of: Told) -> bool:
    """Whether splits are told over the rounds."""
    return clopper_pearson(round(of.series), of.tried, CONTROL_LEVEL).low > CHANCE


def _measures(found: dict[str, Told]) -> tuple[Measure, ...]:
    rates = []
    for name, each in found.items():
        for what, right, tried in (
            ("one session", each.sessions, each.tried * ROUNDS),
            (f"{ROUNDS} rounds", each.series, each.tried),
        ):
            rates.append(clopper_pearson(round(right), tried).measure(f"splits told, {name}, {what}", baseline=CHANCE))
    first = next(iter(found.values()))
    share = clopper_pearson(first.differing, first.coefficients)
    return (*rates, share.measure("coefficients that depend on the split", baseline=0.0))


def _sentence(verdict: Verdict, measures: tuple[Measure, ...]) -> str:
    best = max(measures[:-1], key=lambda each: each.value)
    made = f"In sessions made anew with the plan's parameters, by the client installed here, {measures[-1].value:.1%}"
    seen = f"{made} of what the key holder sees depends on how a known sum is split between two members"
    if verdict is Verdict.FAILS:
        return f"{seen}; none of {len(measures) // 2} keys, honest and malicious, tells the split better than chance."
    return f"{seen}; {best.name.removeprefix('splits told, ')}: {best.value:.0%} of splits are told right."


SPLIT_OF_SUM = Attack(
    "split_of_sum",
    "How a known sum is split, from the ciphertexts' sum",
    "the project's own; Fan & Vercauteren 2012, section 3 (what hides the split)",
    ("release",),
    run,
    tries_records=False,
    limits=7,
)
