"""Options that several commands share, each with the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secagg.data.named import NAMES
from secagg.data.sources import kinds_of_files
from secagg.engines import ENGINES
from secagg.protection import PROTECTIONS

PlanOption = Annotated[Path, typer.Option("--plan", help="The plan's file.")]
MethodOption = Annotated[str, typer.Option(help="The method.")]
ParametersOption = Annotated[
    str, typer.Option(help='Of the method, "slots=16 keep=0.9" say; secagg methods lists them.', metavar="NAME=VALUE …")
]
ProtectionOption = Annotated[str, typer.Option(help=f"How vectors are hidden: {', '.join(PROTECTIONS)}.")]
CovarianceOption = Annotated[str, typer.Option(help="within (default) or total (the paper's).")]
RidgeOption = Annotated[float | None, typer.Option(help="Multiplies tr(covariance)/d.")]
RefineOption = Annotated[int, typer.Option(min=0, help="Rounds of private softmax gradients after the first sum.")]
ClassGateOption = Annotated[
    int, typer.Option(min=0, help="Leave out classes that fewer honest clients than this hold; 0: no census, no gate.")
]
DeltaOption = Annotated[float | None, typer.Option(help="Needed when epsilon is finite, 1e-5 say.")]
SharesOption = Annotated[
    str | None, typer.Option(help="Blocks' shares of μ²: moments (default), equal, or BLOCK=SHARE,….")
]
BackboneOption = Annotated[
    str | None, typer.Option(help="features, pixels, random-features:M or a .pt2 file; several joined by +.")
]
ExpandOption = Annotated[int, typer.Option(min=0, help="Random ReLU features after the backbone; 0 is off.")]
CentreOption = Annotated[float, typer.Option(help="Public constant subtracted from every feature.")]
RadiusOption = Annotated[float | None, typer.Option(help="Public length that no feature vector exceeds.")]
LevelsOption = Annotated[int | None, typer.Option(min=1, help="Grid steps in a record's length; default by rule.")]
LeaveOutOption = Annotated[
    str | None,
    typer.Option(help="Records of this value are in no client and are the test records.", metavar="COLUMN=VALUE"),
]
DatasetOption = Annotated[
    str, typer.Option(help=f"{', '.join(NAMES)}, {kinds_of_files()}, or a folder of tables or of images.")
]
ImageSizeOption = Annotated[
    int | None, typer.Option(min=1, help="Folder of images: scale and cut each to a square of this side.")
]
LabelOption = Annotated[str | None, typer.Option(help="Label column of a table.")]
SchemaOption = Annotated[str | None, typer.Option(help="Schema of a table: a file or a packaged name.")]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Processes; default: one per core.")]
EngineOption = Annotated[str, typer.Option(help=f"Where they run: {', '.join(ENGINES)} (a cluster; the extra scale).")]
RayOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Of a Ray cluster, auto or HOST:PORT; default: one on this machine."),
]
ShardOption = Annotated[
    str | None, typer.Option(metavar="I/N", help="Make only every N-th run, from the I-th; writes runs and no table.")
]
CollectOption = Annotated[
    bool, typer.Option("--collect", help="Make no run: write the tables of the runs that shards have made.")
]
TrustedPlansOption = Annotated[
    list[Path] | None,
    typer.Option("--plan", help="The plan that was agreed on, which names its roster; default: those run from here."),
]
TrustedRostersOption = Annotated[
    list[Path] | None, typer.Option("--roster", help="The consortium's roster.json, to compare with the transcript's.")
]
