"""`secagg predict` and `simulate --save`: probabilities, measures, files of them, and the model card."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from secagg.heads import to_safetensors
from secagg.networks import TrainedModel, program_named
from tests.cli.command import Command

COLUMNS = 'label = "ill"\nclasses = ["no", "yes"]\npositive = "yes"\n[label_values]\n0 = "no"\n1 = "yes"\n'
AGE = '[[columns]]\nname = "age"\nkind = "numeric"\nlow = 0\nhigh = 100\n'
DOSE = '[[columns]]\nname = "dose"\nkind = "numeric"\nlow = 0\nhigh = 10\n'


@pytest.fixture
def home(secagg: Command, tmp_path: Path) -> Path:
    """A schema, 200 patients in a table, the same without labels, and the head that was simulated over them."""
    generator = np.random.default_rng(5)
    ill = np.arange(200) % 2
    age = (30 + 20 * ill + generator.normal(0, 12, 200)).clip(0, 100)
    dose = generator.uniform(0, 10, 200)
    rows = [f"{a:.1f},{d:.2f}" for a, d in zip(age, dose, strict=True)]
    (tmp_path / "new.csv").write_text("\n".join(["age,dose", *rows]) + "\n")
    full = [f"{row},{label}" for row, label in zip(rows, ill, strict=True)]
    (tmp_path / "own.csv").write_text("\n".join(["age,dose,ill", *full]) + "\n")
    (tmp_path / "schema.toml").write_text(COLUMNS + AGE + DOSE)
    said = secagg("simulate", "--dataset", tmp_path / "own.csv", "--schema", tmp_path / "schema.toml", "--clients", 3,
                  "--save", tmp_path / "run", "--json", tmp_path / "run.json", "--quiet")  # fmt: skip
    assert said.code == 0, said.err
    return tmp_path


def predict(secagg: Command, home: Path, data: str, *more: object) -> dict:
    """The JSON of one prediction."""
    said = secagg("predict", "--head", home / "run" / "head.safetensors", "--data", home / data, "--quiet",
                  "--json", "-", *more)  # fmt: skip
    assert said.code == 0, said.err
    return said.json


def test_patients_without_labels_get_the_probabilities_they_get_with_them(secagg: Command, home: Path) -> None:
    """Labels change nothing of what is predicted; without them nothing is measured."""
    new, own = predict(secagg, home, "new.csv"), predict(secagg, home, "own.csv")
    assert (new["records"], new["labelled"], new["accuracy"], new["metrics"]) == (200, 0, None, None)
    assert (own["labelled"], own["metrics"]["positive_class"]) == (200, "yes")
    chances = [[each["probabilities"] for each in found["predictions"]] for found in (new, own)]
    assert chances[0] == chances[1]
    assert all(sum(each.values()) == pytest.approx(1) for each in chances[0])
    assert own["accuracy"] == own["metrics"]["accuracy"]["value"] > 0.7
    assert new["predictions"][0] | {"probabilities": 0, "class": ""} == {
        "file": str(home / "new.csv"), "row": 2, "label": None, "class": "", "probabilities": 0, "skipped": None,
    }  # fmt: skip


def test_rows_that_are_all_skipped_say_nothing_of_the_classes(secagg: Command, home: Path) -> None:
    """Where no record was scored no class is said to be one that the head never predicts."""
    (home / "bad.csv").write_text("age,dose\nnan,1\n")
    found = predict(secagg, home, "bad.csv", "--skip-bad-rows")
    assert (found["skipped"], found["never_predicted"]) == (1, [])


def test_calibration_changes_probabilities_and_no_class(secagg: Command, home: Path) -> None:
    """A temperature is fitted to the member's own records, said, and lowers their loss."""
    plain = predict(secagg, home, "new.csv")
    fitted = predict(secagg, home, "new.csv", "--calibrate", home / "own.csv")
    assert fitted["calibration"]["after"] < fitted["calibration"]["before"]
    assert fitted["calibration"]["records"] == 200
    assert [each["class"] for each in fitted["predictions"]] == [each["class"] for each in plain["predictions"]]
    assert fitted["predictions"][0]["probabilities"] != plain["predictions"][0]["probabilities"]


