"""The attack on the split of an encrypted sum: the library's encoding is told by every key, the client's by none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.data import open_dataset
from secagg.experiments.settings import SimulationSettings
from secagg.protection.encryption import client, polynomials
from secagg.protection.encryption.parameters import DATA, DEGREE, SPECIAL, HeParameters, for_capacity
from tests.threat_models.attacks.audited import rehearsed
from threat_models.adversary import adversary_named
from threat_models.attacks.protocol.split_of_sum import (
    CONTROL_SERIES,
    ROUNDS,
    SERIES,
    SPLIT_OF_SUM,
    Score,
    guess_splits,
    make_finding,
)
from threat_models.evidence import split_sessions as remade
from threat_models.evidence.simulation import rehearse
from threat_models.evidence.split_sessions import Scene, SplitSessions, Tape, encrypt_as_client, phase
from threat_models.examination import examine
from threat_models.findings import Verdict
from threat_models.session import Encoding
from threat_models.views import view_of

SMALL = for_capacity(1000, 5)
MALICIOUS = ("key without noise", "key of secret 1")
KEYS = ("honest key", *MALICIOUS)


def told(encoding, parameters, tries, rounds):
    """What is told of so many series of sessions."""
    return guess_splits([SplitSessions(parameters, 128).series(encoding, rounds) for _ in range(tries)])


def parameters_of(primes):
    """Every set of primes with about the largest plaintexts that it has room for."""
    sizes = (HeParameters(DEGREE, primes, SPECIAL, bits, 3) for bits in range(59, 2, -1))
    return next(each for each in sizes if each.always_decrypts)


@pytest.mark.parametrize("primes", DATA)
def test_the_clients_encoding_gives_every_key_a_coin(primes):
    """In every set of primes no coefficient depends on the split, so that each guess is a coin, over rounds too."""
    found = told(Encoding.CLIENT, parameters_of(primes), 1, 4)
    assert tuple(found) == KEYS
    for each in found.values():
        assert each == Score(2, 1 / 2, 1, 4, 0, 4 * DEGREE)


@pytest.mark.parametrize("primes", [DATA[0], DATA[5]])
def test_the_librarys_encoding_is_told_without_noise(primes):
    """Rounded encryptions tell every split to keys that leave no noise, in one session."""
    found = told(Encoding.LIBRARY, parameters_of(primes), 1, 4)
    assert {found[name].sessions for name in MALICIOUS} == {4}
    assert {found[name].series for name in MALICIOUS} == {1}
    assert found["honest key"].differing > DEGREE


def test_the_librarys_encoding_is_told_by_an_honest_key():
    """Of 64 sessions more than half are told in spite of the noise (false failure below 10⁻¹⁰ at 86 %)."""
    assert told(Encoding.LIBRARY, SMALL, 4, 16)["honest key"].sessions > 32


def test_without_the_masks_the_librarys_encoding_is_not_told():
    """Whoever has not the seeds predicts nothing: 32 sessions give no certainty (false failure 2⁻³²)."""
    assert told(Encoding.LIBRARY_MASKED, SMALL, 2, 16)["key without noise"].sessions < 32


def test_an_entry_that_is_reduced_before_it_is_scaled_is_told(monkeypatch):
    """A client that takes its vector modulo t first, which opens to the same sum, is found out by malicious keys."""

    def reduced(parameters, integers):
        return polynomials.scaled(parameters, integers & ((1 << parameters.plain_bits) - 1))

    monkeypatch.setattr(client, "scaled", reduced)
    found = told(Encoding.CLIENT, SMALL, 1, 4)
    assert {found[name].sessions for name in MALICIOUS} == {4}
    assert found["honest key"].differing > 0


def test_both_splits_have_one_sum_and_fit():
    """The two splits of a session have the same sum, other vectors, and stay within the plan's capacity."""
    one, other = remade._splits(1000, DEGREE, np.random.default_rng(0))
    assert (one[1] + one[2] == other[1] + other[2]).all()
    assert max(int(np.abs(vector).max()) for split in (one, other) for vector in split.values()) == 1000
    assert (one[2] != other[2]).all()


@settings(max_examples=10)
@given(prime=st.sampled_from([prime for primes in DATA for prime in primes]), seed=st.integers(0, 2**32))
def test_the_phase_is_that_of_pythons_integers(prime, seed):
    """C₀ + c₁·s modulo X^N + 1 is exact for every prime, with coefficients at the prime's edge."""
    generator = np.random.default_rng(seed)
    pair = generator.integers(0, prime, (2, 16), dtype=np.uint64)
    pair[1, :2] = prime - 1
    secret = generator.integers(-1, 2, 16)
    expected = [int(value) for value in pair[0]]
    for at, one in enumerate(pair[1].tolist()):
        for power, other in enumerate(secret.tolist()):
            sign = -1 if at + power >= 16 else 1
            expected[(at + power) % 16] += sign * one * other
    assert phase(pair, secret, prime).tolist() == [value % prime for value in expected]


