"""Hold the records called members, and those called others, against the opened sum.

Every number of a membership test supposes that both are what they are called. An exact sum shows at once where they
cannot be: what the known records leave of it must be a sum of records, too, and what both leave must not be nothing.
Under noise each bound is moved by what the noise exceeds once in a million sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh

from secagg.encoding import full_matrix
from threat_models.attacks.gaussian_likelihood import standardise, total
from threat_models.attacks.membership.noise_check import is_explained
from threat_models.session import AuditRecords, Blocks, Session

LEVEL = 1e-6
"""Known records that took part are doubted in so many sums with noise, and in none without."""
NUMERICAL = 2.0**-48
"""Part of a matrix's largest eigenvalue by which others may come out too small, for each dimension."""
UNSURE = f" (under noise, so that this is wrong once in {1 / LEVEL:,.0f} sums)"


def find_doubts(session: Session, known: AuditRecords, others: AuditRecords) -> tuple[str, ...]:
    """Find why `known` cannot all be in a session's sum, or why `others` may be in it; nothing where that is plausible.

    Nothing too where the session shows no sum of classes, or divides them: whose cell a record is in depends on whose
    it is.
    """
    release = session.release
    if "class_sums" not in release or len(release["counts"]) != len(session.plan.classes):
        return ()
    return (*_doubt_known(session, known), *_doubt_others(session, known, others))


def _doubt_known(session: Session, known: AuditRecords) -> Iterator[str]:
    """The first reason why the opened sum without the known records cannot be a sum of records."""
    if not len(known):
        return
    rest = _subtract(session.release, total(known, len(session.release["counts"]), frozenset(session.release)))
    noise = session.noise
    counts, sums = rest["counts"], rest["class_sums"]
    dimension, levels = sums.shape[1], session.plan.levels
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
    longest = least * levels + sigma["class_sums"] * (math.sqrt(dimension) + reach)
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
    """Whether B can be Σ q qᵀ of records with these counts and class sums.

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
    """Whether the records said to have taken no part are, with the known ones or alone, all that a sum holds."""
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
    """In which classes, of those that `others` have, these parts together are what was summed."""
    counts, sums = np.asarray(blocks["counts"]), np.asarray(blocks["class_sums"])
    made: list[dict[str, Any]] = [total(each, len(counts), frozenset({"counts", "class_sums"})) for each in parts]
    same: NDArray[np.bool_] = np.bincount(others.cells, minlength=len(counts)) > 0
    same &= counts == sum(each["counts"] for each in made)
    same &= (sums == sum(each["class_sums"] for each in made)).all(axis=1)
    return same
