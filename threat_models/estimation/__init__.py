"""Numbers that an audit may stand on: intervals, ceilings under a claim, ε measured, recomputed and bounded."""
