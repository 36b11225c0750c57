"""The agreement of a consortium: the roster of its parties, the plan of a federation, each client's policy."""
