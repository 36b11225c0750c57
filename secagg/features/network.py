"""Networks of torchvision, timm, open_clip and transformers, as something that can be exported.

These libraries come with extras and are needed for exporting only: afterwards the `.pt2` file stands alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from secagg.errors import BadInput
from secagg.features.program import first_line

if TYPE_CHECKING:
    import torch

EXTRAS = {"torchvision": "vision", "timm": "vision", "open_clip": "vision", "transformers": "hf"}
"""Which extra brings which library."""
IMAGENET_SIZE = 224


@dataclass(frozen=True, eq=False)
class Network:
    """A pre-trained network and how its images are prepared.

    `module` takes float32 images (1, 3, h, w) after (x − mean) / deviation, x in [0, 1]. `size`: the side of the
    images it was trained on. `has_head`: it ends in a classifier, so that its features are the last linear layer's
    input; otherwise its output is the features.
    """

    module: torch.nn.Module
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    size: int
    has_head: bool


def load_network(spec: str) -> Network:
    """Load `torchvision:NAME[/WEIGHTS]`, `timm:NAME`, `open_clip:ARCH/PRETRAINED` or `transformers:NAME`.

    Weights come from the library's own store (downloaded, or already there). Raises BadInput when the library is not
    installed, or cannot load the name.
    """
    library, _, name = spec.partition(":")
    if library not in _LOADERS or not name:
        remedy = "give torchvision:NAME, timm:NAME, open_clip:ARCH/PRETRAINED or transformers:NAME"
        raise BadInput(f"there is no network {spec!r} to export", remedy=remedy)
    try:
        return _LOADERS[library](name)
    except BadInput:
        raise
    except ModuleNotFoundError as error:
        remedy = f"pip install 'secagg[{EXTRAS[library]}]'"
        raise BadInput(f"{spec} needs the library {error.name}, which is not installed", remedy=remedy) from error
    except Exception as error:
        remedy = "check the name, the library and the connection"
        raise BadInput(f"{library} cannot load {name}: {first_line(error)}", remedy=remedy) from error


def _torchvision(name: str) -> Network:
    from torchvision.models import get_model, get_model_weights

    model, _, weights = name.partition("/")
    chosen = get_model_weights(model)[weights or "DEFAULT"]
    prepared = chosen.transforms()
    module = get_model(model, weights=chosen)
    return Network(module, tuple(prepared.mean), tuple(prepared.std), prepared.crop_size[0], has_head=True)


def _timm(name: str) -> Network:
    import timm

    module = timm.create_model(name, pretrained=True, num_classes=0)
    prepared = timm.data.resolve_model_data_config(module)
    return Network(module, prepared["mean"], prepared["std"], prepared["input_size"][-1], has_head=False)


def _open_clip(name: str) -> Network:
    import open_clip

    architecture, _, weights = name.rpartition("/")
    if not architecture:
        raise BadInput(f"open_clip:{name} names no weights", remedy="open_clip:ViT-B-32/openai, for example")
    visual = open_clip.create_model(architecture, pretrained=weights).visual
    size = visual.image_size
    return Network(
        visual,
        tuple(visual.image_mean),
        tuple(visual.image_std),
        size[0] if isinstance(size, tuple) else size,
        has_head=False,
    )


def _transformers(name: str) -> Network:
    import transformers

    model = transformers.AutoModel.from_pretrained(name).float()
    prepared, _ = transformers.ImageProcessingMixin.get_image_processor_dict(name)
    vision = getattr(model.config, "vision_config", model.config)
    size = getattr(vision, "image_size", IMAGENET_SIZE)
    return Network(
        _vectors_of(model), tuple(prepared["image_mean"]), tuple(prepared["image_std"]), size, has_head=False
    )


def _vectors_of(model: Any) -> torch.nn.Module:
    """A transformers model as images → vectors: CLIP's image embedding, else the pooled output or the first token."""
    import torch

    class Vectors(torch.nn.Module):
        """Takes the one tensor out of the model's output."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, images: torch.Tensor) -> Any:
            """(1, 3, h, w) → (1, d), or (1, d, h, w) from a convolutional network."""
            embed = getattr(self.model, "get_image_features", self.model)
            output = embed(pixel_values=images)
            if isinstance(output, torch.Tensor):
                return output
            pooled = getattr(output, "pooler_output", None)
            return output.last_hidden_state[:, 0] if pooled is None else pooled

    return Vectors()


_LOADERS: dict[str, Callable[[str], Network]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "open_clip": _open_clip,
    "transformers": _transformers,
}
