"""What parties of one process compute of the same: once inside `shared_work`, by each outside of it."""

import time

import pytest

from secagg.crypto.shared_work import once, shared_work, spared_seconds
from secagg.crypto.signatures import SigningKey, is_signed
from secagg.randomness import OperatingSystem


def test_nothing_is_remembered_outside():
    """A process of one party computes again whenever it is asked, and is spared nothing."""
    made = []
    assert [once("key", lambda: made.append(1) or len(made)) for _ in range(2)] == [1, 2]
    assert spared_seconds() == 0


def test_computed_once_and_charged_to_each():
    """Inside, each key is computed once; everyone else is charged what it took; at the end all is forgotten."""

    def compute():
        begun = time.process_time()
        while time.process_time() - begun < 0.01:
            pass
        made.append(1)
        return len(made)

    made = []
    with shared_work():
        assert [once("key", compute) for _ in range(3)] == [1, 1, 1]
        assert once("other", compute) == 2
        assert spared_seconds() >= 0.02
    with shared_work():
        assert (once("key", compute), spared_seconds()) == (3, 0)


def test_failure_is_not_remembered():
    """What raises is tried again by the next."""
    with shared_work():
        with pytest.raises(ZeroDivisionError):
            once("key", lambda: 1 // 0)
        assert once("key", lambda: 1) == 1


@pytest.mark.parametrize("changed", ["key", "signature", "label", "part"])
def test_signature_of_something_else_is_checked_anew(changed):
    """That one signature is good says nothing of another key, signature, label or message."""
    key, other = (SigningKey.generate(OperatingSystem()) for _ in range(2))
    good = {"key": key.public, "signature": key.sign("label", b"part"), "label": "label", "part": b"part"}
    bad = {"key": other.public, "signature": other.sign("label", b"part"), "label": "other", "part": b"other"}
    with shared_work():
        assert is_signed(*good.values())
        assert not is_signed(*(good | {changed: bad[changed]}).values())
        assert is_signed(*good.values())
