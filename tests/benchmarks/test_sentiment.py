"""The texts of the sentiment benchmark: which are taken, and how they are divided."""

from __future__ import annotations

import numpy as np

from tests.benchmarks.sentiment import TEST, Texts, divided, parse


def test_only_clear_short_and_distinct_texts_are_taken() -> None:
    """A score near 0, a long text and one that occurs twice are left out; labels are the scores' signs."""
    lines = ["1_1\t1.5\tgood &amp; cheap", "1_2\t-2.0\tbad", "2_1\t0.9\tso so", f"2_2\t3.0\t{'long ' * 30}"]
    found = parse("\r\n".join([*lines, "3\t2.0\tagain", "4\t-2.0\tagain"]))
    assert found.texts.tolist() == ["good & cheap", "bad"]
    assert found.labels.tolist() == [1, 0]
    assert found.documents.tolist() == ["1", "1"]


def test_no_document_is_in_both_parts() -> None:
    """The test part has as many of each class, and shares no document with the training part."""
    documents = np.repeat(np.arange(250).astype(str), 4)
    whole = Texts(np.arange(1000).astype(str), np.random.default_rng(1).integers(0, 2, 1000), documents)
    train, test = divided(whole, 0)
    assert np.bincount(test.labels).tolist() == [TEST, TEST]
    assert not set(train.documents) & set(test.documents)
    assert 700 < len(train.labels) <= 1000 - 2 * TEST
