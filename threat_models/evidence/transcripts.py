"""Sessions read from transcripts: verified first, and limited to what the transcript's party saw."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh

from secagg.agreement.roster import SERVER_INDEX
from secagg.data.records import BAD
from secagg.encoding import Integers, full_matrix, sum_digest
from secagg.errors import BadInput, MalformedMessage, SecaggError
from secagg.features.pipeline import Pipeline
from secagg.heads import load_as
from secagg.networks import parse_artifact
from secagg.protection.messages import Outcome
from secagg.session import RoundSetup
from secagg.session.attachments import SUM_FILE
from secagg.session.outcome import PURGED, SUM_GONE, head_path, unpack_sum
from secagg.session.staging import vector_path
from secagg.session.transcripts import outcome_of
from secagg.system.reading import sha256_of
from secagg.transcript import Record, payload_of, peek
from secagg.verification.transcript_series import verify_together
from secagg.verification.verification import NOTHING_BROUGHT, Trust, Verified
from secagg.wire import tag_of
from threat_models.attacks.gaussian_likelihood import standardise, total
from threat_models.attacks.membership.noise_check import is_explained
from threat_models.evidence.blocks import assign_cells, blocks_of, keep_counted, noisy_sum_of, session_of
from threat_models.evidence.simulation import records_of
from threat_models.report.content import Input
from threat_models.session import SOMEBODY, AuditRecords, Blocks, Knowledge, Message, Provenance, Session, join_records

EVERYONE = "everyone"
SHARED = 0.1
"""Share of the known records that may be among the public ones by chance; above it both are the same people's."""


def read_sessions(paths: Sequence[Path], trust: Trust = NOTHING_BROUGHT) -> tuple[Session, ...]:
    """Verify each transcript, and return its session with the other sums of its plan.

    Raises TranscriptInvalid when one does not verify, BadInput when it shows no opened sum, when its vectors were
    purged, or when files beside it are missing or not those that it names. The opened sum is there when the party has
    it: a server's, or a member's that was shown it.
    """
    found = verify_together(paths, trust)
    for each in found:
        if isinstance(each, SecaggError):
            raise each
    sums = [each for each in found if isinstance(each, Verified) and not (each.setup.is_draw or each.setup.is_end)]
    if not sums:
        problem = "there is no sum in the draw of cohorts, or in a plan's end"
        raise BadInput(problem, remedy="audit a round's transcript")
    return tuple(map(_session, sums))


def _session(proved: Verified) -> Session:
    setup, role, path = proved.setup, proved.role, proved.path
    if PURGED in proved.doubts:
        raise BadInput(f"the vectors beside {path} were purged", remedy="audit a session before you purge it")
    if SUM_GONE in proved.doubts:
        remedy = "bring them back, and the folders of the rounds beside it"
        raise BadInput(f"sum or head are gone from beside {path}", remedy=remedy)
    frames = [record for record in proved.records if record.kind in ("received", "sent")]
    outcome = outcome_of(frames)
    if outcome is None:
        raise BadInput(f"{path} has no outcome to audit: {proved.told['session']}", remedy="audit the server's")
    opened, file = _read_sum(setup, path.parent, outcome), head_path(path.parent)
    head = load_as(file, parse_artifact)[0] if file.exists() else None
    if head is not None and bytes.fromhex(head.digest) != outcome.head_sha256:
        raise BadInput(f"{file} is not the head that the transcript names", remedy="restore it")
    files = {setup.context.names[each]: vector_path(path.parent, each) for each in outcome.members}
    # of a server alone; none under a protection whose uploads go elsewhere
    uploads = {name: each.read_bytes() for name, each in files.items() if role == "server" and each.exists()}
    in_clear = {}
    for name, upload in () if setup.protection.hides_vectors else uploads.items():
        residues = setup.context.ring.unpack(upload, setup.context.length)
        in_clear[name] = blocks_of(setup, setup.context.ring.decode(residues))
    return session_of(
        setup,
        outcome.members,
        opened,
        head=head,
        messages=_messages(setup, frames),
        uploads=uploads,
        contributions=in_clear,
        noisy_sums=() if opened is None else (noisy_sum_of(setup, opened, len(outcome.members)),),
        sums=setup.rounds,
        role=role,
        transcript_sha256=proved.records[-1].head.hex(),
        provenance=_provenance(proved),
    )


