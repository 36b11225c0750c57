"""What a comparison says of runs whose results are known: rows, columns, marks, notes and plots."""

import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.colors import rgb_to_hsv

from secagg.experiments.comparison import OPENED_ONLY, UNSURE, Comparison, pairs_of
from secagg.experiments.figures import _looks
from secagg.experiments.results import Run, student_interval

GAINS = (0.02, 0.03, 0.025, 0.025)
WHY = "samples have no sum"


def run(accuracy: float | None, seed: int, *, unprotected: str | None = None, **settings: Any) -> Run:
    """A run with this accuracy, refused where it is None, under the protection that its settings name."""
    chosen = {
        "method": "fedcgs",
        "parameters": "",
        "partition": "iid",
        "leave_out": None,
        "expand": 0,
        "refine": None,
        "normalise": None,
        "epsilon": math.inf,
        "protection": "none" if unprotected else "masked",
        "seed": seed,
        **settings,
    }
    if accuracy is None:
        return Run(chosen, None, "no such thing", unprotected)
    finite = math.isfinite(chosen["epsilon"])
    result = {
        "accuracy": accuracy,
        "accuracy_interval": [accuracy - 0.1, accuracy + 0.1],
        "refine": 0,
        "normalisation": "none",
        "diverged": False,
        "aggregate_sha256": None if chosen["method"] in ("fedpft", "dp-sgd") else "00",
        "protection": "none" if chosen["method"] == "dp-sgd" else chosen["protection"],
        "clients": 5,
        "expand": chosen["expand"],
        "leave_out": chosen["leave_out"],
        "partition": chosen["partition"],
        "epsilon": chosen["epsilon"] if finite else "inf",
        "delta": 1e-5 if finite else None,
        "adjacency": "add-remove" if finite else None,
        "unit": "record",
        "upload_bytes_per_client": 12345 + seed,
        "client_seconds": 0.02,
        "server_seconds": 12.5,
        "leaves": "every record" if chosen["method"] == "dp-sgd" else None,
        "notes": ["a remark on all runs"],
        "by_domain": None,
        "metrics": None,
        "seconds": {},
        "rounds": [],
        "reproducible_noise": None,
        "validate": 0.0,
        "not_private": ["accuracy"] if finite else [],
    }
    return Run(chosen, result, None, unprotected)


def with_domains(accuracies: tuple[float, ...], seed: int, left: str | None = None, **settings: Any) -> Run:
    """A run over the domains a, b and c with these accuracies of ten records each."""
    domains = {
        name: {"accuracy": accuracy, "correct": round(10 * accuracy), "total": 10, "left_out": name == left}
        for name, accuracy in zip("abc", accuracies, strict=True)
    }
    inside = [accuracy for name, accuracy in zip("abc", accuracies, strict=True) if name != left]
    plain = run(accuracies["abc".index(left)] if left else 0.5, seed, leave_out=left and f"domain={left}", **settings)
    assert plain.result is not None
    found = {"domains": domains, "in_domain": sum(inside) / len(inside), "left_out_domain": None}
    return Run(plain.settings, {**plain.result, "by_domain": found}, None, plain.unprotected)


def partitions(*accuracies: float | None, **settings: Any) -> list[Run]:
    """Two seeds in each of two partitions."""
    places = [(partition, seed) for partition in ("dirichlet:0.05", "iid") for seed in range(2)]
    return [
        run(accuracy, seed, partition=partition, **settings)
        for accuracy, (partition, seed) in zip(accuracies, places, strict=True)
    ]


COMPARED = Comparison(
    "data",
    "masked",
    (
        *partitions(0.8, 0.8, 0.9, 0.9),
        *partitions(0.6, 0.7, 0.7, 0.7, method="fedpft", unprotected=WHY),
        *partitions(None, None, 0.5, 0.5, method="mpft", parameters="slots=4 rounds=1"),
    ),
)
GOLDEN = """\
method                  dirichlet:0.05     iid  bytes per client  client CPU s  server s     ε  protection
----------------------------------------------------------------------------------------------------------
fedcgs                           80.00   90.00            12,346          0.02      12.5  none      masked
fedpft                  65.00 ± 63.53¹  70.00¹            12,346          0.02      12.5  none       none¹
mpft[slots=4 rounds=1]              –²   50.00            12,346          0.02      12.5  none      masked

Accuracy (%) on the held-out records of data: mean over 2 seeds ± half the width of its 95 % Student-t interval, for \
fixed test records (no ±: the same for every seed) (clients 5).
¹ Ran without protection: samples have no sum.
² Refused: no such thing."""


