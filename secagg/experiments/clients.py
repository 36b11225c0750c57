"""Which simulated client holds which training records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.data import Dataset, partition
from secagg.errors import BadInput
from secagg.experiments.settings import DEFAULT_CLIENTS, SimulationSettings


def split(dataset: Dataset, settings: SimulationSettings) -> tuple[NDArray[np.int64], ...]:
    """Each client's training rows. Raises BadInput unless there are more clients than dropouts."""
    train, clients = dataset.train, settings.clients
    if dataset.parts is not None:
        if clients not in (None, len(dataset.parts)):
            raise BadInput(
                f"{dataset.name} holds {len(dataset.parts)} tables, one client each", remedy="leave out --clients"
            )
        rows = tuple(rows for _, rows in dataset.parts)
    else:
        wanted = clients if settings.partition.startswith("column:") else clients or DEFAULT_CLIENTS
        rows = partition(train.labels, train.columns, settings.partition, wanted, settings.seed)
    if settings.dropouts >= len(rows):
        raise BadInput(f"{settings.dropouts} of {len(rows)} clients cannot drop out", remedy="lower --dropouts")
    return rows
