"""`secagg backbone`: digests that plans pin, and exports that say what is missing."""

import hashlib
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from secagg.features import open_backbone
from secagg.features.export import Network, export_network
from secagg.features.opening import KINDS
from tests.cli.command import NEW_PLAN, Command


@pytest.fixture
def programs(tmp_path: Path) -> tuple[Path, Path]:
    """Two small programs for colour images of 8 × 8 pixels."""
    torch.manual_seed(0)
    paths = (tmp_path / "planner" / "a.pt2", tmp_path / "planner" / "b.pt2")
    paths[0].parent.mkdir()
    for path, features in zip(paths, (3, 2), strict=True):
        module = torch.nn.Sequential(torch.nn.Conv2d(3, features, 3), torch.nn.ReLU())
        export_network(Network(module, (0.5,) * 3, (0.25,) * 3, 8, has_head=False), path)
    return paths


def test_digest_is_the_files(secagg: Command, programs: tuple[Path, Path]) -> None:
    """The digest of a program is its file's SHA-256, alone on a line or as JSON."""
    digest = hashlib.sha256(programs[0].read_bytes()).hexdigest()
    said = secagg("backbone", "digest", programs[0])
    assert (said.code, said.out, said.err) == (0, f"{digest}\n", "")
    assert secagg("backbone", "digest", programs[0], "--json", "-").json["digest"] == digest


