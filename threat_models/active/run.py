"""All probes, one after another, and the controls that say whether the harness itself works.

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
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from methods.closed_form.refinement import RefinementBroadcast
from methods.gate import KeptClasses
from secagg.agreement.plan import Plan
from secagg.agreement.roster import SERVER_INDEX, Member, Roster, write_roster
from secagg.crypto.agreement import AgreementKey
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
from threat_models.active.masked import MASKED, REPLAYS, At, change_message, drop_one, run_cheat
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


def shared_context(cheat: Cheat) -> SharedContext:
    """The facts of a shared session."""
    return SharedContext.of(cheat.consortium.setup.context)


def encrypted_context(cheat: Cheat) -> EncryptedContext:
    """The facts of an encrypted session."""
    return EncryptedContext.of(cheat.consortium.setup.context)


def own_session_key(cheat: Cheat, member: int, honest: SessionKeys) -> SessionKeys:
    """The server's own key in the first aggregator's name: it would open every share sealed to it."""
    first, *rest = honest.pledges
    own = AgreementKey.generate(OperatingSystem()).public
    forged = sharing.sign_pledge(
        shared_context(cheat), cheat.consortium.party(SERVER_INDEX).identity, first.aggregator, first.step, own
    )
    return SessionKeys((forged, *rest))


class ToLastAggregator(At):
    """Lies to the last aggregator; the first sides with the server and signs what it wants."""

    @property
    def targets(self) -> tuple[int, ...]:
        """The honest aggregator."""
        return self.consortium.seconds[-1:]


def shorter_list(cheat: Cheat, member: int, honest: SetLists) -> SetLists:
    """The first aggregator's list without its last upload, signed by it again: the two would open different sums."""
    first, *rest = honest.lists
    colluder = cheat.consortium.party(cheat.consortium.seconds[0])
    shorter = replace(first, manifests=first.manifests[:-1])
    return SetLists((sharing.sign_list(shared_context(cheat), colluder.identity, shorter), *rest))


class LeavesOneOut(Cheat):
    """Sides with an aggregator that signs receipts for all uploads and forgets those of client 1."""

    @property
    def targets(self) -> tuple[int, ...]:
        """The client that is left out."""
        return self.consortium.clients[:1]


class Forgetful(FederationHelper):
    """Aggregators of which the first signs a receipt for the first client's upload and leaves the upload out."""

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Take it, sign for it, forget it."""
        receipt = await super().upload(member, frame, parts)
        work, first = self._uploads[peek(frame).round_digest], self.setup.context.clients[0]
        collecting: Any = work._collecting  # noqa: SLF001 (it is its own memory)
        if collecting is not None and self.me.member == next(iter(self.setup.context.helpers)):
            kept = tuple(each for each in collecting.manifests if each.client != first)
            work._collecting = replace(collecting, manifests=kept)  # noqa: SLF001
        return receipt


async def dropped_upload(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
    """A session in which an acknowledged upload is left out; the client must find out, and from whom."""
    cheat = LeavesOneOut(Consortium.enrol(folder, "shared"))
    endings = await play(cheat, Forgetful)
    cheat.deceived.update(cheat.targets)
    return cheat, endings


def own_public_key(cheat: Cheat, member: int, honest: PublishedKey) -> PublishedKey:
    """A sealing key of the server's in the key holder's name: it would know every mask."""
    key = replace(honest, sealing_key=AgreementKey.generate(OperatingSystem()).public)
    return encryption.sign_key(encrypted_context(cheat), cheat.consortium.party(SERVER_INDEX).identity, key)


class ToHolder(At):
    """Lies to the key holder alone."""

    @property
    def targets(self) -> tuple[int, ...]:
        """The key holder."""
        return self.consortium.seconds


def declare(cheat: Cheat, uploads: Any, packed: bytes) -> SumRequest:
    """A request that the server signed, for these bytes as the sum of these uploads."""
    unsigned = Declaration(tuple(uploads), hashlib.sha256(packed).digest(), bytes(64))
    identity = cheat.consortium.party(SERVER_INDEX).identity
    return SumRequest(encryption.sign_declaration(encrypted_context(cheat), identity, unsigned), packed)


def send_sum_of(
    members: Callable[[tuple[int, ...]], tuple[int, ...]],
) -> Callable[[Cheat, int, SumRequest], SumRequest]:
    """The sum of some members' ciphertexts, declared as that of all of them.

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
    """The honest sum with an amount added to its first entry, for which it takes no key: twice the capacity and one."""
    context, parameters = encrypted_context(cheat), encrypted_context(cheat).parameters
    total = context.summed(honest.packed)
    amount = np.array([2 * context.largest + 1], dtype=np.int64)
    add(total[:1, 0], scaled(parameters, amount), parameters.primes)
    return declare(cheat, honest.declaration.uploads, pack(total, parameters.entry_bytes))


