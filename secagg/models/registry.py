"""The programs that a plan or a file can name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from secagg.errors import BadInput
from secagg.models.exported import PREFIX, exported_named
from secagg.models.programs import Convolutional, Perceptron, Program, Softmax
from secagg.models.projection import ByHead, MostSimilar, Nearest

NUMBER = re.compile(r"[1-9][0-9]{0,5}")
"""In a program's name: 1 to 999,999, written in one way only."""

PROGRAMS: Mapping[str, Callable[..., Program]] = {
    "softmax": Softmax,
    "mlp:H": Perceptron,
    "cnn": Convolutional,
    "similar:W": MostSimilar,
    "nearest:W": Nearest,
    "projected:W": ByHead,
}
"""Every program by the form of its name; a capital letter stands for a number, which follows d and C."""


def program_named(name: str, dimension: int, classes: int) -> Program:
    """The program of that name for records of `dimension` numbers and so many classes. Raises BadInput for none."""
    if name.startswith(PREFIX):
        return exported_named(name, dimension, classes)
    kind, *numbers = name.split(":")
    for form, make in PROGRAMS.items():
        known, *letters = form.split(":")
        if kind == known and len(numbers) == len(letters) and all(map(NUMBER.fullmatch, numbers)):
            return make(dimension, classes, *map(int, numbers))
    remedy = f"known are {', '.join(PROGRAMS)} with numbers for capital letters, such as mlp:128, and a file.pt2"
    raise BadInput(f"there is no program {name!r}", remedy=remedy)
