"""Frozen encoders from a folder of `transformers`: they map a picture, a text or both to one pooled vector.

A folder holds the model's config.json and *.safetensors, its tokenizer where it reads text, and
preprocessor_config.json where it sees pictures. None of these is code, and code that a config names is not run. What
is computed inside can be changed at *places*, which is how adapters sit in it (`changed`).
"""

from __future__ import annotations

import inspect
import logging
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secagg.data.triplets import TEXT_BYTES, divide, side_of
from secagg.errors import BadInput, describe_error
from secagg.features.backbone import Features, Progress, digest_of, row_by_row
from secagg.features.cache import FeatureCache, recall
from secagg.features.program import first_line, refusing_failures
from secagg.system.extras import extra
from secagg.system.reading import DOCUMENT_BYTES, each_field_once, parse_json, read_limited, sha256_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PREFIX = "transformers:"
WEIGHTS, TOKENIZER, PICTURES, POOLING = "weights", "tokenizer", "picture processor", "pooling"
ENCODER_PARTS: Mapping[str, tuple[str, ...]] = {
    WEIGHTS: ("config.json", "*.safetensors", "*.safetensors.index.json"),
    TOKENIZER: (
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "vocab.txt", "vocab.json", "merges.txt", "*.model",
    ),
    PICTURES: ("preprocessor_config.json", "processor_config.json"),
    POOLING: ("1_Pooling/config.json", "modules.json", "sentence_bert_config.json"),
}  # fmt: skip
"""The files that each part of a model consists of; others in the folder are not read (`ModelFolder.alone`).

The pooling is that of a sentence-transformers folder; the digest of a folder without it is of the other parts.
"""
POOLING_RULE, MODULES, SENTENCES = (ENCODER_PARTS[POOLING][place] for place in range(3))
FOLLOWED = ("Transformer", "Pooling", "Normalize")
"""Modules of sentence-transformers that features follow; others, such as Dense, would be left out in silence."""
POOLED_BY = "pooling_mode_"
MEAN, FIRST = "mean_tokens", "cls_token"
"""Pooling modes of sentence-transformers: the mean of all tokens' last hidden states, or that of the first token."""
INDEX = "*.safetensors.index.json"
ATTENTIONS = ("eager", "sdpa")
"""Implementations of attention that config.json may ask for; other names load kernels, which can be code."""
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
"""Files of which a tokenizer needs at least one, as without them it knows no words."""
Rule = tuple[int, tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class ModelFolder:
    """A model's folder, its files not parsed yet; `PARTS` lists the files of each part (weights, tokenizer, …)."""

    PARTS: ClassVar[Mapping[str, tuple[str, ...]]]
    REMEDY: ClassVar[str] = "save it with save_pretrained"
    folder: Path

    @cached_property
    def parts(self) -> Mapping[str, str]:
        """SHA-256 (hex) of each part of the model, over the sorted names and the digests of its files."""
        return {part: digest_files(self.paths(part)) for part in self.PARTS}

    @property
    def listed_digests(self) -> str:
        """Names and digests of the model's parts in one line, from which the folder's digest is computed."""
        return ", ".join(f"{part} {own}" for part, own in self.parts.items())

    @property
    def short_digests(self) -> str:
        """Names of the model's parts, each with the first 16 hex digits of its digest, for messages."""
        return ", ".join(f"{part} {own[:16]}…" for part, own in self.parts.items())

    def place(self, part: str) -> Path:
        """Return the folder that holds the files of one part of the model."""
        return self.folder

    def paths(self, part: str) -> list[Path]:
        """Return the sorted paths of the files of one part of the model."""
        return sorted({path for pattern in self.PARTS[part] for path in self.place(part).glob(pattern)})

    def refuse_changed(self, part: str) -> None:
        """Raise BadInput if the files of a part of the model have changed since their digest was checked."""
        if digest_files(self.paths(part)) != self.parts[part]:
            problem = f"{self.place(part)} has changed since its digest was compared"
            raise BadInput(problem, remedy="put its files back, and begin again")

    @contextmanager
    def alone(self, *wanted: str) -> Iterator[Path]:
        """Yield a temporary folder that holds only links to the files of the named parts (of all if none is named).

        Libraries look for files by names of their own: an adapter's, a tokenizer's for a version, one that an index
        names. Raises BadInput for an index that names a file elsewhere, and at the end for files that are others by
        then than those whose digest was compared, minutes ago.
        """
        parts = [part for part in self.parts if part in (wanted or self.PARTS)]  # known before anything is read
        paths = [path for part in parts for path in self.paths(part)]
        known = [path.name for path in paths]
        for path in (each for each in paths if each.match(INDEX)):
            index = self.read_json(path)
            shards = index.get("weight_map") if isinstance(index, dict) else None
            if not isinstance(shards, dict) or not all(each in known for each in shards.values()):
                raise BadInput(f"{path} names files that are not beside it", remedy=self.REMEDY)
        with tempfile.TemporaryDirectory(prefix="secagg-") as made:
            for path in paths:
                (Path(made) / path.name).symlink_to(path.resolve())
            yield Path(made)
        for part in parts:
            self.refuse_changed(part)

    def read_json(self, path: Path, **options: Callable[..., Any]) -> Any:
        """Return the content of a JSON file, None if it does not exist; `options` are hooks of `json.loads`.

        Raises BadInput for a file that is not JSON, or that a hook refuses.
        """
        try:
            return parse_json(read_limited(path, DOCUMENT_BYTES), **options) if path.is_file() else None
        except (OSError, ValueError) as error:
            problem = f"cannot read {path} as JSON ({describe_error(error)})"
            raise BadInput(problem, remedy="write it again with save_pretrained") from error


@dataclass(frozen=True)
class EncoderFiles(ModelFolder):
    """An encoder's folder, as `save_pretrained` of transformers writes it."""

    PARTS = ENCODER_PARTS

    @cached_property
    def parts(self) -> Mapping[str, str]:
        """SHA-256 (hex) of each part, as `ModelFolder.parts` has it; of the pooling only where the folder has one."""
        return {part: digest_files(self.paths(part)) for part in self.PARTS if part != POOLING or self.paths(part)}

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over all parts of the model: weights, tokenizer, picture processor and pooling."""
        return digest_of("secagg encoder v1: " + self.listed_digests)

    @classmethod
    def of(cls, spec: str) -> EncoderFiles:
        """Find the folder of `transformers:FOLDER`, or fetch the model of that name from the hub.

        Raises BadInput for a name that cannot be fetched, or a folder without config.json and *.safetensors.
        """
        name = spec.removeprefix(PREFIX)
        files = cls(Path(name) if Path(name).is_dir() else _fetch(name))
        if not (files.folder / "config.json").is_file() or not any(files.folder.glob("*.safetensors")):
            problem = f"{files.folder} holds no config.json with *.safetensors"
            raise BadInput(problem, remedy="give a folder that save_pretrained wrote; .bin files are code, not read")
        return files

    @contextmanager
    def alone(self, *wanted: str) -> Iterator[Path]:
        """Yield a temporary folder of links to the named parts' files. Raises BadInput if config.json may load code."""
        with super().alone(*wanted) as folder:
            named = _implementations(self.read_json(self.folder / "config.json"))
            if odd := [each for each in named if each not in ATTENTIONS]:
                problem = f"{self.folder} asks for the implementation {odd[0]!r}, which can be code"
                raise BadInput(problem, remedy=f"leave it out of config.json, or write {' or '.join(ATTENTIONS)}")
            yield folder

    def load_tokenizer(self) -> Any:
        """Load the tokenizer. Raises BadInput where the folder has none, or it has no padding token."""
        import transformers

        words = [path for pattern in VOCABULARIES for path in self.folder.glob(pattern)]
        if not words:  # transformers would make one up that knows no word
            problem = f"{self.folder} holds no tokenizer, which this model needs"
            raise BadInput(problem, remedy="save it into the folder with save_pretrained")
        problem = f"transformers cannot load the tokenizer in {self.folder}"
        remedy = "save it into the folder with save_pretrained"
        with refusing_failures(problem, remedy), self.alone(WEIGHTS, TOKENIZER) as folder:
            load: Any = transformers.AutoTokenizer.from_pretrained
            tokenizer = load(folder, local_files_only=True, trust_remote_code=False)
        if tokenizer.pad_token_id is None:
            raise BadInput(f"the tokenizer in {self.folder} has no padding token", remedy="give it one")
        return tokenizer

    def picture_rule(self, config: Any) -> Rule:
        """Return the pictures' side length, mean and standard deviation. Raises BadInput if the folder lacks them."""
        rule = next(filter(None, (self.read_json(self.folder / name) for name in self.PARTS[PICTURES])), None)
        self.refuse_changed(PICTURES)
        rule = rule.get("image_processor", rule) if isinstance(rule, dict) else None
        found: list[Any] = [rule.get(name) if isinstance(rule, dict) else None for name in ("image_mean", "image_std")]
        mean, deviation = (tuple(map(float, each)) if _are_finite(each) else () for each in found)
        if not mean or not deviation:
            problem = f"{self.folder} holds no preprocessor_config.json with image_mean and image_std"
            raise BadInput(problem, remedy="save the processor into the folder with save_pretrained")
        side = getattr(getattr(config, "vision_config", config), "image_size", 0)
        if not isinstance(side, int) or side < 1:
            raise BadInput(f"the model in {self.folder} does not say how large its square pictures are")
        return side, mean, deviation

    def pooling_mode(self) -> str:
        """Return the pooling that the folder asks for (MEAN or FIRST); "" if none. Raises BadInput for other modes.

        Raises BadInput, too, where the folder lists modules other than FOLLOWED.
        """
        listed = self._pooling_part(MODULES) or []
        if not isinstance(listed, list):
            raise BadInput(f"{self.folder / MODULES} lists no modules", remedy="save the model anew")
        kinds = [str(each.get("type", "")).rpartition(".")[2] if isinstance(each, dict) else "" for each in listed]
        if unknown := [kind for kind in kinds if kind not in FOLLOWED]:
            problem = f"{self.folder / MODULES} has the module {unknown[0] or 'without a type'}"
            raise BadInput(problem, remedy=f"give a model of {', '.join(FOLLOWED)} alone")
        rule = self._pooling_part(POOLING_RULE)
        if rule is None:
            return ""
        if problem := _unclear_pooling(rule):
            remedy = "state the modes as true or false, save it anew, or give another model"
            raise BadInput(f"{self.folder / POOLING_RULE} {problem}", remedy=remedy)
        modes: list[str] = [name.removeprefix(POOLED_BY) for name in rule if name.startswith(POOLED_BY) and rule[name]]
        if modes not in ([MEAN], [FIRST]):
            problem = f"{self.folder / POOLING_RULE} asks for the pooling {' and '.join(modes) or 'none'}"
            raise BadInput(problem, remedy=f"give a model that pools by {MEAN} or by {FIRST}")
        return modes[0]

    def most_tokens(self, known: int) -> int:
        """Return the most tokens of a text: `known`, or fewer where a sentence-transformers folder says so."""
        rule = self._pooling_part(SENTENCES)
        most = rule.get("max_seq_length") if isinstance(rule, dict) else None
        if most is None:
            return known
        if not isinstance(most, int) or most < 1:
            raise BadInput(f"{self.folder / SENTENCES} cuts texts to {most} tokens", remedy="save the model anew")
        return min(known, most)

    def _pooling_part(self, name: str) -> Any:
        """Return the content of a file of the pooling; None where the folder has none. Raises BadInput."""
        if POOLING not in self.parts or (path := self.folder / name) not in self.paths(POOLING):
            return None
        content = self.read_json(path, object_pairs_hook=each_field_once)
        self.refuse_changed(POOLING)
        return content


def _unclear_pooling(rule: Any) -> str:
    """Return why sentence-transformers may pool otherwise than a rule's modes say; "" where it does not.

    It takes the mean where a rule does not say whether to, and any value but false, 0 and the like for true.
    """
    if not isinstance(rule, dict):
        return "is no object"
    odd = [name for name, on in rule.items() if name.startswith(POOLED_BY) and not isinstance(on, bool)]
    if odd:
        return f"has {odd[0]} neither true nor false"
    if "pooling_mode" in rule:
        return "has the key pooling_mode, beside which the others count for nothing"
    if rule.get("include_prompt", True) is not True:
        return "leaves prompts out (include_prompt)"
    return "" if POOLED_BY + MEAN in rule else f"does not state {POOLED_BY}{MEAN}"


def _implementations(value: Any) -> Iterator[str]:
    """Yield the names of implementations that a configuration asks for, at any depth."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        if "_implementation" in str(name):
            yield from filter(None, each.values() if isinstance(each, dict) else [each])
        else:
            yield from _implementations(each)


def _are_finite(value: Any) -> bool:
    """Return whether a value is a list of finite numbers."""
    return isinstance(value, list) and all(isinstance(each, int | float) and math.isfinite(each) for each in value)


def digest_files(paths: Iterable[Path]) -> str:
    """Return the SHA-256 (hex) over files' names and digests. Raises BadInput."""
    lines = []
    for path in paths:
        try:
            lines.append(f"{path.name} {sha256_of(path)}")
        except OSError as error:
            raise BadInput(f"cannot read {path} ({describe_error(error)})") from error
    return digest_of("\n".join(lines))


def _fetch(name: str) -> Path:
    """Download a model of the hub, except files that are code, and return its folder. Raises BadInput."""
    with extra("hf", f"{PREFIX}{name}"):
        from huggingface_hub import snapshot_download
    wanted = [pattern for patterns in ENCODER_PARTS.values() for pattern in patterns]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # no such folder, name or network
        remedy = "give a folder, or the name of a model on the hub"
        raise BadInput(f"there is no model {name}: {first_line(error)}", remedy=remedy) from error


BOTTLENECK, LORA = "bottleneck", "lora"
"""An adapter after each feed-forward block (Houlsby et al. 2019, Pfeiffer et al. 2021), or one beside each query and
value projection (Hu et al. 2021)."""
KINDS = (BOTTLENECK, LORA)
FEED_FORWARD = re.compile(r"\w+MLP|\w+(?<!Self)Output")
"""Class names of the modules that end a layer's feed-forward block: ViltOutput, BertOutput, ViTMLP, CLIPMLP."""
PROJECTIONS = ("query", "value", "q_proj", "v_proj")
PLACES = re.compile(r"[1-9][0-9]{0,3}x[1-9][0-9]{0,4}(\+[1-9][0-9]{0,3}x[1-9][0-9]{0,4}){0,15}")


@dataclass(frozen=True)
class Place:
    """A module of an encoder that an adapter attaches to: its name, and the width of its output."""

    name: str
    width: int


def tell_places(places: tuple[Place, ...]) -> str:
    """Return the count and width of adapted modules as text, such as 12x512+12x768: 12 of width 512, then 12 of 768."""
    runs = [(width, len(list(run))) for width, run in groupby(place.width for place in places)]
    return "+".join(f"{count}x{width}" for width, count in runs)


def read_places(text: str) -> tuple[int, ...]:
    """Return the width of each adapted module from a text such as 12x512+12x768. Raises BadInput for another form."""
    if not PLACES.fullmatch(text):
        raise BadInput(f"places are {text!r}", remedy="give how many and how wide, such as 12x768 or 12x512+12x768")
    pairs = [tuple(map(int, run.split("x"))) for run in text.split("+")]
    return tuple(width for count, width in pairs for _ in range(count))


MOST_TOKENS = 64
"""Most tokens of a text; further ones are cut off."""
Change = Callable[["Tensor", "Tensor"], "Tensor"]
"""A function from a module's input (n, …, inputs) and output (n, …, outputs) to the output that replaces it."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """A frozen encoder (a `Backbone`) for records that hold a picture and a text (`secagg.data.triplets`).

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
    """Number of values of a record as it is stored."""
    pooling: str = ""
    """Pooling mode of a text model, MEAN or FIRST; "" for the model's own."""
    cache: FeatureCache | None = None
    progress: Progress | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the digests of the model's parts."""
        return self.files.digest

    @cached_property
    def dimension(self) -> int:
        """Length d of the pooled output."""
        import torch

        with torch.inference_mode():
            return int(self.pooled(torch.zeros(1, self.prepared)).shape[1])

    @property
    def prepared(self) -> int:
        """Number of values of a record in the encoder's input form: pixels, tokens and attention mask."""
        return 3 * self.side**2 + 2 * self.tokens

    def bound(self, _input_bound: float | None, /) -> float | None:
        """Return 1, the L2 norm of every feature vector."""
        return 1.0

    def prepare(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Convert stored records (n, …) to the encoder's input (n, prepared): normalised pixels, tokens, mask.

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
        """Return token numbers (below 2²⁴, exact in float32) and attention mask, side by side."""
        if not texts:
            return np.zeros((0, 2 * self.tokens), dtype=np.float32)
        cut = {"padding": "max_length", "padding_side": "right", "truncation": True, "max_length": self.tokens}
        coded = self.tokenizer(texts, **cut)  # to the right, as the first token and an adapter's rows are read there
        both = [np.array(coded[name], dtype=np.float32) for name in ("input_ids", "attention_mask")]
        return np.concatenate(both, axis=1)

    def extract(self, inputs: NDArray[Any]) -> Features:
        """Map stored records (n, …) to features (n, d) of L2 norm 1. Raises BadInput."""
        prepared = self.prepare(inputs)
        key = f"{self.digest} {version('transformers')}"  # other ones may cut words, or compute, otherwise
        return recall(self.cache, key, inputs, self.dimension, lambda: self._run_all(prepared))

    def _run_all(self, prepared: NDArray[np.float32]) -> Features:
        import torch

        def features_of(row: NDArray[np.float32]) -> Features:
            vector: Features = self.pooled(torch.tensor(row[None])).numpy().astype(np.float64)[0]
            return vector / max(float(np.linalg.norm(vector)), np.finfo(np.float64).tiny)

        with torch.inference_mode():
            return row_by_row(prepared, self.dimension, features_of, self.progress)

    def pooled(self, x: Tensor) -> Tensor:
        """Return the encoder's pooled output (n, d) for records (n, prepared) that `prepare` converted, n ≥ 1.

        That is what `pooling` says, else both embeddings of a dual encoder, else the pooler's output, else the first
        token. Always the same for the same rows: what an architecture draws (ViLT shuffles patches, whose order means
        nothing) comes from a fixed seed.
        """
        import torch

        pixels, tokens = 3 * self.side**2, self.tokens
        given: dict[str, Tensor] = {}
        if self.side:
            given["pixel_values"] = x[:, :pixels].reshape(-1, 3, self.side, self.side)
        if tokens:
            given["input_ids"] = x[:, pixels : pixels + tokens].long()
            given["attention_mask"] = x[:, pixels + tokens :].long()
        if "pixel_mask" in inspect.signature(self.module.forward).parameters:
            given["pixel_mask"] = torch.ones((len(x), self.side, self.side), dtype=torch.long)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            output: Any = self.module(**given)
        if self.pooling == MEAN:
            weights = given["attention_mask"][:, :, None].to(x.dtype)
            mean: Tensor = (weights * output.last_hidden_state).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
            return mean
        pair: list[Any] = [getattr(output, name, None) for name in ("image_embeds", "text_embeds")]
        if all(part is not None for part in pair):
            return torch.cat(pair, dim=1)
        pooled: Tensor | None = None if self.pooling == FIRST else getattr(output, "pooler_output", None)
        first: Tensor = output.last_hidden_state[:, 0] if pooled is None else pooled
        return first

    def places(self, kind: str) -> tuple[Place, ...]:
        """Return the modules that this kind of adapter attaches to, in the model's order. Raises BadInput for none."""
        from torch import nn

        found = []
        for name, part in self.module.named_modules():
            if kind == BOTTLENECK:
                inner = [each for each in part.children() if isinstance(each, nn.Linear)]
                linear = inner[-1:] if FEED_FORWARD.fullmatch(type(part).__name__) else []
            else:
                is_square = isinstance(part, nn.Linear) and part.in_features == part.out_features
                linear = [part] if is_square and name.rpartition(".")[2] in PROJECTIONS else []
            found += [Place(name, each.out_features) for each in linear]
        if not found:
            what = "feed-forward blocks" if kind == BOTTLENECK else "query and value projections"
            problem = f"{type(self.module).__name__} has no {what} of a known type"
            raise BadInput(problem, remedy="give an encoder such as ViLT, CLIP, ViT or BERT")
        return tuple(found)

    @contextmanager
    def changed(self, changes: Mapping[str, Change]) -> Iterator[None]:
        """Replace the outputs of the named modules by what their `changes` return, while the context lasts."""
        modules = dict(self.module.named_modules())
        with ExitStack() as hooks:
            for name, change in changes.items():
                hook = modules[name].register_forward_hook(lambda _, given, out, change=change: change(given[0], out))
                hooks.callback(hook.remove)
            yield


def open_encoder(
    files: EncoderFiles, input_shape: tuple[int, ...], cache: FeatureCache | None, progress: Progress | None = None
) -> Encoder:
    """Load a folder's model, frozen, for records of this shape; the caller must have checked its digest.

    Raises BadInput where a part is missing, or pictures have another size than the model's.
    """
    module = load_transformer(files)
    parameters = inspect.signature(module.forward).parameters
    side, mean, deviation = files.picture_rule(module.config) if "pixel_values" in parameters else (0, (), ())
    tokenizer = files.load_tokenizer() if "input_ids" in parameters else None
    pooling = files.pooling_mode() if tokenizer is not None and not side else ""
    name = f"transformers:{files.folder.name}"
    if len(input_shape) != 1:
        problem = f"{name} takes records of a picture and a text, got {input_shape}"
        raise BadInput(problem, remedy="give a .triplets source")
    stored = side_of(input_shape[0])
    if side and stored != side:
        problem = f"{name} takes pictures of {side} × {side} pixels, the records' are {stored} × {stored}"
        raise BadInput(problem, remedy=f"scale them to {side} × {side} before")
    if side and not (len(mean) == len(deviation) == 3 and all(each > 0 for each in deviation)):
        raise BadInput(f"{name} does not normalise three channels", remedy="mend preprocessor_config.json")
    config: Any = module.config
    tokens, text = 0, getattr(config, "text_config", config)
    if tokenizer is not None:
        known = int(min(MOST_TOKENS, text.max_position_embeddings, tokenizer.model_max_length))
        tokens = files.most_tokens(known)
    length = 3 * stored**2 + TEXT_BYTES
    encoder = Encoder(name, files, module, tokenizer, side, tokens, mean, deviation, length, pooling, cache, progress)
    _try_longest(encoder)
    return encoder


def _try_longest(encoder: Encoder) -> None:
    """Raise BadInput for a model that fails on its tokenizer's last token, or on a text of the greatest length.

    A record with such a token or text would keep its member out, which would reveal it.
    """
    import torch

    words = encoder.tokenizer.get_vocab().values() if encoder.tokens else ()
    row = torch.zeros(1, encoder.prepared)
    row[:, 3 * encoder.side**2 :] = 1
    row[:, 3 * encoder.side**2 : 3 * encoder.side**2 + encoder.tokens] = max(words, default=0)
    problem = f"{encoder.name} fails at a text of {encoder.tokens} tokens up to {max(words, default=0)}"
    with refusing_failures(problem, "save the tokenizer that belongs to the model"), torch.inference_mode():
        encoder.pooled(row)


@contextmanager
def loading(library: str, level: int, problem: str, remedy: str) -> Iterator[None]:
    """Turn every exception of a library in this context into BadInput, and hide its log below `level`."""
    logger = logging.getLogger(library)
    before = logger.level
    logger.setLevel(level)
    try:
        with refusing_failures(problem, remedy):
            yield
    finally:
        logger.setLevel(before)


def load_transformer(files: EncoderFiles) -> torch.nn.Module:
    """Load the model in evaluation mode, without gradients of its weights. Raises BadInput if the folder holds none."""
    import transformers

    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    problem = f"transformers cannot load the model in {files.folder}"
    with (
        loading("transformers", logging.ERROR, problem, "give a folder that save_pretrained wrote"),
        files.alone(WEIGHTS) as folder,
    ):
        module, loaded = transformers.AutoModel.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    if absent := sorted(map(str, loaded.get("missing_keys") or loaded.get("mismatched_keys") or ())):
        problem = f"{files.folder} lacks the weights {', '.join(absent[:4])}{' …' if len(absent) > 4 else ''}"
        raise BadInput(problem, remedy="save the whole encoder with save_pretrained")
    module.eval().float().requires_grad_(False)
    return module  # type: ignore[no-any-return]  # transformers has no types
