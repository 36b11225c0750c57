"""Membership tests: whether a record was among those that were summed, or from which a head was made."""
