"""Warn of files of code among a command's arguments: backbones, methods, and values of methods' parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from secagg.features import backbone_digest, programs_in
from secagg.networks.exported import files_in
from secagg.system.plugins import admit, file_in, warning_of


def code_warnings(
    backbones: Iterable[str | None], parameters: Iterable[str] = (), methods: Iterable[str] = ()
) -> Iterator[str]:
    """Yield a warning with the digest of each file of code that no plan vouches for, before any is parsed.

    Raises BadInput for a file that cannot be read.
    """
    for path in dict.fromkeys(path for path in map(file_in, methods) if path is not None):
        yield warning_of(path, admit(path))
    given = [*(file for text in parameters for file in files_in(text)), *backbones]
    for program in dict.fromkeys(part for spec in given for part in programs_in(spec or "")):
        yield warning_of(program, backbone_digest(program))
