"""Latents of pictures by a latent diffusion model's frozen autoencoder, as features of one public L2 norm.

The model is a folder as `diffusers` writes it, Stable Diffusion's for example: autoencoder, network and schedule, and
the text encoder with its tokenizer, where the network is told prompts. No file is code: weights are safetensors, and of
each part the class is fixed here, whatever a config names.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.features.backbone import Features, Progress, digest_of, row_by_row
from secagg.features.cache import FeatureCache, recall
from secagg.features.encoder import (
    ENCODER_PARTS,
    INDEX,
    TOKENIZER,
    EncoderFiles,
    ModelFolder,
    digest_files,
    load_transformer,
    loading,
)
from secagg.features.program import refusing_failures
from secagg.system.extras import extra

DIFFUSERS = "diffusers:"
VAE, UNET, SCHEDULER, TEXT_ENCODER = "vae", "unet", "scheduler", "text_encoder"
WEIGHTS = ("config.json", "*.safetensors", INDEX)
NEEDED = {VAE: WEIGHTS, UNET: WEIGHTS, SCHEDULER: ("scheduler_config.json",)}
TEXTS = {TEXT_ENCODER: WEIGHTS, TOKENIZER: ("config.json", *ENCODER_PARTS[TOKENIZER])}
"""The two parts of a model that is told a prompt, as Stable Diffusion is; a folder has both or neither."""
FILES = NEEDED | TEXTS
"""The files that each part of a model consists of; others in the folder are not read."""
PIPELINE = "model_index.json"
"""The file that lists a pipeline's parts."""
PROMPT, PLACEHOLDER = "a * style of a *", 2
"""The prompt of FedBiP (Chen et al. 2024, section 4.2.2), `*` being S and V, and the place of S among its tokens."""
MODELS = {VAE: "AutoencoderKL", UNET: "UNet2DConditionModel"}
REMEDY = "give a folder of a latent diffusion pipeline that save_pretrained wrote, with vae/, unet/ and scheduler/"


