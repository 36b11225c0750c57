"""Heads of single clients: nobody sees another's records, and the ensemble means outputs."""

import numpy as np

from methods.baselines.baseline import ClientData
from methods.baselines.softmax_regression import Ensemble, LocalOnly, MeanOutput, local_heads
from secagg.heads import LinearHead

DRAWS = np.random.default_rng(2)


def client(labels, n=40):
    """A client with n records of these classes, in 4 dimensions."""
    own = DRAWS.choice(labels, n)
    return ClientData.of(DRAWS.normal(size=(n, 4)) + 4 * np.eye(4)[own], own)


CLIENTS = [client([0, 1], 50), client([2], 20), client([0, 2, 3], 30)]
PROBES = DRAWS.normal(size=(200, 4)) * 3


def test_local_heads_never_see_others():
    """A client's head keeps every bit when all others hold other records, or none."""
    alone, _ = local_heads(CLIENTS, 4, seed=7)
    among, _ = local_heads([client([3], 9), client([1], 8), CLIENTS[2]], 4, seed=7)
    nothing = ClientData.of(np.zeros((0, 4)), np.zeros(0, dtype=np.int64))
    without, _ = local_heads([nothing, nothing, CLIENTS[2]], 4, seed=7)
    assert alone[2].weight.tobytes() == among[2].weight.tobytes() == without[0].weight.tobytes()
    assert alone[2].bias.tobytes() == among[2].bias.tobytes() == without[0].bias.tobytes()
    assert alone[1].weight.tobytes() != among[1].weight.tobytes()


def test_local_only_gives_each_client_its_own():
    """One predictor per client; who has one class alone predicts nothing else for records like its own."""
    fitted = LocalOnly().fit(CLIENTS, 4, seed=7)
    heads, _ = local_heads(CLIENTS, 4, seed=7)
    assert [each.head.weight.tobytes() for each in fitted.predictors] == [head.weight.tobytes() for head in heads]
    assert set(fitted.predictors[1].predict(CLIENTS[1].features)) == {2}


def test_ensemble_means_probabilities_by_torch():
    """Predictions are the argmax of torch's mean of softmax outputs, whatever the numbers of records."""
    import torch

    (ensemble,) = Ensemble().fit(CLIENTS, 4, seed=7).predictors
    heads, _ = local_heads(CLIENTS, 4, seed=7)
    outputs = [
        torch.softmax(torch.from_numpy(PROBES @ head.weight.astype(np.float64).T + head.bias), dim=1) for head in heads
    ]
    assert (ensemble.predict(PROBES) == torch.stack(outputs).mean(dim=0).argmax(dim=1).numpy()).all()


def test_ensemble_is_not_the_mean_of_weights():
    """One sure head is outvoted by two unsure ones in probabilities, though not in scores."""
    weights = [[[30.0], [0.0]], [[0.0], [1.0]], [[0.0], [1.0]]]
    heads = tuple(LinearHead(np.array(each, dtype=np.float32), np.zeros(2, dtype=np.float32)) for each in weights)
    one = np.ones((1, 1))
    # 1 + 2·0.269 = 1.54 for class 0 against 2·0.731 = 1.46
    assert MeanOutput(heads).predict(one).tolist() == [0]
    # at 0.1: 0.953 + 2·0.475 against 0.047 + 2·0.525; at 4: 1 + 2·0.018 against 2·0.982, where scores say 0
    assert MeanOutput(heads).predict(4 * one).tolist() == [1]
    assert np.mean(weights, axis=0)[:, 0].argmax() == 0
