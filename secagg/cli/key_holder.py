"""`secagg key-holder`: the helper of a protection that encrypts."""

from __future__ import annotations

from secagg.cli.console import JsonOption, QuietOption, Speaker
from secagg.cli.helper import ServerOption, take_part
from secagg.cli.options import ModelOption, PlanOption, PluginOption, StateOption, TlsOption, WaitOption
from secagg.plan_facts.facts import LEAST_PATIENCE


def key_holder(
    plan: PlanOption,
    server: ServerOption,
    state: StateOption,
    tls: TlsOption,
    wait: WaitOption = LEAST_PATIENCE,
    _: ModelOption = None,
    plugin: PluginOption = None,
    json_to: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Make the session's key, and open one sum with it. Start again after a crash."""
    take_part("key-holder", plan, server, state, tls, None, wait, Speaker(quiet=quiet, json_to=json_to, dated=True))
