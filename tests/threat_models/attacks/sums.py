"""Plans without a federation, sums under them, and what adversaries see: for attacks on chosen records."""

import numpy as np

from secagg.agreement.plan import PLAN_VERSION, Plan
from secagg.encoding import Normalisation, quantise
from threat_models.adversary import adversary_named
from threat_models.attacks.reconstruction.unmixing import sum_of
from threat_models.session import AuditRecords, Knowledge, Session
from threat_models.views import view_of


def plan_of(dimension, classes, *, radius=1.0, centre=0.0, normalisation=Normalisation.NONE, shape=None, **changes):
    """A plan without noise for records of `dimension` features, images of `shape` where it is given."""
    chosen = {
        "version": PLAN_VERSION,
        "session": bytes(32),
        "purpose": "",
        "method": "fedcgs",
        "parameters": "{}",
        "data_kind": "images" if shape else "features",
        "schema": "",
        "classes": tuple(f"class {index}" for index in range(classes)),
        "backbone": "pixels" if shape else "features",
        "backbone_digest": bytes(32),
        "input_shape": shape or (dimension,),
        "expand": 0,
        "dimension": dimension,
        "radius": radius,
        "levels": 1 << 16,
        "centre": centre,
        "max_records": 1 << 16,
        "protection": "none",
        "colluders": 0,
        "dropouts": 0,
        "minimum_cohort": 1,
        "epsilon": float("inf"),
        "delta": 0.0,
        "adjacency": "",
        "unit": "record",
        "roster": bytes(32),
        "join_seconds": 600,
        "step_seconds": 60,
        "round_seconds": 60,
        "result": "server",
        "normalisation": normalisation.value,
        "noise": "",
        "noises": (),
        "security": 128,
        "at_least": 0,
    }
    return Plan(**chosen | changes)


def records_of(plan, features, labels, images=None):
    """Records as the plan makes them."""
    return AuditRecords(quantise(features, plan.grid), np.asarray(labels, dtype=np.int64), features, images)


def session_of(plan, parts, **changes):
    """A session in which client i had the records `parts[i]`."""
    names = tuple(f"client-{index}" for index in range(len(parts)))
    contributions = {name: sum_of(part, plan) for name, part in zip(names, parts, strict=True)}
    release = {
        block: sum(each[block] for each in contributions.values()) for block in next(iter(contributions.values()))
    }
    content = {
        "plan": plan,
        "clients": names,
        "members": names,
        "release": release,
        "noise": None,
        "claim": None,
        "calibration": None,
        "head": None,
        "messages": (),
        "uploads": {},
        "contributions": contributions,
    }
    return Session(**content | changes)


def seen_by(adversary, session):
    """What one of the named adversaries sees."""
    return view_of(session, adversary_named(adversary))


def knowledge_of(parts, strangers, public=None, backbone=None):
    """All clients' records as candidates, and as many strangers; who has how many of each class."""
    from threat_models.evidence.simulation import join_records

    owners = [f"client-{index}" for index, part in enumerate(parts) for _ in range(len(part))]
    candidates = join_records(*parts, strangers)
    classes = int(candidates.labels.max()) + 1
    held = {f"client-{index}": np.bincount(part.labels, minlength=classes) for index, part in enumerate(parts)}
    return Knowledge(candidates, (*owners, *[""] * len(strangers)), public, backbone, held=held)


def noisy_sum_of(records, plan, sigma, seed=0):
    """The sum of records with Gaussian noise of σ = `sigma`, in units of R_q for class sums and of R_q² for B.

    As plans have it, entries of B off the diagonal get σ/√2.
    """
    blocks, generator = dict(sum_of(records, plan)), np.random.default_rng(seed)
    sums, moment = blocks["class_sums"], blocks["second_moment"]
    rows, columns = np.triu_indices(plan.dimension)
    spread = np.where(rows == columns, 1.0, np.sqrt(0.5)) * sigma * plan.levels**2
    blocks["class_sums"] = sums + sigma * plan.levels * generator.standard_normal(sums.shape)
    blocks["second_moment"] = moment + spread * generator.standard_normal(moment.shape)
    return blocks
