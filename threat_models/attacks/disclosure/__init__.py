"""What sums say outright, without a statistical test: of classes, of single records, of one client."""
