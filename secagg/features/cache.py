"""A cache of features on disk, so that a program extracts the same records only once.

A kept feature is as private as the record it comes from: the folder is its owner's alone, files have mode 0600, and
SECAGG_CACHE=off keeps nothing.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.features.backbone import Features

log = logging.getLogger("secagg.features")
VARIABLE = "SECAGG_CACHE"
DIGEST_BYTES = 32


@dataclass(frozen=True)
class FeatureCache:
    """A folder that caches features in files `KEY.features`: SHA-256 over key and content, then little-endian float64.

    The key is SHA-256 over the backbone's digest, the inputs (type, shape and bytes), and what else decides the last
    bits: torch's version and the kind of processor. A file that is damaged counts as absent. A folder that is not
    this user's own, or that others may write to, is neither read nor written.
    """

    folder: Path

    def recall(
        self, backbone_digest: str, inputs: NDArray[Any], dimension: int, compute: Callable[[], Features]
    ) -> Features:
        """Return the features (n, d) of inputs (n, …) from the cache, or compute and store them (failure is logged)."""
        context = (backbone_digest, version("torch"), platform.machine(), inputs.dtype.str, inputs.shape)
        digest = hashlib.sha256(f"secagg features v1: {context}\n".encode())
        digest.update(np.ascontiguousarray(inputs).data)
        key = digest.digest()
        path = self.folder / f"{key.hex()}.features"
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            status = self.folder.stat()
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                raise PermissionError(f"{self.folder} belongs to others too, or they may write to it")
            kept = _read(path, key, (len(inputs), dimension))
        except OSError as error:
            log.warning("features are not kept: %s", error)
            return compute()
        if kept is not None:
            return kept
        features = compute()
        try:
            _write(path, key, features)
        except OSError as error:
            log.warning("features are not kept: %s", error)
        return features


def user_cache() -> FeatureCache | None:
    """Return the user's cache (SECAGG_CACHE, or `secagg/features` in XDG_CACHE_HOME or ~/.cache); None if it is off."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen == "off":
        return None
    if chosen:
        return FeatureCache(Path(chosen))
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return FeatureCache((home if home.is_absolute() else Path("~/.cache").expanduser()) / "secagg" / "features")


def recall(
    cache: FeatureCache | None, digest: str, inputs: NDArray[Any], dimension: int, compute: Callable[[], Features]
) -> Features:
    """Return the features (n, d) of inputs (n, …) from the cache, if there is one and n > 0; otherwise compute them."""
    return compute() if cache is None or not len(inputs) else cache.recall(digest, inputs, dimension, compute)


def _read(path: Path, key: bytes, shape: tuple[int, int]) -> Features | None:
    """Return the features stored in a file, or None if it is absent or damaged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    body = content[DIGEST_BYTES:]
    if content[:DIGEST_BYTES] != hashlib.sha256(key + body).digest() or len(body) != 8 * shape[0] * shape[1]:
        log.warning("%s is damaged and is made again", path)
        return None
    return np.frombuffer(body, dtype="<f8").reshape(shape).astype(np.float64)


def _write(path: Path, key: bytes, features: Features) -> None:
    """Write a file under another name first and rename it, so that nobody reads half of it."""
    body = features.astype("<f8").tobytes()
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:  # mode 0600
        try:
            file.write(hashlib.sha256(key + body).digest() + body)
            file.close()
            Path(file.name).replace(path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise
