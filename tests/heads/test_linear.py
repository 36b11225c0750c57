"""Heads: digest, predictions, evaluation, export."""

import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from scipy.stats import binomtest

from secagg.errors import BadInput
from secagg.heads import LinearHead, head_digest, parse_safetensors, predict, save_safetensors, to_safetensors
from secagg.heads.artifact import clopper_pearson
from secagg.heads.export import load_safetensors, save_state_dict, to_linear
from secagg.heads.linear import Recentring

WEIGHT = np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]], dtype=np.float32)
HEAD = LinearHead(WEIGHT, np.array([0.125, -7.0], dtype=np.float32))


def test_digest_is_of_the_numbers_alone():
    """The digest is SHA-256 of weights then biases as little-endian float32, whatever their memory layout."""
    content = struct.pack("<8f", 1.0, -2.0, 0.5, 0.25, 3.0, -1.0, 0.125, -7.0)
    assert head_digest(HEAD) == hashlib.sha256(content).hexdigest()
    assert head_digest(LinearHead(np.asfortranarray(WEIGHT), HEAD.bias)) == head_digest(HEAD)


def test_predictions_are_the_largest_scores():
    """The class of the largest score wins, the lower one on a tie."""
    features = np.array([[1.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, -4.75]])
    assert predict(HEAD, features).tolist() == [0, 1, 0]
    assert predict(HEAD, np.zeros((0, 3))).tolist() == []
    assert predict(HEAD, np.zeros((9000, 3))).tolist() == [0] * 9000
    with pytest.raises(BadInput, match="takes 3 features"):
        predict(HEAD, np.zeros((1, 4)))


@pytest.mark.parametrize(
    ("weight", "bias"),
    [
        (WEIGHT, np.zeros(3, np.float32)),
        (WEIGHT[0], np.zeros(3, np.float32)),
        (WEIGHT.astype(np.float64), np.zeros(2, np.float32)),
        (WEIGHT, np.zeros(2)),
        (WEIGHT * np.float32(np.nan), np.zeros(2, np.float32)),
        (WEIGHT, np.full(2, np.inf, np.float32)),
    ],
)
def test_head_is_finite_float32(weight, bias):
    """Another shape, type or a value that is not finite makes no head."""
    with pytest.raises(BadInput):
        LinearHead(weight, bias)


RECENTRING = Recentring(np.diag(np.float32([2.0, 1.0, 1.0])), np.float32([0.5, 0.0, 0.0]))
"""z = g·M − c; g = (1/4, 0, 0) is the centre."""


def test_recentred_records_have_one_length():
    """z = g·M − c is stretched to √(d/(d+1)); the record at the centre stays zero, and scores follow from z."""
    features = np.array([[1.0, 0.0, 0.0], [0.25, 3.0, 4.0], [0.25, 0.0, 0.0]])
    expected = np.array([[1.0, 0.0, 0.0], [0.0, 0.6, 0.8], [0.0, 0.0, 0.0]]) * np.sqrt(3 / 4)
    assert np.allclose(RECENTRING.apply(features), expected, atol=1e-12)
    behind = LinearHead(HEAD.weight, HEAD.bias, RECENTRING)
    assert predict(behind, features).tolist() == predict(HEAD, expected).tolist()


@pytest.mark.parametrize(
    ("matrix", "centre"),
    [
        (np.eye(3, dtype=np.float32), np.zeros(2, np.float32)),
        (np.eye(3), np.zeros(3)),
        (np.eye(3, dtype=np.float32) * np.float32(np.nan), np.zeros(3, np.float32)),
        (np.eye(3, dtype=np.float32), np.full(3, np.inf, np.float32)),
        (np.eye(2, dtype=np.float32), np.zeros(2, np.float32)),
    ],
)
def test_recentring_is_finite_and_fits(matrix, centre):
    """Another shape, type, value or number of features than the head's is refused."""
    with pytest.raises(BadInput):
        LinearHead(HEAD.weight, HEAD.bias, Recentring(matrix, centre))


def test_evaluation_counts():
    """Accuracy is correct ÷ total, inside its interval."""
    result = HEAD.evaluate(np.array([[1.0, 0, 0]] * 8), np.array([0] * 6 + [1] * 2))
    assert (result.correct, result.total, result.accuracy) == (6, 8, 0.75)
    assert result.interval[0] < 0.75 < result.interval[1]


@pytest.mark.parametrize(("features", "labels"), [((0, 3), 0), ((2, 3), 3)])
def test_nothing_to_evaluate_is_refused(features, labels):
    """No records, or another number of labels, is refused."""
    with pytest.raises(BadInput):
        HEAD.evaluate(np.zeros(features), np.zeros(labels, np.int64))


