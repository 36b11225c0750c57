"""Run all probes of a cheating server, and the controls that show whether the probes' own code works.

Here are also the ways to cheat with the plan itself and with what a client has released before, and with the help of
those who open sums: aggregators, and the key holder.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from methods.closed_form.refinement import RefinementBroadcast
from methods.gate import KeptClasses
from secagg.agreement.plan import Plan
from secagg.agreement.roster import SERVER_INDEX, Member, Roster, write_roster
from secagg.crypto.envelopes import EnvelopeKey
from secagg.crypto.signatures import SigningKey
from secagg.encoding.softmax_gradient import WEIGHT_BITS
from secagg.federation import FederationHelper, session_folder
from secagg.privacy import Adjacency
from secagg.protection import PROTECTIONS
from secagg.protection.encryption import derivations as encryption
from secagg.protection.encryption.derivations import EncryptedContext
from secagg.protection.encryption.messages import Declaration, PublishedKey, SumRequest
from secagg.protection.encryption.polynomials import add, pack, scaled
from secagg.protection.messages import Outcome
from secagg.protection.sharing import derivations as sharing
from secagg.protection.sharing.context import SharedContext
from secagg.protection.sharing.messages import SessionKeys, SetLists
from secagg.randomness import OperatingSystem
from secagg.session.staging import vector_path
from secagg.transcript import FrameBody, payload_of, peek
from secagg.transport.register import REGISTER_FILE
from secagg.wire import decode, encode, tag_of
from threat_models.active.consortium import NOISY, Consortium, plan_for
from threat_models.active.masked import MASKED, REPLAYS, At, Change, change_message, drop_one, run_cheat
from threat_models.active.probe import Attempt, Probe, careless_control, honest_control, make_finding, run_probe
from threat_models.active.stage import Cheat, offer, play
from threat_models.attacks.attack import Progress
from threat_models.findings import Control, Finding


def encrypted_context(cheat: Cheat) -> EncryptedContext:
    """Return the public facts of the consortium's encrypted session, such as members and ciphertext parameters."""
    return EncryptedContext.of(cheat.consortium.setup.context)


def own_session_key(cheat: Cheat, member: int, honest: SessionKeys) -> SessionKeys:
    """Replace the first aggregator's session key by the server's, which could open every share sealed to it."""
    first, *rest = honest.pledges
    context, identity = SharedContext.of(cheat.consortium.setup.context), cheat.consortium.party(SERVER_INDEX).identity
    own = EnvelopeKey.generate(OperatingSystem()).public
    forged = sharing.sign_pledge(context, identity, first.aggregator, first.step, own)
    return SessionKeys((forged, *rest))


def shorter_list(cheat: Cheat, member: int, honest: SetLists) -> SetLists:
    """Drop an upload from the first aggregator's list and sign it anew: two aggregators would open different sums."""
    first, *rest = honest.lists
    colluder = cheat.consortium.party(cheat.consortium.helpers[0])
    context = SharedContext.of(cheat.consortium.setup.context)
    shorter = replace(first, manifests=first.manifests[:-1])
    return SetLists((sharing.sign_list(context, colluder.identity, shorter), *rest))


class _Forgetful(FederationHelper):
    """An aggregator that, if it is the first, signs a receipt for the first client's upload and then leaves it out."""

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        receipt = await super().upload(member, frame, parts)
        work, first = self._uploads[peek(frame).round_digest], self.setup.context.clients[0]
        collecting: Any = work._collecting  # noqa: SLF001 (it is its own memory)
        if collecting is not None and self.me.member == next(iter(self.setup.context.helpers)):
            kept = tuple(each for each in collecting.manifests if each.client != first)
            work._collecting = replace(collecting, manifests=kept)  # noqa: SLF001
        return receipt


