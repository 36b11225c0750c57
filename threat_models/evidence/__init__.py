"""Where sessions come from: recorded transcripts, and simulations of the same plan."""