def _provenance(proved: Verified) -> Provenance:
    return Provenance(
        str(proved.path),
        proved.verdict,
        proved.proves,
        proved.setup.roster.digest.hex(),
        proved.vouched_by,
        proved.signed_by,
        bool(proved.doubts),
        proved.setup.roster.consortium,
        len(proved.setup.roster.clients),
    )


def of_plans(sessions: Sequence[Session]) -> tuple[Session, ...]:
    """Choose one session for each plan and party: of several rounds, the last with sums by class.

    Those before it are its `earlier` sums where they hold class sums, as `rehearse` has it; a census and what comes
    after are not attacked. Of plans without such a sum it is the last round, with all before it.
    """
    rounds: dict[tuple[str, str], list[Session]] = {}
    for session in sessions:
        rounds.setdefault((session.plan.digest.hex(), session.role), []).append(session)
    found = []
    for each in rounds.values():
        numbered = {session.number: session for session in each}
        if len(numbered) < len(each):
            raise BadInput("two transcripts are of one round", remedy="give each once, of one party")
        ordered = [numbered[number] for number in sorted(numbered)]
        *earlier, main = [session for session in ordered if "class_sums" in session.release] or ordered
        noisy_sums = tuple(noisy for number in sorted(numbered) for noisy in numbered[number].noisy_sums)
        found.append(replace(main, earlier=tuple(earlier), noisy_sums=noisy_sums))
    return tuple(found)


def known_of(
    session: Session, known: str | None, public: str | None, records: int | None = None, backbone: str | None = None
) -> Knowledge:
    """Read files of records that took part (`known`) and did not (`public`); half of the latter are for comparison.

    Those that are in no cell of the sum are left out: of `known`, one client's data, by that client's own rule.
    `records` is how many took part, where the public was told; `backbone` where the plan's is kept, by default as the
    plan calls it. Both files are held against the opened sum (`doubts`). Raises BadInput for data that the plan does
    not take, and for files that share records.
    """
    inside = _records_of_file(session, known, backbone) if known else None
    others = _records_of_file(session, public, backbone) if public else None
    like = inside if others is None else others
    if like is None:
        integers = np.zeros((0, session.plan.dimension), dtype=np.int64)
        return Knowledge(AuditRecords(integers, integers[:, 0], integers.astype(np.float64)), (), records=records)
    inside, others = inside or like.take(slice(0)), others or like.take(slice(0))
    members, strangers = (
        [(label, row.tobytes()) for label, row in zip(each.labels.tolist(), each.integers, strict=True)]
        for each in (inside, others)
    )
    if (both := sum(map(set(strangers).__contains__, members))) > SHARED * len(inside):
        problem = f"{both} of the {len(inside)} records of {known} are in {public} too"
        raise BadInput(problem, remedy="public records are those of others, who took no part")
    half = len(others) // 2
    candidates = join_records(inside, others.take(slice(half)))
    owners = (*[SOMEBODY] * len(inside), *[""] * half)
    rest = others.take(slice(half, None)) if public else None
    return Knowledge(candidates, owners, rest, records=records, doubts=find_doubts(session, inside, others))


def _records_of_file(session: Session, source: str, backbone: str | None) -> AuditRecords:
    """Read the records of a file, on the grid of the session's plan and in its cells."""
    pipeline = Pipeline.of_plan(session.plan)
    read = pipeline.records(source, tolerant=True)
    rows = np.flatnonzero(read.labels != BAD)
    features = pipeline.features(read.inputs[rows], backbone)
    records = records_of(session.plan, features, read.take(rows), np.arange(len(rows)))
    return keep_counted(session, assign_cells(session, records))


def _read_sum(setup: RoundSetup, folder: Path, outcome: Outcome) -> Integers | None:
    """Read the opened sum from beside the transcript; None where this party has none."""
    file = folder / SUM_FILE
    if not file.exists():
        return None
    try:
        vector = unpack_sum(setup, file.read_bytes())
    except (OSError, MalformedMessage):
        raise BadInput(f"{file} cannot be read", remedy="restore it") from None
    if sum_digest(vector) != outcome.aggregate_sha256:
        raise BadInput(f"{file} is not the sum that the transcript names", remedy="restore it")
    return vector


