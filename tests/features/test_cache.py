"""Kept features: the same bits, nobody else's to read, and never trusted when damaged or planted."""

import logging
import stat
from pathlib import Path

import numpy as np
import pytest

from secagg.features import open_backbone
from secagg.features.cache import FeatureCache, user_cache

INPUTS = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
FEATURES = np.random.default_rng(0).normal(size=(4, 5))
DIGEST = "ab" * 32


class Counted:
    """A computation that counts how often it runs."""

    def __init__(self, features=FEATURES):
        self.features = features
        self.runs = 0

    def __call__(self):
        self.runs += 1
        return self.features


@pytest.fixture
def cache(tmp_path):
    """A cache in a folder that is not there yet."""
    return FeatureCache(tmp_path / "deep" / "features")


def recall(cache, compute, digest=DIGEST, inputs=INPUTS):
    """Recall five features per record."""
    return cache.recall(digest, inputs, 5, compute)


def kept(cache):
    """The files of a cache."""
    return sorted(cache.folder.iterdir())


def test_second_time_nothing_is_computed(cache):
    """Kept features are the computed ones bit for bit, special values included, and may be written to."""
    compute = Counted(np.array([[0.0, -0.0, np.nan, np.inf, 5e-324]] * 4))
    first, second = recall(cache, compute), recall(cache, compute)
    assert compute.runs == 1
    assert second.tobytes() == first.tobytes()
    second[0, 0] = 1.0


@pytest.mark.parametrize(
    "inputs",
    [INPUTS + 1, INPUTS[:3], INPUTS[::-1], INPUTS.reshape(4, 2, 3), INPUTS.astype(np.float64), INPUTS.view(np.int8)],
)
def test_other_inputs_are_computed(cache, inputs):
    """Other values, order, shape or type of the records are another entry."""
    recall(cache, Counted())
    other = Counted(FEATURES[: len(inputs)] + 1)
    assert (recall(cache, other, inputs=inputs) == other.features).all()
    assert other.runs == 1


def test_same_inputs_in_other_memory_are_the_same(cache):
    """How an array lies in memory does not matter."""
    recall(cache, Counted())
    other = Counted()
    recall(cache, other, inputs=np.asfortranarray(INPUTS))
    assert other.runs == 0


def test_other_backbone_or_torch_is_computed(cache, monkeypatch):
    """Another program, or another version of torch, is another entry."""
    recall(cache, Counted())
    other = Counted()
    recall(cache, other, digest="cd" * 32)
    monkeypatch.setattr("secagg.features.cache.version", lambda _: "0.0")
    recall(cache, other)
    assert other.runs == 2


def test_only_the_owner_can_read(cache):
    """The folder has mode 0700, the files 0600, and no other file stays."""
    recall(cache, Counted())
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    (file,) = kept(cache)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.suffix == ".features"


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: bytes([content[0] ^ 1]) + content[1:],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: content[:32],
    ],
)
def test_damaged_file_is_made_again(cache, damage, caplog):
    """An entry that was cut, extended or changed in one bit is computed anew, and kept again."""
    recall(cache, Counted())
    (file,) = kept(cache)
    file.write_bytes(damage(file.read_bytes()))
    again = Counted()
    assert (recall(cache, again) == FEATURES).all()
    assert "is damaged" in caplog.text
    recall(cache, again)
    assert again.runs == 1


def test_entry_under_another_name_is_damaged(cache):
    """A valid entry that was renamed to another key is not believed."""
    recall(cache, Counted(FEATURES + 1), inputs=INPUTS + 1)
    recall(cache, Counted())
    first, second = kept(cache)
    first.replace(second)
    one, other = Counted(), Counted(FEATURES + 1)
    recall(cache, one)
    recall(cache, other, inputs=INPUTS + 1)
    assert (one.runs, other.runs) == (1, 1)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_folder_that_others_may_write_is_not_used(cache, mode, caplog):
    """Where others could plant features nothing is read or written, and the log says so."""
    recall(cache, Counted())
    cache.folder.chmod(mode)
    again = Counted(FEATURES + 1)
    assert (recall(cache, again) == FEATURES + 1).all()
    assert "they may write to it" in caplog.text
    assert len(kept(cache)) == 1


def test_folder_that_cannot_be_made_is_no_error(tmp_path, caplog):
    """Where nothing can be kept, features are computed all the same."""
    (tmp_path / "file").write_text("no folder")
    compute = Counted()
    for _ in range(2):
        assert (recall(FeatureCache(tmp_path / "file" / "features"), compute) == FEATURES).all()
    assert compute.runs == 2
    assert "features are not kept" in caplog.text


def test_failed_write_leaves_nothing(cache, monkeypatch, caplog):
    """A file that could not be finished is removed; the features are given all the same."""

    def fail(*_):
        raise OSError(28, "no space left")

    monkeypatch.setattr(Path, "replace", fail)
    with caplog.at_level(logging.WARNING):
        assert (recall(cache, Counted()) == FEATURES).all()
    assert "no space left" in caplog.text
    assert kept(cache) == []


def test_error_of_the_backbone_is_not_swallowed(cache):
    """What goes wrong while computing is raised, and nothing is kept."""

    def fail():
        raise ValueError("the program failed")

    with pytest.raises(ValueError, match="the program failed"):
        recall(cache, fail)
    assert kept(cache) == []


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/secagg/features"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/a"}, "/home/a/.cache/secagg/features"),
        ({"HOME": "/home/a"}, "/home/a/.cache/secagg/features"),
        ({"HOME": "/home/a", "SECAGG_CACHE": "/else/where"}, "/else/where"),
        ({"HOME": "/home/a", "SECAGG_CACHE": "off"}, None),
    ],
)
def test_environment_chooses_the_folder(monkeypatch, environment, folder):
    """The folder is SECAGG_CACHE, or lies where the desktop standard says; `off` keeps nothing."""
    for name in ("XDG_CACHE_HOME", "SECAGG_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = user_cache()
    assert (found and str(found.folder)) == folder


def test_program_runs_once_over_the_same_records(program, tmp_path, monkeypatch):
    """Opened again, a program reads its kept features and runs no record; `off`, it runs them again."""
    monkeypatch.setenv("SECAGG_CACHE", str(tmp_path / "kept"))
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    seen = []

    def extract():
        seen.clear()
        backbone = open_backbone(str(program()), (8, 8, 3), progress=lambda *done: seen.append(done))
        return backbone.extract(images), len(seen)

    first, runs = extract()
    second, none = extract()
    assert (runs, none) == (3, 0)
    assert first.tobytes() == second.tobytes()
    monkeypatch.setenv("SECAGG_CACHE", "off")
    assert extract()[1] == 3


def test_cheap_maps_are_not_kept(tmp_path, monkeypatch):
    """Pixels and random features leave nothing on the disk."""
    monkeypatch.setenv("SECAGG_CACHE", str(tmp_path / "kept"))
    open_backbone("pixels+random-features:7", (3, 2)).extract(INPUTS)
    assert not (tmp_path / "kept").exists()
