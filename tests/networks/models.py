"""Programs and records that the tests of this folder share."""

import numpy as np
import pytest

from secagg.networks import Program, program_named
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN

SEED = bytes(range(32))
PROGRAMS = [
    program_named(name, dimension, 3)
    for name, dimension in (
        ("softmax", 7),
        ("mlp:5", 7),
        ("cnn", 8 * 8),
        ("cnn", 3 * 9 * 9),
        ("mlp-group:5", 7),
        ("cnn-group", 3 * 8 * 8),
    )
]
every_program = pytest.mark.parametrize(
    "program", PROGRAMS, ids=[f"{program.name} of {program.dimension}" for program in PROGRAMS]
)


def seeded(name: str) -> SeededRandomness:
    """The stream of a test."""
    return SeededRandomness(f"models: {name}".encode(), TOKEN)


def some_records(program: Program, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Records (n, d) float32 around a mean of their class, far from the others', and their labels (n,)."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count, dtype=np.int64) % program.classes
    means = np.random.default_rng(5).normal(size=(program.classes, program.dimension))
    return (means[labels] + generator.normal(size=(count, program.dimension)) / 2).astype(np.float32), labels


def some_parameters(program: Program, seed: int = 1) -> np.ndarray:
    """Parameters (size,) none of which is 0."""
    return program.start(SEED) + np.random.default_rng(seed).normal(size=program.size) * 0.1