@dataclass(frozen=True)
class DiffusionFiles(ModelFolder):
    """The folder of a latent diffusion pipeline of the library `diffusers`."""

    PARTS = FILES
    REMEDY = REMEDY

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over all parts: autoencoder, denoising network, noise schedule, and `TEXTS` if present."""
        return digest_of("secagg diffusion v1: " + self.listed_digests)

    @cached_property
    def parts(self) -> Mapping[str, str]:
        """SHA-256 (hex) of each part that is in the folder, as `ModelFolder.parts` has it."""
        return {part: digest_files(self.paths(part)) for part in FILES if part in NEEDED or self.paths(part)}

    @classmethod
    def of(cls, spec: str) -> DiffusionFiles:
        """Find the folder of `diffusers:FOLDER`. Raises BadInput where a part is missing."""
        files = cls(Path(spec.removeprefix(DIFFUSERS)))
        index = files.read_json(files.folder / PIPELINE)
        absent = [f"{part}/" for part in TEXTS if not files.paths(part)]
        if len(absent) == 1 or (absent and isinstance(index, dict) and TEXT_ENCODER in index):
            problem = f"{files.folder} lacks {' and '.join(absent)}, and without them it cannot be told a prompt"
            raise BadInput(problem, remedy="copy text_encoder/ and tokenizer/ of the same pipeline into it")
        for part, (config, *weights) in NEEDED.items():
            inside = files.folder / part
            if not (inside / config).is_file() or (weights and not any(inside.glob(weights[0]))):
                wanted = f"{config} with *.safetensors" if weights else config
                raise BadInput(f"{files.folder} holds no {part}/ with {wanted}", remedy=REMEDY)
        return files

    def place(self, part: str) -> Path:
        return self.folder / part

    def load_scheduler(self) -> Any:
        """Load the noise schedule as a `DDIMScheduler`. Raises BadInput where the model does not predict noise."""
        with extra("diffusion", f"{DIFFUSERS}{self.folder.name}"):
            import diffusers
        with refusing_failures(f"diffusers cannot load {self.folder / SCHEDULER}"), self.alone(SCHEDULER) as inside:
            load: Any = diffusers.DDIMScheduler.from_pretrained
            scheduler = load(inside, local_files_only=True, clip_sample=False)  # latents go beyond [−1, 1]
        if scheduler.config.prediction_type != "epsilon":
            kind = scheduler.config.prediction_type
            raise BadInput(f"the network in {self.folder} predicts {kind!r}", remedy="give one that predicts epsilon")
        return scheduler

    def load_model(self, part: str) -> Any:
        """Load the model of a part, such as the autoencoder (`MODELS`), frozen, in evaluation mode. Raises BadInput."""
        kind = MODELS[part]
        with extra("diffusion", f"{DIFFUSERS}{self.folder.name}"):
            import diffusers
        problem = f"diffusers cannot load a {kind} from {self.folder / part}"
        with loading("diffusers", logging.CRITICAL, problem, REMEDY), self.alone(part) as inside:
            model, loaded = getattr(diffusers, kind).from_pretrained(
                inside, local_files_only=True, use_safetensors=True, low_cpu_mem_usage=False, output_loading_info=True
            )
        if absent := sorted(map(str, loaded["missing_keys"] or loaded["mismatched_keys"])):
            raise BadInput(f"{self.folder / part} lacks the weights {', '.join(absent[:4])}", remedy=REMEDY)
        return model.eval().float().requires_grad_(False)

    def load_text_encoder(self) -> TextEncoder:
        """Load text encoder and tokenizer. Raises BadInput unless they are CLIP's, and `*` is one token."""
        with extra("hf", f"the text encoder of {DIFFUSERS}{self.folder.name}"):
            import transformers
        encoder, place = load_transformer(EncoderFiles(self.place(TEXT_ENCODER))), self.place(TOKENIZER)
        tokenizer = EncoderFiles(place).load_tokenizer()
        for part in TEXTS:  # what was read is what the digest is of
            self.refuse_changed(part)
        if not isinstance(encoder, transformers.CLIPTextModel):
            problem = f"{self.place(TEXT_ENCODER)} holds a {type(encoder).__name__}"
            raise BadInput(problem, remedy="give the CLIPTextModel of Stable Diffusion 1 or 2")
        text = TextEncoder(encoder, tokenizer)
        tokens = text.tokens(PROMPT).input_ids[0]
        if int((tokens == tokens[PLACEHOLDER]).sum()) != PROMPT.count("*"):
            raise BadInput(f"the tokenizer in {place} has no token of its own for '*'", remedy="give that of CLIP")
        return text

    def read_json(self, path: Path, **options: Callable[..., Any]) -> Any:
        with suppress(BadInput):  # an index that cannot be read names no file beside it
            return super().read_json(path, **options)
        return None


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """The frozen text encoder of a diffusion model, and its tokenizer: as `StableDiffusionPipeline` encodes prompts."""

    encoder: Any = field(repr=False)
    tokenizer: Any = field(repr=False)

    @property
    def width(self) -> int:
        """Numbers e of a token's embedding, and of each row of what `encode` returns."""
        return int(self.encoder.config.hidden_size)

    def tokens(self, prompt: str) -> Any:
        """Return the prompt's token numbers (1, t) and attention mask, padded to the t tokens that every prompt has."""
        most = min(self.tokenizer.model_max_length, self.encoder.config.max_position_embeddings)
        return self.tokenizer([prompt], padding="max_length", max_length=most, truncation=True, return_tensors="pt")

    def encode(self, prompt: str) -> Any:
        """Return the encoder's last hidden state (1, t, e) of a prompt."""
        return self._run(self.tokens(prompt), 1)

    def encode_vectors(self, vectors: Any) -> Any:
        """Return the last hidden states (n, t, e) of `PROMPT` with vectors (n, 2, e) as the embeddings of its `*`.

        As in textual inversion (Gal et al. 2022): the vectors enter the encoder, where FedBiP's paper has them.
        """
        tokens = self.tokens(PROMPT)
        places = tokens.input_ids[0] == tokens.input_ids[0, PLACEHOLDER]

        def put(_module: Any, _given: Any, embedded: Any) -> Any:
            replaced = embedded.clone()
            replaced[:, places] = vectors
            return replaced

        hook = self.encoder.get_input_embeddings().register_forward_hook(put)
        try:
            return self._run(tokens, len(vectors))
        finally:
            hook.remove()

    def _run(self, tokens: Any, count: int) -> Any:
        """Run the encoder on `count` copies of tokens, with their mask only where its configuration asks for that."""
        masked = getattr(self.encoder.config, "use_attention_mask", False)
        mask = tokens.attention_mask.expand(count, -1) if masked else None
        return self.encoder(tokens.input_ids.expand(count, -1), attention_mask=mask).last_hidden_state


COLOURS = 3
SLACK = 1e-9
"""Relative slack of the public bound, as lengths are rounded in float64."""


