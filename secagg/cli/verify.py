"""`secagg verify`: check transcripts offline, and print what they prove."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.cli.console import Speaker, two_columns
from secagg.cli.home import at_home
from secagg.cli.options import ModelOption, OwnKeysOption, PluginOption, TrustedPlansOption, TrustedRostersOption
from secagg.errors import ExitCode, SecaggError
from secagg.verification.transcript_series import verify_together
from secagg.verification.verification import Trust, Verified


@at_home("transcripts", "tls")
def verify(
    speaker: Speaker,
    transcripts: Annotated[
        list[Path], typer.Argument(help="transcript.log of a party, with its uploads/ beside it; one for each round.")
    ],
    plans: TrustedPlansOption = None,
    rosters: TrustedRostersOption = None,
    tls: OwnKeysOption = None,
    _: ModelOption = None,
    plugin: PluginOption = None,
) -> None:
    """Check transcripts offline: chain, signatures, every step, and what they prove of the published sum.

    Every one is checked, whatever becomes of the others. Exit codes: 0 all verify, 3 one does not, 2 one cannot be
    read, 4 one is consistent and no more: nobody vouches for its keys, the round before it is not
    among them, or its vectors were purged.
    """
    trust = Trust.in_files(plans or (), rosters or (), tls or ())
    with speaker.busy(f"verifying {', '.join(map(str, transcripts))}"):
        found = verify_together(transcripts, trust)
    failures = [each for each in found if isinstance(each, SecaggError)]
    contents = [each.findings if isinstance(each, Verified) else {"failure": str(each)} for each in found]
    files = list(zip(transcripts, contents, strict=True))
    tables = [_table(path, content) for path, content in files]
    if len(transcripts) > 1:
        speaker.result({"transcripts": [{"file": str(path), **content} for path, content in files]}, *tables)
    elif not failures:
        speaker.result(contents[0], *tables)
    if failures:
        raise max(failures, key=lambda failure: failure.exit_code)
    if doubts := [doubt for each in found if isinstance(each, Verified) for doubt in each.doubts]:
        if remedies := dict.fromkeys(doubt.remedy for doubt in doubts if doubt.remedy):
            speaker.say(f"to know more, {'; '.join(remedies)}")
        raise typer.Exit(ExitCode.INCONCLUSIVE)


def _table(path: Path, content: dict[str, Any]) -> str:
    """Return the findings as text for people, with one signer a line and the identity key that `pki show` shows."""
    verdict, rows = content.get("verdict", "does not verify"), []
    for name, value in content.items():
        said = ", ".join(value) if isinstance(value, list) else str(value or "nobody")
        if name == "signers" and value:
            said = "\n".join(f"{signer}  {key}" for signer, key in value.items())
        if name != "verdict":
            rows.append((name.replace("_", " "), said))
    return two_columns(f"{path}: {verdict if verdict.startswith('consistent') else f'the transcript {verdict}'}", rows)
