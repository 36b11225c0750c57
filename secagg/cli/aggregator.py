"""`secagg aggregator`: run an aggregator, a helper that sums one additive share of every client's vector."""

from __future__ import annotations

from typing import Annotated

import typer

from secagg.cli.console import PartySpeaker
from secagg.cli.helper import ServerOption, take_part
from secagg.cli.home import at_home
from secagg.cli.monitor import HookOption, MetricsOption
from secagg.cli.options import ModelOption, PlanOption, PluginOption, StateOption, TlsOption, WaitOption
from secagg.plan_facts.facts import LEAST_PATIENCE


@at_home("plan", "server", "state", "tls", "listen")
def aggregator(
    speaker: PartySpeaker,
    plan: PlanOption,
    server: ServerOption,
    state: StateOption,
    tls: TlsOption,
    listen: Annotated[str, typer.Option(help="HOST:PORT to listen on for clients; port 0 takes a free one.")],
    wait: WaitOption = LEAST_PATIENCE,
    _: ModelOption = None,
    plugin: PluginOption = None,
    metrics: MetricsOption = None,
    hook: HookOption = None,
) -> None:
    """Hold one share of every client's vector, and publish the sum of the shares. Start again after a crash."""
    take_part("aggregator", plan, server, state, tls, listen, wait, speaker, metrics, hook)
