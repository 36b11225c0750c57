"""The programs that a plan or a file can name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from secagg.errors import BadInput
from secagg.features import KINDS
from secagg.networks.adapted import Adapted, Dual, SharedAdapter, WithHead
from secagg.networks.adapters import Adapter
from secagg.networks.exported import PREFIX, exported_named
from secagg.networks.normalised import NormalisedCnn, NormalisedPerceptron
from secagg.networks.programs import Convolutional, Perceptron, Program, Softmax
from secagg.networks.projection import ByHead, MostSimilar, Nearest

NUMBER = re.compile(r"[1-9][0-9]{0,5}")
"""In a program's name: 1 to 999,999, written in one way only."""

PROGRAMS: Mapping[str, Callable[..., Program]] = {
    "softmax": Softmax,
    "mlp:H": Perceptron,
    "cnn": Convolutional,
    "mlp-group:H": NormalisedPerceptron,
    "mlp-batch:H": partial(NormalisedPerceptron, by_batch=True),
    "cnn-group": NormalisedCnn,
    "cnn-batch": partial(NormalisedCnn, by_batch=True),
    "similar:W": MostSimilar,
    "nearest:W": Nearest,
    "projected:W": ByHead,
}
"""Every program by the form of its name; a capital letter stands for a number, which follows d and C."""
ADAPTED: Mapping[str, Callable[[int, int, Adapter], Adapted]] = {"": SharedAdapter, "head-": WithHead, "dual-": Dual}
"""Programs of adapters by what their names begin with, before such as bottleneck:48:12x768."""


def program_named(name: str, dimension: int, classes: int) -> Program:
    """The program of that name for records of `dimension` numbers and so many classes. Raises BadInput for none."""
    if name.startswith(PREFIX):
        return exported_named(name, dimension, classes)
    kind, *numbers = name.split(":")
    for form, make in PROGRAMS.items():
        known, *letters = form.split(":")
        if kind == known and len(numbers) == len(letters) and all(map(NUMBER.fullmatch, numbers)):
            return make(dimension, classes, *map(int, numbers))
    if len(numbers) == 2 and NUMBER.fullmatch(numbers[0]):
        for prefix, put in ADAPTED.items():
            if kind.startswith(prefix) and kind.removeprefix(prefix) in KINDS:
                return put(dimension, classes, Adapter(kind.removeprefix(prefix), int(numbers[0]), numbers[1]))
    remedy = f"known are {', '.join(PROGRAMS)} with numbers for capital letters, such as mlp:128, and a file.pt2"
    raise BadInput(f"there is no program {name!r}", remedy=remedy)