def test_table() -> None:
    """A row per method with its parameters, a column per partition, costs, protection; marks lead to the reasons."""
    assert COMPARED.table.text() == GOLDEN


def test_baselines_are_never_shown_as_protected() -> None:
    """Every number of a run without the protection asked for is marked, and its row says none, in every format."""
    row = COMPARED.table.rows[1]
    assert row[-1] == "none¹"
    assert all(cell.endswith("¹") for cell in row[1:3])
    assert not any("¹" in cell for other in (0, 2) for cell in COMPARED.table.rows[other])
    content = COMPARED.to_json()
    assert [each["protections"] for each in content["rows"]] == [["masked"], ["none"], ["masked"]]
    assert [entry["unprotected_because"] for entry in content["rows"][1]["entries"]] == [[WHY], [WHY]]
    assert [each["unprotected_because"] for each in content["runs"]] == [None] * 4 + [WHY] * 4 + [None] * 4
    assert WHY in COMPARED.table.markdown()
    assert WHY in COMPARED.table.latex()


def test_baseline_that_ignores_protection_is_marked() -> None:
    """A run without protection is marked though nothing was refused; what else it notes is no reason of that."""
    table = Comparison("data", "masked", (run(0.8, 0), run(0.9, 0, method="dp-sgd"))).table
    assert table.rows[1][1] == "90.00 (80.00–100.00)¹"
    assert table.rows[1][-1] == "none¹"
    assert table.notes == ("¹ Ran without protection: with dp-sgd, what leaves a client is every record.",)


def test_baseline_with_an_epsilon_is_not_called_unprotected(tmp_path: Path) -> None:
    """What keeps a finite ε without a secure sum is said to have none, and nowhere to be without protection."""
    comparison = Comparison("data", "masked", (run(0.8, 0, epsilon=4.0), run(0.9, 0, epsilon=4.0, method="dp-sgd")))
    comparison.plot([tmp_path / "plot.svg"])
    assert "<!-- dp-sgd (ε alone, no secure sum) -->" in (tmp_path / "plot.svg").read_text()
    assert comparison.table.notes[0] == "¹ Ran without a secure sum: with dp-sgd, what leaves a client is every record."
    assert "protection:" not in comparison.table.markdown()


def test_mixed_protections_are_both_said() -> None:
    """Where some runs of a row had the protection and others not, the row names both and marks the others alone."""
    runs = (run(0.8, 0), run(0.7, 0, partition="shards:1", unprotected=WHY))
    (row,) = Comparison("data", "masked", runs).table.rows
    assert row[1:3] == ("80.00 (70.00–90.00)", "70.00 (60.00–80.00)¹")
    assert row[-1] == "masked, none¹"


def test_no_protection_asked_for() -> None:
    """Under --protection none nothing is marked, since nothing else was asked for, and the caption says what it is."""
    table = Comparison("data", "none", (run(0.8, 0, protection="none"),)).table
    assert table.rows[0][-1] == "none"
    assert table.notes == ()
    assert "the server sees what every client sends" in table.caption


def test_epsilon_says_what_it_bounds() -> None:
    """A finite ε stands with δ, adjacency and unit; without protection it is marked as that of the released sum."""
    masked = run(0.8, 0, epsilon=4.0)
    bare = run(0.8, 0, epsilon=4.0, method="prototypes", unprotected=WHY)
    table = Comparison("data", "masked", (run(0.9, 0), masked, bare)).table
    assert [row[-2] for row in table.rows] == [
        "none",
        "4 (δ 1e-5, add-remove, record)",
        "4 (δ 1e-5, add-remove, record)²",
    ]
    assert table.notes[1] == f"² {OPENED_ONLY}"
    assert table.notes[-1].startswith("Not private: accuracies are counted on held-out records")


def test_some_seeds_refused() -> None:
    """A mean over fewer seeds than asked for says how many, with the reason below."""
    (row,) = Comparison("data", "masked", (run(0.8, 0), run(None, 1), run(0.9, 2))).table.rows
    assert row[1].endswith("(n = 2)¹")


