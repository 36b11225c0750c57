"""Single records, and images of them, made again out of sums and means."""
