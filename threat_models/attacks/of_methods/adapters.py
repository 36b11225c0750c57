"""Attack a shared adapter: test membership, and infer which type of question a member's records ask.

Heads are the members' own, so the adversary trains one of its own on public records, on what the encoder pools with the
adapter as it is. With it a record has losses along the rounds, and a gradient that a round's sum, or the difference of
two rounds, may point along (Nasr, Shokri & Houmansadr 2019). A member's own update, where it is seen, is held against
those that public records of each question give from the same public start: the most similar one names what the member's
records are about (property inference: Ateniese et al. 2015, Melis et al. 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from methods.baselines.softmax_regression import by_lbfgs
from methods.training.feddat import AdapterUpdate, public_start
from methods.training.training_round import MODEL, TrainingRound
from secagg.networks import Adapted, OverEncoder, record_gradients
from secagg.networks.adapted import Dual, WithHead
from secagg.networks.distillation import distil, distilling
from secagg.randomness import OperatingSystem
from threat_models.attacks import updates
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.membership.blind_baseline import BLIND, Trial, try_candidates
from threat_models.attacks.membership.metrics import Figures
from threat_models.attacks.of_methods.lira import losses
from threat_models.attacks.updates import DIFFERENCE, ONE_MEMBER, Moved, beyond_class
from threat_models.estimation.intervals import clopper_pearson
from threat_models.findings import SHARE, Control, Finding, Metric, Verdict
from threat_models.session import AuditRecords, Floats, Knowledge
from threat_models.views import View

LOSSES = Figures("adapter", "by the shared adapter")
ALONG = Figures("adapter_moves", "by rounds' sums and differences")
QUESTION = Metric("question_type", "members whose question is named", SHARE, "{baseline}, chance", leads=True)
MOST_RECORDS = 240
"""Most candidates that are scored, half of them members: each takes a gradient through the encoder."""
MOST_MOVES = 3
"""Most sums, and differences of sums, that records' gradients are compared with: the first and the last."""
CONTROL_DRAWS, LEAST_OF_TYPE = 8, 5
SEED = 20_240_225


@dataclass(frozen=True, eq=False)
class Seen:
    """An adapter's training as an adversary sees it: the encoder, the adapter's states, and the adversary's own head.

    The states are those before each round; the head is trained on the last.
    """

    program: OverEncoder
    states: Sequence[Floats]
    head: Floats
    within: Callable[[Adapted], OverEncoder]

    @classmethod
    def of(cls, rounds: Sequence[TrainingRound], knowledge: Knowledge, public: AuditRecords) -> Seen:
        """Collect adapter states, and fit the adversary's head to public records. Raises TypeError without adapters."""
        work = rounds[-1].work
        if not isinstance(work, AdapterUpdate) or knowledge.within is None:
            raise TypeError("these rounds move no adapter")
        adapted = work.adapted
        program = knowledge.within(WithHead(adapted.dimension, adapted.classes, adapted.adapter))
        states = [each.state.groups[MODEL] for each in rounds]
        seen = cls(program, states, np.zeros(program.size - len(states[-1])), knowledge.within)
        trained = by_lbfgs(seen.pooled(states[-1], public), public.labels, adapted.classes)
        return replace(seen, head=np.concatenate([trained.weight.ravel(), trained.bias]).astype(np.float64))

    def pooled(self, state: Floats, records: AuditRecords) -> Floats:
        """Compute records' features (n, d) by the encoder, with the adapter in the given state."""
        import torch

        from secagg.networks.programs import named_parameters

        row = torch.tensor(np.concatenate([state, self.head]), dtype=torch.float32)
        adapted = self.program.adapted
        changes = adapted.adapter.changes(self.program.encoder, named_parameters(self.program, row), adapted.prefixes)
        with torch.inference_mode(), self.program.encoder.changed(changes):
            parts = torch.split(torch.from_numpy(_prepared(records)), 64)
            return torch.cat([self.program.encoder.pooled(part) for part in parts]).numpy().astype(np.float64)

    def losses(self, state: Floats, records: AuditRecords) -> Floats:
        """Compute records' losses (n,) under the adversary's head, with the adapter in the given state."""
        weight, bias = np.split(self.head, [self.program.adapted.dimension * self.program.classes])
        scores = self.pooled(state, records) @ weight.reshape(self.program.classes, -1).T + bias
        return losses(scores, records.labels)[0]

    def falls(self, records: AuditRecords) -> Floats:
        """Compute the fall of losses (n,) from the first adapter state to the last; of one state, minus the losses."""
        last = self.losses(self.states[-1], records)
        return self.losses(self.states[0], records) - last if len(self.states) > 1 else -last

    def along(self, move: Moved, records: AuditRecords) -> Floats:
        """Compute how fast each record's loss (n,) falls as the adapter moves in the direction of `move`."""
        state = move.round.state.groups[MODEL]
        rows = record_gradients(self.program, np.concatenate([state, self.head]), _prepared(records), records.labels)
        return -np.concatenate([part[:, : len(state)].astype(np.float64) @ move.way for part in rows])

    def update_of(self, round_: TrainingRound, records: AuditRecords) -> Floats:
        """Compute the direction, of length 1, in which a member with these records would move the adapter in a round.

        It begins at the public start of head and own adapter, as a member does in the first round.
        """
        state, work = round_.state.groups[MODEL], round_.work
        if not isinstance(work, AdapterUpdate):
            raise TypeError("this round moves no adapter")
        program, settings, place = self.within(work.adapted), work.settings, (1, work.rounds)
        start = np.concatenate([state, public_start(work.adapted)[len(state) :]])
        if isinstance(work.adapted, Dual):
            program = distilling(program, state, settings, settings.alpha(0.0, *place) * settings.temperature**2)
        trained = distil(program, start, _prepared(records), records.labels, settings, place, OperatingSystem())
        moved: Floats = trained[: len(state)] - state
        return moved / max(float(np.linalg.norm(moved)), 1e-300)