def test_the_honest_scenes_secret_is_the_keys():
    """The secret that the attack reads off a key is ternary, and takes the key out of its encryptions of zero."""
    scene = Scene.of(SMALL, 128)
    key = scene.honest()
    assert set(key.secret.tolist()) == {-1, 0, 1}
    (prime,) = SMALL.primes
    zeros = encrypt_as_client(scene, key.published, 1, np.zeros(DEGREE, dtype=np.int64), Tape())
    rest = phase(zeros[0, :, 0], key.secret, prime).astype(object)
    assert max(min(int(each), prime - int(each)) for each in rest) <= DEGREE // 2


def test_a_tape_plays_the_same_again_and_then_new_bytes():
    """Bytes come again in their order; beyond what was played they are fresh."""
    tape = Tape()
    first = [tape.bytes(32), tape.bytes(8)]
    again = tape.rewind()
    assert [again.bytes(32), again.bytes(8)] == first
    assert again.bytes(32) != Tape().bytes(32)


def results(right, tried=SERIES, differing=0):
    """Made-up results of every key: the part of splits told right, in sessions and in series."""
    rounds = ROUNDS * tried
    of = Score(rounds * right, tried * right, tried, rounds, differing, rounds * DEGREE)
    return dict.fromkeys(KEYS, of)


CLEAR, COIN = results(1.0, CONTROL_SERIES), results(0.5, CONTROL_SERIES)


@pytest.mark.parametrize(
    ("found", "known", "unknown", "verdict"),
    [
        (results(0.5), CLEAR, COIN, Verdict.FAILS),
        (results(1.0, differing=9), CLEAR, COIN, Verdict.SUCCEEDS),
        (results(0.5) | {"honest key": results(0.6)["honest key"]}, CLEAR, COIN, Verdict.SUCCEEDS),
        (results(0.5, tried=4), CLEAR, COIN, Verdict.INCONCLUSIVE),
        (results(0.5), COIN, COIN, Verdict.INCONCLUSIVE),
        (results(0.5), CLEAR | {"honest key": COIN["honest key"]}, COIN, Verdict.INCONCLUSIVE),
        (results(0.5), CLEAR, COIN | {"honest key": CLEAR["honest key"]}, Verdict.INCONCLUSIVE),
    ],
    ids=["chance", "all told", "one key, 60 % of sessions", "too few", "blind", "blind to one key", "sees what is not"],
)
def test_the_interval_decides(found, known, unknown, verdict):
    """Chance fails with an upper limit that excludes 85 %; any key above chance succeeds; controls must hold."""
    finding = make_finding(found, known, unknown)
    assert finding.verdict is verdict
    assert [control.expected for control in finding.controls] == [True, False]
    assert len(finding.measures) == SPLIT_OF_SUM.limits
    assert finding.leading.label == "splits told, 16 rounds, honest key"


def test_plans_without_ciphertexts_are_not_judged():
    """Where nothing is encrypted the attack says that it does not apply."""
    view = view_of(rehearsed().sessions[0], adversary_named("curious_key_holder"))
    assert view.ciphertexts is None
    assert SPLIT_OF_SUM.run((view,), None, lambda *_: None).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.long
def test_an_audit_of_an_encrypted_session_tells_no_split():
    """On a simulated encrypted session the attack fails with controls that hold (false alarm below 10⁻⁴)."""
    settings_ = SimulationSettings(clients=5, protection="encrypted")
    rehearsal = rehearse(open_dataset("digits"), settings_)
    found = examine(
        adversary_named("curious_key_holder"), rehearsal.sessions, rehearsal.knowledge, lambda *_: None
    ).findings
    finding = next(each for each in found if each.attack == "split_of_sum")
    assert finding.verdict is Verdict.FAILS
    assert all(control.holds for control in finding.controls)


CIPHERTEXTS = 34
"""Of a vector of 136,458 entries."""


@pytest.mark.long
@pytest.mark.parametrize("encoding", [Encoding.CLIENT, Encoding.LIBRARY])
@pytest.mark.parametrize("rounds", [1, 16])
def test_who_holds_a_vector_in_a_sum_of_full_length(encoding, rounds, monkeypatch):
    """In sums of 34 ciphertexts the library's encoding gives away who of two members holds a vector, the client's not.

    Entries are below 2^22, of 2^28. To keys without noise in one session, to an honest key over 16 rounds (false
    failure below 10⁻⁹).
    """
    parameters = for_capacity((1 << 26) - 1, 3)

    def ordinary(largest, entries, coins):
        first, second, held = coins.integers(-(1 << 22), 1 << 22, (3, entries))
        return {1: first + held, 2: second}, {1: first, 2: second + held}

    monkeypatch.setattr(remade, "_splits", ordinary)
    tries, is_told = 16 // rounds + 1, encoding is Encoding.LIBRARY
    found = told(encoding, parameters, tries, rounds * CIPHERTEXTS)
    surely = KEYS if rounds > 1 else MALICIOUS
    assert {found[name].series for name in surely} == {tries if is_told else tries / 2}
    assert (found["honest key"].differing > 0) == is_told