async def dropped_upload(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
    """Run a session whose aggregator leaves out an acknowledged upload; the client must notice, and name this party."""
    consortium = Consortium.enrol(folder, "shared")
    cheat = Cheat(consortium, consortium.clients[:1])
    endings = await play(cheat, _Forgetful)
    cheat.deceived.update(cheat.targets)
    return cheat, endings


def own_public_key(cheat: Cheat, member: int, honest: PublishedKey) -> PublishedKey:
    """Replace the key holder's sealing key by the server's own, with which the server could read every mask."""
    key = replace(honest, sealing_key=EnvelopeKey.generate(OperatingSystem()).public)
    return encryption.sign_key(encrypted_context(cheat), cheat.consortium.party(SERVER_INDEX).identity, key)


def declare(cheat: Cheat, uploads: Any, packed: bytes) -> SumRequest:
    """Return the server's signed request to open `packed`, which it declares to be the sum of these uploads."""
    unsigned = Declaration(tuple(uploads), hashlib.sha256(packed).digest(), bytes(64))
    identity = cheat.consortium.party(SERVER_INDEX).identity
    return SumRequest(encryption.sign_declaration(encrypted_context(cheat), identity, unsigned), packed)


def send_sum_of(members: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Change:
    """Return a function that sends the key holder a sum of some ciphertexts, declared as the sum of all of them.

    The masks of the others stay on and are uniform modulo q: more noise than a sum of honest ciphertexts has.
    """

    def change(cheat: Cheat, member: int, honest: SumRequest) -> SumRequest:
        context, parameters = encrypted_context(cheat), encrypted_context(cheat).parameters
        shape = (context.ciphertexts, 2, len(parameters.primes), parameters.degree)
        total = np.zeros(shape, dtype=np.uint64)
        folder = session_folder(cheat.consortium.state(SERVER_INDEX), cheat.consortium.setup)
        for each in members(honest.declaration.members):
            add(total, context.uploaded(vector_path(folder, each).read_bytes()), parameters.primes)
        return declare(cheat, honest.declaration.uploads, pack(total, parameters.entry_bytes))

    return change


def beyond_capacity(cheat: Cheat, member: int, honest: SumRequest) -> SumRequest:
    """Add 2 · capacity + 1 to the encrypted sum's first entry, without a key: more than a sum of the plan can hold."""
    context, parameters = encrypted_context(cheat), encrypted_context(cheat).parameters
    total = context.summed(honest.packed)
    amount = np.array([2 * context.largest + 1], dtype=np.int64)
    add(total[:1, 0], scaled(parameters, amount), parameters.primes)
    return declare(cheat, honest.declaration.uploads, pack(total, parameters.entry_bytes))


class _OpensTwice(Cheat):
    """A server that asks the key holder to open a smaller set once the first sum is opened."""

    def __init__(self, consortium: Consortium) -> None:
        super().__init__(consortium, consortium.helpers)
        self._request: SumRequest | None = None

    def falsify(self, member: int, body: FrameBody) -> bytes | None:
        if body.step == tag_of(SumRequest):
            self._request = payload_of(body, SumRequest)
        return None

    async def make_up(self, member: int, step: str) -> bytes | None:
        if step != tag_of(Outcome) or member not in self.targets or self._request is None:
            return None
        uploads = self._request.declaration.uploads
        kept = drop_one(tuple(each.member for each in uploads), 0)
        return self.lie(member, declare(self, (u for u in uploads if u.member in kept), self._request.packed))


def _change_request(change: Change) -> Attempt:
    """Make an attempt that changes the request to the key holder."""
    return run_cheat(lambda consortium: At(consortium, SumRequest, change, consortium.helpers), "encrypted")


OPENERS = (
    Probe(
        "own session key",
        "shows every client a session key of its own in an aggregator's name",
        "session keys are signed by their aggregators",
        "did not sign",
        change_message(SessionKeys, own_session_key, "shared"),
    ),
    Probe(
        "two lists",
        "shows two aggregators different lists; one of them helps",
        "every aggregator commits to its list before it sees another's",
        "shows another list than the one that",
        run_cheat(lambda each: At(each, SetLists, shorter_list, each.helpers[-1:]), "shared"),
    ),
    Probe(
        "dropped upload",
        "leaves out an upload for which an aggregator signed a receipt",
        "the client holds the receipt against the aggregator's signed list",
        "signed a receipt for this upload and left it out",
        dropped_upload,
    ),
    Probe(
        "own public key",
        "shows every client a key of its own in the key holder's name",
        "the published key is signed by the key holder",
        "shows a published key that its holder did not sign for this session",
        change_message(PublishedKey, own_public_key, "encrypted"),
    ),
    Probe(
        "second opening",
        "asks the key holder to open a second sum",
        "the key holder opens one sum of a session, ever",
        "Outcome is awaited",
        run_cheat(_OpensTwice, "encrypted"),
    ),
    Probe(
        "one ciphertext",
        "passes one client's ciphertext off as the sum",
        "the other clients' masks stay on, and are no noise that honest ciphertexts have",
        "more noise than a sum of honest ciphertexts",
        _change_request(send_sum_of(lambda members: members[:1])),
    ),
    Probe(
        "undeclared set",
        "adds other uploads than it declares",
        "the masks of exactly the declared set are taken off",
        "more noise than a sum of honest ciphertexts",
        _change_request(send_sum_of(lambda members: members[:-1])),
    ),
    Probe(
        "beyond capacity",
        "adds an amount of its own to the sum of ciphertexts, which no sum of the plan can hold",
        "what is opened lies within the plan's capacity",
        "an entry lies outside the plan's capacity",
        _change_request(beyond_capacity),
    ),
    Probe(
        "one declared",
        "declares a single upload",
        "the least number of clients follows from the plan",
        "declares 1 clients; at least",
        _change_request(lambda cheat, member, honest: declare(cheat, honest.declaration.uploads[:1], honest.packed)),
    ),
)


def bring_plan(change: Callable[[Plan], Plan], **choices: Any) -> Attempt:
    """Return a function that offers clients a changed plan, while their policies accept the unchanged one."""

    async def attempt(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
        consortium = Consortium.enrol(folder, "masked", **choices)
        return await offer(replace(consortium, plan=change(consortium.plan)))

    return attempt


def weaker_noise(plan: Plan) -> Plan:
    """Return the plan with 10 % less noise on everything but the counts, and with the same claimed ε."""
    counts, *others = plan.noises
    weaker = (replace(each, sigma=0.9 * each.sigma, off_diagonal=0.9 * each.off_diagonal) for each in others)
    return replace(plan, noises=(counts, *weaker))


async def tiny_cohort(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
    """Offer a plan for two clients, each of whom would learn the other's vector; the policy asks for more clients."""
    consortium = Consortium.enrol(folder, "masked", clients=2)
    return await offer(replace(consortium, policy=replace(consortium.policy, minimum_colluders=0)))


def sybils(*, slipped: bool) -> Attempt:
    """Return a function that offers clients a roster with four fake members; with `slipped` they hold it already."""

    async def attempt(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
        consortium = Consortium.enrol(folder, "masked")
        fakes = [Member(f"fake-{number}", "client", SigningKey.generate(OperatingSystem()).public) for number in "1234"]
        roster = Roster.of(consortium.roster.consortium, (*consortium.roster.members, *fakes))
        for member in consortium.clients if slipped else ():
            write_roster(roster, consortium.home(member) / "tls" / "roster.json")
            (consortium.home(member) / "tls" / REGISTER_FILE).unlink(missing_ok=True)
        return await offer(replace(consortium, roster=roster, plan=plan_for(roster, dropouts=0)))

    return attempt


async def second_session(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
    """Offer a second plan for the same data, after the first has spent the whole budget of the policy."""
    consortium = Consortium.enrol(folder, "masked", **NOISY)
    await play(Cheat(consortium))
    return await offer(consortium.again(**NOISY))


async def other_adjacency(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
    """Offer a plan under one adjacency (neighbouring relation), after the budget under the other one is spent."""
    consortium = Consortium.enrol(folder, "masked", **{**NOISY, "adjacency": Adjacency.REPLACE_ONE})
    await play(Cheat(consortium))
    return await offer(consortium.again(**{**NOISY, "epsilon": NOISY["epsilon"] / 2}))


async def replayed_session(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
    """Offer the same plan from the beginning, to clients that lost their session folders but not their ledgers."""
    consortium = Consortium.enrol(folder, "masked", **NOISY)
    await play(Cheat(consortium))
    for member in (SERVER_INDEX, *consortium.clients):
        for session in consortium.state(member).iterdir():
            if session.is_dir():
                shutil.rmtree(session)
    return await offer(consortium)


def false_weights(cheat: Cheat, member: int, honest: Outcome) -> Outcome:
    """Send model weights for the next round that do not follow from the released sum."""
    told = decode(RefinementBroadcast, cheat.broadcast_of(honest))
    moved = np.frombuffer(told.weights, dtype="<i8") + (1 << WEIGHT_BITS)
    return replace(honest, broadcast=(cheat.attach(encode(replace(told, weights=moved.tobytes()))),))


def false_gate(cheat: Cheat, member: int, honest: Outcome) -> Outcome:
    """Announce that every class is held by enough clients (class gate), even the one that only client 1 holds."""
    kept = tuple(range(len(cheat.consortium.plan.classes)))
    return replace(honest, broadcast=(cheat.attach(encode(KeptClasses(kept))),))


def _policy(name: str, does: str, line: str, attempt: Attempt) -> Probe:
    return Probe(name, does, "the client's own policy", f"{line}:", attempt)


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
        bring_plan(
            lambda plan: replace(plan, epsilon=math.inf, delta=0.0, adjacency="", noise="", noises=(), noise_levels=()),
            **NOISY,
        ),
    ),
    Probe(
        "weaker noise",
        "brings a plan with a tenth less noise than its epsilon takes",
        "every client recomputes epsilon from the plan",
        "but the noise gives",
        bring_plan(weaker_noise, **NOISY),
    ),
    Probe(
        "Sybil plan",
        "plans with four more members of its own",
        "the plan names the roster by digest",
        "the plan is for the roster",
        sybils(slipped=False),
    ),
    _policy("Sybil roster", "has a roster with four more members handed out", "roster", sybils(slipped=True)),
    Probe(
        "second session",
        "asks about the same data once more",
        "the client's ledger",
        "max_epsilon_total: records has spent",
        second_session,
    ),
    Probe(
        "other adjacency",
        "asks once more under an adjacency of which the budget has room, when the other's has none",
        "the client's ledger composes every promise for each unit and adjacency",
        "max_epsilon_total: records has spent",
        other_adjacency,
    ),
    Probe(
        "replayed session",
        "begins a finished session anew with clients whose session folders are lost",
        "the client's ledger",
        "a vector for this session may have left already",
        replayed_session,
    ),
    Probe(
        "false weights",
        "opens a round of refinement with weights of its own",
        "every client recomputes the broadcast from the released sum",
        "do not follow from the released sums",
        change_message(Outcome, false_weights, **{**NOISY, "parameters": (("refine", 1),)}),
    ),
    Probe(
        "false gate",
        "keeps the class that one client alone holds",
        "every client recomputes the gate from the census",
        "do not follow from the census",
        change_message(Outcome, false_gate, class_gate=1),
    ),
)


PROBES = (*MASKED, *REPLAYS, *PLANS, *OPENERS)
HONEST = tuple(name for name, each in PROTECTIONS.items() if each.hides_vectors)


def malicious_server(progress: Progress = lambda done, total: None) -> Finding:
    """Run all probes of a cheating server against real clients, aggregators and key holders; return one finding.

    The controls are the same harness with honest servers, which nobody may refuse, and with clients that refuse
    nothing. Everything runs in this process, over mutual TLS on 127.0.0.1, in temporary folders; about half a minute.
    The finding's `adversary` is left empty.
    """

    async def run() -> Finding:
        results, controls = [], []
        for done, probe in enumerate(PROBES):
            progress(done, len(PROBES))
            with tempfile.TemporaryDirectory(prefix="secagg-probe-") as folder:
                results.append(await run_probe(probe, Path(folder)))
        progress(len(PROBES), len(PROBES))
        honest = [partial(honest_control, protection) for protection in HONEST]
        checks: list[Callable[[Path], Awaitable[Control]]] = [*honest, careless_control]
        for control in checks:
            with tempfile.TemporaryDirectory(prefix="secagg-control-") as folder:
                controls.append(await control(Path(folder)))
        return make_finding(results, controls)

    with _quiet():
        return asyncio.run(run())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep refusals out of the logs: here they are results."""
    logs = [logging.getLogger(name) for name in ("secagg.server", "secagg.link", "secagg.aggregator")]
    were_disabled = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    try:
        yield
    finally:
        for log, was_disabled in zip(logs, were_disabled, strict=True):
            log.disabled = was_disabled
