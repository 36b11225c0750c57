"""The ledger, a client's record of the privacy cost charged to its data sets, and the state of each one's budget."""

from secagg.ledger.ledger import FILE_NAME, START, Entry, Ledger, head_after

__all__ = ["FILE_NAME", "START", "Entry", "Ledger", "head_after"]
