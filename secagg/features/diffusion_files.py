"""The files of a latent diffusion model's folder, as `diffusers` writes them: autoencoder, network and schedule.

Stable Diffusion's folder is one of these. No file is code: weights are safetensors, and of each part the class is
fixed here, whatever a config names.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from secagg.errors import BadInput
from secagg.extras import extra
from secagg.features.backbone import digest_of
from secagg.features.encoder_files import digest_file
from secagg.features.program import first_line

DIFFUSERS = "diffusers:"
VAE, UNET, SCHEDULER = "vae", "unet", "scheduler"
FILES = {
    VAE: ("config.json", "*.safetensors", "*.safetensors.index.json"),
    UNET: ("config.json", "*.safetensors", "*.safetensors.index.json"),
    SCHEDULER: ("scheduler_config.json",),
}
"""Which files decide what a part does; others in the folder (a text encoder, say) are not read."""
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
        return {part: digest_of("\n".join(self._lines(part))) for part in FILES}

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
            scheduler = load(self.folder / SCHEDULER, local_files_only=True)
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
            model, told = getattr(diffusers, kind).from_pretrained(
                self.folder / part,
                local_files_only=True,
                use_safetensors=True,
                low_cpu_mem_usage=False,
                output_loading_info=True,
            )
        except Exception as error:  # of the library, for whatever the folder holds
            problem = f"diffusers cannot load a {kind} from {self.folder / part}: {first_line(error)}"
            raise BadInput(problem, remedy=REMEDY) from error
        finally:
            quiet.setLevel(level)
        if absent := sorted(map(str, told["missing_keys"] or told["mismatched_keys"])):
            raise BadInput(f"{self.folder / part} lacks the weights {', '.join(absent[:4])}", remedy=REMEDY)
        return model.eval().float().requires_grad_(False)

    def _lines(self, part: str) -> list[str]:
        paths = sorted({path for pattern in FILES[part] for path in (self.folder / part).glob(pattern)})
        return [f"{path.name} {digest_file(path)}" for path in paths]
