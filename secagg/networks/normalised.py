"""The perceptron and the small CNN with group normalisation (of each record alone) or batch normalisation.

Groups (Wu & He 2018) are of one record alone, so that a record's gradient is its own. Batch normalisation (Ioffe &
Szegedy 2015) sees a batch in training, and elsewhere running statistics, which are tensors of the program. Gains and
variances are kept less 1: every tensor of the normalisation starts at 0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from secagg.networks.programs import Convolutional, Embedding, Perceptron

if TYPE_CHECKING:
    from torch import Tensor

CHANNELS_OF_A_GROUP = 4
EPSILON = 1e-5
MOMENTUM = 0.1
"""The weight of a batch's statistics in the running ones, as in `torch.nn.BatchNorm2d`."""
GAIN, SHIFT, MEAN, VARIANCE = "gain", "shift", "mean", "variance"


class Normalised(Embedding):
    """A network with batch normalisation if `by_batch`, else with group normalisation of each record's channels."""

    by_batch: bool

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the network with its kind of normalisation, for example cnn-batch or mlp-group:128."""

    @property
    @abstractmethod
    def layers(self) -> Mapping[str, int]:
        """The names of the normalised layers, each with its number of channels."""

    @property
    def normalisation(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of the normalisation's tensors by name, which FedBN keeps local to each client (Li et al. 2021)."""
        kinds = (GAIN, SHIFT, MEAN, VARIANCE) if self.by_batch else (GAIN, SHIFT)
        return {f"{layer}.{kind}": (channels,) for layer, channels in self.layers.items() for kind in kinds}

    def learn(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Return embeddings (n, width) in training mode, which updates batch normalisation's running statistics."""
        return self.embed(parameters, x, partial(_normalise, parameters, self.by_batch and len(x) > 1, self.by_batch))

    def logits(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        normalise = partial(_normalise, parameters, False, self.by_batch)
        return self.classify(parameters, self.embed(parameters, x, normalise))


@dataclass(frozen=True)
class NormalisedCnn(Normalised, Convolutional):
    """The small CNN with normalised layers: at most 100,000 parameters for 32×32 pictures of up to 200 classes."""

    by_batch: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]  # a constant of the plain program
        return "cnn-batch" if self.by_batch else "cnn-group"

    @property
    def layers(self) -> Mapping[str, int]:
        return {"first": self.FIRST, "second": self.SECOND, "hidden": self.HIDDEN}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {**super().shapes, **self.normalisation}


@dataclass(frozen=True)
class NormalisedPerceptron(Normalised, Perceptron):
    """The perceptron with a normalised hidden layer."""

    by_batch: bool = False

    @property
    def name(self) -> str:
        return f"mlp-{'batch' if self.by_batch else 'group'}:{self.hidden}"

    @property
    def layers(self) -> Mapping[str, int]:
        return {"hidden": self.hidden}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {**super().shapes, **self.normalisation}


def normalise_rows(rows: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    """Return rows (n, c), each normalised over its entries, then multiplied by 1 + gain and moved by shift.

    No running statistics: for networks that are used in training alone.
    """
    spread = rows.var(dim=1, keepdim=True, unbiased=False)
    return (rows - rows.mean(dim=1, keepdim=True)) / (spread + EPSILON).sqrt() * (1 + gain) + shift


def _normalise(parameters: Mapping[str, Tensor], learns: bool, by_batch: bool, layer: str, maps: Tensor) -> Tensor:
    """Return the maps (n, channels, …) of a layer, normalised."""
    from torch.nn import functional

    gain, shift = 1 + parameters[f"{layer}.{GAIN}"], parameters[f"{layer}.{SHIFT}"]
    if not by_batch:
        groups = maps.shape[1] // CHANNELS_OF_A_GROUP if maps.ndim > 2 else 1
        return functional.group_norm(maps, groups, gain, shift, EPSILON)
    mean, variance = parameters[f"{layer}.{MEAN}"], parameters[f"{layer}.{VARIANCE}"]
    if not learns:
        wide = (1, -1) + (1,) * (maps.ndim - 2)
        spread = (variance + (1 + EPSILON)).clamp(min=EPSILON).sqrt()
        return (maps - mean.view(wide)) * (gain / spread).view(wide) + shift.view(wide)
    seen_mean, seen_variance = mean.detach().clone(), variance.detach() + 1
    normalised = functional.batch_norm(maps, seen_mean, seen_variance, gain, shift, True, MOMENTUM, EPSILON)
    # By `data`: no gradient goes through them, but their row, which holds weights too, would count as changed.
    mean.data.copy_(seen_mean)
    variance.data.copy_(seen_variance - 1)
    return normalised
