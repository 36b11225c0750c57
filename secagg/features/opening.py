"""Open a backbone named by a text, after its digest was compared with the plan's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from secagg.errors import BadInput
from secagg.features.accelerator import Accelerator
from secagg.features.backbone import Backbone, Concatenation, Pixels, PlainInputs, Progress, digest_of_parts
from secagg.features.cache import user_cache
from secagg.features.encoder import PREFIX, EncoderFiles, open_encoder
from secagg.features.expansion import Expansion
from secagg.features.feature_map import FeatureMap
from secagg.features.latents import DIFFUSERS, DiffusionFiles, open_latents
from secagg.features.program import ProgramFile
from secagg.features.scattering import PLANNED, SCATTERING, SUITS, Scattering, refuse_other_parameters
from secagg.system.engines import Engine
from secagg.system.extras import extra

KINDS = {
    "features": "the numbers of a vector or of a table's row, as they are",
    "pixels": "a picture's pixels in [0, 1]",
    SCATTERING: f"729 wavelet numbers of a grey picture of 8 to 64 pixels a side; {SUITS}",
    "random-features:M": "M fixed random ReLU features of the numbers or pixels",
    "PATH.pt2": "an exported PyTorch network, see `secagg backbone export`",
    "transformers:FOLDER": "an encoder of pictures, texts or both",
    "diffusers:FOLDER": "the autoencoder of a latent diffusion model",
}
"""What each form of a backbone's name gives; `secagg backbone list` prints it."""
FORMS = f"{', '.join([*KINDS][:-1])} or {[*KINDS][-1]}; several joined by +"
FOLDERS = (PREFIX, DIFFUSERS)
SUFFIX = ".pt2"


@dataclass(frozen=True)
class _Closed:
    """A backbone whose digest is known, but which is not parsed yet; `parts` are its parts' digests, for refusals."""

    digest: str
    open: Callable[[Progress | None, Engine | Accelerator | None], Backbone]
    parts: str = ""


def open_backbone(
    spec: str,
    input_shape: tuple[int, ...],
    *,
    expected_digest: str | None = None,
    progress: Progress | None = None,
    engine: Engine | Accelerator | None = None,
) -> Backbone:
    """Open the backbone that `spec` names (see `FORMS`), or several backbones joined by `+`.

    `identity` means `features`. `input_shape` is one record's. `expected_digest` is the SHA-256 (hex) that the plan
    pins; it is compared before any program file is parsed. `progress` is called by programs and scattering only; over
    the same inputs they run once (see `FeatureCache`), programs in the processes of `engine` or on a graphics card,
    None: in this process. Raises BadInput for an unknown form, a shape the backbone does not take, or another digest.
    """
    if isinstance(engine, Accelerator) and not programs_in(spec):
        raise BadInput(f"{spec} is no exported program", remedy="leave out --device")
    closed = [_find(part, input_shape) for part in spec.split("+")]
    digest = digest_of_parts([part.digest for part in closed])
    if expected_digest is not None and digest != expected_digest:
        details = "".join(f" ({part.parts})" for part in closed if part.parts)
        problem = f"the backbone {spec} on inputs of shape {input_shape} has digest {digest}{details}"
        raise BadInput(problem, remedy=f"expected {expected_digest}; nothing in the file was run")
    slow = [needs_files(part) or _is_scattering(part) for part in spec.split("+")]

    def share(before: int) -> Progress | None:
        return progress and (lambda done, total: progress(before * total + done, sum(slow) * total))

    parts = tuple(part.open(share(sum(slow[:index])), engine) for index, part in enumerate(closed))
    return parts[0] if len(parts) == 1 else Concatenation(parts)


def backbone_digest(spec: str, input_shape: tuple[int, ...] | None = None) -> str:
    """Return the digest by which plans identify a backbone, without parsing any program. Raises BadInput."""
    return digest_of_parts([_find(part, input_shape).digest for part in spec.split("+")])


def programs_in(spec: str) -> tuple[str, ...]:
    """Return the program files that a spec names: each is code, which runs when the backbone is opened."""
    return tuple(part for part in spec.split("+") if part.endswith(SUFFIX))


def needs_files(spec: str) -> bool:
    """Return whether opening this backbone would read, run or fetch a program or a model."""
    return any(part.endswith(SUFFIX) or part.startswith(FOLDERS) for part in spec.split("+"))


def planned_name(spec: str) -> str:
    """Return a backbone's name in a plan: its files without their folders, scattering with parameters, joined by +."""
    return "+".join(_planned(part) for part in spec.split("+"))


def remark_on(spec: str) -> str:
    """Return for which data a backbone is, by its name alone; empty for any data."""
    return f"scattering is {SUITS}" if any(map(_is_scattering, spec.split("+"))) else ""


def _is_scattering(part: str) -> bool:
    return part.partition(":")[0] == SCATTERING


def _planned(part: str) -> str:
    form, _, folder = part.partition(":")
    if part.startswith(FOLDERS) and Path(folder).is_dir():
        return f"{form}:{Path(folder).name}"
    if _is_scattering(part):
        return PLANNED
    return Path(part).name if part.endswith(SUFFIX) else part


def _find(spec: str, shape: tuple[int, ...] | None) -> _Closed:
    if spec.endswith(SUFFIX):
        file = ProgramFile.read(Path(spec))
        return _Closed(file.digest, lambda *how: file.open(_is_known(shape, spec), user_cache(), *how))
    if spec.startswith(PREFIX):
        with extra("hf", spec):
            import transformers  # noqa: F401
        files = EncoderFiles.of(spec)
        return _Closed(
            files.digest,
            lambda progress, _: open_encoder(files, _is_known(shape, spec), user_cache(), progress),
            files.short_digests,
        )
    if spec.startswith(DIFFUSERS):
        diffusion = DiffusionFiles.of(spec)
        return _Closed(
            diffusion.digest,
            lambda progress, _: open_latents(diffusion, _is_known(shape, spec), user_cache(), progress),
            diffusion.short_digests,
        )
    form, _, parameter = spec.partition(":")
    backbone: Backbone
    if spec in ("features", "identity"):
        shape = _is_known(shape, spec)
        if len(shape) != 1:
            raise BadInput(f"{spec} takes vectors, but a record has shape {shape}", remedy="use pixels for images")
        backbone = PlainInputs(shape)
    elif spec == "pixels":
        backbone = Pixels(_is_known(shape, spec))
    elif _is_scattering(spec):
        refuse_other_parameters(parameter)
        own = Scattering(_is_known(shape, spec))
        return _Closed(own.digest, lambda progress, _: replace(own, cache=user_cache(), progress=progress))
    elif form == "random-features":
        if not (parameter.isascii() and parameter.isdigit()):
            raise BadInput(f"{spec}: M is a number of features", remedy="for example random-features:512")
        backbone = FeatureMap(Pixels(_is_known(shape, spec)), Expansion(int(parameter)))
    else:
        raise BadInput(f"unknown backbone {spec!r}", remedy=f"give {FORMS}; `secagg backbone export` makes a .pt2")
    return _Closed(backbone.digest, lambda *_how: backbone)


def _is_known(shape: tuple[int, ...] | None, spec: str) -> tuple[int, ...]:
    if shape is None:
        raise BadInput(f"the digest of {spec} depends on the shape of a record", remedy="give it, 28x28 say")
    return shape