@given(st.integers(1, 500).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_interval_is_clopper_pearson(sample):
    """The interval is SciPy's exact binomial one."""
    correct, total = sample
    expected = binomtest(correct, total).proportion_ci(0.95, method="exact")
    assert np.allclose(clopper_pearson(correct, total), (expected.low, expected.high), atol=1e-6)


def test_safetensors_keep_head_and_metadata(tmp_path):
    """A saved head loads with the same bits and the same mapping."""
    save_safetensors(HEAD, tmp_path / "head.safetensors", {"classes": '["a","b"]', "method": "fedcgs"})
    head, metadata = load_safetensors(tmp_path / "head.safetensors")
    assert head_digest(head) == head_digest(HEAD)
    assert metadata == {"classes": '["a","b"]', "method": "fedcgs"}


def test_safetensors_keep_the_recentring(tmp_path):
    """A head with a recentring loads with the same bits of both; half a recentring is refused."""
    save_safetensors(LinearHead(HEAD.weight, HEAD.bias, RECENTRING), tmp_path / "head.safetensors", {})
    head, _ = load_safetensors(tmp_path / "head.safetensors")
    assert isinstance(head.before, Recentring)
    assert (head.before.matrix == RECENTRING.matrix).all()
    assert (head.before.centre == RECENTRING.centre).all()
    half = {"weight": WEIGHT, "bias": HEAD.bias, "recentring_centre": RECENTRING.centre}
    save_file(half, tmp_path / "head.safetensors")
    with pytest.raises(BadInput, match="it holds the tensors"):
        load_safetensors(tmp_path / "head.safetensors")


def test_safetensors_keep_the_class_means(tmp_path):
    """Class means are kept to the bit and are part of the digest; of another shape or type they are refused."""
    means = np.arange(6, dtype=np.float32).reshape(2, 3)
    for before in (None, RECENTRING):
        head = LinearHead(WEIGHT, HEAD.bias, before, means)
        save_safetensors(head, tmp_path / "head.safetensors", {})
        loaded, _ = load_safetensors(tmp_path / "head.safetensors")
        assert (loaded.means == means).all()
        assert head_digest(loaded) == head_digest(head)
        other = LinearHead(WEIGHT, HEAD.bias, before, np.nextafter(means, np.float32(9)))
        assert len({head_digest(each) for each in (HEAD, head, other)}) == 3
    for wrong in (means[:1], means.astype(np.float64), means * np.float32(np.nan)):
        with pytest.raises(BadInput, match="class means"):
            LinearHead(WEIGHT, HEAD.bias, means=wrong)


def test_fortran_ordered_weights_survive(tmp_path):
    """The weights' memory layout does not change what is saved."""
    save_safetensors(LinearHead(np.asfortranarray(WEIGHT), HEAD.bias), tmp_path / "head.safetensors", {})
    assert head_digest(load_safetensors(tmp_path / "head.safetensors")[0]) == head_digest(HEAD)


@pytest.mark.parametrize(
    "tensors",
    [
        {"weight": WEIGHT},
        {"weight": WEIGHT, "bias": HEAD.bias, "more": HEAD.bias},
        {"weight": WEIGHT, "bias": HEAD.bias[:1]},
        {"weight": WEIGHT.astype(np.float64), "bias": HEAD.bias},
        {"weight": WEIGHT * np.float32(np.nan), "bias": HEAD.bias},
    ],
)
def test_other_tensors_are_refused(tmp_path, tensors):
    """A file with other tensors, types, shapes or values is refused by its name."""
    save_file(tensors, tmp_path / "head.safetensors")
    with pytest.raises(BadInput, match=r"head\.safetensors"):
        load_safetensors(tmp_path / "head.safetensors")


@pytest.mark.parametrize("content", [None, b"", b"no tensors at all", b"\xff" * 64])
def test_unreadable_head_is_refused(tmp_path, content):
    """A missing or broken file is refused by its name."""
    if content is not None:
        (tmp_path / "head.safetensors").write_bytes(content)
    with pytest.raises(BadInput, match=r"head\.safetensors"):
        load_safetensors(tmp_path / "head.safetensors")


def test_unwritable_place_is_refused(tmp_path):
    """A place that cannot be written is refused by its name."""
    for save in (lambda path: save_safetensors(HEAD, path, {}), lambda path: save_state_dict(HEAD, path)):
        with pytest.raises(BadInput, match="cannot write"):
            save(tmp_path / "absent" / "head")


def test_linear_layer_gives_the_same_scores(tmp_path):
    """The torch layer and its saved state hold the same bits and give the same predictions."""
    import torch

    linear = to_linear(HEAD)
    assert (linear.weight.detach().numpy() == HEAD.weight).all()
    assert (linear.bias.detach().numpy() == HEAD.bias).all()
    save_state_dict(HEAD, tmp_path / "head.pt")
    assert (tmp_path / "head.pt").stat().st_mode & 0o777 == 0o600
    state = torch.load(tmp_path / "head.pt", weights_only=True)
    assert (state["weight"].numpy() == HEAD.weight).all()
    features = np.random.default_rng(0).normal(size=(50, 3))
    with torch.no_grad():
        assert (linear(torch.from_numpy(features).float()).argmax(1).numpy() == predict(HEAD, features)).all()


def test_safetensors_of_one_head_are_one_file():
    """The same head and texts give the same bytes, however often and in whichever order the texts are given."""
    head = LinearHead(np.ones((2, 3), np.float32), np.zeros(2, np.float32))
    texts = {f"text {number}": "é" * number for number in range(8)}
    files = {to_safetensors(head, dict(order)) for order in (texts.items(), reversed(texts.items()))}
    files |= {to_safetensors(head, texts) for _ in range(8)}
    (content,) = files
    assert (8 + int.from_bytes(content[:8], "little")) % 8 == 0
    assert parse_safetensors(content)[1] == texts
