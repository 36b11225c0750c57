"""A party's folder (--home): its plan, policy, state, keys and addresses, which stand in for a command's options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from secagg.agreement.plan import read_plan
from secagg.agreement.roster import SERVER_INDEX, read_roster
from secagg.cli.console import give_options
from secagg.errors import BadInput
from secagg.protection import protection_named
from secagg.system.reading import DOCUMENT_BYTES, each_field_once, naming, parse_json, read_document, read_limited
from secagg.transcript import FILE_NAME
from secagg.transport.certificates import certificate_names, read_certificate
from secagg.transport.kit import ADDRESSES_FILE, PLAN_FILE, TLS, check_addresses

POLICY_FILE, STATE = "policy.toml", "state"


def _server(home: Path) -> str:
    return _address(home, read_roster(home / TLS / "roster.json").name(SERVER_INDEX), "--server")


def _own_address(home: Path) -> str:
    return _address(home, name_in(home), "--listen")


def _aggregators(home: Path) -> list[str]:
    """Return NAME=HOST:PORT of each aggregator that has an address, if the plan's protection has aggregators."""
    if protection_named(read_plan(home / PLAN_FILE).protection).handover is None:
        return []
    members, addresses = read_roster(home / TLS / "roster.json").members, addresses_in(home)
    names = [each.name for each in members if each.role == "aggregator" and each.name in addresses]
    return [f"{name}={addresses[name]}" for name in names]


_FROM_HOME: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "plan": ("--plan", lambda home: home / PLAN_FILE),
    "policy": ("--policy", lambda home: home / POLICY_FILE),
    "state": ("--state", lambda home: home / STATE),
    "tls": ("--tls", lambda home: home / TLS),
    "server": ("--server", _server),
    "listen": ("--listen", _own_address),
    "aggregators": ("--aggregator", _aggregators),
    "transcripts": ("TRANSCRIPTS", lambda home: sorted((home / STATE).glob(f"*/{FILE_NAME}"))),
}
"""For each parameter that a folder can fill: its name on the command line, and its value for a folder."""


def at_home(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command the option --home, whose folder fills the parameters `names`.

    It fills those that are not given. Without --home the command ends with BadInput where a required one is missing.
    """
    listed = ", ".join(_FROM_HOME[name][0] for name in names)
    said = f"This party's folder, made by secagg join; it gives {listed} where these are not given."
    home_option = inspect.Parameter(
        "home",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[Path | None, typer.Option("--home", help=said)],
    )

    def give(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        required = [name for name in names if own[name].default is inspect.Parameter.empty]

        def run(*, home: Path | None = None, **given: Any) -> None:
            missing = [name for name in names if given[name] is None or given[name] == []]
            if home is not None:
                given |= {name: _fill(own[name].annotation, _FROM_HOME[name][1](home)) for name in missing}
            elif needed := [_FROM_HOME[name][0] for name in missing if name in required]:
                remedy = "give them, or --home DIR, the folder that secagg join makes"
                raise BadInput(f"not given: {', '.join(needed)}", remedy=remedy)
            command(**given)

        optional = {name: _optional(own[name]) for name in required}
        speaker, *others = (own | optional).values()
        run = wraps(command)(run)
        give_options(run, [speaker, home_option, *others])
        return run

    return give


def _optional(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a required parameter of a command as one whose default is None."""
    kind, *form = get_args(parameter.annotation)
    return parameter.replace(annotation=Annotated[(kind | None, *form)], default=None)


def _fill(annotation: Any, value: Any) -> Any:
    """Return a folder's value as a command takes it: in a list where the option may be given several times."""
    several = "list[" in str(get_args(annotation)[0])
    return [value] if several and not isinstance(value, list) else value


def name_in(home: Path) -> str:
    """Return the party's name, from its certificate. Raises BadInput if there is none."""
    path = home / TLS / "cert.pem"
    with naming(path, "certificate", "certificate", missing="join by a kit first (secagg join)", damaged="join again"):
        return certificate_names(read_certificate(read_limited(path, DOCUMENT_BYTES)))[0]


def addresses_in(home: Path) -> dict[str, str]:
    """Return the addresses (HOST:PORT) of server and aggregators by name. Raises BadInput for those of others."""
    path = home / ADDRESSES_FILE
    if not path.exists():
        return {}
    with naming(path, "list of addresses", "list of addresses", missing="join again", damaged="join by the kit again"):
        found = parse_json(read_document(path), object_pairs_hook=each_field_once)
        if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
            raise ValueError("it is no object of texts")
        check_addresses(read_roster(home / TLS / "roster.json"), found)
        return found


def _address(home: Path, name: str, option: str) -> str:
    addresses = addresses_in(home)
    if name not in addresses:
        problem = f"{home / ADDRESSES_FILE} has no address of {name}"
        raise BadInput(problem, remedy=f"give {option} HOST:PORT, or join by a kit with one (pki kit --address)")
    return addresses[name]
