"""Methods that sum per slot of a class: a group, a cluster or a concept."""