def _messages(setup: RoundSetup, frames: Sequence[Record]) -> tuple[Message, ...]:
    """Return every frame as a message, its size with the attachments and uploads that it announces."""
    roster, found = setup.roster, []
    for record in frames:
        body = peek(record.content)
        is_broadcast = body.sender == SERVER_INDEX and body.receiver == SERVER_INDEX
        receiver = EVERYONE if is_broadcast else roster.name(body.receiver)
        size = len(record.content)
        if body.step == tag_of(setup.protection.client.announcement) and body.sender in setup.context.identities:
            parts = setup.protection.deliveries(setup.context)
            size += next(part.size for part in parts if part.receiver == body.receiver)
        if body.step == tag_of(Outcome):
            size += sum(each.length for named in payload_of(body, Outcome).attached for each in named)
        found.append(Message(roster.name(body.sender), receiver, body.step, size, record.index))
    return tuple(found)


def input_of(role: str, source: str, records: int) -> Input:
    """Describe an input file, folder or bundled data set by name, SHA-256 and number of records.

    A path below the working folder is named from there, any other by its last two parts. A folder's digest is that of
    a line for each of its files, in order: digest, two spaces, path within (as `sha256sum` prints them).
    """
    path, whole, here = Path(source), Path(source).resolve(), Path.cwd().resolve()
    if not path.exists():
        return Input(role, source, "", records)
    is_below = whole.is_relative_to(here) and whole != here
    name = whole.relative_to(here).as_posix() if is_below else "/".join(whole.parts[1:][-2:])
    return Input(role, name, _digest(path), records)


def _digest(path: Path) -> str:
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file())
        lines = [f"{_digest(each)}  {each.relative_to(path).as_posix()}\n" for each in files]
        return sha256("".join(lines).encode()).hexdigest()
    return sha256_of(path)


LEVEL = 1e-6
"""Known records that did take part are doubted with this probability, per sum with noise; never without noise."""
NUMERICAL = 2.0**-48
"""Rounding error of an eigenvalue, as a share of the matrix's largest, for each dimension."""
UNSURE = f" (under noise, so that this is wrong once in {1 / LEVEL:,.0f} sums)"


def find_doubts(session: Session, known: AuditRecords, others: AuditRecords) -> tuple[str, ...]:
    """Return reasons to doubt that the `known` records are in a session's sum and `others` are not; empty if plausible.

    An exact sum shows at once where they cannot be: what the known records leave of it must be a sum of records, too,
    and what both leave must not be nothing. Under noise each bound is moved by what the noise exceeds once in a million
    sums. Nothing too where the session shows no sum of classes, or divides them: whose cell a record is in depends on
    whose it is.
    """
    release = session.release
    if "class_sums" not in release or len(release["counts"]) != len(session.plan.classes):
        return ()
    return (*_doubt_known(session, known), *_doubt_others(session, known, others))


def _doubt_known(session: Session, known: AuditRecords) -> Iterator[str]:
    """Yield the first reason why the opened sum without the known records cannot be a sum of records, if any."""
    if not len(known):
        return
    rest = _subtract(session.release, total(known, len(session.release["counts"]), frozenset(session.release)))
    noise, counts, sums = session.noise, rest["counts"], rest["class_sums"]
    reach = math.sqrt(2 * math.log((2 * len(counts) + 4) / LEVEL)) if noise else 0.0
    sigma = {name: noise[name].sigma if noise else 0.0 for name in rest}
    unsure = UNSURE if noise else ""
    least = counts + reach * sigma["counts"]
    if (least < 0).any():
        worst = int(np.argmin(least))
        opened, own = session.release["counts"][worst], int(np.sum(known.cells == worst))
        yield (
            f'Of class "{session.plan.classes[worst]}" there are {own} records in --known, and the opened sum holds '
            f"{opened:.0f}{unsure}: they did not all take part."
        )
        return
    longest = least * session.plan.levels + sigma["class_sums"] * (math.sqrt(sums.shape[1]) + reach)
    if (np.linalg.norm(sums, axis=1) > longest * (1 + NUMERICAL)).any():
        worst = int(np.argmax(np.linalg.norm(sums, axis=1) - longest))
        yield (
            f'Without the records of --known the sum of class "{session.plan.classes[worst]}" is longer than its '
            f"records can be together{unsure}: they did not all take part."
        )
    elif "second_moment" in rest and not _is_moment(session, rest, sigma, reach):
        yield (
            f"Without the records of --known the opened second moment is none of any records{unsure}: they did not all "
            "take part."
        )


