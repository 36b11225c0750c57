"""`secagg backbone`: export pre-trained networks as .pt2 programs, and print the digests for plans and policies."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from secagg.cli.console import Speaker, refuse_existing, two_columns
from secagg.errors import BadInput
from secagg.features import backbone_digest
from secagg.features.opening import KINDS

app = typer.Typer(
    help="List backbones; export a pre-trained network to a .pt2 program; show digests.", no_args_is_help=True
)

NormalisationOption = Annotated[
    str | None, typer.Option(help="Three numbers, comma-separated; default: the network's.")
]


@app.command("list")
def list_kinds(speaker: Speaker) -> None:
    """List what --backbone takes and what each gives. Which one for which data: secagg/features/README.md."""
    speaker.result(KINDS, two_columns("backbones", list(KINDS.items())))


@app.command("export")
def export(
    speaker: Speaker,
    network: Annotated[
        str,
        typer.Argument(help="torchvision:NAME[/WEIGHTS], timm:NAME, open_clip:ARCH/PRETRAINED or transformers:NAME."),
    ],
    out: Annotated[Path, typer.Option("--out", help="The .pt2 file to write.")],
    image_size: Annotated[
        int | None, typer.Option(min=1, help="Side of the data's images in pixels; default: the network's own.")
    ] = None,
    resize: Annotated[int | None, typer.Option(min=1, help="Resize them to this side inside the program.")] = None,
    layer: Annotated[
        str | None, typer.Option(help="Take this layer's output (averaged over places); default: what the head takes.")
    ] = None,
    mean: NormalisationOption = None,
    deviation: NormalisationOption = None,
) -> None:
    """Write a network and its normalisation as a program; nothing else is needed to use it afterwards.

    The file is code to whoever opens it: members trust it by its digest. torchvision, timm and open_clip come with
    the extra `vision`, transformers with `hf`.
    """
    from secagg.features.export import export_network, load_network

    refuse_existing(out)
    means, deviations = _three("mean", mean), _three("deviation", deviation)
    with speaker.busy(f"exporting {network}"):
        loaded = load_network(network)
        chosen = replace(loaded, mean=means or loaded.mean, deviation=deviations or loaded.deviation)
        program = export_network(chosen, out, image_size=image_size, resize=resize, layer=layer)
    content = {
        "network": network,
        "file": str(out),
        "digest": program.digest,
        "dimension": program.dimension,
        "input_shape": list(program.input_shape),
    }
    images = "×".join(str(size) for size in program.input_shape[1:])
    rows = [("digest", program.digest), ("features", str(program.dimension)), ("images", f"{images}, colour or grey")]
    speaker.result(content, two_columns(str(out), rows))


@app.command("adapter")
def adapter(
    speaker: Speaker,
    model: Annotated[Path, typer.Argument(help="head.safetensors or personal-NAME.safetensors of the method feddat.")],
    backbone: Annotated[str, typer.Option(help="transformers:FOLDER, the encoder of the plan.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
) -> None:
    """Write a trained adapter as other libraries read it: LoRA as peft does, with the head where there is one."""
    from secagg.features.pipeline import Pipeline
    from secagg.heads import load_as
    from secagg.networks import read_model
    from secagg.networks.trained_model import write_adapter

    refuse_existing(out)
    trained, metadata = load_as(model, read_model)
    with speaker.busy(f"opening {backbone}"):
        encoder = Pipeline.of_metadata(metadata).feature_map(backbone).encoder
        paths = write_adapter(trained, encoder, out)
    content = {"program": trained.program.name, "files": [str(path) for path in paths]}
    rows = [("adapter", trained.program.name), *((path.name, f"{path.stat().st_size} bytes") for path in paths)]
    speaker.result(content, two_columns(str(out), rows))


@app.command("digest")
def digest(
    speaker: Speaker,
    backbone: Annotated[str, typer.Argument(help="A .pt2 file, transformers:FOLDER, pixels, …; several joined by +.")],
    shape: Annotated[
        str | None, typer.Option(help="One record, 28x28 or 32x32x3 or 13; all but a .pt2 file depends on it.")
    ] = None,
) -> None:
    """Print the SHA-256 that stands in plans and policies. No program is run."""
    parts = shape.lower().split("x") if shape else []
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise BadInput(f"--shape cannot be {shape!r}", remedy="give 28x28, 32x32x3 or 13, for example")
    found = backbone_digest(backbone, tuple(map(int, parts)) or None)
    speaker.result({"backbone": backbone, "digest": found}, found)


def _three(name: str, text: str | None) -> tuple[float, ...]:
    """Return the three numbers of the option --mean or --deviation; () where it is not given. Raises BadInput."""
    if text is None:
        return ()
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != 3 or not all(map(math.isfinite, values)) or (name == "deviation" and min(values) <= 0):
        raise BadInput(f"--{name} cannot be {text!r}", remedy="give three numbers, 0.4914,0.4822,0.4465 for example")
    return values
