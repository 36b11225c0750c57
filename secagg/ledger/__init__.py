"""The ledger of what each release cost, and the account that it makes of a data set's budget."""

from secagg.ledger.ledger import FILE_NAME, START, Entry, Ledger, head_after

__all__ = ["FILE_NAME", "START", "Entry", "Ledger", "head_after"]