def _subtract(release: Blocks, taken: Blocks) -> Blocks:
    return {name: np.asarray(release[name], dtype=np.float64) - taken[name] for name in taken}


def _is_moment(session: Session, rest: Blocks, sigma: Mapping[str, float], reach: float) -> bool:
    """Return whether B can be Σ q qᵀ of records with these counts and class sums.

    Its trace is that of so many lengths. It has no eigenvalue below 0: symmetric noise has none beyond σ(√(2d) + t)
    but for e^(−t²/2) (Davidson & Szarek 2001). Without noise neither has B − Σ A_j A_jᵀ/N_j, the scatter in classes.
    """
    plan, counts, sums = session.plan, rest["counts"], rest["class_sums"]
    dimension = sums.shape[1]
    matrix = full_matrix(rest["second_moment"], dimension)
    records, unknown = float(counts.sum()), reach * sigma["counts"] * math.sqrt(len(counts))
    most, least = float(plan.levels) ** 2, 0.0
    if plan.grid.is_normalised:  # rounding changes a length by √d/2 at most
        least = max(0.0, plan.grid.unit(dimension) - math.sqrt(dimension) / 2 - 1) ** 2
    wide = reach * sigma["second_moment"] * math.sqrt(dimension)
    trace = float(np.trace(matrix))
    if not least * (records - unknown) - wide <= trace <= most * (records + unknown) + wide:
        return False
    if not reach:
        held = np.maximum(counts, 1.0)[:, None]
        matrix = matrix - (sums / held).T @ sums
    edge = sigma["second_moment"] * (math.sqrt(2 * dimension) + reach)
    values = eigvalsh(matrix)
    rounding = NUMERICAL * dimension * float(np.sum(session.release["counts"])) * most
    return bool(values[0] >= -edge - rounding)


def _doubt_others(session: Session, known: AuditRecords, others: AuditRecords) -> Iterator[str]:
    """Yield why `others` seem to have taken part: they are all of a sum, alone or with the known ones."""
    if not len(others):
        return
    sums: dict[str, Blocks] = {"the opened sum": session.release}
    if session.noise is not None:
        number, names = len(session.release["counts"]), frozenset(session.release)
        without = _subtract(session.release, total(known, number, names))
        rest = _subtract(without, total(others, number, names))
        if is_explained(standardise(rest, session.noise)) and not is_explained(standardise(without, session.noise)):
            yield (
                "The opened sum is, as far as its noise shows, that of the records of --known and --public together: "
                "whether those of --public took part cannot be told."
            )
        return
    sums |= {f"the vector of {client}": blocks for client, blocks in session.contributions.items()}
    alone, together = ((others,), "--public alone"), ((known, others), "--known and --public together")
    for name, blocks in sums.items():
        for parts, whose in (alone, together):
            cells = _find_equal(blocks, parts, others)
            if cells.any():
                classes = [f'"{each}"' for each, is_equal in zip(session.plan.classes, cells, strict=True) if is_equal]
                what = "" if len(classes) == len(cells) else f" of class {', '.join(classes)}"
                yield f"To the bit, {name}{what} is that of the records of {whose}: those of --public took part."
                return


def _find_equal(blocks: Blocks, parts: tuple[AuditRecords, ...], others: AuditRecords) -> NDArray[np.bool_]:
    """Return a mask of the classes of `others` in which the records of `parts` are exactly what was summed."""
    counts, sums = np.asarray(blocks["counts"]), np.asarray(blocks["class_sums"])
    made: list[dict[str, Any]] = [total(each, len(counts), frozenset({"counts", "class_sums"})) for each in parts]
    same: NDArray[np.bool_] = np.bincount(others.cells, minlength=len(counts)) > 0
    same &= counts == sum(each["counts"] for each in made)
    same &= (sums == sum(each["class_sums"] for each in made)).all(axis=1)
    return same
