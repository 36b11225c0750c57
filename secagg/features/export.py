"""Export a network of torchvision, timm, open_clip or transformers as a `.pt2` program for raw images.

These libraries come with extras and are needed for exporting only: afterwards the `.pt2` file stands alone.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secagg.errors import BadInput
from secagg.features.program import FrozenNetwork, ProgramFile, first_line, refusing_failures

if TYPE_CHECKING:
    import torch

EXTRAS = {"torchvision": "vision", "timm": "vision", "open_clip": "vision", "transformers": "hf"}
"""The extra of this package that installs each library."""
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
    size = visual.image_size[0] if isinstance(visual.image_size, tuple) else visual.image_size
    return Network(visual, tuple(visual.image_mean), tuple(visual.image_std), size, has_head=False)


def _transformers(name: str) -> Network:
    import torch
    import transformers

    model = transformers.AutoModel.from_pretrained(name).float()
    prepared, _ = transformers.ImageProcessingMixin.get_image_processor_dict(name)
    vision = getattr(model.config, "vision_config", model.config)
    size = getattr(vision, "image_size", IMAGENET_SIZE)

    class Vectors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, images: torch.Tensor) -> Any:
            """Return CLIP's image embedding, or the pooled output or first token: (1, d), or (1, d, h, w) of a CNN."""
            embed = getattr(self.model, "get_image_features", self.model)
            output = embed(pixel_values=images)
            if isinstance(output, torch.Tensor):
                return output
            pooled = getattr(output, "pooler_output", None)
            return output.last_hidden_state[:, 0] if pooled is None else pooled

    return Network(Vectors(), tuple(prepared["image_mean"]), tuple(prepared["image_std"]), size, has_head=False)


_LOADERS = {"torchvision": _torchvision, "timm": _timm, "open_clip": _open_clip, "transformers": _transformers}


def export_network(
    network: Network, path: Path, *, image_size: int | None = None, resize: int | None = None, layer: str | None = None
) -> FrozenNetwork:
    """Export a network for images of `image_size` × `image_size` in [0, 1] to `path`; return it, loaded as a backbone.

    Inside the program: bilinear resizing to `resize` × `resize` where given, (x − mean) / deviation, the network up
    to the output of `layer` (default: the input of its last linear layer, or its output where it has no head), and
    the average over the places of a feature map. `image_size` None is the size the network was made for. Weights
    that the features do not need are left out, and so are the names of this machine's files.
    Raises BadInput when the file exists, when there is no such layer, or when the network cannot be exported or does
    not put out one vector per image.
    """
    import torch

    if path.suffix != ".pt2":
        raise BadInput(f"a program is a .pt2 file, not {path}", remedy=f"write to {path.with_suffix('.pt2')}")
    side = image_size or network.size
    example = torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    content = io.BytesIO()
    remedy = f"its own images have {network.size} pixels a side: try --resize {network.size}"
    with refusing_failures("the network cannot be exported", remedy):
        exported = torch.export.export(_prepare(network, resize, layer), (example,))
        _strip(exported)
        torch.export.save(exported, content)
    try:
        program = ProgramFile(path, content.getvalue()).open((side, side, 3), None)
        with path.open("xb") as file:
            file.write(content.getvalue())
    except FileExistsError:
        raise BadInput(f"{path} is there already", remedy="write to another file, or remove it first") from None
    return program


def _prepare(network: Network, resize: int | None, layer: str | None) -> torch.nn.Module:
    """Return the network as a module from raw images to features, with its preparation and feature layer included."""
    import torch

    features = _features_of(network, layer)
    mean, deviation = (torch.tensor(each).view(1, 3, 1, 1) for each in (network.mean, network.deviation))

    class Prepared(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network.module.eval()

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            """Map images (1, 3, h, w) in [0, 1] to features (1, d)."""
            if resize is not None:
                images = torch.nn.functional.interpolate(
                    images, size=(resize, resize), mode="bilinear", antialias=True, align_corners=False
                )
            vectors: torch.Tensor = features((images - mean) / deviation)
            if vectors.ndim == 4:
                vectors = vectors.mean(dim=(2, 3))
            if vectors.ndim != 2:
                problem = f"the layer puts out {tuple(vectors.shape)}, which is no vector"
                raise BadInput(problem, remedy="name another with --layer")
            return vectors

    return Prepared().requires_grad_(requires_grad=False)


def _features_of(network: Network, layer: str | None) -> Callable[[torch.Tensor], Any]:
    """Return the forward pass up to a copy of the features (later layers may overwrite them). Raises BadInput."""
    import torch

    module = network.module
    if layer is None and not network.has_head:
        return lambda images: module(images).clone()
    layers = dict(module.named_modules())
    if layer is not None and (not layer or layer not in layers):
        names = ", ".join(name for name, _ in module.named_children())
        raise BadInput(f"the network has no layer {layer!r}", remedy=f"it has {names}, and layers inside them")
    linear = [each for each in layers.values() if isinstance(each, torch.nn.Linear)]
    if layer is None and not linear:
        raise BadInput("the network has no linear layer whose input could be the features", remedy="name a --layer")

    def forward(images: torch.Tensor) -> Any:
        seen: list[Any] = []
        if layer is None:
            hook = linear[-1].register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0].clone()))
        else:
            hook = layers[layer].register_forward_hook(lambda _module, _inputs, output: seen.append(output.clone()))
        try:
            module(images)
        finally:
            hook.remove()
        if len(seen) != 1:
            problem = f"the network uses its layer {layer or 'before the head'} {len(seen)} times"
            raise BadInput(problem, remedy="name another with --layer")
        return seen[0]

    return forward


def _strip(exported: torch.export.ExportedProgram) -> None:
    """Remove what follows the features, its weights, and the stack traces, which name files of this machine."""
    import torch

    graph, signature = exported.graph, exported.graph_signature
    nodes = list(graph.nodes)
    needed = {nodes[-1]}
    for node in reversed(nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    copies = [index for index, node in enumerate(nodes) if node.target is torch.ops.aten.clone.default]
    features = max(index for index in copies if nodes[index] in needed)
    for node in reversed(nodes[features:]):
        if node not in needed:
            graph.erase_node(node)
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    unused = {node.name: node for node in graph.nodes if node.name in weights and not node.users}
    for name, node in unused.items():
        graph.erase_node(node)
        exported.state_dict.pop(weights[name], None)
    signature.input_specs = [each for each in signature.input_specs if getattr(each.arg, "name", None) not in unused]
    for node in graph.nodes:
        node.meta.pop("stack_trace", None)
    exported.graph_module.recompile()
