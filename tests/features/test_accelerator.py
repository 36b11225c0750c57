"""Extraction in batches on a device; what needs a graphics card is skipped where there is none."""

import hashlib

import numpy as np
import pytest

from secagg.data import open_dataset
from secagg.errors import BadInput
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.features import open_backbone
from secagg.features.accelerator import BATCH, DEVICES, Accelerator
from tests.cli.command import command

IMAGES = np.random.default_rng(2).integers(0, 256, (BATCH + 7, 8, 8, 3), dtype=np.uint8)


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv("SECAGG_CACHE", "off")


def device_or_skip(name: str) -> Accelerator:
    """The device, where this machine has it."""
    try:
        return Accelerator(name)
    except BadInput:
        pytest.skip(f"no {name} here")


@pytest.mark.parametrize("device", ["cpu", *DEVICES])
def test_batches_give_the_features_of_single_records(program, device):
    """In batches, the last of which is not full, features are those of one record at a time but for last bits."""
    path, seen = str(program("net.pt2", batch=2, dynamic=True)), []
    engine = device_or_skip(device)
    batches = open_backbone(path, (8, 8, 3), engine=engine, progress=lambda *done: seen.append(done))
    alone = open_backbone(path, (8, 8, 3))
    assert np.allclose(batches.extract(IMAGES), alone.extract(IMAGES), rtol=1e-4, atol=1e-5)
    assert seen == [(BATCH, BATCH + 7), (BATCH + 7, BATCH + 7)]


@pytest.mark.parametrize("device", ["cpu", *DEVICES])
def test_neighbours_in_a_batch_change_no_bit(program, device):
    """A record has the same bits beside others, at another place and beside zeros."""
    backbone = open_backbone(str(program("net.pt2", batch=2, dynamic=True)), (8, 8, 3), engine=device_or_skip(device))
    together = backbone.extract(IMAGES)
    assert (backbone.extract(IMAGES[::-1])[::-1] == together).all()
    assert (backbone.extract(IMAGES[5:6]) == together[5:6]).all()


def test_the_digest_names_the_device(program):
    """Features of a device have a digest of their own: not the file's, and not another device's."""
    path = program("net.pt2", batch=2, dynamic=True)
    file = hashlib.sha256(path.read_bytes()).hexdigest()
    engine = Accelerator("cpu")
    assert open_backbone(str(path), (8, 8, 3)).digest == file
    digest = open_backbone(str(path), (8, 8, 3), engine=engine).digest
    assert digest == engine.digest_of(file) != file
    assert digest == hashlib.sha256(f"secagg backbone v1: {file} on cpu in batches of 64".encode()).hexdigest()


@pytest.mark.parametrize("leak", ["place", "mean", "neighbour"])
def test_a_program_that_mixes_the_records_of_a_batch_is_refused(tmp_path, leak):
    """Features that depend on where a record stands in its batch, or on what is beside it, are nobody's own."""
    import torch

    class Mixing(torch.nn.Module):
        """Adds to each record what is of its batch."""

        def forward(self, records):
            """(n, d) → (n, d)."""
            if leak == "place":
                return records + torch.arange(records.shape[0]).unsqueeze(1)
            return records - (records.mean(0, keepdim=True) if leak == "mean" else records.roll(-1, 0))

    path, sizes = tmp_path / "mixing.pt2", ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(Mixing(), (torch.rand(2, 3),), dynamic_shapes=sizes), path)
    assert open_backbone(str(path), (3,)).dimension == 3
    with pytest.raises(BadInput, match="gives one record two different features"):
        open_backbone(str(path), (3,), engine=Accelerator("cpu"))


def test_results_say_where_features_come_from(program):
    """Notes and plan of a result name the device: its digest is not the program's own."""
    path = program("net.pt2", channels=1, batch=2, dynamic=True)
    settings = SimulationSettings(backbone=str(path), clients=2)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    on_device = simulate_dataset(open_dataset("digits"), settings, engine=Accelerator("cpu"))
    assert any("computed on cpu, 64 records at a time" in note for note in on_device.notes)
    plan = on_device.federated.setup.plan
    assert plan.backbone_digest.hex() == Accelerator("cpu").digest_of(digest) != digest


def test_rounds_of_two_devices_are_not_mixed(program, tmp_path):
    """Rounds that were kept go on with the features that they began with, or not at all."""
    settings = SimulationSettings(backbone=str(program("net.pt2", channels=1, batch=2, dynamic=True)))
    with pytest.raises(BadInput, match="leave out --device or --keep"):
        simulate_dataset(open_dataset("digits"), settings, engine=Accelerator("cpu"), keep=tmp_path)


def test_a_device_without_room_says_so(program, monkeypatch):
    """A program that does not fit onto the device is refused with what to do."""

    def full(*_):
        raise MemoryError("CUDA out of memory")

    monkeypatch.setattr("torch.export.passes.move_to_device_pass", full)
    with pytest.raises(BadInput, match=r"cannot move the backbone .* out of memory; leave out --device"):
        open_backbone(str(program("net.pt2", batch=2, dynamic=True)), (8, 8, 3), engine=Accelerator("cpu"))


def test_what_cannot_run_in_batches_is_refused(program):
    """A program of one record at a time, and a backbone that is no program, are refused by name."""
    with pytest.raises(BadInput, match="takes one record at a time"):
        open_backbone(str(program("net.pt2")), (8, 8, 3), engine=Accelerator("cpu"))
    with pytest.raises(BadInput, match="pixels is no exported program"):
        open_backbone("pixels", (8, 8, 3), engine=Accelerator("cpu"))


def test_noise_and_a_device_do_not_go_together(program, monkeypatch):
    """With a finite epsilon nothing is extracted in batches: the promise counts single records."""
    settings = SimulationSettings(
        backbone=str(program("net.pt2", batch=2, dynamic=True)), epsilon=1.0, delta=1e-5, adjacency="add-remove"
    )
    monkeypatch.setattr("secagg.experiments.simulation.Features.of", lambda *_: pytest.fail("extracted"))
    with pytest.raises(BadInput, match="carry no promise of epsilon 1"):
        simulate_dataset(open_dataset("digits"), settings, engine=Accelerator("cpu"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--device", "tpu"), "unknown device 'tpu'; give cuda or mps"),
        (("--device", "cuda", "--save", "head"), "--device goes with neither --save nor --processes"),
        (("--device", "mps", "--processes", "2"), "--device goes with neither --save nor --processes"),
    ],
)
def test_other_words_are_refused(words, said, tmp_path, monkeypatch, capsys):
    """An unknown device, or one with an option that it does not go with, ends with 2 and one line."""
    monkeypatch.chdir(tmp_path)
    ended = command(monkeypatch, capsys)("simulate", "--dataset", "digits", *words)
    assert (ended.code, said in ended.complaint) == (2, True)


def test_an_absent_device_is_refused(monkeypatch):
    """Where torch finds no such device, the refusal says so and what to do."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(BadInput, match="torch finds no cuda device on this machine; leave out --device"):
        Accelerator("cuda")
