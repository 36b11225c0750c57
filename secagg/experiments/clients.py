"""Which simulated client holds which training records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.data import Dataset, partition
from secagg.errors import BadInput
from secagg.experiments.settings import DEFAULT_CLIENTS, SimulationSettings


def split(dataset: Dataset, settings: SimulationSettings) -> tuple[NDArray[np.int64], ...]:
    """Each client's training rows. Raises BadInput for a number of clients that the data do not have."""
    train, clients = dataset.train, settings.clients
    if dataset.parts is not None:
        if clients not in (None, len(dataset.parts)):
            problem = f"{dataset.name} holds {len(dataset.parts)} tables, one client each"
            raise BadInput(problem, remedy="leave out the number of clients")
        return tuple(rows for _, rows in dataset.parts)
    wanted = clients if settings.partition.startswith("column:") else clients or DEFAULT_CLIENTS
    return partition(train.labels, train.columns, settings.partition, wanted, settings.seed)
