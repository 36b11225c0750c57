"""A plan's whole sequence of sessions, with all its parties."""
