"""The control socket of a running mount: how commands and the syncer talk to the process that owns the tree."""