def test_digest_runs_nothing(secagg: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file need not be trusted, or be a program, to have its digest shown."""
    (tmp_path / "evil.pt2").write_bytes(b"anything")
    monkeypatch.setattr(torch.export, "load", lambda *_: pytest.fail("parsed"))
    assert secagg("backbone", "digest", tmp_path / "evil.pt2").code == 0


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "--dataset", "digits"),
        ("sweep", "--dataset", "digits", "--seeds", "1", "--out", "swept"),
        ("compare", "--dataset", "digits", "--seeds", "1", "--out", "compared", "--methods", "fedcgs"),
        ("audit", "--simulate", "--dataset", "digits"),
        (*NEW_PLAN, "--shape", "8x8", "--classes", "a,b", "--radius", "1", "--out", "new.json"),
    ],
    ids=lambda words: words[0],
)
def test_code_is_announced_before_it_runs(
    secagg: Command, federation: Path, tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A .pt2 for which no plan vouches is named as code, with its digest, before a byte of it is parsed."""
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(tmp_path / "evil.pt2", "w") as archive:
        archive.writestr("anything", "")
    said_before = []

    def load(*_: object) -> None:
        said_before.append(capsys.readouterr().err)
        raise RuntimeError("parsed")

    monkeypatch.setattr(torch.export, "load", load)
    roster = ("--roster", federation / "alice" / "roster.json") if command[0] == "plan" else ()
    assert secagg(*command, *roster, "--backbone", f"random-features:8+{tmp_path / 'evil.pt2'}").code == 2
    digest = hashlib.sha256((tmp_path / "evil.pt2").read_bytes()).hexdigest()
    assert (
        f"WARNING: {tmp_path / 'evil.pt2'} is code, which runs now with your rights; its SHA-256 is {digest}\n"
        in (said_before[0])
    )


def test_code_that_a_plan_vouches_for_is_not_announced(
    secagg: Command, federation: Path, tmp_path: Path, programs: tuple[Path, Path]
) -> None:
    """Under a plan the digest decides, and a member that checks its data is told of nothing else."""
    roster, plan = federation / "alice" / "roster.json", tmp_path / "plan.json"
    new = (*NEW_PLAN, "--roster", roster, "--out", plan, "--shape", "8x8x3", "--classes", "a,b", "--radius", "9")
    assert secagg(*new, "--backbone", programs[0]).code == 0
    policy = tmp_path / "policy.toml"
    assert secagg("plan", "policy", "--plan", plan, "--data-name", "x", "--out", policy).code == 0
    np.savez(tmp_path / "d.npz", images=np.zeros((4, 8, 8, 3), dtype=np.uint8), labels=np.array([0, 1, 0, 1]))
    check = ("plan", "check", "--plan", plan, "--roster", roster, "--policy", policy, "--data", tmp_path / "d.npz")
    said = secagg(*check, "--backbone", programs[0])
    assert (said.code, said.err) == (0, "")


def test_digest_of_other_forms_takes_the_shape(secagg: Command) -> None:
    """What is no program has its digest for one shape of records."""
    said = secagg("backbone", "digest", "pixels+random-features:64", "--shape", "8x8x3")
    assert said.out.strip() == open_backbone("pixels+random-features:64", (8, 8, 3)).digest


def test_list_names_every_kind(secagg: Command) -> None:
    """`backbone list` says what each form gives, and for which data scattering is; the same as JSON."""
    said = secagg("backbone", "list")
    assert (said.code, said.err) == (0, "")
    assert {line.split()[0] for line in said.out.splitlines()[1:]} == set(KINDS)
    assert "not photographs or textures" in said.out
    assert secagg("backbone", "list", "--json", "-").json == KINDS


def test_plan_pins_scattering(secagg: Command, federation: Path, tmp_path: Path) -> None:
    """A plan holds its parameters and digest, `plan show` says whom it suits, and members check it without a file."""
    roster = federation / "alice" / "roster.json"
    plan, policy, data = tmp_path / "plan.json", tmp_path / "policy.toml", tmp_path / "data.npz"
    new = (*NEW_PLAN, "--roster", roster, "--out", plan, "--classes", "cat,dog", "--normalise", "none")
    made = secagg(*new, "--shape", "9x12", "--backbone", "scattering")
    assert made.code == 0, made.err
    content = json.loads(plan.read_text())
    digest = secagg("backbone", "digest", content["backbone"], "--shape", "9x12").out.strip()
    assert content["backbone"] == "scattering:J=2:L=8:orders=0..2:places=3x3"
    assert (content["backbone_digest"], content["dimension"]) == (digest, 729)
    assert 3**0.5 <= content["radius"] <= 3**0.5 * 1.02
    shown = secagg("plan", "show", "--plan", plan, "--roster", roster).out
    assert "scattering:J=2:L=8:orders=0..2:places=3x3: 729 numbers" in shown
    assert "not photographs or textures" in shown
    assert secagg("plan", "policy", "--plan", plan, "--data-name", "pets", "--out", policy).code == 0
    images = np.random.default_rng(0).integers(0, 256, (6, 9, 12), dtype=np.uint8)
    np.savez(data, images=images, labels=np.arange(6) % 2)
    check = ("plan", "check", "--plan", plan, "--roster", roster, "--policy", policy, "--data", data)
    assert secagg(*check).code == 0
    for shape, remedy in (("9x12x3", "convert them to grey"), ("128x128", "scale them"), ("13", "for vectors")):
        refused = secagg(*new[:7], tmp_path / "other.json", *new[8:], "--shape", shape, "--backbone", "scattering")
        assert refused.code == 2
        assert remedy in refused.complaint


def test_scattering_goes_through_simulate_and_predict(secagg: Command, tmp_path: Path) -> None:
    """A head over scattering predicts from pictures alone: its file names the map, and no file has to be given."""
    bars = np.random.default_rng(0).integers(0, 20, (40, 8, 8), dtype=np.uint8)
    bars[::2, :, 3], bars[1::2, 4] = 200, 200
    np.savez(tmp_path / "bars.npz", images=bars, labels=np.arange(40) % 2)
    run = ("simulate", "--dataset", tmp_path / "bars.npz", "--backbone", "scattering", "--clients", 3, "--ridge", 0.1)
    said = secagg(*run, "--save", tmp_path / "run", "--json", "-")
    assert (said.code, said.json["accuracy"]) == (0, 1.0)
    predicted = secagg(
        "predict", "--head", tmp_path / "run" / "head.safetensors", "--data", tmp_path / "bars.npz", "--json", "-"
    )
    assert predicted.code == 0, predicted.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digest", "pixels"], "depends on the shape"),
        (["digest", "scattering"], "depends on the shape"),
        (["digest", "scattering", "--shape", "28x28x3"], "convert them to grey"),
        (["digest", "pixels", "--shape", "8xx"], "--shape cannot be '8xx'"),
        (["digest", "pixels", "--shape", "0x8"], "--shape cannot be"),
        (["digest", "absent.pt2"], "cannot read the backbone absent.pt2"),
        (["digest", "resnet"], "unknown backbone 'resnet'"),
        (["export", "resnet18", "--out", "x.pt2"], "give torchvision:NAME"),
        (["export", "torchvision:resnet18", "--out", "x.pt2", "--quiet"], "pip install 'secagg[vision]'"),
        (["export", "timm:resnet18", "--out", "x.pt2", "--mean", "1,2"], "--mean cannot be '1,2'"),
        (["export", "timm:resnet18", "--out", "x.pt2", "--mean", "1,2,nan"], "--mean cannot be"),
        (["export", "timm:resnet18", "--out", "x.pt2", "--deviation", "1,0,1"], "--deviation cannot be"),
    ],
)
def test_what_cannot_be_is_refused(
    secagg: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    """Unknown names, missing libraries and malformed options give one line, exit code 2 and no file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    said = secagg("backbone", *arguments, *(["--quiet"] if arguments[0] == "export" else []))
    assert said.code == 2
    assert words in said.complaint
    assert list(tmp_path.iterdir()) == []


def test_export_does_not_overwrite(secagg: Command, programs: tuple[Path, Path]) -> None:
    """A file that is there is refused before anything is loaded."""
    said = secagg("backbone", "export", "torchvision:resnet18", "--out", programs[0])
    assert said.code == 2
    assert "is there already" in said.complaint


def test_exported_model_is_used_like_every_program(secagg: Command, tmp_path: Path) -> None:
    """A transformers model is exported, its digest printed, and a simulation runs on it."""
    transformers = pytest.importorskip("transformers", reason="needs transformers (the extra `hf`)")
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.ViTConfig(**small, image_size=16, patch_size=8)
    transformers.ViTModel(config).save_pretrained(tmp_path / "model")
    prepared = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "model" / "preprocessor_config.json").write_text(json.dumps(prepared))
    out = tmp_path / "vit.pt2"
    sizes = ("--image-size", 8, "--resize", 16, "--mean", "0.1,0.2,0.3")
    said = secagg("backbone", "export", f"transformers:{tmp_path / 'model'}", "--out", out, *sizes, "--json", "-")
    assert said.code == 0
    digest = hashlib.sha256(out.read_bytes()).hexdigest()
    assert (said.json["digest"], said.json["dimension"], said.json["input_shape"]) == (digest, 16, [3, 8, 8])
    assert secagg("simulate", "--dataset", "digits", "--backbone", out, "--json", "-").json["accuracy"] > 0.2


def test_plan_pins_the_order_of_several(
    secagg: Command, federation: Path, programs: tuple[Path, Path], tmp_path: Path
) -> None:
    """A plan holds names without folders and one digest; members open their own copies, in this order only."""
    a, b = programs
    roster = federation / "alice" / "roster.json"
    plan, policy = tmp_path / "plan.json", tmp_path / "policy.toml"
    shape = ("--shape", "8x8x3", "--classes", "cat,dog", "--radius", "100", "--normalise", "none")
    made = secagg(*NEW_PLAN, "--roster", roster, "--out", plan, *shape, "--backbone", f"{a}+{b}")
    assert made.code == 0, made.err
    content = json.loads(plan.read_text())
    digest = secagg("backbone", "digest", f"{a}+{b}").out.strip()
    assert content["backbone"] == "a.pt2+b.pt2"
    assert digest in plan.read_text()
    assert content["dimension"] == 5
    assert secagg("plan", "policy", "--plan", plan, "--data-name", "pets", "--out", policy).code == 0
    assert digest in policy.read_text()
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", images=images, labels=np.arange(6) % 2)
    mine = tmp_path / "member"
    a.parent.rename(mine)
    check = ("plan", "check", "--plan", plan, "--roster", roster, "--policy", policy, "--data", tmp_path / "data.npz")
    assert secagg(*check, "--backbone", f"{mine / 'a.pt2'}+{mine / 'b.pt2'}").code == 0
    refused = secagg(*check, "--backbone", f"{mine / 'b.pt2'}+{mine / 'a.pt2'}")
    assert refused.code == 2
    assert "nothing in the file was run" in refused.err
