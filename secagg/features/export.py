"""From a network to a `.pt2` program with its preparation of images inside."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secagg.errors import BadInput
from secagg.features.network import Network
from secagg.features.program import Program, ProgramFile, first_line

if TYPE_CHECKING:
    import torch


def export_network(
    network: Network, path: Path, *, image_size: int | None = None, resize: int | None = None, layer: str | None = None
) -> Program:
    """Write a network as a program for images of `image_size` × `image_size` in [0, 1] and return it, opened.

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
    try:
        exported = torch.export.export(_prepare(network, resize, layer), (example,))
        _strip(exported)
        content = io.BytesIO()
        torch.export.save(exported, content)
    except BadInput:
        raise
    except Exception as error:
        remedy = f"its own images have {network.size} pixels a side: try --resize {network.size}"
        raise BadInput(f"the network cannot be exported: {first_line(error)}", remedy=remedy) from error
    try:
        program = ProgramFile(path, content.getvalue()).open((side, side, 3), None)
        with path.open("xb") as file:
            file.write(content.getvalue())
    except FileExistsError:
        raise BadInput(f"{path} is there already", remedy="write to another file, or remove it first") from None
    return program


def _prepare(network: Network, resize: int | None, layer: str | None) -> torch.nn.Module:
    """The network with everything before and after it that belongs into the program."""
    import torch

    features = _features_of(network, layer)
    mean, deviation = (torch.tensor(each).view(1, 3, 1, 1) for each in (network.mean, network.deviation))

    class Prepared(torch.nn.Module):
        """Images (1, 3, h, w) in [0, 1] → features (1, d)."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network.module.eval()

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            """Resize, normalise, extract, average."""
            if resize is not None:
                images = torch.nn.functional.interpolate(
                    images, size=(resize, resize), mode="bilinear", antialias=True, align_corners=False
                )
            vectors: torch.Tensor = features((images - mean) / deviation)
            if vectors.ndim == 4:
                vectors = vectors.mean(dim=(2, 3))
            if vectors.ndim != 2:
                raise BadInput(
                    f"the layer puts out {tuple(vectors.shape)}, which is no vector", remedy="name another with --layer"
                )
            return vectors

    return Prepared().requires_grad_(requires_grad=False)


def _features_of(network: Network, layer: str | None) -> Callable[[torch.Tensor], Any]:
    """The forward pass up to the features, of which it gives a copy: layers that follow may write into their input.

    Raises BadInput when there is no such layer.
    """
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
    """Drop what comes after the features, its weights, and the stack traces, which name files of this machine."""
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
