"""Simulated rounds over members' parts, and the same rounds as if others had been away from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from secagg.data import open_dataset
from secagg.experiments.settings import SimulationSettings
from tests.worlds.chance import repeatable
from threat_models.evidence.simulation import Rehearsal, rehearse
from threat_models.session import Session


@cache
def rounds_of(
    method: str = "fedpcl", parameters: str = "rounds=12 width=32", clients: int = 8, **more: Any
) -> Rehearsal:
    """A rehearsal of rounds over digits, made once, with the same chance in every run."""
    settings = SimulationSettings(clients=clients, method=method, parameters=parameters, **more)
    with repeatable(f"rounds {settings}"):
        return rehearse(open_dataset("digits"), settings)


def in_cohorts(session: Session, cohorts: Sequence[Sequence[str]]) -> Session:
    """The first rounds of a session as if these members alone had been in each, with their shares of the noise."""
    played = (*session.earlier, session)[: len(cohorts)]
    *earlier, last = (_with_members(each, names) for each, names in zip(played, cohorts, strict=True))
    return replace(last, earlier=tuple(earlier))


def _with_members(session: Session, names: Sequence[str]) -> Session:
    present = {name: session.contributions[name] for name in names}
    noise, part = session.noise, math.sqrt(len(names) / len(session.members))
    if noise is not None:
        noise = {name: replace(each, sigma=each.sigma * part) for name, each in noise.items()}
    release = {block: sum(np.asarray(each[block]) for each in present.values()) for block in session.release}
    return replace(session, members=tuple(names), contributions=present, release=release, noise=noise, earlier=())


def drawn_anew(session: Session, size: int, rounds: int, seed: int = 2) -> list[tuple[str, ...]]:
    """Cohorts of `size` members, each drawn anew."""
    generator = np.random.default_rng(seed)
    return [tuple(sorted(generator.permutation(session.members)[:size])) for _ in range(rounds)]
