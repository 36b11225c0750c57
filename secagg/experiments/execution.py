"""How the runs of a sweep are carried out: by which processes, which of them, and who is told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from secagg.errors import BadInput
from secagg.features import Progress
from secagg.system.engines import PROCESSES, Engine, engine_of

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """Every `of`-th run, from the one at place `index`, 1 ≤ index ≤ of: what one job of an array does."""

    index: int
    of: int

    @classmethod
    def read(cls, text: str) -> Shard:
        """Read I/N. Raises BadInput."""
        found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise BadInput(f"there is no shard {text!r}", remedy="give I/N with 1 ≤ I ≤ N, 2/16 say")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"

    def choose(self, runs: Sequence[T]) -> Sequence[T]:
        """Its own among all runs, in order."""
        return runs[self.index - 1 :: self.of]


@dataclass(frozen=True)
class Execution:
    """Which runs are made, where, and who is told.

    With a `shard` only its own are, and nothing is written but these runs. With `collect` none is: they are all there.
    """

    engine: Engine
    shard: Shard | None = None
    collect: bool = False
    progress: Progress | None = None

    @classmethod
    def of(
        cls,
        out: Path,
        workers: int | None = None,
        progress: Progress | None = None,
        engine: str = PROCESSES,
        ray: str | None = None,
        shard: str | None = None,
        collect: bool = False,
    ) -> Execution:
        """As `sweep` and `compare` take it. Raises BadInput."""
        if shard is not None and collect:
            raise BadInput("a shard makes runs, and collecting makes none", remedy="give one of both")
        if collect and not out.is_dir():
            raise BadInput(f"there is no folder {out}", remedy="give the --out of the shards")
        chosen = Shard.read(shard) if shard is not None else None
        return cls(engine_of(engine, workers, out, ray), chosen, collect, progress)

    def choose(self, runs: Sequence[T]) -> Sequence[T]:
        """Those of all runs that are asked for here."""
        return self.shard.choose(runs) if self.shard is not None else runs

    @property
    def is_whole(self) -> bool:
        """Whether what comes of it is all that was asked for, so that tables can be written."""
        return self.shard is None
