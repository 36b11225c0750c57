"""Members of adapters with a model, or records, that the plan does not mean: refused in one line, nothing is sent."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.command import NEW_PLAN, Command, nothing_sent
from tests.cli.test_bad_input import client
from tests.worlds.encoders import SIDE, WORDS, save_encoder, save_tokenizer, save_triplets, write_table

EXACT = ("refinement_without_noise = false", "refinement_without_noise = true")


@pytest.fixture
def home(federation: Path, secagg: Command) -> Path:
    """Alice's folder, with a plan of `feddat` for the encoder `vilt` and her triplets."""
    alice = federation / "alice"
    save_encoder(alice / "vilt")
    save_triplets(alice / "own.triplets", 8, ("colours",))
    made = {"roster": alice / "roster.json", "out": federation / "plan.json", "like": alice / "own.triplets"}
    made |= {"backbone": f"transformers:{alice / 'vilt'}", "radius": 1, "method": "feddat"}
    return planned(secagg, federation, "places=2x16 rank=2 rounds=2", **made)


def planned(secagg: Command, federation: Path, parameters: str, **options: object) -> Path:
    """Write a plan and a policy that accepts its exact rounds; return alice's folder."""
    (federation / "plan.json").unlink()
    words = [part for name, value in options.items() for part in (f"--{name}", value)]
    assert secagg(*NEW_PLAN, "--quiet", *words, "--parameters", parameters).code == 0
    policy = federation / "alice" / "policy.toml"
    policy.unlink()
    assert secagg("plan", "policy", "--plan", federation / "plan.json", "--data-name", "own", "--out", policy).code == 0
    policy.write_text(policy.read_text().replace(*EXACT))
    return policy.parent


def refused(secagg: Command, home: Path, data: Path, model: Path) -> str:
    """The line with which her client is refused; nothing has left her."""
    said = secagg(*client(home.parent, data=data, backbone=f"transformers:{model}"))
    assert said.code == 2
    assert nothing_sent(home / "state")
    return said.complaint


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("config.json", "holds no config.json with *.safetensors"),
        ("model.safetensors", "holds no config.json with *.safetensors"),
        ("tokenizer.json", "has digest"),
        ("preprocessor_config.json", "has digest"),
    ],
)
def test_a_model_without_a_part(secagg: Command, home: Path, part: str, words: str) -> None:
    """A folder that lacks one is named, with what it lacks or the digest that it should have."""
    own = Path(shutil.copytree(home / "vilt", home / "less"))
    (own / part).unlink()
    assert words in refused(secagg, home, home / "own.triplets", own)


def test_another_tokenizer(secagg: Command, home: Path) -> None:
    """The same weights with other words are another encoder; the digests of its parts are told."""
    own = Path(shutil.copytree(home / "vilt", home / "other"))
    save_tokenizer(own, (*WORDS, "more"))
    line = refused(secagg, home, home / "own.triplets", own)
    assert "has digest" in line
    assert "tokenizer" in line
    assert "nothing in the file was run" in line


@pytest.mark.parametrize("declared", [False, True])
def test_pictures_that_do_not_fit(secagg: Command, home: Path, declared: bool) -> None:
    """Of another size than declared, row and sizes are named; declared so, they are not the plan's."""
    own = Path(shutil.copytree(home / "own.triplets", home / "large.triplets"))
    for picture in own.glob("*.png"):
        Image.new("RGB", (SIDE + 4, SIDE + 4)).save(picture)
    if declared:
        facts = own / "triplets.json"
        facts.write_text(facts.read_text().replace(f'"side": {SIDE}', f'"side": {SIDE + 4}'))
    line = refused(secagg, home, own, home / "vilt")
    words = (
        "the plan asks for triplets of shape" if declared else f"row 2: has a picture that is {SIDE + 4} × {SIDE + 4}"
    )
    assert words in line
    assert declared or f"scale it to {SIDE} × {SIDE}" in line


def test_triplets_with_one_answer(secagg: Command, home: Path) -> None:
    """There is nothing to learn from them."""
    own = Path(shutil.copytree(home / "own.triplets", home / "one.triplets"))
    write_table(own, [["colours-0.png", "what colour is this ?", "red", "colours"]] * 3)
    assert "every record has the same answer" in refused(secagg, home, own, home / "vilt")


def test_features_of_one_class(secagg: Command, federation: Path) -> None:
    """A member of `fraug` with one class is refused by the class's name; with two it would go on to the server."""
    alice = federation / "alice"
    made = {"roster": alice / "roster.json", "out": federation / "plan.json", "like": alice / "records.npz"}
    planned(secagg, federation, "rounds=2", **made, radius=1, method="fraug")
    features = np.random.default_rng(0).uniform(-0.5, 0.5, (6, 3))
    np.savez(alice / "one.npz", features=features, labels=np.ones(6, dtype=np.int64))
    said = secagg(*client(federation, data=alice / "one.npz"))
    assert said.code == 2
    assert nothing_sent(alice / "state")
    assert "all records of" in said.complaint
    assert "tell classes apart" in said.complaint
    assert secagg(*client(federation)).code == 75
