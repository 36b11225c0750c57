"""The fault matrix: every kind of fault, at every party, under every protection, in one round and in three."""
