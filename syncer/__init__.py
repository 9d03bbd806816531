"""syncer: three-way reconciliation of a folder with a Pithos-style object store."""
