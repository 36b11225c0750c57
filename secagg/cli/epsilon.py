"""`secagg epsilon`: compute ε from an amount of noise, or the noise that an ε takes."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from secagg.cli.console import Speaker, speaking, two_columns
from secagg.privacy import Adjacency, Mechanism
from secagg.privacy.claim import format_epsilon
from secagg.privacy.epsilon import MOST_SHARES, MOST_TIMES, USUAL_SIGMA, promised
from secagg.privacy.sampler import LARGEST_SIGMA
from secagg.privacy.subsampled import MOST_STEPS


@speaking
def epsilon(
    speaker: Speaker,
    delta: Annotated[
        float, typer.Option(help="δ: probability with which the ε guarantee may fail, above 0 and below 1.")
    ],
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise of the whole sum, in units of the sensitivity: σ/Δ.")
    ] = None,
    target_epsilon: Annotated[
        float | None, typer.Option(help="Compute the noise multiplier for this epsilon instead.")
    ] = None,
    adjacency: Annotated[
        Adjacency | None, typer.Option(help="The one that the sensitivity Δ was taken for; it goes into the result.")
    ] = None,
    mechanism: Annotated[
        Mechanism, typer.Option(help="gaussian: one party's noise, exact. discrete-shares: one share per client.")
    ] = Mechanism.GAUSSIAN,
    shares: Annotated[int, typer.Option(min=1, max=MOST_SHARES, help="Noise shares in the whole sum.")] = 1,
    grid_sigma: Annotated[
        float,
        typer.Option(
            max=LARGEST_SIGMA, help="σ of one share in grid units, at least; the sum's variance counts as 3 less."
        ),
    ] = USUAL_SIGMA,
    coordinates: Annotated[int, typer.Option(min=1, max=MOST_TIMES, help="Length of the summed vector.")] = 1,
    dropped: Annotated[int, typer.Option(min=0, help="Noise shares that may be missing.")] = 0,
    colluding: Annotated[int, typer.Option(min=0, help="Noise shares that the adversary knows.")] = 0,
    sessions: Annotated[int, typer.Option(min=1, max=MOST_TIMES, help="Releases about the same data.")] = 1,
    sampling: Annotated[
        float | None, typer.Option(help="Of training (DP-SGD): a record's chance to be in a step. Δ is the clip.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, max=MOST_STEPS, help="Steps of training in a round.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, max=MOST_STEPS, help="Rounds of training.")] = 1,
) -> None:
    """Say which epsilon an amount of noise gives, or how much noise an epsilon takes. Rounded up, never down."""
    content = promised(
        delta,
        noise_multiplier=noise_multiplier,
        target_epsilon=target_epsilon,
        adjacency=adjacency,
        mechanism=mechanism,
        shares=shares,
        grid_sigma=grid_sigma,
        coordinates=coordinates,
        dropped=dropped,
        colluding=colluding,
        sessions=sessions,
        sampling=sampling,
        steps=steps,
        rounds=rounds,
    )
    rows = [
        ("epsilon", f"{format_epsilon(content['epsilon'])} at delta {delta:g}"),
        ("noise multiplier", f"{math.ceil(content['noise_multiplier'] * 1e6) / 1e6:.6f} (σ/Δ)"),
        ("adjacency", content["adjacency"] or "the one that Δ was taken for (--adjacency)"),
        ("mechanism", mechanism.value),
        ("sessions", str(sessions)),
    ]
    if sampling is not None:
        rows.append(("training", f"{steps * rounds} steps, a record in each with probability {sampling:g}"))
    if "honest_shares" in content:
        honest = f"{content['honest_shares']} of {shares}, each of at least {grid_sigma:g} grid units"
        rows.append(("honest shares", honest))
    speaker.result(content, two_columns("Privacy of a release", rows))
