"""The model of the agreement on results: exhaustive search breaks no property, and breaks one in every mutant."""

import pytest

from tests.models.search import LOG, MODELS, MUTANTS, WITNESSES, missing_tools, model_digest, search


def require_tools() -> None:
    """Skip the test by the names of the programs that are missing."""
    if missing := missing_tools():
        pytest.skip(f"needs {' and '.join(missing)} (Debian packages of these names)")


def test_the_kept_log_is_that_of_the_model():
    """The log beside the model names the SHA-256 of the model as it is, and the verdict of every search."""
    log = LOG.read_text()
    assert model_digest() in log.splitlines()[0]
    for title in MODELS:
        assert any(line.startswith(f"=== {title} ") and "no property is broken" in line for line in log.splitlines())
    for title in (*MUTANTS, *WITNESSES):
        assert any(line.startswith(f"=== {title} ") and ": broken: " in line for line in log.splitlines())


@pytest.mark.long
@pytest.mark.parametrize("title", MODELS)
def test_no_run_breaks_a_property(title):
    """Every state of the model is visited, and in none two honest parties differ."""
    require_tools()
    found = search(MODELS[title], shortest=False)
    assert found.broken == ""
    assert found.is_complete


@pytest.mark.long
@pytest.mark.parametrize("title", MUTANTS)
def test_every_mutant_is_found(title):
    """A protocol with one check less, or one signature too many, has a run that breaks a property."""
    require_tools()
    assert search(MUTANTS[title], shortest=True).broken


@pytest.mark.long
@pytest.mark.parametrize("title", WITNESSES)
def test_complete_runs_exist(title):
    """Runs in which all honest clients reach the end, one of them after it was away, are among those searched."""
    require_tools()
    assert "returned" in search(WITNESSES[title], shortest=True).broken
