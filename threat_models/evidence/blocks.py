"""From flat vectors to blocks in the units of one record, by cell, and what is known of their noise in these units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from methods.method import domains_of
from secagg.encoding import Integers
from secagg.parties import SessionSetup
from secagg.privacy import OpenedNoise
from threat_models.session import Blocks, Records, Session

GENERIC = {"slot_counts": "counts", "slot_sums": "class_sums"}
"""What blocks of divided classes are called in a session, whose attacks know cells alone."""
COUNTS = ("counts", "slot_counts")


def blocks_of(setup: SessionSetup, vector: Integers) -> Blocks:
    """The blocks of a vector, multipliers divided out (float64 where there is one), cells in one row."""
    blocks = setup.layout.split(vector)
    factors = {block.name: block.multiplier for block in setup.layout.blocks}
    whole = {name: block if factors[name] == 1 else block / factors[name] for name, block in blocks.items()}
    shapes = {"slot_counts": (-1,), "slot_sums": (-1, setup.plan.dimension)}
    return {GENERIC.get(name, name): block.reshape(shapes.get(name, block.shape)) for name, block in whole.items()}


def noise_of(setup: SessionSetup, members: int) -> Mapping[str, OpenedNoise] | None:
    """The noise on the opened blocks in the same units; None without noise."""
    noise = setup.opened_noise(members)
    if noise is None:
        return None
    return {GENERIC.get(name, name): each.of_record for name, each in noise.items()}


def cell_names(setup: SessionSetup) -> tuple[str, ...]:
    """What the cells of a session's sum are called: "7", "7, slot 3", "dog, photo, slot 3"."""
    plan = setup.plan
    shape = next((block.shape for block in setup.layout.blocks if block.name in COUNTS), (len(plan.classes),))
    domains = domains_of(plan.method_parameters) if len(shape) > 2 else ()
    slots = [f"slot {slot}" for slot in range(shape[-1])] if len(shape) > 1 and shape[-1] > 1 else [""]
    return tuple(
        ", ".join(filter(None, (name, domain, slot)))
        for name in plan.classes
        for domain in domains or ("",)
        for slot in slots
    )


def assign_cells(session: Session, records: Records) -> Records:
    """Place one party's records in the cells of a session's sum; −1 stands for a record that is in no cell."""
    if session.round is None:
        return records
    classes = len(session.plan.classes)
    places = session.round.cells(records.examples, classes)
    cells = records.labels * (len(session.cells) // classes) + places
    return replace(records, in_cells=np.where(places < 0, -1, cells))


def keep_counted(session: Session, records: Records) -> Records:
    """Keep the records that are in a cell; where cells are the classes, `in_cells` is None."""
    found = records.take(records.cells >= 0)
    return found if len(session.cells) > len(session.plan.classes) else replace(found, in_cells=None)
