"""Every way to cheat is refused by every party that is lied to, and an honest server in the same harness is not."""

from dataclasses import replace
from pathlib import Path

import pytest

from secagg.protection.masking import derivations
from threat_models.active.consortium import NOISY, Consortium
from threat_models.active.probe import Probe, ProbeResult, careless_control, honest_control, make_finding, run_probe
from threat_models.active.run import HONEST, PROBES
from threat_models.active.stage import Cheat, play
from threat_models.findings import Control, Verdict

BY_NAME = {probe.name: probe for probe in PROBES}


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
async def test_cheat_is_refused(probe: Probe, tmp_path: Path) -> None:
    """Every party that was lied to refuses with the sentence of the control that the probe names; nobody answers."""
    result = await run_probe(probe, tmp_path)
    assert (result.verdict, result.answered) == (Verdict.FAILS, ())
    assert result.refusals
    assert all(probe.refusal in refusal for _, refusal in result.refusals)
    assert str(tmp_path) not in result.sentence


@pytest.mark.parametrize("protection", HONEST)
async def test_honest_server_is_not_refused(protection: str, tmp_path: Path) -> None:
    """Negative control: with a server that does not cheat, every client and helper ends with an outcome."""
    control = await honest_control(protection, tmp_path)
    assert control.holds
    assert not control.succeeded


async def test_careless_clients_are_seen_to_answer(tmp_path: Path) -> None:
    """Positive control: clients whose policy allows no protection hand their vectors over, and the harness sees it."""
    assert (await careless_control(tmp_path)).succeeded


async def test_honest_rounds_and_second_sessions_are_not_refused(tmp_path: Path) -> None:
    """The plans of the probes about rounds and repeated sessions are carried to their end when nobody lies."""
    gated = Consortium.enrol(tmp_path / "gated", "masked", class_gate=1)  # noise would move classes at random
    assert not any((await play(Cheat(gated))).values())
    consortium = Consortium.enrol(tmp_path / "rounds", "masked", **{**NOISY, "parameters": (("refine", 1),)})
    assert not any((await play(Cheat(consortium))).values())
    generous = replace(consortium.policy, max_epsilon_total=20.0)
    again = replace(consortium.again(**NOISY), policy=generous)
    assert not any((await play(Cheat(again))).values())


async def test_client_without_the_control_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a client that takes keys which their owners did not sign is seen to answer the lie."""
    monkeypatch.setattr(derivations, "advertisement_is_signed", lambda context, entry: True)
    result = await run_probe(BY_NAME["swapped keys"], tmp_path)
    assert result.verdict is Verdict.SUCCEEDS
    assert {step for _, step in result.answered} == {"Dealing"}
    assert "went along and sent its Dealing" in result.sentence


async def test_refusal_for_another_reason_is_inconclusive(tmp_path: Path) -> None:
    """A refusal that is not the expected control's says nothing of that control."""
    probe = replace(BY_NAME["tiny directory"], refusal="is not signed")
    assert (await run_probe(probe, tmp_path)).verdict is Verdict.INCONCLUSIVE


async def test_target_that_was_never_deceived_is_inconclusive(tmp_path: Path) -> None:
    """A cheat that never came to its lie proves nothing."""

    async def idle(folder: Path) -> tuple[Cheat, dict[int, str]]:
        return Cheat(Consortium.enrol(folder, "masked")), dict.fromkeys((1, 2, 3, 4), "refused")

    probe = replace(BY_NAME["tiny directory"], attempt=idle, refusal="refused")
    assert (await run_probe(probe, tmp_path)).verdict is Verdict.INCONCLUSIVE


def result(verdict: Verdict) -> ProbeResult:
    """A made-up result."""
    answered = (("client-1", "Dealing"),) if verdict is Verdict.SUCCEEDS else ()
    return ProbeResult(PROBES[0], verdict, (("client-1", "no"),), answered)


HELD, BROKEN = Control("honest", expected=True, succeeded=True), Control("honest", expected=True, succeeded=False)


@pytest.mark.parametrize(
    ("verdicts", "control", "expected"),
    [
        ((Verdict.FAILS, Verdict.FAILS), HELD, Verdict.FAILS),
        ((Verdict.FAILS, Verdict.FAILS), BROKEN, Verdict.INCONCLUSIVE),
        ((Verdict.FAILS, Verdict.INCONCLUSIVE), HELD, Verdict.INCONCLUSIVE),
        ((Verdict.INCONCLUSIVE, Verdict.SUCCEEDS), HELD, Verdict.SUCCEEDS),
        ((Verdict.SUCCEEDS,), BROKEN, Verdict.SUCCEEDS),
        ((), HELD, Verdict.INCONCLUSIVE),
    ],
)
def test_finding_is_as_bad_as_its_worst_probe(
    verdicts: tuple[Verdict, ...], control: Control, expected: Verdict
) -> None:
    """One answered lie is a success of the server; one unclear probe or broken control keeps the rest from passing."""
    finding = make_finding([result(each) for each in verdicts], [control])
    assert (finding.attack, finding.adversary, finding.verdict) == ("malicious_server", "", expected)
    refused = sum(each is Verdict.FAILS for each in verdicts)
    assert finding.sentence.startswith(f"{refused} of {len(verdicts)} ways to cheat")
    assert [measure.value for measure in finding.measures[1:]] == [float(each is Verdict.FAILS) for each in verdicts]
    assert finding.controls == (control,)


def test_probes_have_names_of_their_own() -> None:
    """No two probes share a name, and each says what it does, what must stop it and with which words."""
    assert len(BY_NAME) == len(PROBES) >= 25
    assert all(probe.does and probe.control and probe.refusal for probe in PROBES)
