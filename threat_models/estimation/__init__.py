"""Statistics for audits: confidence intervals, limits on attacks under a privacy claim, and ε recomputed or bounded."""
