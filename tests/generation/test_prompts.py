"""Stable Diffusion is told and started as its own pipeline in `diffusers` does it, on tiny random folders."""

from __future__ import annotations

import inspect
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler, StableDiffusionPipeline

from secagg.errors import BadInput
from secagg.features import Latents, backbone_digest, open_backbone
from secagg.features.latents import DiffusionFiles
from secagg.generation import ConceptTraining, GenerationSettings, generate, train_concepts
from secagg.generation.concepts import noise_loss, tell, tell_nothing
from secagg.generation.pictures import RELEASED, denoise
from secagg.networks import SlotMeans
from tests.methods.training import seeded
from tests.worlds.diffusion import DIMENSION, SIDE, TOKENS, WIDTH, WORDS, save_diffusion, save_text_encoder

CLOSE = {"rtol": 0, "atol": 1e-6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is told prompts, with the files and the schedule of Stable Diffusion 1."""
    return save_text_encoder(save_diffusion(tmp_path_factory.mktemp("prompts") / "model", like_stable=True))


@pytest.fixture(scope="module")
def latents(folder: Path) -> Latents:
    """The folder as a plan's backbone."""
    return opened(folder)


@pytest.fixture(scope="module")
def pipeline(latents: Latents) -> Any:
    """The pipeline of `diffusers` over the folder's parts."""
    return pipeline_of(latents)


def pipeline_of(latents: Latents) -> Any:
    """The pipeline of `diffusers` over a folder's parts, with DDIM by the folder's schedule, which clips no latents."""
    text, place = latents.text, latents.files.folder / "scheduler"
    assert text is not None
    load: Any = DDIMScheduler.from_pretrained
    parts = latents.vae, text.encoder, text.tokenizer, latents.unet, load(place, clip_sample=False)
    return StableDiffusionPipeline(*parts, None, None, requires_safety_checker=False)


def opened(folder: Path) -> Latents:
    """The folder as a backbone of pictures."""
    found = open_backbone(f"diffusers:{folder}", (SIDE, SIDE, 3))
    assert isinstance(found, Latents)
    return found


def vectors(seed: int = 0, count: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors of classes and of domains (n, e)."""
    random = torch.Generator().manual_seed(seed)
    of_class, of_domain = torch.randn(2, count, WIDTH, generator=random)
    return of_class, of_domain


def embeddings(latents: Latents, *words: str) -> list[torch.Tensor]:
    """The text encoder's own embedding (1, e) of each word."""
    text = latents.text
    assert text is not None
    table = text.encoder.get_input_embeddings().weight
    return [table[text.tokenizer.convert_tokens_to_ids(f"{word}</w>")][None] for word in words]


def encoded(pipeline: Any, prompt: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What the pipeline tells its network of a prompt, and of none, (1, t, e) each."""
    with torch.inference_mode():
        told, nothing = pipeline.encode_prompt(prompt, "cpu", 1, True)
    return told, nothing


def test_words_in_their_places_are_the_pipeline_s_prompt(latents: Latents, pipeline: Any) -> None:
    """S and V that are the embeddings of two words give, bit for bit, the pipeline's encoding of both in the prompt."""
    of_domain, of_class = embeddings(latents, "photo", "dog")
    told, _ = encoded(pipeline, "A photo style of a dog")
    ours = tell(latents, of_class, of_domain)
    assert ours.shape == (1, TOKENS, WIDTH)
    assert torch.equal(ours, told)
    assert not torch.allclose(tell(latents, of_domain, of_class), told, **CLOSE)


def test_any_vectors_are_the_pipeline_s_textual_inversion(folder: Path, latents: Latents) -> None:
    """Vectors that are no words give what the pipeline encodes after it has learnt them as tokens of their own."""
    pipe = pipeline_of(opened(folder))
    of_class, of_domain = vectors()
    for name, row in (("<s>", of_domain[1]), ("<v>", of_class[1])):
        pipe.load_textual_inversion(row[None], token=name)
    told, _ = encoded(pipe, "a <s> style of a <v>")
    torch.testing.assert_close(tell(latents, of_class, of_domain)[1:2], told, **CLOSE)


def test_each_row_is_told_its_own_vectors(latents: Latents) -> None:
    """A batch is told what each row is told alone; before S all are told the same, from S on each its own."""
    of_class, of_domain = vectors()
    every = tell(latents, of_class, of_domain)
    for row in range(3):
        alone = tell(latents, of_class[row : row + 1], of_domain[row : row + 1])
        torch.testing.assert_close(every[row : row + 1], alone, **CLOSE)
    moved = (every[0] - every[1]).abs().amax(dim=1) > 1e-4
    assert moved.tolist() == [False] * 2 + [True] * (TOKENS - 2)
    others = tell(latents, of_class.flip(0), of_domain)
    assert ((every[0] - others[0]).abs().amax(dim=1) > 1e-4).tolist() == [False] * 6 + [True] * (TOKENS - 6)


def test_nothing_is_the_empty_prompt(latents: Latents, pipeline: Any) -> None:
    """The unconditional half is the pipeline's negative prompt, bit for bit, and no zeros."""
    _, nothing = encoded(pipeline, "a dog")
    ours = tell_nothing(latents, 2)
    assert torch.equal(ours, nothing.expand(2, -1, -1))
    assert ours.abs().min(dim=2).values.max() > 0


@pytest.mark.parametrize("guidance", [1.0, 7.5])
def test_denoising_is_the_pipeline_s(latents: Latents, pipeline: Any, guidance: float) -> None:
    """From the same noise and prompt come the same latents, with guidance and without."""
    of_domain, of_class = embeddings(latents, "photo", "dog")
    begun = torch.randn(2, *latents.shape, generator=torch.Generator().manual_seed(3))
    settings = GenerationSettings(1, 6, guidance=guidance, start=RELEASED)
    pipeline.set_progress_bar_config(disable=True)
    with torch.inference_mode():
        told = tell(latents, of_class.expand(2, -1), of_domain.expand(2, -1))
        found = denoise(latents, begun, told, settings, torch.Generator())
    wanted = pipeline(
        ["a photo style of a dog"] * 2,
        latents=begun,
        num_inference_steps=6,
        guidance_scale=guidance,
        output_type="latent",
    ).images
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_the_guidance_is_the_pipeline_s_unless_another_is_given() -> None:
    """Its default is what callers of the pipeline get."""
    usual = inspect.signature(StableDiffusionPipeline.__call__).parameters["guidance_scale"].default
    assert GenerationSettings().guidance == usual


def test_the_start_is_noised_by_all_steps(latents: Latents, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the network sees first is the schedule's `add_noise` of the interpolation at T, as Eq. 3 has it."""
    seen: list[torch.Tensor] = []
    forward = latents.unet.forward

    def watched(sample: torch.Tensor, *rest: Any, **named: Any) -> Any:
        seen.append(sample)
        return forward(sample, *rest, **named)

    monkeypatch.setattr(latents.unet, "forward", watched)
    z = torch.randn(4, *latents.shape, generator=torch.Generator().manual_seed(1))
    settings = GenerationSettings(1, 5, guidance=1.0)
    with torch.inference_mode():
        denoise(latents, z, tell_nothing(latents, 4), settings, torch.Generator().manual_seed(2))
    noise = torch.randn(z.shape, generator=torch.Generator().manual_seed(2))
    schedule = latents.files.load_scheduler()
    assert schedule.config.num_train_timesteps == 1000
    assert torch.equal(seen[0], schedule.add_noise(z, noise, torch.full((4,), 999)))


def test_vectors_are_trained_through_the_text_encoder(latents: Latents) -> None:
    """Training lowers the network's loss, leaves the vectors of absent classes, and changes no weight of the model."""
    text = latents.text
    assert text is not None
    rng = np.random.default_rng(0)
    z, labels, domains = rng.normal(size=(24, DIMENSION)), np.arange(24) % 2, np.zeros(24, np.int64)
    weights = {name: each.clone() for name, each in text.encoder.state_dict().items()}
    start = np.zeros((3, WIDTH)), np.zeros((1, WIDTH))
    trained = train_concepts(latents, start, (z, labels, domains), ConceptTraining(10, 0.1, 8), seeded(7))
    assert (trained[0][2] == 0).all()
    assert (np.abs(trained[0][:2]).max(axis=1) > 0).all()
    assert all(torch.equal(each, weights[name]) for name, each in text.encoder.state_dict().items())

    def loss(of_class: Any, of_domain: Any) -> float:
        own = (torch.tensor(each, dtype=torch.float32) for each in (of_class[labels], of_domain[domains]))
        shaped = torch.tensor(z, dtype=torch.float32).reshape(-1, *latents.shape)
        with torch.inference_mode():
            told = tell(latents, *own)
            random = (torch.Generator().manual_seed(number) for number in range(20))
            return float(np.mean([noise_loss(latents.unet, latents.scheduler, shaped, told, each) for each in random]))

    assert loss(*trained) < loss(*start)


def test_pictures_depend_on_prompts_and_vectors(latents: Latents) -> None:
    """Other vectors make other pictures; without vectors the network is told the empty prompt."""
    rows = np.random.default_rng(0).normal(size=(2, DIMENSION + 1)).astype(np.float32)
    cells = np.array([[0, 0, 0], [1, 0, 0]])
    told = [tuple(each[:2].numpy() for each in vectors(seed)) for seed in (0, 1)]
    bare = SlotMeans(2, (), False, rows, cells, np.ones(2, np.float32))
    settings = GenerationSettings(2, 3, style_noise=0.0)
    known = *((each[0], each[1][:1]) for each in told), None
    made = [generate(latents, replace(bare, concepts=each), settings).pixels for each in known]
    assert made[0].shape == (4, SIDE, SIDE, 3)
    assert (made[0] != made[1]).any()
    assert (made[0] != made[2]).any()


def test_the_digest_is_of_the_text_encoder_too(folder: Path, tmp_path: Path) -> None:
    """Another text encoder or tokenizer is another backbone; a model without one has the digest of its three parts."""
    digests = {backbone_digest(f"diffusers:{folder}")}
    bare = save_diffusion(tmp_path / "bare", like_stable=True)
    assert list(DiffusionFiles.of(f"diffusers:{bare}").parts) == ["vae", "unet", "scheduler"]
    digests.add(backbone_digest(f"diffusers:{bare}"))
    digests.add(backbone_digest(f"diffusers:{save_text_encoder(bare, seed=1)}"))
    config = bare / "tokenizer" / "tokenizer_config.json"
    config.write_text(config.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    digests.add(backbone_digest(f"diffusers:{bare}"))
    (bare / "tokenizer" / "config.json").write_text("{}", encoding="utf-8")
    digests.add(backbone_digest(f"diffusers:{bare}"))
    assert len(digests) == 5


@pytest.mark.parametrize("part", ["text_encoder", "tokenizer"])
def test_text_parts_that_changed_after_they_were_compared_are_refused(folder: Path, tmp_path: Path, part: str) -> None:
    """Both are read when they are used: other files by then are not what the plan names."""
    copied = tmp_path / "copy"
    shutil.copytree(folder, copied)
    backbone = opened(copied)
    config = copied / part / ("config.json" if part == "text_encoder" else "tokenizer_config.json")
    config.write_text(config.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    with pytest.raises(BadInput, match=f"{part} has changed since its digest was compared"):
        _ = backbone.text


@pytest.mark.parametrize(
    ("absent", "index"), [(("tokenizer",), False), (("text_encoder",), False), (("tokenizer", "text_encoder"), True)]
)
def test_a_pipeline_without_its_text_encoder_is_refused(
    folder: Path, tmp_path: Path, absent: tuple[str, ...], index: bool
) -> None:
    """One part alone, or neither where the pipeline's own index names them: it would be told two vectors alone."""
    copied = tmp_path / "copy"
    shutil.copytree(folder, copied, ignore=shutil.ignore_patterns(*absent))
    if index:
        parts = {"text_encoder": ["transformers", "CLIPTextModel"]}
        (copied / "model_index.json").write_text(json.dumps(parts), encoding="utf-8")
    with pytest.raises(BadInput, match=f"lacks .*{absent[0]}/.*prompt"):
        backbone_digest(f"diffusers:{copied}")


def test_text_encoders_that_do_not_fit_are_refused(folder: Path, tmp_path: Path) -> None:
    """Of another width, of another kind, with a tokenizer that has no placeholder, or with code of its own."""
    copied = tmp_path / "copy"
    shutil.copytree(folder, copied)
    save_text_encoder(copied, width=2 * WIDTH)
    with pytest.raises(BadInput, match=f"gives {2 * WIDTH} numbers a token"):
        _ = opened(copied).text
    save_text_encoder(copied, words=WORDS[:-1])
    with pytest.raises(BadInput, match=r"no token of its own for '\*'"):
        _ = opened(copied).text
    save_text_encoder(copied)
    path = copied / "text_encoder" / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"attn_implementation": "somebody/kernel"}), encoding="utf-8")
    with pytest.raises(BadInput, match="can be code"):
        _ = opened(copied).text
    from transformers import BertConfig, BertModel

    shutil.rmtree(copied / "text_encoder")
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": WIDTH}
    BertModel(BertConfig(vocab_size=99, **sizes)).save_pretrained(copied / "text_encoder")
    with pytest.raises(BadInput, match="holds a BertModel"):
        _ = opened(copied).text
