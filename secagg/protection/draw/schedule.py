"""The schedule: k of n members for every round, from one public seed.

Fresh permutations of the members are laid one behind the other and cut into slices of k. The first R·k places hold
⌊R·k/n⌋ whole permutations and a part of one more, and a permutation holds everybody once: so everybody is drawn
⌊R·k/n⌋ or ⌈R·k/n⌉ times. A slice spans at most two permutations, as k ≤ n. Where it does, the second one begins with
members that are not in the slice yet (there are at least n − k + what is missing): nobody is in a slice twice, and the
order within a permutation changes no number above.

No promise of privacy rests on the draw. It could be known, or chosen by an adversary: what is accounted is the most
rounds that a member can be in, with all c colluders in every cohort, and nothing is claimed for a member's being drawn
by chance (amplification by sampling). Balance and nonces keep the work even and training honest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache

from secagg.crypto.labels import labelled, number
from secagg.errors import BadInput

_WORD = 8
_BLOCK = 512
"""Words of the stream that are made at a time."""


def most_rounds(members: int, size: int, rounds: int) -> int:
    """Return ⌈rounds·size/members⌉: for so many of the first `rounds` rounds one member is drawn, and for no more."""
    return -(-rounds * size // members)


@lru_cache(maxsize=8)
def cohorts(seed: bytes, members: int, size: int, rounds: int) -> tuple[tuple[int, ...], ...]:
    """Return the cohorts of `rounds` rounds: `size` of the members 1…`members` each, in ascending order.

    Raises BadInput for a cohort that so many members cannot make.
    """
    if not 1 <= size <= members:
        raise BadInput(f"a cohort of {size} cannot be drawn from {members} members")
    words, waiting, drawn = _words(seed), list[int](), list[tuple[int, ...]]()
    for _ in range(rounds):
        chosen, waiting = waiting[:size], waiting[size:]
        if missing := size - len(chosen):
            fresh, known = _permuted(members, words), set(chosen)
            first = [each for each in fresh if each not in known][:missing]
            known = set(first)
            chosen, waiting = chosen + first, [each for each in fresh if each not in known]
        drawn.append(tuple(sorted(chosen)))
    return tuple(drawn)


def _permuted(members: int, words: Iterator[int]) -> list[int]:
    """Fisher and Yates's shuffle (Knuth, The Art of Computer Programming, 3.4.2, algorithm P)."""
    order = list(range(1, members + 1))
    for place in range(members - 1, 0, -1):
        other = _below(place + 1, words)
        order[place], order[other] = order[other], order[place]
    return order


def _below(bound: int, words: Iterator[int]) -> int:
    """A uniform number below `bound`: words beyond its largest multiple are passed over."""
    largest = (1 << 8 * _WORD) // bound * bound
    return next(word for word in words if word < largest) % bound


def _words(seed: bytes) -> Iterator[int]:
    """The public stream: SHAKE-256 of the labelled seed and a block's number, as little-endian words of 64 bits."""
    block = 0
    while True:
        content = hashlib.shake_256(labelled("cohorts", seed, number(block))).digest(_WORD * _BLOCK)
        for start in range(0, len(content), _WORD):
            yield int.from_bytes(content[start : start + _WORD], "little")
        block += 1
