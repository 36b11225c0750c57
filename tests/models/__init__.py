"""Models of the protocol that a model checker searches."""
