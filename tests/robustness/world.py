"""The files of a whole federation, one of each kind that a command reads, made by real processes."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from tests.robustness.zygote import Zygote
from tests.worlds.processes import processes
from tests.worlds.rosters import SERVER

FEATURES = 6
ROWS = [f"{number},{20 + number}.5,{'fm'[number % 2]},{number % 3 % 2}" for number in range(24)]
HEADER = "id,age,sex,ill"
SCHEMA = """label = "ill"
classes = ["no", "yes"]
label_values = {"0" = "no", "1" = "yes"}
missing = ["", "?"]
missing_rule = "midpoint"
fields = ["id", "age", "sex", "ill"]

[[columns]]
name = "age"
kind = "numeric"
low = 0
high = 100

[[columns]]
name = "sex"
kind = "categorical"
values = ["f", "m"]
"""


def build(folder: Path, zygote: Zygote) -> None:
    """Make everything under `folder`: keys, plans, data, sessions, results, a backbone."""
    with processes(folder, dimension=FEATURES, join_seconds=20, step_seconds=20) as federation:
        federation.start(SERVER)
        federation.start("a")
        federation.until_has("a", "sent", "KeyAdvertisement")
        federation.kill("a")
        shutil.copytree(folder / "a" / "state", folder / "killed")
        for name in "abc":
            federation.start(name)
        federation.finish()
        for name, party in (("session", SERVER), ("member", "a")):
            shutil.copytree(federation.session(party), folder / name)
    _write_data(folder)
    _export_backbone(folder / "net.pt2")
    roster = ("--roster", "a/roster.json")
    for command in (
        ("plan", "new", "--purpose", "tests", *roster, "--out", "tables.json", "--schema", "schema.toml"),
        ("plan", "new", "--purpose", "tests", *roster, "--out", "images.json", "--shape", "4x4", "--classes", "no,yes"),
        ("plan", "new", "--purpose", "tests",
         *roster, "--out", "backbone.json", "--shape", "6", "--classes", "no,yes", "--normalise", "unit",
         "--backbone", "net.pt2"),
        *(("plan", "policy", "--plan", f"{name}.json", "--data-name", name, "--out", f"{name}.toml")
          for name in ("tables", "images", "backbone")),
        ("canaries", "--plan", "plan.json", "--data", "a/records.npz", "--out", "canaries", "--count", "3"),
        ("sweep", "--dataset", "wine", "--clients", "3", "--seeds", "2", "--out", "swept"),
        ("compare", "--dataset", "wine", "--clients", "3", "--seeds", "1", "--out", "compared", "--methods",
         "fedcgs,local-only"),
    ):  # fmt: skip
        ended = zygote.run(*command, folder=folder)
        assert ended.code == 0, (command, ended)
    cached = ("simulate", "--dataset", "a/records.npz", "--backbone", "net.pt2", "--clients", "2")
    assert zygote.run(*cached, folder=folder, SECAGG_CACHE="cache").code == 0


def _write_data(folder: Path) -> None:
    generator = np.random.default_rng(7)
    features = generator.uniform(-0.3, 0.3, size=(30, FEATURES))
    labels = np.arange(30) % 2
    np.savez_compressed(folder / "packed.npz", features=features, labels=labels, site=np.array(["é", "b"])[labels],
                        code=np.array([b"x", b"yy"])[labels], classes=np.array(["no", "yes"]))  # fmt: skip
    np.savez(folder / "public.npz", features=features, labels=labels)
    np.savez(
        folder / "shots.npz", images=generator.random((30, 4, 4), dtype=np.float32), labels=labels.astype(np.uint8)
    )
    groups = {
        f"{name}_{part}": array
        for name in ("art", "photo")
        for part, array in (("features", features), ("labels", labels))
    }
    np.savez(folder / "domains.npz", **groups)
    text = "\n".join([HEADER, *ROWS]) + "\n"
    (folder / "records.csv").write_text(text)
    (folder / "bare.csv").write_text("\n".join(ROWS))
    (folder / "records.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (folder / "schema.toml").write_text(SCHEMA)
    _write_parquet(folder / "records.parquet")
    shutil.copy(Path(__file__).parents[2] / "threat_models" / "report" / "default_gate.toml", folder / "gate.toml")
    for number in range(8):
        home = folder / "images" / ("no", "yes")[number % 2]
        home.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(generator.integers(0, 256, (4, 4), dtype=np.uint8))
        image.save(home / f"{number}.{'png' if number < 6 else 'jpg'}")


def _write_parquet(path: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        return
    columns = zip(*(row.split(",") for row in ROWS), strict=True)
    table = pyarrow.table({name: list(cells) for name, cells in zip(HEADER.split(","), columns, strict=True)})
    pyarrow.parquet.write_table(table.append_column("weight", pyarrow.array(range(len(ROWS)))), path)


def _export_backbone(path: Path) -> None:
    import torch

    network = torch.nn.Sequential(torch.nn.Linear(FEATURES, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4)).eval()
    torch.export.save(torch.export.export(network, (torch.zeros(1, FEATURES),)), path)