def one_declared(cheat: Cheat, member: int, honest: SumRequest) -> SumRequest:
    """One upload declared as the whole set."""
    return declare(cheat, honest.declaration.uploads[:1], honest.packed)


class OpensTwice(Cheat):
    """Shows the key holder a second sum once the first is opened."""

    def __init__(self, consortium: Consortium) -> None:
        super().__init__(consortium)
        self._request: SumRequest | None = None

    @property
    def targets(self) -> tuple[int, ...]:
        """The key holder."""
        return self.consortium.seconds

    def falsify(self, member: int, body: FrameBody) -> bytes | None:
        """Remember the honest request."""
        if body.step == tag_of(SumRequest):
            self._request = payload_of(body, SumRequest)
        return None

    async def make_up(self, member: int, step: str) -> bytes | None:
        """A smaller set where the outcome is due."""
        if step != tag_of(Outcome) or member not in self.targets or self._request is None:
            return None
        uploads = self._request.declaration.uploads
        kept = drop_one(tuple(each.member for each in uploads), 0)
        return self.lie(member, declare(self, (u for u in uploads if u.member in kept), self._request.packed))


OPENERS = (
    Probe(
        "own session key",
        "shared",
        "shows every client a session key of its own in an aggregator's name",
        "session keys are signed by their aggregators",
        "did not sign",
        change_message(SessionKeys, own_session_key, "shared"),
    ),
    Probe(
        "two lists",
        "shared",
        "shows two aggregators different lists; one of them helps",
        "every aggregator commits to its list before it sees another's",
        "shows another list than the one that",
        change_message(SetLists, shorter_list, "shared", ToLastAggregator),
    ),
    Probe(
        "dropped upload",
        "shared",
        "leaves out an upload for which an aggregator signed a receipt",
        "the client holds the receipt against the aggregator's signed list",
        "signed a receipt for this upload and left it out",
        dropped_upload,
    ),
    Probe(
        "own public key",
        "encrypted",
        "shows every client a key of its own in the key holder's name",
        "the published key is signed by the key holder",
        "the published key is not signed for this session",
        change_message(PublishedKey, own_public_key, "encrypted"),
    ),
    Probe(
        "second opening",
        "encrypted",
        "asks the key holder to open a second sum",
        "the key holder opens one sum of a session, ever",
        "Outcome is awaited",
        run_cheat(OpensTwice, "encrypted"),
    ),
    Probe(
        "one ciphertext",
        "encrypted",
        "passes one client's ciphertext off as the sum",
        "the other clients' masks stay on, and are no noise that honest ciphertexts have",
        "more noise than a sum of honest ciphertexts",
        change_message(SumRequest, send_sum_of(lambda members: members[:1]), "encrypted", ToHolder),
    ),
    Probe(
        "undeclared set",
        "encrypted",
        "adds other uploads than it declares",
        "the masks of exactly the declared set are taken off",
        "more noise than a sum of honest ciphertexts",
        change_message(SumRequest, send_sum_of(lambda members: members[:-1]), "encrypted", ToHolder),
    ),
    Probe(
        "beyond capacity",
        "encrypted",
        "adds an amount of its own to the sum of ciphertexts, which no sum of the plan can hold",
        "what is opened lies within the plan's capacity",
        "an entry lies outside the plan's capacity",
        change_message(SumRequest, beyond_capacity, "encrypted", ToHolder),
    ),
    Probe(
        "one declared",
        "encrypted",
        "declares a single upload",
        "the least number of clients follows from the plan",
        "declares 1 clients; at least",
        change_message(SumRequest, one_declared, "encrypted", ToHolder),
    ),
)


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
