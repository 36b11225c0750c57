"""Bad options of every command give one clear line and exit code 2."""

import pytest

from tests.cli.command import Command


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "--epsilonn", "1"],
        ["simulate", "--clients", "many"],
        ["simulate", "--clients", "0"],
        ["simulate", "--clients", "-1"],
        ["simulate", "--epsilon", "1"],
        ["simulate", "--epsilon", "1", "--delta", "1e-5"],
        ["simulate", "--epsilon", "1", "--adjacency", "add-remove"],
        ["simulate", "--epsilon", "1", "--delta", "0", "--adjacency", "add-remove"],
        ["simulate", "--epsilon", "1", "--delta", "1e-5", "--adjacency", "add-remove", "--normalise", "none"],
        ["simulate", "--epsilon", "1e-9", "--delta", "1e-5", "--adjacency", "add-remove"],
        ["simulate", "--epsilon", "0"],
        ["simulate", "--epsilon", "nan"],
        ["simulate", "--epsilon", "much"],
        ["simulate", "--partition", "magic"],
        ["simulate", "--partition", "dirichlet:0"],
        ["simulate", "--partition", "dirichlet:x"],
        ["simulate", "--partition", "shards:0"],
        ["simulate", "--partition", "column:x"],
        ["simulate", "--protection", "magic"],
        ["simulate", "--method", "magic"],
        ["simulate", "--covariance", "magic"],
        ["simulate", "--backbone", "magic"],
        ["simulate", "--radius", "-1"],
        ["simulate", "--radius", "nan"],
        ["simulate", "--centre", "nan"],
        ["simulate", "--ridge", "-1"],
        ["simulate", "--expand", "-5"],
        ["simulate", "--expand", "100000"],
        ["simulate", "--unit", "patient"],
        ["simulate", "--adjacency", "magic"],
        ["simulate", "--delta", "-1"],
        ["simulate", "--noise", "magic"],
        ["simulate", "--normalise", "magic"],
        ["simulate", "--normalise", "unit", "--radius", "2"],
        ["simulate", "--refine", "-1"],
        ["simulate", "--refine", "101"],
        ["simulate", "--refine", "1", "--normalise", "none"],
        ["simulate", "--levels", "0"],
        ["simulate", "--max-records", "10"],
        ["simulate", "--clients", "5", "--dropouts", "5"],
        ["simulate", "--clients", "5", "--colluders", "5"],
        ["simulate", "surplus"],
        ["magic"],
        ["plan", "magic"],
        ["plan", "show"],
        ["client"],
        ["pki", "request", "BAD", "--tls", "/proc/never"],
        ["pki", "show", "/no/such/roster.json"],
        ["verify", "/no/such/transcript.log"],
        ["predict", "--head", "/no/such/head", "--data", "digits"],
        ["demo", "--clients", "1"],
        ["demo", "--protection", "magic", "--out", "/proc/none"],
    ],
    ids=" ".join,
)
def test_bad_option(secagg: Command, arguments: list[str]) -> None:
    """An unknown option, a missing one, or a value that cannot be is said in one line, with exit code 2."""
    quiet = ["--quiet"] if arguments[0] in ("simulate", "verify", "predict", "demo") else []
    said = secagg(*arguments, *quiet)
    assert said.code == 2, said
    assert said.complaint


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["compare", "--out", "x"], "Missing option '--methods' / '--method'; try --help"),
        (["simulate", "--clients", "many"], "Invalid value for '--clients': it should be a whole number; try --help"),
        (["simulate", "--ridge", "much"], "Invalid value for '--ridge': it should be a number; try --help"),
        (
            ["simulate", "--clients", "0"],
            "Invalid value for '--clients': it should be greater than or equal to 1; try --help",
        ),
        (
            ["simulate", "--quiet", "--partition", "dirichlet"],
            "partition 'dirichlet': ALPHA is a number of 0.001 or more; for example dirichlet:0.05",
        ),
    ],
    ids=str,
)
def test_words(secagg: Command, arguments: list[str], line: str) -> None:
    """What is wrong with an option is one sentence in plain words."""
    assert secagg(*arguments).complaint == f"secagg: {line}"


def test_debug_shows_where(secagg: Command) -> None:
    """Only --debug shows a traceback; the last line stays the same."""
    said = secagg("simulate", "--quiet", "--dataset", "no-such-data", "--debug")
    assert said.code == 2
    assert "Traceback" in said.err
    assert said.err.splitlines()[-1].startswith("secagg: ")
