"""Files of heads and other artifacts: safetensors with metadata on their origin, and PyTorch state dictionaries."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput, describe_error
from secagg.heads.artifact import Artifact
from secagg.heads.linear import KINDS, MEANS, RECENTRING, HeadAdapter, LinearHead, Recentring
from secagg.system.reading import naming, parse_json, read_limited

if TYPE_CHECKING:
    import torch

Parsed = TypeVar("Parsed")


def to_safetensors(artifact: Artifact, metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of a safetensors file: the artifact's tensors and its own metadata, joined with `metadata`.

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
    """Write the bytes of `to_safetensors` to a file. Raises BadInput."""
    try:
        path.write_bytes(to_safetensors(artifact, metadata))
    except OSError as error:
        raise BadInput(f"cannot write the head {path} ({describe_error(error)})") from error


def load_safetensors(path: Path) -> tuple[LinearHead, dict[str, str]]:
    """Read the head that `save_safetensors` wrote. Raises BadInput for other tensors, types, shapes or values."""
    return load_as(path, parse_safetensors)


def load_as(path: Path, parse: Callable[[bytes], Parsed]) -> Parsed:
    """Read a file and return what `parse` makes of its bytes. Raises BadInput, which names the file."""
    with naming(path, "head", "head", missing="give the file of a head", damaged="have it written again"):
        return parse(read_limited(path))


def parse_safetensors(content: bytes) -> tuple[LinearHead, dict[str, str]]:
    """Return the head and its metadata from a file's bytes. Raises BadInput as `load_safetensors` does."""
    tensors, metadata = parse_tensors(content)
    if not {"weight", "bias"} <= set(tensors):
        raise BadInput(f"it holds the tensors {sorted(tensors)}, a head has `weight` and `bias`")
    weight, bias = tensors.pop("weight"), tensors.pop("bias")
    means = tensors.pop(MEANS, None)
    return LinearHead(weight, bias, _before(tensors), means), metadata


def parse_tensors(content: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return all tensors by name and the metadata from a safetensors file's bytes. Raises BadInput for other bytes."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(content)
        header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except (SafetensorError, ValueError, KeyError) as error:
        raise BadInput(f"not a safetensors file ({error})") from error
    return tensors, dict(header.get("__metadata__") or {})  # null: none


def _before(tensors: dict[str, NDArray[Any]]) -> Recentring | HeadAdapter | None:
    """Return the part before the linear layer from its tensors. Raises BadInput for any other set of tensors."""
    if not tensors:
        return None
    if set(tensors) == set(RECENTRING):
        return Recentring(*(tensors[name] for name in RECENTRING))
    kind = next((kind for kind in KINDS if f"{kind}.0.weight" in tensors), KINDS[0])
    pairs = [[f"{kind}.{layer}.{part}" for part in ("weight", "bias")] for layer in range(len(tensors) // 2)]
    if set(tensors) != {name for pair in pairs for name in pair}:
        raise BadInput(f"beside `weight` and `bias` it holds the tensors {sorted(tensors)}")
    return HeadAdapter(kind, tuple((tensors[weight], tensors[bias]) for weight, bias in pairs))


def to_linear(head: LinearHead) -> torch.nn.Linear:
    """Return the head's linear layer, without any map before it, as a `torch.nn.Linear` of equal float32 weights."""
    import torch

    classes, dimension = head.weight.shape
    linear = torch.nn.Linear(dimension, classes)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(head.weight))
        linear.bias.copy_(torch.from_numpy(head.bias))
    return linear


def save_state_dict(artifact: Artifact, path: Path) -> None:
    """Write a PyTorch state dictionary, readable by its owner: a head's linear layer, or a model's tensors by name.

    `torch.load(path, weights_only=True)` reads it. Raises BadInput where nothing can be written.
    """
    import torch

    if isinstance(artifact, LinearHead):
        content = to_linear(artifact).state_dict()
    else:
        content = {name: torch.from_numpy(tensor.copy()) for name, tensor in artifact.tensors.items()}
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))  # torch would let everybody read it
        torch.save(content, path)
    except (OSError, RuntimeError) as error:
        raise BadInput(f"cannot write the head {path} ({describe_error(error)})") from error