def test_files_hold_predictions_measures_and_a_page(secagg: Command, home: Path) -> None:
    """CSV rows match the JSON; the page holds the measures, both curves, and nothing from elsewhere."""
    found = predict(secagg, home, "own.csv", "--out", home / "p.csv", "--metrics", home / "m.csv",
                    "--html", home / "page.html")  # fmt: skip
    rows = list(csv.DictReader((home / "p.csv").read_text().splitlines()))
    assert [row["predicted"] for row in rows] == [each["class"] for each in found["predictions"]]
    assert float(rows[0]["p(yes)"]) == pytest.approx(found["predictions"][0]["probabilities"]["yes"], rel=1e-5)
    read = (home / "m.csv").read_text().splitlines()
    measures = {(row["measure"], row["class"]): float(row["value"]) for row in csv.DictReader(read)}
    assert measures["auc", ""] == measures["auc", "yes"] == found["metrics"]["auc"]["value"]
    page = (home / "page.html").read_text()
    assert page.count("<svg") == 2
    assert "AUC of yes" in page
    assert ("yes, AUC 0." in page, "no, AUC 0." in page) == (True, False)  # the curve is of the positive class
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in page


def test_names_in_the_page_are_escaped(secagg: Command, home: Path) -> None:
    """A file's name is text of the page, whatever stands in it."""
    (home / "<img src=x>.csv").write_text((home / "own.csv").read_text())
    predict(secagg, home, "<img src=x>.csv", "--html", home / "page.html")
    assert "<img" not in (home / "page.html").read_text()


def test_people_see_measures_or_the_first_predictions(secagg: Command, home: Path) -> None:
    """With labels a table by class, without them who is what."""
    head = ("--head", home / "run" / "head.safetensors", "--quiet")
    with_labels = secagg("predict", "--data", home / "own.csv", *head).out
    assert "sensitivity of yes" in with_labels
    assert "| positive class | yes |" in (home / "run" / "model_card.md").read_text()
    assert "→ yes" in with_labels
    without = secagg("predict", "--data", home / "new.csv", *head).out
    assert "… and 190 more" in without


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        ("age,dose\n30,1\n", ["--html", "x.html"], "has no labels to measure by"),
        ("age,dose,ill\n30,1,7\n", [], "none of the declared labels"),
        ("age,dose\nnan,1\n", [], "holds no number"),
        ("age,weight\n30,1\n", [], "lacks the columns dose"),
        ("age,dose\n", [], "no records"),
        ("age,dose,ill\n30,1,1\n", ["--calibrate", "few.csv"], "1 labelled records are too few"),
    ],
)
def test_what_cannot_be_predicted_or_scored_is_one_line(
    secagg: Command, home: Path, monkeypatch: pytest.MonkeyPatch, content: str, more: list[str], said: str
) -> None:
    """No labels to score, unknown labels, no number, other columns, no record, too few to calibrate by: exit code 2."""
    monkeypatch.chdir(home)
    Path("few.csv").write_text(content)
    found = secagg("predict", "--head", "run/head.safetensors", "--data", "few.csv", "--quiet", *more)
    assert found.code == 2
    assert said in found.complaint
    assert not Path("x.html").exists()


def test_simulation_reports_every_measure(home: Path) -> None:
    """The JSON of a simulation has the measures of its held-out records, and agrees with its accuracy."""
    content = json.loads((home / "run.json").read_text())
    assert content["metrics"]["accuracy"]["value"] == content["accuracy"]
    assert {"balanced_accuracy", "auc", "f1", "calibration_error", "confusion"} <= set(content["metrics"])


def test_card_says_what_the_head_is(home: Path) -> None:
    """Plan, promise, schema, classes and head are those of the run, and nobody signed a simulation."""
    run, card = (json.loads((home / name).read_text()) for name in ("run.json", "run/model_card.json"))
    assert card["head_sha256"] == run["head_sha256"]
    assert (card["classes"], card["simulated"], card["signed_by"]) == (["no", "yes"], True, {})
    assert (card["privacy"]["epsilon"], card["privacy"]["promise"]) == ("inf", None)
    assert [each["name"] for each in card["data"]["schema"]["columns"]] == ["age", "dose"]
    text = (home / "run" / "model_card.md").read_text()
    assert "an exact sum promises nothing" in text
    assert "| age | 0 to 100 |" in text


def test_baseline_has_no_head_to_save(secagg: Command, home: Path) -> None:
    """There is no plan that its file could name: refused before anything is trained."""
    said = secagg("simulate", "--method", "centralised", "--protection", "none", "--save", home / "b", "--quiet")
    assert said.code == 2
    assert "no plan that a head could name" in said.complaint


