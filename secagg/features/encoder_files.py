"""The files of an encoder's folder: their digests by part, and what they say of tokens and pictures."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from secagg.errors import BadInput, why
from secagg.features.backbone import digest_of
from secagg.features.program import first_line
from secagg.system.extras import extra
from secagg.system.reading import DOCUMENT_BYTES, parse_json, read_limited

PREFIX = "transformers:"
WEIGHTS, TOKENIZER, PICTURES = "weights", "tokenizer", "picture processor"
PARTS: Mapping[str, tuple[str, ...]] = {
    WEIGHTS: ("config.json", "*.safetensors", "*.safetensors.index.json"),
    TOKENIZER: (
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "vocab.txt", "vocab.json", "merges.txt", "*.model",
    ),
    PICTURES: ("preprocessor_config.json", "processor_config.json"),
}  # fmt: skip
"""Which files decide what a part does; others in the folder are not read (`EncoderFiles.alone`)."""
INDEX, WEIGHT_MAP = "*.safetensors.index.json", "weight_map"
ATTENTIONS = ("eager", "sdpa")
"""What attention may be computed by: other names lead to kernels, some of them on the hub, which are code."""
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
"""Of the tokenizer's files those without one of which it knows no word."""
CHUNK = 1 << 20
Rule = tuple[int, tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class EncoderFiles:
    """A folder of `save_pretrained`, nothing of it parsed yet."""

    folder: Path

    @classmethod
    def of(cls, spec: str) -> EncoderFiles:
        """The folder of `transformers:FOLDER`, or of a model's name on the hub, which is fetched.

        Raises BadInput for a name that cannot be fetched, or a folder without config.json and *.safetensors.
        """
        name = spec.removeprefix(PREFIX)
        files = cls(Path(name) if Path(name).is_dir() else _fetch(name))
        if not (files.folder / "config.json").is_file() or not any(files.folder.glob("*.safetensors")):
            problem = f"{files.folder} holds no config.json with *.safetensors"
            raise BadInput(problem, remedy="give a folder that save_pretrained wrote; .bin files are code, not read")
        return files

    @cached_property
    def parts(self) -> Mapping[str, str]:
        """SHA-256 (hex) of each part: over its files' names and digests, in the order of the names."""
        return {part: self._digest(part) for part in PARTS}

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over all parts."""
        return digest_of("secagg encoder v1: " + ", ".join(f"{part} {own}" for part, own in self.parts.items()))

    def told(self) -> str:
        """The parts' digests, for a refusal."""
        return ", ".join(f"{part} {own[:16]}…" for part, own in self.parts.items())

    @contextmanager
    def alone(self) -> Iterator[Path]:
        """While it lasts, a folder with links to the files that the digest is over, and to no other.

        Libraries look for files by names of their own: an adapter's, a tokenizer's for a version, one that an index
        names. Raises BadInput for what leads out of the folder, or to code, and at the end for files that are others by
        then than those whose digest was compared.
        """
        compared = self.parts  # known before anything is read
        paths = [path for patterns in PARTS.values() for path in self._paths(patterns)]
        self._refuse_hidden({path.name for path in paths})
        with tempfile.TemporaryDirectory(prefix="secagg-") as made:
            for path in paths:
                (Path(made) / path.name).symlink_to(path.resolve())
            yield Path(made)
        self._refuse_changed(*compared)

    def _refuse_changed(self, *parts: str) -> None:
        if any(self._digest(part) != self.parts[part] for part in parts):
            raise changed(self.folder)

    def _refuse_hidden(self, known: set[str]) -> None:
        for path in self.folder.glob(INDEX):
            index = self._json(path.name)
            shards = index.get(WEIGHT_MAP) if isinstance(index, dict) else None
            if not isinstance(shards, dict) or not all(each in known for each in shards.values()):
                raise BadInput(f"{path} names files that are not beside it", remedy="save it with save_pretrained")
        if odd := [each for each in _implementations(self._json("config.json")) if each not in ATTENTIONS]:
            problem = f"{self.folder} asks for the implementation {odd[0]!r}, which can be code"
            raise BadInput(problem, remedy=f"leave it out of config.json, or write {' or '.join(ATTENTIONS)}")

    def load_tokenizer(self) -> Any:
        """The tokenizer. Raises BadInput for a folder without one that pads."""
        import transformers

        words = [path for pattern in VOCABULARIES for path in self.folder.glob(pattern)]
        if not words:  # transformers would make one up that knows no word
            problem = f"{self.folder} holds no tokenizer, which this model needs"
            raise BadInput(problem, remedy="save it into the folder with save_pretrained")
        try:
            with self.alone() as folder:
                tokenizer = transformers.AutoTokenizer.from_pretrained(
                    folder, local_files_only=True, trust_remote_code=False
                )
        except BadInput:
            raise
        except Exception as error:  # of the library, for whatever the folder holds
            problem = f"transformers cannot load the tokenizer in {self.folder}: {first_line(error)}"
            raise BadInput(problem, remedy="save it into the folder with save_pretrained") from error
        if tokenizer.pad_token_id is None:
            raise BadInput(f"the tokenizer in {self.folder} has no padding token", remedy="give it one")
        return tokenizer

    def picture_rule(self, config: Any) -> Rule:
        """Side, mean and deviation of the pictures. Raises BadInput for a folder that does not say how to see them."""
        rule = next(filter(None, map(self._json, PARTS[PICTURES])), None)
        self._refuse_changed(PICTURES)
        rule = rule.get("image_processor", rule) if isinstance(rule, dict) else None
        mean, deviation = (_numbers(rule, name) for name in ("image_mean", "image_std"))
        if not mean or not deviation:
            problem = f"{self.folder} holds no preprocessor_config.json with image_mean and image_std"
            raise BadInput(problem, remedy="save the processor into the folder with save_pretrained")
        side = getattr(getattr(config, "vision_config", config), "image_size", 0)
        if not isinstance(side, int) or side < 1:
            raise BadInput(f"the model in {self.folder} does not say how large its square pictures are")
        return side, mean, deviation

    def _json(self, name: str) -> Any:
        path = self.folder / name
        try:
            return parse_json(read_limited(path, DOCUMENT_BYTES)) if path.is_file() else None
        except (OSError, ValueError) as error:
            raise BadInput(f"cannot read {path} as JSON", remedy="write it again with save_pretrained") from error

    def _digest(self, part: str) -> str:
        return digest_files(self._paths(PARTS[part]))

    def _paths(self, patterns: tuple[str, ...]) -> list[Path]:
        """The files of a part, in the order of their names."""
        return sorted({path for pattern in patterns for path in self.folder.glob(pattern)})


def _implementations(value: Any) -> Iterator[str]:
    """What a configuration says that anything be computed by, at whatever depth."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        if "_implementation" in str(name):
            yield from filter(None, each.values() if isinstance(each, dict) else [each])
        else:
            yield from _implementations(each)


def _numbers(rule: Any, name: str) -> tuple[float, ...]:
    """A list of finite numbers in a rule; empty where it is none."""
    found = rule.get(name) if isinstance(rule, dict) else None
    if not isinstance(found, list) or not all(isinstance(each, int | float) for each in found):
        return ()
    return tuple(map(float, found)) if all(map(math.isfinite, found)) else ()


def changed(folder: Path) -> BadInput:
    """What is said of a folder whose files are others by now."""
    return BadInput(f"{folder} has changed since its digest was compared", remedy="put its files back, and begin again")


def digest_files(paths: Iterable[Path]) -> str:
    """SHA-256 (hex) over files' names and digests. Raises BadInput."""
    return digest_of("\n".join(f"{path.name} {_digest_file(path)}" for path in paths))


def _digest_file(path: Path) -> str:
    """SHA-256 (hex) of a file, read in pieces. Raises BadInput."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise BadInput(f"cannot read {path} ({why(error)})") from error
    return digest.hexdigest()


def _fetch(name: str) -> Path:
    """A model of the hub as a folder, without files that are code. Raises BadInput."""
    with extra("hf", f"{PREFIX}{name}"):
        from huggingface_hub import snapshot_download
    wanted = [pattern for patterns in PARTS.values() for pattern in patterns]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # no such folder, name or network
        remedy = "give a folder, or the name of a model on the hub"
        raise BadInput(f"there is no model {name}: {first_line(error)}", remedy=remedy) from error
