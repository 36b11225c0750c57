"""Folders of images and Parquet on the command line."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.command import NEW_PLAN, Command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two domains with two classes of five dark and five light images, of two sizes."""
    generator = np.random.default_rng(0)
    for domain, side in (("art", 6), ("photo", 9)):
        for label, low in (("dark", 0), ("light", 200)):
            place = tmp_path / "images" / domain / label
            place.mkdir(parents=True)
            for index in range(5):
                pixels = generator.integers(low, low + 50, (side, side, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{index}.png")
    return tmp_path / "images"


def test_folder_is_simulated_by_domain(secagg: Command, folder: Path) -> None:
    """One client per domain, all images scaled to one size."""
    said = secagg("simulate", "--dataset", folder, "--image-size", 4, "--partition", "column:domain", "--json", "-")
    assert said.code == 0, said.err
    assert (said.json["clients"], said.json["accuracy"]) == (2, 1.0)


def test_mixed_sizes_are_one_line(secagg: Command, folder: Path) -> None:
    """Without a size the file that differs is named."""
    said = secagg("simulate", "--dataset", folder, "--quiet")
    assert said.code == 2
    assert "photo/dark/0.png: is 9 × 9 pixels, the first image is 6 × 6" in said.complaint


def test_sweep_takes_a_folder(secagg: Command, folder: Path, tmp_path: Path) -> None:
    """A sweep scales the images like a simulation."""
    said = secagg("sweep", "--dataset", folder, "--image-size", 4, "--clients", "3", "--seeds", 1, "--workers", 1,
                  "--out", tmp_path / "out", "--json", "-")  # fmt: skip
    assert said.code == 0, said.err


def test_member_scales_to_the_plan(secagg: Command, federation: Path, folder: Path, tmp_path: Path) -> None:
    """A plan's shape and classes are the member's: its images are scaled, its folders matched by name."""
    roster = federation / "alice" / "roster.json"
    plan, policy = tmp_path / "plan.json", tmp_path / "policy.toml"
    shape = ("--shape", "4x4x3", "--classes", "light,dark,none")
    assert secagg(*NEW_PLAN, "--roster", roster, "--out", plan, *shape).code == 0
    assert secagg("plan", "policy", "--plan", plan, "--data-name", "pictures", "--out", policy).code == 0
    check = ("plan", "check", "--plan", plan, "--roster", roster, "--policy", policy, "--data")
    assert secagg(*check, folder).code == 0
    (folder / "art" / "dark").rename(folder / "art" / "grey")
    refused = secagg(*check, folder)
    assert refused.code == 2
    assert "its folder is none of the classes" in refused.err
