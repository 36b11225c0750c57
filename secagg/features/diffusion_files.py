"""The files of a latent diffusion model's folder, as `diffusers` writes them: autoencoder, network and schedule.

Stable Diffusion's folder is one of these. No file is code: weights are safetensors, and of each part the class is
fixed here, whatever a config names.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from secagg.errors import BadInput
from secagg.features.backbone import digest_of
from secagg.features.encoder_files import changed, digest_files
from secagg.features.program import first_line
from secagg.system.extras import extra
from secagg.system.reading import DOCUMENT_BYTES, parse_json, read_limited

DIFFUSERS = "diffusers:"
VAE, UNET, SCHEDULER = "vae", "unet", "scheduler"
FILES = {
    VAE: ("config.json", "*.safetensors", "*.safetensors.index.json"),
    UNET: ("config.json", "*.safetensors", "*.safetensors.index.json"),
    SCHEDULER: ("scheduler_config.json",),
}
"""Which files decide what a part does; others in the folder (a text encoder, say) are not read."""
INDEX = "*.safetensors.index.json"
REMEDY = "give a folder of a latent diffusion pipeline that save_pretrained wrote, with vae/, unet/ and scheduler/"


@dataclass(frozen=True)
class DiffusionFiles:
    """A pipeline's folder, nothing of it parsed yet."""

    folder: Path

    @classmethod
    def of(cls, spec: str) -> DiffusionFiles:
        """The folder of `diffusers:FOLDER`. Raises BadInput where a part is missing."""
        files = cls(Path(spec.removeprefix(DIFFUSERS)))
        for part, (config, *weights) in FILES.items():
            inside = files.folder / part
            if not (inside / config).is_file() or (weights and not any(inside.glob(weights[0]))):
                wanted = f"{config} with *.safetensors" if weights else config
                raise BadInput(f"{files.folder} holds no {part}/ with {wanted}", remedy=REMEDY)
        return files

    @cached_property
    def parts(self) -> dict[str, str]:
        """SHA-256 (hex) of each part: over its files' names and digests, in the order of the names."""
        return {part: self._digest(part) for part in FILES}

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over all parts."""
        return digest_of("secagg diffusion v1: " + ", ".join(f"{part} {own}" for part, own in self.parts.items()))

    def told(self) -> str:
        """The parts' digests, for a refusal."""
        return ", ".join(f"{part} {own[:16]}…" for part, own in self.parts.items())

    def load_vae(self) -> Any:
        """The `AutoencoderKL`, frozen. Raises BadInput."""
        return self._load("AutoencoderKL", VAE)

    def load_unet(self) -> Any:
        """The `UNet2DConditionModel`, frozen. Raises BadInput."""
        return self._load("UNet2DConditionModel", UNET)

    def load_scheduler(self) -> Any:
        """The schedule as a `DDIMScheduler`. Raises BadInput for one that does not predict noise."""
        with extra("diffusion", f"{DIFFUSERS}{self.folder.name}"):
            import diffusers
        try:
            load: Any = diffusers.DDIMScheduler.from_pretrained
            with self._alone(SCHEDULER) as inside:
                scheduler = load(inside, local_files_only=True)
        except BadInput:
            raise
        except Exception as error:  # of the library, for whatever the folder holds
            raise BadInput(f"diffusers cannot load {self.folder / SCHEDULER}: {first_line(error)}") from error
        if scheduler.config.prediction_type != "epsilon":
            kind = scheduler.config.prediction_type
            raise BadInput(f"the network in {self.folder} predicts {kind!r}", remedy="give one that predicts epsilon")
        return scheduler

    def _load(self, kind: str, part: str) -> Any:
        """A model in evaluation, without gradients of its own. Raises BadInput for a folder that holds none."""
        with extra("diffusion", f"{DIFFUSERS}{self.folder.name}"):
            import diffusers
        quiet = logging.getLogger("diffusers")
        level = quiet.level
        quiet.setLevel(logging.CRITICAL)
        try:
            with self._alone(part) as inside:
                model, told = getattr(diffusers, kind).from_pretrained(
                    inside,
                    local_files_only=True,
                    use_safetensors=True,
                    low_cpu_mem_usage=False,
                    output_loading_info=True,
                )
        except BadInput:
            raise
        except Exception as error:  # of the library, for whatever the folder holds
            problem = f"diffusers cannot load a {kind} from {self.folder / part}: {first_line(error)}"
            raise BadInput(problem, remedy=REMEDY) from error
        finally:
            quiet.setLevel(level)
        if absent := sorted(map(str, told["missing_keys"] or told["mismatched_keys"])):
            raise BadInput(f"{self.folder / part} lacks the weights {', '.join(absent[:4])}", remedy=REMEDY)
        return model.eval().float().requires_grad_(False)

    @contextmanager
    def _alone(self, part: str) -> Iterator[Path]:
        """While it lasts, a folder with links to the files that the part's digest is over, and to no other.

        Raises BadInput for an index that names a file elsewhere: it would be read, and be in no digest; and at the end
        for files that are others by then, since what was read of them may not be what was compared, minutes ago.
        """
        compared, paths = self.parts[part], self._paths(part)
        known = {path.name for path in paths}
        for path in (self.folder / part).glob(INDEX):
            try:
                named = parse_json(read_limited(path, DOCUMENT_BYTES))["weight_map"].values()
                is_known = all(each in known for each in named)
            except (OSError, ValueError, TypeError, KeyError, AttributeError):
                is_known = False
            if not is_known:
                raise BadInput(f"{path} names files that are not beside it", remedy=REMEDY)
        with tempfile.TemporaryDirectory(prefix="secagg-") as made:
            for path in paths:
                (Path(made) / path.name).symlink_to(path.resolve())
            yield Path(made)
        if self._digest(part) != compared:
            raise changed(self.folder / part)

    def _digest(self, part: str) -> str:
        return digest_files(self._paths(part))

    def _paths(self, part: str) -> list[Path]:
        return sorted({path for pattern in FILES[part] for path in (self.folder / part).glob(pattern)})
