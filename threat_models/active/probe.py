"""A probe: one way to cheat, which control of the honest parties must stop it, and what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from threat_models.active.consortium import Consortium
from threat_models.active.stage import Cheat, Everyone, Offer, offer, play
from threat_models.findings import REFUSED, SHARE, Control, Finding, Metric, Verdict

REFUSED_WAYS = Metric("refused_ways", "ways to cheat that were refused", SHARE, "100 %", leads=True)
PROBE = Metric("probe", "probe", REFUSED, "refused", each="probe")
Attempt = Callable[[Path], Awaitable[tuple[Cheat, Mapping[int, str]]]]
"""Cheats parties in an empty folder; gives the cheat and how it ended for each that was to be deceived."""


@dataclass(frozen=True)
class Probe:
    """One way to cheat. `refusal` is part of the sentence with which every deceived party must refuse."""

    name: str
    protection: str
    does: str
    control: str
    refusal: str
    attempt: Attempt


@dataclass(frozen=True)
class ProbeResult:
    """Outcome of a probe: each party that refused, with its own sentence; each that answered the lie, with the step.

    The verdict is the server's: it succeeds when anyone answers, fails when every target refuses for the right reason,
    and is inconclusive otherwise (the session stopped, but not by the control that the probe is about).
    """

    probe: Probe
    verdict: Verdict
    refusals: tuple[tuple[str, str], ...]
    answered: tuple[tuple[str, str], ...]

    @property
    def sentence(self) -> str:
        """One line for people."""
        if self.answered:
            party, step = self.answered[0]
            return f"{party} went along and sent its {step} ({len(self.answered)} in all)"
        party, refusal = self.refusals[0] if self.refusals else ("nobody", "no refusal")
        return f"{party}: {refusal}"


async def run_probe(probe: Probe, folder: Path) -> ProbeResult:
    """Cheat once, in an empty folder."""
    cheat, endings = await probe.attempt(folder)
    name = cheat.consortium.roster.name
    refusals = {member: ending.replace(f"{folder}/", "") for member, ending in endings.items() if ending}
    if cheat.answered:
        verdict = Verdict.SUCCEEDS
    elif set(cheat.targets) <= cheat.deceived and all(
        probe.refusal in refusals.get(member, "") for member in cheat.targets
    ):
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.INCONCLUSIVE
    return ProbeResult(
        probe,
        verdict,
        tuple((name(member), refusals[member]) for member in sorted(refusals)),
        tuple((name(member), cheat.answered[member]) for member in sorted(cheat.answered)),
    )


async def honest_control(protection: str, folder: Path) -> Control:
    """The same harness with a server that does not cheat: nobody may refuse, everybody has an outcome of one sum."""
    endings = await play(Everyone(Consortium.enrol(folder, protection)))
    return Control(f"refusals of an honest server, {protection}", expected=False, succeeded=any(endings.values()))


async def careless_control(folder: Path) -> Control:
    """A plan without protection, offered to clients whose policy allows it: the harness must see that they answer."""
    consortium = Consortium.enrol(folder, "masked")
    bare = replace(consortium.plan, protection="none")
    cheat = Offer(replace(consortium, plan=bare, policy=replace(consortium.policy, protections=("none",))))
    await offer(cheat)
    return Control("no protection, offered to careless clients", expected=True, succeeded=bool(cheat.answered))


def make_finding(results: Sequence[ProbeResult], controls: Sequence[Control]) -> Finding:
    """Make one finding of all probes and controls."""
    verdicts = {result.verdict for result in results}
    order = (Verdict.SUCCEEDS, Verdict.INCONCLUSIVE, Verdict.FAILS)
    verdict = next((each for each in order if each in verdicts), Verdict.INCONCLUSIVE)
    if verdict is Verdict.FAILS and not all(control.holds for control in controls):
        verdict = Verdict.INCONCLUSIVE
    refused = [result for result in results if result.verdict is Verdict.FAILS]
    others = [f"{each.probe.name} ({each.sentence})" for each in results if each.verdict is not Verdict.FAILS]
    sentence = f"{len(refused)} of {len(results)} ways to cheat were refused by every party that was lied to" + (
        f"; not so: {', '.join(others)}" if others else ""
    )
    measures = tuple(
        PROBE.exact(float(each.verdict is Verdict.FAILS), of=f"{each.probe.name}: {each.probe.does}. {each.sentence}")
        for each in results
    )
    total = REFUSED_WAYS.exact(len(refused) / len(results) if results else 0.0)
    return Finding("malicious_server", "", verdict, sentence, (total, *measures), controls=tuple(controls))
