"""All probes, one after another, and the controls that say whether the harness itself works."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from methods.closed_form.refinement import RefinementBroadcast
from methods.gate import KeptClasses
from secagg.agreement.plan import Plan
from secagg.agreement.roster import SERVER_INDEX, Member, Roster, write_roster
from secagg.crypto.signatures import SigningKey
from secagg.encoding.softmax_gradient import WEIGHT_BITS
from secagg.privacy import Adjacency
from secagg.protection import PROTECTIONS
from secagg.protection.messages import Outcome
from secagg.randomness import OperatingSystem
from secagg.transport.register import REGISTER_FILE
from secagg.wire import decode, encode
from threat_models.active.consortium import NOISY, Consortium, plan_for
from threat_models.active.masked import MASKED, REPLAYS, change_message
from threat_models.active.openers import OPENERS
from threat_models.active.probe import (
    Attempt,
    Probe,
    ProbeResult,
    careless_control,
    honest_control,
    make_finding,
    run_probe,
)
from threat_models.active.stage import Cheat, Offer, offer, play
from threat_models.attacks.attack import Progress
from threat_models.findings import Control, Finding


async def offer_plan(consortium: Consortium) -> tuple[Cheat, Mapping[int, str]]:
    """Offer a plan, behind a real endpoint."""
    cheat = Offer(consortium)
    return cheat, await offer(cheat)


def bring_plan(change: Callable[[Plan], Plan], **choices: Any) -> Attempt:
    """The members' policies accept a plan, and the server brings another one."""

    async def attempt(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
        consortium = Consortium.enrol(folder, "masked", **choices)
        return await offer_plan(replace(consortium, plan=change(consortium.plan)))

    return attempt


def weaker_noise(plan: Plan) -> Plan:
    """A tenth less noise on all but the counts, for the same promise."""
    counts, *others = plan.noises
    weaker = (replace(each, sigma=0.9 * each.sigma, off_diagonal=0.9 * each.off_diagonal) for each in others)
    return replace(plan, noises=(counts, *weaker))


async def tiny_cohort(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
    """Two clients, of whom each would learn the other's vector; the policy has the default least cohort."""
    consortium = Consortium.enrol(folder, "masked", clients=2)
    return await offer_plan(replace(consortium, policy=replace(consortium.policy, minimum_colluders=0)))


def sybils(*, slipped: bool) -> Attempt:
    """A plan for the roster with four more members, all of them the server's.

    `slipped`: that roster is also slipped into the clients' folders, as by an authority that sides with the server.
    """

    async def attempt(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
        consortium = Consortium.enrol(folder, "masked")
        fakes = [Member(f"fake-{number}", "client", SigningKey.generate(OperatingSystem()).public) for number in "1234"]
        roster = Roster.of(consortium.roster.consortium, (*consortium.roster.members, *fakes))
        for member in consortium.clients if slipped else ():
            write_roster(roster, consortium.home(member) / "tls" / "roster.json")
            (consortium.home(member) / "tls" / REGISTER_FILE).unlink(missing_ok=True)
        return await offer_plan(replace(consortium, roster=roster, plan=plan_for(roster, dropouts=0)))

    return attempt


async def second_session(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
    """Another plan about the same data, once the first has spent what the policy allows."""
    consortium = Consortium.enrol(folder, "masked", **NOISY)
    await play(Cheat(consortium))
    return await offer_plan(consortium.again(**NOISY))


async def other_adjacency(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
    """A plan that fits the budget under its own adjacency alone, once the other's is spent."""
    consortium = Consortium.enrol(folder, "masked", **{**NOISY, "adjacency": Adjacency.REPLACE_ONE})
    await play(Cheat(consortium))
    return await offer_plan(consortium.again(**{**NOISY, "epsilon": NOISY["epsilon"] / 2}))


async def replayed_session(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
    """The same plan from the beginning, to clients whose session folders are lost and whose ledgers are not."""
    consortium = Consortium.enrol(folder, "masked", **NOISY)
    await play(Cheat(consortium))
    for member in (SERVER_INDEX, *consortium.clients):
        for session in consortium.state(member).iterdir():
            if session.is_dir():
                shutil.rmtree(session)
    return await offer_plan(consortium)


def false_weights(cheat: Cheat, member: int, honest: Outcome) -> Outcome:
    """Weights for the next round that do not follow from the released sum: they steer what is asked."""
    told = decode(RefinementBroadcast, cheat.broadcast_of(honest))
    moved = np.frombuffer(told.weights, dtype="<i8") + (1 << WEIGHT_BITS)
    return replace(honest, broadcast=(cheat.attach(encode(replace(told, weights=moved.tobytes()))),))


def false_gate(cheat: Cheat, member: int, honest: Outcome) -> Outcome:
    """Every class passes, also the one that client 1 alone holds."""
    kept = tuple(range(len(cheat.consortium.plan.classes)))
    return replace(honest, broadcast=(cheat.attach(encode(KeptClasses(kept))),))


def _policy(name: str, does: str, line: str, attempt: Attempt) -> Probe:
    return Probe(name, "masked", does, "the client's own policy", f"{line}:", attempt)


PLANS = (
    _policy(
        "no protection",
        "asks for the vectors in clear",
        "protections",
        bring_plan(lambda plan: replace(plan, protection="none")),
    ),
    _policy(
        "other backbone",
        "brings a plan with the digest of another backbone",
        "backbones",
        bring_plan(lambda plan: replace(plan, backbone_digest=bytes(32))),
    ),
    _policy(
        "lowest threshold",
        "brings a plan that withstands no colluding client",
        "minimum_colluders",
        bring_plan(lambda plan: replace(plan, colluders=0)),
    ),
    _policy("tiny cohort", "brings a plan for two clients", "min_clients_in_sum", tiny_cohort),
    _policy(
        "no noise",
        "takes the noise out of the plan",
        "max_epsilon",
        bring_plan(lambda plan: replace(plan, epsilon=math.inf, delta=0.0, adjacency="", noise="", noises=()), **NOISY),
    ),
    Probe(
        "weaker noise",
        "masked",
        "brings a plan with a tenth less noise than its epsilon takes",
        "every client recomputes epsilon from the plan",
        "but the noise gives",
        bring_plan(weaker_noise, **NOISY),
    ),
    Probe(
        "Sybil plan",
        "masked",
        "plans with four more members of its own",
        "the plan names the roster by digest",
        "the plan is for the roster",
        sybils(slipped=False),
    ),
    _policy("Sybil roster", "has a roster with four more members handed out", "roster", sybils(slipped=True)),
    Probe(
        "second session",
        "masked",
        "asks about the same data once more",
        "the client's ledger",
        "max_epsilon_total: records has spent",
        second_session,
    ),
    Probe(
        "other adjacency",
        "masked",
        "asks once more under an adjacency of which the budget has room, when the other's has none",
        "the client's ledger composes every promise for each unit and adjacency",
        "max_epsilon_total: records has spent",
        other_adjacency,
    ),
    Probe(
        "replayed session",
        "masked",
        "begins a finished session anew with clients whose session folders are lost",
        "the client's ledger",
        "a vector for this session may have left already",
        replayed_session,
    ),
    Probe(
        "false weights",
        "masked",
        "opens a round of refinement with weights of its own",
        "every client recomputes the broadcast from the released sum",
        "do not follow from the released sums",
        change_message(Outcome, false_weights, **{**NOISY, "parameters": (("refine", 1),)}),
    ),
    Probe(
        "false gate",
        "masked",
        "keeps the class that one client alone holds",
        "every client recomputes the gate from the census",
        "do not follow from the census",
        change_message(Outcome, false_gate, class_gate=1),
    ),
)


PROBES = (*MASKED, *REPLAYS, *PLANS, *OPENERS)
HONEST = tuple(name for name, each in PROTECTIONS.items() if each.hides_vectors)


def run_probes(progress: Progress = lambda done, total: None) -> tuple[ProbeResult, ...]:
    """Cheat real clients, aggregators and key holders in every way that is known here, each in a consortium of its own.

    Everything runs in this process, over mutual TLS on 127.0.0.1, in temporary folders; about half a minute.
    """

    async def run() -> tuple[ProbeResult, ...]:
        results = []
        for done, probe in enumerate(PROBES):
            progress(done, len(PROBES))
            with tempfile.TemporaryDirectory(prefix="secagg-probe-") as folder:
                results.append(await run_probe(probe, Path(folder)))
        progress(len(PROBES), len(PROBES))
        return tuple(results)

    with _quiet():
        return asyncio.run(run())


def run_controls() -> tuple[Control, ...]:
    """The same harness with honest servers, which nobody may refuse, and with clients that refuse nothing."""

    async def run() -> tuple[Control, ...]:
        controls = []
        for protection in HONEST:
            with tempfile.TemporaryDirectory(prefix="secagg-control-") as folder:
                controls.append(await honest_control(protection, Path(folder)))
        with tempfile.TemporaryDirectory(prefix="secagg-control-") as folder:
            controls.append(await careless_control(Path(folder)))
        return tuple(controls)

    with _quiet():
        return asyncio.run(run())


def malicious_server(progress: Progress = lambda done, total: None) -> Finding:
    """Probes and controls as the finding that the audit's report shows; `adversary` is left empty."""
    return make_finding(run_probes(progress), run_controls())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Refusals are results here, not lines in a log."""
    logs = [logging.getLogger(name) for name in ("secagg.server", "secagg.link", "secagg.aggregator")]
    were_disabled = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    try:
        yield
    finally:
        for log, was_disabled in zip(logs, were_disabled, strict=True):
            log.disabled = was_disabled
