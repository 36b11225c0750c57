"""The files of an encoder's folder: their digests by part, and what they say of tokens and pictures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from secagg.errors import BadInput, why
from secagg.extras import extra
from secagg.features.backbone import digest_of
from secagg.features.program import first_line
from secagg.reading import DOCUMENT_BYTES, parse_json, read_limited

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
"""Which files decide what a part does; others in the folder are not read."""
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
        return {part: digest_of("\n".join(self._lines(patterns))) for part, patterns in PARTS.items()}

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over all parts."""
        return digest_of("secagg encoder v1: " + ", ".join(f"{part} {own}" for part, own in self.parts.items()))

    def told(self) -> str:
        """The parts' digests, for a refusal."""
        return ", ".join(f"{part} {own[:16]}…" for part, own in self.parts.items())

    def load_tokenizer(self) -> Any:
        """The tokenizer. Raises BadInput for a folder without one that pads."""
        import transformers

        words = [path for pattern in VOCABULARIES for path in self.folder.glob(pattern)]
        if not words:  # transformers would make one up that knows no word
            problem = f"{self.folder} holds no tokenizer, which this model needs"
            raise BadInput(problem, remedy="save it into the folder with save_pretrained")
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                self.folder, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # of the library, for whatever the folder holds
            problem = f"transformers cannot load the tokenizer in {self.folder}: {first_line(error)}"
            raise BadInput(problem, remedy="save it into the folder with save_pretrained") from error
        if tokenizer.pad_token_id is None:
            raise BadInput(f"the tokenizer in {self.folder} has no padding token", remedy="give it one")
        return tokenizer

    def picture_rule(self, config: Any) -> Rule:
        """Side, mean and deviation of the pictures. Raises BadInput for a folder that does not say how to see them."""
        rule = next(filter(None, map(self._json, PARTS[PICTURES])), None)
        rule = rule.get("image_processor", rule) if rule else None
        if not rule or not rule.get("image_mean") or not rule.get("image_std"):
            problem = f"{self.folder} holds no preprocessor_config.json with image_mean and image_std"
            raise BadInput(problem, remedy="save the processor into the folder with save_pretrained")
        side = getattr(getattr(config, "vision_config", config), "image_size", 0)
        if not isinstance(side, int) or side < 1:
            raise BadInput(f"the model in {self.folder} does not say how large its square pictures are")
        return side, tuple(map(float, rule["image_mean"])), tuple(map(float, rule["image_std"]))

    def _json(self, name: str) -> Any:
        path = self.folder / name
        try:
            return parse_json(read_limited(path, DOCUMENT_BYTES)) if path.is_file() else None
        except (OSError, ValueError) as error:
            raise BadInput(f"cannot read {path} as JSON", remedy="save the processor again") from error

    def _lines(self, patterns: tuple[str, ...]) -> Iterator[str]:
        for path in sorted({path for pattern in patterns for path in self.folder.glob(pattern)}):
            yield f"{path.name} {digest_file(path)}"


def digest_file(path: Path) -> str:
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
