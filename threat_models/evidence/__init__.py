"""Sources of an audit's sessions: recorded transcripts, and simulations of the same plan."""
