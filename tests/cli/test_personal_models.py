"""What the command line tells of members' own models."""

from tests.cli.command import Command


def test_text_tells_the_mean_and_the_span(secagg: Command) -> None:
    """A line for each kind of model."""
    text = secagg("simulate", "--method", "fedpcl", "--parameters", "rounds=2 width=16", "--protection", "none").out
    assert "members' own models, global" in text
    assert "the mean of 5" in text