@dataclass(frozen=True, eq=False)
class Latents:
    """A backbone that maps pictures (h, w) or (h, w, 1 or 3) (`input_shape`) to latents (c, h', w') (`shape`).

    A latent z is the mean of the posterior times the model's scaling factor, by which an entry's mean square is about
    1, cut to the length R = √d, d = c·h'·w'. A feature vector is z followed by √(R² − ‖z‖²): d + 1 numbers of length R
    for every picture, so that a plan which brings records to one length (`unit`) takes nothing from them. A picture
    whose latent is no number has no feature vector. Row by row: none depends on its batch.
    """

    name: str
    files: DiffusionFiles
    input_shape: tuple[int, ...]
    shape: tuple[int, int, int]
    vae: Any = field(repr=False)
    cache: FeatureCache | None = None
    progress: Progress | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the digests of the folder's parts (`DiffusionFiles.digest`)."""
        return self.files.digest

    @property
    def dimension(self) -> int:
        """Length of a feature vector: d + 1, for latents of d = c·h'·w' numbers."""
        return math.prod(self.shape) + 1

    @cached_property
    def unet(self) -> Any:
        """The frozen network that denoises latents. Raises BadInput if it cannot be loaded."""
        return self.files.load_model(UNET)

    @cached_property
    def scheduler(self) -> Any:
        """The noise schedule of the denoising network. Raises BadInput if it cannot be loaded."""
        return self.files.load_scheduler()

    @cached_property
    def text(self) -> TextEncoder | None:
        """The encoder of the network's prompts, None for a network without any. Raises BadInput if it does not fit."""
        if TEXT_ENCODER not in self.files.parts:
            return None
        text = self.files.load_text_encoder()
        wanted = self.unet.config.cross_attention_dim
        if text.width != wanted:
            problem = f"the text encoder of {self.name} gives {text.width} numbers a token, its network takes {wanted}"
            raise BadInput(problem, remedy="give the text encoder of the same pipeline")
        return text

    def bound(self, _input_bound: float | None, /) -> float | None:
        """Return slightly more than R = √d (d: length of a latent), the L2 norm of every feature vector."""
        return math.sqrt(math.prod(self.shape)) * (1 + SLACK)

    def extract(self, inputs: NDArray[Any]) -> Features:
        """Map pictures (n, …) to features (n, d + 1). Raises BadInput for pictures of a wrong size or type."""
        if inputs.shape[1:] != self.input_shape:
            raise BadInput(f"{self.name} takes pictures of {self.input_shape}, got {inputs.shape[1:]}")
        import torch

        def features_of(picture: NDArray[Any]) -> Features:
            pixels = torch.tensor(pixels_of(picture[None]))
            return as_feature(to_latents(self.vae, pixels).numpy().astype(np.float64).ravel())

        def compute() -> Features:
            with torch.inference_mode():
                return row_by_row(inputs, self.dimension, features_of, self.progress)

        return recall(self.cache, self.digest, inputs, self.dimension, compute)


def open_latents(
    files: DiffusionFiles, input_shape: tuple[int, ...], cache: FeatureCache | None, progress: Progress | None = None
) -> Latents:
    """Load a folder's autoencoder for pictures of this shape; its digest must have been checked. Raises BadInput."""
    import torch

    vae, name = files.load_model(VAE), f"{DIFFUSERS}{files.folder.name}"
    factor = 2 ** (len(vae.config.block_out_channels) - 1)
    is_picture = len(input_shape) in (2, 3) and input_shape[2:] in ((), (1,), (COLOURS,))
    if not is_picture or any(not side or side % factor for side in input_shape[:2]):
        problem = f"{name} takes pictures whose sides are multiples of {factor}, got {input_shape}"
        raise BadInput(problem, remedy="scale or pad them before")
    if vae.config.in_channels != COLOURS:
        raise BadInput(f"{name} sees {vae.config.in_channels} channels", remedy="give a model of colour pictures")
    with torch.inference_mode():
        shape = tuple(to_latents(vae, torch.zeros(1, COLOURS, *input_shape[:2])).shape[1:])
    return Latents(name, files, input_shape, shape, vae, cache, progress)


def as_feature(latent: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the feature (z, √(R² − ‖z‖²)) of a latent z (d,), norm-clipped to R = √d; all NaN if z is not finite."""
    radius, length = math.sqrt(len(latent)), float(np.linalg.norm(latent))
    if not math.isfinite(length):
        return np.full(len(latent) + 1, np.nan)
    cut = latent * min(1.0, radius / max(length, np.finfo(np.float64).tiny))
    return np.append(cut, math.sqrt(max(radius**2 - float(cut @ cut), 0.0)))


def latents_of(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the latents z (n, d) of feature vectors (n, d + 1) that were scaled to L2 norm 1."""
    return rows[:, :-1] * math.sqrt(rows.shape[1] - 1)


def to_latents(vae: Any, pixels: Any) -> Any:
    """Encode pixels (n, 3, h, w) in [−1, 1] as latents (n, c, h', w'): the scaled means of the posteriors."""
    mean = vae.encode(pixels).latent_dist.mean
    return (mean - (getattr(vae.config, "shift_factor", None) or 0.0)) * vae.config.scaling_factor


def to_pixels(vae: Any, latents: Any) -> Any:
    """Decode scaled latents (n, c, h', w') to pixels (n, 3, h, w) in [−1, 1]."""
    raw = latents / vae.config.scaling_factor + (getattr(vae.config, "shift_factor", None) or 0.0)
    return vae.decode(raw).sample.clamp(-1, 1)


def pixels_of(pictures: NDArray[Any]) -> NDArray[np.float32]:
    """Convert pictures (n, h, w) or (n, h, w, 1 or 3), uint8 or in [0, 1], to (n, 3, h, w) float32 in [−1, 1]."""
    shown = pictures[..., None] if pictures.ndim == 3 else pictures
    scaled = shown.astype(np.float32) / np.float32(255 if pictures.dtype == np.uint8 else 1)
    colours = np.broadcast_to(scaled, (*scaled.shape[:3], COLOURS))
    return np.ascontiguousarray(np.moveaxis(colours, -1, 1)) * np.float32(2) - np.float32(1)
