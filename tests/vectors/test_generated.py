"""The vector files are what their generator writes."""

import json

import pytest

from tests.vectors.files import FOLDER
from tests.vectors.generate import VECTORS, text


@pytest.mark.parametrize("name", VECTORS)
def test_file_is_what_the_generator_writes(name: str) -> None:
    """The independent implementations give exactly the committed bytes."""
    assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == text(name)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_file_says_where_it_comes_from(path) -> None:
    """Every vector file names its source and its generator."""
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["source"]
    assert content["generator"]
