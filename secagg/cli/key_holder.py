"""`secagg key-holder`: run a key holder, the helper that makes the encryption key and decrypts the sum."""

from __future__ import annotations

from secagg.cli.console import PartySpeaker
from secagg.cli.helper import ServerOption, take_part
from secagg.cli.home import at_home
from secagg.cli.monitor import HookOption, MetricsOption
from secagg.cli.options import ModelOption, PlanOption, PluginOption, StateOption, TlsOption, WaitOption
from secagg.plan_facts.facts import LEAST_PATIENCE


@at_home("plan", "server", "state", "tls")
def key_holder(
    speaker: PartySpeaker,
    plan: PlanOption,
    server: ServerOption,
    state: StateOption,
    tls: TlsOption,
    wait: WaitOption = LEAST_PATIENCE,
    _: ModelOption = None,
    plugin: PluginOption = None,
    metrics: MetricsOption = None,
    hook: HookOption = None,
) -> None:
    """Make the session's key, and open one sum with it. Start again after a crash."""
    take_part("key-holder", plan, server, state, tls, None, wait, speaker, metrics, hook)
