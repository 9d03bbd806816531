"""A mounted blockfs volume as one side of a sync: it scans nothing and hashes nothing."""
