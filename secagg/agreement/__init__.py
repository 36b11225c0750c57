"""The documents of a consortium's agreement: the roster of parties, the plan of a federation, each client's policy."""