def _prepared(records: AuditRecords) -> NDArray[np.float32]:
    if records.prepared is None:
        raise TypeError("there are no pictures and texts")
    return records.prepared


def _questions_of(records: AuditRecords, tokens: int) -> NDArray[np.int64]:
    """Return the number of the question that each record asks (n,), by its words; 0 where the encoder reads no text."""
    texts = _prepared(records)[:, -2 * tokens :] if tokens else np.zeros((len(records), 1))
    return np.unique(texts, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    public = knowledge.public
    if updates.rounds_in(views[0], of_adapters=True) and (
        public is None or public.prepared is None or not knowledge.within
    ):
        told = "It takes the encoder and public pictures with texts, which were not given."
        return Finding(ADAPTERS.name, "", Verdict.INCONCLUSIVE, told)
    return _RUN(views, knowledge, progress)


def _score(rounds: tuple[TrainingRound, ...], trial: Trial) -> Finding:
    generator = np.random.default_rng(SEED)
    sides = [np.flatnonzero(trial.is_member == side) for side in (True, False)]
    rows = np.concatenate([generator.permutation(side)[: MOST_RECORDS // 2] for side in sides])
    trial = replace(trial, records=trial.records.take(rows), is_member=trial.is_member[rows])
    public, moves = trial.public, updates.moves_in(trial.view, of_adapters=True)
    seen = Seen.of(rounds, trial.knowledge, public)
    tests = {LOSSES: trial.scored(beyond_class(seen.falls, trial.records, public))}
    trial.progress(1, 3)
    differences = [each for each in moves if each.name == DIFFERENCE]
    sums = [each for each in moves if each.name not in (DIFFERENCE, ONE_MEMBER)]
    if chosen := [*sums[:1], *sums[1:][-1:], *differences[-1:]][:MOST_MOVES]:
        few = public.take(np.arange(min(len(public), MOST_RECORDS)))
        along = sum(beyond_class(partial(seen.along, each), trial.records, few) for each in chosen)
        tests[ALONG] = trial.scored(np.asarray(along))
    trial.progress(2, 3)
    named = _name_questions(seen, [each for each in moves if each.name == ONE_MEMBER], trial.knowledge, public)
    controls = _make_controls(seen, rounds[0], public)
    trial.progress(3, 3)
    told, curve = "With a head of the adversary's own: {words}.", "Membership, from a shared adapter"
    if named is None:
        told += " No member's own update is seen: the sum does not say who asks what.{blind}"
        return trial.find(tests, controls, told, curve, withstood=len(tests) == 2)
    right, members, types = named
    told += f" Of {members} members' own updates {right} name what the member asks, among {types} questions."
    interval = clopper_pearson(right, members)
    withstood, beside = len(tests) == 2 and interval.high <= 1 / types, interval.measure(QUESTION, baseline=1 / types)
    succeeded = interval.low > 1 / types
    told += "{blind}"
    return trial.find(tests, controls, told, curve, succeeded=succeeded, withstood=withstood, beside=(beside,))


def _name_questions(
    seen: Seen, moves: Sequence[Moved], knowledge: Knowledge, public: AuditRecords
) -> tuple[int, int, int] | None:
    """Count members whose own update names their question: (named, members, questions); None without such updates."""
    tokens = seen.program.encoder.tokens
    first = {next(iter(move.owners)): move for move in reversed(moves)}
    both = replace(public, prepared=np.concatenate([_prepared(public), _prepared(knowledge.candidates)]))
    asked = _questions_of(both, tokens)
    of_public, of_candidates = asked[: len(public)], asked[len(public) :]
    types = [each for each in np.unique(of_public) if (of_public == each).sum() >= LEAST_OF_TYPE]
    owners = np.array(knowledge.owners)
    theirs = {owner: of_candidates[owners == owner] for owner in first if (owners == owner).any()}
    if len(types) < 2 or not theirs:
        return None
    right = 0
    for owner, own in theirs.items():
        move = first[owner]
        learnt = [seen.update_of(move.round, public.take(of_public == each)) for each in types]
        guess = types[int(np.argmax([update @ move.move for update in learnt]))]
        right += int(guess == np.bincount(own).argmax())
    return right, len(theirs), len(types)


def _make_controls(seen: Seen, round_: TrainingRound, public: AuditRecords) -> tuple[Control, Control]:
    """Make the controls: name the questions of updates of half of the public records by updates of the other half.

    Those of one question must name it, more often than by chance; those of records of all questions must not.
    """
    asked = _questions_of(public, seen.program.encoder.tokens)
    types = [each for each in np.unique(asked) if (asked == each).sum() >= 2 * LEAST_OF_TYPE]
    names = "updates of public records of one question", "updates of public records of all questions"
    if len(types) < 2:
        return Control(names[0], True, succeeded=False), Control(names[1], False, succeeded=False)
    generator = np.random.default_rng(SEED)
    halves = {each: np.array_split(np.flatnonzero(asked == each), 2) for each in types}
    learnt = {each: seen.update_of(round_, public.take(half)) for each, (half, _) in halves.items()}
    others = np.concatenate([other for _, other in halves.values()])

    hits, trials = [0, 0], CONTROL_DRAWS * len(types)
    for _ in range(CONTROL_DRAWS):
        for kind, (_, own) in halves.items():
            for place, rows in enumerate((own, others)):
                update = seen.update_of(round_, public.take(generator.choice(rows, len(own))))
                hits[place] += types[int(np.argmax([learnt[each] @ update for each in types]))] == kind
    one, other = (clopper_pearson(each, trials).low > 1 / len(types) for each in hits)
    return Control(names[0], True, succeeded=one), Control(names[1], False, succeeded=other)


_RUN = try_candidates(
    "adapters", updates.NO_ADAPTER, lambda view: updates.rounds_in(view, of_adapters=True) or None, _score
)
ADAPTERS = Attack(
    "adapters",
    "Membership and questions, from a shared adapter",
    "Nasr, Shokri & Houmansadr 2019; Melis et al. 2019; Ateniese et al. 2015",
    (),
    _run,
    (*LOSSES.metrics, *ALONG.metrics, QUESTION, BLIND),
    tells_members=True,
    limits=10,
    meaning="Whether a record was used, and what members ask, shows in how the shared adapter moves.",
    remedy="Plan with a finite epsilon, or with more members and records in each sum.",
    lacks=lambda session: "" if updates.may_move(session, updates.is_adapter) else updates.NO_ADAPTER,
)
