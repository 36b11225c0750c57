"""Read and write heads and other artifacts as safetensors files, with texts that say where they belong."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput, why
from secagg.heads.artifact import Artifact
from secagg.heads.linear import KINDS, MEANS, RECENTRING, HeadAdapter, LinearHead, Recentring
from secagg.system.reading import parse_json, read_limited

Parsed = TypeVar("Parsed")


def to_safetensors(artifact: Artifact, metadata: Mapping[str, str]) -> bytes:
    """Return a file's bytes: the artifact's tensors, what it says of itself, and a mapping of texts to texts.

    The same bytes for the same artifact and texts: the library writes texts in another order each time.
    """
    from safetensors.numpy import save

    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in artifact.tensors.items()}
    content = save(tensors)
    begin = 8 + int.from_bytes(content[:8], "little")
    texts = dict(sorted({**metadata, **artifact.texts}.items()))
    header = json.dumps({"__metadata__": texts, **parse_json(content[8:begin])}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of 8
    return len(header).to_bytes(8, "little") + header + content[begin:]


def save_safetensors(artifact: Artifact, path: Path, metadata: Mapping[str, str]) -> None:
    """Write `to_safetensors(artifact, metadata)`. Raises BadInput."""
    try:
        path.write_bytes(to_safetensors(artifact, metadata))
    except OSError as error:
        raise BadInput(f"cannot write the head {path} ({why(error)})") from error


def load_safetensors(path: Path) -> tuple[LinearHead, dict[str, str]]:
    """Read what `save_safetensors` wrote. Raises BadInput for other tensors, types, shapes or values."""
    return load_as(path, parse_safetensors)


def load_as(path: Path, parse: Callable[[bytes], Parsed]) -> Parsed:
    """Return what `parse` makes of a file's bytes. Raises BadInput with the file's name, also where `parse` does."""
    try:
        return parse(read_limited(path))
    except OSError as error:
        raise BadInput(f"cannot read the head {path} ({error.strerror})") from error
    except BadInput as error:
        raise BadInput(f"{path}: {error.problem}", remedy=error.remedy) from error


def parse_safetensors(content: bytes) -> tuple[LinearHead, dict[str, str]]:
    """The head and its metadata from a file's bytes. Raises BadInput as `load_safetensors` does."""
    tensors, metadata = parse_tensors(content)
    if not {"weight", "bias"} <= set(tensors):
        raise BadInput(f"it holds the tensors {sorted(tensors)}, a head has `weight` and `bias`")
    weight, bias = tensors.pop("weight"), tensors.pop("bias")
    means = tensors.pop(MEANS, None)
    return LinearHead(weight, bias, _before(tensors), means), metadata


def parse_tensors(content: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Every tensor by name, and the metadata, from a file's bytes. Raises BadInput for no safetensors file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(content)
        header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except (SafetensorError, ValueError, KeyError) as error:
        raise BadInput(f"not a safetensors file ({error})") from error
    return tensors, dict(header.get("__metadata__") or {})  # null: none


def _before(tensors: dict[str, NDArray[Any]]) -> Recentring | HeadAdapter | None:
    """Return what stands before the linear layer, of its tensors. Raises BadInput for any other set of them."""
    if not tensors:
        return None
    if set(tensors) == set(RECENTRING):
        return Recentring(*(tensors[name] for name in RECENTRING))
    kind = next((kind for kind in KINDS if f"{kind}.0.weight" in tensors), KINDS[0])
    pairs = [[f"{kind}.{layer}.{part}" for part in ("weight", "bias")] for layer in range(len(tensors) // 2)]
    if set(tensors) != {name for pair in pairs for name in pair}:
        raise BadInput(f"beside `weight` and `bias` it holds the tensors {sorted(tensors)}")
    return HeadAdapter(kind, tuple((tensors[weight], tensors[bias]) for weight, bias in pairs))
