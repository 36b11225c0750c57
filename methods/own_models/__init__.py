"""Methods in which each client trains a model of its own around shared prototypes."""
