"""Probes of a cheating server: one way to cheat, the check by honest parties that must stop it, and the result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from threat_models.active.consortium import Consortium
from threat_models.active.stage import Cheat, Everyone, offer, play
from threat_models.findings import REFUSED, SHARE, Control, Finding, Metric, Verdict

REFUSED_WAYS = Metric("refused_ways", "ways to cheat that were refused", SHARE, "100 %", leads=True)
PROBE = Metric("probe", "probe", REFUSED, "refused", each="probe")
Attempt = Callable[[Path], Awaitable[tuple[Cheat, Mapping[int, str]]]]
"""Cheats parties in an empty folder; returns the cheating server and, for each target, its refusal ("": none)."""


@dataclass(frozen=True)
class Probe:
    """One way for a server to cheat; `refusal` is part of the error message that each deceived party must give."""

    name: str
    does: str
    control: str
    refusal: str
    attempt: Attempt


@dataclass(frozen=True)
class ProbeResult:
    """Result of a probe: the parties that refused, with the message, and those that answered, with the protocol step.

    The verdict is the server's: it succeeds when anyone answers, fails when every target refuses for the right reason,
    and is inconclusive otherwise (the session stopped, but not by the control that the probe is about).
    """

    probe: Probe
    verdict: Verdict
    refusals: tuple[tuple[str, str], ...]
    answered: tuple[tuple[str, str], ...]

    @property
    def sentence(self) -> str:
        """The result as one line of text, for the report."""
        if self.answered:
            party, step = self.answered[0]
            return f"{party} went along and sent its {step} ({len(self.answered)} in all)"
        party, refusal = self.refusals[0] if self.refusals else ("nobody", "no refusal")
        return f"{party}: {refusal}"


async def run_probe(probe: Probe, folder: Path) -> ProbeResult:
    """Run a probe once, in an empty folder, and return which parties refused and which answered the server."""
    cheat, endings = await probe.attempt(folder)
    name = cheat.consortium.roster.name
    refusals = {member: ending.replace(f"{folder}/", "") for member, ending in endings.items() if ending}
    if cheat.answered:
        verdict = Verdict.SUCCEEDS
    else:
        refused = [member in cheat.deceived and probe.refusal in refusals.get(member, "") for member in cheat.targets]
        verdict = Verdict.FAILS if all(refused) else Verdict.INCONCLUSIVE
    told = [tuple((name(each), said[each]) for each in sorted(said)) for said in (refusals, cheat.answered)]
    return ProbeResult(probe, verdict, *told)


async def honest_control(protection: str, folder: Path) -> Control:
    """Run an honest server with the probes' code: no party may refuse, and all must receive the same sum."""
    endings = await play(Everyone(Consortium.enrol(folder, protection)))
    return Control(f"refusals of an honest server, {protection}", expected=False, succeeded=any(endings.values()))


async def careless_control(folder: Path) -> Control:
    """Offer an unprotected plan to clients that allow it, to check that the probes' code notices their answers."""
    consortium = Consortium.enrol(folder, "masked")
    bare = replace(consortium.plan, protection="none")
    policy = replace(consortium.policy, protections=("none",))
    cheat, _ = await offer(replace(consortium, plan=bare, policy=policy))
    return Control("no protection, offered to careless clients", expected=True, succeeded=bool(cheat.answered))


def make_finding(results: Sequence[ProbeResult], controls: Sequence[Control]) -> Finding:
    """Combine the results of all probes and controls in one finding of the audit."""
    verdicts = {result.verdict for result in results}
    order = (Verdict.SUCCEEDS, Verdict.INCONCLUSIVE, Verdict.FAILS)
    verdict = next((each for each in order if each in verdicts), Verdict.INCONCLUSIVE)
    if verdict is Verdict.FAILS and not all(control.holds for control in controls):
        verdict = Verdict.INCONCLUSIVE
    refused = [result for result in results if result.verdict is Verdict.FAILS]
    others = [f"{each.probe.name} ({each.sentence})" for each in results if each.verdict is not Verdict.FAILS]
    sentence = f"{len(refused)} of {len(results)} ways to cheat were refused by every party that was lied to"
    sentence += f"; not so: {', '.join(others)}" if others else ""
    measures = tuple(
        PROBE.exact(float(each.verdict is Verdict.FAILS), of=f"{each.probe.name}: {each.probe.does}. {each.sentence}")
        for each in results
    )
    total = REFUSED_WAYS.exact(len(refused) / len(results) if results else 0.0)
    return Finding("malicious_server", "", verdict, sentence, (total, *measures), controls=tuple(controls))