def test_every_run_of_a_method_refused() -> None:
    """A method of which nothing ran keeps its row: dashes all along."""
    table = Comparison("data", "masked", (run(0.8, 0), run(None, 0, method="magic"))).table
    assert table.rows[1] == ("magic", "–¹", "–", "–", "–", "–", "–")


def test_paired_differences_are_those_of_seeds() -> None:
    """A method that is always a little better surely is, however much seeds move both; one that is not is marked."""
    base = (0.5, 0.6, 0.7, 0.9)
    runs = [run(value, seed) for seed, value in enumerate(base)]
    runs += [run(value + gain, seed, method="mpft") for seed, (value, gain) in enumerate(zip(base, GAINS, strict=True))]
    runs += [run(value, seed, method="fedtc") for seed, value in enumerate(reversed(base))]
    better, neither = pairs_of(Comparison("data", "masked", tuple(runs)).rows)
    assert better.first.label == neither.first.label == "fedcgs"
    (found,), (unsure,) = better.differences, neither.differences
    assert found is not None
    assert unsure is not None
    assert found.interval == pytest.approx(student_interval(GAINS))
    assert found.is_sure
    assert not unsure.is_sure
    table = Comparison("data", "masked", tuple(runs)).tables[1]
    half = 100 * (found.interval[1] - found.mean)
    assert table.rows[0] == ("mpft", "fedcgs", f"+2.50 ± {half:.2f}")
    assert table.rows[1][2].endswith("¹")
    assert table.notes == (UNSURE,)


def test_pairs_have_seeds_epsilon_and_expansion_in_common() -> None:
    """Only seeds that both have count, under one ε; no result is nobody's first, and one seed no pair."""
    runs = [run(None, seed, method="magic") for seed in range(3)]
    runs += [run(0.5, seed, epsilon=epsilon) for epsilon in (1.0, 4.0) for seed in range(3)]
    runs += [run(0.6 if seed else None, seed, method="mpft", epsilon=1.0) for seed in range(4)]
    runs += [run(0.6, 0, method="mpft", epsilon=4.0)]
    comparison = Comparison("data", "masked", tuple(runs))
    (pair,) = pairs_of(comparison.rows)
    assert (pair.first.label, pair.first.settings["epsilon"]) == ("fedcgs", 1.0)
    (found,) = pair.differences
    assert found is not None
    assert (found.mean, found.seeds) == (0.1, 2)
    assert comparison.tables[1].rows == (("mpft, ε 1", "fedcgs", "+10.00"),)
    (told,) = comparison.to_json()["paired"]
    assert told["entries"] == [{"difference": 0.1, "interval": [0.1, 0.1], "seeds": 2, "surely_different": True}]


def test_no_pairs_without_a_second_method() -> None:
    """One method alone, or one seed, has no table of differences."""
    for runs in ((run(0.5, 0), run(0.6, 1)), (run(0.5, 0), run(0.6, 0, method="mpft"))):
        assert [table.name for table in Comparison("data", "masked", runs).tables] == ["accuracy"]


def test_left_out_domains() -> None:
    """A column per left-out domain, the mean of them seed by seed, and the mean over the others' domains."""
    accuracies = {("a", 0): (0.2, 0.8, 0.8), ("a", 1): (0.22, 0.8, 0.8), ("b", 0): (1, 0.6, 1), ("b", 1): (1, 0.6, 1)}
    runs = tuple(with_domains(values, seed, left) for (left, seed), values in accuracies.items())
    comparison = Comparison("data", "masked", runs)
    assert [column.label for column in comparison.columns] == ["a", "b", "mean", "in domain"]
    entries = comparison.rows[0].cells
    assert [entry.accuracy for entry in entries] == pytest.approx([0.21, 0.6, 0.405, 0.9])
    assert entries[2].interval == pytest.approx(student_interval([0.4, 0.41]))
    assert "No client had a record" in comparison.table.caption


