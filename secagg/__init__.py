"""secagg: build a classifier head from many members' records in one secure sum.

>>> from secagg import simulate
>>> simulate(features, labels, clients=10, partition="dirichlet:0.1")  # doctest: +SKIP
"""

__version__ = "0.1.0"
