"""Numbers of the papers and of stored data, made again."""
