"""`read_results`: read results.json files of sweeps or comparisons, and make their tables and figures again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from secagg.errors import BadInput, describe_error, require_type
from secagg.experiments.comparison import Comparison
from secagg.experiments.provenance import provenance_of
from secagg.experiments.results import Run, listed
from secagg.experiments.sweep import Contender, SweepResult, distinct
from secagg.experiments.tables import digest_of
from secagg.system.reading import parse_json
from secagg.wire import plain

SEVERAL = "{} runs stand in several files; the first of each counts"
OTHERS = "the runs of these files were made by different code or versions of libraries"


def read_results(*files: Path | str) -> SweepResult | Comparison:
    """Return the runs of one or several results.json of sweeps, or of comparisons, over the same data as one result.

    `write` makes its tables and figures again, and no run is repeated. Of runs with equal settings that stand in
    several files the first counts. Raises BadInput for files of different kinds or data, and for runs that were changed
    since.

    >>> read_results("a/results.json", "b/results.json").write(Path("both"))  # doctest: +SKIP
    """
    contents = [_read(file) for file in files]
    if not contents:
        raise BadInput("there is no file to read", remedy="give one results.json or more")
    for name, what in (("data_sha256", "data"), ("is_comparison", "kinds of result"), ("protection", "protections")):
        if len({each[name] for each in contents}) > 1:
            raise BadInput(f"{', '.join(map(str, files))} are of different {what}", remedy="read each by itself")
    every = [_run(each) for content in contents for each in content["runs"]]
    kept: dict[str, Run] = {}
    for run in every:
        kept.setdefault(json.dumps(plain(run.settings), sort_keys=True), run)
    runs = tuple(kept.values())
    distinct(Contender(run.settings["method"], run.settings["parameters"], run.name) for run in runs)
    several = [SEVERAL.format(len(every) - len(runs))] if len(every) > len(runs) else []
    makers = [each["provenance"]["made_by"] for each in contents]
    others = [OTHERS] if any(each != makers[0] for each in makers) else []
    notes = (*several, *others, *listed(runs, "notes"))
    origin = provenance_of([], contents[0]["data_sha256"])
    origin["made_from"] = [
        {"file": str(file), **each["provenance"]} for file, each in zip(files, contents, strict=True)
    ]
    dataset = str(contents[0]["dataset"])
    if not contents[0]["is_comparison"]:
        return SweepResult(dataset, runs, notes, len(runs), origin)
    idle = tuple(dict.fromkeys(name for each in contents for name in each["inapplicable"]))
    return Comparison(dataset, str(contents[0]["protection"]), runs, idle, notes, origin)


def _read(file: Path | str) -> dict[str, Any]:
    """Return the content of a results.json, with the digest of its data and whether it is a comparison's."""
    require_type("a file of results", file, (str, PathLike), "the name of a results.json")
    try:
        content = parse_json(Path(file).read_bytes())
        is_changed = content["runs_sha256"] != digest_of(content["runs"])
        provenance = content["provenance"]
        found = {"protection": None, "inapplicable": (), **content, "data_sha256": provenance["data_sha256"]}
    except OSError as error:
        raise BadInput(f"cannot read {file} ({describe_error(error)})", remedy="give a results.json") from None
    except (ValueError, KeyError, TypeError):
        raise BadInput(
            f"{file} is no results.json of a sweep or comparison", remedy="give one of this version"
        ) from None
    if is_changed:
        raise BadInput(f"the runs in {file} were changed after it was written", remedy="run its command again")
    return {**found, "is_comparison": "columns" in content}


def _run(content: Mapping[str, Any]) -> Run:
    settings = {**content["settings"], "epsilon": float(content["settings"]["epsilon"])}
    return Run(settings, content["result"], content["refused"], content["unprotected_because"], content["name"])
