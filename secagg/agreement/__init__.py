"""What a consortium agrees on: the roster of its parties, the plan of a federation, each client's policy."""
