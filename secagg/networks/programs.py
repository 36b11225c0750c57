"""Networks that clients train, as pure functions of named parameters: softmax regression, a perceptron, a small CNN.

Records are independent of each other: no batch statistics, no dropout. So a record's gradient is its own.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

    Normalise = Callable[[str, Tensor], Tensor]

SEED_BYTES = 32


class Shaped(Protocol):
    """An object with named parameters that are stored in one flat vector."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The parameters' shapes by name, in order."""


class Program(Protocol):
    """A stateless network that maps a record (d,) to scores of C classes."""

    @property
    def name(self) -> str:
        """The network's name, from which `program_named` makes it again, given d and C."""

    @property
    def dimension(self) -> int:
        """The number d of entries of one record."""

    @property
    def classes(self) -> int:
        """The number C of classes."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The parameters' shapes by name, in the order in which a flat vector holds them, each row by row."""

    @property
    def size(self) -> int:
        """The number of entries of all parameters together."""

    @property
    def scale(self) -> float:
        """Factor by which records of L2 norm 1 are multiplied before the network is trained on them.

        Where it is not 1, the first parameter is what the program multiplies its inputs by.
        """

    def start(self, seed: bytes) -> NDArray[np.float64]:
        """Return initial parameters (size,): public, the same bits everywhere. Raises BadInput without a seed."""

    def logits(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Return the classes' scores (n, C) of records (n, d).

        Row i is a function of record i, but for rounding: torch's products round by how many rows they have.
        """

    def loss(self, parameters: Mapping[str, Tensor], x: Tensor, labels: Tensor) -> Tensor:
        """Return the training loss: the mean over records (n, d), n ≥ 1, of a loss that depends on one record alone."""


@dataclass(frozen=True)
class BuiltIn(ABC):
    """Base class of built-in networks, for records of d ≥ 1 numbers and C ≥ 2 classes, with cross-entropy loss."""

    dimension: int
    classes: int

    def __post_init__(self) -> None:
        if self.dimension < 1 or self.classes < 2:
            raise BadInput(f"a program for {self.dimension} features and {self.classes} classes")

    @property
    @abstractmethod
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The parameters' shapes by name, in order."""

    @property
    @abstractmethod
    def bounds(self) -> Mapping[str, float]:
        """Largest absolute initial value of the parameters, by name; those that are not named start at 0."""

    @property
    def size(self) -> int:
        """The number of entries of all parameters together."""
        return sum(map(math.prod, self.shapes.values()))

    @property
    def scale(self) -> float:
        """The factor √d, which makes the entries of a record of L2 norm 1 about 1."""
        return math.sqrt(self.dimension)

    def start(self, seed: bytes) -> NDArray[np.float64]:
        """Return initial parameters (size,), uniform within `bounds` (see `uniform_start`)."""
        return uniform_start(self.shapes, self.bounds, seed)

    @abstractmethod
    def logits(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Return the scores (n, C) of records (n, d)."""

    def loss(self, parameters: Mapping[str, Tensor], x: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy of the records."""
        from torch.nn import functional

        return functional.cross_entropy(self.logits(parameters, x), labels)


@dataclass(frozen=True)
class Softmax(BuiltIn):
    """Softmax regression with a bias; all parameters start at 0."""

    name = "softmax"

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"weight": (self.classes, self.dimension), "bias": (self.classes,)}

    @property
    def bounds(self) -> Mapping[str, float]:
        return {}  # the loss is convex

    def logits(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return linear(parameters, "", x)


def _as_they_are(layer: str, maps: Tensor) -> Tensor:
    return maps


class Embedding(BuiltIn):
    """A network whose last layer, `output`, scores the embeddings that the earlier layers make of records."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of entries of an embedding."""

    @abstractmethod
    def embed(self, parameters: Mapping[str, Tensor], x: Tensor, normalise: Normalise = _as_they_are) -> Tensor:
        """Return embeddings (n, width) of records (n, d), `normalise` being applied before each layer's ReLU."""

    def classify(self, parameters: Mapping[str, Tensor], embeddings: Tensor) -> Tensor:
        """Return scores (n, C) of embeddings (n, width)."""
        return linear(parameters, "output.", embeddings)

    def logits(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return self.classify(parameters, self.embed(parameters, x))


@dataclass(frozen=True)
class Perceptron(Embedding):
    """A network with one hidden layer of `hidden` ReLU units."""

    hidden: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden < 1:
            raise BadInput(f"a hidden layer of {self.hidden} units")

    @property
    def name(self) -> str:
        """Name of the network, for example mlp:128."""
        return f"mlp:{self.hidden}"

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return linear_shapes("hidden", self.dimension, self.hidden) | linear_shapes("output", self.hidden, self.classes)

    @property
    def bounds(self) -> Mapping[str, float]:
        return {"hidden.weight": he_bound(self.dimension), "output.weight": glorot_bound(self.hidden, self.classes)}

    @property
    def width(self) -> int:
        return self.hidden

    def embed(self, parameters: Mapping[str, Tensor], x: Tensor, normalise: Normalise = _as_they_are) -> Tensor:
        return normalise("hidden", linear(parameters, "hidden.", x)).relu()


@dataclass(frozen=True)
class Convolutional(Embedding):
    """A small CNN for square images of side 8 or more: two 3×3 convolutions with max-pooling and ReLU, a hidden layer.

    A record is an image row by row, the 1 or 3 channels of a pixel beside each other, as `pixels` gives it. The second
    pooling leaves 4×4 places whatever the side, so there are at most 100,000 parameters for up to 226 classes.
    """

    name = "cnn"
    CHANNELS = (1, 3)
    LEAST_SIDE = 8
    KERNEL = 3
    FIRST, SECOND, HIDDEN = 16, 32, 128
    """Channels of both convolutions, and units of the hidden layer."""
    PLACES = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        self.image  # noqa: B018 (refuses other records)

    @property
    def image(self) -> tuple[int, int]:
        """Channels and side length of an image, the one solution of d = channels·side². Raises BadInput for none."""
        for channels in self.CHANNELS:
            side = math.isqrt(self.dimension // channels)
            if side >= self.LEAST_SIDE and channels * side * side == self.dimension:
                return channels, side
        problem = f"the program cnn takes square images, and {self.dimension} numbers are none"
        raise BadInput(problem, remedy=f"give images of 1 or 3 channels, {self.LEAST_SIDE} pixels or more a side")

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        kernel = (self.KERNEL, self.KERNEL)
        return {
            "first.weight": (self.FIRST, self.image[0], *kernel),
            "first.bias": (self.FIRST,),
            "second.weight": (self.SECOND, self.FIRST, *kernel),
            "second.bias": (self.SECOND,),
            **linear_shapes("hidden", self.SECOND * self.PLACES**2, self.HIDDEN),
            **linear_shapes("output", self.HIDDEN, self.classes),
        }

    @property
    def bounds(self) -> Mapping[str, float]:
        before_relu = ("first.weight", "second.weight", "hidden.weight")
        return {
            **{name: he_bound(math.prod(self.shapes[name][1:])) for name in before_relu},
            "output.weight": glorot_bound(self.HIDDEN, self.classes),
        }

    @property
    def width(self) -> int:
        return self.HIDDEN

    def embed(self, parameters: Mapping[str, Tensor], x: Tensor, normalise: Normalise = _as_they_are) -> Tensor:
        from torch.nn import functional

        channels, side = self.image
        maps = x.reshape(-1, side, side, channels).permute(0, 3, 1, 2)
        maps = functional.conv2d(maps, parameters["first.weight"], parameters["first.bias"], padding="same")
        maps = functional.max_pool2d(normalise("first", maps), 2).relu()
        maps = functional.conv2d(maps, parameters["second.weight"], parameters["second.bias"], padding="same")
        maps = functional.adaptive_max_pool2d(normalise("second", maps), self.PLACES).relu()
        return normalise("hidden", linear(parameters, "hidden.", maps.flatten(1))).relu()


def uniform_start(
    shapes: Mapping[str, tuple[int, ...]], bounds: Mapping[str, float], seed: bytes
) -> NDArray[np.float64]:
    """Return initial parameters (size,) of these shapes: uniform within `bounds`, from SHAKE-256 of a 32-byte seed.

    Each number that does not start at 0 takes the next 8 bytes of the stream, a little-endian word w: it is
    (2·⌊w/2¹¹⌋/2⁵³ − 1) times its bound, in float64, so the same bits everywhere. Raises BadInput for another seed.
    """
    if len(seed) != SEED_BYTES:
        raise BadInput(f"a start takes a seed of {SEED_BYTES} bytes, got {len(seed)}")
    counts = {name: math.prod(shapes[name]) for name in bounds}
    words = np.frombuffer(hashlib.shake_256(seed).digest(8 * sum(counts.values())), dtype="<u8")
    drawn = (words >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
    parts, used = [], 0
    for name, shape in shapes.items():
        if name in bounds:
            parts.append(drawn[used : used + counts[name]] * bounds[name])
            used += counts[name]
        else:
            parts.append(np.zeros(math.prod(shape)))
    return np.concatenate(parts)


def tensors_of(program: Shaped, flat: NDArray[np.float64]) -> dict[str, NDArray[np.float32]]:
    """Return the parameters by name from an array (size,) rounded to float32; infinite where too large for float32."""
    with np.errstate(over="ignore"):
        rounded = flat.astype(np.float32)
    ends = np.cumsum([math.prod(shape) for shape in program.shapes.values()])
    parts = zip(program.shapes.items(), np.split(rounded, ends[:-1]), strict=True)
    return {name: part.reshape(shape) for (name, shape), part in parts}


def named_parameters(program: Shaped, flat: Tensor) -> dict[str, Tensor]:
    """Return the parameters by name, as views of a flat tensor (size,)."""
    import torch

    parts = torch.split(flat, list(map(math.prod, program.shapes.values())))
    return {name: part.view(shape) for (name, shape), part in zip(program.shapes.items(), parts, strict=True)}


def linear(parameters: Mapping[str, Tensor], prefix: str, x: Tensor) -> Tensor:
    """Return x·Wᵀ + b (n, outputs) of rows x (n, inputs), by the tensors PREFIXweight and PREFIXbias."""
    from torch.nn import functional

    return functional.linear(x, parameters[f"{prefix}weight"], parameters[f"{prefix}bias"])


def linear_shapes(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a linear layer's weight and bias, by name."""
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def he_bound(inputs: int) -> float:
    """Return √(6/inputs): the bound of a uniform weight before a ReLU (He et al. 2015)."""
    return math.sqrt(6 / inputs)


def glorot_bound(inputs: int, outputs: int) -> float:
    """Return √(6/(inputs + outputs)): the bound of a uniform weight before scores (Glorot & Bengio 2010)."""
    return math.sqrt(6 / (inputs + outputs))
