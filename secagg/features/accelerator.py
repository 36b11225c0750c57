"""Extraction on a graphics card: an exported program runs on batches of one size, which zeros fill up.

A batch's records are computed together there. That a record's features are the same at each place of a batch, and
beside other records, is tried on one record when a program is opened. That proves nothing of others, so such features
are for results without noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.features.backbone import Features, Progress, digest_of

if TYPE_CHECKING:
    import torch

DEVICES = ("cuda", "mps")
BATCH = 64
"""Records of one batch."""


@dataclass(frozen=True)
class Accelerator:
    """A device of `DEVICES` (or "cpu", for tests) that extracts in batches. Raises BadInput where there is none."""

    device: str

    def __post_init__(self) -> None:
        import torch

        there: Mapping[str, Callable[[], bool]]
        there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available, "cpu": lambda: True}
        if self.device not in there:
            raise BadInput(f"unknown device {self.device!r}", remedy=f"give {' or '.join(DEVICES)}")
        if not there[self.device]():
            raise BadInput(f"torch finds no {self.device} device on this machine", remedy="leave out --device")

    @property
    def note(self) -> str:
        """The note of every result from such features."""
        own = "that each record's are its own was tried on one record, not proven"
        return f"the features were computed on {self.device}, {BATCH} records at a time: {own}"

    def digest_of(self, program: str) -> str:
        """Return the digest (SHA-256, hex) of what a program of this digest extracts here: its last bits are others."""
        return digest_of(f"secagg backbone v1: {program} on {self.device} in batches of {BATCH}")

    def module_of(self, program: torch.export.ExportedProgram) -> torch.nn.Module:
        """Return the program's module on this device."""
        from torch.export.passes import move_to_device_pass

        return move_to_device_pass(program, self.device).module()

    def extract(
        self,
        inputs: NDArray[Any],
        dimension: int,
        prepare: Callable[[NDArray[Any]], NDArray[np.float32]],
        run: Callable[[NDArray[np.float32]], Features],
        progress: Progress | None,
    ) -> Features:
        """Extract features (n, dimension): `prepare` makes one record the program's input, `run` runs one batch."""
        features = np.empty((len(inputs), dimension))
        for start in range(0, len(inputs), BATCH):
            records = np.stack([prepare(record) for record in inputs[start : start + BATCH]])
            batch = np.zeros((BATCH, *records.shape[1:]), dtype=np.float32)
            batch[: len(records)] = records
            features[start : start + BATCH] = run(batch).reshape(BATCH, -1)[: len(records)]
            if progress is not None:
                progress(start + len(records), len(inputs))
        return features


def repeatable(device: str) -> AbstractContextManager[None]:
    """Return a context in which cuDNN gives equal batches equal features, in full float32."""
    import torch

    if device != "cuda":
        return nullcontext()
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
