"""Adapters between features and a linear layer."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize, relu

from secagg.errors import BadInput
from secagg.heads import LinearHead, head_digest, parse_safetensors, predict, to_safetensors
from secagg.heads.linear import HeadAdapter, Recentring

RNG = np.random.default_rng(0)


def layer(inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Random weights and biases."""
    return RNG.normal(size=(outputs, inputs)).astype(np.float32), RNG.normal(size=outputs).astype(np.float32)


STACKED = HeadAdapter("stacked", (layer(5, 7), layer(7, 4)))
RESIDUAL = HeadAdapter("residual", (layer(5, 2), layer(2, 5)))
FEATURES = RNG.normal(size=(20, 5))


def test_stacked_is_two_layers_with_relu_and_normalisation():
    """FC-ReLU-normalise twice, as torch computes it."""
    found = torch.from_numpy(FEATURES)
    for weight, bias in STACKED.layers:
        found = normalize(relu(found @ torch.from_numpy(weight).double().T + torch.from_numpy(bias)))
    assert np.allclose(STACKED.apply(FEATURES), found.numpy(), atol=1e-12)
    assert (STACKED.inputs, STACKED.outputs) == (5, 4)


def test_residual_adds_the_record_before_normalising():
    """normalise(x + ReLU(W₂ ReLU(W₁ x))), as torch computes it."""
    found = torch.from_numpy(FEATURES)
    for weight, bias in RESIDUAL.layers:
        found = relu(found @ torch.from_numpy(weight).double().T + torch.from_numpy(bias))
    assert np.allclose(RESIDUAL.apply(FEATURES), normalize(torch.from_numpy(FEATURES) + found).numpy(), atol=1e-12)


def test_a_record_without_a_positive_part_stays_finite():
    """Where every unit is off the output is 0, not NaN."""
    dead = HeadAdapter("stacked", ((np.zeros((3, 5), np.float32), np.full(3, -1, np.float32)),))
    assert (dead.apply(FEATURES) == 0).all()


@pytest.mark.parametrize("adapter", [STACKED, RESIDUAL])
def test_a_head_takes_what_its_adapter_takes(adapter):
    """Predictions are those of the linear layer on the adapted records; another length is refused."""
    head = LinearHead(*layer(adapter.outputs, 3), adapter)
    scores = adapter.apply(FEATURES) @ head.weight.T + head.bias
    assert (predict(head, FEATURES) == scores.argmax(axis=1)).all()
    with pytest.raises(BadInput, match="the head takes 5 features"):
        predict(head, FEATURES[:, :4])


@pytest.mark.parametrize("adapter", [STACKED, RESIDUAL])
def test_safetensors_keep_the_adapter(adapter):
    """A head with an adapter loads with the same bits, kind and digest."""
    head = LinearHead(*layer(adapter.outputs, 3), adapter)
    loaded, _ = parse_safetensors(to_safetensors(head, {}))
    assert isinstance(loaded.before, HeadAdapter)
    assert loaded.before.kind == adapter.kind
    assert all((one == other).all() for one, other in zip(loaded.arrays, head.arrays, strict=True))
    assert head_digest(loaded) == head_digest(head)


def test_the_digest_covers_the_adapter():
    """Another weight in a layer, another digest; a recentring is no part of it."""
    last = layer(4, 3)
    weight, bias = STACKED.layers[0]
    other = HeadAdapter("stacked", ((weight + 1, bias), STACKED.layers[1]))
    assert head_digest(LinearHead(*last, STACKED)) != head_digest(LinearHead(*last, other))
    recentred = LinearHead(*last, Recentring(np.eye(4, dtype=np.float32), np.zeros(4, np.float32)))
    assert head_digest(LinearHead(*last)) == head_digest(recentred)


def test_half_an_adapter_is_refused():
    """A file lacking one of an adapter's tensors, or with both kinds, is no head."""
    from safetensors.numpy import save

    weight, bias = layer(4, 3)
    tensors = {"weight": weight, "bias": bias, "stacked.0.weight": STACKED.layers[0][0]}
    with pytest.raises(BadInput, match="beside `weight` and `bias`"):
        parse_safetensors(save(tensors))
    tensors |= {"residual.0.bias": STACKED.layers[0][1]}
    with pytest.raises(BadInput, match="beside `weight` and `bias`"):
        parse_safetensors(save(tensors))


@pytest.mark.parametrize(
    ("kind", "layers"),
    [
        ("other", STACKED.layers),
        ("stacked", ()),
        ("stacked", STACKED.layers[::-1]),
        ("residual", (layer(5, 2),)),
        ("stacked", ((np.zeros((3, 5)), np.zeros(3)),)),
        ("stacked", ((np.full((3, 5), np.nan, np.float32), np.zeros(3, np.float32)),)),
    ],
)
def test_what_is_no_adapter_is_refused(kind, layers):
    """Unknown kinds, layers that do not fit, other types and NaN."""
    with pytest.raises(BadInput):
        HeadAdapter(kind, layers)


def test_a_head_must_fit_its_adapter():
    """The linear layer takes what the adapter puts out."""
    with pytest.raises(BadInput, match="for different features"):
        LinearHead(*layer(5, 3), STACKED)
