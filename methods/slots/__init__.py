"""Methods that sum records by parts (slots) of a class: hash buckets, clusters or concepts."""
