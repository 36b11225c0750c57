"""Membership tests: whether a record was among those that were summed, or that a head was made of."""