def test_domains_of_the_clients() -> None:
    """With nothing left out a single partition has a column for each domain, with its own interval, and their mean."""
    comparison = Comparison("data", "masked", (with_domains((0.2, 0.5, 0.8), 0),))
    assert [column.label for column in comparison.columns] == ["iid", "a", "b", "c", "mean of domains"]
    entries = comparison.rows[0].cells
    assert [entry.accuracy for entry in entries] == pytest.approx([0.5, 0.2, 0.5, 0.8, 0.5])
    assert entries[4].interval is None
    assert entries[1].interval == pytest.approx((0.0252107, 0.5560955), abs=1e-6)
    assert comparison.table.rows[0][5] == "50.00"


def test_missing_part_of_a_mean() -> None:
    """A mean over domains of which one was refused is not that of the others."""
    runs = (with_domains((0.2, 0.8, 0.8), 0, "a"), run(None, 0, leave_out="domain=b"))
    entries = Comparison("data", "masked", runs).rows[0].cells
    assert [entry.accuracy for entry in entries] == [0.2, None, None, None]


def test_expansions_and_epsilons_are_rows() -> None:
    """Several expansions and ε are rows of their own, the expansion in the label."""
    runs = tuple(run(0.8, 0, expand=expand, epsilon=epsilon) for expand in (0, 64) for epsilon in (1.0, math.inf))
    rows = Comparison("data", "masked", runs).rows
    assert [row.label for row in rows] == ["fedcgs, expand 0"] * 2 + ["fedcgs, expand 64"] * 2
    assert [row.settings["epsilon"] for row in rows] == [1.0, math.inf] * 2


def test_a_method_keeps_its_colour() -> None:
    """Rows of one method have one marker and shades of one colour, the paler the smaller ε; no two rows look alike."""
    runs = [
        run(0.8, 0, method=method, epsilon=epsilon) for method in ("fedcgs", "mpft") for epsilon in (1.0, 4.0, math.inf)
    ]
    looks = _looks(Comparison("data", "masked", tuple(runs)).rows)
    hues = [rgb_to_hsv(look["color"]) for look in looks]
    for own in (slice(0, 3), slice(3, 6)):
        assert len({look["marker"] for look in looks[own]}) == 1
        assert [hue[0] for hue in hues[own]] == pytest.approx(3 * [hues[own][0][0]])
        assert hues[own][0][1] < hues[own][1][1] < hues[own][2][1]
    assert len({(look["marker"], look["color"]) for look in looks}) == 6


def test_plot(tmp_path: Path) -> None:
    """The plot is 12 cm wide, the same bytes each time, and name what ran and what of it had no protection."""
    runs = [with_domains((0.2, 0.5, 0.8), seed, left) for left in "abc" for seed in range(2)]
    runs += [with_domains((0.3, 0.5, 0.6), 0, left, method="fedpft", unprotected=WHY) for left in "abc"]
    comparison = Comparison("data", "masked", (*runs, run(None, 0, method="magic", leave_out="domain=a")))
    files = [tmp_path / "plot.png", tmp_path / "plot.svg"]
    comparison.plot(files)
    before = [file.read_bytes() for file in files]
    comparison.plot(files)
    assert [file.read_bytes() for file in files] == before
    assert int.from_bytes(before[0][16:20], "big") == pytest.approx(12 / 2.54 * 300, abs=1)
    ElementTree.parse(files[1])  # noqa: S314 (written above)
    text = files[1].read_text()
    assert "<!-- fedcgs -->" in text
    assert "<!-- fedpft (no protection) -->" in text
    assert "magic" not in text


def test_two_pipelines_are_said_in_every_output(tmp_path: Path) -> None:
    """Where ε = ∞ ran without the normalisation of finite ε, tables, JSON and figure say so; else nothing does."""
    runs = [run(0.5, seed, epsilon=epsilon) for epsilon in (1.0, math.inf) for seed in range(2)]
    said = "Records are normalised under noise (centred-unit) and at ε = ∞ not so (none)."
    assert said not in Comparison("data", "masked", tuple(runs)).summary()
    for each in runs[:2]:
        each.result["normalisation"] = "centred-unit"
    found = Comparison("data", "masked", tuple(runs))
    found.write(tmp_path)
    for name in ("table.md", "table.tex", "results.json"):
        text = (tmp_path / name).read_text()
        assert "are normalised under noise (centred-unit)" in text, name
    assert "normalised under noise (centred-unit)" in (tmp_path / "accuracy.svg").read_text()
