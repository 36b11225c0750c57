"""The commands: what each is for, and where it is. Its module is loaded when the command runs, not to list it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

COMMANDS = {
    "demo": ("demo:demo", "Five members build a digit classifier together; the server sees nothing but sums."),
    "server": ("server:server", "Run one session: collect protected vectors, learn their sum, build the head."),
    "client": ("client:client", "Take part in one session."),
    "aggregator": (
        "aggregator:aggregator",
        "Hold one share of every client's vector, and publish the sum of the shares.",
    ),
    "key-holder": ("key_holder:key_holder", "Make the session's key, and open one sum with it."),
    "simulate": (
        "simulate:simulate",
        "Simulate a federation: the same plan, ring, thresholds and state machines as a real one, without sockets.",
    ),
    "sweep": (
        "sweep:sweep",
        "Simulate every combination of some settings over several seeds, and compare their accuracy.",
    ),
    "compare": (
        "compare:compare",
        "Compare methods over partitions and seeds: accuracy, bytes, seconds, epsilon, and which protection ran.",
    ),
    "tune": (
        "tune:tune",
        "Find settings for a method that trains, while it trains: simulate FedPop over secure sums of scores.",
    ),
    "predict": (
        "predict:predict",
        "Say each record's class and probabilities, and how good they are on records that have labels.",
    ),
    "adapt": ("adapt:adapt_head", "Train a received head on the member's own records; nothing leaves."),
    "generate": (
        "generate:generate_pictures",
        "Make pictures from a session's slot means with a diffusion model, and train a classifier on them.",
    ),
    "verify": (
        "verify:verify",
        "Check transcripts offline: chain, signatures, every step, and what they prove of the published sum.",
    ),
    "audit": ("audit:audit", "Measure what an adversary could have learnt from what it really saw."),
    "status": (
        "status:status",
        "Say where each session of a server stands: who was heard, who is waited for, until when, or how it ended.",
    ),
    "purge": (
        "purge:purge",
        "Delete members' protected vectors of sessions that are over, and all sums and states but a plan's newest.",
    ),
    "attacks": (
        "attacks:attacks",
        "List the attacks: what each is after, what it needs to see, who published it, and which adversaries use it.",
    ),
    "canaries": (
        "canaries:canaries",
        "Make canaries, throw a fair coin for each, and put those with heads into a copy of a member's data.",
    ),
    "epsilon": ("epsilon:epsilon", "Say which epsilon an amount of noise gives, or how much noise an epsilon takes."),
    "pki": ("pki:app", "Consortium CA, certificate requests and changes of keys, member certificates, roster."),
    "join": ("join:join_by_kit", "Join a consortium by a start kit, or go on after its roster has changed."),
    "plan": ("plan:app", "Write, explain, check and countersign the plan of a session."),
    "schema": ("schema:app", "Say what the columns of a table are, in public; look at one's own."),
    "methods": (
        "methods:app",
        "List the methods and the baselines: what is summed, what a baseline lets out, and the parameters of each.",
    ),
    "backbone": ("backbone:app", "Export a pre-trained network to a .pt2 program; show digests."),
    "ledger": ("ledger:app", "What was released about this member's data sets."),
}
"""Module and name within `secagg.cli`, and the first sentence of the command's own help."""


class Loading(Mapping[str, Any]):
    """The commands by name, each made from its module when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        place, _ = COMMANDS[name]
        module, _, function = place.partition(":")
        found = getattr(import_module(f"secagg.cli.{module}"), function)
        whole = typer.Typer(rich_markup_mode=None, add_completion=False)
        if isinstance(found, typer.Typer):
            whole.add_typer(found, name=name)
        else:
            whole.command(name)(found)
        return get_group(whole).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Commands(TyperGroup):
    """The group `secagg`, whose help names every command and loads none."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": Loading()})

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write every command's name and sentence."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])