def test_exported_program_is_checked_and_written(secagg: Command, home: Path) -> None:
    """`--export` leaves one file that gives the probabilities of the JSON."""
    found = predict(secagg, home, "new.csv", "--export", home / "whole.pt2", "--calibrate", home / "own.csv")
    module = torch.export.load(home / "whole.pt2").module()
    rows = [[float(cell) for cell in line.split(",")] for line in (home / "new.csv").read_text().splitlines()[1:]]
    records = torch.tensor(rows, dtype=torch.float64) / torch.tensor([100, 10]) * 2 - 1  # as the schema's ranges say
    chances = np.array([list(each["probabilities"].values()) for each in found["predictions"]])
    assert np.allclose(module(records.float()).numpy(), chances, atol=1e-5)


def test_shared_adapter_predicts_nothing_by_itself(secagg: Command, home: Path) -> None:
    """What tells no classes apart is refused by its file's name."""
    model = TrainedModel.of(
        program_named("bottleneck:2:1x3", 3, 2), np.zeros(program_named("bottleneck:2:1x3", 3, 2).size)
    )
    (home / "shared.safetensors").write_bytes(to_safetensors(model, {}))
    said = secagg("predict", "--head", home / "shared.safetensors", "--data", home / "new.csv", "--quiet")
    assert said.code == 2
    assert "tells no classes apart by itself" in said.complaint


def test_names_of_others_are_neither_formulas_nor_markup(secagg: Command, home: Path) -> None:
    """A class that a spreadsheet would compute stands in files as text, one in HTML or Markdown as text in the card."""
    formula, markup = '=HYPERLINK("x")', "<img src=x>[a](x)`|"
    text = (home / "schema.toml").read_text().replace('"no"', f"'{formula}'").replace('"yes"', f"'{markup}'")
    (home / "schema.toml").write_text(text.replace('"dose"', "'<b>dose'"))
    (home / "own.csv").write_text((home / "own.csv").read_text().replace("dose", "<b>dose", 1))
    said = secagg("simulate", "--dataset", home / "own.csv", "--schema", home / "schema.toml", "--clients", 3,
                  "--save", home / "run2", "--quiet")  # fmt: skip
    assert said.code == 0, said.err
    said = secagg("predict", "--head", home / "run2" / "head.safetensors", "--data", home / "own.csv", "--quiet",
                  "--out", home / "p.csv", "--metrics", home / "m.csv")  # fmt: skip
    assert said.code == 0, said.err
    for file in ("p.csv", "m.csv"):
        cells = {cell for row in csv.reader((home / file).read_text().splitlines()) for cell in row}
        assert f"'{formula}" in cells
        assert formula not in cells
    card = (home / "run2" / "model_card.md").read_text()
    assert r"\<img src=x\>\[a\](x)\`\|" in card
    assert r"| \<b\>dose |" in card


def test_bad_rows_can_be_skipped_and_are_reported(secagg: Command, home: Path) -> None:
    """A row that cannot be used refuses the file, naming the option; with it the row is empty, with its reason."""
    lines = (home / "own.csv").read_text().splitlines()
    bad = [*lines[:3], "139.4,1.0,1", "only one field", *lines[3:]]
    (home / "bad.csv").write_text("\n".join(bad) + "\n")
    head = ("--head", home / "run" / "head.safetensors", "--data", home / "bad.csv")
    refused = secagg("predict", *head)
    assert (refused.code, "or give --skip-bad-rows" in refused.err) == (2, True)
    plain = predict(secagg, home, "own.csv")
    found = predict(secagg, home, "bad.csv", "--skip-bad-rows", "--out", home / "p.csv")
    assert (found["records"], found["labelled"], found["skipped"]) == (202, 200, 2)
    assert found["metrics"] == plain["metrics"]
    kept = [each for each in found["predictions"] if each["skipped"] is None]
    assert [each["probabilities"] for each in kept] == [each["probabilities"] for each in plain["predictions"]]
    gone = {each["row"]: each for each in found["predictions"] if each["skipped"] is not None}
    assert gone[4]["skipped"] == "column 'age' holds a number outside the declared range [0, 100]"
    assert "139" not in gone[4]["skipped"]
    assert gone[5]["skipped"].endswith("or not the fields of the header")
    assert gone[4]["class"] is gone[4]["probabilities"] is gone[5]["class"] is None
    rows = list(csv.DictReader((home / "p.csv").read_text().splitlines()))
    assert [row["row"] for row in rows if row["skipped"]] == ["4", "5"]
    assert rows[2] | {"file": "", "skipped": ""} == {**dict.fromkeys(rows[2], ""), "row": "4"}
    said = secagg("predict", *head, "--skip-bad-rows")
    assert "2 of 202 rows were skipped; the first: row 4, column 'age' holds" in said.err
