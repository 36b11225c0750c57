"""A member's file under a plan: what its classes are called decides, and no single record decides whether it joins."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from secagg.agreement.plan import Plan
from secagg.agreement.schema import load_schema
from secagg.errors import BadInput
from secagg.features import encoder, pipeline
from secagg.features.pipeline import Pipeline
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.plan_facts.records import read_records
from secagg.privacy import Adjacency
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from tests.agreement.federation_files import small_plan, small_roster

ROSTER = small_roster()
NOISY = PlanChoices(epsilon=1.0, delta=1e-5, adjacency=Adjacency.ADD_REMOVE)


def plan_for(data: PublicData) -> Plan:
    """A plan with noise over such records."""
    return make_plan(data, ROSTER, NOISY, OperatingSystem())


def test_labels_of_a_file_are_those_of_its_names(tmp_path: Path) -> None:
    """A file that counts dogs before cats is summed as the plan counts them, with noise and without."""
    path = tmp_path / "mine.npz"
    np.savez(path, features=np.eye(2)[[0, 1, 1]], labels=np.array([0, 1, 1]), classes=np.array(["yes", "no"]))
    for choices in ({}, {"radius": None, "epsilon": 1.0, "delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE}):
        setup = RoundSetup.of(small_plan(ROSTER, **choices), ROSTER)
        assert setup.plan.classes == ("no", "yes")
        assert Pipeline.of_plan(setup.plan).records(str(path), tolerant=True).labels.tolist() == [1, 0, 0]
    np.savez(path, features=np.eye(2), labels=np.array([0, 1]), classes=np.array(["no", "maybe"]))
    with pytest.raises(BadInput, match=r"mine\.npz names the classes maybe"):
        Pipeline.of_plan(setup.plan).records(str(path), tolerant=True)


@pytest.mark.parametrize(
    "named",
    ["transformers:org/beacon", "features+transformers:org/beacon", "diffusers:folder", "net.pt2", "pixels+net.pt2"],
)
def test_nothing_is_fetched_or_run_on_a_heads_word(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """A head that names a model or a program is refused before anything is read, run or asked of a hub."""
    asked = []
    monkeypatch.setattr(encoder, "_fetch", asked.append)
    monkeypatch.setattr(pipeline, "open_backbone", lambda spec, *_, **__: asked.append(spec))
    metadata = Pipeline.of_plan(small_plan(ROSTER)).to_metadata()
    head = Pipeline.of_metadata({**metadata, "backbone": named})
    with pytest.raises(BadInput, match="opened on a head's word") as refusal:
        head.feature_map()
    assert "--backbone" in str(refusal.value.remedy)
    assert not asked
    Pipeline.of_metadata(metadata).feature_map()
    head.feature_map("transformers:mine")
    assert asked == [metadata["backbone"], "transformers:mine"]


@pytest.mark.parametrize("kind", ["images", "arrays", "table"])
def test_neighbours_with_one_record_and_none_both_join(tmp_path: Path, kind: str) -> None:
    """Under noise a member that loses its only record takes part like before, whatever kind of file it was in."""
    plan, (one, none) = neighbours(tmp_path, kind)
    setup = RoundSetup.of(plan, ROSTER)
    assert [len(read_records(setup.plan, str(source))) for source in (one, none)] == [1, 0]


def neighbours(folder: Path, kind: str) -> tuple[Plan, tuple[Path, Path]]:
    """A plan, a source with one record and the same source without it."""
    one, none = folder / "one", folder / "none"
    if kind == "images":
        for each in (one, none):
            (each / "cat").mkdir(parents=True)
        Image.fromarray(np.eye(8, dtype=np.uint8)).save(one / "cat" / "1.png")
        return plan_for(PublicData.of_shape((8, 8), ("cat", "dog"))), (one, none)
    if kind == "arrays":
        for each, records in ((one, 1), (none, 0)):
            np.savez(each, features=np.eye(2)[:records], labels=np.zeros(records, dtype=np.int64))
        features = PublicData.of_shape((2,), ("cat", "dog"))
        return plan_for(features), (one.with_suffix(".npz"), none.with_suffix(".npz"))
    schema = load_schema("heart-disease")
    names = [*(column.name for column in schema.columns), schema.label]
    cells = [str(column.low) if hasattr(column, "low") else column.values[0] for column in schema.columns]
    files = one.with_suffix(".csv"), none.with_suffix(".csv")
    for file, lines in zip(files, (2, 1), strict=True):
        rows = [",".join(names), ",".join([*cells, schema.label_values[0][0]])]
        file.write_text("\n".join(rows[:lines]) + "\n", encoding="utf-8")
    return plan_for(PublicData.of_schema(schema)), files


def test_classes_of_a_schema_are_the_plans() -> None:
    """A plan whose schema counts its classes in another order would have every label swapped: it is refused."""
    schema = load_schema("heart-disease")
    data = PublicData.of_schema(schema)
    swapped = PublicData(data.kind, data.input_shape, schema.classes[::-1], schema, data.bound)
    plan_for(data)
    with pytest.raises(BadInput, match="schema has other classes than the plan"):
        plan_for(swapped)


@pytest.mark.parametrize(
    "classes", ['["a\\nb","c"]', '["\\u001b[8m","c"]', '["\\u202e","c"]', "[1,2]", "[null]", "3", "{}"]
)
def test_head_whose_classes_cannot_be_shown_is_refused(classes: str) -> None:
    """A head's file comes from others: names that would break a line of predictions, or are no text, are refused."""
    pipeline = Pipeline.of_plan(small_plan(ROSTER))
    assert Pipeline.of_metadata(pipeline.to_metadata()) == pipeline
    with pytest.raises(BadInput, match="does not say which features it takes"):
        Pipeline.of_metadata({**pipeline.to_metadata(), "classes": classes})
