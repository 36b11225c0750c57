"""Frozen encoders of `transformers`, by folder: pictures, texts or both in, one pooled vector out.

A folder holds the model's config.json and *.safetensors, its tokenizer where it reads text, and
preprocessor_config.json where it sees pictures. None of these is code, and code that a config names is not run. What
is computed inside can be changed at *places*, which is how adapters sit in it (`changed`).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secagg.data.triplets import TEXT_BYTES, divide, side_of
from secagg.errors import BadInput
from secagg.features.backbone import Features
from secagg.features.cache import FeatureCache
from secagg.features.encoder_files import EncoderFiles
from secagg.features.places import Place, find_places
from secagg.features.program import Progress, first_line
from secagg.system.threads import one_thread

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MOST_TOKENS = 64
"""Tokens of a text; what is longer is cut off."""
CHUNK = 64
Change = Callable[["Tensor", "Tensor"], "Tensor"]
"""Takes what goes into a place (n, …, inputs) and what comes out (n, …, outputs), and returns what shall."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """A frozen encoder (a `Backbone`), for records of a picture and a text (`secagg.data.triplets`).

    `extract` gives its pooled output, made 1 long: row by row, so that no record depends on its batch. `side` is that
    of its pictures (0: it sees none), `tokens` the number of a text's (0: it reads none).
    """

    name: str
    files: EncoderFiles
    module: torch.nn.Module = field(repr=False)
    tokenizer: Any = field(repr=False)
    side: int
    tokens: int
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    deviation: tuple[float, ...] = (1.0, 1.0, 1.0)
    record_length: int = 0
    """Numbers of a record as it is stored."""
    cache: FeatureCache | None = None
    progress: Progress | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the digests of weights, tokenizer and picture processor."""
        return self.files.digest

    @cached_property
    def dimension(self) -> int:
        """Length of the pooled output."""
        import torch

        with torch.inference_mode():
            return int(self.pooled(torch.zeros(1, self.prepared)).shape[1])

    @property
    def prepared(self) -> int:
        """Numbers of a record as the encoder takes it: pixels, tokens, and which tokens are of the text."""
        return 3 * self.side**2 + 2 * self.tokens

    def bound(self, _input_bound: float | None, /) -> float | None:
        """1: features are made so long."""
        return 1.0

    def prepare(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Stored records (n, …) as the encoder takes them (n, prepared): normalised pixels, tokens, mask.

        Raises BadInput for records that are not a picture of its size and a text.
        """
        if inputs.dtype != np.uint8 or inputs.ndim != 2 or inputs.shape[1] != self.record_length:
            problem = f"{self.name} takes pictures of {self.side} × {self.side} with a text, as rows of bytes"
            raise BadInput(f"{problem}; got {inputs.dtype} of shape {inputs.shape[1:]}")
        pictures, texts = divide(inputs)
        parts = [np.zeros((len(inputs), 0), dtype=np.float32)]
        if self.side:
            mean, deviation = (np.array(each, dtype=np.float32) for each in (self.mean, self.deviation))
            pixels = (pictures.astype(np.float32) / np.float32(255) - mean) / deviation
            parts.append(np.moveaxis(pixels, -1, 1).reshape(len(inputs), 3 * self.side**2))
        if self.tokens:
            parts.append(self._tokens(texts))
        return np.concatenate(parts, axis=1)

    def _tokens(self, texts: list[str]) -> NDArray[np.float32]:
        """Token numbers (below 2²⁴, which float32 holds exactly) and mask, side by side."""
        if not texts:
            return np.zeros((0, 2 * self.tokens), dtype=np.float32)
        told = self.tokenizer(texts, padding="max_length", truncation=True, max_length=self.tokens)
        both = [np.array(told[name], dtype=np.float32) for name in ("input_ids", "attention_mask")]
        return np.concatenate(both, axis=1)

    def extract(self, inputs: NDArray[Any]) -> Features:
        """Stored records (n, …) to features (n, d) of length 1. Raises BadInput."""
        prepared = self.prepare(inputs)
        if self.cache is None or len(inputs) == 0:
            return self._run_all(prepared)
        key = f"{self.digest} {version('transformers')}"  # other ones may cut words, or compute, otherwise
        return self.cache.recall(key, inputs, self.dimension, lambda: self._run_all(prepared))

    def _run_all(self, prepared: NDArray[np.float32]) -> Features:
        import torch

        features = np.empty((len(prepared), self.dimension))
        with one_thread(), torch.inference_mode():
            for index, row in enumerate(prepared):
                vector = self.pooled(torch.tensor(row[None])).numpy().astype(np.float64)[0]
                features[index] = vector / max(float(np.linalg.norm(vector)), np.finfo(np.float64).tiny)
                if self.progress is not None:
                    self.progress(index + 1, len(prepared))
        return features

    def pooled(self, x: Tensor) -> Tensor:
        """The pooled output (n, d) of prepared records (n, prepared), n ≥ 1.

        Always the same for the same rows: what an architecture draws (ViLT shuffles patches, whose order means nothing)
        comes from a fixed seed.
        """
        import torch

        pixels, tokens = 3 * self.side**2, self.tokens
        given: dict[str, Tensor] = {}
        if self.side:
            given["pixel_values"] = x[:, :pixels].reshape(-1, 3, self.side, self.side)
        if tokens:
            given["input_ids"] = x[:, pixels : pixels + tokens].long()
            given["attention_mask"] = x[:, pixels + tokens :].long()
        if "pixel_mask" in self._takes:
            given["pixel_mask"] = torch.ones((len(x), self.side, self.side), dtype=torch.long)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return _pooled_of(self.module(**given))

    @cached_property
    def _takes(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.module.forward).parameters)

    def places(self, kind: str) -> tuple[Place, ...]:
        """Where adapters of a kind sit, in the model's order. Raises BadInput for a model without any."""
        return find_places(self.module, kind)

    @contextmanager
    def changed(self, changes: Mapping[str, Change]) -> Iterator[None]:
        """While it lasts, what comes out of the modules of these names is what their changes make of it."""
        modules = dict(self.module.named_modules())
        hooks = [modules[name].register_forward_hook(_hook(change)) for name, change in changes.items()]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def open_encoder(
    files: EncoderFiles, input_shape: tuple[int, ...], cache: FeatureCache | None, progress: Progress | None = None
) -> Encoder:
    """Load a folder's model, frozen, for records of this shape; its digest was compared before.

    Raises BadInput where a part is missing, or pictures have another size than the model's.
    """
    module = _load_model(files)
    parameters = inspect.signature(module.forward).parameters
    side, mean, deviation = files.picture_rule(module.config) if "pixel_values" in parameters else (0, (), ())
    tokenizer = files.load_tokenizer() if "input_ids" in parameters else None
    name = f"transformers:{files.folder.name}"
    if len(input_shape) != 1:
        raise BadInput(
            f"{name} takes records of a picture and a text, got {input_shape}", remedy="give a .triplets source"
        )
    stored = side_of(input_shape[0])
    if side and stored != side:
        problem = f"{name} takes pictures of {side} × {side} pixels, the records' are {stored} × {stored}"
        raise BadInput(problem, remedy=f"scale them to {side} × {side} before")
    if side and not (len(mean) == len(deviation) == 3 and all(each > 0 for each in deviation)):
        raise BadInput(f"{name} does not normalise three channels", remedy="mend preprocessor_config.json")
    tokens = _token_count(module.config, tokenizer) if tokenizer is not None else 0
    length = 3 * stored**2 + TEXT_BYTES
    encoder = Encoder(name, files, module, tokenizer, side, tokens, mean, deviation, length, cache, progress)
    _try_longest(encoder)
    return encoder


def _try_longest(encoder: Encoder) -> None:
    """Raise BadInput for a model that fails at the last word of its tokenizer, or at as many as a text may have.

    A record with it would keep its member out, which tells of it.
    """
    import torch

    words = encoder.tokenizer.get_vocab().values() if encoder.tokens else ()
    row = torch.zeros(1, encoder.prepared)
    row[:, 3 * encoder.side**2 :] = 1
    row[:, 3 * encoder.side**2 : 3 * encoder.side**2 + encoder.tokens] = max(words, default=0)
    try:
        with torch.inference_mode():
            encoder.pooled(row)
    except Exception as error:  # of the model, whatever it is
        problem = f"{encoder.name} fails at a text of {encoder.tokens} tokens up to {max(words, default=0)}"
        remedy = "save the tokenizer that belongs to the model"
        raise BadInput(f"{problem}: {first_line(error)}", remedy=remedy) from error


def _load_model(files: EncoderFiles) -> torch.nn.Module:
    """The model in evaluation, without gradients of its own. Raises BadInput for a folder that holds none."""
    import transformers

    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    quiet = logging.getLogger("transformers")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with files.alone() as folder:
            loaded = transformers.AutoModel.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, trust_remote_code=False, output_loading_info=True
            )
    except BadInput:
        raise
    except Exception as error:  # of the library, for whatever the folder holds
        problem = f"transformers cannot load the model in {files.folder}: {first_line(error)}"
        raise BadInput(problem, remedy="give a folder that save_pretrained wrote") from error
    finally:
        quiet.setLevel(level)
    module, told = loaded
    if told.get("missing_keys") or told.get("mismatched_keys"):
        absent = sorted(map(str, told.get("missing_keys") or told["mismatched_keys"]))
        problem = f"{files.folder} lacks the weights {', '.join(absent[:4])}{' …' if len(absent) > 4 else ''}"
        raise BadInput(problem, remedy="save the whole encoder with save_pretrained")
    module.eval().float().requires_grad_(False)
    return module  # type: ignore[no-any-return]  # transformers has no types


def _token_count(config: Any, tokenizer: Any) -> int:
    text = getattr(config, "text_config", config)
    return int(min(MOST_TOKENS, text.max_position_embeddings, tokenizer.model_max_length))


def _pooled_of(output: Any) -> Tensor:
    """What stands for the whole record: both embeddings of a dual encoder, else the pooler's, else the first token."""
    import torch

    pair = [getattr(output, name, None) for name in ("image_embeds", "text_embeds")]
    if not any(part is None for part in pair):
        return torch.cat([part for part in pair if part is not None], dim=1)
    pooled: Tensor | None = getattr(output, "pooler_output", None)
    first: Tensor = output.last_hidden_state[:, 0] if pooled is None else pooled
    return first


def _hook(change: Change) -> Callable[[Any, tuple[Any, ...], Tensor], Tensor]:
    return lambda _module, given, output: change(given[0], output)
