"""The ledger, a client's record of what its data were charged, and the account of a data set's budget."""

from secagg.ledger.ledger import FILE_NAME, START, Entry, Ledger, head_after

__all__ = ["FILE_NAME", "START", "Entry", "Ledger", "head_after"]
