"""Gradients of single records' losses in closed form, for networks of linear layers with ReLU between them.

With z_l = W_l·a_(l−1) + b_l, a_l = max(z_l, 0) and the cross-entropy of softmax(z_L), a record's error is softmax(z_L)
less 1 at its label in the last layer, and before it e_l = W_(l+1)ᵀ·e_(l+1) where a_l > 0. The gradients are
∂W_l = e_l·a_(l−1)ᵀ and ∂b_l = e_l.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secagg.networks.programs import Perceptron, Program, Softmax, named_parameters

if TYPE_CHECKING:
    from torch import Tensor

LAYERED: frozenset[type[Program]] = frozenset({Softmax, Perceptron})
"""Networks that are such layers, whose parameters are each layer's weight and bias, in order.

By their own classes: a subclass may compute something else.
"""


class LayeredGradients:
    """The closed form of a `LAYERED` network at the parameters `weights` (size,), a float32 tensor.

    A product with a matrix is of one record, at one place in memory, because products of many records round by how many
    they are. What is done for many records at once is to multiply single numbers, which rounds the same everywhere.
    """

    def __init__(self, program: Program, weights: Tensor) -> None:
        import torch

        parts = list(named_parameters(program, weights).values())
        self.weights, self.biases = parts[::2], parts[1::2]
        self.activations = [torch.empty(weight.shape[1], dtype=torch.float32) for weight in self.weights]
        self.errors = [torch.empty_like(bias) for bias in self.biases]

    def fill(self, rows: NDArray[np.float32], x: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Write the gradients of records (n, d) into `rows` (n, size). Nothing that a record holds raises."""
        import torch

        inputs, errors = (_rows_of(each, len(x)) for each in (self.activations, self.errors))
        with torch.inference_mode(), np.errstate(all="ignore"):
            for row, label in enumerate(labels.tolist()):
                self.activations[0].numpy()[:] = x[row]
                self._backpropagate(label)
                for kept, of_record in zip(inputs + errors, self.activations + self.errors, strict=True):
                    kept[row] = of_record.numpy()
            end = 0
            for of_inputs, of_errors in zip(inputs, errors, strict=True):
                shape = of_errors.shape[1], of_inputs.shape[1]
                begin, end = end, end + shape[0] * shape[1]
                place = rows[:, begin:end].reshape(len(x), *shape, copy=False)
                np.multiply(of_errors[:, :, None], of_inputs[:, None, :], out=place)
                begin, end = end, end + shape[0]
                rows[:, begin:end] = of_errors

    def _backpropagate(self, label: int) -> None:
        """Compute the other activations and all errors of the record that the first activations are."""
        import torch

        for layer, (before, after) in enumerate(pairwise(self.activations)):
            torch.addmv(self.biases[layer], self.weights[layer], before, out=after).relu_()
        scores = torch.addmv(self.biases[-1], self.weights[-1], self.activations[-1])
        torch.softmax(scores, 0, out=self.errors[-1])
        self.errors[-1].numpy()[label] -= 1
        for layer in reversed(range(1, len(self.errors))):
            torch.mv(self.weights[layer].T, self.errors[layer], out=self.errors[layer - 1])
            error, activation = self.errors[layer - 1].numpy(), self.activations[layer].numpy()
            error[activation <= 0] = 0  # as in torch, a unit that is not a number passes its error on


def _rows_of(tensors: Iterable[Tensor], count: int) -> list[NDArray[np.float32]]:
    return [np.empty((count, len(each)), dtype=np.float32) for each in tensors]
